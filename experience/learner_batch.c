/* The batch of an update: answers by slice, their advantages, their order. See learner_impl.h. */
#include <math.h>
#include <stdlib.h>

#include <exogym/memory.h>
#include <exogym/rng.h>

#include "experience/learner_impl.h"

void
exo_learner_batch_release(exo_learner_batch *b)
{
    void *arrays[] = {b->picks, b->tokens, b->bounds,     b->order,  b->scores,
                      b->kl,    b->values, b->advantages, b->returns};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
        exo_free(arrays[i]);
    *b = (exo_learner_batch){0};
}

static bool
make_answer_room(exo_learner_batch *b, size_t answers)
{
    if (answers <= b->room)
        return true;
    exo_free(b->picks);
    exo_free(b->tokens);
    exo_free(b->order);
    exo_free(b->scores);
    b->picks = exo_calloc(answers, sizeof *b->picks);
    b->tokens = exo_calloc(answers + 1, sizeof *b->tokens);
    b->order = exo_calloc(answers, sizeof *b->order);
    b->scores = exo_calloc(answers, sizeof *b->scores);
    b->room = b->picks && b->tokens && b->order && b->scores ? answers : 0;
    return b->room > 0;
}

static bool
make_token_room(exo_learner_batch *b, size_t tokens)
{
    float **arrays[] = {&b->kl, &b->values, &b->advantages, &b->returns};
    bool good = true;
    if (tokens <= b->token_room)
        return true;
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) {
        exo_free(*arrays[i]);
        *arrays[i] = exo_calloc(tokens, sizeof **arrays[i]);
        good = good && *arrays[i];
    }
    b->token_room = good ? tokens : 0;
    return good;
}

static int
compare_ids(const void *a, const void *b)
{
    const exo_experience *x = a, *y = b;
    return (x->id > y->id) - (x->id < y->id);
}

/* Appends the answers of an item. */
static void
list_item(exo_learner_batch *b, const exo_experience *e)
{
    size_t first = 0;
    for (size_t a = 0; a < e->answers; a++) {
        size_t length = (size_t)e->lengths[a];
        b->picks[b->count] = (exo_pick){.from = e, .answer = a, .first = first};
        b->scores[b->count] = e->scores[a];
        b->tokens[b->count + 1] = b->tokens[b->count] + length;
        b->count++;
        first += length;
    }
}

exo_status
exo_learner_list(exo_learner *l, exo_experience *items, size_t count, exo_err *err)
{
    exo_learner_batch *b = &l->batch;
    size_t answers = 0, tokens = 0, local = (size_t)(l->slices / l->size);
    if (count > 1)
        qsort(items, count, sizeof *items, compare_ids);
    for (size_t i = 0; i < count; i++) {
        answers += items[i].answers;
        tokens += items[i].tokens_length;
    }
    if (!make_answer_room(b, answers + 1) || !make_token_room(b, tokens + 1))
        return exo_fail(err, EXO_NOMEM, "no memory for %zu answers of %zu tokens", answers, tokens);
    b->count = 0;
    b->tokens[0] = 0;
    for (size_t slice = 0; slice < local; slice++) {
        b->bounds[slice] = b->count;
        for (size_t i = 0; i < count; i++)
            if (items[i].id % l->slices == l->rank + slice * l->size)
                list_item(b, &items[i]);
    }
    b->bounds[local] = b->count;
    return b->count == answers
               ? EXO_OK
               : exo_fail(err, EXO_INVAL,
                          "trainer %u has got an item that another trainer learns from: of %u "
                          "trainers, trainer t learns from items t, t + %u, ... (route: modulo "
                          "from as many makers)",
                          l->rank, l->size, l->size);
}

/* --- Advantages ------------------------------------------------------------------------------- */

/* The advantage of each answer of one item, from their scores (count). */
static void
compare_answers(exo_algorithm algorithm, const double *scores, size_t count, double *out)
{
    double sum = 0, squares = 0, n = (double)count;
    for (size_t i = 0; i < count; i++)
        sum += scores[i];
    for (size_t i = 0; i < count; i++)
        squares += (scores[i] - sum / n) * (scores[i] - sum / n);
    double deviation = count > 1 ? sqrt(squares / (n - 1)) : 0;
    for (size_t i = 0; i < count; i++) {
        if (algorithm == EXO_GRPO)
            out[i] = (scores[i] - sum / n) / (deviation + 1e-4);
        else if (algorithm == EXO_RLOO && count > 1)
            out[i] = scores[i] - (sum - scores[i]) / (n - 1);
        else
            out[i] = scores[i];
    }
}

/* GAE over the tokens of an answer: rewards are -kl_coef kl, and the score at the last token. */
static void
judge_by_values(const exo_learner *l, size_t answer)
{
    const exo_learner_batch *b = &l->batch;
    double next = 0, advantage = 0;
    for (size_t i = b->tokens[answer + 1]; i-- > b->tokens[answer];) {
        double reward = -l->kl_coef * (double)b->kl[i];
        if (i + 1 == b->tokens[answer + 1])
            reward += b->scores[answer];
        double value = (double)b->values[i], delta = reward + l->gamma * next - value;
        advantage = delta + l->gamma * l->lambda * advantage;
        b->advantages[i] = (float)advantage;
        b->returns[i] = (float)(advantage + value);
        next = value;
    }
}

void
exo_learner_judge(exo_learner *l)
{
    exo_learner_batch *b = &l->batch;
    for (size_t p = 0; p < b->count && exo_learner_has_critic(l); p++)
        judge_by_values(l, p);
    if (exo_learner_has_critic(l))
        return;
    for (size_t p = 0; p < b->count; p++)
        for (size_t i = b->tokens[p]; i < b->tokens[p + 1]; i++)
            b->scores[p] -= l->kl_coef * (double)b->kl[i];
    for (size_t p = 0, n; p < b->count; p += n) {
        double advantages[EXO_EXPERIENCE_MAX_ANSWERS];
        n = b->picks[p].from->answers;
        compare_answers(l->algorithm, b->scores + p, n, advantages);
        for (size_t a = 0; a < n; a++)
            for (size_t i = b->tokens[p + a]; i < b->tokens[p + a + 1]; i++)
                b->advantages[i] = (float)advantages[a];
    }
}

/* --- Order ------------------------------------------------------------------------------------ */

void
exo_learner_shuffle(exo_learner *l, uint64_t epoch)
{
    exo_rng rng;
    exo_learner_batch *b = &l->batch;
    for (size_t s = 0; s < l->slices / l->size; s++) {
        uint32_t *order = b->order + b->bounds[s];
        size_t n = b->bounds[s + 1] - b->bounds[s];
        uint32_t slice = (uint32_t)(l->rank + s * l->size);
        for (size_t i = 0; i < n; i++)
            order[i] = (uint32_t)i;
        exo_rng_init(&rng, l->seed, EXO_RNG_SHUFFLE, 1 + slice, l->version * l->epochs + epoch);
        if (epoch > 0 && n > 0)
            exo_rng_permutation(&rng, order, (uint32_t)n);
    }
}
