/* Meters of a strategy and of a model in a run: they are in the run's tree and in its files, and a
 * resumed run continues their counts. Also meters in messages.
 *
 * The suite's `setup` and `teardown` own the trainer and the folder. Read next:
 * actors/node_meters.h, exogym/meter.h. */
#include <criterion/criterion.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <exogym/exogym.h>

#include "actors/node_meters.h"
#include "base/meter.h"
#include "protocol/protocol.h"
#include "support/points.h"
#include "support/temp.h"

enum {
    STEPS = 12,
    NODES = 3
};

/* --- A strategy and a model with meters ------------------------------------------------------- */

static const exo_meter_class steps_class = {
    .name = "steps", .unit = "steps", .help = "steps that were counted"};
static const exo_meter_class rank_class = {
    .name = "rank", .unit = "1", .help = "set once, at the first step", .kind = EXO_GAUGE};
static const exo_meter_class odd_class = {.name = "odd",
                                          .unit = "1",
                                          .help = "numbers of steps",
                                          .kind = EXO_HISTOGRAM,
                                          .bounds = (const double[]){3, 6},
                                          .num_bounds = 2};

struct counting {
    exo_meter *steps, *rank, *odd;
};

static exo_status
counting_start(void *self, exo_node *node, exo_err *err)
{
    struct counting *c = self;
    exo_status st = exo_meter_declare(&c->steps, node->meters, &steps_class, err);
    if (st == EXO_OK)
        st = exo_meter_declare(&c->rank, node->meters, &rank_class, err);
    return st == EXO_OK ? exo_meter_declare(&c->odd, node->meters, &odd_class, err) : st;
}

static exo_status
counting_step(void *self, exo_node *node, exo_err *err)
{
    struct counting *c = self;
    exo_meter_add(c->steps, 1);
    if (node->step == 0)
        exo_meter_set(c->rank, node->rank);
    exo_meter_observe(c->odd, (double)node->step);
    return exo_node_inner_step(node, err);
}

static const exo_strategy_class counting = {.name = "counting",
                                            .state_size = sizeof(struct counting),
                                            .start = counting_start,
                                            .step = counting_step};

static const exo_meter_class mean_class = {
    .name = "mean_x", .unit = "1", .help = "mean of the first coordinate", .kind = EXO_GAUGE};

struct watched {
    exo_param weight, bias;
};

static exo_status
watched_build(void *self, exo_builder *b, exo_config *config, exo_err *err)
{
    struct watched *w = self;
    (void)config;
    w->weight = exo_build_param(b, "weight", 2, (size_t[]){POINTS_CLASSES, POINTS_DIM},
                                exo_init_uniform(0.3f));
    w->bias = exo_build_param(b, "bias", 1, (size_t[]){POINTS_CLASSES}, exo_init_constant(0));
    return exo_build_status(b, err);
}

static void
watched_forward(const void *self, exo_tape *t, const exo_batch *batch, exo_outputs *outputs)
{
    const struct watched *w = self;
    const float *x = batch->data[0];
    double sum = 0;
    for (size_t i = 0; i < batch->size; i++)
        sum += (double)x[i * POINTS_DIM];
    exo_tape_metric(t, &mean_class, sum / (double)batch->size, batch->size);
    exo_tensor *weight = exo_tape_param(t, w->weight), *bias = exo_tape_param(t, w->bias);
    exo_outputs_give(outputs, "logits", exo_linear(t, exo_batch_tensor(t, batch, 0), weight, bias));
}

static const exo_model_class watched = {.name = "watched",
                                        .state_size = sizeof(struct watched),
                                        .build = watched_build,
                                        .outputs = (const char *const[]){"logits", NULL},
                                        .forward = watched_forward,
                                        .objective = &exo_classification};

/* --- Runs ------------------------------------------------------------------------------------- */

static char folder[64];
static exo_model *model;
static exo_dataset *train, *val;
static exo_trainer *trainer;

