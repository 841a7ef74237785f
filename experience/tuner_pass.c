/* The passes of a tuner through its model, and its losses. See tuner_impl.h. */
#include <math.h>

#include <exogym/decoder.h>
#include <exogym/learning.h>
#include <exogym/loss.h>
#include <exogym/memory.h>

#include "experience/tuner_impl.h"

/* A pass: its texts are laid out in t->rows. */
struct passing {
    exo_tuner *t;
    const uint64_t *step; /* NULL: no gradients */
    double total;         /* rows with a target, or comparisons, of all passes and tuners */
    double *sums;
};

static bool
forward(struct passing *p, exo_params *params, bool grad, exo_outputs *outputs)
{
    exo_tuner *t = p->t;
    const exo_pass pass = {.train = grad,
                           .grad = grad,
                           .seed = t->seed,
                           .node = t->rank,
                           .step = p->step ? *p->step : 0};
    exo_batch batch = exo_text_rows_batch(&t->rows);
    exo_tape_begin(t->tape, params, &pass);
    return exo_model_forward(t->model, t->tape, &batch, outputs);
}

static exo_tensor *
input(exo_tuner *t, exo_dtype dtype, size_t count, const void *data)
{
    return exo_tape_input(t->tape, dtype, 1, &count, data);
}

static size_t
num_rows(const exo_tuner *t)
{
    return t->rows.texts * t->rows.length;
}

/* Adds what the scores (2 N) of N comparisons say, the chosen one first. */
static void
count_scores(struct passing *p, const float *scores, size_t comparisons)
{
    for (size_t i = 0; i < comparisons; i++) {
        double chosen = (double)scores[2 * i], rejected = (double)scores[2 * i + 1];
        p->sums[EXO_TUNER_RIGHT] += chosen > rejected ? 1 : chosen == rejected ? 0.5 : 0;
        p->sums[EXO_TUNER_MARGIN] += chosen - rejected;
        p->sums[EXO_TUNER_SCORE] += chosen + rejected;
        p->sums[EXO_TUNER_SQUARE] += chosen * chosen + rejected * rejected;
    }
}

/* --- The losses, each a mean over the texts of the pass --------------------------------------- */

static exo_tensor *
answers_loss(struct passing *p)
{
    exo_tuner *t = p->t;
    exo_outputs outputs = exo_outputs_init((const char *const[]){"logits", NULL});
    if (!forward(p, t->params, p->step != NULL, &outputs))
        return NULL;
    return exo_cross_entropy(t->tape, exo_outputs_logits(&outputs, "logits"),
                             input(t, EXO_I32, num_rows(t), t->rows.targets));
}

/* The scores of the texts, which t->scratch gets. */
static exo_tensor *
scores_of(struct passing *p)
{
    exo_tuner *t = p->t;
    exo_outputs outputs = exo_outputs_init((const char *const[]){"values", NULL});
    if (!forward(p, t->params, p->step != NULL, &outputs))
        return NULL;
    exo_tensor *scores = exo_sequence_sum(t->tape, exo_outputs_get(&outputs, "values"),
                                          input(t, EXO_F32, num_rows(t), t->rows.last),
                                          input(t, EXO_I32, t->rows.texts + 1, t->rows.offsets));
    if (scores)
        exo_tensor_read(scores, t->scratch);
    return scores;
}

static exo_tensor *
ranking_loss(struct passing *p)
{
    exo_tensor *scores = scores_of(p);
    if (!scores)
        return NULL;
    count_scores(p, p->t->scratch, p->t->rows.texts / 2);
    return exo_smoothed_ranking_loss(p->t->tape, scores, (float)p->t->smoothing);
}

/* Log-probabilities of the rows' targets. */
static exo_tensor *
log_probs_of(struct passing *p, exo_params *params, bool grad)
{
    exo_tuner *t = p->t;
    exo_outputs outputs = exo_outputs_init((const char *const[]){"logits", NULL});
    if (!forward(p, params, grad, &outputs))
        return NULL;
    return exo_log_probs(t->tape, exo_outputs_logits(&outputs, "logits"),
                         input(t, EXO_I32, num_rows(t), t->rows.targets), 1);
}

/* Adds what beta (log p - log p_0) of the texts say; `reference` (rows). */
static void
count_log_probs(struct passing *p, const exo_tensor *log_probs, const float *reference,
                float *scratch)
{
    exo_tuner *t = p->t;
    exo_tensor_read(log_probs, scratch);
    for (size_t i = 0; i < t->rows.texts; i++) {
        double sum = 0;
        for (size_t k = i * t->rows.length; k < (i + 1) * t->rows.length; k++)
            sum += t->rows.mask[k] > 0 ? (double)scratch[k] - (double)reference[k] : 0;
        scratch[i] = (float)(t->beta * sum); /* i is before the rows that are still read */
    }
    count_scores(p, scratch, t->rows.texts / 2);
}

