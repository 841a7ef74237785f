/* The graph class `experience_maker`: an actor generates answers to prompts with the newest weights
 * that it has received, scores them, and sends them as items.
 *
 * Maker i of M makes the draws i, i + M, ... up to the trainer's quota, or those that a trainer with
 * `balance` deals to it. With `swap: batch` it makes
 * a batch of them with one version of the weights. With `swap: step` weights change between two
 * steps of generation, answers go on under the new ones, and a draw that has ended makes room for
 * the next one at once.
 *
 * A maker is a function of draws and weights, so it needs no checkpoint. In another life, or after a
 * trainer has begun another life, it makes the draws again that the trainers have not learned from.
 * If that may happen, it says when it has sent all draws, keeps its ports open, and ends after the
 * trainers.
 *
 * Owner of the state: the thread that runs the actor. Read next: source.h (how it samples),
 * maker_weights.h (what it receives), trainer.c. */
#include <stdio.h>
#include <string.h>

#include <exogym/memory.h>
#include <exogym/state.h>

#include "base/config_edit.h"
#include "base/pace.h"
#include "experience/builtin.h"
#include "experience/maker_group.h"
#include "experience/maker_weights.h"
#include "experience/observer.h"
#include "experience/source.h"

enum {
    MOST_VAIN = 6 /* then a batch in 33 waits for more draws */
};

enum {
    SCORE,
    VERSION,
    ITEMS,
    TOKENS,
    SWAPS,
    PAUSE,
    GAP,
    TRANSFER,
    UPTAKE,
    NUM_METERS
};

static const exo_meter_class meter_classes[NUM_METERS] = {
    [SCORE] = {.name = "score",
               .unit = "1",
               .help = "mean score of the answers that the maker has sent last",
               .kind = EXO_GAUGE},
    [VERSION] = {.name = "version",
                 .unit = "1",
                 .help = "version of the weights that the maker generates with",
                 .kind = EXO_GAUGE},
    [ITEMS] = {.name = "items",
               .unit = "items",
               .help = "items of experience that the maker has sent"},
    [TOKENS] = {.name = "tokens", .unit = "tokens", .help = "tokens that the maker has generated"},
    [SWAPS] = {.name = "swaps", .unit = "swaps", .help = "exchanges of the weights in use"},
    [PAUSE] = {.name = "pause",
               .unit = "s",
               .help = "longest exchange of the weights: so long the maker did not generate",
               .kind = EXO_GAUGE},
    [GAP] = {.name = "gap",
             .unit = "s",
             .help = "longest time from the beginning of an exchange until every answer under way "
                     "had its next token: the pause, caches that are computed anew, and a step",
             .kind = EXO_GAUGE},
    [TRANSFER] = {.name = "transfer",
                  .unit = "s",
                  .help = "time that the last weight update was on its way",
                  .kind = EXO_GAUGE},
    [UPTAKE] = {.name = "uptake",
                .unit = "s",
                .help = "time to decode, verify and pack the last weight update, beside generation",
                .kind = EXO_GAUGE},
};

struct maker {
    exo_experience_source *source;
    exo_maker_weights *weights;
    exo_maker_start start;
    uint64_t epochs, steps; /* steps: batches of each maker; 0: epochs decide */
    exo_observer observer;
    exo_maker_group *group; /* that shares each generation; NULL: the maker has the whole model */
    uint64_t *shared;       /* (batch) with a group: draws to begin */
    uint64_t makers, index; /* groups count as one */
    bool closed;            /* the leader's trainers have ended; it tells the others */
    bool ended;             /* the leader of the group has said so */
    bool by_step;           /* weights change between steps */
    exo_kv kv;
    exo_meter *meters[NUM_METERS];
    uint64_t draw, total; /* the next draw; the end of the draws */
    bool told;            /* all draws were sent, and the trainers were told so */
    uint64_t items, tokens;
    bool resumes;       /* answers under way have had no token since an exchange */
    exo_time exchanged; /* when it began */
    double gap;         /* seconds: the longest */
    exo_time takes;     /* time of the last batch; 0: there was none */
    /* waits for more draws that were in vain, in a row; batches that begin without such a wait */
    unsigned vain, hasty;
};

