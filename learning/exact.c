/* Tasks of sequences with a known optimum (exogym/exact.h). Pure functions, in double. */
#include <exogym/exact.h>

#include <math.h>
#include <stdbool.h>

size_t
exo_exact_sequences(const exo_exact_task *task)
{
    size_t count = 1;
    for (size_t i = 0; i < task->length; i++)
        count *= task->vocabulary;
    return count;
}

size_t
exo_exact_states(const exo_exact_task *task)
{
    return (exo_exact_sequences(task) - 1) / (task->vocabulary - 1);
}

/* Whether V^L is within the bound, without overflow. */
static bool
is_small(const exo_exact_task *task)
{
    size_t count = 1;
    for (size_t i = 0; i < task->length; i++) {
        if (count > EXO_EXACT_SEQUENCES / task->vocabulary)
            return false;
        count *= task->vocabulary;
    }
    return true;
}

static double
reference_of(const exo_exact_task *task, size_t i)
{
    return task->reference ? task->reference[i]
                           : -(double)task->length * log((double)task->vocabulary);
}

exo_status
exo_exact_check(const exo_exact_task *task, exo_err *err)
{
    double sum = 0;
    if (task->vocabulary < 2 || task->length == 0 || !is_small(task))
        return exo_fail(
            err, EXO_INVAL,
            "a task of %zu tokens of a vocabulary of %zu; expected at least 1 and 2, and "
            "at most %d sequences",
            task->length, task->vocabulary, EXO_EXACT_SEQUENCES);
    if (!(task->beta > 0) || !isfinite(task->beta))
        return exo_fail(err, EXO_INVAL, "beta is %g; expected a finite number above 0", task->beta);
    for (size_t i = 0; i < exo_exact_sequences(task); i++) {
        if (!isfinite(task->rewards[i]))
            return exo_fail(err, EXO_INVAL, "the reward of sequence %zu is %g", i,
                            task->rewards[i]);
        sum += exp(reference_of(task, i));
    }
    if (!(fabs(sum - 1) < 1e-6))
        return exo_fail(err, EXO_INVAL, "the reference's probabilities sum to %g; expected 1", sum);
    return EXO_OK;
}

void
exo_exact_tokens(const exo_exact_task *task, size_t index, int32_t *tokens)
{
    for (size_t i = task->length; i-- > 0; index /= task->vocabulary)
        tokens[i] = (int32_t)(index % task->vocabulary);
}

/* The digits of the first `length` tokens as a number. */
static size_t
number_of(const exo_exact_task *task, const int32_t *tokens, size_t length)
{
    size_t number = 0;
    for (size_t i = 0; i < length; i++)
        number = number * task->vocabulary + (size_t)tokens[i];
    return number;
}

size_t
exo_exact_index(const exo_exact_task *task, const int32_t *tokens)
{
    return number_of(task, tokens, task->length);
}

size_t
exo_exact_state(const exo_exact_task *task, const int32_t *tokens, size_t length)
{
    exo_exact_task shorter = {.vocabulary = task->vocabulary, .length = length};
    return exo_exact_states(&shorter) + number_of(task, tokens, length);
}

double
exo_exact_objective(const exo_exact_task *task, const double *log_probs, double *reward, double *kl)
{
    double r = 0, d = 0;
    for (size_t i = 0; i < exo_exact_sequences(task); i++) {
        double p = exp(log_probs[i]);
        if (p > 0) { /* 0 log 0 counts as 0 */
            r += p * task->rewards[i];
            d += p * (log_probs[i] - reference_of(task, i));
        }
    }
    if (reward)
        *reward = r;
    if (kl)
        *kl = d;
    return r - task->beta * d;
}

double
exo_exact_optimum(const exo_exact_task *task, double *log_probs)
{
    double max = -INFINITY, sum = 0;
    size_t count = exo_exact_sequences(task);
    for (size_t i = 0; i < count; i++)
        max = fmax(max, reference_of(task, i) + task->rewards[i] / task->beta);
    for (size_t i = 0; i < count; i++)
        sum += exp(reference_of(task, i) + task->rewards[i] / task->beta - max);
    double log_z = max + log(sum);
    for (size_t i = 0; log_probs && i < count; i++)
        log_probs[i] = reference_of(task, i) + task->rewards[i] / task->beta - log_z;
    return task->beta * log_z;
}
