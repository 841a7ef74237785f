/* The batch of an update: answers by slice, their advantages, their order. See learner_impl.h. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <exogym/decoder.h>
#include <exogym/memory.h>
#include <exogym/rng.h>

#include "experience/learner_impl.h"

enum {
    TOKEN_ARRAYS = 9
};

static void
token_arrays(exo_learner_batch *b, float **out[TOKEN_ARRAYS])
{
    float **arrays[TOKEN_ARRAYS] = {&b->mask,       &b->behaviour, &b->reference,
                                    &b->proximal,   &b->values,    &b->rewards,
                                    &b->advantages, &b->returns,   &b->turns};
    memcpy(out, arrays, sizeof arrays);
}

static void
release_answers(exo_learner_batch *b)
{
    exo_free(b->picks);
    exo_free(b->tokens);
    exo_free(b->order);
    exo_free(b->scores);
    exo_free(b->groups);
    exo_free(b->actions);
    exo_free(b->ends);
    exo_free(b->by_answer);
    exo_free(b->by_answer2);
}

void
exo_learner_batch_release(exo_learner_batch *b)
{
    float **arrays[TOKEN_ARRAYS];
    token_arrays(b, arrays);
    for (size_t i = 0; i < TOKEN_ARRAYS; i++)
        exo_free(*arrays[i]);
    release_answers(b);
    exo_free(b->bounds);
    *b = (exo_learner_batch){0};
}

static bool
make_answer_room(exo_learner_batch *b, size_t answers)
{
    if (answers <= b->room)
        return true;
    release_answers(b);
    b->picks = exo_calloc(answers, sizeof *b->picks);
    b->tokens = exo_calloc(answers + 1, sizeof *b->tokens);
    b->order = exo_calloc(answers, sizeof *b->order);
    b->scores = exo_calloc(answers, sizeof *b->scores);
    b->groups = exo_calloc(answers, sizeof *b->groups);
    b->actions = exo_calloc(answers, sizeof *b->actions);
    b->ends = exo_calloc(answers, sizeof *b->ends);
    b->by_answer = exo_calloc(answers, sizeof *b->by_answer);
    b->by_answer2 = exo_calloc(answers, sizeof *b->by_answer2);
    bool good = b->picks && b->tokens && b->order && b->scores && b->groups && b->actions &&
                b->ends && b->by_answer && b->by_answer2;
    b->room = good ? answers : 0;
    return good;
}

static bool
make_token_room(exo_learner_batch *b, size_t tokens)
{
    float **arrays[TOKEN_ARRAYS];
    bool good = true;
    if (tokens <= b->token_room)
        return true;
    token_arrays(b, arrays);
    for (size_t i = 0; i < TOKEN_ARRAYS; i++) {
        exo_free(*arrays[i]);
        *arrays[i] = exo_calloc(tokens, sizeof **arrays[i]);
        good = good && *arrays[i];
    }
    b->token_room = good ? tokens : 0;
    return good;
}

/* --- Listing ---------------------------------------------------------------------------------- */

static int
compare_ids(const void *a, const void *b)
{
    const exo_experience *x = a, *y = b;
    return (x->id > y->id) - (x->id < y->id);
}

/* Writes which tokens of answer n are actions, and the rewards of its turns. */
static void
list_turns(exo_learner_batch *b, size_t n)
{
    const exo_pick *p = &b->picks[n];
    const exo_experience *e = p->from;
    size_t first = b->tokens[n], count = (size_t)e->lengths[p->answer];
    double earned = 0;
    b->actions[n] = exo_experience_actions(e, p->first, count);
    for (size_t i = 0; i < count; i++) {
        b->mask[first + i] = exo_pick_is_action(p, i) ? 1 : 0;
        b->turns[first + i] = e->rewards ? e->rewards[p->first + i] : 0;
        earned += (double)b->turns[first + i];
    }
    b->ends[n] = (float)(e->scores[p->answer] - earned);
}

/* Appends the answers of an item. */
static void
list_item(exo_learner_batch *b, const exo_experience *e)
{
    size_t first = 0;
    for (size_t a = 0; a < e->answers; a++) {
        size_t length = (size_t)e->lengths[a], token = b->tokens[b->count];
        b->picks[b->count] = (exo_pick){.from = e, .answer = a, .first = first};
        b->scores[b->count] = (float)e->scores[a];
        b->groups[b->count] = e->id;
        b->tokens[b->count + 1] = token + length;
        memcpy(b->behaviour + token, exo_pick_behaviour(&b->picks[b->count]),
               length * sizeof *b->behaviour);
        list_turns(b, b->count);
        b->count++;
        first += length;
    }
}

