/* Weight updates from a trainer to a maker in two processes that share an emulated GPU: the values go
 * from device memory to device memory, and have the bits of updates by chunks, between CPUs and in one
 * process. Either side is killed; memory cannot be opened; what arrives is altered. Read next:
 * nn/updates/incoming.c, unit/cuda_share. */
#include <criterion/criterion.h>

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <exogym/exogym.h>
#include <exogym/ipc.h>

#include "cuda/emulator.h"
#include "nn/cuda/open.h"
#include "nn/updates/sender.h"
#include "support/sanitized.h"
#include "support/small_decoders.h"
#include "support/updates.h"

enum {
    KIND = 0,
    VERSIONS = SANITIZED ? 2 : 4,
    MOST = 1 << 22 /* bytes of a message */
};

static exo_device *
open_gpu(void)
{
    exo_device *device = NULL;
    exo_err err = {0};
    cr_assert_eq(exo_cuda_open(&device, 0, &err), EXO_OK, "%s", err.text);
    return device;
}

/* --- Messages --------------------------------------------------------------------------------- */

static void
give(int to, const void *bytes, size_t size)
{
    const char *at = bytes;
    cr_assert_eq(write(to, &size, sizeof size), (ssize_t)sizeof size);
    for (ssize_t n; size > 0; at += n, size -= (size_t)n) {
        n = write(to, at, size);
        cr_assert_gt(n, 0);
    }
}

/* False: the other process has ended. */
static bool
take(int from, void *bytes, size_t *size)
{
    char *at = bytes;
    if (read(from, size, sizeof *size) != (ssize_t)sizeof *size || *size > MOST)
        return false;
    for (size_t left = *size; left > 0;) {
        ssize_t n = read(from, at, left);
        if (n <= 0)
            return false;
        at += n;
        left -= (size_t)n;
    }
    return true;
}

/* --- The maker -------------------------------------------------------------------------------- */

typedef enum maker_kind {
    MAKER_ON_CPU,
    MAKER_ON_GPU,
    MAKER_WITH_GENERATOR,
    MAKER_ON_OTHER_GPU /* that it alone sees */
} maker_kind;

/* Takes chunks, and gives its replies; after a swap also the SHA-256 of its values. */
static void
run_maker(maker_kind kind, int from, int to)
{
    static char bytes[MOST];
    size_t size = 0;
    small_decoder d;
    exo_update_receiver *r = NULL;
    exo_generator *generator = NULL;
    exo_params *there = NULL;
    exo_update_reply reply;
    uint8_t out[EXO_UPDATE_REPLY_BYTES];
    char sha[65];
    const exo_decoder_spec spec = small_decoder_spec(KIND);
    exo_device *gpu = NULL;
    small_decoder_new(&d, &spec, 1);
    if (kind == MAKER_ON_OTHER_GPU)
        cuda_emulator_set_first(1);
    if (kind != MAKER_ON_CPU)
        gpu = open_gpu();
    if (kind == MAKER_WITH_GENERATOR) {
        cr_assert_eq(exo_params_to(&there, d.params, gpu, NULL), EXO_OK);
        cr_assert_eq(exo_generator_new(&generator, &spec, there,
                                       &(exo_generator_opts){.sequences = 1}, NULL),
                     EXO_OK);
    }
    const exo_update_receiver_opts opts = {.device = gpu, .generator = generator};
    cr_assert_eq(exo_update_receiver_new(&r, d.model, d.params, &opts, NULL), EXO_OK);
    exo_update_greet(r, &reply);
    exo_update_reply_write(&reply, out);
    give(to, out, sizeof out);
    while (take(from, bytes, &size)) {
        exo_update_receive(r, bytes, size, &reply, NULL);
        if (reply.answer == EXO_UPDATE_NONE)
            continue;
        exo_update_swap(r);
        exo_update_reply_write(&reply, out);
        exo_params_sha256(exo_update_params(r), sha, NULL);
        give(to, out, sizeof out);
        give(to, sha, sizeof sha);
    }
    exo_update_receiver_free(&r);
    exo_generator_free(&generator);
    exo_params_free(&there);
    small_decoder_free(&d);
    if (gpu)
        exo_cuda_close(gpu);
    cr_assert(exo_ipc_array_count() == 0 && cuda_emulator_memory() == 0);
}

/* --- The trainer ------------------------------------------------------------------------------ */

typedef struct trainer {
    pid_t maker;
    int to, from;
    small_decoder learned; /* on the host */
    exo_device *gpu;
    exo_params *params; /* on the GPU */
    exo_update_sender *sender;
    uint64_t bytes, handed; /* of all updates */
} trainer;

