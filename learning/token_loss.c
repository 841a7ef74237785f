/* Losses of policies over tokens, composed from the operations of exogym/loss.h. No state. Read
 * next: nn/ops/row_losses.c. */
#include <exogym/learning.h>

void
exo_token_weights(const exo_token_batch *b, exo_reduction reduction, double constant,
                  float *weights)
{
    double all = 0;
    for (size_t t = 0; t < b->offsets[b->sequences]; t++)
        all += b->mask[t] != 0.0f;
    for (size_t n = 0; n < b->sequences; n++) {
        double own = 0, by = all;
        for (size_t t = b->offsets[n]; t < b->offsets[n + 1]; t++)
            own += b->mask[t] != 0.0f;
        if (reduction == EXO_REDUCE_SEQUENCES)
            by = (double)b->sequences * own;
        else if (reduction == EXO_REDUCE_CONSTANT)
            by = (double)b->sequences * constant;
        for (size_t t = b->offsets[n]; t < b->offsets[n + 1]; t++)
            weights[t] = b->mask[t] != 0.0f ? (float)(1 / by) : 0.0f;
    }
}

/* The rows' numbers as an input. NULL: there are none, and `needed` is recorded as missing. */
static exo_tensor *
rows_of(exo_tape *tape, const exo_token_batch *b, const float *numbers, const char *needed)
{
    if (numbers)
        return exo_tape_input(tape, EXO_F32, 1, &b->offsets[b->sequences], numbers);
    return needed ? exo_tape_fail(tape, EXO_INVAL, "token_loss: the options need %s", needed)
                  : NULL;
}

/* Adds factor * part to the sum, which may be NULL only after an error. */
static exo_tensor *
plus(exo_tape *tape, exo_tensor *sum, double factor, exo_tensor *part)
{
    return exo_add(tape, sum, exo_scale(tape, part, (float)factor));
}

exo_tensor *
exo_token_loss(exo_tape *tape, const exo_token_batch *b, const exo_token_loss_inputs *in,
               const exo_token_loss_opts *opts, exo_token_loss_parts *parts)
{
    exo_token_loss_parts own = {0};
    exo_tensor *mask = rows_of(tape, b, b->mask, "a mask"),
               *weights = rows_of(tape, b, in->weights, "weights"),
               *advantages = rows_of(tape, b, in->advantages, "advantages"),
               *importance = rows_of(tape, b, in->importance, NULL);
    /* Terms are linear in A, so the importance weight may multiply it. */
    if (importance)
        advantages = exo_mul(tape, advantages, importance);
    exo_tensor *terms = exo_policy_terms(tape, in->log_probs, rows_of(tape, b, in->old, "old"),
                                         advantages, mask, opts->clip);
    exo_tensor *loss = own.policy = exo_masked_sum(tape, terms, weights);
    if (opts->kl_coef != 0) {
        exo_tensor *ref = rows_of(tape, b, in->ref_log_probs, "ref_log_probs");
        own.kl =
            exo_masked_sum(tape, exo_kl_terms(tape, in->log_probs, ref, mask, opts->kl), weights);
        loss = plus(tape, loss, opts->kl_coef, own.kl);
    }
    if (opts->entropy != 0) {
        own.entropy = in->entropy ? exo_masked_mean(tape, in->entropy, mask)
                                  : exo_tape_fail(tape, EXO_INVAL,
                                                  "token_loss: the options need the entropy");
        loss = plus(tape, loss, -opts->entropy, own.entropy);
    }
    if (opts->value != 0) {
        exo_tensor *old_values =
            rows_of(tape, b, in->old_values, opts->value_clip > 0 ? "old_values" : NULL);
        exo_tensor *returns = rows_of(tape, b, in->returns, "returns");
        own.value = in->values
                        ? exo_value_loss(tape, in->values, old_values, returns, mask,
                                         (float)opts->value_clip)
                        : exo_tape_fail(tape, EXO_INVAL, "token_loss: the options need values");
        loss = plus(tape, loss, opts->value, own.value);
    }
    if (parts)
        *parts = own;
    return loss;
}

exo_tensor *
exo_dpo_loss(exo_tape *tape, exo_tensor *log_probs, exo_tensor *ref_log_probs, exo_tensor *mask,
             exo_tensor *offsets, float beta, float smoothing)
{
    exo_tensor *chosen = exo_sequence_sum(tape, log_probs, mask, offsets);
    exo_tensor *ref = exo_sequence_sum(tape, ref_log_probs, mask, offsets);
    exo_tensor *margins = exo_add(tape, chosen, exo_scale(tape, ref, -1.0f));
    return exo_smoothed_ranking_loss(tape, exo_scale(tape, margins, beta), smoothing);
}

const char *const *
exo_reduction_names(void)
{
    static const char *const names[] = {"tokens", "sequences", "constant", NULL};
    return names;
}
