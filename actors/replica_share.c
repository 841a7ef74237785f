/* What a replica has of a copy of the model that several nodes share: the groups of these nodes, and the
 * elements that count here in sums over the copy. See replica.h. Owner: the replica's. Read next:
 * exogym/parallel.h; fit.h, exo_fit_place. */
#include "actors/replica.h"

#include <exogym/memory.h>
#include <exogym/parallel.h>

#include "actors/fit.h"

/* --- Groups ----------------------------------------------------------------------------------- */

/* Whether the node at `other` is in a group of the node at `own`. */
typedef bool (*in_group)(const exo_fit *fit, exo_fit_place own, exo_fit_place other);

static bool
shares(const exo_fit *fit, exo_fit_place own, exo_fit_place other)
{
    (void)fit, (void)own, (void)other;
    return true;
}

static bool
has_other_part(const exo_fit *fit, exo_fit_place own, exo_fit_place other)
{
    (void)fit;
    return own.member == other.member && own.stage == other.stage;
}

static bool
has_other_tokens(const exo_fit *fit, exo_fit_place own, exo_fit_place other)
{
    (void)fit;
    return own.part == other.part && own.stage == other.stage;
}

static bool
splits(const exo_fit *fit, exo_fit_place own, exo_fit_place other)
{
    (void)fit;
    return own.member == other.member;
}

static bool
is_in_line(exo_fit_place own, exo_fit_place other)
{
    return own.part == other.part && own.member == other.member;
}

static bool
comes_before(const exo_fit *fit, exo_fit_place own, exo_fit_place other)
{
    (void)fit;
    return is_in_line(own, other) && (other.stage == own.stage || other.stage + 1 == own.stage);
}

static bool
comes_after(const exo_fit *fit, exo_fit_place own, exo_fit_place other)
{
    (void)fit;
    return is_in_line(own, other) && (other.stage == own.stage || other.stage == own.stage + 1);
}

static bool
is_end(const exo_fit *fit, exo_fit_place own, exo_fit_place other)
{
    return is_in_line(own, other) && (other.stage == 0 || other.stage + 1 == fit->stages);
}

static exo_status
open_among(exo_group *groups[2], exo_replica *r, const uint32_t *ranks, uint32_t count,
           exo_err *err)
{
    exo_status st = exo_group_among(&groups[0], r->group, ranks, count, err);
    return st == EXO_OK ? exo_group_among(&groups[1], r->side_group, ranks, count, err) : st;
}

/* Opens a group of nodes that share the copy. Does nothing if this node is alone in it. */
static exo_status
open_inside(exo_group *groups[2], exo_replica *r, in_group holds, uint32_t *ranks, exo_err *err)
{
    const uint32_t size = exo_fit_sharing(r->fit), first = r->rank - r->rank % size;
    const exo_fit_place own = exo_fit_place_of(r->fit, r->rank);
    uint32_t count = 0;
    for (uint32_t i = first; i < first + size; i++)
        if (holds(r->fit, own, exo_fit_place_of(r->fit, i)))
            ranks[count++] = i;
    return count > 1 ? open_among(groups, r, ranks, count, err) : EXO_OK;
}

exo_status
exo_replica_open_share(exo_replica *r, exo_err *err)
{
    const uint32_t size = exo_fit_sharing(r->fit), copies = exo_fit_copies(r->fit);
    const exo_fit_place own = exo_fit_place_of(r->fit, r->rank);
    const bool ends = own.stage == 0 || own.stage + 1 == r->fit->stages;
    const struct {
        exo_group **groups;
        in_group holds;
    } inside[] = {{r->sharing, shares},           {r->tensor, has_other_part},
                  {r->context, has_other_tokens}, {r->split, splits},
                  {r->before, comes_before},      {r->after, comes_after},
                  {ends ? r->ends : NULL, is_end}};
    uint32_t *ranks = exo_calloc(size > copies ? size : copies, sizeof *ranks);
    if (!ranks)
        return exo_fail(err, EXO_NOMEM, "no memory for the ranks of %u nodes", size);
    for (uint32_t i = 0; i < copies; i++)
        ranks[i] = r->rank % size + i * size;
    exo_status st = open_among(r->copies, r, ranks, copies, err);
    for (size_t i = 0; st == EXO_OK && i < sizeof inside / sizeof *inside; i++)
        if (inside[i].groups)
            st = open_inside(inside[i].groups, r, inside[i].holds, ranks, err);
    exo_free(ranks);
    return st;
}

void
exo_replica_close_share(exo_replica *r)
{
    exo_group **const all[] = {r->sharing, r->copies, r->tensor, r->context,
                               r->split,   r->before, r->after,  r->ends};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        exo_group_close(&all[i][0]);
        exo_group_close(&all[i][1]);
    }
}

