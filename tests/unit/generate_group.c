/* Generators that share a decoder (exo_generator_opts.group): parts over 2 and 4 threads have the
 * tokens, log-probabilities and logits of one generator with the whole decoder, to the bit, in every
 * format of weights; they send what the closed form says; and their receivers take updates cut to their
 * part, all or none of them. All of it on the CPU and, where it is built, on the emulated GPU
 * (tests/cuda), whose updates come as bytes or in its memory. Each member's thread owns its
 * `struct member`. Read next: nn/cpu/decoder_pass.c, nn/cuda/decoder.cu. */
#include <criterion/criterion.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <exogym/exogym.h>
#include <exogym/parallel.h>

#include "support/sanitized.h"
#include "support/updates.h"
#ifdef EXO_TEST_CUDA
#include <exogym/ipc.h>

#include "cuda/emulator.h"
#include "nn/cuda/engine.h"
#include "nn/cuda/open.h"
#endif

enum {
    MOST = 4, /* members */
    SEQUENCES = 3,
    CONTEXT = 12,
    NEW_TOKENS = 5,
    TEXT = 7, /* tokens whose logits are compared */
    VOCABULARY = 101
};

/* Layers of GPT-2, LLaMA with fewer key-value heads, BLOOM, and Qwen3. 101 elements of the vocabulary are no
 * multiple of the members. */
static const struct {
    const char *options;
    size_t layers, width, mixed, inner; /* mixed: heads x the head's width */
} kinds[] = {
    {"{layers: 2, width: 32, heads: 4, inner: 48, vocabulary: 101, context: 12}", 2, 32, 32, 48},
    {"{layers: 2, width: 24, heads: 8, kv_heads: 4, head_width: 6, inner: 40, vocabulary: 101, "
     "context: 12, position: rotary, norm: rms, activation: silu, gated: true, bias: false, "
     "tied: false}",
     2, 24, 48, 40},
    {"{layers: 1, width: 32, heads: 4, inner: 64, vocabulary: 101, context: 12, position: alibi}",
     1, 32, 32, 64},
    {"{layers: 1, width: 24, heads: 8, kv_heads: 4, head_width: 10, inner: 40, vocabulary: 101, "
     "context: 12, position: rotary, norm: rms, gated: true, bias: false, qk_norm: true}",
     1, 24, 80, 40},
};
enum {
    KINDS = sizeof kinds / sizeof *kinds
};

/* Where decoders compute, and what moves the members' numbers. */
typedef enum where {
    ON_CPU,
    ON_GPU,      /* over the host */
    ON_GPU_THERE /* by the engine `gpu` */
} where;

static exo_device *
open_device(where place)
{
    exo_device *device = exo_device_cpu();
#ifdef EXO_TEST_CUDA
    if (place != ON_CPU && exo_cuda_open(&device, 0, NULL) != EXO_OK)
        abort(); /* on a member's thread */
#endif
    (void)place;
    return device;
}

static void
close_device(exo_device *device)
{
#ifdef EXO_TEST_CUDA
    if (!exo_device_is_host(device))
        exo_cuda_close(device);
#endif
    (void)device;
}

static exo_comm *
open_comm(where place, uint32_t count, const exo_clock *clock)
{
    exo_comm *comm = NULL;
    exo_err err = {0};
#ifdef EXO_TEST_CUDA
    const exo_engine_class *engine = NULL;
    const exo_engine_opts opts = {.size = count, .clock = clock, .key = "group"};
    if (place == ON_GPU_THERE) {
        cr_assert(exo_cuda_engine_register(&err) == EXO_OK || err.code == EXO_EXISTS);
        cr_assert_eq(exo_engine_find(&engine, "gpu", &err), EXO_OK, "%s", err.text);
        cr_assert_eq(exo_comm_open(&comm, engine, &opts, &err), EXO_OK, "%s", err.text);
        return comm;
    }
#endif
    (void)place;
    cr_assert_eq(exo_comm_local(&comm, count, clock, &err), EXO_OK, "%s", err.text);
    return comm;
}

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

/* --- Generation ------------------------------------------------------------------------------- */

