/* Context parallelism of the class "gpt" (exogym/parallel.h): decoders over 1 to 4 threads, each with a
 * part of the tokens, have the loss, gradients and training of one decoder with all tokens, and send what
 * the closed form says. Each member's thread owns its `struct member`. Read next:
 * nn/parallel/ring_attention.c. */
#include <criterion/criterion.h>

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include <exogym/decoder.h>
#include <exogym/optim.h>
#include <exogym/parallel.h>

#include "comm/group.h"
#include "support/numbers.h"
#include "support/token_rows.h"

enum {
    MOST = 4, /* members */
    SAMPLES = 2,
    LONGEST = 480, /* several blocks of the kernels, the last ones incomplete */
    STEPS = 6
};

/* --- Decoders --------------------------------------------------------------------------------- */

static const struct kind {
    size_t length;
    const char *options;
} kinds[] = {
    {24, "{layers: 2, width: 32, heads: 4, inner: 48, vocabulary: 101, context: 30}"},
    {24, "{layers: 3, width: 24, heads: 4, kv_heads: 2, head_width: 6, inner: 40, vocabulary: 101, "
         "context: 24, position: rotary, norm: rms, activation: silu, gated: true, bias: false, "
         "tied: false}"},
    {24,
     "{layers: 3, width: 32, heads: 4, inner: 48, vocabulary: 64, context: 24, checkpoint: true}"},
    {LONGEST,
     "{layers: 1, width: 16, heads: 2, kv_heads: 1, inner: 16, vocabulary: 33, context: 480, "
     "position: rotary, rope_theta: 500}"},
    {24,
     "{layers: 2, width: 24, heads: 4, kv_heads: 2, head_width: 10, inner: 40, vocabulary: 101, "
     "context: 24, position: rotary, norm: rms, gated: true, bias: false, qk_norm: true}"},
};
enum {
    KINDS = sizeof kinds / sizeof *kinds
};

static exo_model *
build(const char *options)
{
    exo_config_doc *doc = NULL;
    exo_model *model = NULL;
    exo_err err = {0};
    cr_assert_eq(exo_config_parse(&doc, "model", options, &err), EXO_OK, "%s", err.text);
    cr_assert_eq(exo_model_new_named(&model, "gpt", exo_config_root(doc), &err), EXO_OK, "%s",
                 err.text);
    exo_config_free(&doc);
    return model;
}

static exo_model *
member_of(const exo_model *whole, uint32_t rank, uint32_t members)
{
    exo_model *part = NULL;
    exo_err err = {0};
    cr_assert_eq(exo_model_context_part(&part, whole, rank, members, &err), EXO_OK, "%s", err.text);
    return part;
}

/* --- Members, one thread each ----------------------------------------------------------------- */

static int32_t tokens[SAMPLES * LONGEST], targets[SAMPLES * LONGEST];

struct member {
    exo_model *model;
    exo_params *params;
    exo_group *group; /* NULL: all tokens */
    exo_tape *tape;
    size_t length;
    int steps;         /* of SGD, after a pass for the gradients */
    float loss[STEPS]; /* of each pass */
    float *grads;      /* of the first pass */
    exo_status status;
    exo_err err;
};

static void
run_pass(struct member *m, float *loss)
{
    const exo_batch batch = {
        .size = SAMPLES,
        .num_fields = 2,
        .fields = {{.name = "tokens", .dtype = EXO_I32, .num_dims = 1, .dims = {m->length}},
                   {.name = "targets", .dtype = EXO_I32, .num_dims = 1, .dims = {m->length}}},
        .data = {tokens, targets}};
    const exo_pass pass = {.train = true, .grad = true, .seed = 5};
    exo_params_zero_grads(m->params);
    exo_tape_set_context_group(m->tape, m->group);
    exo_tape_begin(m->tape, m->params, &pass);
    exo_tensor *out = exo_model_loss(m->model, m->tape, &batch);
    m->status =
        out ? exo_tape_backward(m->tape, out, 1.0f, &m->err) : exo_tape_error(m->tape, &m->err);
    if (m->status == EXO_OK)
        *loss = exo_tensor_item(out);
}

