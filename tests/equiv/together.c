/* Trainers that a strategy keeps together: identities between strategies, counted bytes, and what is
 * refused. */
#include <criterion/criterion.h>

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <exogym/memory.h>

#include "base/file.h"
#include "experience/learner_impl.h"
#include "experience/source.h"
#include "graph/run.h"
#include "support/temp.h"

enum {
    UPDATES = 6,
    BATCH = 3,
    STEPS = 2 * UPDATES /* an update has two minibatches */
};

#define MODEL "{name: gpt, layers: 1, heads: 2, width: 16, context: 16, vocabulary: 11}"
#define CRITIC                                                                                     \
    "{name: gpt, layers: 1, heads: 2, width: 8, context: 16, vocabulary: 11, values: true}"
#define EDGE(port) "  - {from: trainer, to: trainer, carries: " port ", route: all_reduce}\n"

#define JOB(s, e, ...)                                                                             \
    {                                                                                              \
        .strategy = s, .edges = e, __VA_ARGS__                                                     \
    }

struct job {
    const char *strategy; /* the value of the key; NULL: none */
    const char *edges;    /* among the trainers */
    const char *clock;    /* NULL: virtual */
    const char *trainer;  /* further keys; may be NULL */
    const char *maker;    /* further keys; NULL: epochs: 0 */
    uint32_t trainers;    /* 0: 2 */
};

/* What a run leaves: the hash of each trainer's version, and the traffic among the trainers. */
struct outcome {
    exo_status status;
    exo_err err;
    char sha256[3][UPDATES + 1][65];
    bool first_ratios_are_1;
    exo_traffic traffic;
};

static void
write_graph(char *out, size_t size, const struct job *j)
{
    unsigned trainers = j->trainers ? j->trainers : 2;
    snprintf(out, size,
             "exogym: 1\nseed: 11\nclock: %s\nactors:\n"
             "  maker: {class: experience_maker, count: %u, config: {model: " MODEL
             ", prompts: {tokens: [[1], [2, 3], [4, 5, 6], [7], [8, 9]]}, reward: {name: share, "
             "token: 5}, answers: 2, batch: 3, generate: {max_new_tokens: 8}, %s}}\n"
             "  trainer: {class: ppo_trainer, count: %u, config: {model: " MODEL ", critic: " CRITIC
             ", optimizer: {name: adamw, lr: 3e-3}, batch: %d, minibatches: 2, "
             "updates: %d, %s%s, %s}}\n"
             "edges:\n"
             "  - {from: maker, to: trainer, carries: experience, route: modulo}\n"
             "  - {from: trainer, to: maker, carries: parameters, route: modulo, buffer: {on_full: "
             "latest}}\n%s",
             j->clock ? j->clock : "virtual", trainers, j->maker ? j->maker : "epochs: 0", trainers,
             BATCH, UPDATES, j->strategy ? "strategy: " : "",
             j->strategy ? j->strategy : "rows: 64", j->trainer ? j->trainer : "max_norm: 1",
             j->edges);
}

/* Reads the hashes of a trainer's versions. */
static void
read_versions(struct outcome *out, const char *folder, uint32_t trainer)
{
    char path[512], *text = NULL, *rest = NULL;
    size_t size = 0, lines = 0;
    snprintf(path, sizeof path, "%s/versions_trainer_%u.csv", folder, trainer);
    cr_assert_eq(exo_file_read(path, 1 << 20, &text, &size, NULL), EXO_OK, "%s", path);
    strtok_r(text, "\n", &rest);
    for (char *line; (line = strtok_r(NULL, "\n", &rest)); lines++) {
        cr_assert_leq(lines, UPDATES, "%s has more lines", path);
        cr_assert_eq(sscanf(line, "%*[^,],%*[^,],%64[0-9a-f]", out->sha256[trainer][lines]), 1);
        /* ratio_off, kl_makers, chi_squared and effective of ratios that are 1 */
        const char ones[] = ",0,0,0,1", *end = line + strlen(line) - strlen(ones);
        out->first_ratios_are_1 = out->first_ratios_are_1 && (lines == 0 || strcmp(end, ones) == 0);
    }
    cr_assert_eq(lines, UPDATES + 1, "%s: %zu lines", path, lines);
    exo_free(text);
}

