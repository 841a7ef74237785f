/* The updates of a learner: batches, epochs and figures. See learner.h. Read next: learner.c (a
 * step). */
#include <math.h>

#include <exogym/memory.h>
#include <exogym/rng.h>

#include "experience/learner_impl.h"

void
exo_learner_call_back(exo_learner *l, const exo_learner_callbacks *callbacks)
{
    l->callbacks = *callbacks;
}

static void
tell_epoch(const exo_learner *l, uint64_t epoch, bool end)
{
    if (l->callbacks.epoch)
        l->callbacks.epoch(l->callbacks.context, epoch, end);
}

/* --- Batches ---------------------------------------------------------------------------------- */

/* Exchanges the present batch with stored batch `k`. */
static void
exchange(exo_learner *l, size_t k)
{
    exo_learner_batch batch = l->batch;
    l->batch = l->stored[k];
    l->stored[k] = batch;
}

static exo_status
store(exo_learner *l, exo_err *err)
{
    size_t k = l->num_stored;
    if (k == l->stored_room) {
        exo_learner_batch *more = exo_realloc(l->stored, k + 1, sizeof *more);
        if (!more)
            return exo_fail(err, EXO_NOMEM, "no memory for %zu batches", k + 1);
        l->stored = more;
        l->stored[l->stored_room++] = (exo_learner_batch){0};
    }
    exchange(l, k);
    l->num_stored++;
    return EXO_OK;
}

/* Adds what the learners' items of a batch are to the figures, score and KL as sums over the answers.
 * *items: of all learners. */
static exo_status
count_all(exo_learner *l, exo_group *group, const exo_experience *items, size_t count,
          exo_learner_figures *f, double *all, exo_err *err)
{
    enum {
        ITEMS,
        ANSWERS,
        TOKENS,
        SCORE,
        KL,
        COUNT
    };
    const exo_learner_batch *b = &l->batch;
    const exo_token_batch tokens = {.sequences = b->count, .offsets = b->tokens, .mask = b->mask};
    size_t actions = 0;
    double score = 0;
    for (size_t n = 0; n < b->count; n++)
        actions += b->actions[n];
    float sums[COUNT] = {
        [ITEMS] = (float)count, [ANSWERS] = (float)b->count, [TOKENS] = (float)actions};
    for (size_t i = 0; i < count; i++)
        for (size_t a = 0; a < items[i].answers; a++)
            score += items[i].scores[a];
    if (l->reference && b->count > 0)
        sums[KL] = (float)((double)b->count *
                           exo_sequence_kl(&tokens, b->behaviour, b->reference, EXO_KL_K1));
    sums[SCORE] = (float)score;
    exo_status st = isfinite(sums[SCORE])
                        ? exo_learner_add_up(group, exo_host_array(EXO_F32, sums, COUNT), err)
                        : exo_learner_not_finite(l, "the sum of the scores", "", err);
    *all = sums[ANSWERS] > 0 ? (double)sums[ITEMS] : 0;
    if (st == EXO_OK && !isfinite(sums[SCORE]))
        st = exo_learner_sum_not_finite(l, group, "the sum of the scores", err);
    if (st != EXO_OK || *all <= 0)
        return st;
    f->items += *all;
    f->answers += (double)sums[ANSWERS];
    f->tokens += (double)sums[TOKENS];
    f->score += (double)sums[SCORE];
    f->kl += (double)sums[KL];
    return EXO_OK;
}

/* --- Epochs ----------------------------------------------------------------------------------- */

/* Passes once over the present batch. */
static exo_status
pass_once(exo_learner *l, exo_group *group, uint64_t epoch, exo_learner_figures *f, exo_err *err)
{
    exo_status st = EXO_OK;
    exo_learner_shuffle(l, epoch);
    for (uint64_t m = 0; st == EXO_OK && m < l->minibatches; m++)
        st = exo_learner_step(l, group, m, f, err);
    return st;
}

