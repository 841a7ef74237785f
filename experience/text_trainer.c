/* The graph classes `sft_trainer`, `reward_trainer` and `dpo_trainer`: an actor trains a model on
 * texts, writes figures of its steps and, at the end, the model as a directory that `model.path` of
 * other actors names. Several that all-reduce their gradients train as one.
 *
 * Comparisons come from a file, or from makers: of each item, answers 2 i and 2 i + 1 are compared by
 * their scores. An actor first takes all items, then trains. The last items, whose comparisons are
 * held out, also give the reference answers of a reward model's scores.
 *
 * Between two steps it writes checkpoints: the tuner's state, the figures, and how long steps_ACTOR.csv
 * was. Another life, or a run that is resumed, goes on from the newest one.
 *
 * Owner of the state: the thread that runs the actor. Read next: tuner.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <exogym/log.h>
#include <exogym/memory.h>

#include "base/c_locale.h"
#include "base/file.h"
#include "base/table.h"
#include "experience/builtin.h"
#include "experience/checkpoints.h"
#include "experience/experience.h"
#include "experience/observer.h"
#include "experience/parameters.h"
#include "experience/tuner.h"
#include "nn/optim_groups.h"

enum {
    MAX_PATH = 4096,
    TEXTS = 64 /* bytes of the hash of the texts */
};

/* The meters, the most important ones first. */
enum {
    LOSS,
    VALIDATION,
    ACCURACY,
    NORM,
    STEPS,
    SAMPLES,
    NUM_METERS
};

static const exo_meter_class meter_classes[NUM_METERS] = {
    [LOSS] = {.name = "loss", .unit = "1", .help = "loss of the last step", .kind = EXO_GAUGE},
    [VALIDATION] = {.name = "val_loss",
                    .unit = "1",
                    .help = "loss of the held-out samples",
                    .kind = EXO_GAUGE},
    [ACCURACY] = {.name = "val_accuracy",
                  .unit = "1",
                  .help = "share of the held-out comparisons whose chosen answer has the larger "
                          "score; 0 for sft_trainer",
                  .kind = EXO_GAUGE},
    [NORM] = {.name = "norm",
              .unit = "1",
              .help = "norm of the gradient in the last step, before it was clipped",
              .kind = EXO_GAUGE},
    [STEPS] = {.name = "steps", .unit = "steps", .help = "steps of the optimizer"},
    [SAMPLES] = {.name = "samples",
                 .unit = "samples",
                 .help = "texts or comparisons that were learned from, of all trainers"},
};

struct text_trainer {
    exo_tuner_kind kind;
    exo_tuner *tuner;
    exo_observer observer;
    uint64_t val_interval;
    uint64_t every;         /* steps between two checkpoints; 0: none are written */
    exo_experience **items; /* (num_items) views of `held`, by the items' numbers */
    exo_item **held;        /* (count) */
    size_t num_items, count, room;
    exo_table csv;
    exo_meter *meters[NUM_METERS];
    uint64_t done, saved; /* steps so far; those of the last checkpoint */
    uint64_t samples;
    exo_tuner_figures last, validated;
};

/* --- Options ---------------------------------------------------------------------------------- */

static exo_status
init(struct text_trainer *t, exo_config *config, exo_tuner_kind kind, exo_err *err)
{
    t->kind = kind;
    exo_status st = exo_tuner_read(&t->tuner, config, kind, err);
    if (st == EXO_OK)
        st = exo_config_u64(config, "val_interval", 50, 0, UINT32_MAX, &t->val_interval, err);
    if (st == EXO_OK)
        st = exo_observer_read(&t->observer, config, err);
    if (st == EXO_OK)
        st = exo_checkpoints_read(config, 100, &t->every, err);
    return st == EXO_OK ? exo_optim_check_misplaced(config, "optimizer.", err) : st;
}

static exo_status
sft_init(void *self, exo_config *config, exo_err *err)
{
    struct text_trainer *t = self;
    if (!exo_config_has(config, "data"))
        return exo_config_fail(config, err,
                               "the key 'data' is missing: data: {path: FILE}, JSON lines with "
                               "prompt and answer, or data: {text: FILE}");
    return init(t, config, EXO_TUNER_ANSWERS, err);
}