static void
run(const struct job *j, struct outcome *out)
{
    char text[4096], folder[256];
    exo_graph_spec *spec = NULL;
    exo_graph_result result = {0};
    *out = (struct outcome){.first_ratios_are_1 = true};
    write_graph(text, sizeof text, j);
    temp_folder(folder, sizeof folder);
    out->status =
        exo_graph_parse(&spec, "test.yaml", text, &(exo_graph_opts){.name = "test"}, &out->err);
    if (out->status == EXO_OK)
        out->status = exo_graph_run(spec, &(exo_graph_run_opts){.space = "test", .folder = folder},
                                    &result, &out->err);
    for (uint32_t i = 0; out->status == EXO_OK && i < (j->trainers ? j->trainers : 2); i++)
        read_versions(out, folder, i);
    for (size_t i = 0; i < result.ledger.length; i++)
        if (strncmp(result.ledger.rows[i].edge, "trainer>trainer:", 16) == 0)
            exo_traffic_add(&out->traffic, &result.ledger.rows[i].traffic);
    exo_graph_result_release(&result);
    exo_graph_spec_free(&spec);
    temp_remove(folder);
}

static void
run_well(const struct job *j, struct outcome *out)
{
    run(j, out);
    cr_assert_eq(out->status, EXO_OK, "%s: %s", j->strategy ? j->strategy : "none", out->err.text);
}

static void
expect_equal(const struct outcome *a, const struct outcome *b, const char *what)
{
    for (int t = 0; t < 3; t++)
        for (int v = 0; v <= UPDATES; v++)
            cr_expect_str_eq(a->sha256[t][v], b->sha256[t][v], "%s: trainer %d, version %d", what,
                             t, v);
}

/* --- Identities ------------------------------------------------------------------------------- */

Test(together, ddp_is_the_mean_of_gradients_without_a_strategy)
{
    for (uint32_t trainers = 2; trainers <= 3; trainers++) {
        struct outcome none, name, map;
        run_well(&(struct job)JOB(NULL, EDGE("gradients"), .trainers = trainers), &none);
        run_well(&(struct job)JOB("ddp", EDGE("gradients"), .trainers = trainers), &name);
        run_well(&(struct job)JOB("{name: ddp}", EDGE("gradients"), .trainers = trainers), &map);
        expect_equal(&none, &name, "ddp");
        expect_equal(&none, &map, "{name: ddp}");
        cr_expect_eq(none.traffic.payload_bytes, name.traffic.payload_bytes);
    }
}

/* One of two learners, in a thread of its own. */
struct member {
    exo_learner *learner;
    exo_group *group;
    exo_experience *items;
    exo_status status;
    exo_err err;
};

static exo_group *
only_group(void *context, const char *carries)
{
    cr_assert_str_eq(carries, "parameters");
    return context;
}

static void *
learn_three_times(void *argument)
{
    struct member *m = argument;
    const exo_learner_place place = {.updates = 3, .group = only_group, .context = m->group};
    m->status = exo_learner_join(m->learner, &place, &m->err);
    for (int i = 0; m->status == EXO_OK && i < 3; i++) {
        exo_learner_figures figures;
        m->status = exo_learner_update(m->learner, NULL, m->items, BATCH, &figures, &m->err);
    }
    exo_learner_leave(m->learner);
    return NULL;
}

/* The weights of the policy after three updates of two learners; the caller frees them. */
static float *
learn_from(exo_experience items[2][BATCH], const char *strategy, size_t *numel)
{
    struct member members[2] = {{0}};
    pthread_t threads[2];
    exo_comm *comm = NULL;
    exo_config_doc *doc = NULL;
    char text[1024];
    snprintf(text, sizeof text,
             "{model: " MODEL
             ", algorithm: grpo, optimizer: {name: adamw, lr: 3e-3}, strategy: %s}",
             strategy);
    cr_assert_eq(exo_config_parse(&doc, "test", text, NULL), EXO_OK);
    cr_assert_eq(exo_comm_local(&comm, 2, exo_clock_real(), NULL), EXO_OK);
    for (uint32_t i = 0; i < 2; i++) {
        struct member *m = &members[i];
        m->items = items[i];
        cr_assert_eq(exo_learner_read(&m->learner, exo_config_root(doc), &m->err), EXO_OK, "%s",
                     m->err.text);
        cr_assert_eq(exo_learner_start(m->learner, 7, i, 2, 0, NULL), EXO_OK);
        cr_assert_eq(exo_group_open(&m->group, comm, i, "learner", NULL), EXO_OK);
        pthread_create(&threads[i], NULL, learn_three_times, m);
    }
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    *numel = exo_learner_numel(members[0].learner);
    float *values = exo_calloc(*numel, sizeof *values);
    memcpy(values, exo_learner_values(members[0].learner), *numel * sizeof *values);
    for (int i = 0; i < 2; i++) {
        cr_expect_eq(members[i].status, EXO_OK, "%s", members[i].err.text);
        exo_group_close(&members[i].group);
        exo_learner_free(&members[i].learner);
    }
    exo_comm_drop(&comm);
    exo_config_free(&doc);
    return values;
}