static const char *const swap_names[] = {"batch", "step", NULL};
static const char *const kv_names[] = {"recompute", "keep", "reset", NULL};

static exo_status
read_start(exo_maker_start *s, exo_config *config, exo_err *err)
{
    exo_config *map = NULL;
    uint64_t trainers = 1;
    exo_status st = exo_config_map(config, "start", &map, err);
    if (st == EXO_OK)
        st = exo_config_u64(map, "draws", 0, 0, UINT32_MAX, &s->draws, err);
    if (st == EXO_OK)
        st = exo_config_u64(map, "trainers", 1, 1, UINT16_MAX, &trainers, err);
    s->trainers = (uint32_t)trainers;
    return st == EXO_OK ? exo_config_finish(map, err) : st;
}

static exo_status
maker_init(void *self, exo_config *config, exo_err *err)
{
    struct maker *m = self;
    size_t swap = 0, kv = 0;
    exo_status st = exo_experience_source_read(&m->source, config, err);
    if (st == EXO_OK)
        st = exo_config_u64(config, "epochs", 1, 0, UINT32_MAX, &m->epochs, err);
    if (st == EXO_OK)
        st = exo_config_u64(config, "steps", 0, 0, UINT32_MAX, &m->steps, err);
    if (st == EXO_OK)
        st = exo_observer_read(&m->observer, config, err);
    if (st == EXO_OK)
        st = read_start(&m->start, config, err);
    if (st == EXO_OK)
        st = exo_config_choice(config, "swap", 0, swap_names, &swap, err);
    if (st == EXO_OK)
        st = exo_config_choice(config, "kv", EXO_KV_RECOMPUTE, kv_names, &kv, err);
    if (st == EXO_OK && swap == 0 && exo_config_has(config, "kv"))
        st = exo_config_fail(exo_config_get(config, "kv"), err,
                             "kv says nothing without swap: step, because no answer is under way "
                             "between two batches");
    if (st == EXO_OK && swap == 1 && exo_experience_source_tensor(m->source) > 1)
        st = exo_config_fail(exo_config_get(config, "swap"), err,
                             "swap: step does not go with parallel: {tensor: %u}: leave it out",
                             exo_experience_source_tensor(m->source));
    m->by_step = swap == 1;
    m->kv = (exo_kv)kv;
    return st;
}

static void
maker_release(void *self)
{
    struct maker *m = self;
    exo_maker_weights_free(&m->weights);
    exo_experience_source_free(&m->source);
    exo_free(m->shared);
}

/* --- Weights ---------------------------------------------------------------------------------- */

/* Passes over draws that a trainer has already. */
static void
skip_finished(struct maker *m)
{
    while (m->draw < m->total && exo_maker_weights_has_finished(m->weights, m->draw))
        m->draw += m->makers;
}

/* Begins again with the first draw that the trainers have not learned from, if that is due. */
static exo_status
begin_again(struct maker *m, exo_err *err)
{
    uint64_t learned = 0, count = m->makers, index = m->index;
    if (!exo_maker_weights_begins_again(m->weights, &learned))
        return EXO_OK;
    m->draw = learned <= index ? index : index + (learned - index + count - 1) / count * count;
    m->told = m->resumes = false;
    skip_finished(m);
    return exo_experience_source_abandon(m->source, err);
}

/* Uses the version that is ready, if there is one. */
static exo_status
exchange(struct maker *m, exo_graph_actor *actor, exo_err *err)
{
    exo_time began = exo_graph_now(actor);
    if (!exo_maker_weights_is_ready(m->weights))
        return EXO_OK;
    exo_maker_weights_swap(m->weights, actor);
    exo_status st = begin_again(m, err);
    if (st == EXO_OK)
        st = exo_experience_source_renew(m->source, exo_maker_weights_version(m->weights), m->kv,
                                         err);
    if (!m->resumes)
        m->exchanged = began;
    m->resumes = exo_experience_source_waiting(m->source) > 0;
    exo_meter_set(m->meters[VERSION], (double)exo_maker_weights_version(m->weights));
    return st;
}

