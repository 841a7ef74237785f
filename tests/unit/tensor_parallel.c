/* Tensor parallelism of the class "gpt" (exogym/parallel.h): parts of a decoder over 1, 2 and 4
 * threads have the initial values, loss, gradients and training of the whole decoder, and send what
 * the closed forms say; so do parts with sequence parallelism. Each member's thread owns its `struct member`. Read next:
 * nn/models/decoder_part.c. */
#include <criterion/criterion.h>

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include <exogym/decoder.h>
#include <exogym/optim.h>
#include <exogym/parallel.h>

#include "support/token_rows.h"

enum {
    MOST = 4, /* members */
    SAMPLES = 3,
    LENGTH = 12,
    ROWS = SAMPLES * LENGTH,
    STEPS = 10
};

#define TOLERANCE 1e-5

/* --- Decoders --------------------------------------------------------------------------------- */

/* GPT-2's, LLaMA's and Qwen3's layers, the latter two with fewer key-value heads. 101 elements of the vocabulary
 * are no multiple of the members. */
static const char *const kinds[] = {
    "{layers: 2, width: 32, heads: 4, inner: 48, vocabulary: 101, context: 16}",
    "{layers: 3, width: 24, heads: 8, kv_heads: 4, head_width: 6, inner: 40, vocabulary: 101, "
    "context: 12, position: rotary, norm: rms, activation: silu, gated: true, bias: false, "
    "tied: false}",
    "{layers: 3, width: 32, heads: 4, inner: 48, vocabulary: 64, context: 16, checkpoint: true}",
    ("{layers: 2, width: 24, heads: 8, kv_heads: 4, head_width: 10, inner: 40, vocabulary: 101, "
     "context: 12, position: rotary, norm: rms, gated: true, bias: false, qk_norm: true}"),
};
enum {
    KINDS = sizeof kinds / sizeof *kinds
};

static exo_model *
build_named(const char *name, const char *options)
{
    exo_config_doc *doc = NULL;
    exo_model *model = NULL;
    exo_err err = {0};
    cr_assert_eq(exo_config_parse(&doc, "model", options, &err), EXO_OK, "%s", err.text);
    cr_assert_eq(exo_model_new_named(&model, name, exo_config_root(doc), &err), EXO_OK, "%s",
                 err.text);
    exo_config_free(&doc);
    return model;
}

static exo_model *
part_of(const exo_model *whole, uint32_t rank, uint32_t members, bool sequence)
{
    exo_model *part = NULL;
    exo_err err = {0};
    cr_assert_eq(
        (sequence ? exo_model_sequence_part : exo_model_part)(&part, whole, rank, members, &err),
        EXO_OK, "%s", err.text);
    return part;
}

static int32_t tokens[ROWS], targets[ROWS];

static void
fill_batch(size_t vocabulary)
{
    for (size_t i = 0; i < ROWS; i++) {
        tokens[i] = (int32_t)(i * 37 % vocabulary);
        targets[i] = i % LENGTH == LENGTH - 1 ? -1 : (int32_t)((i * 53 + 11) % vocabulary);
    }
}

static exo_batch
batch_of_rows(void)
{
    return (exo_batch){
        .size = SAMPLES,
        .num_fields = 2,
        .fields = {{.name = "tokens", .dtype = EXO_I32, .num_dims = 1, .dims = {LENGTH}},
                   {.name = "targets", .dtype = EXO_I32, .num_dims = 1, .dims = {LENGTH}}},
        .data = {tokens, targets}};
}

/* --- Members, one thread each ----------------------------------------------------------------- */

struct member {
    exo_model *model;
    exo_params *params;
    exo_group *group; /* NULL: the whole model */
    exo_tape *tape;
    int steps;         /* of AdamW; 0: gradients only */
    float loss[STEPS]; /* of each step */
    exo_status status;
    exo_err err;
};

