/* Weight updates of a GPT-2 that is fine-tuned with AdamW: the bytes of each form beside a whole
 * update, and apart from each other the times of the sender's copy and hashes (stage), of making all
 * chunks, of taking them (decoding and hashes, without the canary), and of the swap, the only time
 * in which a maker pauses.
 *
 *     bench_updates [--size small|base|...] [--vocabulary N] [--block N] [--batch N] [--lr X]
 *                   [--steps N] [--format none|fp32|int8|int4]
 *
 * A step trains once, and then sends an update in every form. --format: the receiver has a generator
 * of this format, whose packing and canary are then part of taking the last chunk. Figures are
 * medians over the steps after the first.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <exogym/exogym.h>

#include "limits.h"
#include "training.h"

enum {
    FORMS = EXO_UPDATE_BF16_DELTA + 1
};

struct setting {
    const char *size, *format;
    size_t vocabulary, block, batch;
    float lr;
    size_t steps;
};

/* One form: its ends, and its figures of each step. */
struct way {
    exo_update_sender *sender;
    exo_update_receiver *receiver;
    exo_generator *generator;
    double bytes[BENCH_MAX_REPEATS], stage[BENCH_MAX_REPEATS], make[BENCH_MAX_REPEATS];
    double take[BENCH_MAX_REPEATS], swap[BENCH_MAX_REPEATS];
};

static void
check(exo_status st, const exo_err *err)
{
    if (st == EXO_OK)
        return;
    fprintf(stderr, "bench_updates: %s\n", err->text);
    exit(EXIT_FAILURE);
}

static double
since(int64_t start)
{
    return (double)(bench_now() - start) * 1e-6;
}

static void
fill(exo_batch *batch, const struct setting *s)
{
    exo_rng rng;
    exo_rng_init(&rng, 1, EXO_RNG_USER, 0, 0);
    *batch = (exo_batch){.size = s->batch, .num_fields = 2};
    for (int f = 0; f < 2; f++) {
        batch->fields[f] = (exo_field){
            .name = f ? "targets" : "tokens", .dtype = EXO_I32, .num_dims = 1, .dims = {s->block}};
        int32_t *tokens = batch->data[f] = exo_alloc_aligned(s->batch * s->block * sizeof(int32_t));
        for (size_t i = 0; tokens && i < s->batch * s->block; i++)
            tokens[i] = (int32_t)exo_rng_below(&rng, (uint32_t)s->vocabulary);
    }
}

static void
way_init(struct way *w, exo_update_form form, bench_training *t, const struct setting *s)
{
    exo_err err = {0};
    exo_weight_format format = EXO_WEIGHTS_F32;
    bool generates = strcmp(s->format, "none") != 0;
    if (generates) {
        const exo_decoder_spec *spec = exo_decoder_spec_of(t->model);
        check(exo_weight_format_named(s->format, &format, &err), &err);
        check(exo_generator_new(&w->generator, spec, t->params,
                                &(exo_generator_opts){.weights = format, .context = s->block},
                                &err),
              &err);
    }
    const exo_update_sender_opts opts = {
        .form = form, .canaries = &format, .num_canaries = generates};
    check(exo_update_sender_new(&w->sender, t->model, &opts, &err), &err);
    check(exo_update_receiver_new(&w->receiver, t->model, NULL,
                                  &(exo_update_receiver_opts){.generator = w->generator}, &err),
          &err);
}

static void
send_update(struct way *w, bench_training *t, size_t step)
{
    static const char *const maker = "maker";
    exo_err err = {0};
    exo_update *update = NULL;
    exo_update_reply reply = {0};
    exo_status st = EXO_OK;
    int64_t start = bench_now();
    check(exo_update_sender_stage(w->sender, t->params, step + 1, &err), &err);
    w->stage[step] = since(start);
    check(exo_update_begin(&update, w->sender, &maker, 1, &err), &err);
    w->make[step] = w->take[step] = 0;
    for (;;) {
        const void *bytes = NULL;
        size_t size = 0;
        start = bench_now();
        st = exo_update_next(update, &bytes, &size, &err);
        w->make[step] += since(start);
        if (st != EXO_OK)
            break;
        start = bench_now();
        check(exo_update_receive(w->receiver, bytes, size, &reply, &err), &err);
        w->take[step] += since(start);
    }
    start = bench_now();
    bool swapped = exo_update_swap(w->receiver);
    w->swap[step] = since(start);
    check(swapped ? exo_update_sender_reply(w->sender, maker, &reply, &err) : EXO_FAILED, &err);
    w->bytes[step] = (double)exo_update_facts_of(update).bytes;
    exo_update_free(&update);
}

