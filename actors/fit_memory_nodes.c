/* Measures the memory of optimizers and strategies: see fit_memory_nodes.h. They are started with models of
 * a few million parameters, which stand in for the job's. Read next: fit_memory.c. */
#include "actors/fit_memory_nodes.h"

#include <malloc.h>
#include <stdio.h>

#include <exogym/memory.h>
#include <exogym/parallel.h>

#include "actors/fit_opts.h"

enum {
    /* Parameters of the smaller node with which a strategy is measured. Their arrays fill whole
     * pages, also huge ones. */
    FEW = 1 << 21,
    WIDTH = 1024, /* columns of its matrices */
    TALL = 32,    /* columns of a matrix of another shape, whose number of rows is a prime: */
    TALL_ROWS = 65521,
    PAIRS = 64 /* of a matrix and a vector, where each shard needs some of both */
};

/* The size of a stand-in. */
struct size {
    size_t numel, units;
    bool tall; /* a matrix of TALL columns instead of WIDTH */
};

static size_t
allocated(void)
{
    struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd;
}

/* --- Models that stand in --------------------------------------------------------------------- */

/* A model that is never computed: a vector for each of its units, which are equally large. */
static exo_status
build_units(void *self, exo_builder *builder, exo_config *config, exo_err *err)
{
    uint64_t numel = 0, units = 0;
    (void)self;
    exo_status st = exo_config_u64(config, "numel", 1, 1, UINT64_MAX, &numel, err);
    if (st == EXO_OK)
        st = exo_config_u64(config, "units", 1, 1, UINT32_MAX, &units, err);
    for (uint64_t u = 0; st == EXO_OK && u < units; u++) {
        char name[24];
        size_t first, count;
        snprintf(name, sizeof name, "%llu", (unsigned long long)u);
        exo_shard((size_t)numel, (uint32_t)units, (uint32_t)u, &first, &count);
        exo_build_unit(builder, name);
        exo_build_param(builder, name, 1, &count, exo_init_constant(0));
    }
    return st == EXO_OK ? exo_build_status(builder, err) : st;
}

static void
compute_nothing(const void *self, exo_tape *tape, const exo_batch *batch, exo_outputs *outputs)
{
    (void)self, (void)tape, (void)batch, (void)outputs;
}

static exo_status
make_units(exo_model **out, size_t numel, size_t units, exo_err *err)
{
    static const char *const no_outputs[] = {NULL};
    static const exo_model_class units_class = {
        .name = "units", .build = build_units, .outputs = no_outputs, .forward = compute_nothing};
    char text[64];
    exo_config_doc *doc = NULL;
    snprintf(text, sizeof text, "{numel: %zu, units: %zu}", numel, units);
    exo_status st = exo_config_parse(&doc, "units", text, err);
    if (st == EXO_OK)
        st = exo_model_new(out, &units_class, exo_config_root(doc), err);
    exo_config_free(&doc);
    return st;
}

/* A model of another number of parameters, which the shapes and groups of the job's do not fit: a
 * matrix of WIDTH columns and a vector, in equal units. With the job's number it has the job's
 * shapes, on which messages may depend. */
struct stand_in {
    exo_param_info made[2 * PAIRS];
    const exo_param_info *infos;
    size_t num_infos;
    exo_unit_info *units; /* (count) owned */
    size_t count;
    /* If the job's model is a part: the same as models with units of these names, and a whole one that
     * is as many times larger as the job's. Else NULL. */
    exo_model *own, *whole;
    exo_node_part part; /* of own and whole */
};

static void
free_stand_in(struct stand_in *s)
{
    exo_free(s->units);
    exo_model_drop(&s->own);
    exo_model_drop(&s->whole);
}