static exo_status
reward_init(void *self, exo_config *config, exo_err *err)
{
    return init(self, config, EXO_TUNER_RANKING, err);
}

static exo_status
dpo_init(void *self, exo_config *config, exo_err *err)
{
    return init(self, config, EXO_TUNER_DPO, err);
}

static void
drop_items(struct text_trainer *t)
{
    for (size_t i = 0; i < t->num_items; i++)
        exo_free(t->items[i]);
    for (size_t i = 0; i < t->count; i++)
        exo_item_drop(&t->held[i]);
    exo_free(t->items);
    exo_free(t->held);
    t->items = NULL;
    t->held = NULL;
    t->count = t->num_items = t->room = 0;
}

static void
release(void *self)
{
    struct text_trainer *t = self;
    drop_items(t);
    exo_table_close(&t->csv);
    exo_tuner_free(&t->tuner);
}

/* --- Comparisons of makers -------------------------------------------------------------------- */

/* Takes over an item, also after an error. */
static exo_status
keep_item(struct text_trainer *t, exo_item *item, exo_err *err)
{
    exo_experience *view = exo_calloc(1, sizeof *view);
    exo_status st = view ? exo_experience_view(view, item, err)
                         : exo_fail(err, EXO_NOMEM, "no memory for an item");
    if (st == EXO_OK && view->mask && t->kind == EXO_TUNER_DPO)
        st = exo_fail(err, EXO_UNSUPPORTED,
                      "it has turns with a tool, whose tokens dpo cannot leave out");
    if (st == EXO_OK && t->count == t->room) {
        size_t room = t->room ? 2 * t->room : 64;
        exo_experience **items = exo_realloc(t->items, room, sizeof *items);
        if (items)
            t->items = items;
        exo_item **held = items ? exo_realloc(t->held, room, sizeof *held) : NULL;
        if (held) {
            t->held = held;
            t->room = room;
        } else {
            st = exo_fail(err, EXO_NOMEM, "no memory for %zu items", room);
        }
    }
    if (st != EXO_OK) {
        st = exo_fail_in(err, st, "experience from sender %u, message %llu", item->from,
                         (unsigned long long)item->number);
        exo_free(view);
        exo_item_drop(&item);
        return st;
    }
    t->items[t->num_items++] = view;
    t->held[t->count++] = item;
    return EXO_OK;
}

static int
compare_ids(const void *a, const void *b)
{
    const exo_experience *x = *(const exo_experience *const *)a;
    const exo_experience *y = *(const exo_experience *const *)b;
    return x->id != y->id ? (x->id > y->id) - (x->id < y->id)
                          : (x->received > y->received) - (x->received < y->received);
}

/* Sorts the items by their numbers, and leaves out those that came again. */
static void
sort_items(struct text_trainer *t)
{
    size_t count = 0;
    if (t->count > 1)
        qsort(t->items, t->count, sizeof *t->items, compare_ids);
    for (size_t i = 0; i < t->count; i++) {
        exo_experience *e = t->items[i];
        if (count > 0 && t->items[count - 1]->id == e->id) {
            EXO_LOG(INFO, GRAPH, "event=repeated item=%llu: left out", (unsigned long long)e->id);
            exo_free(e);
        } else {
            t->items[count++] = e;
        }
    }
    t->num_items = count;
}

/* Whether draws are missing among the sorted items, which are numbered from 0 on. */
static bool
lacks_items(const struct text_trainer *t)
{
    size_t i = 0;
    while (i < t->num_items && t->items[i]->id == i)
        i++;
    return i < t->num_items || i == 0;
}