static void
setup(void)
{
    temp_folder(folder, sizeof folder);
    cr_assert_eq(exo_strategy_register(&counting, NULL), EXO_OK);
    cr_assert_eq(exo_model_new(&model, &watched, NULL, NULL), EXO_OK);
    train = points_new(200, 1, SIZE_MAX);
    val = points_new(50, 2, SIZE_MAX);
    cr_assert_eq(exo_trainer_new(&trainer, model, train, val, NULL), EXO_OK);
}

static void
teardown(void)
{
    exo_trainer_free(&trainer);
    exo_dataset_drop(&train);
    exo_dataset_drop(&val);
    exo_model_drop(&model);
    temp_remove(folder);
}

TestSuite(fit_meters, .init = setup, .fini = teardown);

static exo_fit_opts
opts_of(const char *run)
{
    exo_fit_opts opts = exo_fit_opts_init();
    opts.num_nodes = NODES;
    opts.batch_size = 4;
    opts.minibatch_size = 2;
    opts.max_steps = STEPS;
    opts.val_interval = 2;
    opts.save_dir = folder;
    opts.run_name = run;
    return opts;
}

static exo_status
fit_strategy(const char *strategy, const char *config, const exo_fit_opts *opts, exo_err *err)
{
    exo_fit_result result = {0};
    exo_status st = exo_trainer_fit_text(trainer, strategy, config, opts, &result, err);
    exo_params_free(&result.params);
    return st;
}

static exo_status
fit(const exo_fit_opts *opts, exo_err *err)
{
    return fit_strategy("counting", NULL, opts, err);
}

/* Returns a meter's value at a step in the run's meters.csv; NaN if there is no such row, or more
 * than one. */
static double
row_of(const char *run, unsigned step, const char *meter)
{
    char path[256], line[512], begin[128];
    double value = (double)NAN;
    size_t found = 0;
    snprintf(path, sizeof path, "%s/%s/meters.csv", folder, run);
    snprintf(begin, sizeof begin, "%u,%s,", step, meter);
    FILE *file = fopen(path, "r");
    cr_assert_not_null(file, "%s", path);
    while (fgets(line, sizeof line, file))
        if (strncmp(line, begin, strlen(begin)) == 0) {
            value = strtod(line + strlen(begin), NULL);
            found++;
        }
    fclose(file);
    return found == 1 ? value : (double)NAN;
}

/* The last samples that the progress callback saw. */
struct seen {
    exo_meter_sample steps, odd;
    double mean, global_mean;
    unsigned stop_at;
    _Atomic int stop;
};

static void
look(void *context, const exo_progress *p)
{
    struct seen *seen = context;
    exo_meter_sample s;
    if (exo_meters_get(p->meters, "node_2.strategy.steps", &s))
        seen->steps = s;
    if (exo_meters_get(p->meters, "node_2.strategy.odd", &s))
        seen->odd = s;
    seen->mean = exo_meters_get(p->meters, "node_1.model.mean_x", &s) ? s.value : (double)NAN;
    seen->global_mean =
        exo_meters_get(p->meters, "validation.global.mean_x", &s) ? s.value : (double)NAN;
    if (seen->stop_at && p->step >= seen->stop_at)
        seen->stop = 1;
}

/* The mean of the first coordinate over the whole validation set. */
static double
mean_of_val(void)
{
    double sum = 0;
    for (size_t i = 0; i < exo_dataset_length(val); i++) {
        exo_batch batch = {0};
        cr_assert_eq(exo_batch_init(&batch, val, 1, NULL), EXO_OK);
        cr_assert_eq(exo_batch_read(&batch, val, &i, 1, &(exo_sample_key){0}, NULL), EXO_OK);
        sum += (double)((const float *)batch.data[0])[0];
        exo_batch_release(&batch);
    }
    return sum / (double)exo_dataset_length(val);
}

