/* Logits and likelihoods of given tokens, computed with a generator's weights. The cache is that
 * of a free place, so no sequence is disturbed. The state and its owner are in generator.h. */
#include <math.h>
#include <string.h>

#include <exogym/memory.h>

#include "nn/generate/generator.h"

/* The destination of a pass's logits or likelihoods. Tags are rows of the pass. */
struct measure {
    size_t vocabulary;
    float *logits;       /* (rows, vocabulary), or NULL */
    const int32_t *next; /* (rows): the token after each row; NULL without nll */
    double *nll;         /* (rows), or NULL */
};

static void
measure_row(void *context, size_t row, float *logits, const exo_logits_scratch *scratch)
{
    (void)scratch;
    const struct measure *m = context;
    if (m->logits)
        memcpy(m->logits + row * m->vocabulary, logits, m->vocabulary * sizeof *logits);
    if (m->nll)
        m->nll[row] = exo_sampling_nll(logits, m->vocabulary, (size_t)m->next[row]);
}

static exo_status
check_tokens(const exo_generator *g, const int32_t *tokens, size_t count, exo_err *err)
{
    size_t vocabulary = exo_generator_decoder(g)->vocabulary;
    for (size_t i = 0; i < count; i++)
        if (tokens[i] < 0 || (size_t)tokens[i] >= vocabulary)
            return exo_fail(err, EXO_INVAL, "token %zu of the text is %d; the vocabulary is %zu", i,
                            tokens[i], vocabulary);
    if (!exo_generator_free_place(g))
        return exo_fail(err, EXO_FULL, "all %zu places for sequences are taken", g->opts.sequences);
    return EXO_OK;
}

exo_status
exo_generator_logits(exo_generator *generator, const int32_t *tokens, size_t count, float *logits,
                     exo_err *err)
{
    exo_forward *f = &generator->forward;
    exo_status st = check_tokens(generator, tokens, count, err);
    if (st == EXO_OK && count > generator->opts.context)
        st = exo_fail(err, EXO_INVAL, "%zu tokens, and the context is %zu", count,
                      generator->opts.context);
    if (st != EXO_OK)
        return st;
    size_t place = (size_t)(exo_generator_free_place(generator) - generator->sequences);
    struct measure m = {.vocabulary = exo_generator_decoder(generator)->vocabulary};
    for (size_t first = 0; st == EXO_OK && first < count; first += f->shape.rows) {
        size_t rows = count - first < f->shape.rows ? count - first : f->shape.rows;
        m.logits = logits + first * m.vocabulary;
        exo_pass_begin(f, measure_row, &m);
        exo_pass_add(f, place, tokens + first, rows, first, rows, 0, 1);
        st = exo_pass_run(f, err);
    }
    return st;
}

exo_status
exo_generator_nll(exo_generator *generator, const int32_t *tokens, size_t count, size_t window,
                  double *mean, exo_err *err)
{
    exo_forward *f = &generator->forward;
    window = window ? window : generator->opts.context;
    exo_status st = check_tokens(generator, tokens, count, err);
    if (st == EXO_OK && (count < 2 || window > generator->opts.context))
        st = exo_fail(
            err, EXO_INVAL,
            "%zu tokens in windows of %zu; there must be 2 at least, and the context is %zu", count,
            window, generator->opts.context);
    if (st != EXO_OK)
        return st;
    size_t place = (size_t)(exo_generator_free_place(generator) - generator->sequences);
    struct measure m = {.vocabulary = exo_generator_decoder(generator)->vocabulary};
    m.nll = exo_calloc(f->shape.rows, sizeof *m.nll);
    if (!m.nll)
        return exo_fail(err, EXO_NOMEM, "no memory for the likelihoods of %zu tokens",
                        f->shape.rows);
    double sum = 0;
    for (size_t first = 0; st == EXO_OK && first + 1 < count; first += window) {
        size_t inputs = count - 1 - first < window ? count - 1 - first : window;
        for (size_t at = 0; st == EXO_OK && at < inputs; at += f->shape.rows) {
            size_t rows = inputs - at < f->shape.rows ? inputs - at : f->shape.rows;
            m.next = tokens + first + at + 1;
            exo_pass_begin(f, measure_row, &m);
            exo_pass_add(f, place, tokens + first + at, rows, at, rows, 0, 1);
            st = exo_pass_run(f, err);
            for (size_t i = 0; st == EXO_OK && i < rows; i++)
                sum += m.nll[i];
        }
    }
    exo_free(m.nll);
    if (st != EXO_OK)
        return st;
    *mean = sum / (double)(count - 1);
    return isfinite(*mean)
               ? EXO_OK
               : exo_fail(err, EXO_FAILED, "logits are not finite: the weights are broken");
}
