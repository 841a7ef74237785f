/* Asynchronous DiLoCo (Liu et al., 2024, arXiv:2401.09135): nobody waits for the slowest node. The
 * outer parameters are on a server (server.h). Each node takes H steps alone, sends its change, and
 * continues from what the server then has. The server applies a change when it arrives:
 *
 *     delta       = theta_start - theta                      on the node
 *     theta_outer = theta_outer - lr delta / n               on the server, at every change
 *     m           = mu m + (sum of the last n deltas) / n    at every n-th change only
 *     theta_outer = theta_outer - lr (1 - c n + c) mu m      at every n-th change
 *     theta_outer = theta_outer - lr c mu m                  at the others
 *     theta       = theta_start = theta_outer                on the node
 *
 * This is Nesterov momentum, delayed: changes that were made from old parameters would otherwise
 * move the momentum many times in one direction. With n = 1 and one node it is diloco.
 *
 * With `dynamic`, a node of speed v takes floor(H v / v_max) steps in its next round, at least one.
 * So slow nodes send as often as fast ones, and their changes are less old. Speeds are steps per
 * second of computation, on the run's clock; the quickest step of a round counts, because the others
 * may have an evaluation before them, or a failure of the host.
 *
 * Traffic of a node in a round: Psi elements to the server, and Psi back.
 *
 * A change is known by the steps that its node had done. A resumed run, and a node whose answer was lost
 * with another node, may send one again that the server has applied: the server then answers without
 * applying it.
 *
 * In an elastic run (docs/elastic.md) an answer also has the table of the changes that the server has
 * applied, 2 elements for each node. If the server is lost, the node with the newest outer parameters
 * has the next one, which begins with them and this table. The momentum is lost.
 *
 * The order in which changes arrive decides the bits. On the virtual clock with a declared cost of
 * a step it is always the same; on the real clock it is not.
 *
 * Owner of the state: the node's compute lane; of the server's, the server. Read next: diloco.c,
 * exogym/server.h.
 */
#include "strategies/builtin.h"

#include <math.h>
#include <string.h>

#include <exogym/memory.h>
#include <exogym/server.h>

#include "base/config_edit.h"
#include "strategies/exchange.h"

/* The words of messages. */
enum {
    STEPS = 0,     /* from the server: steps of the next round */
    VERSION = 1,   /* changes that the outer parameters have had */
    STALENESS = 2, /* from the server: changes of others since the begin of the node's round */
    CHANGE = 2,    /* to the server: steps that the node has done */
    SECONDS = 0,   /* a figure, to the server: of a step */
};

static const exo_time UNKNOWN = -1;

struct options {
    uint64_t interval; /* H */
    uint64_t every;    /* n; 0: the number of nodes */
    double c;
    bool dynamic;
    float lr;
    double momentum;
};

/* --- The server ------------------------------------------------------------------------------- */

struct outer {
    struct options options;
    uint32_t num_nodes;
    size_t numel; /* Psi */
    /* theta and `table` are one array: an answer is the former, or in an elastic run both. table: the
     * bits of `merged`, 2 elements for each node. */
    exo_array whole, theta, momentum, sum; /* (Psi), on the host */
    bool elastic;
    uint64_t changes;
    double *speeds;   /* (num_nodes) steps per second; 0: unknown */
    uint64_t *merged; /* (num_nodes) CHANGE of each node's last one */
};

/* What the member that has the server gives to outer_open: parameters that have had `version` changes,
 * which are those of `merged`. */
struct opening {
    const struct options *options;
    exo_array params;
    uint64_t version;
    const uint64_t *merged; /* (num_members) */
    bool elastic;
};

static void
outer_close(void *state)
{
    struct outer *o = state;
    exo_array_release(&o->whole);
    exo_array_release(&o->momentum);
    exo_array_release(&o->sum);
    exo_free(o->speeds);
    exo_free(o->merged);
    exo_free(o);
}