/* Adds the comparisons of an item, pairs of answers whose scores differ, and their number. */
static exo_status
compare_answers(struct text_trainer *t, const exo_experience *e, size_t *added, exo_err *err)
{
    size_t first = 0;
    exo_status st = EXO_OK;
    for (size_t a = 0; st == EXO_OK && a + 1 < e->answers; a += 2) {
        const int32_t *both[2] = {e->tokens + first, e->tokens + first + e->lengths[a]};
        size_t lengths[2] = {(size_t)e->lengths[a], (size_t)e->lengths[a + 1]};
        size_t chosen = e->scores[a + 1] > e->scores[a];
        first += lengths[0] + lengths[1];
        if (e->scores[a] == e->scores[a + 1])
            continue;
        st = exo_tuner_add(t->tuner, e->prompt_tokens, e->prompt_length, both[chosen],
                           lengths[chosen], err);
        if (st == EXO_OK)
            st = exo_tuner_add(t->tuner, e->prompt_tokens, e->prompt_length, both[!chosen],
                               lengths[!chosen], err);
        ++*added;
    }
    return st == EXO_OK ? st
                        : exo_fail_in(err, st, "item %llu of maker %llu", (unsigned long long)e->id,
                                      (unsigned long long)e->maker);
}

/* Adds all answers of an item as references: a reward model's scores are told in terms of them. */
static exo_status
refer_to_answers(struct text_trainer *t, const exo_experience *e, exo_err *err)
{
    size_t first = 0;
    exo_status st = EXO_OK;
    for (size_t a = 0; st == EXO_OK && a < e->answers; a++) {
        st = exo_tuner_add_reference(t->tuner, e->prompt_tokens, e->prompt_length,
                                     e->tokens + first, (size_t)e->lengths[a], err);
        first += (size_t)e->lengths[a];
    }
    return st;
}

/* Takes all items of the makers, and makes comparisons of them in the items' order. What came to an
 * earlier life is not sent again: then the comparisons would be others than those of a whole run. */
static exo_status
collect(struct text_trainer *t, exo_graph_actor *actor, exo_port *port, exo_err *err)
{
    exo_status st = EXO_OK;
    bool again = exo_graph_life(actor) > 0; /* an actor has begun another life */
    while (st == EXO_OK) {
        exo_item *item = NULL;
        st = exo_port_receive(port, EXO_PORT_TIMEOUT, &item, err);
        if (st != EXO_OK)
            break;
        again = again || item->life > 0;
        if (exo_parameters_is_reply(item))
            exo_item_drop(&item); /* a maker in another life, which makes its draws again */
        else
            st = keep_item(t, item, err);
    }
    if (st != EXO_CLOSED)
        return st;
    sort_items(t);
    if (again && lacks_items(t)) {
        drop_items(t);
        return exo_fail(err, EXO_DAMAGED,
                        "items of the makers are missing, which came to an earlier life of this "
                        "actor or of one before it: let exogym run with --resume make them again");
    }
    st = EXO_OK;
    size_t added = 0, count = t->num_items;
    size_t trained = count - (size_t)((double)count * exo_tuner_validation(t->tuner));
    for (size_t i = 0; st == EXO_OK && i < count; i++)
        st = compare_answers(t, t->items[i], &added, err);
    for (size_t i = trained < count ? trained : 0; st == EXO_OK && i < count; i++)
        st = refer_to_answers(t, t->items[i], err);
    if (st == EXO_OK && added == 0)
        st = exo_fail(err, EXO_INVAL,
                      "there is no comparison in the makers' %zu items: no answers 2 i and 2 i + 1 "
                      "to a prompt have different scores",
                      count);
    drop_items(t);
    return st;
}

/* Where the texts come from: the file, or the makers. */
static exo_status
gather(struct text_trainer *t, exo_graph_actor *actor, exo_err *err)
{
    exo_port *port = exo_graph_input(actor, "experience");
    if (!port && !exo_tuner_has_data(t->tuner))
        return exo_fail(err, EXO_INVAL,
                        "%s has no comparisons: set data: {path: FILE}, or let an edge carry "
                        "experience to it",
                        exo_graph_name(actor));
    if (port && (exo_tuner_has_data(t->tuner) || exo_graph_count(actor) > 1))
        return exo_fail(
            err, EXO_INVAL,
            exo_tuner_has_data(t->tuner)
                ? "%s has both `data` and an edge that carries experience: leave one out"
                : "%s: one trainer learns from items; several learn from a file, data: "
                  "{path: FILE}",
            exo_graph_name(actor));
    return port ? collect(t, actor, port, err) : EXO_OK;
}