struct generated {
    int32_t tokens[SEQUENCES][CONTEXT];
    float log_probs[SEQUENCES][CONTEXT];
    float logits[TEXT * VOCABULARY];
};

/* Prompts of several lengths, of which some steps compute only a part. */
static exo_status
generate(exo_generator *g, struct generated *out, exo_err *err)
{
    const exo_sampling sampling = {.temperature = 0.9f, .max_new_tokens = NEW_TOKENS, .seed = 5};
    int32_t prompt[CONTEXT];
    exo_generated done;
    exo_status st = EXO_OK;
    memset(out, 0, sizeof *out);
    for (uint64_t id = 0; st == EXO_OK && id < SEQUENCES; id++) {
        for (size_t i = 0; i < CONTEXT; i++)
            prompt[i] = (int32_t)((i * 37 + id * 11) % VOCABULARY);
        st = exo_generator_submit(g, id, prompt, 1 + 3 * id, &sampling, err);
    }
    while (st == EXO_OK && exo_generator_active(g) > 0)
        st = exo_generator_step(g, err);
    while (st == EXO_OK && exo_generator_take(g, &done)) {
        memcpy(out->tokens[done.id], done.tokens, done.length * sizeof *done.tokens);
        memcpy(out->log_probs[done.id], done.log_probs,
               (done.length - done.prompt) * sizeof *done.log_probs);
    }
    return st == EXO_OK ? exo_generator_logits(g, prompt, TEXT, out->logits, err) : st;
}

struct member {
    const exo_model *whole;
    exo_weight_format format;
    where place;
    exo_device *device;
    exo_group *group;
    struct generated out;
    bool leaves;   /* instead of generating */
    uint64_t sent; /* bytes of the logits of TEXT tokens */
    /* Of updates. */
    exo_model *sent_model;
    const kept_update *updates[3];
    exo_update_reply replies[3];
    bool early; /* an update was ready before the group had agreed */
    exo_status status;
    exo_err err;
};

static exo_status
make_part(struct member *m, exo_model **part, exo_params **params, exo_generator **generator)
{
    const exo_generator_opts opts = {
        .weights = m->format, .sequences = SEQUENCES + 1, .step_tokens = 8, .group = m->group};
    exo_status st = exo_model_output_part(part, m->whole, exo_group_rank(m->group),
                                          exo_group_size(m->group), &m->err);
    m->device = open_device(m->place);
    if (st == EXO_OK)
        st = exo_model_values(*part, 7, params, &m->err);
    if (st == EXO_OK)
        st = exo_params_move(params, m->device, &m->err);
    return st == EXO_OK ? exo_generator_new(generator, exo_decoder_spec_of(m->whole), *params,
                                            &opts, &m->err)
                        : st;
}

static void *
generate_main(void *argument)
{
    struct member *m = argument;
    exo_model *part = NULL;
    exo_params *params = NULL;
    exo_generator *g = NULL;
    int32_t text[TEXT] = {5, 100, 0, 17, 50, 51, 99};
    static _Thread_local float logits[TEXT * VOCABULARY];
    m->status = make_part(m, &part, &params, &g);
    if (m->status == EXO_OK && m->leaves)
        m->status = exo_fail(&m->err, EXO_CANCELLED, "it leaves");
    if (m->status == EXO_OK)
        m->status = generate(g, &m->out, &m->err);
    m->sent = exo_group_stats(m->group).bytes_sent;
    if (m->status == EXO_OK)
        m->status = exo_generator_logits(g, text, TEXT, logits, &m->err);
    m->sent = exo_group_stats(m->group).bytes_sent - m->sent;
    exo_generator_free(&g);
    exo_params_free(&params);
    exo_model_drop(&part);
    if (m->leaves)
        exo_group_close(&m->group);
    close_device(m->device);
    return NULL;
}

