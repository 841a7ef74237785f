/* Generators: their construction, and the submission and removal of sequences. The state and its
 * owner are in generator.h. Read next: step.c, forward.c. */
#include "nn/generate/generator.h"

#include <float.h>
#include <inttypes.h>
#include <string.h>

#include <exogym/memory.h>

enum {
    MAX_SEQUENCES = 65536,
    DEFAULT_STEP_TOKENS = 256
};

#define MAX_ID (UINT64_C(1) << 56)

static const char *const format_names[] = {"fp32", "int8", "int4"};

exo_status
exo_weight_format_named(const char *name, exo_weight_format *out, exo_err *err)
{
    for (size_t i = 0; i < sizeof format_names / sizeof format_names[0]; i++)
        if (strcmp(name, format_names[i]) == 0) {
            *out = (exo_weight_format)i;
            return EXO_OK;
        }
    return exo_fail(err, EXO_INVAL, "expected fp32, int8 or int4, got '%.60s'", name);
}

const char *
exo_finish_text(exo_finish finish)
{
    switch (finish) {
    case EXO_FINISH_NONE:
        return "not finished";
    case EXO_FINISH_STOP:
        return "stop";
    case EXO_FINISH_LENGTH:
        return "length";
    case EXO_FINISH_CONTEXT:
        return "context";
    case EXO_FINISH_NOT_FINITE:
        return "not finite";
    }
    return "?";
}

/* --- Making and freeing ----------------------------------------------------------------------- */

static exo_status
choose_options(exo_generator_opts *out, const exo_decoder_spec *spec,
               const exo_generator_opts *opts, exo_err *err)
{
    *out = opts ? *opts : (exo_generator_opts){0};
    out->sequences = out->sequences ? out->sequences : 1;
    out->context = out->context ? out->context : spec->context;
    size_t usual = out->sequences > DEFAULT_STEP_TOKENS ? out->sequences : DEFAULT_STEP_TOKENS;
    out->step_tokens = out->step_tokens ? out->step_tokens : usual;
    if ((unsigned)out->weights > EXO_WEIGHTS_INT4)
        return exo_fail(err, EXO_INVAL, "generation: unknown format of weights %d",
                        (int)out->weights);
    if (out->sequences > MAX_SEQUENCES)
        return exo_fail(err, EXO_INVAL, "generation: %zu sequences at once; the most is %d",
                        out->sequences, MAX_SEQUENCES);
    if (out->context < 2 || out->context > spec->context)
        return exo_fail(
            err, EXO_INVAL,
            "generation: a context of %zu tokens; the decoder's is %zu, and the least is 2",
            out->context, spec->context);
    if (out->step_tokens < out->sequences || out->step_tokens > EXO_DECODER_ROWS)
        return exo_fail(
            err, EXO_INVAL,
            "generation: %zu tokens a step; it must be at least the %zu sequences and at most %d",
            out->step_tokens, out->sequences, EXO_DECODER_ROWS);
    return EXO_OK;
}

static exo_status
make_sequence(const exo_generator *g, exo_sequence *s, exo_err *err)
{
    size_t context = g->opts.context;
    s->tokens = exo_calloc(context, sizeof *s->tokens);
    s->log_probs = exo_calloc(context, sizeof *s->log_probs);
    s->plain_log_probs = exo_calloc(context, sizeof *s->plain_log_probs);
    s->seen = exo_calloc((exo_generator_decoder(g)->vocabulary + 63) / 64, sizeof *s->seen);
    if (s->tokens && s->log_probs && s->plain_log_probs && s->seen)
        return EXO_OK;
    return exo_fail(err, EXO_NOMEM, "generation: no memory for %zu sequences of %zu tokens",
                    g->opts.sequences, context);
}

static exo_status
make_sequences(exo_generator *g, exo_err *err)
{
    g->sequences = exo_calloc(g->opts.sequences, sizeof *g->sequences);
    g->order = exo_calloc(g->opts.sequences, sizeof *g->order);
    if (!g->sequences || !g->order)
        return exo_fail(err, EXO_NOMEM, "no memory for %zu sequences", g->opts.sequences);
    exo_status st = exo_forward_make_caches(&g->forward, g->opts.sequences, err);
    for (size_t i = 0; st == EXO_OK && i < g->opts.sequences; i++)
        st = make_sequence(g, &g->sequences[i], err);
    return st;
}

/* Members that compute otherwise would draw other tokens, and a codec of the group's edge that rounds
 * would change what they exchange: each sends two numbers that no such codec keeps. */