/* A pass has one temperature. */
static exo_status
check_temperatures(const exo_experience *items, size_t count, exo_err *err)
{
    for (size_t i = 1; i < count; i++) {
        float first = exo_learner_temperature(&items[0]), t = exo_learner_temperature(&items[i]);
        if (t != first)
            return exo_fail(err, EXO_INVAL,
                            "item %llu of maker %llu was drawn with temperature %g, item %llu of "
                            "maker %llu with %g: give all makers of a trainer the same "
                            "generate.temperature, and top_k and top_p to all or to none",
                            (unsigned long long)items[0].id, (unsigned long long)items[0].maker,
                            (double)first, (unsigned long long)items[i].id,
                            (unsigned long long)items[i].maker, (double)t);
    }
    return EXO_OK;
}

exo_status
exo_learner_check(const exo_learner *l, const exo_experience *e, exo_err *err)
{
    const exo_decoder_spec *spec = exo_decoder_spec_of(l->actor.model);
    size_t vocabulary = spec->vocabulary;
    for (size_t i = 0; i < e->prompt_length + e->tokens_length; i++) {
        bool of_prompt = i < e->prompt_length;
        size_t at = of_prompt ? i : i - e->prompt_length;
        int32_t token = of_prompt ? e->prompt_tokens[at] : e->tokens[at];
        if ((size_t)token >= vocabulary)
            return exo_fail(err, EXO_INVAL,
                            "token %zu of %s of item %llu of maker %llu is %d, but the vocabulary "
                            "is %zu",
                            at, of_prompt ? "the prompt" : "the answers", (unsigned long long)e->id,
                            (unsigned long long)e->maker, token, vocabulary);
    }
    for (size_t a = 0; a < e->answers; a++) {
        size_t needs = e->prompt_length + (size_t)e->lengths[a] - 1; /* nothing follows the last */
        if (needs > spec->context)
            return exo_fail(err, EXO_INVAL,
                            "answer %zu of item %llu of maker %llu needs a context of %zu; the "
                            "model's is %zu",
                            a, (unsigned long long)e->id, (unsigned long long)e->maker, needs,
                            spec->context);
    }
    return EXO_OK;
}

/* An answer that has no others to be compared with has the advantage 0. */
static exo_status
check_groups(const exo_learner *l, const exo_experience *items, size_t count, exo_err *err)
{
    for (size_t i = 0; l->objective.groups && i < count; i++)
        if (items[i].answers < 2)
            return exo_fail(err, EXO_INVAL,
                            "item %llu of maker %llu has one answer, but the trainer's algorithm "
                            "compares the answers of a prompt: let makers have at least 2 answers",
                            (unsigned long long)items[i].id, (unsigned long long)items[i].maker);
    return EXO_OK;
}