static void
run_pass(struct member *m, float *loss)
{
    exo_batch batch = batch_of_rows();
    const exo_pass pass = {.train = true, .grad = true, .seed = 5};
    exo_params_zero_grads(m->params);
    exo_tape_set_group(m->tape, m->group);
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
    exo_optim *optim = NULL;
    const exo_optim_spec spec = exo_optim_spec_init(EXO_ADAMW);
    run_pass(m, &m->loss[0]);
    if (m->steps == 0 || m->status != EXO_OK)
        return NULL;
    m->status =
        exo_optim_new(&optim, &spec, exo_device_cpu(), exo_params_numel(m->params), &m->err);
    for (int s = 0; m->status == EXO_OK && s < m->steps; s++) {
        run_pass(m, &m->loss[s]);
        if (m->status == EXO_OK)
            exo_optim_step(optim, exo_params_values_array(m->params),
                           exo_params_grads_array(m->params), 3e-3f);
    }
    exo_optim_free(&optim);
    return NULL;
}

/* A whole decoder, and its parts. */
struct team {
    exo_clock_manual clock; /* never advances: nothing times out */
    exo_comm *comm;
    uint32_t count;
    bool sequence; /* parallelism of the parts */
    struct member whole, part[MOST];
};

static void
member_open(struct member *m, exo_model *model, int steps)
{
    *m = (struct member){.model = model, .steps = steps};
    cr_assert_eq(exo_model_params(model, 7, &m->params, NULL), EXO_OK);
    cr_assert_eq(exo_tape_new(&m->tape, NULL), EXO_OK);
}

static void
team_open_as(struct team *t, const char *options, uint32_t count, int steps, bool sequence)
{
    *t = (struct team){.count = count, .sequence = sequence};
    exo_clock_manual_init(&t->clock, 0);
    cr_assert_eq(exo_comm_local(&t->comm, count, &t->clock.base, NULL), EXO_OK);
    member_open(&t->whole, build_named("gpt", options), steps);
    fill_batch(exo_decoder_spec_of(t->whole.model)->vocabulary);
    for (uint32_t r = 0; r < count; r++) {
        member_open(&t->part[r], part_of(t->whole.model, r, count, sequence), steps);
        cr_assert_eq(exo_group_open(&t->part[r].group, t->comm, r, "member", NULL), EXO_OK);
    }
}

static void
team_open(struct team *t, const char *options, uint32_t count, int steps)
{
    team_open_as(t, options, count, steps, false);
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
}

static void
team_close(struct team *t)
{
    for (uint32_t r = 0; r < t->count; r++)
        member_close(&t->part[r]);
    member_close(&t->whole);
    exo_comm_drop(&t->comm);
}

/* --- Parameters ------------------------------------------------------------------------------- */

Test(tensor_parallel, parts_begin_as_slices_of_the_whole)
{
    for (size_t k = 0; k < KINDS; k++) {
        struct team t;
        team_open(&t, kinds[k], 4, 0);
        const float *whole = exo_params_values(t.whole.params);
        size_t numel = exo_model_numel(t.whole.model);
        float *back = calloc(numel, sizeof *back);
        for (uint32_t r = 0; r < t.count; r++) {
            size_t count = exo_model_numel(t.part[r].model);
            float *slice = calloc(count, sizeof *slice);
            exo_part_take(t.whole.model, t.part[r].model, whole, slice);
            cr_expect_eq(memcmp(slice, exo_params_values(t.part[r].params), count * sizeof *slice),
                         0, "kind %zu, member %u", k, r);
            exo_part_put(t.whole.model, t.part[r].model, back, slice);
            free(slice);
        }
        cr_expect_eq(memcmp(back, whole, numel * sizeof *back), 0, "kind %zu", k);
        free(back);
        team_close(&t);
    }
}

/* A part has a share of what is cut, and all of the norms, the positions, and the biases that are
 * added after the sum over the members. */