exo_status
exo_learner_take(exo_learner *l, exo_group *group, exo_experience *items, size_t count,
                 exo_learner_figures *f, exo_err *err)
{
    double all = 0;
    group = exo_learner_is_apart(l) ? NULL : group;
    exo_status st = exo_learner_list(l, items, count, err);
    l->batch.number = l->num_stored;
    if (st == EXO_OK)
        st = exo_learner_look(l, err);
    if (st == EXO_OK)
        st = count_all(l, group, items, count, f, &all, err);
    if (st != EXO_OK || all <= 0)
        return st;
    if (l->num_stored == 0)
        tell_epoch(l, 0, false);
    exo_learner_judge(l);
    st = pass_once(l, group, 0, f, err);
    return st == EXO_OK ? store(l, err) : st;
}

/* Passes over all batches in an order that the run's seed determines. */
static exo_status
pass_again(exo_learner *l, exo_group *group, uint64_t epoch, uint32_t *order,
           exo_learner_figures *f, exo_err *err)
{
    exo_rng rng;
    exo_status st = EXO_OK;
    uint32_t count = (uint32_t)l->num_stored;
    for (uint32_t i = 0; i < count; i++)
        order[i] = i;
    exo_rng_init(&rng, l->seed, EXO_RNG_SHUFFLE, 0, l->version * l->epochs + epoch);
    if (count > 1)
        exo_rng_permutation(&rng, order, count);
    tell_epoch(l, epoch, false);
    for (uint32_t i = 0; st == EXO_OK && i < count; i++) {
        exchange(l, order[i]);
        st = pass_once(l, group, epoch, f, err);
        exchange(l, order[i]);
    }
    tell_epoch(l, epoch, true);
    return st;
}

static exo_status
take_epochs(exo_learner *l, exo_group *group, exo_learner_figures *f, exo_err *err)
{
    exo_status st = EXO_OK;
    double most = l->objective.target_kl;
    uint32_t *order = exo_calloc(l->num_stored, sizeof *order);
    if (!order)
        return exo_fail(err, EXO_NOMEM, "no memory for %zu batches", l->num_stored);
    for (uint64_t e = 1; st == EXO_OK && e < l->epochs; e++) {
        if (most > 0 && f->last_kl > most) {
            if (exo_learner_is_apart(l))
                st = exo_learner_idle(l, (l->epochs - e) * l->minibatches * l->num_stored, err);
            break;
        }
        st = pass_again(l, group, e, order, f, err);
    }
    exo_free(order);
    return st;
}

/* --- Updates ---------------------------------------------------------------------------------- */

/* Makes means of the sums. */
static void
finish_figures(exo_learner *l, exo_learner_figures *f)
{
    f->score /= f->answers;
    f->kl /= f->answers;
    if (f->steps > 0) {
        f->loss /= (double)f->steps;
        f->value_loss /= (double)f->steps;
        f->ptx_loss /= (double)f->steps;
        f->clipped /= (double)f->steps;
    }
    f->kl_coef = l->objective.control.coef;
    exo_kl_control_update(&l->objective.control, f->kl, (size_t)f->answers);
}

exo_status
exo_learner_end(exo_learner *l, exo_group *group, uint64_t batches, exo_learner_figures *f,
                exo_err *err)
{
    uint64_t missing = batches - l->num_stored;
    exo_status st = EXO_OK;
    group = exo_learner_is_apart(l) ? NULL : group;
    if (l->num_stored > 0) {
        tell_epoch(l, 0, true);
        st = take_epochs(l, group, f, err);
    }
    if (st == EXO_OK && exo_learner_is_apart(l))
        st = exo_learner_idle(l, missing * l->epochs * l->minibatches, err);
    if (f->items > 0)
        finish_figures(l, f);
    l->num_stored = 0;
    if (st == EXO_OK && (f->items > 0 || exo_learner_is_apart(l)))
        l->version++;
    return st;
}

exo_status
exo_learner_update(exo_learner *l, exo_group *group, exo_experience *items, size_t count,
                   exo_learner_figures *f, exo_err *err)
{
    *f = (exo_learner_figures){0};
    exo_status st = exo_learner_take(l, group, items, count, f, err);
    if (st != EXO_OK)
        l->num_stored = 0;
    return st == EXO_OK ? exo_learner_end(l, group, 1, f, err) : st;
}
