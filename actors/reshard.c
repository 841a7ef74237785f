/* Conversion of checkpoints: see reshard.h. */
#include "actors/reshard.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <jansson.h>

#include <exogym/memory.h>
#include <exogym/parallel.h>
#include <exogym/strategy.h>

#include "actors/checkpoint.h"
#include "actors/fit_opts.h"
#include "actors/node_state.h"
#include "base/config_edit.h"
#include "base/file.h"
#include "report/json_text.h"

enum {
    MAX_SETTINGS = 1 << 20
};

/* One of the two forms, with the models of its nodes. */
struct form {
    exo_reshard_form is;
    exo_model *model;        /* the whole one; not owned */
    exo_model **parts;       /* (is.tensor) NULL: every node has the whole model */
    exo_config_doc *options; /* owns is.options */
};

struct conversion {
    const char *from, *run_folder;
    json_t *settings; /* run.json of `from` */
    struct form old, new;
    exo_whole whole;
    uint64_t step, elapsed, bytes; /* bytes: the sum over the old nodes */
};

/* A node of either form, without its run. */
struct node {
    exo_strategy *strategy;
    exo_params *params;
    exo_node view;
    exo_state *state;
    uint64_t elapsed, bytes;
};

/* --- Nodes ------------------------------------------------------------------------------------ */

static void
close_node(struct node *n)
{
    exo_state_free(&n->state);
    exo_optim_free(&n->view.optim);
    if (n->strategy)
        exo_strategy_leave(n->strategy);
    exo_strategy_free(&n->strategy);
    exo_params_free(&n->params);
    *n = (struct node){0};
}

/* Makes a node with the initial values of its model. The caller closes it, also after an error. */
static exo_status
open_node(struct node *n, const struct form *form, uint32_t rank, exo_err *err)
{
    const uint32_t tensor = form->is.tensor;
    exo_model *model = form->parts ? form->parts[rank % tensor] : form->model;
    *n = (struct node){0};
    exo_status st = exo_strategy_new(&n->strategy, form->is.strategy, form->is.options, err);
    if (st == EXO_OK)
        st = exo_strategy_keeps_units(n->strategy) ? exo_model_by_units(model, 0, &n->params, err)
                                                   : exo_model_values(model, 0, &n->params, err);
    if (st == EXO_OK) {
        n->view.rank = rank / tensor;
        n->view.num_nodes = form->is.num_nodes / tensor;
        exo_node_show_params(&n->view, n->params);
        st = exo_strategy_start(n->strategy, &n->view, err);
    }
    if (st == EXO_OK)
        st = exo_state_new(&n->state, err);
    if (st == EXO_OK)
        exo_node_list_state(&n->view, n->strategy, &n->elapsed, &n->bytes, n->state);
    return st;
}

/* Makes a node of the old form with the state of its file. */
static exo_status
load_node(const struct conversion *c, struct node *n, uint32_t rank, exo_err *err)
{
    char path[EXO_CHECKPOINT_PATH];
    exo_status st = open_node(n, &c->old, rank, err);
    if (st == EXO_OK)
        st = exo_checkpoint_node_path(path, c->from, rank, err);
    return st == EXO_OK ? exo_state_load(n->state, path, err) : st;
}

/* --- From the old nodes ----------------------------------------------------------------------- */

static exo_status
put_node(struct conversion *c, uint32_t rank, exo_whole *whole, exo_err *err)
{
    struct node n;
    exo_status st = load_node(c, &n, rank, err);
    if (st == EXO_OK && rank == 0) {
        c->step = n.view.step;
        c->elapsed = n.elapsed;
    }
    if (st == EXO_OK && n.view.step != c->step)
        st = exo_fail(err, EXO_INVAL,
                      "%s: node_0 is at step %" PRIu64 ", node_%" PRIu32 " at step %" PRIu64,
                      c->from, c->step, rank, n.view.step);
    if (st == EXO_OK)
        st = exo_strategy_to_whole(n.strategy, &n.view, whole, err);
    c->bytes += n.bytes;
    close_node(&n);
    return st;
}