Test(together, diloco_with_a_plain_outer_step_is_fedavg)
{
    exo_item *items[2 * BATCH];
    exo_experience views[2][BATCH];
    exo_config_doc *doc = NULL;
    exo_experience_source *source = NULL;
    size_t numel = 0;
    cr_assert_eq(
        exo_config_parse(
            &doc, "test",
            "{model: " MODEL ", prompts: {tokens: [[1], [2, 3]]}, reward: "
            "{name: share, token: 5}, answers: 4, batch: 6, generate: {max_new_tokens: 8}}",
            NULL),
        EXO_OK);
    cr_assert_eq(exo_experience_source_read(&source, exo_config_root(doc), NULL), EXO_OK);
    cr_assert_eq(exo_experience_source_start(source, 7, 0, NULL, NULL), EXO_OK);
    for (uint64_t i = 0; i < 2 * BATCH; i++) {
        cr_assert_eq(exo_experience_source_begin(source, i, NULL), EXO_OK);
        while (exo_experience_source_unfinished(source) > 0)
            cr_assert_eq(exo_experience_source_step(source, NULL), EXO_OK);
        cr_assert_eq(exo_experience_source_take(source, 0, &items[i], NULL), EXO_OK);
        cr_assert_not_null(items[i]);
    }
    for (int i = 0; i < 2 * BATCH; i++)
        cr_assert_eq(exo_experience_view(&views[i % 2][i / 2], items[i], NULL), EXO_OK);
    float *a =
        learn_from(views, "{name: diloco, H: 1, outer_optimizer: {name: sgd, lr: 1}}", &numel);
    float *b = learn_from(views, "{name: fedavg, H: 1}", &numel);
    float *c = learn_from(views, "{name: fedavg, H: 2}", &numel);
    size_t differ = 0;
    for (size_t i = 0; i < numel; i++) {
        cr_expect_float_eq(a[i], b[i], 1e-6f, "parameter %zu", i);
        differ += fabsf(a[i] - c[i]) > 1e-5f;
    }
    cr_expect_gt(differ, numel / 10);
    for (int i = 0; i < 2 * BATCH; i++)
        exo_item_drop(&items[i]);
    exo_free(a);
    exo_free(b);
    exo_free(c);
    exo_experience_source_free(&source);
    exo_config_free(&doc);
}

/* A maker's items are of its own trainer's weights: their first ratios are 1, also while the trainers
 * differ. After a round all trainers have the same weights. */
Test(together, trainers_differ_between_rounds_only)
{
    struct outcome o;
    run_well(&(struct job)JOB("{name: diloco, H: 4}", EDGE("parameters")), &o);
    cr_expect(o.first_ratios_are_1);
    for (int v = 0; v <= UPDATES; v++)
        cr_expect_eq(strcmp(o.sha256[0][v], o.sha256[1][v]) == 0, v * 2 % 4 == 0, "version %d", v);
}

Test(together, clocks_do_not_matter)
{
    static const char *const strategies[] = {"{name: diloco, H: 3}", "{name: sparta, p: 0.2}"};
    for (size_t i = 0; i < sizeof strategies / sizeof *strategies; i++) {
        struct outcome real, virtual;
        run_well(&(struct job)JOB(strategies[i], EDGE("parameters"), .clock = "real"), &real);
        run_well(&(struct job)JOB(strategies[i], EDGE("parameters")), &virtual);
        expect_equal(&real, &virtual, strategies[i]);
    }
}

/* --- Bytes ------------------------------------------------------------------------------------ */

