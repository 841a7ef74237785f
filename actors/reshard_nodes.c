/* The nodes of a conversion, and the parts of the model that they have: see reshard.h. No state. Read next:
 * reshard.c. */
#include "actors/reshard_impl.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <exogym/memory.h>
#include <exogym/parallel.h>

#include "actors/checkpoint.h"
#include "actors/node_state.h"

uint32_t
exo_reshard_sharing(const struct form *form)
{
    return form->is.tensor * form->is.pipeline * form->is.context; /* prepare_form has checked it */
}

/* --- Nodes ------------------------------------------------------------------------------------ */

void
exo_reshard_close(struct node *n)
{
    exo_state_free(&n->state);
    exo_optim_free(&n->view.optim);
    if (n->strategy)
        exo_strategy_leave(n->strategy);
    exo_strategy_free(&n->strategy);
    exo_params_free(&n->params);
    *n = (struct node){0};
}

exo_status
exo_reshard_open(struct node *n, const struct form *form, uint32_t rank, exo_err *err)
{
    const uint32_t sharing = exo_reshard_sharing(form);
    exo_model *model = form->parts ? form->parts[rank % form->num_parts] : form->model;
    *n = (struct node){0};
    exo_status st = exo_strategy_new(&n->strategy, form->is.strategy, form->is.options, err);
    if (st == EXO_OK)
        st = exo_strategy_keeps_units(n->strategy) ? exo_model_by_units(model, 0, &n->params, err)
                                                   : exo_model_values(model, 0, &n->params, err);
    if (st == EXO_OK) {
        n->view.rank = rank / sharing;
        n->view.num_nodes = form->is.num_nodes / sharing;
        exo_node_show_params(&n->view, n->params);
        st = exo_strategy_start(n->strategy, &n->view, err);
    }
    if (st == EXO_OK)
        st = exo_state_new(&n->state, err);
    if (st == EXO_OK)
        exo_node_list_state(&n->view, n->strategy, &n->elapsed, &n->bytes, n->state);
    return st;
}

exo_status
exo_reshard_load(const struct conversion *c, struct node *n, uint32_t rank, exo_err *err)
{
    char path[EXO_CHECKPOINT_PATH];
    exo_status st = exo_reshard_open(n, &c->old, rank, err);
    if (st == EXO_OK)
        st = exo_checkpoint_node_path(path, c->from, rank, err);
    return st == EXO_OK ? exo_state_load(n->state, path, err) : st;
}

exo_status
exo_reshard_count(struct conversion *c, const struct node *n, uint32_t rank, exo_err *err)
{
    if (rank == 0) {
        c->step = n->view.step;
        c->elapsed = n->elapsed;
    }
    c->bytes += n->bytes;
    return n->view.step == c->step
               ? EXO_OK
               : exo_fail(err, EXO_INVAL,
                          "%s: node_0 is at step %" PRIu64 ", node_%" PRIu32 " at step %" PRIu64,
                          c->from, c->step, rank, n->view.step);
}

exo_status
exo_reshard_fail_other(const struct conversion *c, uint32_t rank, const char *tensor, exo_err *err)
{
    return exo_fail(err, EXO_UNSUPPORTED,
                    "%s/node_%" PRIu32 ".safetensors: the node has another state than the other "
                    "nodes, which other nodes cannot continue: '%s' differs",
                    c->from, rank, tensor);
}

exo_status
exo_reshard_fail_state(const struct conversion *c, uint32_t rank, const exo_state *state,
                       const char *was, const char *is, exo_err *err)
{
    const char *name = "?";
    size_t at = 0;
    for (size_t i = 0; i < exo_state_count(state); i++) {
        const exo_array entry = exo_state_entry(state, i, &name);
        const size_t bytes = entry.count * exo_dtype_size(entry.dtype);
        if (memcmp(was + at, is + at, bytes) != 0)
            break;
        at += bytes;
    }
    return exo_reshard_fail_other(c, rank, name, err);
}

/* Copies the statistics and frozen parameters of an old node. Parts of models have neither. */
static exo_status
copy_buffers(const struct conversion *c, struct node *to, uint32_t rank, exo_err *err)
{
    struct node from;
    const size_t numel = exo_params_buffer_numel(to->params);
    if (numel == 0)
        return EXO_OK;
    exo_status st = exo_reshard_load(c, &from, rank % c->old.is.num_nodes, err);
    if (st == EXO_OK && exo_params_buffer_numel(from.params) != numel)
        st = exo_fail(err, EXO_UNSUPPORTED, "%s: nodes with parts have no statistics", c->from);
    if (st == EXO_OK)
        exo_vec_copy(exo_params_buffers_array(to->params), exo_params_buffers_array(from.params));
    exo_reshard_close(&from);
    return st;
}

exo_status
exo_reshard_save(const struct conversion *c, struct node *n, uint32_t rank, const char *folder,
                 char sha256[65], exo_err *err)
{
    char path[EXO_CHECKPOINT_PATH];
    n->view.step = c->step;
    n->elapsed = c->elapsed;
    n->bytes = c->bytes / c->old.is.num_nodes;
    exo_status st = copy_buffers(c, n, rank, err);
    if (st == EXO_OK)
        st = exo_checkpoint_node_path(path, folder, rank, err);
    return st == EXO_OK ? exo_state_save_hashed(n->state, path, sha256, err) : st;
}

/* --- Into the whole --------------------------------------------------------------------------- */

/* Of an element of a part: whether an earlier node has given its value. */
enum given {
    NEW = 0,
    SAME = 1, /* this node must have the same value */
    FREE = 2  /* this node may have another value, which does not count */
};