/* Runs `body` on a thread for each member of a group, up to its end or its error. */
static void
let_members(struct member *members, uint32_t count, void *(*body)(void *))
{
    exo_clock_manual clock; /* never advances: nothing times out */
    exo_comm *comm = NULL;
    pthread_t threads[MOST];
    exo_clock_manual_init(&clock, 0);
    comm = open_comm(members[0].place, count, &clock.base);
    for (uint32_t r = 0; r < count; r++)
        cr_assert_eq(exo_group_open(&members[r].group, comm, r, "member", NULL), EXO_OK);
    for (uint32_t r = 0; r < count; r++)
        cr_assert_eq(pthread_create(&threads[r], NULL, body, &members[r]), 0);
    for (uint32_t r = 0; r < count; r++)
        pthread_join(threads[r], NULL);
    for (uint32_t r = 0; r < count; r++)
        exo_group_close(&members[r].group);
    exo_comm_drop(&comm);
}

static void
run_members(struct member *members, uint32_t count, void *(*body)(void *))
{
    let_members(members, count, body);
    for (uint32_t r = 0; r < count; r++)
        cr_assert_eq(members[r].status, EXO_OK, "member %u: %s", r, members[r].err.text);
}

/* What all members send for the logits of n rows: one sum of the embeddings, four gathers a block, and
 * the logits. */
static uint64_t
closed_form(size_t kind, uint64_t t, uint64_t rows)
{
    uint64_t width = kinds[kind].width, tokens = (VOCABULARY + t - 1) / t * t;
    uint64_t block = kinds[kind].mixed + kinds[kind].inner + 2 * width;
    return 4 * (t - 1) * rows * (2 * width + kinds[kind].layers * block + tokens);
}

#ifdef EXO_TEST_CUDA
/* What CUDA refuses the members; n 0: nothing. */
static struct {
    cuda_graph_call call;
    uint64_t n, times;
} refusal;
#endif

static void
expect_whole(where place, size_t kind, exo_weight_format format, uint32_t count)
{
    exo_model *whole = build(kinds[kind].options);
    exo_device *device = open_device(place);
    exo_params *params = NULL;
    exo_generator *g = NULL;
    exo_err err = {0};
    struct member *members = calloc(MOST, sizeof *members);
    struct generated *wanted = calloc(1, sizeof *wanted);
    const exo_generator_opts opts = {.weights = format, .sequences = SEQUENCES + 1};
    cr_assert_eq(exo_model_values(whole, 7, &params, &err), EXO_OK, "%s", err.text);
    cr_assert_eq(exo_params_move(&params, device, &err), EXO_OK, "%s", err.text);
    cr_assert_eq(exo_generator_new(&g, exo_decoder_spec_of(whole), params, &opts, &err), EXO_OK,
                 "%s", err.text);
    cr_assert_eq(generate(g, wanted, &err), EXO_OK, "%s", err.text);
    for (uint32_t r = 0; r < count; r++)
        members[r] = (struct member){.whole = whole, .format = format, .place = place};
#ifdef EXO_TEST_CUDA
    const uint64_t graphs = cuda_emulator_graphs(), failed = cuda_emulator_failed_graphs();
    cuda_emulator_fail_graph(refusal.call, refusal.n, refusal.times);
#endif
    run_members(members, count, generate_main);
#ifdef EXO_TEST_CUDA
    cuda_emulator_fail_graph(refusal.call, 0, 0);
    cr_expect(refusal.n == 0 || cuda_emulator_failed_graphs() > failed);
    if (place != ON_CPU &&
        refusal.times <= 1) /* of one step at least: between two calls of the group each */
        cr_expect_geq(cuda_emulator_graphs() - graphs, count * (4 * kinds[kind].layers + 2));
#endif
    uint64_t sent = 0;
    for (uint32_t r = 0; r < count; r++) {
        cr_expect_eq(memcmp(&members[r].out, wanted, sizeof *wanted), 0,
                     "place %d, kind %zu, format %d, member %u of %u", (int)place, kind,
                     (int)format, r, count);
        sent += members[r].sent;
    }
    cr_expect_eq(sent, closed_form(kind, count, TEXT), "kind %zu, %u members: %llu bytes", kind,
                 count, (unsigned long long)sent);
    exo_generator_free(&g);
    exo_params_free(&params);
    exo_model_drop(&whole);
    close_device(device);
    free(members);
    free(wanted);
}

Test(generate_group, members_have_the_bits_of_one_generator)
{
    for (size_t kind = 0; kind < KINDS; kind++)
        for (int format = EXO_WEIGHTS_F32; format <= EXO_WEIGHTS_INT4; format++)
            for (uint32_t count = 1; count <= MOST; count *= 2)
                expect_whole(ON_CPU, kind, (exo_weight_format)format, count);
}

