/* The graph class `experience_maker`: an actor generates answers to prompts with the newest weights
 * that it has received, scores them, and sends them as items.
 *
 * Maker i of M makes the draws i, i + M, ... up to the trainer's quota. Weights change between
 * batches only.
 *
 * Owner of the state: the thread that runs the actor. Read next: source.h (how it samples),
 * parameters.h (what it receives), trainer.c. */
#include <stdio.h>
#include <string.h>

#include <exogym/memory.h>
#include <exogym/state.h>

#include "experience/builtin.h"
#include "experience/parameters.h"
#include "experience/source.h"

enum {
    SCORE,
    VERSION,
    ITEMS,
    TOKENS,
    NUM_METERS
};

static const exo_meter_class meter_classes[NUM_METERS] = {
    [SCORE] = {.name = "score",
               .unit = "1",
               .help = "mean score of the answers in the maker's last batch",
               .kind = EXO_GAUGE},
    [VERSION] = {.name = "version",
                 .unit = "1",
                 .help = "version of the weights that the maker made the last batch with",
                 .kind = EXO_GAUGE},
    [ITEMS] = {.name = "items",
               .unit = "items",
               .help = "items of experience that the maker has sent"},
    [TOKENS] = {.name = "tokens", .unit = "tokens", .help = "tokens that the maker has generated"},
};

struct maker {
    exo_experience_source *source;
    uint64_t epochs;
    exo_meter *meters[NUM_METERS];
    exo_item **batch;     /* (source's batch) */
    uint64_t draw, quota; /* the next draw; draws below the quota may be made */
    uint64_t items, tokens;
};

static exo_status
maker_init(void *self, exo_config *config, exo_err *err)
{
    struct maker *m = self;
    exo_status st = exo_experience_source_read(&m->source, config, err);
    if (st == EXO_OK)
        st = exo_config_u64(config, "epochs", 1, 0, UINT32_MAX, &m->epochs, err);
    m->batch =
        st == EXO_OK ? exo_calloc(exo_experience_source_batch(m->source), sizeof *m->batch) : NULL;
    return st == EXO_OK && !m->batch ? exo_fail(err, EXO_NOMEM, "no memory for a batch") : st;
}

static void
maker_release(void *self)
{
    struct maker *m = self;
    exo_free(m->batch);
    exo_experience_source_free(&m->source);
}

/* --- Weights ---------------------------------------------------------------------------------- */

/* Takes the weights of an item, unless they are those of this version or older ones. */
static exo_status
use_item(struct maker *m, const exo_item *item, bool *changed, exo_err *err)
{
    exo_parameters p;
    exo_status st = exo_parameters_view(&p, item, exo_experience_source_numel(m->source), err);
    if (st != EXO_OK)
        return st;
    m->quota = p.quota > m->quota ? p.quota : m->quota;
    if (p.version <= exo_experience_source_version(m->source))
        return EXO_OK;
    memcpy(exo_experience_source_values(m->source), p.values, p.numel * sizeof *p.values);
    *changed = true;
    return exo_experience_source_use(m->source, p.version, err);
}

/* Waits at most `timeout` for weights. */
static exo_status
receive(struct maker *m, exo_port *port, exo_time timeout, exo_err *err)
{
    exo_item *item = NULL;
    bool changed = false;
    exo_status st = exo_port_receive(port, timeout, &item, err);
    if (st != EXO_OK)
        return st;
    st = use_item(m, item, &changed, err);
    if (st != EXO_OK)
        st = exo_fail_in(err, st, "parameters from sender %u, item %llu", item->from,
                         (unsigned long long)item->number);
    exo_item_drop(&item);
    return st;
}

/* Takes all weights that have come, and waits for more if the next draw is beyond the quota.
 * CLOSED: no more will come, and the next draw may not be made. */
static exo_status
catch_up(struct maker *m, exo_port *port, exo_err *err)
{
    exo_status st = EXO_OK;
    if (!port) {
        m->quota = UINT64_MAX;
        return EXO_OK;
    }
    while (st == EXO_OK && exo_port_pending(port) > 0)
        st = receive(m, port, 0, err);
    if (st == EXO_TIMEOUT || st == EXO_CLOSED)
        st = EXO_OK;
    while (st == EXO_OK && m->draw >= m->quota)
        st = receive(m, port, EXO_PORT_TIMEOUT, err);
    return st;
}