Test(fit_meters, a_strategy_s_and_a_model_s_are_in_the_run_s_tree_and_rows)
{
    struct seen seen = {0};
    exo_err err = {0};
    exo_fit_opts opts = opts_of("whole");
    opts.progress = look;
    opts.context = &seen;
    cr_assert_eq(fit(&opts, &err), EXO_OK, "%s", err.text);
    cr_expect_eq(seen.steps.count, STEPS);
    cr_expect_eq(seen.odd.count, STEPS);
    cr_expect_eq(seen.odd.buckets[0], 4, "steps 0 to 3");
    cr_expect_eq(seen.odd.buckets[1], 3);
    cr_expect(isfinite(seen.mean));
    cr_expect_float_eq(seen.global_mean, mean_of_val(), 1e-5,
                       "over batches of different sizes, too");
    for (unsigned step = 2; step <= STEPS; step += 2)
        for (unsigned rank = 0; rank < NODES; rank++) {
            char meter[64];
            snprintf(meter, sizeof meter, "node_%u.strategy.steps", rank);
            cr_expect_eq(row_of("whole", step, meter), step, "%s at %u", meter, step);
            snprintf(meter, sizeof meter, "node_%u.strategy.rank", rank);
            cr_expect_eq(row_of("whole", step, meter), rank, "%s at %u", meter, step);
        }
    cr_expect_eq(row_of("whole", 8, "node_1.strategy.odd.le_6"), 7);
    cr_expect_eq(row_of("whole", 8, "samples"), 8 * 4 * NODES);
    cr_expect(isfinite(row_of("whole", 0, "validation.local.mean_x")));
}

/* A meter at the end of a run, of all nodes together. */
static double
sum_of(const char *run, const char *meter)
{
    double sum = 0;
    for (unsigned rank = 0; rank < NODES; rank++) {
        char path[64];
        snprintf(path, sizeof path, "node_%u.strategy.%s", rank, meter);
        sum += row_of(run, STEPS, path);
    }
    return sum;
}

Test(fit_meters, a_node_without_a_partner_counts_no_round)
{
    static const char *const select =
        "{exchanges: [{partners: pairs, select: {name: partitioned, p: 0.5}}]}";
    exo_err err = {0};
    exo_fit_opts opts = opts_of("noloco");
    cr_assert_eq(fit_strategy("noloco", "{H: 2}", &opts, &err), EXO_OK, "%s", err.text);
    opts.run_name = "fedavg";
    cr_assert_eq(fit_strategy("fedavg", "{H: 3, island_size: 2}", &opts, &err), EXO_OK, "%s",
                 err.text);
    opts.run_name = "select";
    cr_assert_eq(fit_strategy("compose", select, &opts, &err), EXO_OK, "%s", err.text);
    cr_expect_eq(sum_of("noloco", "rounds"), STEPS / 2 * 2, "one of three nodes is alone");
    cr_expect_eq(sum_of("fedavg", "rounds"), STEPS / 3 * 2);
    cr_expect_eq(sum_of("select", "exchange_0.rounds"), STEPS * 2);
    cr_expect_eq(sum_of("select", "exchange_0.exchanged"),
                 STEPS / 2 * 2 * (double)exo_model_numel(model),
                 "half of the parameters in a round");
}

/* Compares all rows except times. */
static void
expect_same_rows(const char *run)
{
    static const char *const meters[] = {"step",
                                         "samples",
                                         "bytes_sent",
                                         "train.loss",
                                         "train.lr",
                                         "validation.local.loss",
                                         "validation.global.loss",
                                         "validation.global.mean_x",
                                         "node_0.loss",
                                         "communication.wire_bytes",
                                         "node_0.strategy.steps",
                                         "node_1.strategy.steps",
                                         "node_2.strategy.rank",
                                         "node_2.strategy.odd.count",
                                         "node_2.strategy.odd.sum",
                                         "node_2.strategy.odd.le_3",
                                         "node_2.model.mean_x"};
    for (unsigned step = 2; step <= STEPS; step += 2)
        for (size_t i = 0; i < sizeof meters / sizeof *meters; i++)
            cr_expect_eq(row_of(run, step, meters[i]), row_of("whole", step, meters[i]),
                         "%s at %u in %s: %g and not %g", meters[i], step, run,
                         row_of(run, step, meters[i]), row_of("whole", step, meters[i]));
}