Test(tensor_parallel, parameters_of_a_part_are_those_of_the_formula)
{
    exo_model *whole = build_named("gpt", "{layers: 2, width: 32, heads: 4, inner: 48, "
                                          "vocabulary: 101, context: 16}");
    const size_t W = 32, I = 48, L = 2, V = 101, T = 16;
    const size_t shared = T * W + 2 * W + L * (4 * W + 2 * W);
    const size_t cut = 3 * W * W + 3 * W + W * W + 2 * I * W + I;
    cr_expect_eq(exo_model_numel(whole), shared + V * W + L * cut);
    for (uint32_t members = 1; members <= MOST; members *= 2)
        for (uint32_t r = 0; r < members; r++) {
            exo_model *part = part_of(whole, r, members, false);
            size_t first, rows;
            exo_shard(V, members, r, &first, &rows);
            cr_expect_eq(exo_model_numel(part), shared + rows * W + L * cut / members);
            exo_model_drop(&part);
        }
    exo_model_drop(&whole);
}

/* --- Passes ----------------------------------------------------------------------------------- */

/* The largest difference, relative to the largest number. */
static double
distance(const float *got, const float *wanted, size_t count)
{
    double largest = 0, off = 0;
    for (size_t i = 0; i < count; i++) {
        double d = fabs((double)got[i] - (double)wanted[i]);
        largest = fmax(largest, fabs((double)wanted[i]));
        off = fmax(off, isnan(d) ? INFINITY : d);
    }
    return off / fmax(largest, 1e-6);
}

static void
expect_gradients(const struct team *t, size_t kind)
{
    const struct member *w = &t->whole;
    const exo_param_info *infos = exo_model_infos(w->model);
    float *all = calloc(exo_model_numel(w->model), sizeof *all);
    for (uint32_t r = 0; r < t->count; r++)
        exo_part_put(w->model, t->part[r].model, all, exo_params_grads(t->part[r].params));
    for (size_t i = 0; i < exo_model_num_infos(w->model); i++) {
        double off = distance(all + infos[i].offset, exo_params_grads(w->params) + infos[i].offset,
                              infos[i].numel);
        cr_expect_lt(off, TOLERANCE, "kind %zu, %u members: %s: off by %g", kind, t->count,
                     infos[i].name, off);
    }
    free(all);
}

/* What every member has whole stays equal: its gradients have the same bits. */
static void
expect_equal_copies(const struct team *t)
{
    const struct member *a = &t->part[0];
    const exo_param_info *infos = exo_model_infos(a->model);
    for (uint32_t r = 1; r < t->count; r++) {
        const struct member *b = &t->part[r];
        const exo_param_info *others = exo_model_infos(b->model);
        cr_expect_eq(a->loss[0], b->loss[0]);
        for (size_t i = 0; i < exo_model_num_infos(a->model); i++) {
            if (exo_model_cut(a->model, i))
                continue;
            cr_expect_eq(memcmp(exo_params_grads(a->params) + infos[i].offset,
                                exo_params_grads(b->params) + others[i].offset,
                                infos[i].numel * sizeof(float)),
                         0, "%s", infos[i].name);
        }
    }
}

/* Elements of norms and biases whose gradients are summed, because each member has a share: of the
 * tokens or, for norms of heads, of the heads. */
static double
shared_numel(const struct team *t)
{
    size_t numel = 0;
    const exo_model *part = t->part[0].model;
    const exo_param_info *infos = exo_model_infos(part);
    for (size_t i = 0; i < exo_model_num_infos(part); i++) {
        const bool of_heads =
            strstr(infos[i].name, ".q_norm.") || strstr(infos[i].name, ".k_norm.");
        if ((t->sequence || of_heads) && !exo_model_cut(part, i) &&
            strcmp(infos[i].name, "position.weight") != 0)
            numel += infos[i].numel;
    }
    return (double)numel;
}

/* All members together, in one forward and backward: sums of all rows after the embedding and twice
 * a block, and the same in backward, where the head's takes the place of the embedding's; two
 * numbers a row of the head. A block that a checkpoint runs again sums twice more. With sequence
 * parallelism a sum is a reduce-scatter and an all-gather, of the same bytes. */