static exo_status
outer_open(void **state, const void *opts, uint32_t num_members, exo_err *err)
{
    const struct opening *opening = opts;
    const size_t numel = opening->params.count;
    exo_device *cpu = exo_device_cpu();
    struct outer *o = exo_calloc(1, sizeof *o);
    if (!o)
        return exo_fail(err, EXO_NOMEM, "async_diloco: no memory for the server");
    *o = (struct outer){.options = *opening->options,
                        .num_nodes = num_members,
                        .numel = numel,
                        .elastic = opening->elastic,
                        .changes = opening->version,
                        .speeds = exo_calloc(num_members, sizeof *o->speeds),
                        .merged = exo_calloc(num_members, sizeof *o->merged)};
    if (o->options.every == 0)
        o->options.every = num_members;
    exo_status st = o->speeds && o->merged
                        ? exo_array_init(&o->whole, cpu, EXO_F32, numel + 2 * num_members, err)
                        : exo_fail(err, EXO_NOMEM, "async_diloco: no memory for the server");
    if (st == EXO_OK)
        st = exo_array_init(&o->momentum, cpu, EXO_F32, numel, err);
    if (st == EXO_OK)
        st = exo_array_init(&o->sum, cpu, EXO_F32, numel, err);
    if (st == EXO_OK) {
        o->theta = exo_array_part(o->whole, 0, numel);
        memcpy(o->merged, opening->merged, num_members * sizeof *o->merged);
        st = exo_array_read(opening->params, o->theta.data, err);
    }
    if (st == EXO_OK)
        *state = o;
    else
        outer_close(o);
    return st;
}

static void
apply(struct outer *o, exo_array delta)
{
    const struct options *p = &o->options;
    const double n = (double)p->every, mu = p->momentum;
    double part = p->c;
    exo_vec_axpy(o->theta, (float)(-(double)p->lr / n), delta);
    exo_vec_add(o->sum, o->sum, delta);
    if (++o->changes % p->every == 0) {
        part = 1 - p->c * n + p->c;
        exo_vec_scale(o->momentum, (float)mu);
        exo_vec_axpy(o->momentum, (float)(1 / n), o->sum);
        exo_vec_fill(o->sum, 0);
    }
    if (part * mu > 0)
        exo_vec_axpy(o->theta, (float)(-(double)p->lr * part * mu), o->momentum);
}

/* The steps of the next round of a node, which has just reported its speed. */
static uint64_t
next_round(const struct outer *o, uint32_t node)
{
    double most = 0;
    for (uint32_t i = 0; i < o->num_nodes; i++)
        most = fmax(most, o->speeds[i]);
    if (!o->options.dynamic || !(o->speeds[node] > 0))
        return o->options.interval;
    double steps = floor((double)o->options.interval * (o->speeds[node] / most));
    return steps >= 1 ? (uint64_t)steps : 1;
}

static exo_status
outer_handle(void *state, exo_server *server, uint32_t from, const exo_server_message *message,
             exo_time now, exo_err *err)
{
    struct outer *o = state;
    uint64_t staleness = o->changes - message->numbers[VERSION];
    (void)now;
    if (message->figures[SECONDS] > 0)
        o->speeds[from] = 1 / message->figures[SECONDS];
    if (message->numbers[CHANGE] > o->merged[from]) { /* else a resumed run repeats it */
        o->merged[from] = message->numbers[CHANGE];
        apply(o, message->data);
    }
    memcpy((float *)o->whole.data + o->numel, o->merged, o->num_nodes * sizeof *o->merged);
    const exo_server_message answer = {
        .numbers = {[STEPS] = next_round(o, from), [VERSION] = o->changes, [STALENESS] = staleness},
        .data = o->elastic ? o->whole : o->theta};
    return exo_server_send(server, from, &answer, err);
}

/* Forgets absent nodes: their speeds, and the numbers of their changes, which begin anew. */
static void
outer_members(void *state, const uint32_t *ranks, uint32_t count)
{
    struct outer *o = state;
    for (uint32_t r = 0, at = 0; ranks && r < o->num_nodes; r++) {
        if (at < count && ranks[at] == r) {
            at++;
            continue;
        }
        o->speeds[r] = 0;
        o->merged[r] = 0;
    }
}

static void
outer_list(void *state, exo_state *list)
{
    struct outer *o = state;
    exo_state_prefix(list, "async_diloco");
    exo_state_add_array(list, "outer", o->theta);
    exo_state_add_array(list, "momentum", o->momentum);
    exo_state_add_array(list, "sum", o->sum);
    exo_state_add_u64(list, "changes", &o->changes);
    exo_state_add(list, "speeds", EXO_I64, o->speeds, o->num_nodes); /* their bits */
    exo_state_add(list, "merged", EXO_I64, o->merged, o->num_nodes);
    exo_state_prefix(list, NULL);
}

static const exo_server_class outer_class = {.name = "async_diloco",
                                             .open = outer_open,
                                             .handle = outer_handle,
                                             .close = outer_close,
                                             .list = outer_list,
                                             .members = outer_members};