/* A matrix with the share `matrices` of the parameters, and a vector; below 1, PAIRS of these. */
static void
make_infos(struct stand_in *s, const struct size *size, double matrices)
{
    const size_t pairs = matrices < 1 ? PAIRS : 1, width = size->tall ? TALL : WIDTH;
    for (size_t i = 0; i < pairs; i++) {
        size_t first, length;
        exo_shard(size->numel, (uint32_t)pairs, (uint32_t)i, &first, &length);
        const size_t most = (size_t)(matrices * (double)length) / width;
        const size_t rows = size->tall ? TALL_ROWS : most, cut = rows * width;
        s->made[2 * i] = (exo_param_info){
            .name = "matrix", .num_dims = 2, .dims = {rows, width}, .offset = first, .numel = cut};
        s->made[2 * i + 1] = (exo_param_info){.name = "vector",
                                              .num_dims = 1,
                                              .dims = {length - cut},
                                              .offset = first + cut,
                                              .numel = length - cut};
    }
    s->infos = s->made;
    s->num_infos = 2 * pairs;
}

static exo_status
make_stand_in(struct stand_in *out, const exo_fit_nodes *nodes, const struct size *size,
              double matrices, exo_err *err)
{
    const exo_model *whole = nodes->whole;
    const size_t numel = size->numel, num_units = size->units;
    *out = (struct stand_in){.count = num_units};
    if (numel == exo_model_numel(nodes->model) && matrices >= 1) {
        out->infos = exo_model_infos(nodes->model);
        out->num_infos = exo_model_num_infos(nodes->model);
    } else
        make_infos(out, size, matrices);
    out->units = exo_calloc(num_units, sizeof *out->units);
    if (!out->units)
        return exo_fail(err, EXO_NOMEM, "no memory for %zu units", num_units);
    for (size_t u = 0; u < num_units; u++) {
        out->units[u].name = "unit";
        exo_shard(numel, (uint32_t)num_units, (uint32_t)u, &out->units[u].first,
                  &out->units[u].count);
    }
    if (!whole)
        return EXO_OK;
    const double times = (double)exo_model_numel(whole) / (double)exo_model_numel(nodes->model);
    exo_status st = make_units(&out->own, numel, num_units, err);
    if (st == EXO_OK)
        st = make_units(&out->whole, (size_t)((double)numel * times), exo_model_num_units(whole),
                        err);
    out->part = (exo_node_part){.own = out->own, .whole = out->whole};
    return st;
}

/* --- Nodes ------------------------------------------------------------------------------------ */

/* Starts a node's strategy. Errors: those of exo_strategy_new and of its start. */
static exo_status
start_node(exo_node *node, const exo_fit_nodes *subject, exo_comm *comm, exo_strategy **out,
           exo_err *err)
{
    exo_status st = exo_group_open(&node->group, comm, node->rank, "node", err);
    if (st == EXO_OK)
        /* The other members do nothing: a strategy that calls them at its start fails. */
        exo_group_set_timeout(node->group, EXO_MS);
    if (st == EXO_OK)
        st = exo_strategy_new(out, subject->strategy, subject->options, err);
    return st == EXO_OK ? exo_strategy_start(*out, node, err) : st;
}

/* What muon needs to be known of its model. */
struct muon {
    uint64_t bytes;  /* of the optimizer of a node with a whole copy; 0: another rule, or shards */
    double matrices; /* of shards: the part of the parameters that muon steps as matrices; else 1 */
};

static void
look_at_muon(const exo_node *node, const exo_model *model, struct muon *muon)
{
    const size_t numel = exo_model_numel(model);
    if (node->inner.kind != EXO_MUON)
        return;
    if (node->optim)
        muon->bytes = exo_optim_model_bytes(&node->inner, model);
    else
        muon->matrices = (double)exo_optim_matrices(&node->inner, exo_model_infos(model),
                                                    exo_model_num_infos(model), 0, numel) /
                         (double)numel;
}

/* Measures the memory of optimizers and strategies of the first `count` nodes, 1 or 2, of this size. Of
 * their parameters the share muon->matrices is in matrices. muon of a whole copy is left out, because its
 * memory depends on the model's shapes. */