exo_status
exo_learner_list(exo_learner *l, exo_experience *items, size_t count, exo_err *err)
{
    exo_learner_batch *b = &l->batch;
    size_t answers = 0, tokens = 0, local = (size_t)(l->slices / l->size);
    if (count > 1)
        qsort(items, count, sizeof *items, compare_ids);
    exo_status st = check_temperatures(items, count, err);
    if (st == EXO_OK)
        st = check_groups(l, items, count, err);
    if (st != EXO_OK)
        return st;
    for (size_t i = 0; i < count; i++) {
        answers += items[i].answers;
        tokens += items[i].tokens_length;
    }
    if (!b->bounds)
        b->bounds = exo_calloc(local + 1, sizeof *b->bounds);
    if (!b->bounds || !make_answer_room(b, answers + 1) || !make_token_room(b, tokens + 1))
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

exo_token_batch
exo_learner_slice(const exo_learner *l, size_t slice)
{
    const exo_learner_batch *b = &l->batch;
    return (exo_token_batch){.sequences = b->bounds[slice + 1] - b->bounds[slice],
                             .offsets = b->tokens + b->bounds[slice],
                             .mask = b->mask};
}

/* --- Blame ------------------------------------------------------------------------------------ */

exo_status
exo_learner_not_finite(const exo_learner *l, const char *what, const char *why, exo_err *err)
{
    const exo_learner_batch *b = &l->batch;
    size_t token = 0, lowest = 0, largest = 0; /* answers */
    if (b->count == 0)
        return exo_fail(err, EXO_FAILED, "%s of version %llu is not finite%s", what,
                        (unsigned long long)l->version, why);
    for (size_t n = 0; n < b->count; n++) {
        for (size_t t = b->tokens[n]; t < b->tokens[n + 1]; t++)
            if (b->behaviour[t] < b->behaviour[b->tokens[lowest] + token]) {
                lowest = n;
                token = t - b->tokens[n];
            }
        if (fabsf(b->scores[n]) > fabsf(b->scores[largest]))
            largest = n;
    }
    const exo_experience *low = b->picks[lowest].from, *large = b->picks[largest].from;
    return exo_fail(
        err, EXO_FAILED,
        "%s of version %llu is not finite%s. Of this trainer's items, item %llu of maker %llu has "
        "the largest score, %g, and item %llu of maker %llu the lowest log-probability, %g at "
        "token %zu of answer %zu: scale the reward down, lower the learning rate, or look at these "
        "makers",
        what, (unsigned long long)l->version, why, (unsigned long long)large->id,
        (unsigned long long)large->maker, (double)b->scores[largest], (unsigned long long)low->id,
        (unsigned long long)low->maker, (double)b->behaviour[b->tokens[lowest] + token], token,
        b->picks[lowest].answer);
}

exo_status
exo_learner_sum_not_finite(const exo_learner *l, const exo_group *group, const char *what,
                           exo_err *err)
{
    char why[96] = "";
    if (group && l->size > 1)
        snprintf(why, sizeof why,
                 ", though this trainer's part is: the sum over the %u trainers overflows",
                 l->size);
    return exo_learner_not_finite(l, what, why, err);
}

/* --- Advantages ------------------------------------------------------------------------------- */

/* Advantages of whole answers, by their group. */
static void
judge_groups(exo_learner *l, const exo_token_batch *t, size_t first)
{
    exo_learner_batch *b = &l->batch;
    float *rewards = b->by_answer + first, *advantages = b->by_answer2 + first;
    exo_sequence_rewards(t, b->behaviour, b->reference, b->scores + first, &l->objective.reward,
                         rewards);
    exo_group_advantages(l->objective.group, t->sequences, b->groups + first, rewards, advantages);
    exo_spread(t, advantages, b->advantages);
}

static void
judge_tokens(exo_learner *l, const exo_token_batch *t, size_t first)
{
    exo_learner_batch *b = &l->batch;
    const exo_objective_opts *o = &l->objective;
    const float *values = o->values ? b->values : NULL;
    exo_token_rewards(t, b->behaviour, b->reference, b->ends + first, &o->reward, b->rewards);
    size_t begin = t->offsets[0], count = t->offsets[t->sequences] - begin;
    exo_vec_add(exo_host_array(EXO_F32, b->rewards + begin, count),
                exo_host_array(EXO_F32, b->rewards + begin, count),
                exo_host_array(EXO_F32, b->turns + begin, count));
    if (o->correction.kind == EXO_CORRECTION_VTRACE)
        exo_vtrace(t, b->proximal, b->behaviour, b->rewards, values, &o->vtrace, b->advantages,
                   b->returns);
    else
        exo_token_gae(t, b->rewards, values, o->gamma, o->lambda, b->advantages, b->returns);
}

void
exo_learner_judge(exo_learner *l)
{
    exo_learner_batch *b = &l->batch;
    l->objective.reward.kl_coef = l->objective.control.coef;
    for (size_t s = 0; s < l->slices / l->size; s++) {
        exo_token_batch t = exo_learner_slice(l, s);
        size_t first = t.sequences ? t.offsets[0] : 0;
        if (t.sequences == 0)
            continue;
        if (l->objective.groups)
            judge_groups(l, &t, b->bounds[s]);
        else
            judge_tokens(l, &t, b->bounds[s]);
        if (l->objective.whiten)
            exo_whiten(t.offsets[t.sequences] - first, b->mask + first, true,
                       b->advantages + first);
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
        exo_rng_init(&rng, l->seed, EXO_RNG_SHUFFLE, 1 + slice,
                     l->version * l->epochs + epoch + (b->number << 48));
        if (epoch > 0 && n > 0)
            exo_rng_permutation(&rng, order, (uint32_t)n);
    }
}

void
exo_learner_cut(const exo_learner *l, size_t slice, uint64_t m, size_t *begin, size_t *end)
{
    const exo_learner_batch *b = &l->batch;
    size_t first = b->bounds[slice], n = b->bounds[slice + 1] - first;
    *begin = first + (size_t)(m * n / l->minibatches);
    *end = first + (size_t)((m + 1) * n / l->minibatches);
}