/* Checks that the node's state follows from the whole. */
static exo_status
confirm_node(const struct conversion *c, uint32_t rank, const exo_whole *whole, exo_err *err)
{
    struct node n;
    void *was = NULL, *is = NULL;
    exo_status st = load_node(c, &n, rank, err);
    const uint64_t size = st == EXO_OK ? exo_state_bytes(n.state) : 0;
    if (st == EXO_OK && (!(was = exo_calloc(size, 1)) || !(is = exo_calloc(size, 1))))
        st = exo_fail(err, EXO_NOMEM, "no memory for the state of node_%" PRIu32, rank);
    if (st == EXO_OK)
        st = exo_state_store(n.state, was, err);
    if (st == EXO_OK)
        st = exo_strategy_from_whole(n.strategy, &n.view, whole, err);
    if (st == EXO_OK)
        st = exo_state_store(n.state, is, err);
    if (st == EXO_OK && memcmp(was, is, size) != 0)
        st = exo_fail(err, EXO_UNSUPPORTED,
                      "%s/node_%" PRIu32 ".safetensors: the node has another state than the other "
                      "nodes, which another number of nodes cannot continue",
                      c->from, rank);
    exo_free(was);
    exo_free(is);
    close_node(&n);
    return st;
}

/* Puts the nodes that have one part of the model into the whole of this part. */
static exo_status
put_part(struct conversion *c, uint32_t part, exo_whole *whole, exo_err *err)
{
    const exo_reshard_form *old = &c->old.is;
    exo_status st = EXO_OK;
    for (uint32_t r = part; st == EXO_OK && r < old->num_nodes; r += old->tensor)
        st = put_node(c, r, whole, err);
    for (uint32_t r = part; st == EXO_OK && r < old->num_nodes; r += old->tensor)
        st = confirm_node(c, r, whole, err);
    return st;
}

/* Puts the whole of a part into the whole of the model. */
static exo_status
join_part(struct conversion *c, const exo_model *part, const exo_whole *from, exo_err *err)
{
    exo_whole *to = &c->whole;
    if (to->begun && to->steps != from->steps)
        return exo_fail(err, EXO_INVAL, "%s: the optimizers of its nodes have taken other steps",
                        c->from);
    to->begun = true;
    to->steps = from->steps;
    exo_part_put(c->old.model, part, to->params, from->params);
    for (size_t m = 0; m < EXO_OPTIM_MOMENTS; m++) {
        if (!from->moments[m])
            continue;
        if (!to->moments[m] && !(to->moments[m] = exo_calloc(to->numel, sizeof(float))))
            return exo_fail(err, EXO_NOMEM, "no memory for the moments of %zu parameters",
                            to->numel);
        to->moment_names[m] = from->moment_names[m];
        exo_part_put(c->old.model, part, to->moments[m], from->moments[m]);
    }
    return EXO_OK;
}

static exo_status
make_whole(struct conversion *c, exo_err *err)
{
    exo_status st = exo_whole_init(&c->whole, exo_model_numel(c->old.model), err);
    if (!c->old.parts)
        return st == EXO_OK ? put_part(c, 0, &c->whole, err) : st;
    for (uint32_t t = 0; st == EXO_OK && t < c->old.is.tensor; t++) {
        exo_whole part = {0};
        st = exo_whole_init(&part, exo_model_numel(c->old.parts[t]), err);
        if (st == EXO_OK)
            st = put_part(c, t, &part, err);
        if (st == EXO_OK)
            st = join_part(c, c->old.parts[t], &part, err);
        exo_whole_release(&part);
    }
    return st;
}

/* --- To the new nodes ------------------------------------------------------------------------- */

/* Copies the statistics and frozen parameters of an old node. Parts of models have neither. */
static exo_status
copy_buffers(const struct conversion *c, struct node *to, uint32_t rank, exo_err *err)
{
    struct node from;
    const size_t numel = exo_params_buffer_numel(to->params);
    if (numel == 0)
        return EXO_OK;
    exo_status st = load_node(c, &from, rank % c->old.is.num_nodes, err);
    if (st == EXO_OK && exo_params_buffer_numel(from.params) != numel)
        st = exo_fail(err, EXO_UNSUPPORTED, "%s: nodes with parts have no statistics", c->from);
    if (st == EXO_OK)
        exo_vec_copy(exo_params_buffers_array(to->params), exo_params_buffers_array(from.params));
    close_node(&from);
    return st;
}