Test(fit_meters, a_resumed_run_goes_on_counting_and_has_each_row_once, .timeout = 60)
{
    exo_err err = {0};
    exo_fit_opts opts = opts_of("whole");
    cr_assert_eq(fit(&opts, &err), EXO_OK, "%s", err.text);
    for (unsigned step = 2; step < STEPS; step += 2) {
        char run[32];
        struct seen seen = {.stop_at = step};
        snprintf(run, sizeof run, "stopped_%u", step);
        opts = opts_of(run);
        opts.progress = look;
        opts.context = &seen;
        opts.stop = &seen.stop;
        cr_expect_eq(fit(&opts, &err), EXO_CANCELLED, "%s", err.text);
        opts.stop = NULL;
        opts.resume = true;
        cr_assert_eq(fit(&opts, &err), EXO_OK, "%s", err.text);
        cr_expect_eq(seen.steps.count, STEPS);
        expect_same_rows(run);
    }
    opts = opts_of("whole"); /* once more, when no step is left to do */
    opts.resume = true;
    cr_assert_eq(fit(&opts, &err), EXO_OK, "%s", err.text);
    expect_same_rows("whole");
    cr_expect(isfinite(row_of("whole", STEPS, "node_0.strategy.steps")));
}

/* --- Meters in messages ----------------------------------------------------------------------- */

static exo_status
decode(const exo_payload *payload, ProtobufCMessage **out, exo_err *err)
{
    const exo_args args = {.method = "train", .fields = &exo__train__trained__descriptor};
    return exo_args_decode(&args, payload, out, err);
}

Test(fit_meters, a_meter_in_a_message_is_checked_like_the_message)
{
    exo_meters *tree = NULL;
    exo_meter *odd = NULL;
    exo_meter_list list;
    exo_payload payload = {0};
    ProtobufCMessage *message = NULL;
    exo_err err = {0};
    cr_assert_eq(exo_meters_new(&tree, NULL), EXO_OK);
    cr_assert_eq(exo_meter_declare(&odd, tree, &odd_class, NULL), EXO_OK);
    exo_meter_observe(odd, 5);
    cr_assert_eq(exo_meter_list_init(&list, tree, NULL), EXO_OK);
    Exo__Train__Trained trained = EXO__TRAIN__TRAINED__INIT;
    trained.meters = list.messages;
    trained.n_meters = list.num;
    cr_assert_eq(exo_protocol_pack(&payload, &trained.base, &err), EXO_OK);
    cr_assert_eq(decode(&payload, &message, &err), EXO_OK, "%s", err.text);
    exo_meter_class c;
    exo_meter_sample s;
    Exo__Train__Meter *meter = ((Exo__Train__Trained *)message)->meters[0];
    cr_assert_eq(exo_meter_of_message(meter, &c, &s, &err), EXO_OK, "%s", err.text);
    cr_expect_eq(s.buckets[1], 1);
    cr_expect_str_eq(s.path, "odd");
    meter->n_buckets--;
    cr_expect_eq(exo_meter_of_message(meter, &c, &s, &err), EXO_INVAL);
    meter->n_buckets++;
    exo_args_free(&message);

    /* Changes bytes of the inner message, whose help is the text "numbers of steps". */
    uint8_t *bytes = (uint8_t *)(uintptr_t)payload.data;
    uint8_t *help = memmem(bytes, payload.size, "numbers of steps", 16);
    cr_assert_not_null(help);
    help[3] = 0xff;
    cr_expect_eq(decode(&payload, &message, &err), EXO_INVAL);
    cr_expect_not_null(strstr(err.text, "help: the text is not UTF-8 (in meters)"), "%s", err.text);
    help[3] = 'b';
    help[-2] = 9 << 3 | 2; /* a field number that a meter does not have, in place of help's */
    cr_expect_eq(decode(&payload, &message, &err), EXO_INVAL);
    cr_expect_not_null(strstr(err.text, "field 9"), "%s", err.text);
    help[-2] = 1 << 3 | 2; /* the number of its path, which thus comes twice */
    cr_expect_eq(decode(&payload, &message, &err), EXO_INVAL);
    cr_expect_not_null(strstr(err.text, "path: it is given twice"), "%s", err.text);
    exo_payload_release(&payload);
    exo_meter_list_release(&list);
    exo_meters_free(&tree);
}