/* Marks the elements of a part that need not be those of an earlier node. */
static void
free_elements(const struct conversion *c, const struct join *join)
{
    const exo_reshard_form *old = &c->old.is;
    const bool other_part = join->rank % old->tensor > 0;
    const bool other_stage =
        join->rank % exo_reshard_sharing(&c->old) / old->tensor / old->context > 0;
    size_t tied = 0, count = 0;
    if (!other_stage || !exo_stage_tied(join->part, &tied, &count))
        count = 0;
    for (size_t i = 0; i < exo_model_num_infos(join->part); i++) {
        const exo_param_info *info = &exo_model_infos(join->part)[i];
        const bool whole = c->some_differ && other_part && !exo_model_cut(join->part, i);
        if (info->is_buffer || !(whole || (count > 0 && info->offset == tied)))
            continue;
        for (size_t k = info->offset; k < info->offset + info->numel; k++)
            join->given[k] = join->given[k] == NEW ? NEW : FREE;
    }
}

exo_status
exo_reshard_open_join(struct join *out, const struct conversion *c, uint32_t rank, exo_err *err)
{
    const struct form *old = &c->old;
    const exo_model *part = old->parts ? old->parts[rank % old->num_parts] : old->model;
    *out = (struct join){.c = c, .rank = rank, .part = part};
    out->given = exo_calloc(exo_model_numel(part) + 1, sizeof *out->given);
    if (!out->given)
        return exo_fail(err, EXO_NOMEM, "no memory to compare nodes");
    exo_part_take(old->model, part, c->given, out->given);
    free_elements(c, out);
    return EXO_OK;
}

/* Fails for an element of the part: names the values, and the parameter to which it belongs. */
static exo_status
fail_element(const struct join *join, const char *what, size_t element, exo_err *err)
{
    const char *parameter = "?";
    char tensor[160];
    for (size_t i = 0; i < exo_model_num_infos(join->part); i++) {
        const exo_param_info *info = &exo_model_infos(join->part)[i];
        if (!info->is_buffer && element >= info->offset && element - info->offset < info->numel)
            parameter = info->name;
    }
    snprintf(tensor, sizeof tensor, "%s.%s", what, parameter);
    return exo_reshard_fail_other(join->c, join->rank, tensor, err);
}

exo_status
exo_reshard_join_values(const struct join *join, const char *what, size_t first, size_t count,
                        float *model, float *part, exo_err *err)
{
    const size_t numel = exo_model_numel(join->part);
    float *before = exo_calloc(numel + 1, sizeof *before);
    exo_status st = before ? EXO_OK : exo_fail(err, EXO_NOMEM, "no memory to compare nodes");
    if (st == EXO_OK)
        exo_part_take(join->c->old.model, join->part, model, before);
    for (size_t i = first; st == EXO_OK && i < first + count; i++) {
        if (join->given[i] == SAME && memcmp(&before[i], &part[i], sizeof part[i]) != 0)
            st = fail_element(join, what, i, err);
        if (join->given[i] == NEW)
            before[i] = part[i];
    }
    if (st == EXO_OK)
        exo_part_put(join->c->old.model, join->part, model, before);
    exo_free(before);
    return st;
}

exo_status
exo_reshard_join_whole(const struct join *join, exo_whole *from, exo_whole *to, exo_err *err)
{
    if (to->begun && to->steps != from->steps)
        return exo_fail(err, EXO_INVAL, "%s: the optimizers of its nodes have taken other steps",
                        join->c->from);
    to->begun = true;
    to->steps = from->steps;
    exo_status st =
        exo_reshard_join_values(join, "model", 0, from->numel, to->params, from->params, err);
    for (size_t m = 0; st == EXO_OK && m < EXO_OPTIM_MOMENTS; m++) {
        if (!from->moments[m])
            continue;
        if (!to->moments[m] && !(to->moments[m] = exo_calloc(to->numel, sizeof(float))))
            return exo_fail(err, EXO_NOMEM, "no memory for the moments of %zu parameters",
                            to->numel);
        to->moment_names[m] = from->moment_names[m];
        st = exo_reshard_join_values(join, from->moment_names[m], 0, from->numel, to->moments[m],
                                     from->moments[m], err);
    }
    return st;
}

void
exo_reshard_close_join(struct join *join, size_t first, size_t count)
{
    for (size_t i = 0; join->given && i < exo_model_numel(join->part); i++)
        join->given[i] = join->given[i] != NEW || (i >= first && i < first + count);
    if (join->given)
        exo_part_put(join->c->old.model, join->part, join->c->given, join->given);
    exo_free(join->given);
    *join = (struct join){0};
}

/* --- Out of the whole ------------------------------------------------------------------------- */

exo_status
exo_reshard_cut(const struct conversion *c, const exo_model *part, const exo_whole *from,
                exo_whole *to, exo_err *err)
{
    exo_status st = exo_whole_init(to, exo_model_numel(part), err);
    if (st != EXO_OK)
        return st;
    to->begun = true;
    to->steps = from->steps;
    exo_part_take(c->new.model, part, from->params, to->params);
    for (size_t m = 0; m < EXO_OPTIM_MOMENTS; m++) {
        if (!from->moments[m])
            continue;
        if (!(to->moments[m] = exo_calloc(to->numel, sizeof(float))))
            return exo_fail(err, EXO_NOMEM, "no memory for the moments of %zu parameters",
                            to->numel);
        to->moment_names[m] = from->moment_names[m];
        exo_part_take(c->new.model, part, from->moments[m], to->moments[m]);
    }
    return EXO_OK;
}