/* The other member ends with the reason, and without tokens. */
static void
expect_left(where place)
{
    exo_model *whole = build(kinds[0].options);
    struct member *members = calloc(2, sizeof *members);
    for (uint32_t r = 0; r < 2; r++)
        members[r] = (struct member){.whole = whole, .place = place, .leaves = r == 1};
    let_members(members, 2, generate_main);
    cr_expect_eq(members[0].status, EXO_PEER_LOST, "%s", members[0].err.text);
    cr_expect(strstr(members[0].err.text, "generation by 2 makers"), "%s", members[0].err.text);
    cr_expect_eq(members[0].out.log_probs[0][0], 0);
    exo_model_drop(&whole);
    free(members);
}

Test(generate_group, a_member_that_leaves_ends_generation)
{
    expect_left(ON_CPU);
}

Test(generate_group, what_cannot_be_cut_is_named)
{
    exo_model *whole = build(kinds[0].options), *part = NULL;
    exo_err err = {0};
    cr_expect_eq(exo_model_output_part(&part, whole, 0, 3, &err), EXO_INVAL);
    cr_expect(strstr(err.text, "heads (4)"), "%s", err.text);
    exo_model_drop(&whole);
    whole = build("{layers: 1, width: 32, heads: 4, dropout: 0.1, vocabulary: 16, context: 12}");
    cr_expect_eq(exo_model_output_part(&part, whole, 0, 2, &err), EXO_UNSUPPORTED);
    cr_expect(strstr(err.text, "dropout"), "%s", err.text);
    exo_model_drop(&whole);
}

/* --- Updates ---------------------------------------------------------------------------------- */

/* Gives the updates to a receiver of the part, and generates with what it has then. */
static void *
update_main(void *argument)
{
    struct member *m = argument;
    exo_model *part = NULL;
    exo_params *params = NULL;
    exo_generator *g = NULL;
    exo_update_receiver *receiver = NULL;
    m->status = make_part(m, &part, &params, &g);
    const exo_update_receiver_opts opts = {.generator = g, .part = part};
    if (m->status == EXO_OK)
        m->status = exo_update_receiver_new(&receiver, m->sent_model, NULL, &opts, &m->err);
    for (size_t u = 0; m->status == EXO_OK && u < 3 && m->updates[u]; u++) {
        exo_update_reply *reply = &m->replies[u];
        *reply = (exo_update_reply){0};
        for (size_t i = 0; i < m->updates[u]->count && reply->answer == EXO_UPDATE_NONE; i++)
            exo_update_receive(receiver, m->updates[u]->bytes[i], m->updates[u]->size[i], reply,
                               NULL);
        m->early = m->early || exo_update_is_ready(receiver);
        m->status = exo_update_agree(receiver, reply, &m->err);
        exo_update_swap(receiver);
    }
    if (m->status == EXO_OK)
        m->status = generate(g, &m->out, &m->err);
    exo_update_receiver_free(&receiver);
    exo_generator_free(&g);
    exo_params_free(&params);
    exo_model_drop(&part);
    close_device(m->device);
    return NULL;
}

/* A trainer with a sender of a form. */
struct trainer {
    exo_model *model;
    where place;
    exo_device *device;
    exo_params *params, *there; /* that it learns, on the host; the same on the device */
    exo_update_sender *sender;
    struct generated wanted;
};

static struct trainer *
trainer_new(where place, exo_update_form form)
{
    static const exo_weight_format fp32 = EXO_WEIGHTS_F32;
    const exo_update_sender_opts opts = {
        .form = form, .canaries = &fp32, .num_canaries = 1, .chunk_bytes = 4096};
    struct trainer *t = calloc(1, sizeof *t);
    exo_err err = {0};
    t->model = build(kinds[0].options);
    t->place = place;
    t->device = open_device(place);
    cr_assert_eq(exo_model_values(t->model, 9, &t->params, &err), EXO_OK, "%s", err.text);
    cr_assert_eq(exo_params_to(&t->there, t->params, t->device, &err), EXO_OK, "%s", err.text);
    cr_assert_eq(exo_update_sender_new(&t->sender, t->model, &opts, &err), EXO_OK, "%s", err.text);
    return t;
}