static void
way_print(struct way *w, exo_update_form form, size_t numel, size_t steps)
{
    double bytes = bench_median(w->bytes + 1, steps - 1);
    printf("%-12s %12.0f %7.2f %9.1f %9.1f %9.1f %9.4f\n", exo_update_form_name(form), bytes,
           100 * bytes / ((double)numel * sizeof(float)), bench_median(w->stage + 1, steps - 1),
           bench_median(w->make + 1, steps - 1), bench_median(w->take + 1, steps - 1),
           bench_median(w->swap + 1, steps - 1));
    fflush(stdout);
    exo_update_sender_free(&w->sender);
    exo_update_receiver_free(&w->receiver);
    exo_generator_free(&w->generator);
}

static bool
parse(struct setting *s, int argc, char **argv)
{
    for (int i = 1; i + 1 < argc; i += 2) {
        const char *name = argv[i], *value = argv[i + 1];
        if (strcmp(name, "--size") == 0)
            s->size = value;
        else if (strcmp(name, "--format") == 0)
            s->format = value;
        else if (strcmp(name, "--vocabulary") == 0)
            s->vocabulary = strtoull(value, NULL, 10);
        else if (strcmp(name, "--block") == 0)
            s->block = strtoull(value, NULL, 10);
        else if (strcmp(name, "--batch") == 0)
            s->batch = strtoull(value, NULL, 10);
        else if (strcmp(name, "--lr") == 0)
            s->lr = strtof(value, NULL);
        else if (strcmp(name, "--steps") == 0)
            s->steps = strtoull(value, NULL, 10);
        else
            return false;
    }
    return argc % 2 == 1 && s->steps >= 2 && s->steps <= BENCH_MAX_REPEATS && s->block > 0 &&
           s->batch > 0;
}

int
main(int argc, char **argv)
{
    static struct way ways[FORMS];
    struct setting s = {.size = "small",
                        .format = "none",
                        .vocabulary = 50304,
                        .block = 32,
                        .batch = 2,
                        .lr = 1e-5f,
                        .steps = 6};
    exo_decoder_spec spec;
    exo_model *model = NULL;
    bench_training training = {0};
    exo_batch batch;
    exo_err err = {0};
    double seconds = 0;
    if (!parse(&s, argc, argv)) {
        fprintf(stderr, "usage: see the beginning of bench/updates.c\n");
        return 2;
    }
    check(exo_decoder_size(&spec, s.size, &err), &err);
    spec.vocabulary = s.vocabulary;
    spec.context = s.block;
    check(exo_decoder_new(&model, &spec, &err), &err);
    check(bench_training_init(&training, model, "cpu", false, s.lr, &err), &err);
    fill(&batch, &s);
    size_t numel = exo_params_numel(training.params);
    printf("%s, %zu parameters, lr %g, generator %s; times in ms\n", s.size, numel, (double)s.lr,
           s.format);
    printf("%-12s %12s %7s %9s %9s %9s %9s\n", "form", "bytes", "%", "stage", "make", "take",
           "swap");
    check(bench_training_run(&training, &batch, 0, 3, &seconds, &err), &err);
    for (exo_update_form form = 0; form <= EXO_UPDATE_BF16_DELTA; form++) {
        way_init(&ways[form], form, &training, &s);
        for (size_t step = 0; step < s.steps; step++) {
            check(bench_training_run(&training, &batch, 0, 1, &seconds, &err), &err);
            send_update(&ways[form], &training, step);
        }
        way_print(&ways[form], form, numel, s.steps);
    }
    bench_training_release(&training);
    for (int f = 0; f < 2; f++)
        exo_free(batch.data[f]);
    return 0;
}