static exo_status
check_group(const exo_generator *g, exo_err *err)
{
    exo_group *group = g->opts.group;
    if (!group)
        return EXO_OK;
    const char *arithmetic = exo_generator_arithmetic(g);
    uint32_t size = exo_group_size(group), kind = 0;
    for (const char *c = arithmetic; *c; c++)
        kind = kind * 31 + (unsigned char)*c;
    kind = kind % 4096 * 4 + (uint32_t)g->opts.weights + 1;
    const float own[2] = {1 + (float)kind * FLT_EPSILON, 1.0f / 3};
    float(*all)[2] = exo_calloc(size, sizeof *all);
    if (!all)
        return exo_fail(err, EXO_NOMEM, "no memory for a group of %u members", size);
    exo_array there = {0};
    memcpy(all[exo_group_rank(group)], own, sizeof own);
    exo_status st = exo_array_init(&there, g->forward.device, EXO_F32, 2 * (size_t)size, err);
    if (st == EXO_OK)
        st = exo_array_write(there, all, err);
    if (st == EXO_OK)
        st = exo_all_gather(group, there, err);
    if (st == EXO_OK)
        st = exo_array_read(there, all, err);
    exo_array_release(&there);
    if (st == EXO_OK && memcmp(all[exo_group_rank(group)], own, sizeof own) != 0)
        st = exo_fail(err, EXO_UNSUPPORTED,
                      "generation by a group does not go with a codec that rounds: leave the codec "
                      "of its edge out");
    for (uint32_t i = 0; st == EXO_OK && i < size; i++)
        if (memcmp(all[i], own, sizeof own) != 0)
            st = exo_fail(err, EXO_UNSUPPORTED,
                          "generation by a group: member %u has another format of weights, or its "
                          "processor computes otherwise than this one's, which has %s",
                          i, arithmetic);
    exo_free(all);
    return st;
}

exo_status
exo_generator_new(exo_generator **out, const exo_decoder_spec *spec, exo_params *params,
                  const exo_generator_opts *opts, exo_err *err)
{
    exo_status st = exo_decoder_check(spec, err);
    if (st != EXO_OK)
        return st;
    exo_generator *g = exo_calloc(1, sizeof *g);
    if (!g)
        return exo_fail(err, EXO_NOMEM, "no memory for a generator");
    st = choose_options(&g->opts, spec, opts, err);
    const exo_decoder_shape shape = {.spec = *spec,
                                     .format = g->opts.weights,
                                     .context = g->opts.context,
                                     .rows = g->opts.step_tokens};
    g->forward.group = g->opts.group;
    if (st == EXO_OK)
        st = exo_forward_init(&g->forward, &shape, params, err);
    if (st == EXO_OK)
        st = make_sequences(g, err);
    if (st == EXO_OK)
        st = check_group(g, err);
    if (st != EXO_OK) {
        exo_generator_free(&g);
        return st;
    }
    *out = g;
    return EXO_OK;
}

void
exo_generator_free(exo_generator **generator)
{
    exo_generator *g = *generator;
    if (!g)
        return;
    for (size_t i = 0; g->sequences && i < g->opts.sequences; i++) {
        exo_sequence *s = &g->sequences[i];
        void *all[] = {s->tokens, s->log_probs, s->plain_log_probs, s->seen};
        for (size_t k = 0; k < sizeof all / sizeof all[0]; k++)
            exo_free(all[k]);
    }
    exo_free(g->sequences);
    exo_free(g->order);
    exo_forward_release(&g->forward);
    exo_free(g);
    *generator = NULL;
}

exo_status
exo_generator_set_weights(exo_generator *generator, exo_params *params, exo_err *err)
{
    return exo_forward_pack(&generator->forward, params, err);
}

/* Whether the weights of two specs have the same places and meanings. */
static bool
have_one_layout(const exo_decoder_spec *a, const exo_decoder_spec *b)
{
    return a->vocabulary == b->vocabulary && a->context == b->context && a->layers == b->layers &&
           a->heads == b->heads && a->kv_heads == b->kv_heads && a->width == b->width &&
           a->head_width == b->head_width && a->inner == b->inner && a->position == b->position &&
           a->position_offset == b->position_offset && a->norm == b->norm && a->gated == b->gated &&
           a->attention_qkv_bias == b->attention_qkv_bias &&
           a->attention_out_bias == b->attention_out_bias && a->mlp_bias == b->mlp_bias &&
           a->tied == b->tied && a->embedding_norm == b->embedding_norm;
}