/* The update to a next version. */
static void
learn(struct trainer *t, uint64_t version, kept_update *out)
{
    exo_err err = {0};
    updates_learn(t->params, 1, version);
    cr_assert_eq(
        exo_array_write(exo_params_values_array(t->there), exo_params_values(t->params), &err),
        EXO_OK, "%s", err.text);
    cr_assert_eq(exo_update_sender_stage(t->sender, t->there, version, &err), EXO_OK, "%s",
                 err.text);
    updates_keep(out, t->sender, "maker");
}

/* What one generator with the weights of a receiver of the whole model gives. */
static void
want(struct trainer *t, const kept_update *u)
{
    exo_update_receiver *receiver = NULL;
    exo_generator *g = NULL;
    exo_update_reply reply = {0};
    exo_err err = {0};
    const exo_generator_opts opts = {.sequences = SEQUENCES + 1};
    const exo_update_receiver_opts there = {.device = t->device};
    cr_assert_eq(exo_update_receiver_new(&receiver, t->model, NULL, &there, &err), EXO_OK);
    for (size_t i = 0; i < u->count; i++)
        cr_assert_eq(exo_update_receive(receiver, u->bytes[i], u->size[i], &reply, &err), EXO_OK,
                     "%s", err.text);
    cr_assert(exo_update_swap(receiver));
    cr_assert_eq(exo_generator_new(&g, exo_decoder_spec_of(t->model), exo_update_params(receiver),
                                   &opts, &err),
                 EXO_OK, "%s", err.text);
    cr_assert_eq(generate(g, &t->wanted, &err), EXO_OK, "%s", err.text);
    exo_generator_free(&g);
    exo_update_receiver_free(&receiver);
}

static void
trainer_free(struct trainer *t)
{
    exo_update_sender_free(&t->sender);
    exo_params_free(&t->there);
    exo_params_free(&t->params);
    exo_model_drop(&t->model);
    close_device(t->device);
    free(t);
}

static void
expect_updates(where place, exo_update_form form)
{
    struct trainer *t = trainer_new(place, form);
    struct member *members = calloc(MOST, sizeof *members);
    kept_update first, second;
    learn(t, 1, &first);
    learn(t, 2, &second);
    want(t, &second);
    for (uint32_t r = 0; r < 2; r++)
        members[r] = (struct member){.whole = t->model,
                                     .place = place,
                                     .sent_model = t->model,
                                     .updates = {&first, &second}};
    run_members(members, 2, update_main);
    for (uint32_t r = 0; r < 2; r++) {
        cr_expect_eq(members[r].replies[1].answer, EXO_UPDATE_ACCEPTED, "%s",
                     members[r].replies[1].text);
        cr_expect_eq(memcmp(&members[r].out, &t->wanted, sizeof t->wanted), 0, "form %s, member %u",
                     exo_update_form_name(form), r);
    }
    updates_release(&first);
    updates_release(&second);
    trainer_free(t);
    free(members);
}

Test(generate_group, updates_are_cut_and_proved)
{
    static const exo_update_form forms[] = {EXO_UPDATE_WHOLE, EXO_UPDATE_BF16, EXO_UPDATE_INT8};
    for (size_t f = 0; f < sizeof forms / sizeof *forms; f++)
        expect_updates(ON_CPU, forms[f]);
}