static double
closed_form(const struct team *t)
{
    const exo_decoder_spec *s = exo_decoder_spec_of(t->whole.model);
    size_t again = s->checkpoint ? 2 * (s->layers - 1) : 0;
    double sums = 2 + 4.0 * (double)s->layers + (double)again, others = t->count - 1;
    return 2 * others * (sums * ROWS * (double)s->width + shared_numel(t)) * 4 +
           others * t->count * 2 * ROWS * 4;
}

static void
compare_with_whole(bool sequence)
{
    for (size_t k = 0; k < KINDS; k++)
        for (uint32_t members = 1; members <= MOST; members *= 2) {
            struct team t;
            double bytes = 0;
            team_open_as(&t, kinds[k], members, 0, sequence);
            team_run(&t);
            double off = fabs((double)t.part[0].loss[0] / (double)t.whole.loss[0] - 1);
            cr_expect_lt(off, TOLERANCE, "kind %zu, %u members: loss off by %g", k, members, off);
            expect_gradients(&t, k);
            expect_equal_copies(&t);
            for (uint32_t r = 0; r < members; r++)
                bytes += (double)exo_group_stats(t.part[r].group).bytes_sent;
            cr_expect_float_eq(bytes, closed_form(&t), 1e-3, "kind %zu, %u members: %.0f, not %.0f",
                               k, members, bytes, closed_form(&t));
            team_close(&t);
        }
}

Test(tensor_parallel, loss_gradients_and_bytes_are_those_of_the_whole)
{
    compare_with_whole(false);
}

Test(tensor_parallel, sequence_parts_have_loss_gradients_and_bytes_of_the_whole)
{
    compare_with_whole(true);
}

/* Sums over the members have the same order, so only gradients that are sums over rows differ. */
Test(tensor_parallel, sequence_parts_have_the_bits_of_other_parts)
{
    for (size_t k = 0; k < KINDS; k++) {
        struct team plain, rows;
        team_open(&plain, kinds[k], 2, 0);
        team_run(&plain);
        team_open_as(&rows, kinds[k], 2, 0, true);
        team_run(&rows);
        for (uint32_t r = 0; r < 2; r++) {
            const struct member *a = &plain.part[r], *b = &rows.part[r];
            const exo_param_info *infos = exo_model_infos(a->model);
            cr_expect_eq(a->loss[0], b->loss[0], "kind %zu: %.9g, not %.9g", k, b->loss[0],
                         a->loss[0]);
            for (size_t i = 0; i < exo_model_num_infos(a->model); i++)
                if (exo_model_cut(a->model, i) || strcmp(infos[i].name, "position.weight") == 0)
                    cr_expect_eq(memcmp(exo_params_grads(a->params) + infos[i].offset,
                                        exo_params_grads(b->params) + infos[i].offset,
                                        infos[i].numel * sizeof(float)),
                                 0, "kind %zu, member %u: %s", k, r, infos[i].name);
        }
        team_close(&rows);
        team_close(&plain);
    }
}

static void
follow_whole(bool sequence)
{
    for (size_t k = 0; k < KINDS; k++) {
        struct team t;
        team_open_as(&t, kinds[k], 2, STEPS, sequence);
        team_run(&t);
        for (int s = 0; s < STEPS; s++) {
            double off = fabs((double)t.part[0].loss[s] / (double)t.whole.loss[s] - 1);
            cr_expect_lt(off, TOLERANCE, "kind %zu, step %d: loss off by %g", k, s, off);
            cr_expect_eq(t.part[0].loss[s], t.part[1].loss[s]);
        }
        cr_expect_lt(t.whole.loss[STEPS - 1], t.whole.loss[0] - 0.1f, "it learns");
        team_close(&t);
    }
}

Test(tensor_parallel, training_follows_the_whole)
{
    follow_whole(false);
    follow_whole(true);
}