/* --- Files ------------------------------------------------------------------------------------ */

static exo_status
path_of(char out[MAX_PATH], const exo_graph_actor *actor, const char *format, exo_err *err)
{
    char name[MAX_PATH];
    snprintf(name, sizeof name, format, exo_graph_name(actor));
    if ((size_t)snprintf(out, MAX_PATH, "%s/%s", exo_graph_folder(actor), name) < MAX_PATH)
        return EXO_OK;
    return exo_fail(err, EXO_INVAL, "%.200s...: the path is too long", out);
}

/* Opens the figures of the steps: empty but for the columns, or cut to a length that they had. */
static exo_status
open_csv(struct text_trainer *t, const exo_graph_actor *actor, uint64_t length, exo_err *err)
{
    char path[MAX_PATH];
    if (!exo_graph_folder(actor))
        return EXO_OK;
    exo_status st = path_of(path, actor, "steps_%s.csv", err);
    return st == EXO_OK
               ? exo_table_open(&t->csv, path, "step,seconds,loss,norm,val_loss,val_accuracy",
                                length, err)
               : st;
}

/* Writes the line of a step; `validated`: with the figures of held-out samples. */
static exo_status
write_step(struct text_trainer *t, const exo_graph_actor *actor, uint64_t step, bool validated,
           exo_err *err)
{
    FILE *csv = t->csv.stream;
    if (!csv)
        return EXO_OK;
    exo_c_fprintf(csv, "%llu,%.6f,%.9g,%.9g,", (unsigned long long)step,
                  (double)exo_graph_now(actor) * 1e-9, t->last.loss, t->last.norm);
    if (validated && t->kind == EXO_TUNER_ANSWERS)
        exo_c_fprintf(csv, "%.9g,\n", t->validated.loss);
    else if (validated)
        exo_c_fprintf(csv, "%.9g,%.9g\n", t->validated.loss, t->validated.accuracy);
    else
        fprintf(csv, ",\n");
    return exo_table_push(&t->csv, err);
}

static exo_status
write_text(const exo_graph_actor *actor, const char *format, const char *text, exo_err *err)
{
    char path[MAX_PATH];
    exo_status st = path_of(path, actor, format, err);
    return st == EXO_OK ? exo_file_write_atomic(path, text, strlen(text), err) : st;
}

/* Writes the model, what a reward model's scores are, and the figures. */
static exo_status
write_result(const struct text_trainer *t, const exo_graph_actor *actor, exo_err *err)
{
    char path[MAX_PATH], text[1024], sha256[65];
    const exo_tuner_figures *f = &t->validated;
    if (!exo_graph_folder(actor))
        return EXO_OK;
    exo_status st = exo_table_check(&t->csv, err);
    if (st == EXO_OK)
        st = path_of(path, actor, "model_%s", err);
    if (st == EXO_OK && exo_graph_index(actor) == 0)
        st = exo_tuner_save(t->tuner, path, err);
    if (st == EXO_OK)
        st = path_of(path, actor, "adapter_%s", err);
    if (st == EXO_OK && exo_graph_index(actor) == 0)
        st = exo_tuner_save_adapter(t->tuner, path, err);
    if (st == EXO_OK && exo_graph_index(actor) == 0 && t->kind == EXO_TUNER_RANKING) {
        exo_c_snprintf(text, sizeof text,
                       "{\"mean\": %.9g, \"deviation\": %.9g, \"accuracy\": %.9g}\n", f->mean,
                       f->deviation, f->accuracy);
        st = write_text(actor, "model_%s/reward.json", text, err);
    }
    if (st == EXO_OK)
        st = exo_tuner_sha256(t->tuner, sha256, err);
    if (st != EXO_OK)
        return st;
    int size = exo_c_snprintf(
        text, sizeof text,
        "{\"loss\": %.9g, \"val_loss\": %.9g, \"held_out\": %zu, \"steps\": %llu, ", t->last.loss,
        f->loss, exo_tuner_held_out(t->tuner), (unsigned long long)exo_tuner_steps(t->tuner));
    if (t->kind != EXO_TUNER_ANSWERS)
        size += exo_c_snprintf(text + size, sizeof text - (size_t)size,
                               "\"val_accuracy\": %.9g, \"val_margin\": %.9g, ", f->accuracy,
                               f->margin);
    if (t->kind == EXO_TUNER_RANKING)
        size += exo_c_snprintf(text + size, sizeof text - (size_t)size,
                               "\"mean\": %.9g, \"deviation\": %.9g, ", f->mean, f->deviation);
    snprintf(text + size, sizeof text - (size_t)size, "\"sha256\": \"%s\"}\n", sha256);
    return write_text(actor, "final_%s.json", text, err);
}