/* A member whose update is damaged refuses it, and so does the other one, which got it whole. */
Test(generate_group, an_update_is_taken_by_all_or_none)
{
    struct trainer *t = trainer_new(ON_CPU, EXO_UPDATE_WHOLE);
    struct member *members = calloc(MOST, sizeof *members);
    kept_update first, second, damaged;
    learn(t, 1, &first);
    want(t, &first);
    learn(t, 2, &second);
    learn(t, 3, &damaged);
    damaged.bytes[1][damaged.size[1] / 2] ^= 1;
    for (uint32_t r = 0; r < 2; r++)
        members[r] = (struct member){.whole = t->model,
                                     .sent_model = t->model,
                                     .updates = {&first, r == 0 ? &second : &damaged}};
    run_members(members, 2, update_main);
    for (uint32_t r = 0; r < 2; r++) {
        cr_expect_eq(members[r].replies[0].answer, EXO_UPDATE_ACCEPTED);
        cr_expect_eq(members[r].replies[1].answer, EXO_UPDATE_REFUSED);
        cr_expect_eq(memcmp(&members[r].out, &t->wanted, sizeof t->wanted), 0, "member %u", r);
    }
    cr_expect(strstr(members[0].replies[1].text, "refused by 1 of the other 1 members"), "%s",
              members[0].replies[1].text);
    updates_release(&first);
    updates_release(&second);
    updates_release(&damaged);
    trainer_free(t);
    free(members);
}

/* Two good updates of different versions are not one. */
Test(generate_group, members_agree_on_one_version)
{
    struct trainer *t = trainer_new(ON_CPU, EXO_UPDATE_WHOLE);
    struct member *members = calloc(MOST, sizeof *members);
    kept_update first, second, third;
    learn(t, 1, &first);
    want(t, &first);
    learn(t, 2, &second);
    learn(t, 3, &third);
    for (uint32_t r = 0; r < 2; r++)
        members[r] = (struct member){.whole = t->model,
                                     .sent_model = t->model,
                                     .updates = {&first, r == 0 ? &second : &third}};
    run_members(members, 2, update_main);
    for (uint32_t r = 0; r < 2; r++) {
        cr_expect_not(members[r].early, "ready before the group has agreed");
        cr_expect_eq(members[r].replies[0].answer, EXO_UPDATE_ACCEPTED);
        cr_expect_eq(members[r].replies[1].answer, EXO_UPDATE_REFUSED);
        cr_expect_eq(memcmp(&members[r].out, &t->wanted, sizeof t->wanted), 0, "member %u", r);
    }
    updates_release(&first);
    updates_release(&second);
    updates_release(&third);
    trainer_free(t);
    free(members);
}

/* A part that is cut by inputs, as training cuts, is not one of a receiver. */
Test(generate_group, a_part_of_another_cut_is_refused)
{
    struct trainer *t = trainer_new(ON_CPU, EXO_UPDATE_WHOLE);
    exo_model *part = NULL;
    exo_update_receiver *receiver = NULL;
    exo_err err = {0};
    cr_assert_eq(exo_model_part(&part, t->model, 0, 2, &err), EXO_OK, "%s", err.text);
    const exo_update_receiver_opts opts = {.part = part};
    cr_expect_eq(exo_update_receiver_new(&receiver, t->model, NULL, &opts, &err), EXO_INVAL);
    cr_expect(strstr(err.text, "exo_model_output_part"), "%s", err.text);
    exo_model_drop(&part);
    trainer_free(t);
}

Test(generate_group, changes_are_refused_by_name)
{
    struct trainer *t = trainer_new(ON_CPU, EXO_UPDATE_DELTA);
    struct member *members = calloc(MOST, sizeof *members);
    kept_update first, second;
    exo_update_reply accepted = {.answer = EXO_UPDATE_ACCEPTED, .version = 1, .have = 1};
    exo_err err = {0};
    learn(t, 1, &first);
    snprintf(accepted.state, sizeof accepted.state, "%s", exo_update_sender_state(t->sender));
    cr_assert_eq(exo_update_sender_reply(t->sender, "maker", &accepted, &err), EXO_OK, "%s",
                 err.text);
    learn(t, 2, &second);
    for (uint32_t r = 0; r < 2; r++)
        members[r] = (struct member){
            .whole = t->model, .sent_model = t->model, .updates = {&first, &second}};
    run_members(members, 2, update_main);
    for (uint32_t r = 0; r < 2; r++) {
        cr_expect_eq(members[r].replies[0].answer, EXO_UPDATE_ACCEPTED);
        cr_expect_eq(members[r].replies[1].code, EXO_UNSUPPORTED);
        cr_expect(strstr(members[r].replies[1].text, "update.form to whole, bf16 or int8"), "%s",
                  members[r].replies[1].text);
    }
    updates_release(&first);
    updates_release(&second);
    trainer_free(t);
    free(members);
}

