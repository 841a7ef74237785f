/* Parameter groups: which parameters one takes. */
#ifndef EXO_OPTIM_GROUPS_H
#define EXO_OPTIM_GROUPS_H

#include <exogym/optim.h>

/* Whether name and shape are the group's; of frozen parameters and buffers no. */
bool exo_optim_group_takes(const exo_optim_group *group, const exo_param_info *info);
/* Reads `groups`, a list of mappings, of an optimizer's options; `spec` has the constants that hold
 * for those not given. */
exo_status exo_optim_groups_read(exo_config *options, exo_optim_spec *spec, exo_err *err);
/* The constants of spec->kind out of a mapping; those that are missing stay as they are. */
exo_status exo_optim_constants_read(exo_config *map, exo_optim_spec *spec, exo_err *err);

#endif
