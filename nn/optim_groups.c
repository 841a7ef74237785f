/* Parameter groups of an optimizer: read from a config, and matched with a model's parameters. No
 * state. Read next: optim.c. */
#include "nn/optim_groups.h"

#include <fnmatch.h>
#include <string.h>

#include <exogym/memory.h>

bool
exo_optim_group_takes(const exo_optim_group *group, const exo_param_info *info)
{
    return !info->is_buffer && info->num_dims >= group->min_dims &&
           info->num_dims <= group->max_dims && fnmatch(group->match, info->name, 0) == 0;
}

const exo_optim_spec *
exo_optim_spec_of(const exo_optim_spec *spec, const exo_param_info *info, size_t *number)
{
    size_t g = 0;
    while (g < spec->num_groups && !exo_optim_group_takes(&spec->groups[g], info))
        g++;
    if (number)
        *number = g < spec->num_groups ? g + 1 : 0;
    return g < spec->num_groups ? &spec->groups[g].spec : spec;
}

bool
exo_optim_is_matrix(const exo_optim_spec *spec, const exo_param_info *info)
{
    if (spec->kind != EXO_MUON || spec->matrices == EXO_MUON_NONE || info->is_buffer ||
        info->num_dims < 2 || info->numel == 0)
        return false;
    return spec->matrices == EXO_MUON_ALL || !info->at_boundary;
}

/* Refuses muon for a model without a matrix for it: the user would get AdamW under another name. */
static exo_status
check_matrices(const exo_optim_spec *spec, const exo_param_info *infos, size_t num_infos,
               exo_err *err)
{
    for (size_t i = 0; i < num_infos; i++)
        if (exo_optim_is_matrix(exo_optim_spec_of(spec, &infos[i], NULL), &infos[i]))
            return EXO_OK;
    return exo_fail(err, EXO_INVAL,
                    "optimizer: muon finds no trainable matrix between the model's embeddings and "
                    "its output head; choose another optimizer, or set matrices: all");
}

exo_status
exo_optim_groups_check(const exo_optim_spec *spec, const exo_param_info *infos, size_t num_infos,
                       exo_err *err)
{
    for (size_t g = 0; g < spec->num_groups; g++) {
        const exo_optim_group *group = &spec->groups[g];
        size_t taken = 0;
        for (size_t i = 0; i < num_infos; i++) {
            size_t before = 0;
            while (before < g && !exo_optim_group_takes(&spec->groups[before], &infos[i]))
                before++;
            taken += before == g && exo_optim_group_takes(group, &infos[i]);
        }
        if (taken == 0)
            return exo_fail(
                err, EXO_INVAL,
                "optimizer: group %zu of %zu (match: %.60s, %zu to %zu dimensions) matches no "
                "trainable parameter outside the groups before it; the model's first parameter is "
                "%s",
                g + 1, spec->num_groups, group->match, group->min_dims, group->max_dims,
                num_infos ? infos[0].name : "nothing");
    }
    return spec->kind == EXO_MUON ? check_matrices(spec, infos, num_infos, err) : EXO_OK;
}

static exo_status
read_group(exo_config *map, const exo_optim_spec *rule, exo_optim_group *group, exo_err *err)
{
    const char *match = NULL;
    uint64_t min_dims = 0, max_dims = EXO_MAX_DIMS;
    *group = (exo_optim_group){.spec = *rule};
    exo_status st = exo_config_string(map, "match", "*", &match, err);
    if (st == EXO_OK)
        st = exo_config_u64(map, "min_dims", 0, 0, EXO_MAX_DIMS, &min_dims, err);
    if (st == EXO_OK)
        st = exo_config_u64(map, "max_dims", EXO_MAX_DIMS, min_dims, EXO_MAX_DIMS, &max_dims, err);
    if (st == EXO_OK)
        st = exo_optim_constants_read(map, &group->spec, err);
    if (st == EXO_OK)
        st = exo_config_finish(map, err);
    if (st != EXO_OK)
        return st;
    if (strlen(match) >= sizeof group->match)
        return exo_config_fail(map, err, "match: a pattern has at most %zu characters",
                               sizeof group->match - 1);
    strcpy(group->match, match);
    group->min_dims = (size_t)min_dims;
    group->max_dims = (size_t)max_dims;
    return EXO_OK;
}

exo_status
exo_optim_groups_read(exo_config *options, exo_optim_spec *spec, exo_err *err)
{
    exo_config *list = NULL;
    exo_status st = exo_config_list(options, "groups", &list, err);
    size_t count = st == EXO_OK && list ? exo_config_length(list) : 0;
    if (count == 0)
        return st;
    exo_optim_group *groups = exo_calloc(count, sizeof *groups);
    if (!groups)
        return exo_fail(err, EXO_NOMEM, "no memory for %zu parameter groups", count);
    for (size_t g = 0; st == EXO_OK && g < count; g++) {
        exo_config *item = exo_config_item(list, g);
        st = exo_config_is_map(item)
                 ? read_group(item, spec, &groups[g], err)
                 : exo_config_fail(item, err,
                                   "groups: expected a mapping, as {max_dims: 1, "
                                   "weight_decay: 0}");
        exo_err reason = {0};
        if (st == EXO_OK && exo_optim_spec_check(&groups[g].spec, &reason) != EXO_OK)
            st = exo_config_fail(item, err, "%s", reason.text);
        else if (st == EXO_OK && spec->lr == 0 &&
                 (groups[g].spec.lr != 0 || groups[g].spec.adamw.lr != 0))
            st = exo_config_fail(item, err, "a group's lr follows the optimizer's, which is 0");
    }
    if (st != EXO_OK) {
        exo_free(groups);
        return st;
    }
    spec->groups = groups;
    spec->num_groups = count;
    return EXO_OK;
}

void
exo_optim_spec_release(exo_optim_spec *spec)
{
    exo_free(spec->groups);
    spec->groups = NULL;
    spec->num_groups = 0;
}