static void
run_without_targets(bool sequence)
{
    struct team t;
    team_open_as(&t, kinds[0], 2, 0, sequence);
    for (size_t i = 0; i < ROWS; i++)
        targets[i] = -1;
    team_run(&t);
    for (uint32_t r = 0; r < 2; r++) {
        const float *grads = exo_params_grads(t.part[r].params);
        cr_expect_eq(t.part[r].loss[0], 0);
        for (size_t i = 0; i < exo_params_numel(t.part[r].params); i++)
            cr_assert_eq(grads[i], 0);
    }
    team_close(&t);
}

Test(tensor_parallel, a_batch_without_targets_has_no_loss)
{
    run_without_targets(false);
    run_without_targets(true);
}

/* A gradient that goes to a sink has the bits of one that stays: the optimizer steps within
 * backward. */
static void
take(void *context, size_t first, size_t count, const float *grad)
{
    float *all = context;
    for (size_t i = 0; i < count; i++)
        all[first + i] += grad[i];
}

struct sunk {
    struct member *m;
    float *grads;
};

static void *
sunk_main(void *argument)
{
    struct sunk *s = argument;
    struct member *m = s->m;
    exo_batch batch = batch_of_rows();
    const exo_grad_sink sink = {.take = take, .context = s->grads};
    const exo_pass pass = {.train = true, .grad = true, .seed = 5, .sink = &sink};
    exo_tape_set_group(m->tape, m->group);
    exo_tape_begin(m->tape, m->params, &pass);
    exo_tensor *out = exo_model_loss(m->model, m->tape, &batch);
    m->status =
        out ? exo_tape_backward(m->tape, out, 1.0f, &m->err) : exo_tape_error(m->tape, &m->err);
    return NULL;
}

static void
sink_gradients(bool sequence)
{
    struct team t;
    struct sunk sunk[2];
    pthread_t threads[2];
    team_open_as(&t, kinds[0], 2, 0, sequence);
    team_run(&t);
    for (uint32_t r = 0; r < 2; r++) {
        sunk[r] = (struct sunk){
            .m = &t.part[r],
            .grads = calloc(exo_params_numel(t.part[r].params), sizeof *sunk[r].grads)};
        cr_assert_eq(pthread_create(&threads[r], NULL, sunk_main, &sunk[r]), 0);
    }
    for (uint32_t r = 0; r < 2; r++)
        pthread_join(threads[r], NULL);
    for (uint32_t r = 0; r < 2; r++) {
        cr_assert_eq(t.part[r].status, EXO_OK, "%s", t.part[r].err.text);
        cr_expect_lt(distance(sunk[r].grads, exo_params_grads(t.part[r].params),
                              exo_params_numel(t.part[r].params)),
                     1e-6);
        free(sunk[r].grads);
    }
    team_close(&t);
}

Test(tensor_parallel, gradients_may_go_to_a_sink)
{
    sink_gradients(false);
    sink_gradients(true);
}

/* --- What is refused -------------------------------------------------------------------------- */

Test(tensor_parallel, models_that_cannot_be_cut_are_refused)
{
    static const struct {
        const char *name, *options, *text;
        exo_status status;
    } cases[] = {
        {"mlp", "{in: 4, out: 2}", "needs a model of the class gpt, not 'mlp'", EXO_UNSUPPORTED},
        {"gpt", "{heads: 3, width: 24}", "must divide the model's heads", EXO_INVAL},
        {"gpt", "{heads: 4, kv_heads: 1}", "must divide the model's kv_heads", EXO_INVAL},
        {"gpt", "{inner: 33}", "must divide the model's inner", EXO_INVAL},
        {"gpt", "{vocabulary: 1}", "the vocabulary has only 1", EXO_INVAL},
        {"gpt", "{dropout: 0.1}", "dropout", EXO_UNSUPPORTED},
        {"gpt", "{position: alibi}", "alibi", EXO_UNSUPPORTED},
        {"gpt", "{lora: {rank: 2}}", "lora", EXO_UNSUPPORTED},
        {"gpt", "{frozen: position.weight}", "frozen", EXO_UNSUPPORTED},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        exo_model *whole = build_named(cases[i].name, cases[i].options), *part = NULL;
        exo_err err = {0};
        cr_expect_eq(exo_model_part(&part, whole, 0, 2, &err), cases[i].status, "%s",
                     cases[i].options);
        cr_expect(strstr(err.text, cases[i].text), "%s: %s", cases[i].options, err.text);
        cr_expect_null(part);
        exo_model_drop(&whole);
    }
}