/* --- The node --------------------------------------------------------------------------------- */

struct async_diloco {
    struct options options;
    exo_array start;   /* (Psi) theta_start; and the change, while it is sent */
    uint64_t steps;    /* of the present round */
    uint64_t done;     /* of them */
    uint64_t version;  /* of theta_start */
    exo_time since;    /* the end of the last step, on the communicator's clock; or UNKNOWN */
    exo_time quickest; /* step of the round; 0: none */
    uint64_t *merged;  /* (num_nodes) the changes that theta_start has, in an elastic run */
    uint32_t num_nodes;
    exo_meter *rounds, *staleness;
};

static exo_status
read_outer(struct options *o, exo_config *config, exo_err *err)
{
    const exo_optim_spec nesterov = exo_nesterov();
    exo_optim_spec spec = nesterov;
    exo_status st = exo_optim_spec_read(config, "outer_optimizer", &nesterov, &spec, err);
    o->lr = spec.lr;
    o->momentum = spec.momentum;
    bool fits = spec.kind == EXO_SGD && spec.weight_decay == 0 && spec.dampening == 0 &&
                (spec.nesterov || spec.momentum == 0);
    exo_optim_spec_release(&spec);
    if (st == EXO_OK && !fits)
        st = exo_config_fail(exo_config_get(config, "outer_optimizer"), err,
                             "outer_optimizer: async_diloco delays a Nesterov momentum: expected "
                             "{name: sgd, lr: 0.7, momentum: 0.9, nesterov: true}, without "
                             "weight_decay and dampening");
    return st;
}

static exo_status
async_init(void *self, exo_config *config, exo_err *err)
{
    struct options *o = &((struct async_diloco *)self)->options;
    exo_status st = exo_config_u64(config, "H", 100, 1, UINT64_MAX, &o->interval, err);
    if (st == EXO_OK)
        st = read_outer(o, config, err);
    if (st == EXO_OK)
        st = exo_config_u64(config, "momentum_every", 0, 0, UINT32_MAX, &o->every, err);
    if (st == EXO_OK)
        st = exo_config_double(config, "c", 0, 0, 1, &o->c, err);
    if (st == EXO_OK)
        st = exo_config_bool(config, "dynamic", true, &o->dynamic, err);
    return st;
}

static exo_status
async_check(const void *self, uint32_t num_nodes, exo_err *err)
{
    const struct options *o = &((const struct async_diloco *)self)->options;
    uint64_t every = o->every ? o->every : num_nodes;
    return o->c * (double)every <= 1
               ? EXO_OK
               : exo_fail(err, EXO_INVAL,
                          "async_diloco: c must be at most 1/momentum_every, 1/%llu, got %g",
                          (unsigned long long)every, o->c);
}

static exo_status
open_server(struct async_diloco *a, const exo_node *node, exo_err *err)
{
    void *outer = NULL;
    const struct opening opening = {.options = &a->options,
                                    .params = a->start,
                                    .version = a->version,
                                    .merged = a->merged,
                                    .elastic = node->elastic};
    return exo_group_serve(node->group, &outer_class, &opening, &outer, err);
}

static exo_status
async_start(void *self, exo_node *node, exo_err *err)
{
    static const exo_meter_class staleness = {
        .name = "staleness",
        .unit = "changes",
        .help = "changes by other nodes between the begin of the node's last round and its end",
        .kind = EXO_GAUGE};
    struct async_diloco *a = self;
    a->steps = a->options.interval;
    a->num_nodes = node->num_nodes;
    a->merged = exo_calloc(a->num_nodes, sizeof *a->merged);
    if (!a->merged)
        return exo_fail(err, EXO_NOMEM, "async_diloco: no memory for %u nodes", a->num_nodes);
    exo_status st = exo_rounds_meter(&a->rounds, node->meters, err);
    if (st == EXO_OK)
        st = exo_meter_declare(&a->staleness, node->meters, &staleness, err);
    if (st == EXO_OK)
        st = exo_array_init(&a->start, node->params.device, EXO_F32, node->numel, err);
    if (st != EXO_OK)
        return st;
    exo_vec_copy(a->start, node->params);
    st = open_server(a, node, err);
    if (st != EXO_OK)
        return st;
    a->since = exo_group_now(node->group);
    return EXO_OK;
}