/* --- Checkpoints ------------------------------------------------------------------------------ */

/* Lists figures, each as the bytes of a double under its own name. */
static void
list_figures(exo_state *state, const char *name, exo_tuner_figures *f)
{
    const struct {
        const char *name;
        double *value;
    } all[] = {{"loss", &f->loss}, {"accuracy", &f->accuracy},   {"margin", &f->margin},
               {"mean", &f->mean}, {"deviation", &f->deviation}, {"norm", &f->norm}};
    exo_state_prefix(state, name);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        exo_state_add(state, all[i].name, EXO_U8, all[i].value, sizeof *all[i].value);
    exo_state_add_u64(state, "samples", &f->samples);
    exo_state_prefix(state, NULL);
}

/* Lists the entries. `texts`, `length` of the figures: the caller's memory. */
static exo_status
list(struct text_trainer *t, char texts[TEXTS], uint64_t *length, exo_state **out, exo_err *err)
{
    exo_status st = exo_state_new(out, err);
    if (st == EXO_OK)
        st = exo_tuner_state(t->tuner, *out, texts, err);
    if (st != EXO_OK)
        return st;
    exo_state_add_u64(*out, "samples", &t->samples);
    list_figures(*out, "last", &t->last);
    list_figures(*out, "validated", &t->validated);
    exo_state_add_u64(*out, "steps_bytes", length);
    return EXO_OK;
}

/* Writes a checkpoint, unless the present step has one. */
static exo_status
save(struct text_trainer *t, exo_graph_actor *actor, exo_err *err)
{
    char texts[TEXTS];
    uint64_t length = 0;
    exo_state *state = NULL;
    const exo_checkpoints files = exo_checkpoints_of(actor, NULL);
    if (t->every == 0 || !t->csv.stream || t->saved == t->done)
        return EXO_OK;
    exo_status st = exo_table_flush(&t->csv, &length, err);
    t->saved = t->done;
    if (st == EXO_OK)
        st = list(t, texts, &length, &state, err);
    if (st == EXO_OK)
        st = exo_checkpoints_save(&files, &t->csv, t->done, state, err);
    exo_state_free(&state);
    return st;
}

/* Reads the checkpoint of step t->done. *length: of the figures then. */
static exo_status
load(struct text_trainer *t, const exo_checkpoints *files, uint64_t *length, exo_err *err)
{
    char texts[TEXTS] = {0}, now[TEXTS];
    exo_state *state = NULL;
    exo_status st = list(t, texts, length, &state, err);
    memcpy(now, texts, sizeof now);
    if (st == EXO_OK)
        st = exo_checkpoints_load(files, t->done, state, err);
    if (st == EXO_OK && memcmp(texts, now, sizeof now) != 0)
        st = exo_fail(err, EXO_INVAL,
                      "the texts are not those that the checkpoint of step %llu was trained on",
                      (unsigned long long)t->done);
    exo_state_free(&state);
    return st;
}