static void *
member_main(void *argument)
{
    struct member *m = argument;
    const exo_optim_spec spec = exo_optim_spec_init(EXO_SGD);
    exo_optim *optim = NULL;
    run_pass(m, &m->loss[0]);
    memcpy(m->grads, exo_params_grads(m->params), exo_params_numel(m->params) * sizeof *m->grads);
    if (m->status == EXO_OK)
        m->status =
            exo_optim_new(&optim, &spec, exo_device_cpu(), exo_params_numel(m->params), &m->err);
    for (int s = 1; m->status == EXO_OK && s < m->steps; s++) {
        exo_optim_step(optim, exo_params_values_array(m->params), exo_params_grads_array(m->params),
                       0.3f);
        run_pass(m, &m->loss[s]);
    }
    exo_optim_free(&optim);
    return NULL;
}

struct team {
    exo_clock_manual clock; /* never advances: nothing times out */
    exo_comm *comm;
    uint32_t count;
    struct member whole, part[MOST];
};

static void
member_open(struct member *m, exo_model *model, size_t length, int steps)
{
    *m = (struct member){.model = model, .length = length, .steps = steps};
    cr_assert_eq(exo_model_params(model, 7, &m->params, NULL), EXO_OK);
    cr_assert_eq(exo_tape_new(&m->tape, NULL), EXO_OK);
    m->grads = calloc(exo_model_numel(model), sizeof *m->grads);
}

/* Every seventh target counts not, and none in the first `without` tokens of a sequence. */
static void
fill_batch(size_t vocabulary, size_t length, size_t without)
{
    for (size_t i = 0; i < SAMPLES * length; i++) {
        tokens[i] = (int32_t)(i * 37 % vocabulary);
        targets[i] =
            i % 7 == 6 || i % length < without ? -1 : (int32_t)((i * 53 + 11) % vocabulary);
    }
}

static void
team_open(struct team *t, const struct kind *kind, uint32_t count, size_t without, int steps)
{
    *t = (struct team){.count = count};
    exo_clock_manual_init(&t->clock, 0);
    cr_assert_eq(exo_comm_local(&t->comm, count, &t->clock.base, NULL), EXO_OK);
    member_open(&t->whole, build(kind->options), kind->length, steps);
    fill_batch(exo_decoder_spec_of(t->whole.model)->vocabulary, kind->length, without);
    for (uint32_t r = 0; r < count; r++) {
        member_open(&t->part[r], member_of(t->whole.model, r, count), kind->length, steps);
        cr_assert_eq(exo_group_open(&t->part[r].group, t->comm, r, "member", NULL), EXO_OK);
    }
}

static void
team_run(struct team *t)
{
    pthread_t threads[MOST];
    member_main(&t->whole);
    cr_assert_eq(t->whole.status, EXO_OK, "%s", t->whole.err.text);
    for (uint32_t r = 0; r < t->count; r++)
        cr_assert_eq(pthread_create(&threads[r], NULL, member_main, &t->part[r]), 0);
    for (uint32_t r = 0; r < t->count; r++)
        pthread_join(threads[r], NULL);
    for (uint32_t r = 0; r < t->count; r++)
        cr_assert_eq(t->part[r].status, EXO_OK, "member %u: %s", r, t->part[r].err.text);
}

static void
member_close(struct member *m)
{
    exo_group_close(&m->group);
    exo_tape_free(&m->tape);
    exo_params_free(&m->params);
    exo_model_drop(&m->model);
    free(m->grads);
}

static void
team_close(struct team *t)
{
    for (uint32_t r = 0; r < t->count; r++)
        member_close(&t->part[r]);
    member_close(&t->whole);
    exo_comm_drop(&t->comm);
}

/* --- Passes ----------------------------------------------------------------------------------- */