/* Starts the maker before anything of CUDA. */
static void
begin(trainer *t, maker_kind kind, exo_update_form form)
{
    int there[2], back[2];
    static const exo_weight_format canary = EXO_WEIGHTS_F32;
    const exo_update_sender_opts opts = {
        .form = form, .canaries = &canary, .num_canaries = kind == MAKER_WITH_GENERATOR};
    const exo_decoder_spec spec = small_decoder_spec(KIND);
    *t = (trainer){0};
    cr_assert(pipe(there) == 0 && pipe(back) == 0);
    t->maker = fork();
    cr_assert_geq(t->maker, 0);
    if (t->maker == 0) {
        close(there[1]);
        close(back[0]);
        run_maker(kind, there[0], back[1]);
        _exit(0);
    }
    close(there[0]);
    close(back[1]);
    t->to = there[1];
    t->from = back[0];
    t->gpu = open_gpu();
    small_decoder_new(&t->learned, &spec, 1);
    cr_assert_eq(exo_params_to(&t->params, t->learned.params, t->gpu, NULL), EXO_OK);
    cr_assert_eq(exo_update_sender_new(&t->sender, t->learned.model, &opts, NULL), EXO_OK);
}

static exo_update_reply
take_reply(trainer *t)
{
    uint8_t bytes[EXO_UPDATE_REPLY_BYTES];
    size_t size = 0;
    exo_update_reply reply = {0};
    cr_assert(take(t->from, bytes, &size));
    cr_assert_eq(exo_update_reply_read(bytes, size, &reply, NULL), EXO_OK);
    return reply;
}

static void
greet(trainer *t)
{
    const exo_update_reply reply = take_reply(t);
    cr_assert_eq(exo_update_sender_reply(t->sender, "maker", &reply, NULL), EXO_OK);
}

/* Learns, and begins an update. */
static void
stage(trainer *t, uint64_t version)
{
    exo_err err = {0};
    updates_learn(t->learned.params, 0.5f, version);
    cr_assert_eq(exo_array_write(exo_params_values_array(t->params),
                                 exo_params_values(t->learned.params), &err),
                 EXO_OK, "%s", err.text);
    cr_assert_eq(exo_update_sender_stage(t->sender, t->params, version, &err), EXO_OK, "%s",
                 err.text);
}

/* Sends the newest version, whose chunks `alter` changes first, and returns the maker's reply. sha: of
 * the maker's values. */
static exo_update_reply
send_version(trainer *t, void (*alter)(exo_update_sender *sender), char sha[65])
{
    const char *const names[] = {"maker"};
    exo_update *u = NULL;
    const void *bytes = NULL;
    size_t size = 0;
    exo_err err = {0};
    cr_assert_eq(exo_update_begin(&u, t->sender, names, 1, &err), EXO_OK, "%s", err.text);
    if (alter)
        alter(t->sender);
    while (exo_update_next(u, &bytes, &size, &err) == EXO_OK)
        give(t->to, bytes, size);
    t->bytes += exo_update_facts_of(u).bytes;
    t->handed += exo_update_facts_of(u).handed;
    exo_update_free(&u);
    const exo_update_reply reply = take_reply(t);
    cr_assert(take(t->from, sha, &size));
    return reply;
}

static void
finish(trainer *t, bool by_force)
{
    int status = 0;
    if (by_force)
        kill(t->maker, SIGKILL);
    close(t->to);
    cr_assert_eq(waitpid(t->maker, &status, 0), t->maker);
    cr_expect(by_force || (WIFEXITED(status) && WEXITSTATUS(status) == 0), "maker: %d", status);
    close(t->from);
    exo_update_sender_free(&t->sender);
    exo_params_free(&t->params);
    small_decoder_free(&t->learned);
    exo_cuda_close(t->gpu);
    cr_expect_eq(exo_ipc_array_count(), 0);
    cr_expect_eq(cuda_emulator_memory(), 0);
    cr_expect_eq(cuda_emulator_things(), 0);
}

/* The SHA-256 of the values of all versions, from one kind of maker. */
static void
run_versions(maker_kind kind, exo_update_form form, char sha[VERSIONS][65], trainer *figures)
{
    trainer t;
    exo_err err = {0};
    begin(&t, kind, form);
    greet(&t);
    for (uint64_t v = 1; v <= VERSIONS; v++) {
        stage(&t, v);
        const exo_update_reply reply = send_version(&t, NULL, sha[v - 1]);
        cr_assert_eq(reply.answer, EXO_UPDATE_ACCEPTED, "%s", reply.text);
        cr_assert_eq(exo_update_sender_reply(t.sender, "maker", &reply, &err), EXO_OK, "%s",
                     err.text);
        cr_expect_leq(exo_ipc_array_count(), 2, "an acknowledged version leaves the device");
    }
    *figures = t;
    finish(&t, false);
}