/* Uses the newest weights that have come. */
static exo_status
renew(struct maker *m, exo_graph_actor *actor, exo_err *err)
{
    exo_status st = exo_maker_weights_pump(m->weights, actor, true, err);
    while (st == EXO_OK && exo_maker_weights_is_ready(m->weights)) {
        st = exchange(m, actor, err);
        if (st == EXO_OK)
            st = exo_maker_weights_pump(m->weights, actor, true, err);
    }
    return st == EXO_OK ? begin_again(m, err) : st;
}

/* Whether a draw may be begun now. */
static bool
has_draw(const struct maker *m)
{
    uint64_t draw = 0;
    return exo_maker_weights_is_dealt(m->weights)
               ? exo_maker_weights_next_draw(m->weights, false, &draw)
               : m->draw < m->total && exo_maker_weights_allows(m->weights, m->draw);
}

/* Whether draws are left, or under way. */
static bool
has_work(const struct maker *m)
{
    return exo_experience_source_active(m->source) > 0 ||
           (exo_maker_weights_is_dealt(m->weights)
                ? exo_maker_weights_expects(m->weights)
                : m->draw < m->total || exo_maker_weights_is_unknown(m->weights));
}

/* Uses the newest weights that have come, and waits for more if the next draw may not be made yet
 * and no answer is under way. CLOSED: no more will come. */
static exo_status
catch_up(struct maker *m, exo_graph_actor *actor, exo_err *err)
{
    exo_status st = renew(m, actor, err);
    skip_finished(m);
    if (st != EXO_OK || has_draw(m) || !has_work(m) || exo_experience_source_active(m->source) > 0)
        return st;
    st = exo_maker_weights_wait(m->weights, actor, EXO_PORT_TIMEOUT, err);
    return st == EXO_OK ? catch_up(m, actor, err) : st;
}

static void
report_weights(struct maker *m)
{
    const exo_maker_weights_figures *f = exo_maker_weights_figures_of(m->weights);
    exo_meter_count(m->meters[SWAPS], f->swaps);
    exo_meter_set(m->meters[PAUSE], f->pause);
    exo_meter_set(m->meters[GAP], m->gap);
    exo_meter_set(m->meters[TRANSFER], f->transfer);
    exo_meter_set(m->meters[UPTAKE], f->uptake);
}

/* --- Draws ------------------------------------------------------------------------------------ */

/* Begins draws while there is room, the quota allows it, and draws are left. */
static exo_status
begin_draws(struct maker *m, exo_err *err)
{
    uint64_t draw = 0;
    exo_status st = EXO_OK;
    skip_finished(m);
    while (st == EXO_OK && exo_experience_source_room(m->source) > 0 && has_draw(m)) {
        if (exo_maker_weights_next_draw(m->weights, true, &draw)) {
            if (!exo_experience_source_has(m->source, draw)) /* else it was dealt again */
                st = exo_experience_source_begin(m->source, draw, err);
            continue;
        }
        st = exo_experience_source_begin(m->source, m->draw, err);
        m->draw += m->makers;
        skip_finished(m);
    }
    return st;
}

/* Sends an item to its trainer: draw d is for trainer d mod T. If the port does not have it among
 * several targets, the route decides. */
static exo_status
send_to_trainer(const struct maker *m, exo_graph_actor *actor, uint64_t draw, exo_item **item,
                exo_err *err)
{
    exo_port *port = exo_graph_output(actor, "experience");
    uint32_t trainers = exo_maker_weights_trainers(m->weights), index = 0;
    uint32_t targets = trainers > 1 ? exo_port_targets(port) : 0;
    char name[96];
    for (uint32_t i = 0; targets > 1 && i < targets; i++)
        if (exo_port_target(port, i, name, sizeof name, &index) && index == draw % trainers)
            return exo_port_send_to(port, i, item, EXO_PORT_TIMEOUT, err);
    return exo_port_send(port, item, EXO_PORT_TIMEOUT, err);
}

