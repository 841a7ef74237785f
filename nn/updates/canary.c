/* Canaries: see canary.h. */
#include "nn/updates/canary.h"

#include <math.h>

#include <exogym/memory.h>
#include <exogym/rng.h>

#include "nn/hash.h"

enum {
    LOGIT_ROWS = 4 /* positions whose logits are hashed */
};

static const char *const formats[] = {"fp32", "int8", "int4"};

static size_t
context_of(const exo_decoder_spec *spec)
{
    return spec->context < EXO_CANARY_CONTEXT ? spec->context : EXO_CANARY_CONTEXT;
}

/* New tokens of each prompt: a third of the context, so that prompts have the rest. */
static size_t
count_of(const exo_decoder_spec *spec)
{
    size_t third = context_of(spec) / 3;
    return third == 0 ? 1 : third < EXO_CANARY_TOKENS ? third : EXO_CANARY_TOKENS;
}

exo_generator_opts
exo_canary_generator(const exo_decoder_spec *spec, exo_weight_format format)
{
    return (exo_generator_opts){.weights = format,
                                .sequences = EXO_CANARY_PROMPTS,
                                .context = context_of(spec),
                                .step_tokens = EXO_CANARY_PROMPTS * EXO_CANARY_CONTEXT};
}

/* Draws the tokens of a prompt. Its length is between 1 and the room that the new tokens leave. */
static size_t
draw_prompt(int32_t *out, const exo_decoder_spec *spec, const uint8_t *fingerprint, size_t prompt)
{
    exo_rng rng;
    exo_rng_init(&rng, exo_get_u64(fingerprint), EXO_RNG_TOKEN, 0, prompt);
    size_t room = context_of(spec) - count_of(spec);
    size_t length = 1 + (room - 1) * prompt / (EXO_CANARY_PROMPTS - 1);
    for (size_t i = 0; i < length; i++)
        out[i] = (int32_t)exo_rng_below(&rng, (uint32_t)spec->vocabulary);
    return length;
}

static exo_status
hash_logits(exo_canary *out, exo_generator *g, const uint8_t *fingerprint, exo_err *err)
{
    const exo_decoder_spec *spec = exo_generator_spec(g);
    int32_t prompt[EXO_CANARY_CONTEXT];
    size_t count = draw_prompt(prompt, spec, fingerprint, EXO_CANARY_PROMPTS - 1);
    count = count < LOGIT_ROWS ? count : LOGIT_ROWS;
    float *logits = exo_calloc(count * spec->vocabulary, sizeof *logits);
    exo_hash hash = {0};
    exo_status st =
        logits ? exo_hash_init(&hash, err) : exo_fail(err, EXO_NOMEM, "no memory for a canary");
    if (st == EXO_OK)
        st = exo_generator_logits(g, prompt, count, logits, err);
    if (st == EXO_OK)
        exo_hash_add(&hash, logits, count * spec->vocabulary * sizeof *logits);
    if (st == EXO_OK && !exo_hash_end_bytes(&hash, out->logits))
        st = exo_fail(err, EXO_FAILED, "libcrypto gives no SHA-256");
    exo_hash_release(&hash);
    exo_free(logits);
    return st;
}

static exo_status
submit(exo_generator *g, size_t count, const uint8_t *fingerprint, exo_err *err)
{
    const exo_sampling greedy = {.max_new_tokens = count};
    exo_status st = EXO_OK;
    for (size_t p = 0; st == EXO_OK && p < EXO_CANARY_PROMPTS; p++) {
        int32_t prompt[EXO_CANARY_CONTEXT];
        size_t length = draw_prompt(prompt, exo_generator_spec(g), fingerprint, p);
        st = exo_generator_submit(g, p, prompt, length, &greedy, err);
    }
    return st;
}

exo_status
exo_canary_compute(exo_canary *out, exo_generator *g, const uint8_t fingerprint[EXO_SHA],
                   exo_err *err)
{
    exo_generated done;
    *out = (exo_canary){.format = exo_generator_options(g)->weights,
                        .count = (uint32_t)count_of(exo_generator_spec(g))};
    const char *arithmetic = exo_generator_arithmetic(g);
    memcpy(out->arithmetic, arithmetic, strnlen(arithmetic, EXO_CANARY_ARITHMETIC - 1));
    exo_status st = hash_logits(out, g, fingerprint, err);
    if (st == EXO_OK)
        st = submit(g, out->count, fingerprint, err);
    while (st == EXO_OK && exo_generator_active(g) > 0)
        st = exo_generator_step(g, err);
    while (exo_generator_take(g, &done)) {
        size_t made = done.length - done.prompt, at = done.id * out->count;
        if (st == EXO_OK && (made != out->count || done.finish == EXO_FINISH_NOT_FINITE))
            st = exo_fail(err, EXO_FAILED,
                          "the canary's prompt %llu gave %zu of %u tokens (%s): the weights are "
                          "not finite",
                          (unsigned long long)done.id, made, out->count,
                          exo_finish_text(done.finish));
        if (st == EXO_OK) {
            memcpy(out->tokens + at, done.tokens + done.prompt, made * sizeof *out->tokens);
            memcpy(out->log_probs + at, done.plain_log_probs, made * sizeof *out->log_probs);
        }
    }
    for (uint64_t p = 0; st != EXO_OK && p < EXO_CANARY_PROMPTS; p++)
        (void)exo_generator_cancel(g, p, NULL);
    return st;
}