/* --- Tests ------------------------------------------------------------------------------------ */

/* A process has one store, which it opens when it first shares memory; a maker is forked before. So the
 * maker on the CPU comes first, and each form has a test. */
static void
compare(exo_update_form form)
{
    char cpu[VERSIONS][65], gpu[VERSIONS][65];
    trainer by_bytes, by_memory;
    small_decoder d;
    const exo_decoder_spec spec = small_decoder_spec(KIND);
    small_decoder_new(&d, &spec, 1);
    run_versions(MAKER_ON_CPU, form, cpu, &by_bytes);
    run_versions(MAKER_ON_GPU, form, gpu, &by_memory);
    for (size_t v = 0; v < VERSIONS; v++)
        cr_expect_str_eq(cpu[v], gpu[v], "version %zu", v + 1);
    cr_expect_eq(by_bytes.handed, 0);
    cr_expect_eq(by_memory.handed, VERSIONS * sizeof(float) * exo_model_numel(d.model));
    cr_expect_lt(by_memory.bytes, VERSIONS * 8192, "%zu bytes", (size_t)by_memory.bytes);
    small_decoder_free(&d);
}

Test(cuda_updates, memory_of_the_device_has_the_bits_of_chunks, .timeout = 120)
{
    compare(EXO_UPDATE_WHOLE);
}

Test(cuda_updates, memory_of_the_device_has_the_bits_of_changes, .timeout = 120)
{
    compare(EXO_UPDATE_DELTA);
}

Test(cuda_updates, memory_of_the_device_has_the_bits_of_bf16, .timeout = 120)
{
    compare(EXO_UPDATE_BF16);
}

Test(cuda_updates, memory_of_the_device_has_the_bits_of_int8, .timeout = 120)
{
    compare(EXO_UPDATE_INT8);
}

Test(cuda_updates, a_generator_on_the_gpu_runs_what_was_sent, .timeout = 120)
{
    char cpu[VERSIONS][65], gpu[VERSIONS][65];
    trainer t;
    run_versions(MAKER_ON_CPU, EXO_UPDATE_WHOLE, cpu, &t);
    run_versions(MAKER_WITH_GENERATOR, EXO_UPDATE_WHOLE, gpu, &t); /* and its canary agrees */
    for (size_t v = 0; v < VERSIONS; v++)
        cr_expect_str_eq(cpu[v], gpu[v]);
    cr_expect_gt(t.handed, 0);
}

Test(cuda_updates, a_maker_that_cannot_open_the_memory_gets_bytes, .timeout = 120)
{
    trainer t;
    char sha[65];
    exo_err err = {0};
    begin(&t, MAKER_ON_OTHER_GPU, EXO_UPDATE_DELTA);
    greet(&t);
    stage(&t, 1);
    exo_update_reply reply = send_version(&t, NULL, sha);
    cr_expect_eq(reply.answer, EXO_UPDATE_REFUSED);
    cr_expect_eq(reply.code, EXO_UNSUPPORTED, "%s", reply.text);
    cr_expect(strstr(reply.text, "version 1") && strstr(reply.text, "cannot read"), "%s",
              reply.text);
    cr_expect_eq(exo_update_sender_reply(t.sender, "maker", &reply, &err), EXO_FAILED);
    t.handed = 0;
    for (uint64_t v = 2; v < 5; v++) {
        stage(&t, v);
        cr_expect_not(exo_update_sender_hands(t.sender, "maker"));
        reply = send_version(&t, NULL, sha);
        cr_assert_eq(reply.answer, EXO_UPDATE_ACCEPTED, "%s", reply.text);
        cr_assert_eq(exo_update_sender_reply(t.sender, "maker", &reply, &err), EXO_OK);
    }
    cr_expect_eq(t.handed, 0);
    finish(&t, false);
}

/* Changes the first value in the memory of the newest version. */
static void
change_memory(exo_update_sender *sender)
{
    exo_array first = exo_array_part(exo_ipc_array_of(sender->newest->shared), 0, 1);
    exo_vec_fill(first, 12345);
    cr_assert_eq(exo_device_synchronize(first.device, NULL), EXO_OK);
}