static exo_status
measure_nodes(const exo_fit_nodes *subject, const struct size *size, uint32_t count, size_t *bytes,
              struct muon *muon, exo_err *err)
{
    const exo_fit_opts *opts = subject->opts;
    const size_t numel = size->numel;
    exo_comm *comm = NULL;
    exo_strategy *strategies[2] = {NULL};
    exo_array params = {0}, grads = {0};
    struct stand_in stands;
    exo_status st = make_stand_in(&stands, subject, size, muon->matrices, err);
    if (st == EXO_OK)
        st = exo_array_init(&params, exo_device_cpu(), EXO_F32, numel, err);
    if (st == EXO_OK)
        st = exo_array_init(&grads, exo_device_cpu(), EXO_F32, numel, err);
    if (st == EXO_OK)
        st = exo_comm_local(&comm, opts->num_nodes, exo_clock_real(), err);
    exo_node nodes[2] = {{.num_nodes = opts->num_nodes,
                          .max_steps = opts->max_steps ? opts->max_steps : 1,
                          .seed = opts->seed,
                          .numel = numel,
                          .params = params,
                          .grads = grads,
                          .infos = stands.infos,
                          .num_infos = stands.num_infos,
                          .units = stands.units,
                          .num_units = stands.count,
                          .part = stands.whole ? &stands.part : NULL}};
    nodes[1] = nodes[0];
    nodes[1].rank = 1;
    size_t before = allocated();
    *muon = (struct muon){.matrices = 1};
    for (uint32_t r = 0; st == EXO_OK && r < count; r++) {
        st = start_node(&nodes[r], subject, comm, &strategies[r], err);
        if (st == EXO_OK)
            look_at_muon(&nodes[r], subject->model, muon);
        if (st == EXO_OK && nodes[r].inner.kind == EXO_MUON)
            exo_optim_free(&nodes[r].optim);
    }
    size_t after = allocated();
    *bytes = after > before ? after - before : 0;
    for (uint32_t r = 0; r < count; r++) {
        exo_optim_free(&nodes[r].optim);
        if (strategies[r])
            exo_strategy_leave(strategies[r]);
        exo_strategy_free(&strategies[r]);
        exo_group_close(&nodes[r].group);
    }
    exo_comm_drop(&comm);
    exo_array_release(&params);
    exo_array_release(&grads);
    free_stand_in(&stands);
    return st;
}

/* The elements that the strategy exchanges with parameters of these shapes; 0: unknown. */
static exo_status
count_exchanged(const exo_fit_nodes *nodes, const exo_param_info *infos, size_t num_infos,
                size_t numel, double *out, exo_err *err)
{
    exo_strategy *strategy = NULL;
    exo_strategy_edge edges[EXO_STRATEGY_MAX_EDGES];
    size_t count = 0;
    exo_status st = exo_strategy_new(&strategy, nodes->strategy, nodes->options, err);
    if (st == EXO_OK)
        exo_strategy_edges(strategy, infos, num_infos, numel, nodes->opts->num_nodes, edges,
                           &count);
    *out = 0;
    for (size_t i = 0; i < count; i++)
        *out += edges[i].elements;
    exo_strategy_free(&strategy);
    return st;
}

static exo_status
count_stand_in(const exo_fit_nodes *nodes, const struct size *size, double *out, exo_err *err)
{
    struct stand_in s = {.count = 0};
    make_infos(&s, size, 1);
    return count_exchanged(nodes, s.infos, s.num_infos, size->numel, out, err);
}

/* Adds to *bytes, which is right for the shapes of the stand-ins, what the shapes of the job's model change.
 * Messages may depend on them, and grow with the elements that are exchanged: those of demo have more of a
 * matrix whose number of rows is a prime. few: the bytes of FEW parameters. */
static exo_status
add_shapes(const exo_fit_nodes *nodes, uint32_t count, size_t few, uint64_t *bytes, exo_err *err)
{
    const exo_model *model = nodes->model;
    const size_t numel = exo_model_numel(model), units = exo_model_num_units(model);
    const struct size size = {.numel = FEW, .units = units},
                      two = {.numel = 2 * FEW, .units = units},
                      other = {.numel = FEW, .units = units, .tall = true};
    double sent = 0, twice = 0, tall = 0, own = 0;
    struct muon muon = {.matrices = 1};
    size_t measured = 0;
    exo_status st = count_stand_in(nodes, &size, &sent, err);
    if (st == EXO_OK)
        st = count_stand_in(nodes, &two, &twice, err);
    if (st == EXO_OK)
        st = count_stand_in(nodes, &other, &tall, err);
    if (st == EXO_OK)
        st = count_exchanged(nodes, exo_model_infos(model), exo_model_num_infos(model), numel, &own,
                             err);
    if (st != EXO_OK || !(tall > 1.01 * sent))
        return st; /* they do not depend on shapes */
    st = measure_nodes(nodes, &other, count, &measured, &muon, err);
    if (st != EXO_OK || measured <= few)
        return st;
    const double each = (double)(measured - few) / (tall - sent),
                 expected = sent + (twice - sent) / FEW * (double)(numel - FEW),
                 more = each * (own - expected);
    *bytes = (double)*bytes + more > 0 ? (uint64_t)((double)*bytes + more) : 0;
    return EXO_OK;
}