static exo_status
differ(const exo_canary *mine, const exo_canary *sent, size_t i, exo_err *err)
{
    return exo_fail(err, EXO_FAILED,
                    "the canary in %s differs at token %zu of prompt %zu: token %d with "
                    "log-probability %.9g here (%s), %d with %.9g at the sender (%s). This "
                    "receiver does not run what was sent",
                    formats[mine->format], i % mine->count, i / mine->count, mine->tokens[i],
                    (double)mine->log_probs[i], mine->arithmetic, sent->tokens[i],
                    (double)sent->log_probs[i], sent->arithmetic);
}

exo_status
exo_canary_compare(const exo_canary *mine, const exo_canary *sent, double tolerance, exo_err *err)
{
    bool same = memcmp(mine->arithmetic, sent->arithmetic, EXO_CANARY_ARITHMETIC) == 0;
    if (mine->count != sent->count)
        return exo_fail(err, EXO_FAILED, "the canary has %u tokens a prompt; expected %u",
                        sent->count, mine->count);
    for (size_t p = 0; p < EXO_CANARY_PROMPTS; p++) {
        bool parted = false;
        for (size_t i = p * mine->count; i < (p + 1) * mine->count && !parted; i++) {
            double gap = fabs((double)mine->log_probs[i] - (double)sent->log_probs[i]);
            bool bits = memcmp(&mine->log_probs[i], &sent->log_probs[i], sizeof(float)) == 0;
            parted = mine->tokens[i] != sent->tokens[i];
            if (same ? parted || !bits : !(gap <= tolerance))
                return differ(mine, sent, i, err);
        }
    }
    if (same && memcmp(mine->logits, sent->logits, EXO_SHA) != 0)
        return exo_fail(err, EXO_FAILED,
                        "the canary's logits in %s have other bits than the sender's, both on %s. "
                        "This receiver does not run what was sent",
                        formats[mine->format], mine->arithmetic);
    return EXO_OK;
}

/* --- Bytes ------------------------------------------------------------------------------------ */

enum {
    ALL = EXO_CANARY_PROMPTS * EXO_CANARY_TOKENS
};

void
exo_canary_write(const exo_canary *canary, uint8_t *out)
{
    exo_put_u32(out, (uint32_t)canary->format);
    memcpy(out + 4, canary->arithmetic, EXO_CANARY_ARITHMETIC);
    out += 4 + EXO_CANARY_ARITHMETIC;
    exo_put_u32(out, canary->count);
    memcpy(out + 4, canary->logits, EXO_SHA);
    out += 4 + EXO_SHA;
    for (size_t i = 0; i < ALL; i++, out += 8) {
        uint32_t bits;
        memcpy(&bits, &canary->log_probs[i], sizeof bits);
        exo_put_u32(out, (uint32_t)canary->tokens[i]);
        exo_put_u32(out + 4, bits);
    }
}

bool
exo_canary_read(exo_byte_reader *reader, exo_canary *out)
{
    uint64_t format = exo_reader_number(reader, 4);
    *out = (exo_canary){.format = (exo_weight_format)format};
    exo_reader_copy(reader, out->arithmetic, EXO_CANARY_ARITHMETIC);
    out->count = (uint32_t)exo_reader_number(reader, 4);
    exo_reader_copy(reader, out->logits, EXO_SHA);
    for (size_t i = 0; i < ALL; i++) {
        uint32_t bits;
        out->tokens[i] = (int32_t)exo_reader_number(reader, 4);
        bits = (uint32_t)exo_reader_number(reader, 4);
        memcpy(&out->log_probs[i], &bits, sizeof bits);
    }
    return !reader->failed && format <= EXO_WEIGHTS_INT4 && out->count >= 1 &&
           out->count <= EXO_CANARY_TOKENS && out->arithmetic[EXO_CANARY_ARITHMETIC - 1] == '\0';
}