Test(cuda_updates, values_that_changed_on_their_way_are_refused, .timeout = 120)
{
    trainer t;
    char sha[65], before[65];
    exo_err err = {0};
    begin(&t, MAKER_ON_GPU, EXO_UPDATE_WHOLE);
    greet(&t);
    stage(&t, 1);
    exo_update_reply reply = send_version(&t, NULL, before);
    cr_assert_eq(exo_update_sender_reply(t.sender, "maker", &reply, &err), EXO_OK);
    stage(&t, 2);
    reply = send_version(&t, change_memory, sha);
    cr_expect_eq(reply.answer, EXO_UPDATE_REFUSED);
    cr_expect_eq(reply.code, EXO_DAMAGED);
    cr_expect(strstr(reply.text, "'embedding.weight'") && strstr(reply.text, "SHA-256"), "%s",
              reply.text);
    cr_expect_str_eq(sha, before, "the weights in use are those of version 1");
    cr_expect_eq(exo_update_sender_reply(t.sender, "maker", &reply, &err), EXO_FAILED);
    stage(&t, 3);
    cr_expect_not(exo_update_sender_hands(t.sender, "maker"), "from now on it gets bytes");
    reply = send_version(&t, NULL, sha);
    cr_expect_eq(reply.answer, EXO_UPDATE_ACCEPTED, "%s", reply.text);
    cr_expect_eq(exo_update_sender_reply(t.sender, "maker", &reply, &err), EXO_OK);
    finish(&t, false);
}

Test(cuda_updates, a_killed_maker_leaves_no_memory, .timeout = 120)
{
    const char *const names[] = {"maker"};
    trainer t;
    exo_update *u = NULL;
    begin(&t, MAKER_ON_GPU, EXO_UPDATE_WHOLE);
    greet(&t);
    stage(&t, 1);
    cr_assert_eq(exo_update_begin(&u, t.sender, names, 1, NULL), EXO_OK);
    cr_expect_gt(exo_update_facts_of(u).handed, 0);
    cr_expect_eq(exo_update_facts_of(u).chunks, 1);
    kill(t.maker, SIGKILL);
    exo_update_sender_forget(t.sender, "maker");
    exo_update_free(&u);
    cr_expect_not(exo_update_sender_hands(t.sender, "maker"));
    finish(&t, true);
}

/* A manifest whose trainer has ended before the maker looks. */
Test(cuda_updates, a_killed_trainer_is_an_error_that_keeps_the_weights, .timeout = 120)
{
    static char bytes[MOST];
    int back[2];
    size_t size = 0;
    char before[65], after[65];
    exo_err err = {0};
    exo_update_receiver *r = NULL;
    exo_update_reply reply;
    small_decoder d;
    const exo_decoder_spec spec = small_decoder_spec(KIND);
    cr_assert_eq(pipe(back), 0);
    pid_t trainer_pid = fork();
    if (trainer_pid == 0) { /* a trainer that sends one update to a maker it believes in */
        trainer t = {.gpu = open_gpu()};
        exo_update *u = NULL;
        const void *chunk = NULL;
        const char *const names[] = {"maker"};
        small_decoder_new(&t.learned, &spec, 1);
        cr_assert_eq(exo_params_to(&t.params, t.learned.params, t.gpu, NULL), EXO_OK);
        cr_assert_eq(exo_update_sender_new(&t.sender, t.learned.model, NULL, NULL), EXO_OK);
        const exo_update_reply hello = {.answer = EXO_UPDATE_NEED_WHOLE,
                                        .place = exo_ipc_place(t.gpu)};
        cr_assert_eq(exo_update_sender_reply(t.sender, "maker", &hello, NULL), EXO_OK);
        stage(&t, 1);
        cr_assert_eq(exo_update_begin(&u, t.sender, names, 1, NULL), EXO_OK);
        cr_assert_eq(exo_update_next(u, &chunk, &size, NULL), EXO_OK);
        give(back[1], chunk, size);
        pause();
    }
    cr_assert(take(back[0], bytes, &size));
    kill(trainer_pid, SIGKILL);
    waitpid(trainer_pid, NULL, 0);
    exo_device *gpu = open_gpu();
    small_decoder_new(&d, &spec, 1);
    cr_assert_eq(exo_update_receiver_new(&r, d.model, d.params,
                                         &(exo_update_receiver_opts){.device = gpu}, &err),
                 EXO_OK);
    exo_params_sha256(exo_update_params(r), before, NULL);
    cr_expect_eq(exo_update_receive(r, bytes, size, &reply, &err), EXO_PEER_LOST, "%s", err.text);
    cr_expect_eq(reply.answer, EXO_UPDATE_REFUSED);
    cr_expect_eq(reply.place, 0, "from now on it takes bytes");
    cr_expect_not(exo_update_is_ready(r));
    exo_params_sha256(exo_update_params(r), after, NULL);
    cr_expect_str_eq(before, after);
    exo_update_receiver_free(&r);
    small_decoder_free(&d);
    exo_cuda_close(gpu);
    cr_expect_eq(cuda_emulator_memory(), 0);
}
