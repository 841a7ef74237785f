/* Parameter groups: their options, and which parameters they take; the rule of each parameter. No
 * state. Read next: optim_groups.c. */
#ifndef EXO_OPTIM_GROUPS_H
#define EXO_OPTIM_GROUPS_H

#include <exogym/optim.h>

enum {
    EXO_MUON_MAX_STEPS = 100 /* ns_steps is below, as in torch.optim */
};

/* Whether the group's pattern and dimensions fit the parameter. Never for buffers and frozen
 * parameters. */
bool exo_optim_group_takes(const exo_optim_group *group, const exo_param_info *info);
/* The spec that applies to the parameter: that of the first group that takes it, or `spec` itself.
 * *number (may be NULL) is the number of the group plus 1, or 0. */
const exo_optim_spec *exo_optim_spec_of(const exo_optim_spec *spec, const exo_param_info *info,
                                        size_t *number);
/* Whether `spec` is muon and steps the parameter as a matrix. False: AdamW steps it, or the rule of
 * `spec`, which is another. */
bool exo_optim_is_matrix(const exo_optim_spec *spec, const exo_param_info *info);
/* The rule of the parameters that muon leaves to AdamW. */
exo_optim_spec exo_optim_muon_adamw(const exo_optim_spec *muon);
/* Reads `groups`, a list of mappings, from an optimizer's options. A constant that a group does not
 * give is that of `spec`. The caller releases spec->groups. */
exo_status exo_optim_groups_read(exo_config *options, exo_optim_spec *spec, exo_err *err);
/* Refuses constants of an optimizer in a mapping outside of it, unless a reader has asked for the key;
 * the message names `place`, such as "optimizer.". Before exo_config_finish. */
exo_status exo_optim_check_misplaced(exo_config *map, const char *place, exo_err *err);
/* Reads the constants of spec->kind from a mapping. A constant that is not given stays as it is. */
exo_status exo_optim_constants_read(exo_config *map, exo_optim_spec *spec, exo_err *err);

#endif