/* Counts an item and sends it. */
static exo_status
send_item(struct maker *m, exo_graph_actor *actor, exo_item **item, exo_err *err)
{
    exo_experience e;
    double score = 0;
    exo_status st = exo_experience_view(&e, *item, err);
    if (st == EXO_OK) {
        for (size_t a = 0; a < e.answers; a++)
            score += e.scores[a];
        exo_meter_set(m->meters[SCORE], score / (double)e.answers);
        m->tokens += exo_experience_actions(&e, 0, e.tokens_length);
        m->observer.samples += e.answers;
        m->observer.tokens += e.tokens_length + e.answers * e.prompt_length;
        e.life = exo_maker_weights_life(m->weights);
        exo_experience_sign(&e, *item);
        exo_observer_start(&m->observer, EXO_MAKER_SEND);
        st = send_to_trainer(m, actor, e.id, item, err);
        exo_observer_end(&m->observer, EXO_MAKER_SEND);
    }
    m->items += st == EXO_OK;
    exo_item_drop(item);
    return st;
}

/* Sends the draws that have ended. */
static exo_status
send_ended(struct maker *m, exo_graph_actor *actor, exo_err *err)
{
    exo_item *item = NULL;
    exo_status st = EXO_OK;
    do {
        st = exo_experience_source_take(m->source, m->index, &item, err);
        if (st == EXO_OK && item)
            st = send_item(m, actor, &item, err);
        else
            break;
    } while (st == EXO_OK);
    exo_meter_count(m->meters[ITEMS], m->items);
    exo_meter_count(m->meters[TOKENS], m->tokens);
    report_weights(m);
    return st;
}

static void
begin_batch(struct maker *m)
{
    m->observer.version = exo_maker_weights_version(m->weights);
    exo_observer_start(&m->observer, EXO_MAKER_BATCH);
    exo_observer_start(&m->observer, EXO_MAKER_MAKE);
}

static exo_status
end_batch(struct maker *m, exo_graph_actor *actor, exo_err *err)
{
    exo_observer_end(&m->observer, EXO_MAKER_MAKE);
    exo_status st = send_ended(m, actor, err);
    exo_observer_end(&m->observer, EXO_MAKER_BATCH);
    return st;
}

/* A declared cost of a batch passes with its tokens, because versions come meanwhile and are answered.
 * The rest passes at the end if all answers are shorter than they may be. */
static void
pass_time(const struct maker *m, size_t steps)
{
    const size_t most = exo_experience_source_length(m->source);
    exo_pace *pace = exo_pace_current();
    if (pace)
        exo_pace_reach(pace, steps < most ? (double)steps / (double)most : 1);
}

/* How long a batch may wait until more draws are allowed than now (*count); 0: it begins. A part of a
 * batch takes as long as a whole one, so a wait for n draws beside k pays if it takes less than n / k
 * of that. */
static exo_time
patience(const struct maker *m, uint64_t *count)
{
    uint64_t batch = exo_experience_source_batch(m->source), draw = m->draw, aim = 0;
    for (*count = 0;
         *count < batch && draw < m->total && exo_maker_weights_allows(m->weights, draw);
         draw += m->makers)
        *count += !exo_maker_weights_has_finished(m->weights, draw);
    if (*count > 0 && *count < batch && draw < m->total)
        aim = exo_maker_weights_aim(m->weights, m->draw, batch, m->takes);
    if (aim <= *count)
        return 0;
    double share = (double)(aim - *count) / (double)*count;
    return share < 1 ? (exo_time)(share * (double)m->takes) : m->takes;
}

/* Waits for versions that allow more draws, while the trainers make them without this maker's next
 * draw. After a wait in vain the next batches begin without one, and more of them each time: what was
 * to come is held up elsewhere, at a slow maker or in a replay_buffer. */
