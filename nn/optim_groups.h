/* Parameter groups: their options, and which parameters they take. No state. Read next:
 * optim_groups.c. */
#ifndef EXO_OPTIM_GROUPS_H
#define EXO_OPTIM_GROUPS_H

#include <exogym/optim.h>

/* Whether the group's pattern and dimensions fit the parameter. Never for buffers and frozen
 * parameters. */
bool exo_optim_group_takes(const exo_optim_group *group, const exo_param_info *info);
/* Reads `groups`, a list of mappings, from an optimizer's options. A constant that a group does not
 * give is that of `spec`. The caller releases spec->groups. */
exo_status exo_optim_groups_read(exo_config *options, exo_optim_spec *spec, exo_err *err);
/* Reads the constants of spec->kind from a mapping. A constant that is not given stays as it is. */
exo_status exo_optim_constants_read(exo_config *map, exo_optim_spec *spec, exo_err *err);

#endif