Test(tensor_parallel, a_pass_needs_the_parts_group)
{
    struct team t;
    exo_err err = {0};
    exo_batch batch = batch_of_rows();
    team_open(&t, kinds[0], 2, 0);
    struct member *m = &t.part[1];
    exo_tape_begin(m->tape, m->params, &(exo_pass){.train = false});
    cr_expect_null(exo_model_loss(m->model, m->tape, &batch));
    cr_expect_eq(exo_tape_error(m->tape, &err), EXO_INVAL);
    cr_expect(strstr(err.text, "part 1 of 2 needs a group"), "%s", err.text);
    exo_tape_set_group(m->tape, t.part[0].group);
    exo_tape_begin(m->tape, m->params, &(exo_pass){.train = false});
    cr_expect_null(exo_model_loss(m->model, m->tape, &batch));
    cr_expect_eq(exo_tape_error(m->tape, &err), EXO_INVAL);
    cr_expect(strstr(err.text, "part 1 of 2 in a pass of member 0 of 2"), "%s", err.text);
    exo_tape_set_group(m->tape, NULL);
    team_close(&t);
}

Test(tensor_parallel, sequences_are_cut_evenly)
{
    struct team t;
    exo_err err = {0};
    exo_batch batch = batch_of_rows();
    batch.fields[0].dims[0] = batch.fields[1].dims[0] = LENGTH - 1;
    team_open_as(&t, kinds[0], 2, 0, true);
    struct member *m = &t.part[0];
    exo_tape_set_group(m->tape, m->group);
    exo_tape_begin(m->tape, m->params, &(exo_pass){.train = false});
    cr_expect_null(exo_model_loss(m->model, m->tape, &batch));
    cr_expect_eq(exo_tape_error(m->tape, &err), EXO_INVAL);
    cr_expect(strstr(err.text, "it must divide sequences of 11 tokens"), "%s", err.text);
    exo_tape_set_group(m->tape, NULL);
    team_close(&t);
}

/* A rehearsal counts the memory of a part's pass without a group. A part takes less than the whole, and
 * with sequence parallelism less than without. */
Test(tensor_parallel, a_rehearsal_needs_no_group)
{
    for (size_t k = 0; k < KINDS; k++) {
        exo_model *whole = build_named("gpt", kinds[k]);
        exo_model *models[] = {whole, part_of(whole, 1, 4, false), part_of(whole, 1, 4, true)};
        exo_dataset *data = token_rows_new(64, LENGTH, 64);
        const exo_pass pass = {.train = true, .grad = true};
        exo_pass_memory memory[3];
        exo_err err = {0};
        for (size_t i = 0; i < 3; i++)
            cr_assert_eq(exo_model_pass_memory(models[i], &pass, data, 64, &memory[i], &err),
                         EXO_OK, "%s", err.text);
        cr_expect_lt(memory[1].tape, memory[0].tape, "kind %zu: %zu, %zu", k, memory[1].tape,
                     memory[0].tape);
        cr_expect_lt(memory[2].tape, memory[1].tape, "kind %zu: %zu, %zu", k, memory[2].tape,
                     memory[1].tape);
        exo_dataset_drop(&data);
        for (size_t i = 0; i < 3; i++)
            exo_model_drop(&models[i]);
    }
}
