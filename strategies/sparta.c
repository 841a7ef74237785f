/* SPARTA (sparse parameter averaging, OpenReview stFPf3gzq1): after the inner step, a small part of
 * the coordinates is replaced by its mean over the nodes. The choice of coordinates is a function
 * of (seed, round), which every node computes by itself (select.h).
 *
 * With a delay, a round averages the values of `delay` steps ago, so that a real network has this
 * time to carry them. The mean overwrites the changes of a coordinate since then. The values wait
 * in packed form, one slot for each round in flight.
 *
 * Traffic of a node: 2 p Psi (N - 1) / N elements in a round, with a round every `interval` steps.
 * The selector `random` chooses p Psi coordinates on average.
 *
 * Owner of the state: the node's compute lane. Read next: node.c.
 */
#include "strategies/builtin.h"

#include <math.h>

struct sparta {
    double p;
    uint64_t interval, delay; /* steps */
    exo_select_kind kind;
    exo_selector *selector;
    /* most rounds in flight: those of the last `delay` steps, and the current one */
    uint64_t num_slots;
    size_t capacity; /* most coordinates of a slot */
    exo_array slots; /* (num_slots, capacity) */
    exo_meter *rounds_done, *exchanged;
};

static const exo_meter_class exchanged = {
    .name = "exchanged",
    .unit = "parameters",
    .help = "coordinates that were replaced by their mean over the nodes"};

static exo_status
sparta_init(void *self, exo_config *config, exo_err *err)
{
    static const char *const kinds[] = {
        [EXO_SELECT_RANDOM] = "random",
        [EXO_SELECT_SHUFFLED_SEQUENTIAL] = "shuffled_sequential",
        [EXO_SELECT_PARTITIONED] = "partitioned",
        NULL,
    };
    enum {
        MAX_DELAY = 1 << 20
    };
    struct sparta *s = self;
    size_t kind = EXO_SELECT_RANDOM;
    exo_status st = exo_config_double(config, "p", 0.005, 0, 1, &s->p, err);
    if (st == EXO_OK && !(s->p > 0))
        st = exo_config_fail(config, err, "p must be greater than 0 and at most 1");
    if (st == EXO_OK)
        st = exo_config_u64(config, "interval", 1, 1, UINT64_MAX, &s->interval, err);
    if (st == EXO_OK)
        st = exo_config_u64(config, "delay", 0, 0, MAX_DELAY, &s->delay, err);
    if (st == EXO_OK)
        st = exo_config_choice(config, "selector", kind, kinds, &kind, err);
    s->kind = (exo_select_kind)kind;
    return st;
}

static exo_status
sparta_start(void *self, exo_node *node, exo_err *err)
{
    struct sparta *s = self;
    exo_status st = exo_rounds_meter(&s->rounds_done, node, err);
    if (st == EXO_OK)
        st = exo_meter_declare(&s->exchanged, node->meters, &exchanged, err);
    if (st == EXO_OK)
        st = exo_selector_new(&s->selector, s->kind, s->p, node->numel, node->seed, err);
    if (st != EXO_OK)
        return st;
    /* Twenty standard deviations above the mean: a random round exceeds it once in e^200 rounds
     * (Bernstein's inequality). */
    double mean = s->p * (double)node->numel;
    double room = ceil(mean + 20.0 * sqrt(mean * (1.0 - s->p)) + 100.0);
    s->capacity = room < (double)node->numel ? (size_t)room : node->numel;
    s->num_slots = s->delay / s->interval + 1;
    st = exo_array_init(&s->slots, node->params.device, EXO_F32, s->num_slots * s->capacity, err);
    return st == EXO_OK ? EXO_OK
                        : exo_fail_in(err, st, "sparta: %llu rounds of %zu values",
                                      (unsigned long long)s->num_slots, s->capacity);
}