/* All members together, in one forward and backward: the keys and values of all rows go to each other
 * member twice, and their gradients once; the gradients of all parameters and the loss are summed. */
static double
closed_form(const struct team *t)
{
    const exo_decoder_spec *s = exo_decoder_spec_of(t->whole.model);
    const double others = t->count - 1, rows = SAMPLES * (double)t->whole.length;
    double kv = rows * 2 * (double)(s->kv_heads * s->head_width);
    return 4 * others *
           (3 * (double)s->layers * kv + 2 * ((double)exo_model_numel(t->whole.model) + 1));
}

static void
expect_whole(const struct team *t, size_t kind)
{
    const exo_param_info *infos = exo_model_infos(t->whole.model);
    for (int s = 0; s < t->whole.steps; s++)
        for (uint32_t r = 0; r < t->count; r++) {
            double off = fabs((double)t->part[r].loss[s] / (double)t->whole.loss[s] - 1);
            cr_expect_lt(off, 1e-5, "kind %zu, %u members: loss %d off by %g", kind, t->count, s,
                         off);
        }
    for (size_t i = 0; i < exo_model_num_infos(t->whole.model); i++) {
        double off = numbers_distance(t->part[0].grads + infos[i].offset,
                                      t->whole.grads + infos[i].offset, infos[i].numel);
        cr_expect_lt(off, 1e-5, "kind %zu, %u members: %s: off by %g", kind, t->count,
                     infos[i].name, off);
    }
    for (uint32_t r = 1; r < t->count; r++)
        cr_expect_eq(memcmp(t->part[0].grads, t->part[r].grads,
                            exo_model_numel(t->whole.model) * sizeof(float)),
                     0, "kind %zu: members 0 and %u differ", kind, r);
}

Test(context_parallel, loss_gradients_and_bytes_are_those_of_all_tokens)
{
    for (size_t k = 0; k < KINDS; k++)
        for (uint32_t members = 1; members <= MOST; members++) {
            struct team t;
            double bytes = 0;
            team_open(&t, &kinds[k], members, 0, 1);
            team_run(&t);
            expect_whole(&t, k);
            for (uint32_t r = 0; r < members; r++)
                bytes += (double)exo_group_stats(t.part[r].group).bytes_sent;
            cr_expect_float_eq(bytes, closed_form(&t), 1e-3, "kind %zu, %u members: %.0f, not %.0f",
                               k, members, bytes, closed_form(&t));
            team_close(&t);
        }
}

Test(context_parallel, training_follows_the_whole)
{
    for (size_t k = 0; k < KINDS; k++) {
        struct team t;
        team_open(&t, &kinds[k], 2, 0, STEPS);
        team_run(&t);
        expect_whole(&t, k);
        cr_expect_lt(t.whole.loss[STEPS - 1], t.whole.loss[0] - 0.05f, "it learns");
        team_close(&t);
    }
}

/* Of two members the second has the chunks in the middle, so with targets in the first or last quarter
 * alone it has none; without any target nobody has. */
Test(context_parallel, a_member_without_targets_takes_part)
{
    for (size_t without = 18; without <= 24; without += 6) {
        struct team t;
        team_open(&t, &kinds[0], 2, without, 1);
        team_run(&t);
        if (without == 18) {
            expect_whole(&t, 0);
        } else {
            cr_expect_eq(t.part[0].loss[0], 0);
            for (size_t i = 0; i < exo_model_numel(t.whole.model); i++)
                cr_assert_eq(t.part[1].grads[i], 0);
        }
        team_close(&t);
    }
}

/* --- Swaps in the background ------------------------------------------------------------------ */

/* An engine that counts the swaps of its members on their way to the library's. */
static const exo_engine_class *counted_engine;
static _Atomic unsigned swaps, waiting,
    highest; /* all; those whose caller waits at once; under way */
static _Atomic unsigned under_way[MOST];

static exo_status
count_begin(void *group, uint32_t rank, exo_engine_request *request, exo_err *err)
{
    if (request->args.operation == EXO_SWAP) {
        swaps++;
        waiting += request->args.waits;
        if (++under_way[rank] > highest)
            highest = under_way[rank];
    }
    return counted_engine->begin(group, rank, request, err);
}