static exo_tensor *
dpo_loss(struct passing *p)
{
    exo_tuner *t = p->t;
    float *reference = t->scratch, *scratch = t->scratch + num_rows(t);
    exo_tensor *log_probs = log_probs_of(p, t->reference, false);
    if (!log_probs)
        return NULL;
    exo_tensor_read(log_probs, reference);
    log_probs = log_probs_of(p, t->params, p->step != NULL);
    if (!log_probs)
        return NULL;
    count_log_probs(p, log_probs, reference, scratch);
    return exo_dpo_loss(t->tape, log_probs, input(t, EXO_F32, num_rows(t), reference),
                        input(t, EXO_F32, num_rows(t), t->rows.mask),
                        input(t, EXO_I32, t->rows.texts + 1, t->rows.offsets), (float)t->beta,
                        (float)t->smoothing);
}

/* --- Passes ----------------------------------------------------------------------------------- */

static exo_status
lay_out(exo_tuner *t, const exo_prompted *const *texts, size_t count, exo_err *err)
{
    exo_status st =
        exo_text_rows_fill(&t->rows, texts, count, exo_decoder_spec_of(t->model)->context, err);
    size_t room = 2 * num_rows(t);
    if (st != EXO_OK || room <= t->scratch_room)
        return st;
    exo_free(t->scratch);
    t->scratch = exo_calloc(room, sizeof *t->scratch);
    t->scratch_room = t->scratch ? room : 0;
    return t->scratch ? EXO_OK : exo_fail(err, EXO_NOMEM, "no memory for %zu rows", room);
}

static exo_status
pass_over(struct passing *p, const exo_prompted *const *texts, size_t count, exo_err *err)
{
    exo_tuner *t = p->t;
    exo_status st = lay_out(t, texts, count, err);
    if (st != EXO_OK)
        return st;
    exo_tensor *loss = t->kind == EXO_TUNER_ANSWERS   ? answers_loss(p)
                       : t->kind == EXO_TUNER_RANKING ? ranking_loss(p)
                                                      : dpo_loss(p);
    if (!loss)
        return exo_tape_error(t->tape, err);
    double here = t->kind == EXO_TUNER_ANSWERS ? (double)t->rows.count : (double)count / 2;
    double share = here / p->total;
    st = p->step ? exo_tape_backward(t->tape, loss, (float)share, err) : EXO_OK;
    if (st != EXO_OK)
        return st;
    p->sums[EXO_TUNER_LOSS] += share * (double)exo_tensor_item(loss); /* waits for the device */
    return exo_tape_error(t->tape, err);
}

/* What the mean is over. */
static double
total_of(const exo_tuner *t, const uint32_t *samples, size_t count)
{
    size_t total = 0;
    if (t->kind != EXO_TUNER_ANSWERS)
        return (double)count;
    for (size_t i = 0; i < count; i++) {
        const exo_prompted *text = exo_texts_at(t->texts, samples[i]);
        total += text->length - text->prompt;
    }
    return (double)total;
}

exo_status
exo_tuner_pass(exo_tuner *t, const uint32_t *samples, size_t count, const uint64_t *step,
               double sums[EXO_TUNER_SUMS], exo_err *err)
{
    size_t each = exo_texts_each(t->texts), n = 0;
    struct passing p = {.t = t, .step = step, .total = total_of(t, samples, count), .sums = sums};
    const exo_prompted **texts = exo_calloc(t->rows_a_pass, sizeof *texts);
    exo_status st = texts ? EXO_OK : exo_fail(err, EXO_NOMEM, "no memory for a pass");
    for (size_t i = t->rank; st == EXO_OK && i < count; i += t->size) {
        const exo_prompted *sample = exo_texts_at(t->texts, samples[i]);
        for (size_t k = 0; k < each; k++)
            texts[n++] = &sample[k];
        if (n + each > t->rows_a_pass || i + t->size >= count) {
            st = pass_over(&p, texts, n, err);
            n = 0;
        }
    }
    exo_free(texts);
    return st;
}

exo_status
exo_tuner_score_references(exo_tuner *t, double *mean, double *deviation, exo_err *err)
{
    size_t count = exo_texts_count(t->references);
    double sum = 0, squares = 0;
    struct passing p = {.t = t};
    const exo_prompted **texts = exo_calloc(t->rows_a_pass, sizeof *texts);
    exo_status st = texts ? EXO_OK : exo_fail(err, EXO_NOMEM, "no memory for a pass");
    for (size_t i = 0, n = 0; st == EXO_OK && i < count; i += n) {
        for (n = 0; n < t->rows_a_pass && i + n < count; n++)
            texts[n] = exo_texts_at(t->references, i + n);
        st = lay_out(t, texts, n, err);
        if (st == EXO_OK) {
            scores_of(&p);
            st = exo_tape_error(t->tape, err); /* also of reading the scores */
        }
        for (size_t k = 0; st == EXO_OK && k < n; k++) {
            sum += (double)t->scratch[k];
            squares += (double)t->scratch[k] * (double)t->scratch[k];
        }
    }
    exo_free(texts);
    *mean = sum / (double)count;
    *deviation = sqrt(fmax(0, squares / (double)count - *mean * *mean));
    return st;
}
