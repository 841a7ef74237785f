/* Conversion of checkpoints: see reshard.h. This file reads the two forms, and converts through one whole.
 * Read next: reshard_nodes.c, reshard_copies.c. */
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
#include "actors/reshard_impl.h"
#include "base/config_edit.h"
#include "base/file.h"
#include "report/json_text.h"

enum {
    MAX_SETTINGS = 1 << 20
};

/* --- From the old nodes ----------------------------------------------------------------------- */

static exo_status
put_node(struct conversion *c, uint32_t rank, exo_whole *whole, exo_err *err)
{
    struct node n;
    exo_status st = exo_reshard_load(c, &n, rank, err);
    if (st == EXO_OK)
        st = exo_reshard_count(c, &n, rank, err);
    if (st == EXO_OK)
        st = exo_strategy_to_whole(n.strategy, &n.view, whole, err);
    exo_reshard_close(&n);
    return st;
}

/* Checks that the node's state follows from the whole. */
static exo_status
confirm_node(const struct conversion *c, uint32_t rank, const exo_whole *whole, exo_err *err)
{
    struct node n;
    char *was = NULL, *is = NULL;
    exo_status st = exo_reshard_load(c, &n, rank, err);
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
        st = exo_reshard_fail_state(c, rank, n.state, was, is, err);
    exo_free(was);
    exo_free(is);
    exo_reshard_close(&n);
    return st;
}

/* Puts the nodes that have one part of the model into the whole of this part. */
static exo_status
put_part(struct conversion *c, uint32_t part, exo_whole *whole, exo_err *err)
{
    const exo_reshard_form *old = &c->old.is;
    exo_status st = EXO_OK;
    for (uint32_t r = part; st == EXO_OK && r < old->num_nodes; r += c->old.num_parts)
        st = put_node(c, r, whole, err);
    for (uint32_t r = part; st == EXO_OK && r < old->num_nodes; r += c->old.num_parts)
        st = confirm_node(c, r, whole, err);
    return st;
}

static exo_status
make_whole(struct conversion *c, exo_err *err)
{
    exo_status st = exo_whole_init(&c->whole, exo_model_numel(c->old.model), err);
    if (!c->old.parts)
        return st == EXO_OK ? put_part(c, 0, &c->whole, err) : st;
    for (uint32_t t = 0; st == EXO_OK && t < c->old.num_parts; t++) {
        exo_whole part = {0};
        struct join join = {0};
        st = exo_whole_init(&part, exo_model_numel(c->old.parts[t]), err);
        if (st == EXO_OK)
            st = put_part(c, t, &part, err);
        if (st == EXO_OK)
            st = exo_reshard_open_join(&join, c, t, err);
        if (st == EXO_OK)
            st = exo_reshard_join_whole(&join, &part, &c->whole, err);
        exo_reshard_close_join(&join, 0, part.numel);
        exo_whole_release(&part);
    }
    return st;
}

/* --- To the new nodes ------------------------------------------------------------------------- */

static exo_status
write_node(const struct conversion *c, const char *folder, uint32_t rank, const exo_whole *whole,
           char sha256[65], exo_err *err)
{
    struct node n;
    exo_status st = exo_reshard_open(&n, &c->new, rank, err);
    if (st == EXO_OK)
        st = exo_strategy_from_whole(n.strategy, &n.view, whole, err);
    if (st == EXO_OK)
        st = exo_reshard_save(c, &n, rank, folder, sha256, err);
    exo_reshard_close(&n);
    return st;
}