static exo_status
count_wait(void *group, uint32_t rank, exo_engine_request *request, exo_err *err)
{
    if (request->args.operation == EXO_SWAP)
        under_way[rank]--;
    return counted_engine->wait(group, rank, request, err);
}

Test(context_parallel, swaps_are_on_their_way_during_the_work)
{
    struct team t;
    team_open(&t, &kinds[0], 3, 0, 1);
    counted_engine = t.comm->engine;
    exo_engine_class counting = *counted_engine;
    counting.begin = count_begin;
    counting.wait = count_wait;
    t.comm->engine = &counting;
    team_run(&t);
    t.comm->engine = counted_engine;
    const size_t layers = exo_decoder_spec_of(t.whole.model)->layers;
    cr_expect_eq(swaps, 3 * 2 * 3 * layers, "%u swaps", (unsigned)swaps);
    cr_expect_eq(waiting, 0, "%u swaps block", (unsigned)waiting);
    cr_expect_eq(highest, 2, "keys and gradients at once, not %u", (unsigned)highest);
    team_close(&t);
}

/* --- Memory, and what is refused -------------------------------------------------------------- */

Test(context_parallel, activations_take_a_share_of_the_memory)
{
    exo_model *whole =
        build("{layers: 4, width: 64, heads: 4, inner: 128, vocabulary: 101, context: 1024}");
    exo_dataset *data = token_rows_new(8, 1024, 101);
    const exo_pass pass = {.train = true, .grad = true};
    const uint64_t params = exo_model_numel(whole) * sizeof(float);
    exo_pass_memory all, own;
    cr_assert_eq(exo_model_pass_memory(whole, &pass, data, 8, &all, NULL), EXO_OK);
    for (uint32_t members = 2; members <= MOST; members *= 2) {
        exo_model *part = member_of(whole, 1, members);
        exo_err err = {0};
        cr_assert_eq(exo_model_pass_memory(part, &pass, data, 8, &own, &err), EXO_OK, "%s",
                     err.text);
        /* besides, gradients of parameters before their sum, and another member's keys and values */
        cr_expect_lt(own.tape, all.tape / members + params + all.tape / 8, "%u members: %zu of %zu",
                     members, own.tape, all.tape);
        exo_model_drop(&part);
    }
    exo_dataset_drop(&data);
    exo_model_drop(&whole);
}

Test(context_parallel, models_and_lengths_that_do_not_go_are_refused)
{
    static const struct {
        const char *options, *text;
    } cases[] = {{"{dropout: 0.1}", "dropout"},
                 {"{position: alibi}", "alibi"},
                 {"{lora: {rank: 2}}", "lora"},
                 {"{frozen: position.weight}", "frozen"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        exo_model *whole = build(cases[i].options), *part = NULL;
        exo_err err = {0};
        cr_expect_eq(exo_model_context_part(&part, whole, 0, 2, &err), EXO_UNSUPPORTED);
        cr_expect(strstr(err.text, cases[i].text), "%s: %s", cases[i].options, err.text);
        exo_model_drop(&whole);
    }
    struct team t;
    team_open(&t, &kinds[0], 2, 0, 1);
    t.part[0].length = 22;
    run_pass(&t.part[0], &t.part[0].loss[0]);
    cr_expect_eq(t.part[0].status, EXO_INVAL);
    cr_expect(strstr(t.part[0].err.text, "must divide sequences of 22 tokens"), "%s",
              t.part[0].err.text);
    t.part[1].group = (exo_group_close(&t.part[1].group), NULL);
    run_pass(&t.part[1], &t.part[1].loss[0]);
    cr_expect_eq(t.part[1].status, EXO_INVAL);
    cr_expect(strstr(t.part[1].err.text, "part 1 of 2 needs a group"), "%s", t.part[1].err.text);
    team_close(&t);
}