/* The memory grows linearly with the parameters, so two measurements give its growth. */
static exo_status
plan_nodes(const exo_fit_nodes *nodes, uint32_t count, uint64_t *bytes, exo_err *err)
{
    struct muon muon = {.matrices = 1};
    const size_t numel = exo_model_numel(nodes->model), units = exo_model_num_units(nodes->model),
                 small = numel < 2 * FEW ? numel : FEW;
    size_t few = 0, twice = 0;
    /* The allocator serves blocks differently up to the largest one that it has taken back, and counts
     * what aligns the others. So the first measurement has the largest blocks, and does not count. */
    const struct size most = {.numel = small == numel ? 2 * small : 3 * FEW, .units = units},
                      one = {.numel = small, .units = units},
                      two = {.numel = 2 * FEW, .units = units};
    exo_status st = measure_nodes(nodes, &most, count, &few, &muon, err);
    if (st == EXO_OK)
        st = measure_nodes(nodes, &one, count, &few, &muon, err);
    *bytes = few + count * muon.bytes;
    if (st != EXO_OK || small == numel)
        return st;
    st = measure_nodes(nodes, &two, count, &twice, &muon, err);
    double each = twice > few ? (double)(twice - few) / FEW : 0;
    *bytes = (uint64_t)((double)few + each * (double)(numel - FEW));
    if (st == EXO_OK)
        st = add_shapes(nodes, count, few, bytes, err);
    *bytes += count * muon.bytes;
    return st;
}

/* The same for nodes that keep parts of units. They have arrays for each unit, and what the allocator
 * adds to an array to align it would count as growth, so it is measured with one unit. The first
 * measurement also finds which share of the parameters muon steps as matrices. */
static exo_status
plan_parts(const exo_fit_nodes *nodes, uint64_t *bytes, exo_err *err)
{
    struct muon muon = {.matrices = 1};
    const struct size most = {.numel = 5 * FEW, .units = 1}, one = {.numel = FEW, .units = 1},
                      four = {.numel = 4 * FEW, .units = 1};
    size_t few = 0, many = 0;
    exo_status st = measure_nodes(nodes, &most, 1, &many, &muon, err);
    if (st == EXO_OK)
        st = measure_nodes(nodes, &one, 1, &few, &muon, err);
    if (st == EXO_OK)
        st = measure_nodes(nodes, &four, 1, &many, &muon, err);
    double each = many > few ? (double)(many - few) / (3 * FEW) : 0;
    *bytes = nodes->opts->num_nodes * (uint64_t)(each * (double)exo_model_numel(nodes->model));
    return st;
}

/* The first node may have more than the others: the strategy's server, and what all of them have in
 * common. */
exo_status
exo_fit_memory_nodes(const exo_fit_nodes *nodes, bool by_units, uint64_t *bytes, uint64_t *alone,
                     exo_err *err)
{
    const uint32_t num_nodes = nodes->opts->num_nodes;
    uint64_t first = 0, both = 0;
    *alone = 0;
    if (by_units)
        return plan_parts(nodes, bytes, err);
    exo_status st = plan_nodes(nodes, 1, &first, err);
    if (st == EXO_OK && num_nodes > 1)
        st = plan_nodes(nodes, 2, &both, err);
    *bytes = first;
    if (both > first) {
        *bytes += (num_nodes - 1) * (both - first);
        *alone = first > *bytes / num_nodes ? first - *bytes / num_nodes : 0;
    }
    return st;
}