static exo_status
gather(struct maker *m, exo_graph_actor *actor, exo_err *err)
{
    uint64_t first = 0, count = 0, seen = 0;
    exo_status st = EXO_OK, came = EXO_OK;
    exo_err reason = {0};
    exo_time left = patience(m, &first), until = exo_graph_now(actor) + left;
    if (left == 0)
        return EXO_OK;
    if (m->hasty > 0) {
        m->hasty--;
        return EXO_OK;
    }
    for (count = seen = first; st == EXO_OK && left > 0; seen = count) {
        came = exo_maker_weights_wait(m->weights, actor, left, &reason);
        if (came != EXO_OK)
            break;
        st = renew(m, actor, err);
        skip_finished(m);
        exo_time more = patience(m, &count), now = exo_graph_now(actor);
        until = count > seen ? now + more : until;
        left = more > 0 ? until - now : 0;
    }
    if (came != EXO_OK && came != EXO_TIMEOUT)
        return exo_fail(err, came, "%s", reason.text);
    m->vain = count > first ? 0 : m->vain < MOST_VAIN ? m->vain + 1 : MOST_VAIN;
    m->hasty = m->vain > 0 ? 1u << (m->vain - 1) : 0;
    return st;
}

/* Makes a batch with one version of the weights. The next one comes meanwhile. */
static exo_status
make_batch(struct maker *m, exo_graph_actor *actor, exo_err *err)
{
    exo_status st = EXO_OK;
    do {
        st = catch_up(m, actor, err);
        if (st == EXO_OK)
            st = gather(m, actor, err);
    } while (st == EXO_OK && !has_draw(m) &&
             has_work(m)); /* a trainer began another life meanwhile */
    if (st == EXO_OK)
        begin_batch(m);
    exo_time begun = exo_graph_now(actor);
    exo_graph_phase(actor, "make");
    if (st == EXO_OK)
        st = begin_draws(m, err);
    for (size_t steps = 1; st == EXO_OK && exo_experience_source_unfinished(m->source) > 0;
         steps++) {
        st = exo_experience_source_step(m->source, err);
        pass_time(m, steps);
        if (st == EXO_OK)
            st = exo_maker_weights_pump(m->weights, actor, false, err);
    }
    exo_graph_phase(actor, NULL);
    m->takes = exo_graph_now(actor) - begun;
    return st == EXO_OK ? end_batch(m, actor, err) : st;
}

/* The leader's choice: the next draws that the quota allows, up to a batch. */
static exo_maker_command
choose_draws(struct maker *m, size_t *count)
{
    if (m->closed)
        return EXO_MAKER_ENDS;
    skip_finished(m);
    while (*count < exo_experience_source_batch(m->source) && m->draw < m->total &&
           exo_maker_weights_allows(m->weights, m->draw)) {
        m->shared[(*count)++] = m->draw;
        m->draw += m->makers;
        skip_finished(m);
    }
    return *count > 0 ? EXO_MAKER_DRAWS : m->draw < m->total ? EXO_MAKER_AWAIT : EXO_MAKER_ENDS;
}

/* Takes the newest version and begins a batch, with all members of the group. *command: DRAWS, or
 * ENDS, and nothing was begun. */
static exo_status
begin_shared(struct maker *m, exo_graph_actor *actor, exo_maker_command *command, exo_err *err)
{
    size_t count = 0, batch = exo_experience_source_batch(m->source);
    exo_status st = EXO_OK;
    *command = EXO_MAKER_DRAWS;
    do {
        st = exo_maker_group_take(m->group, m->weights, actor, *command == EXO_MAKER_AWAIT, err);
        if (st == EXO_OK)
            st = exchange(m, actor, err);
        if (st == EXO_OK && exo_maker_group_leads(m->group))
            *command = choose_draws(m, &count);
        if (st == EXO_OK)
            st = exo_maker_group_share(m->group, command, m->shared, &count, batch, err);
    } while (st == EXO_OK && *command == EXO_MAKER_AWAIT);
    for (size_t i = 0; st == EXO_OK && i < count; i++)
        st = exo_experience_source_begin(m->source, m->shared[i], err);
    return st;
}

