/* The objective of decoders of which each member of a group has a share: exo_next_token, with the
 * vocabulary over the parts (Shoeybi et al., 2019, arXiv:1909.08053), the targets over the members of a
 * context (Liu et al., 2023, arXiv:2310.01889), or both. No state; any thread. Read next: decoder_part.c
 * makes these decoders. */
#include "nn/builtin_models.h"
#include "nn/model_impl.h"
#include "nn/models/decoder.h"
#include "nn/ops/objectives.h"
#include "nn/ops/targets.h"
#include "nn/tape_impl.h"

/* Counts the targets of a context's member. A member without any computes with one, which the caller
 * multiplies by 0: its pass must call the collectives of the others'. */
static size_t
count_own(exo_tensor *own)
{
    size_t here = 0;
    int32_t *target = (int32_t *)(uintptr_t)exo_tensor_host(own);
    for (size_t i = 0; i < own->numel; i++)
        here += target[i] >= 0;
    for (size_t i = 0; here == 0 && i < own->numel; i++)
        target[i] = 0;
    return here;
}

/* The mean over the member's targets. */
static exo_tensor *
own_loss(const exo_decoder *d, exo_tape *tape, exo_outputs *outputs, exo_tensor *targets)
{
    exo_group *group = exo_tape_group(tape);
    if (d->part.members == 0)
        return exo_cross_entropy(tape, exo_outputs_logits(outputs, "logits"), targets);
    exo_tensor *x = exo_outputs_get(outputs, "hidden");
    if (!d->part.sequence) /* else the gather of the hidden rows sums their gradient */
        x = exo_tape_all_reduce_backward(tape, group, x);
    return exo_tape_cross_entropy(tape, group, x, exo_outputs_get(outputs, "head"), targets,
                                  d->spec.vocabulary);
}

static exo_tensor *
share_loss(const void *self, exo_tape *tape, exo_outputs *outputs, const exo_batch *batch)
{
    const exo_decoder *d = self;
    size_t counted = 0;
    exo_tensor *targets = exo_batch_field(tape, batch, "targets");
    if (d->part.context == 0)
        return exo_report_cross_entropy(tape, own_loss(d, tape, outputs, targets), targets);
    exo_tensor *own = targets ? exo_decoder_own_tokens(d, tape, targets) : NULL;
    if (!own || !exo_count_targets(tape, "next_token", targets, d->spec.vocabulary, &counted))
        return NULL;
    const size_t here = count_own(own);
    exo_tensor *loss = own_loss(d, tape, outputs, own);
    loss = exo_scale(tape, loss, here ? (float)here / (float)counted : 0.0f);
    return exo_report_cross_entropy(
        tape, exo_tape_all_reduce(tape, exo_tape_context_group(tape), loss), targets);
}

static const exo_objective part_objective = {
    .name = "next_token",
    .outputs = (const char *const[]){"hidden", "head", NULL},
    .loss = share_loss,
};

const exo_model_class exo_gpt_part = {
    .name = "gpt",
    .help = "a part of a decoder, for one member of a tensor-parallel group",
    .state_size = sizeof(exo_decoder),
    .build = exo_decoder_build,
    .outputs = (const char *const[]){"input", "hidden", "head", "values", NULL},
    .forward = exo_decoder_forward,
    .objective = &part_objective,
    .release = exo_decoder_release,
    .takes_vocabulary = true,
};

static const exo_objective context_objective = {
    .name = "next_token",
    .outputs = (const char *const[]){"logits", NULL},
    .loss = share_loss,
};

const exo_model_class exo_gpt_context = {
    .name = "gpt",
    .help = "a decoder for one member of a context-parallel group",
    .state_size = sizeof(exo_decoder),
    .build = exo_decoder_build,
    .outputs = (const char *const[]){"input", "hidden", "logits", "values", NULL},
    .forward = exo_decoder_forward,
    .objective = &context_objective,
    .release = exo_decoder_release,
    .takes_vocabulary = true,
};
