/* Context parallelism of the class "gpt" (Liu et al., 2023, arXiv:2310.01889): decoders of which each
 * member has all parameters, and computes with 1/C of the tokens of each sequence. Their making and their
 * objective; decoder_tokens.c has their tokens, and decoder_forward.c the pass. No state; any thread. Read
 * next: exogym/parallel.h. */
#include "nn/builtin_models.h"
#include "nn/model_impl.h"
#include "nn/models/decoder.h"
#include "nn/ops/objectives.h"
#include "nn/ops/targets.h"
#include "nn/tape_impl.h"

/* --- The objective ---------------------------------------------------------------------------- */

/* This member's share of exo_next_token's loss, summed over the members. A member without a target
 * computes with any, times 0: its pass must call the collectives of the others'. */
static exo_tensor *
context_loss(const void *self, exo_tape *tape, exo_outputs *outputs, const exo_batch *batch)
{
    const exo_decoder *d = self;
    size_t counted = 0, here = 0;
    exo_tensor *targets = exo_batch_field(tape, batch, "targets");
    exo_tensor *own = targets ? exo_decoder_own_tokens(d, tape, targets) : NULL;
    if (!own || !exo_count_targets(tape, "next_token", targets, d->spec.vocabulary, &counted))
        return NULL;
    int32_t *target = (int32_t *)(uintptr_t)exo_tensor_host(own);
    for (size_t i = 0; i < own->numel; i++)
        here += target[i] >= 0;
    for (size_t i = 0; here == 0 && i < own->numel; i++)
        target[i] = 0;
    exo_tensor *loss = exo_cross_entropy(tape, exo_outputs_logits(outputs, "logits"), own);
    loss = exo_scale(tape, loss, here ? (float)here / (float)counted : 0.0f);
    return exo_report_cross_entropy(tape, exo_tape_all_reduce(tape, exo_tape_group(tape), loss),
                                    targets);
}

static const exo_objective context_objective = {
    .name = "next_token",
    .outputs = (const char *const[]){"logits", NULL},
    .loss = context_loss,
};

const exo_model_class exo_gpt_context = {
    .name = "gpt",
    .help = "a decoder for one member of a context-parallel group",
    .state_size = sizeof(exo_decoder),
    .build = exo_decoder_build,
    .outputs = (const char *const[]){"hidden", "logits", "values", NULL},
    .forward = exo_decoder_forward,
    .objective = &context_objective,
    .release = exo_decoder_release,
    .takes_vocabulary = true,
};

/* --- Making one ------------------------------------------------------------------------------- */

exo_status
exo_model_context_part(exo_model **out, const exo_model *whole, uint32_t rank, uint32_t members,
                       exo_err *err)
{
    const exo_decoder *d = exo_model_state_of(whole, &exo_gpt);
    const char *lacks = d ? exo_decoder_no_parts(d, whole) : NULL;
    if (d && !lacks && d->spec.position == EXO_POSITION_ALIBI)
        lacks = "alibi positions";
    if (!d)
        return exo_fail(err, EXO_UNSUPPORTED,
                        "context parallelism needs a model of the class gpt, not '%s'",
                        exo_model_name(whole));
    if (lacks)
        return exo_fail(err, EXO_UNSUPPORTED,
                        "context parallelism does not support a gpt with %s: leave it out", lacks);
    if (members < 1 || rank >= members)
        return exo_fail(err, EXO_INVAL, "context parallelism: there is no member %u of %u", rank,
                        members);
    const exo_decoder part = {
        .spec = d->spec, .values = d->values, .part = {.rank = rank, .context = members}};
    return exo_model_new_from(out, &exo_gpt_context, &part, err);
}