/* Sends the round's change, and takes the outer parameters. */
static exo_status
exchange(struct async_diloco *a, exo_node *node, exo_err *err)
{
    exo_server_message answer;
    bool received;
    exo_vec_sub(a->start, a->start, node->params);
    const exo_server_message change = {
        .numbers = {[VERSION] = a->version, [CHANGE] = node->step + 1},
        .figures = {[SECONDS] = (double)a->quickest * 1e-9},
        .data = a->start};
    exo_status st = exo_group_send(node->group, &change, err);
    if (st == EXO_OK)
        st = exo_group_receive(node->group, true, &answer, &received, err);
    if (st != EXO_OK)
        return st;
    const float *table = (const float *)answer.data.data + node->numel;
    const size_t known = node->elastic ? 2 * a->num_nodes : 0; /* elements of the table */
    if (answer.data.count != node->numel + known) {
        exo_array_release(&answer.data);
        return exo_fail(err, EXO_FAILED, "async_diloco: the server answers to another model");
    }
    st = exo_array_write(node->params, answer.data.data, err);
    exo_vec_copy(a->start, node->params);
    if (known)
        memcpy(a->merged, table, a->num_nodes * sizeof *a->merged);
    a->steps = answer.numbers[STEPS];
    a->version = answer.numbers[VERSION];
    exo_meter_add(a->rounds, 1);
    exo_meter_set(a->staleness, (double)answer.numbers[STALENESS]);
    exo_array_release(&answer.data);
    return st;
}

static exo_status
async_step(void *self, exo_node *node, exo_err *err)
{
    struct async_diloco *a = self;
    exo_status st = exo_node_inner_step(node, err);
    const exo_time now = exo_group_now(node->group), took = now - a->since;
    if (a->since != UNKNOWN)
        a->quickest = a->quickest == 0 || took < a->quickest ? took : a->quickest;
    a->since = now;
    if (st != EXO_OK || ++a->done < a->steps)
        return st;
    st = exchange(a, node, err);
    a->done = 0;
    a->quickest = 0;
    a->since = exo_group_now(node->group);
    return st;
}

static bool
async_elastic(const void *self)
{
    (void)self;
    return true;
}

static bool
async_meets(const void *self, uint64_t step)
{
    const struct async_diloco *a = self;
    (void)step;
    return a->done + 1 >= a->steps;
}

/* A change that was not answered is sent again: the step in which it was sent is repeated. A node that
 * has joined begins a round, so that the steps of the other node count once. */
static exo_status
async_regroup(void *self, exo_node *node, const uint32_t *ranks, bool joined, exo_err *err)
{
    struct async_diloco *a = self;
    if (joined) {
        exo_vec_copy(node->params, a->start);
        a->steps = a->options.interval;
        a->done = 0;
        a->quickest = 0;
    }
    for (uint32_t r = 0, at = 0; r < a->num_nodes; r++)
        if (at < node->num_nodes && ranks[at] == r)
            at++;
        else
            a->merged[r] = 0;
    a->since = UNKNOWN; /* perhaps a part of the step is repeated, which takes no time */
    return open_server(a, node, err);
}

static uint64_t
async_version(const void *self)
{
    return ((const struct async_diloco *)self)->version;
}

static void
async_state(void *self, exo_state *state)
{
    struct async_diloco *a = self;
    exo_state_add_array(state, "async_diloco.start", a->start);
    exo_state_add_u64(state, "async_diloco.steps", &a->steps);
    exo_state_add_u64(state, "async_diloco.done", &a->done);
    exo_state_add_u64(state, "async_diloco.version", &a->version);
    exo_state_add(state, "async_diloco.quickest", EXO_I64, &a->quickest, 1);
    exo_state_add(state, "async_diloco.merged", EXO_I64, a->merged, a->num_nodes);
}

static void
async_release(void *self)
{
    struct async_diloco *a = self;
    exo_array_release(&a->start);
    exo_free(a->merged);
}

const exo_strategy_class exo_async_diloco_class = {
    .name = "async_diloco",
    .help = "H local steps, then a change of the outer parameters on a server; nobody waits",
    .state_size = sizeof(struct async_diloco),
    .init = async_init,
    .check = async_check,
    .start = async_start,
    .step = async_step,
    .steps_alone = exo_always_steps_alone,
    .elastic = async_elastic,
    .meets = async_meets,
    .apart = true,
    .regroup = async_regroup,
    .version = async_version,
    .state = async_state,
    .release = async_release,
};