/* The waiting `n` values of a round. */
static exo_array
slot_of(const struct sparta *s, uint64_t round, size_t n)
{
    return exo_array_part(s->slots, (round % s->num_slots) * s->capacity, n);
}

/* Gives the coordinates of a round on the node's device; the caller releases *out. */
static exo_status
select_round(struct sparta *s, const exo_node *node, uint64_t round, exo_array *out, exo_err *err)
{
    const uint32_t *index = NULL;
    size_t n = exo_selector_round(s->selector, round, &index);
    if (n > s->capacity)
        return exo_fail(err, EXO_FAILED,
                        "sparta: round %llu selects %zu coordinates, room is for %zu",
                        (unsigned long long)round, n, s->capacity);
    return exo_array_import(out, node->params.device, EXO_I32, index, n, err);
}

/* Begins a round: copies this node's values of its coordinates to a slot. */
static exo_status
begin_round(struct sparta *s, const exo_node *node, uint64_t round, exo_err *err)
{
    exo_array index = {0};
    exo_status st = select_round(s, node, round, &index, err);
    if (st == EXO_OK)
        exo_vec_gather(slot_of(s, round, index.count), node->params, index);
    exo_array_release(&index);
    return st;
}

/* Ends a round: averages its slot over the nodes and writes the means to the parameters. */
static exo_status
end_round(struct sparta *s, exo_node *node, uint64_t round, exo_err *err)
{
    exo_array index = {0};
    exo_status st = select_round(s, node, round, &index, err);
    if (st == EXO_OK && index.count > 0)
        st = exo_all_reduce(node->group, slot_of(s, round, index.count), EXO_MEAN, err);
    if (st == EXO_OK)
        exo_vec_scatter(node->params, index, slot_of(s, round, index.count));
    exo_meter_add(s->rounds_done, st == EXO_OK);
    exo_meter_add(s->exchanged, st == EXO_OK ? index.count : 0);
    exo_array_release(&index);
    return st;
}

static exo_status
sparta_step(void *self, exo_node *node, exo_err *err)
{
    struct sparta *s = self;
    uint64_t done = node->step + 1;
    exo_status st = exo_node_inner_step(node, err);
    if (st == EXO_OK && done % s->interval == 0)
        st = begin_round(s, node, done / s->interval - 1, err);
    if (st == EXO_OK && done > s->delay && (done - s->delay) % s->interval == 0)
        st = end_round(s, node, (done - s->delay) / s->interval - 1, err);
    return st;
}

static void
sparta_state(void *self, exo_state *state)
{
    struct sparta *s = self;
    if (s->delay > 0)
        exo_state_add_array(state, "sparta.in_flight", s->slots);
}

static void
sparta_release(void *self)
{
    struct sparta *s = self;
    exo_selector_free(&s->selector);
    exo_array_release(&s->slots);
}

/* Indices are never sent. The other selectors go through equal parts in turn: Psi / parts
 * coordinates in a round, exactly so over a whole cycle. */
static size_t
sparta_edges(const void *self, size_t numel, uint32_t num_nodes,
             exo_strategy_edge out[EXO_STRATEGY_MAX_EDGES])
{
    const struct sparta *s = self;
    (void)num_nodes;
    double all = (double)numel, parts = fmin(ceil(1.0 / s->p), all);
    out[0] = (exo_strategy_edge){.carries = "parameters",
                                 .route = "all_reduce",
                                 .elements = s->kind == EXO_SELECT_RANDOM ? s->p * all
                                                                          : all / fmax(parts, 1),
                                 .every = s->interval};
    return 1;
}

const exo_strategy_class exo_sparta_class = {
    .name = "sparta",
    .help = "average a small random part of the parameters after every step",
    .state_size = sizeof(struct sparta),
    .init = sparta_init,
    .start = sparta_start,
    .step = sparta_step,
    .steps_alone = exo_always_steps_alone,
    .state = sparta_state,
    .release = sparta_release,
    .edges = sparta_edges,
};