/* Makes a batch with the other members of the group. The leader sends it. */
static exo_status
make_shared(struct maker *m, exo_graph_actor *actor, exo_err *err)
{
    exo_maker_command command;
    exo_status st = begin_shared(m, actor, &command, err);
    if (st != EXO_OK || command == EXO_MAKER_ENDS) {
        m->ended = st == EXO_OK;
        return st;
    }
    begin_batch(m);
    exo_graph_phase(actor, "make");
    while (st == EXO_OK && exo_experience_source_unfinished(m->source) > 0)
        st = exo_experience_source_step(m->source, err);
    exo_graph_phase(actor, NULL);
    if (st == EXO_OK && exo_maker_group_leads(m->group)) {
        st = end_batch(m, actor, err);
        m->closed = st == EXO_CLOSED;
        return m->closed ? exo_experience_source_abandon(m->source, err) : st;
    }
    exo_observer_end(&m->observer, EXO_MAKER_MAKE);
    exo_observer_end(&m->observer, EXO_MAKER_BATCH);
    report_weights(m);
    return st == EXO_OK ? exo_experience_source_abandon(m->source, err) : st;
}

/* After a step: whether all answers have gone on since the last exchange, and how long that took. */
static void
measure_gap(struct maker *m, exo_graph_actor *actor)
{
    if (!m->resumes || exo_experience_source_waiting(m->source) > 0)
        return;
    double gap = (double)(exo_graph_now(actor) - m->exchanged) * 1e-9;
    m->resumes = false;
    m->gap = gap > m->gap ? gap : m->gap;
}

/* Makes one step with the newest weights, and replaces draws that have ended. */
static exo_status
make_step(struct maker *m, exo_graph_actor *actor, exo_err *err)
{
    exo_status st = exo_maker_weights_pump(m->weights, actor, false, err);
    if (st == EXO_OK)
        st = begin_again(m, err);
    if (st == EXO_OK)
        st = exchange(m, actor, err);
    if (st == EXO_OK && exo_experience_source_active(m->source) == 0)
        st = catch_up(m, actor, err);
    if (st == EXO_OK)
        st = begin_draws(m, err);
    if (st != EXO_OK || exo_experience_source_active(m->source) == 0)
        return st;
    begin_batch(m);
    exo_graph_phase(actor, "step");
    st = exo_experience_source_step(m->source, err);
    exo_graph_phase(actor, NULL);
    measure_gap(m, actor);
    return st == EXO_OK ? end_batch(m, actor, err) : st;
}

/* --- A run ------------------------------------------------------------------------------------ */

static exo_status
open_group(struct maker *m, exo_graph_actor *actor, uint32_t tensor, exo_err *err)
{
    if (tensor == 1)
        return EXO_OK;
    m->shared = exo_calloc(exo_experience_source_batch(m->source), sizeof *m->shared);
    return m->shared ? exo_maker_group_open(&m->group, actor, tensor, err)
                     : exo_fail(err, EXO_NOMEM, "no memory for a maker");
}

static exo_status
start(struct maker *m, exo_graph_actor *actor, exo_err *err)
{
    uint32_t tensor = exo_experience_source_tensor(m->source);
    m->makers = exo_graph_count(actor) / tensor;
    m->index = exo_graph_index(actor) / tensor;
    m->total = m->steps    ? m->steps * exo_experience_source_batch(m->source) * m->makers
               : m->epochs ? m->epochs * exo_experience_source_prompts(m->source)
                           : UINT64_MAX;
    m->draw = m->index;
    exo_status st = open_group(m, actor, tensor, err);
    uint64_t batch = exo_experience_source_batch(m->source);
    m->start.room = m->group ? 0 : m->by_step ? batch + (batch + 3) / 4 : 2 * batch;
    m->start.portion = m->by_step ? 1 : batch;
    m->start.total = m->total;
    m->start.makers = m->makers;
    m->start.index = m->index;
    if (st == EXO_OK)
        st = exo_meter_declare_all(m->meters, exo_graph_meters(actor), meter_classes, NUM_METERS,
                                   err);
    if (st == EXO_OK)
        st = exo_experience_source_start(m->source, exo_graph_seed(actor),
                                         exo_graph_device_place(actor),
                                         m->group ? exo_maker_group_of(m->group) : NULL, err);
    if (st == EXO_OK)
        st = exo_observer_open(&m->observer, actor, EXO_OBSERVES_MAKER,
                               2 * (double)exo_experience_source_numel(m->source), err);
    if (st == EXO_OK)
        st = exo_maker_weights_new(&m->weights, m->source, &m->start, actor, err);
    return st == EXO_OK && exo_graph_life(actor) > 0
               ? exo_maker_weights_greet(m->weights, actor, err)
               : st;
}

