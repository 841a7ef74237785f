/* Generation on devices other than the CPU: failures in the step in which they happen, memory that
 * the device lacks, weights of another device, and the reference. Each test owns its device. Read
 * next: nn/generate/forward.h, support/far_device.h. */
#include <stdlib.h>
#include <string.h>

#include <criterion/criterion.h>

#include <exogym/generate.h>
#include <exogym/model.h>

#include "nn/ref/ref_device.h"
#include "support/far_device.h"
#include "support/small_decoders.h"

enum {
    TOKENS = 20
};

/* A decoder on the host and on a device, and a generator there. */
struct there {
    small_decoder decoder;
    exo_device *device;
    exo_params *params;
    exo_generator *g;
    exo_err err;
};

static void
there_init(struct there *t, int kind, uint64_t seed)
{
    const exo_decoder_spec spec = small_decoder_spec(kind);
    *t = (struct there){.device = far_device_new()};
    small_decoder_new(&t->decoder, &spec, seed);
    cr_assert_eq(exo_params_to(&t->params, t->decoder.params, t->device, &t->err), EXO_OK, "%s",
                 t->err.text);
}

static exo_status
open_generator(struct there *t, const exo_generator_opts *opts)
{
    return exo_generator_new(&t->g, &t->decoder.spec, t->params, opts, &t->err);
}

static void
there_release(struct there *t)
{
    exo_generator_free(&t->g);
    exo_params_free(&t->params);
    small_decoder_free(&t->decoder);
    far_device_free(&t->device);
}

/* --- Failures --------------------------------------------------------------------------------- */

/* A step that takes a part of a prompt reads no logits, and reports a failure all the same. The
 * sequence stays as it was. */
Test(generate_device, a_step_reports_its_own_failure)
{
    const exo_generator_opts opts = {.step_tokens = 2};
    int32_t prompt[7];
    for (uint64_t at = 1;; at++) {
        struct there t;
        exo_generated s;
        there_init(&t, 0, 1);
        small_decoder_tokens(&t.decoder.spec, 2, 7, prompt);
        cr_assert_eq(open_generator(&t, &opts), EXO_OK, "%s", t.err.text);
        cr_assert_eq(exo_generator_submit(t.g, 1, prompt, 7, &(exo_sampling){0}, &t.err), EXO_OK);
        cr_assert_eq(exo_generator_step(t.g, &t.err), EXO_OK, "%s", t.err.text);
        uint64_t before = far_device_asked(t.device);
        far_device_fail_at(t.device, at);
        exo_status st = exo_generator_step(t.g, &t.err);
        uint64_t asked = far_device_asked(t.device) - before;
        cr_assert(exo_generator_at(t.g, 0, &s));
        cr_expect_eq(s.length, 7);
        cr_expect_eq(far_device_done(t.device), far_device_asked(t.device), "a step waits");
        if (st != EXO_OK) {
            cr_expect_eq(st, EXO_FAILED);
            cr_expect_str_eq(t.err.text, "the device failed on schedule");
            cr_expect_eq(exo_generator_step(t.g, &t.err), EXO_FAILED, "the failure stays");
            cr_expect_eq(exo_generator_active(t.g), 1);
        }
        there_release(&t);
        if (st == EXO_OK) {
            cr_expect_gt(at, asked, "request %zu of %zu failed unnoticed", (size_t)at,
                         (size_t)asked);
            cr_expect_geq(asked, 2, "tokens and a pass");
            break;
        }
    }
}

/* --- Memory ----------------------------------------------------------------------------------- */

Test(generate_device, caches_that_do_not_fit_are_refused)
{
    struct there t;
    there_init(&t, 0, 1);
    const exo_generator_opts few = {.sequences = 2}, many = {.sequences = 200};
    cr_assert_eq(open_generator(&t, &few), EXO_OK, "%s", t.err.text);
    size_t few_bytes = exo_generator_cache_bytes(t.g);
    exo_generator_free(&t.g);
    far_device_set_memory(t.device, 50 * few_bytes);
    cr_assert_eq(open_generator(&t, &few), EXO_OK, "%s", t.err.text);
    exo_generator_free(&t.g);
    cr_expect_eq(open_generator(&t, &many), EXO_NOMEM);
    cr_expect(strstr(t.err.text, "200 sequences of up to 48 tokens take ") &&
                  strstr(t.err.text, "free on the device 'far'") &&
                  strstr(t.err.text, "a shorter context"),
              "%s", t.err.text);
    cr_expect_null(t.g);
    far_device_set_memory(t.device, 1);
    cr_expect_eq(open_generator(&t, &few), EXO_NOMEM);
    cr_expect_str_eq(t.err.text, "generation: the weights: the memory of the device is full");
    there_release(&t);
}