/* --- Elements that count ---------------------------------------------------------------------- */

/* Whether the parameter is one that this node counts: of what all parts have, the first part does; of an
 * embedding that the first and the last stage have, the first stage. */
static bool
counts(const exo_replica *r, size_t index)
{
    const exo_fit_place own = exo_fit_place_of(r->fit, r->rank);
    const exo_param_info *info = &exo_model_infos(r->model)[index];
    size_t first = 0, count = 0;
    if (info->is_buffer || (own.part > 0 && !exo_model_cut(r->model, index)))
        return false;
    return own.stage == 0 || !exo_stage_tied(r->model, &first, &count) || info->offset != first;
}

exo_status
exo_replica_count_share(exo_replica *r, exo_err *err)
{
    const exo_fit *fit = r->fit;
    const size_t num_infos = exo_model_num_infos(r->model);
    size_t n = 0;
    if (!r->split[0])
        return EXO_OK;
    r->counted = exo_calloc(num_infos, sizeof *r->counted);
    if (!r->counted)
        return exo_fail(err, EXO_NOMEM, "no memory for the ranges of %zu parameters", num_infos);
    for (size_t i = 0; i < num_infos; i++) {
        const exo_param_info *info = &exo_model_infos(r->model)[i];
        if (!counts(r, i))
            continue;
        if (n > 0 && r->counted[n - 1].first + r->counted[n - 1].count == info->offset)
            r->counted[n - 1].count += info->numel;
        else
            r->counted[n++] = (exo_band){.first = info->offset, .count = info->numel};
    }
    r->part = (exo_node_part){.copy = r->split[0],
                              .counted = r->counted,
                              .num_counted = n,
                              .own = r->model,
                              .whole = fit->model};
    if (fit->tensor > 1) {
        r->part.slices = r->tensor[0];
        r->part.models = fit->parts + r->rank % exo_fit_sharing(fit) / fit->tensor * fit->tensor;
    }
    r->node.part = &r->part;
    return EXO_OK;
}

/* --- Elements that several nodes have --------------------------------------------------------- */

/* Gives the values of parameters that all parts of layers have whole those of the first part. */
static exo_status
agree_on_whole_parameters(exo_replica *r, exo_array values, exo_err *err)
{
    const exo_param_info *infos = exo_model_infos(r->model);
    const size_t num_infos = exo_model_num_infos(r->model);
    exo_array all = {0};
    size_t count = 0;
    for (size_t i = 0; i < num_infos; i++)
        if (!infos[i].is_buffer && !exo_model_cut(r->model, i))
            count += infos[i].numel;
    exo_status st = exo_array_init(&all, values.device, EXO_F32, count, err);
    for (int take = 0; st == EXO_OK && take < 2; take++) {
        size_t at = 0;
        for (size_t i = 0; i < num_infos; i++) {
            if (infos[i].is_buffer || exo_model_cut(r->model, i))
                continue;
            const exo_array packed = exo_array_part(all, at, infos[i].numel),
                            own = exo_array_part(values, infos[i].offset, infos[i].numel);
            exo_vec_copy(take ? own : packed, take ? packed : own);
            at += infos[i].numel;
        }
        if (!take)
            st = exo_broadcast(r->tensor[0], all, 0, err);
    }
    exo_array_release(&all);
    return st;
}

/* values: (numel), in the order of the parameters. */
static exo_status
agree_on(exo_replica *r, exo_array values, exo_err *err)
{
    size_t first = 0, count = 0;
    exo_status st = r->tensor[0] ? agree_on_whole_parameters(r, values, err) : EXO_OK;
    if (st == EXO_OK && r->ends[0] && exo_stage_tied(r->model, &first, &count))
        st = exo_broadcast(r->ends[0], exo_array_part(values, first, count), 0, err);
    return st;
}

/* The state of the strategy and of its optimizer, too: what is to be sent of such a parameter is the
 * change of its own values. */
exo_status
exo_replica_agree(exo_replica *r, exo_err *err)
{
    exo_state *state = NULL;
    exo_status st = agree_on(r, r->node.params, err);
    if (st != EXO_OK || !exo_strategy_is_ordered(r->strategy))
        return st;
    st = exo_state_new(&state, err);
    if (st == EXO_OK)
        exo_strategy_state(r->strategy, &r->node, state);
    for (size_t i = 0; st == EXO_OK && i < exo_state_count(state); i++) {
        const exo_array values = exo_state_entry(state, i, NULL);
        if (values.dtype == EXO_F32 && values.count == r->node.numel)
            st = agree_on(r, values, err);
    }
    exo_state_free(&state);
    return st;
}