/* The values of all exchanges of a run, by the strategy's own account, of both models. */
static double
closed_form(const char *strategy, uint32_t trainers)
{
    char text[1024];
    exo_err err = {0};
    exo_config_doc *doc = NULL;
    exo_learner *l = NULL;
    double values = 0;
    snprintf(text, sizeof text, "{model: " MODEL ", critic: " CRITIC ", strategy: %s}", strategy);
    cr_assert_eq(exo_config_parse(&doc, "test", text, &err), EXO_OK, "%s", err.text);
    cr_assert_eq(exo_learner_read(&l, exo_config_root(doc), &err), EXO_OK, "%s", err.text);
    const exo_student *const students[] = {&l->actor, &l->critic};
    for (int s = 0; s < 2; s++) {
        exo_strategy_edge edges[EXO_STRATEGY_MAX_EDGES];
        size_t count = 0;
        const exo_model *model = students[s]->model;
        cr_assert(exo_strategy_edges(students[s]->strategy, exo_model_infos(model),
                                     exo_model_num_infos(model), exo_model_numel(model), trainers,
                                     edges, &count));
        for (size_t i = 0; i < count; i++)
            values += edges[i].elements * (double)(STEPS / edges[i].every);
    }
    exo_learner_free(&l);
    exo_config_free(&doc);
    return values;
}

Test(together, bytes_are_those_of_the_strategy)
{
    static const struct {
        const char *strategy, *edges;
        uint32_t trainers;
    } cases[] = {
        {"{name: diloco, H: 4}", EDGE("parameters"), 2},
        {"{name: diloco, H: 5}", EDGE("parameters"), 3},
        {"{name: local_sgd, H: 3}", EDGE("parameters"), 2},
        {"{name: fedavg, H: 2}", EDGE("parameters"), 3},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct outcome o;
        double n = closed_form(cases[i].strategy, cases[i].trainers);
        run_well(&(struct job)JOB(cases[i].strategy, cases[i].edges, .trainers = cases[i].trainers),
                 &o);
        cr_expect_eq((double)o.traffic.payload_bytes, 2 * (cases[i].trainers - 1) * 4 * n,
                     "%s: %llu bytes of %g values", cases[i].strategy,
                     (unsigned long long)o.traffic.payload_bytes, n);
    }
}

/* --- Ends, and what is refused ---------------------------------------------------------------- */

/* The makers end early and give one trainer more items than the other, and target_kl ends updates
 * at different steps: the exchanges still match. */
Test(together, exchanges_match_whatever_the_items)
{
    static const struct job jobs[] = {
        JOB("{name: diloco, H: 3}", EDGE("parameters"), .maker = "epochs: 3"),
        JOB("quantized", EDGE("gradients"), .maker = "epochs: 3"),
        JOB("{name: noloco, H: 2}", EDGE("parameters"), .maker = "epochs: 2"),
        JOB("{name: diloco, H: 5}", EDGE("parameters"), .trainer = "epochs: 3",
            .maker = "epochs: 0"),
    };
    for (size_t i = 0; i < sizeof jobs / sizeof *jobs; i++) {
        struct outcome o;
        run_well(&jobs[i], &o);
        cr_expect_str_neq(o.sha256[0][0], o.sha256[0][1]);
    }
}

Test(together, mistakes_are_named)
{
    static const struct {
        struct job job;
        const char *text;
    } cases[] = {
        {JOB("{name: diloco, H: 2}", EDGE("gradients")), "carries: parameters"},
        {JOB("{name: diloco, H: 2}", ""), "carries: parameters"},
        {JOB("{name: diloco, H: 2, optimizer: adamw}", EDGE("parameters")), "beside `strategy`"},
        {JOB("{name: fsdp}", EDGE("parameters")),
         "strategy 'fsdp': trainers need whole parameters"},
        {JOB("{name: async_diloco}", EDGE("parameters")), "trainers need whole parameters"},
        {JOB("diloko", EDGE("parameters")), "did you mean 'diloco'"},
        {JOB("{name: ddp, H: 2}", EDGE("gradients")), "unknown key 'H'"},
        {JOB("{H: 2}", EDGE("parameters")), "the key 'name' is missing"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct outcome o;
        run(&cases[i].job, &o);
        cr_expect_neq(o.status, EXO_OK, "%s", cases[i].job.strategy);
        cr_expect_not_null(strstr(o.err.text, cases[i].text), "%s: %s", cases[i].job.strategy,
                           o.err.text);
    }
}