/* --- Weights ---------------------------------------------------------------------------------- */

static float *
logits_of(exo_generator *g, const exo_decoder_spec *spec)
{
    int32_t tokens[TOKENS];
    exo_err err = {0};
    float *logits = calloc(TOKENS * spec->vocabulary, sizeof *logits);
    small_decoder_tokens(spec, 4, TOKENS, tokens);
    cr_assert_eq(exo_generator_logits(g, tokens, TOKENS, logits, &err), EXO_OK, "%s", err.text);
    return logits;
}

/* A generator takes weights from any device, and computes on its own. */
Test(generate_device, weights_come_from_another_device)
{
    struct there t;
    exo_generator *near = NULL;
    there_init(&t, 3, 1);
    const exo_decoder_spec *spec = &t.decoder.spec;
    size_t bytes = TOKENS * spec->vocabulary * sizeof(float);
    cr_assert_eq(open_generator(&t, NULL), EXO_OK, "%s", t.err.text);
    cr_assert_eq(exo_generator_new(&near, spec, t.decoder.params, NULL, &t.err), EXO_OK);
    float *first = logits_of(near, spec);

    small_decoder_refill(&t.decoder, 2); /* on the host alone */
    cr_assert_eq(exo_generator_set_weights(t.g, t.decoder.params, &t.err), EXO_OK, "%s",
                 t.err.text);
    cr_assert_eq(exo_generator_set_weights(near, t.decoder.params, &t.err), EXO_OK);
    float *want = logits_of(near, spec), *got = logits_of(t.g, spec);
    cr_expect_arr_neq(want, first, bytes);
    cr_expect_arr_eq(got, want, bytes);
    free(got);

    cr_assert_eq(exo_generator_set_weights(near, t.params, &t.err), EXO_OK, "%s", t.err.text);
    got = logits_of(near, spec);
    cr_expect_arr_eq(got, first, bytes, "the first ones are still on the device");
    free(got);

    far_device_fail_at(t.device, 1);
    cr_expect_eq(exo_generator_set_weights(near, t.params, &t.err), EXO_FAILED);
    cr_expect_str_eq(t.err.text, "the device failed on schedule");
    free(first);
    free(want);
    exo_generator_free(&near);
    there_release(&t);
}

/* --- The reference ---------------------------------------------------------------------------- */

Test(generate_device, the_reference_generates_too)
{
    for (int kind = 0; kind < SMALL_DECODERS; kind++)
        for (int format = EXO_WEIGHTS_F32; format <= EXO_WEIGHTS_INT4; format++) {
            const exo_decoder_spec spec = small_decoder_spec(kind);
            const exo_generator_opts opts = {.weights = (exo_weight_format)format};
            small_decoder d;
            exo_params *there = NULL;
            exo_generator *near = NULL, *plain = NULL;
            exo_err err = {0};
            small_decoder_new(&d, &spec, 5);
            cr_assert_eq(exo_params_to(&there, d.params, exo_device_ref(), &err), EXO_OK);
            cr_assert_eq(exo_generator_new(&near, &spec, d.params, &opts, &err), EXO_OK);
            cr_assert_eq(exo_generator_new(&plain, &spec, there, &opts, &err), EXO_OK, "%s",
                         err.text);
            float *got = logits_of(near, &spec), *want = logits_of(plain, &spec);
            for (size_t i = 0; i < TOKENS * spec.vocabulary; i++)
                cr_assert_float_eq((double)got[i], (double)want[i], format == 0 ? 1e-4 : 1e-2,
                                   "decoder %d, format %d, logit %zu: %g, not %g", kind, format, i,
                                   (double)got[i], (double)want[i]);
            free(got);
            free(want);
            exo_generator_free(&near);
            exo_generator_free(&plain);
            exo_params_free(&there);
            small_decoder_free(&d);
        }
}