static exo_status
write_nodes(const struct conversion *c, const char *folder, char (*sums)[65], exo_err *err)
{
    const struct form *new = &c->new;
    exo_status st = EXO_OK;
    for (uint32_t t = 0; st == EXO_OK && t < new->num_parts; t++) {
        exo_whole part = {0};
        if (new->parts)
            st = exo_reshard_cut(c, new->parts[t], &c->whole, &part, err);
        for (uint32_t r = t; st == EXO_OK && r < new->is.num_nodes; r += new->num_parts)
            st = write_node(c, folder, r, new->parts ? &part : &c->whole, sums[r], err);
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
    if (new->minibatch_size > 0)
        json_object_set_new(settings, "minibatch_size",
                            json_integer((json_int_t) new->minibatch_size));
    const struct {
        const char *key;
        uint32_t nodes;
    } shared[] = {{"tensor", new->tensor}, {"pipeline", new->pipeline}, {"context", new->context}};
    for (size_t i = 0; i < sizeof shared / sizeof *shared; i++) {
        json_object_del(settings, shared[i].key);
        if (shared[i].nodes > 1)
            json_object_set_new(settings, shared[i].key, json_integer((json_int_t)shared[i].nodes));
    }
    exo_free(options);
    *out = exo_json_dump(settings, JSON_COMPACT);
    json_decref(settings);
    return *out ? EXO_OK : exo_fail(err, EXO_NOMEM, "no memory to write the settings down");
}

static exo_status
write_checkpoint(struct conversion *c, exo_err *err)
{
    char folder[EXO_CHECKPOINT_PATH], *settings = NULL;
    char(*sums)[65] = exo_calloc(c->new.is.num_nodes, sizeof *sums);
    exo_status st = sums ? write_settings(c, &settings, err)
                         : exo_fail(err, EXO_NOMEM, "no memory for a checkpoint");
    if (st == EXO_OK)
        st = exo_checkpoint_begin(c->run_folder, c->step, folder, err);
    if (st == EXO_OK) {
        st = c->by_copies ? exo_reshard_write_copies(c, folder, sums, err)
                          : write_nodes(c, folder, sums, err);
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

/* A number of nodes for exo_share, which has 0 for one. */
static uint32_t
several(uint32_t count)
{
    return count > 1 ? count : 0;
}

/* The nodes that share a copy, each with its part and its stage (exo_fit_place). What a member of a context
 * has does not depend on its tokens. */
static exo_status
make_parts(struct form *form, exo_err *err)
{
    const exo_reshard_form *is = &form->is;
    exo_status st = EXO_OK;
    form->num_parts = is->tensor * is->pipeline == 1 ? 1 : exo_reshard_sharing(form);
    if (form->num_parts == 1)
        return EXO_OK;
    if (!(form->parts = exo_calloc(form->num_parts, sizeof(exo_model *))))
        return exo_fail(err, EXO_NOMEM, "no memory for %" PRIu32 " parts of the model",
                        form->num_parts);
    for (uint32_t r = 0; st == EXO_OK && r < form->num_parts; r++) {
        const exo_share share = {.part = r % is->tensor,
                                 .parts = several(is->tensor),
                                 .stage = r / is->tensor / is->context,
                                 .stages = several(is->pipeline)};
        st = exo_model_share(&form->parts[r], form->model, &share, err);
    }
    return st;
}

static void
release_form(struct form *form)
{
    for (uint32_t t = 0; form->parts && t < form->num_parts; t++)
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
    const uint64_t sharing = (uint64_t)is->tensor * is->pipeline * is->context; /* below 2^51 */
    const struct {
        const char *key;
        uint64_t count;
    } each[] = {{"tensor", is->tensor},
                {"pipeline", is->pipeline},
                {"context", is->context},
                {"tensor x pipeline x context", sharing}};
    for (size_t i = 0; i < sizeof each / sizeof *each; i++)
        if (is->num_nodes % each[i].count != 0)
            return exo_fail(err, EXO_INVAL, "%s %" PRIu64 " does not divide the %" PRIu32 " nodes",
                            each[i].key, each[i].count, is->num_nodes);
    exo_status st = exo_strategy_new(&strategy, is->strategy, is->options, err);
    if (st == EXO_OK)
        st = exo_strategy_check(strategy, is->num_nodes / (uint32_t)sharing, err);
    if (st == EXO_OK && is->tensor * is->pipeline > 1)
        st = exo_strategy_check_parts(
            strategy, is->tensor > 1 ? "parallel.tensor" : "parallel.pipeline", err);
    exo_strategy_free(&strategy);
    return st == EXO_OK ? make_parts(form, err) : st;
}

/* Decides on the way: through one whole, or copy by copy. */
static exo_status
choose_way(struct conversion *c, exo_err *err)
{
    exo_strategy *strategies[2] = {NULL, NULL};
    const struct form *forms[2] = {&c->old, &c->new};
    exo_err reason = {0};
    exo_status st = EXO_OK, whole = EXO_OK;
    for (int i = 0; st == EXO_OK && i < 2; i++)
        st = exo_strategy_new(&strategies[i], forms[i]->is.strategy, forms[i]->is.options, err);
    for (int i = 0; st == EXO_OK && whole == EXO_OK && i < 2; i++)
        whole = exo_strategy_check_whole(strategies[i], &reason);
    if (st == EXO_OK && whole != EXO_OK)
        st = exo_reshard_check_copies(c, strategies[0], &reason, err);
    c->by_copies = whole != EXO_OK;
    if (st == EXO_OK) {
        const size_t numel = exo_model_numel(c->old.model);
        c->some_differ = c->new.is.any_bits || exo_strategy_is_by_parts(strategies[0]);
        if (!(c->given = exo_calloc(numel + 1, sizeof *c->given)))
            st = exo_fail(err, EXO_NOMEM, "no memory to compare nodes of %zu parameters", numel);
    }
    for (int i = 0; i < 2; i++)
        exo_strategy_free(&strategies[i]);
    return st;
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
    c->new.is.tensor = to->tensor > 1 ? to->tensor : 1;
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
    exo_free(c->given);
    exo_reshard_release_copies(c);
    release_form(&c->old);
    release_form(&c->new);
    json_decref(c->settings);
}

/* Writes " (tensor 2, pipeline 2)", or nothing if no nodes share a copy. */
static void
write_sharing(const exo_reshard_form *is, char *out, size_t size)
{
    const struct {
        const char *key;
        uint32_t count;
    } each[] = {{"tensor", is->tensor}, {"pipeline", is->pipeline}, {"context", is->context}};
    size_t length = 0;
    out[0] = '\0';
    for (size_t i = 0; i < sizeof each / sizeof *each; i++)
        if (each[i].count > 1 && length < size)
            length += (size_t)snprintf(out + length, size - length, "%s%s %" PRIu32,
                                       length == 0 ? " (" : ", ", each[i].key, each[i].count);
    if (length > 0 && length < size)
        snprintf(out + length, size - length, ")");
}

static void
describe(const struct conversion *c, char out[EXO_RESHARDED_TEXT])
{
    enum {
        SHARING = 56
    };
    const exo_reshard_form *old = &c->old.is, *new = &c->new.is;
    char was[SHARING], is[SHARING];
    write_sharing(old, was, sizeof was);
    write_sharing(new, is, sizeof is);
    snprintf(out, EXO_RESHARDED_TEXT, "%" PRIu32 " node%s%s instead of %" PRIu32 "%s",
             new->num_nodes, new->num_nodes == 1 ? "" : "s", is, old->num_nodes, was);
}

/* Reads both forms and decides on the way. */
static exo_status
prepare(struct conversion *c, exo_model *model, const exo_reshard_form *to, exo_err *err)
{
    c->old.model = c->new.model = model;
    exo_status st = read_old(c, err);
    if (st == EXO_OK)
        st = check_settings(c, model, err);
    if (st == EXO_OK)
        st = read_new(c, to, err);
    if (st == EXO_OK)
        st = prepare_form(&c->old, err);
    if (st == EXO_OK)
        st = prepare_form(&c->new, err);
    return st == EXO_OK ? choose_way(c, err) : st;
}

exo_status
exo_reshard_check(exo_model *model, const char *from, const exo_reshard_form *to, exo_err *err)
{
    struct conversion c = {.from = from};
    exo_status st = prepare(&c, model, to, err);
    release(&c);
    return st;
}

exo_status
exo_reshard(exo_model *model, const char *from, const char *run_folder, const exo_reshard_form *to,
            exo_resharded *out, exo_err *err)
{
    struct conversion c = {.from = from, .run_folder = run_folder};
    exo_status st = exo_checkpoint_verify(from, err);
    if (st == EXO_OK)
        st = prepare(&c, model, to, err);
    if (st == EXO_OK)
        st = c.by_copies ? exo_reshard_read_copies(&c, err) : make_whole(&c, err);
    if (st == EXO_OK)
        st = write_checkpoint(&c, err);
    *out = (exo_resharded){.step = c.step, .from = c.old.is.num_nodes, .to = to->num_nodes};
    describe(&c, out->change);
    release(&c);
    return st;
}

exo_status
exo_reshard_differs(const char *from, const exo_reshard_form *to, bool *differs, exo_err *err)
{
    static const char *const skipped[] = {"name", "cpu_offload", NULL};
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