exo_status
exo_generator_check_swap(const exo_generator *generator, const exo_generator *other, exo_err *err)
{
    const exo_forward *a = &generator->forward, *b = &other->forward;
    if (a->device != b->device || a->shape.format != b->shape.format ||
        a->shape.rank != b->shape.rank || a->shape.members != b->shape.members ||
        !have_one_layout(&a->shape.spec, &b->shape.spec))
        return exo_fail(err, EXO_INVAL,
                        "weights are exchanged between generators of one spec, format and device; "
                        "these are '%s' in %s and '%s' in %s",
                        a->shape.spec.family, format_names[a->shape.format], b->shape.spec.family,
                        format_names[b->shape.format]);
    return EXO_OK;
}

exo_status
exo_generator_swap_weights(exo_generator *generator, exo_generator *other, exo_err *err)
{
    exo_status st = exo_generator_check_swap(generator, other, err);
    if (st != EXO_OK)
        return st;
    exo_array weights = generator->forward.weights;
    generator->forward.weights = other->forward.weights;
    other->forward.weights = weights;
    return EXO_OK;
}

const char *
exo_generator_arithmetic(const exo_generator *generator)
{
    const exo_device *device = generator->forward.device;
    if (device != exo_device_cpu())
        return exo_device_name(device);
#if defined(__AVX512F__)
    return "cpu avx512";
#elif defined(__AVX2__) && defined(__FMA__)
    return "cpu avx2";
#elif defined(__aarch64__)
    return "cpu neon";
#else
    return "cpu scalar";
#endif
}

const exo_decoder_spec *
exo_generator_spec(const exo_generator *generator)
{
    return exo_generator_decoder(generator);
}

const exo_generator_opts *
exo_generator_options(const exo_generator *generator)
{
    return &generator->opts;
}

size_t
exo_generator_weight_bytes(const exo_generator *generator)
{
    return generator->forward.weight_bytes;
}

size_t
exo_generator_cache_bytes(const exo_generator *generator)
{
    return generator->opts.sequences * generator->forward.cache_bytes;
}

/* --- Sequences -------------------------------------------------------------------------------- */

exo_sequence *
exo_generator_free_place(const exo_generator *generator)
{
    for (size_t i = 0; i < generator->opts.sequences; i++)
        if (!generator->sequences[i].used)
            return &generator->sequences[i];
    return NULL;
}

size_t
exo_generator_room(const exo_generator *generator)
{
    return generator->opts.sequences - generator->used;
}

size_t
exo_generator_active(const exo_generator *generator)
{
    size_t active = 0;
    for (size_t i = 0; i < generator->used; i++)
        active += generator->sequences[generator->order[i]].finish == EXO_FINISH_NONE;
    return active;
}

static exo_status
check_tokens(const exo_generator *g, uint64_t id, const int32_t *tokens, size_t count, exo_err *err)
{
    size_t vocabulary = exo_generator_decoder(g)->vocabulary;
    for (size_t i = 0; i < count; i++)
        if (tokens[i] < 0 || (size_t)tokens[i] >= vocabulary)
            return exo_fail(err, EXO_INVAL,
                            "sequence %" PRIu64
                            ": token %zu of the prompt is %d; the vocabulary is %zu",
                            id, i, tokens[i], vocabulary);
    return EXO_OK;
}

static exo_status
check_prompt(const exo_generator *g, uint64_t id, const int32_t *prompt, size_t count, exo_err *err)
{
    if (id >= MAX_ID)
        return exo_fail(err, EXO_INVAL, "sequence %" PRIu64 ": an id must be below 2^56", id);
    for (size_t i = 0; i < g->used; i++)
        if (g->sequences[g->order[i]].id == id)
            return exo_fail(err, EXO_EXISTS, "sequence %" PRIu64 " exists already", id);
    if (exo_generator_room(g) == 0)
        return exo_fail(err, EXO_FULL, "sequence %" PRIu64 ": all %zu places are taken", id,
                        g->opts.sequences);
    if (count == 0)
        return exo_fail(err, EXO_INVAL,
                        "sequence %" PRIu64 ": the prompt is empty; it needs one token at least",
                        id);
    if (count >= g->opts.context)
        return exo_fail(err, EXO_INVAL,
                        "sequence %" PRIu64
                        ": the prompt has %zu tokens and the context %zu, which leaves no room for "
                        "a new one; shorten the prompt",
                        id, count, g->opts.context);
    return check_tokens(g, id, prompt, count, err);
}