/* Begins at step 0, or where the last life or run was. */
static exo_status
begin(struct text_trainer *t, exo_graph_actor *actor, exo_err *err)
{
    uint64_t length = 0;
    const exo_checkpoints files = exo_checkpoints_of(actor, exo_graph_group(actor, "gradients"));
    exo_status st =
        exo_graph_resumes(actor) ? exo_checkpoints_agree(&files, &t->done, err) : EXO_OK;
    if (st == EXO_OK && t->done > 0)
        st = load(t, &files, &length, err);
    t->saved = t->observer.version = t->done;
    if (st == EXO_OK)
        st = open_csv(t, actor, length, err);
    return st == EXO_OK ? exo_checkpoints_remove_after(&files, t->done, err) : st;
}

/* --- A run ------------------------------------------------------------------------------------ */

static exo_status
start(struct text_trainer *t, exo_graph_actor *actor, exo_err *err)
{
    exo_status st =
        exo_meter_declare_all(t->meters, exo_graph_meters(actor), meter_classes, NUM_METERS, err);
    if (st == EXO_OK && !exo_graph_group(actor, "gradients") && exo_graph_count(actor) > 1)
        st = exo_fail(err, EXO_INVAL,
                      "%u trainers need an edge that carries gradients: {from: trainer, to: "
                      "trainer, carries: gradients, route: all_reduce}",
                      exo_graph_count(actor));
    if (st == EXO_OK)
        st = exo_observer_open(&t->observer, actor, EXO_OBSERVES_TEXTS,
                               exo_tuner_flop_a_token(t->tuner), err);
    if (st == EXO_OK)
        st = gather(t, actor, err);
    if (st == EXO_OK)
        st = exo_tuner_start(t->tuner, exo_graph_seed(actor), exo_graph_index(actor),
                             exo_graph_count(actor), exo_graph_device_place(actor), err);
    if (st == EXO_OK)
        st = exo_graph_set_device(actor, exo_tuner_device(t->tuner), err);
    return st == EXO_OK ? begin(t, actor, err) : st;
}

static void
report(const struct text_trainer *t, bool validated)
{
    exo_meter_set(t->meters[LOSS], t->last.loss);
    exo_meter_set(t->meters[NORM], t->last.norm);
    exo_meter_count(t->meters[STEPS], t->done);
    exo_meter_count(t->meters[SAMPLES], t->samples);
    if (!validated)
        return;
    exo_meter_set(t->meters[VALIDATION], t->validated.loss);
    exo_meter_set(t->meters[ACCURACY], t->kind == EXO_TUNER_ANSWERS ? 0 : t->validated.accuracy);
}

/* A step of the optimizer. */
static exo_status
learn(struct text_trainer *t, exo_graph_actor *actor, exo_err *err)
{
    exo_time began = exo_graph_now(actor);
    exo_observer_tell(&t->observer, EXO_TRAINER_BATCH, t->done, false);
    exo_graph_phase(actor, "learn");
    exo_status st =
        exo_tuner_step(t->tuner, exo_graph_group(actor, "gradients"), t->done, &t->last, err);
    exo_graph_phase(actor, NULL);
    if (st != EXO_OK)
        return st;
    t->samples += t->last.samples;
    t->done++;
    t->observer.version = t->done;
    t->observer.samples += t->last.own_answers;
    t->observer.tokens += t->last.own_tokens;
    t->observer.learned += exo_graph_now(actor) - began;
    exo_observer_tell(&t->observer, EXO_TRAINER_BATCH, t->done - 1, true);
    return EXO_OK;
}

/* Figures of the held-out samples. */
static exo_status
validate(struct text_trainer *t, exo_graph_actor *actor, exo_err *err)
{
    exo_observer_start(&t->observer, EXO_TRAINER_EVALUATE);
    exo_graph_phase(actor, "evaluate");
    exo_status st =
        exo_tuner_evaluate(t->tuner, exo_graph_group(actor, "gradients"), &t->validated, err);
    exo_graph_phase(actor, NULL);
    exo_observer_end(&t->observer, EXO_TRAINER_EVALUATE);
    return st;
}