/* Whether items that were sent may have to be made again, because of a death. */
static bool
may_begin_again(exo_graph_actor *actor)
{
    exo_port *parameters = exo_graph_input(actor, "parameters");
    return parameters && (exo_graph_may_restart(actor) || exo_port_may_restart(parameters) ||
                          exo_port_may_restart(exo_graph_output(actor, "experience")));
}

/* All draws were sent. Tells the trainers so, and waits until they have ended (CLOSED), or the maker
 * begins again. Each update sends a version, so the wait has the limit of an update. */
static exo_status
await_trainers(struct maker *m, exo_graph_actor *actor, exo_err *err)
{
    exo_err reason = {0};
    exo_status st = EXO_OK;
    if (!may_begin_again(actor))
        return exo_fail(err, EXO_CLOSED, "all draws were sent");
    if (!m->told)
        st = exo_maker_weights_say_sent(m->weights, actor, err);
    if (st != EXO_OK)
        return st;
    m->told = true;
    st = renew(m, actor,
               err); /* trainers send no further version before the answer to the last one */
    if (st != EXO_OK || has_work(m) || !m->told)
        return st;
    st = exo_maker_weights_wait(m->weights, actor, EXO_PORT_TIMEOUT, &reason);
    if (st == EXO_OK)
        return EXO_OK;
    return st == EXO_TIMEOUT
               ? exo_fail(err, st,
                          "all draws were sent, but the trainers have neither ended nor sent a "
                          "version: %s; if updates take so long, set a longer deadline",
                          reason.text)
               : exo_fail(err, st, "%s", reason.text);
}

static exo_status
make(struct maker *m, exo_graph_actor *actor, exo_err *err)
{
    return m->group     ? make_shared(m, actor, err)
           : m->by_step ? make_step(m, actor, err)
                        : make_batch(m, actor, err);
}

static exo_status
maker_run(void *self, exo_graph_actor *actor, exo_err *err)
{
    struct maker *m = self;
    exo_status st = start(m, actor, err);
    while (st == EXO_OK && !exo_graph_cancelled(actor)) {
        bool left = m->group ? !m->ended : has_work(m);
        st = left ? make(m, actor, err) : await_trainers(m, actor, err);
    }
    exo_observer_close(&m->observer);
    if (m->group) { /* their generators go first */
        exo_maker_weights_free(&m->weights);
        exo_experience_source_end(m->source);
    }
    exo_maker_group_close(&m->group);
    return st == EXO_CLOSED ? EXO_OK : st;
}

/* Says what does not go with balance of a trainer. */
static void
write_shape(const void *self, char *out, size_t size)
{
    const struct maker *m = self;
    if (exo_experience_source_tensor(m->source) > 1)
        snprintf(out, size,
                 "draws that are dealt beforehand, for makers that share a model (parallel)");
}

static void
write_device(const void *self, char *out, size_t size)
{
    snprintf(out, size, "%s",
             exo_experience_source_device_name(((const struct maker *)self)->source));
}

static const exo_graph_port maker_ports[] = {
    {.name = "experience", .type = "experience", .direction = EXO_PORT_OUTPUT, .required = true},
    {.name = "parameters", .type = "parameters", .direction = EXO_PORT_INPUT, .blocking = true},
    {.name = "activations",
     .type = "activations of makers that share a model",
     .direction = EXO_PORT_COLLECTIVE},
};
static const char *const maker_phases[] = {"make", "step", NULL};

const exo_graph_class exo_experience_maker_class = {
    .name = "experience_maker",
    .help = "generates answers to prompts and scores them; options model, prompts, reward, "
            "answers, batch, generate, epochs, steps, swap, kv, device, parallel",
    .ports = maker_ports,
    .num_ports = sizeof maker_ports / sizeof *maker_ports,
    .phases = maker_phases,
    .state_size = sizeof(struct maker),
    .init = maker_init,
    .run = maker_run,
    .release = maker_release,
    .write_shape = write_shape,
    .write_device = write_device,
};