static exo_status
write_node(const struct conversion *c, const char *folder, uint32_t rank, const exo_whole *whole,
           char sha256[65], exo_err *err)
{
    struct node n;
    char path[EXO_CHECKPOINT_PATH];
    exo_status st = open_node(&n, &c->new, rank, err);
    if (st == EXO_OK)
        st = exo_strategy_from_whole(n.strategy, &n.view, whole, err);
    if (st == EXO_OK)
        st = copy_buffers(c, &n, rank, err);
    n.view.step = c->step;
    n.elapsed = c->elapsed;
    n.bytes = c->bytes / c->old.is.num_nodes;
    if (st == EXO_OK)
        st = exo_checkpoint_node_path(path, folder, rank, err);
    if (st == EXO_OK)
        st = exo_state_save_hashed(n.state, path, sha256, err);
    close_node(&n);
    return st;
}

/* Cuts the whole of a part out of the whole of the model. */
static exo_status
cut_part(const struct conversion *c, const exo_model *part, exo_whole *to, exo_err *err)
{
    exo_status st = exo_whole_init(to, exo_model_numel(part), err);
    if (st != EXO_OK)
        return st;
    to->begun = true;
    to->steps = c->whole.steps;
    exo_part_take(c->new.model, part, c->whole.params, to->params);
    for (size_t m = 0; m < EXO_OPTIM_MOMENTS; m++) {
        if (!c->whole.moments[m])
            continue;
        if (!(to->moments[m] = exo_calloc(to->numel, sizeof(float))))
            return exo_fail(err, EXO_NOMEM, "no memory for the moments of %zu parameters",
                            to->numel);
        to->moment_names[m] = c->whole.moment_names[m];
        exo_part_take(c->new.model, part, c->whole.moments[m], to->moments[m]);
    }
    return EXO_OK;
}

static exo_status
write_nodes(const struct conversion *c, const char *folder, char (*sums)[65], exo_err *err)
{
    const exo_reshard_form *new = &c->new.is;
    exo_status st = EXO_OK;
    for (uint32_t t = 0; st == EXO_OK && t < new->tensor; t++) {
        exo_whole part = {0};
        if (c->new.parts)
            st = cut_part(c, c->new.parts[t], &part, err);
        for (uint32_t r = t; st == EXO_OK && r < new->num_nodes; r += new->tensor)
            st = write_node(c, folder, r, c->new.parts ? &part : &c->whole, sums[r], err);
        exo_whole_release(&part);
    }
    return st;
}

/* The settings of the new checkpoint: those of the old one in the new form. */
static exo_status
write_settings(const struct conversion *c, char **out, exo_err *err)
{
    const exo_reshard_form *new = &c->new.is;
    char *options = NULL;
    exo_status st = exo_config_text(new->options, &options, err);
    if (st != EXO_OK)
        return st;
    json_t *settings = json_copy(c->settings);
    json_object_set_new(settings, "strategy", json_string(new->strategy));
    json_object_set_new(settings, "options", json_string(options));
    json_object_set_new(settings, "num_nodes", json_integer((json_int_t) new->num_nodes));
    json_object_del(settings, "tensor");
    if (new->tensor > 1)
        json_object_set_new(settings, "tensor", json_integer((json_int_t) new->tensor));
    exo_free(options);
    *out = exo_json_dump(settings, JSON_COMPACT);
    json_decref(settings);
    return *out ? EXO_OK : exo_fail(err, EXO_NOMEM, "no memory to write the settings down");
}

static exo_status
write_checkpoint(const struct conversion *c, exo_err *err)
{
    char folder[EXO_CHECKPOINT_PATH], *settings = NULL;
    char(*sums)[65] = exo_calloc(c->new.is.num_nodes, sizeof *sums);
    exo_status st = sums ? write_settings(c, &settings, err)
                         : exo_fail(err, EXO_NOMEM, "no memory for a checkpoint");
    if (st == EXO_OK)
        st = exo_checkpoint_begin(c->run_folder, c->step, folder, err);
    if (st == EXO_OK) {
        st = write_nodes(c, folder, sums, err);
        if (st == EXO_OK)
            st = exo_checkpoint_commit(c->run_folder, c->step, settings, (const char(*)[65])sums,
                                       c->new.is.num_nodes, err);
        if (st != EXO_OK)
            exo_checkpoint_abort(c->run_folder, c->step);
    }
    exo_free(settings);
    exo_free(sums);
    return st;
}

/* --- The two forms ---------------------------------------------------------------------------- */