/* A step, its figures, and the checkpoint after it, if one is due. */
static exo_status
take_step(struct text_trainer *t, exo_graph_actor *actor, exo_err *err)
{
    uint64_t next = t->done + 1, epoch = exo_tuner_epoch_steps(t->tuner);
    bool last = next == exo_tuner_steps(t->tuner);
    bool validates = last || (t->val_interval > 0 && next % t->val_interval == 0);
    if (t->done % epoch == 0 || t->observer.counts[EXO_TRAINER_BATCH] == 0)
        exo_observer_tell(&t->observer, EXO_TRAINER_EPOCH, t->done / epoch, false);
    exo_status st = learn(t, actor, err);
    if (st == EXO_OK && validates)
        st = validate(t, actor, err);
    if (st == EXO_OK)
        st = write_step(t, actor, next, validates, err);
    if (st != EXO_OK)
        return st;
    report(t, validates);
    if (last || next % epoch == 0)
        exo_observer_tell(&t->observer, EXO_TRAINER_EPOCH, (next - 1) / epoch, true);
    return t->every > 0 && (last || next % t->every == 0) ? save(t, actor, err) : EXO_OK;
}

static exo_status
run(void *self, exo_graph_actor *actor, exo_err *err)
{
    struct text_trainer *t = self;
    exo_status st = start(t, actor, err);
    if (st == EXO_OK && t->done > 0)
        report(t, true);
    while (st == EXO_OK && t->done < exo_tuner_steps(t->tuner) && !exo_graph_cancelled(actor))
        st = take_step(t, actor, err);
    exo_observer_close(&t->observer);
    if (st == EXO_OK && exo_graph_cancelled(actor)) {
        st = exo_graph_group(actor, "gradients") ? EXO_OK : save(t, actor, err);
        return st == EXO_OK ? exo_fail(err, EXO_CANCELLED, "the run ends") : st;
    }
    return st == EXO_OK ? write_result(t, actor, err) : st;
}

static void
write_device(const void *self, char *out, size_t size)
{
    snprintf(out, size, "%s", exo_tuner_device_name(((const struct text_trainer *)self)->tuner));
}

/* --- The classes ------------------------------------------------------------------------------ */

/* The first port is that of sft_trainer, which takes no items. */
static const exo_graph_port ports[] = {
    {.name = "gradients", .type = "gradients of a model", .direction = EXO_PORT_COLLECTIVE},
    {.name = "experience", .type = "experience", .direction = EXO_PORT_INPUT, .blocking = true},
};
static const char *const phases[] = {"learn", "evaluate", NULL};

const exo_graph_class exo_sft_trainer_class = {
    .name = "sft_trainer",
    .help = "trains a model on answers to prompts; options model, data, batch, epochs, optimizer, "
            "device, checkpoint, ...",
    .ports = ports,
    .num_ports = 1,
    .phases = phases,
    .state_size = sizeof(struct text_trainer),
    .resumes = true,
    .init = sft_init,
    .run = run,
    .release = release,
    .write_device = write_device,
    .order = "* reduce gradients",
};

const exo_graph_class exo_reward_trainer_class = {
    .name = "reward_trainer",
    .help = "trains a reward model on comparisons of a file or of makers; options model, data, "
            "batch, epochs, optimizer, smoothing, device, ...",
    .ports = ports,
    .num_ports = 2,
    .phases = phases,
    .state_size = sizeof(struct text_trainer),
    .resumes = true,
    .init = reward_init,
    .run = run,
    .release = release,
    .write_device = write_device,
    .order = "* receive experience; * reduce gradients",
};

const exo_graph_class exo_dpo_trainer_class = {
    .name = "dpo_trainer",
    .help = "trains a policy on comparisons by DPO; options model, data, beta, smoothing, batch, "
            "epochs, optimizer, device, ...",
    .ports = ports,
    .num_ports = 2,
    .phases = phases,
    .state_size = sizeof(struct text_trainer),
    .resumes = true,
    .init = dpo_init,
    .run = run,
    .release = release,
    .write_device = write_device,
    .order = "* receive experience; * reduce gradients",
};