/* --- GPUs ------------------------------------------------------------------------------------- */

#ifdef EXO_TEST_CUDA

static void
expect_nothing_left(void)
{
    cr_expect_eq(exo_ipc_array_count(), 0);
    cr_expect_eq(cuda_emulator_memory(), 0);
    cr_expect_eq(cuda_emulator_things(), 0);
}

Test(generate_group, on_a_gpu_members_have_the_bits_of_one_generator)
{
    static const struct {
        where place;
        size_t kind;
        exo_weight_format format;
        uint32_t count;
    } cases[] = {{ON_GPU_THERE, 1, EXO_WEIGHTS_F32, 2},
                 {ON_GPU, 0, EXO_WEIGHTS_F32, 2},
                 {ON_GPU_THERE, 2, EXO_WEIGHTS_INT4, 2},
                 {ON_GPU_THERE, 0, EXO_WEIGHTS_INT8, 4},
                 {ON_GPU, 3, EXO_WEIGHTS_F32, 2}};
    cuda_emulator_seed(3);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i += one_of(2))
        expect_whole(cases[i].place, cases[i].kind, cases[i].format, cases[i].count);
    expect_nothing_left();
}

/* CUDA refuses a graph, at the start of a pass and behind calls of the group: each call is made once. */
Test(generate_group, on_a_gpu_graphs_that_are_refused_change_no_bits)
{
    static const cuda_graph_call calls[] = {CUDA_BEGIN_CAPTURE, CUDA_IN_CAPTURE, CUDA_END_CAPTURE,
                                            CUDA_INSTANTIATE, CUDA_LAUNCH_GRAPH};
    static const uint64_t places[] = {1, 4, 9, 1};
    cuda_emulator_seed(6);
    for (size_t c = 0; c < sizeof calls / sizeof *calls; c++)
        for (size_t n = 0; n < 4; n += one_of(2)) {
            refusal.call = calls[c];
            refusal.n = places[n];
            refusal.times = n < 3 ? 1 : 1000;
            expect_whole(n % 2 ? ON_GPU : ON_GPU_THERE, 0, EXO_WEIGHTS_F32, 2);
        }
    refusal.n = 0;
    expect_nothing_left();
}

Test(generate_group, on_a_gpu_updates_are_cut_and_proved)
{
    cuda_emulator_seed(4);
    expect_updates(ON_GPU_THERE, EXO_UPDATE_INT8);
    expect_nothing_left();
}

Test(generate_group, on_a_gpu_a_member_that_leaves_ends_generation)
{
    expect_left(ON_GPU);
    expect_left(ON_GPU_THERE);
    expect_nothing_left();
}

/* An update in the GPU's memory, of which each member keeps its rows. */
Test(generate_group, members_take_their_rows_from_the_memory_of_a_gpu)
{
    cuda_emulator_seed(5);
    struct trainer *t = trainer_new(ON_GPU, EXO_UPDATE_WHOLE);
    struct member *members = calloc(MOST, sizeof *members);
    const exo_update_reply near = {.answer = EXO_UPDATE_NEED_WHOLE,
                                   .place = exo_ipc_place(t->device)};
    kept_update only;
    exo_err err = {0};
    cr_assert_eq(exo_update_sender_reply(t->sender, "maker", &near, &err), EXO_OK, "%s", err.text);
    learn(t, 1, &only);
    cr_assert_eq(only.count, 1, "the values are in chunks");
    want(t, &only);
    for (uint32_t r = 0; r < 2; r++)
        members[r] = (struct member){
            .whole = t->model, .place = ON_GPU, .sent_model = t->model, .updates = {&only}};
    run_members(members, 2, update_main);
    for (uint32_t r = 0; r < 2; r++) {
        cr_expect_eq(members[r].replies[0].answer, EXO_UPDATE_ACCEPTED, "%s",
                     members[r].replies[0].text);
        cr_expect_eq(members[r].replies[0].place, near.place);
        cr_expect_eq(memcmp(&members[r].out, &t->wanted, sizeof t->wanted), 0, "member %u", r);
    }
    updates_release(&only);
    trainer_free(t);
    free(members);
    expect_nothing_left();
}

#endif