static exo_status
make_parts(struct form *form, exo_err *err)
{
    const uint32_t tensor = form->is.tensor;
    exo_status st = EXO_OK;
    if (tensor <= 1)
        return EXO_OK;
    if (!(form->parts = exo_calloc(tensor, sizeof(exo_model *))))
        return exo_fail(err, EXO_NOMEM, "no memory for %" PRIu32 " parts of the model", tensor);
    for (uint32_t t = 0; st == EXO_OK && t < tensor; t++)
        st = exo_model_part(&form->parts[t], form->model, t, tensor, err);
    return st;
}

static void
release_form(struct form *form)
{
    for (uint32_t t = 0; form->parts && t < form->is.tensor; t++)
        exo_model_drop(&form->parts[t]);
    exo_free(form->parts);
    exo_config_free(&form->options);
}

/* Checks a form and makes its parts. */
static exo_status
prepare_form(struct form *form, exo_err *err)
{
    exo_strategy *strategy = NULL;
    const exo_reshard_form *is = &form->is;
    if (is->pipeline > 1)
        return exo_fail(
            err, EXO_UNSUPPORTED,
            "checkpoints of pipeline stages are not converted (parallel.pipeline %" PRIu32
            "): the run goes on only with the same nodes and stages",
            is->pipeline);
    if (is->context > 1)
        return exo_fail(
            err, EXO_UNSUPPORTED,
            "checkpoints of context-parallel nodes are not converted (parallel.context %" PRIu32
            "): the run goes on only with the same nodes and groups",
            is->context);
    if (is->num_nodes % is->tensor != 0)
        return exo_fail(err, EXO_INVAL, "tensor %" PRIu32 " does not divide the %" PRIu32 " nodes",
                        is->tensor, is->num_nodes);
    exo_status st = exo_strategy_new(&strategy, is->strategy, is->options, err);
    if (st == EXO_OK)
        st = exo_strategy_check_whole(strategy, err);
    if (st == EXO_OK)
        st = exo_strategy_check(strategy, is->num_nodes / is->tensor, err);
    if (st == EXO_OK && is->tensor > 1)
        st = exo_strategy_check_parts(strategy, "tensor parallelism", err);
    exo_strategy_free(&strategy);
    return st == EXO_OK ? make_parts(form, err) : st;
}

/* Reads a number of nodes; 1 if the file does not have it. INVAL: it is no such number. */
static exo_status
read_number(const json_t *settings, const char *path, const char *key, uint32_t *out, exo_err *err)
{
    const json_t *value = json_object_get(settings, key);
    const json_int_t number = value ? json_integer_value(value) : 1;
    if (number < 1 || number > EXO_FIT_MAX_NODES)
        return exo_fail(err, EXO_INVAL, "%s: '%s' is no number from 1 to %d", path, key,
                        EXO_FIT_MAX_NODES);
    *out = (uint32_t)number;
    return EXO_OK;
}