static void
mark_seen(exo_sequence *s, const int32_t *tokens, size_t count)
{
    for (size_t i = 0; i < count; i++)
        s->seen[(size_t)tokens[i] / 64] |= UINT64_C(1) << tokens[i] % 64;
}

exo_status
exo_generator_submit(exo_generator *generator, uint64_t id, const int32_t *prompt, size_t count,
                     const exo_sampling *sampling, exo_err *err)
{
    size_t vocabulary = exo_generator_decoder(generator)->vocabulary;
    exo_status st = check_prompt(generator, id, prompt, count, err);
    if (st == EXO_OK && exo_sampling_check(sampling, vocabulary, err) != EXO_OK)
        st = exo_fail_in(err, EXO_INVAL, "sequence %" PRIu64, id);
    if (st != EXO_OK)
        return st;
    exo_sequence *s = exo_generator_free_place(generator);
    generator->order[generator->used++] = (size_t)(s - generator->sequences);
    s->used = true;
    s->id = id;
    s->prompt = s->length = count;
    s->cached = 0;
    s->finish = EXO_FINISH_NONE;
    s->sampling = *sampling;
    for (size_t i = 0; i < sampling->num_stop_tokens; i++)
        s->stop_tokens[i] = sampling->stop_tokens[i];
    s->sampling.stop_tokens = s->stop_tokens;
    memcpy(s->tokens, prompt, count * sizeof *prompt);
    memset(s->seen, 0, (vocabulary + 63) / 64 * sizeof *s->seen);
    mark_seen(s, prompt, count);
    return EXO_OK;
}

/* The sequence of an id; NULL: there is none. */
static exo_sequence *
find(const exo_generator *g, uint64_t id)
{
    for (size_t i = 0; i < g->used; i++)
        if (g->sequences[g->order[i]].id == id)
            return &g->sequences[g->order[i]];
    return NULL;
}

exo_status
exo_generator_extend(exo_generator *generator, uint64_t id, const int32_t *tokens, size_t count,
                     size_t max_new_tokens, exo_err *err)
{
    exo_sequence *s = find(generator, id);
    if (!s)
        return exo_fail(err, EXO_NOT_FOUND, "there is no sequence %" PRIu64, id);
    if (s->finish == EXO_FINISH_NONE)
        return exo_fail(err, EXO_INVAL, "sequence %" PRIu64 " has not finished", id);
    const size_t context = generator->opts.context;
    if (count >= context || s->length >= context - count)
        return exo_fail(
            err, EXO_INVAL,
            "sequence %" PRIu64
            ": %zu tokens are to follow its %zu, but the context of %zu must leave room "
            "for a new one",
            id, count, s->length, context);
    exo_status st = check_tokens(generator, id, tokens, count, err);
    if (st != EXO_OK)
        return st;
    if (count > 0)
        memcpy(s->tokens + s->length, tokens, count * sizeof *tokens);
    mark_seen(s, tokens, count);
    s->prompt = s->length += count;
    s->sampling.max_new_tokens = max_new_tokens;
    s->finish = EXO_FINISH_NONE;
    return EXO_OK;
}

static void
describe(const exo_sequence *s, exo_generated *out)
{
    *out = (exo_generated){
        .id = s->id,
        .tokens = s->tokens,
        .prompt = s->prompt,
        .length = s->length,
        .log_probs = s->log_probs,
        .plain_log_probs = s->plain_log_probs,
        .finish = s->finish,
    };
}

static void
remove_at(exo_generator *g, size_t index)
{
    g->sequences[g->order[index]].used = false;
    g->used--;
    memmove(g->order + index, g->order + index + 1, (g->used - index) * sizeof *g->order);
}

bool
exo_generator_at(const exo_generator *generator, size_t index, exo_generated *out)
{
    if (index >= generator->used)
        return false;
    describe(&generator->sequences[generator->order[index]], out);
    return true;
}

bool
exo_generator_take(exo_generator *generator, exo_generated *out)
{
    for (size_t i = 0; i < generator->used; i++) {
        const exo_sequence *s = &generator->sequences[generator->order[i]];
        if (s->finish == EXO_FINISH_NONE)
            continue;
        describe(s, out);
        remove_at(generator, i);
        return true;
    }
    return false;
}

exo_status
exo_generator_cancel(exo_generator *generator, uint64_t id, exo_err *err)
{
    for (size_t i = 0; i < generator->used; i++)
        if (generator->sequences[generator->order[i]].id == id) {
            remove_at(generator, i);
            return EXO_OK;
        }
    return exo_fail(err, EXO_NOT_FOUND, "there is no sequence %" PRIu64, id);
}