/* --- A run ------------------------------------------------------------------------------------ */

static uint64_t
draws_below(const struct maker *m, uint64_t end, uint64_t stride)
{
    return m->draw < end ? (end - m->draw - 1) / stride + 1 : 0;
}

/* Sends the items of a batch (count); drops those that cannot be sent. */
static exo_status
send_all(struct maker *m, exo_port *port, size_t count, exo_err *err)
{
    exo_status st = EXO_OK;
    for (size_t i = 0; i < count; i++) {
        if (st == EXO_OK)
            st = exo_port_send(port, &m->batch[i], EXO_PORT_TIMEOUT, err);
        m->items += st == EXO_OK;
        exo_item_drop(&m->batch[i]);
    }
    return st;
}

static void
report(struct maker *m, size_t count)
{
    exo_experience e;
    double score = 0, answers = 0;
    for (size_t i = 0; i < count; i++) {
        exo_experience_view(&e, m->batch[i], NULL);
        for (size_t a = 0; a < e.answers; a++)
            score += e.scores[a];
        answers += (double)e.answers;
        m->tokens += e.tokens_length;
    }
    exo_meter_set(m->meters[SCORE], score / answers);
    exo_meter_set(m->meters[VERSION], (double)exo_experience_source_version(m->source));
    exo_meter_count(m->meters[TOKENS], m->tokens);
}

static exo_status
make_batch(struct maker *m, exo_graph_actor *actor, uint64_t total, exo_err *err)
{
    uint64_t stride = exo_graph_count(actor);
    uint64_t left = draws_below(m, total, stride), most = exo_experience_source_batch(m->source);
    uint64_t may = draws_below(m, m->quota, stride);
    size_t count = (size_t)(left < may ? left : may);
    count = count < most ? count : (size_t)most;
    exo_graph_phase(actor, "make");
    exo_status st = exo_experience_source_make(m->source, exo_graph_index(actor), m->draw, stride,
                                               count, m->batch, err);
    if (st != EXO_OK)
        return st;
    report(m, count);
    m->draw += count * stride;
    st = send_all(m, exo_graph_output(actor, "experience"), count, err);
    exo_meter_count(m->meters[ITEMS], m->items);
    return st;
}

static exo_status
maker_run(void *self, exo_graph_actor *actor, exo_err *err)
{
    struct maker *m = self;
    exo_port *parameters = exo_graph_input(actor, "parameters");
    uint64_t total = m->epochs ? m->epochs * exo_experience_source_prompts(m->source) : UINT64_MAX;
    exo_status st =
        exo_meter_declare_all(m->meters, exo_graph_meters(actor), meter_classes, NUM_METERS, err);
    if (st == EXO_OK)
        st = exo_experience_source_start(m->source, exo_graph_seed(actor), err);
    m->draw = exo_graph_index(actor);
    while (st == EXO_OK && m->draw < total && !exo_graph_cancelled(actor)) {
        st = catch_up(m, parameters, err);
        if (st == EXO_OK)
            st = make_batch(m, actor, total, err);
    }
    return st == EXO_CLOSED ? EXO_OK : st;
}

static const exo_graph_port maker_ports[] = {
    {.name = "experience", .type = "experience", .direction = EXO_PORT_OUTPUT, .required = true},
    {.name = "parameters", .type = "parameters", .direction = EXO_PORT_INPUT, .blocking = true},
};
static const char *const maker_phases[] = {"make", NULL};

const exo_graph_class exo_experience_maker_class = {
    .name = "experience_maker",
    .help = "generates answers to prompts and scores them; options model, prompts, reward, "
            "answers, batch, generate, epochs",
    .ports = maker_ports,
    .num_ports = sizeof maker_ports / sizeof *maker_ports,
    .phases = maker_phases,
    .state_size = sizeof(struct maker),
    .init = maker_init,
    .run = maker_run,
    .release = maker_release,
};