/* Checks that the checkpoint is of the model, and of a run whose nodes all took every step. */
static exo_status
check_settings(const struct conversion *c, const exo_model *model, exo_err *err)
{
    const char *name = json_string_value(json_object_get(c->settings, "model"));
    const json_int_t numel = json_integer_value(json_object_get(c->settings, "parameters"));
    if (!name || strcmp(name, exo_model_name(model)) != 0 ||
        (uint64_t)numel != exo_model_numel(model))
        return exo_fail(err, EXO_INVAL,
                        "%s: the checkpoint is of the model '%s' with %lld parameters, not of '%s' "
                        "with %zu",
                        c->from, name ? name : "?", (long long)numel, exo_model_name(model),
                        exo_model_numel(model));
    static const char *const others[] = {"elastic", "failures"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (json_object_get(c->settings, others[i]))
            return exo_fail(err, EXO_UNSUPPORTED,
                            "%s: the checkpoint is of a run with '%s', whose nodes change by "
                            "themselves: it cannot be converted",
                            c->from, others[i]);
    return EXO_OK;
}

/* Reads the old form from the checkpoint's settings. */
static exo_status
read_old(struct conversion *c, exo_err *err)
{
    char path[EXO_CHECKPOINT_PATH + 16], *text = NULL;
    size_t size = 0;
    snprintf(path, sizeof path, "%s/run.json", c->from);
    exo_status st = exo_file_read(path, MAX_SETTINGS, &text, &size, err);
    if (st == EXO_OK)
        c->settings = json_loadb(text, size, 0, NULL);
    if (st == EXO_OK && !json_is_object(c->settings))
        st = exo_fail(err, EXO_INVAL, "%s: the file does not hold the settings of a checkpoint",
                      path);
    exo_free(text);
    const char *options = json_string_value(json_object_get(c->settings, "options"));
    const char *strategy = json_string_value(json_object_get(c->settings, "strategy"));
    exo_reshard_form *is = &c->old.is;
    if (st == EXO_OK && (!options || !strategy || !json_object_get(c->settings, "num_nodes")))
        st = exo_fail(err, EXO_INVAL, "%s: a key is missing: strategy, options or num_nodes", path);
    if (st == EXO_OK)
        st = exo_config_parse(&c->old.options, path, options, err);
    if (st == EXO_OK)
        *is = (exo_reshard_form){.strategy = strategy, .options = exo_config_root(c->old.options)};
    if (st == EXO_OK)
        st = read_number(c->settings, path, "num_nodes", &is->num_nodes, err);
    if (st == EXO_OK)
        st = read_number(c->settings, path, "tensor", &is->tensor, err);
    if (st == EXO_OK)
        st = read_number(c->settings, path, "pipeline", &is->pipeline, err);
    return st == EXO_OK ? read_number(c->settings, path, "context", &is->context, err) : st;
}

/* Takes the new form with all options of its strategy, as a run has them. */
static exo_status
read_new(struct conversion *c, const exo_reshard_form *to, exo_err *err)
{
    exo_strategy *strategy = NULL;
    exo_status st = exo_strategy_new(&strategy, to->strategy, to->options, err);
    exo_strategy_free(&strategy);
    if (st == EXO_OK)
        st = exo_config_parse(&c->new.options, "options", "{}", err);
    if (st == EXO_OK)
        st = exo_config_graft_whole(exo_config_root(c->new.options), "options", to->options, err);
    c->new.is = *to;
    c->new.is.pipeline = to->pipeline > 1 ? to->pipeline : 1;
    c->new.is.context = to->context > 1 ? to->context : 1;
    if (st == EXO_OK)
        c->new.is.options = exo_config_get(exo_config_root(c->new.options), "options");
    return st;
}

static void
release(struct conversion *c)
{
    exo_whole_release(&c->whole);
    release_form(&c->old);
    release_form(&c->new);
    json_decref(c->settings);
}

exo_status
exo_reshard(exo_model *model, const char *from, const char *run_folder, const exo_reshard_form *to,
            exo_resharded *out, exo_err *err)
{
    struct conversion c = {
        .from = from, .run_folder = run_folder, .old = {.model = model}, .new = {.model = model}};
    exo_status st = exo_checkpoint_verify(from, err);
    if (st == EXO_OK)
        st = read_old(&c, err);
    if (st == EXO_OK)
        st = check_settings(&c, model, err);
    if (st == EXO_OK)
        st = read_new(&c, to, err);
    if (st == EXO_OK)
        st = prepare_form(&c.old, err);
    if (st == EXO_OK)
        st = prepare_form(&c.new, err);
    if (st == EXO_OK)
        st = make_whole(&c, err);
    if (st == EXO_OK)
        st = write_checkpoint(&c, err);
    *out = (exo_resharded){.step = c.step, .from = c.old.is.num_nodes, .to = to->num_nodes};
    release(&c);
    return st;
}

exo_status
exo_reshard_differs(const char *from, const exo_reshard_form *to, bool *differs, exo_err *err)
{
    static const char *const skipped[] = {"name", NULL};
    struct conversion c = {.from = from};
    exo_text path = {0};
    exo_status st = read_old(&c, err);
    if (st == EXO_OK)
        st = read_new(&c, to, err);
    if (st == EXO_OK) {
        const exo_reshard_form *old = &c.old.is, *new = &c.new.is;
        *differs = old->num_nodes != new->num_nodes || old->tensor != new->tensor ||
                   old->pipeline != new->pipeline || old->context != new->context ||
                   strcmp(old->strategy, new->strategy) != 0 ||
                   exo_config_differs(old->options, new->options, skipped, &path);
    }
    exo_free(path.data);
    release(&c);
    return st;
}
