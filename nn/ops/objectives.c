/* Outputs that are computed when they are read, and the objectives of the library's models. No
 * state. Read next: nn/outputs.h; vocabulary.c, which computes the loss of a head. */
#include <exogym/model.h>

#include "nn/ops/objectives.h"
#include "nn/ops/targets.h"
#include "nn/outputs.h"
#include "nn/pass_values.h"
#include "nn/tape_impl.h"

/* --- Outputs ---------------------------------------------------------------------------------- */

/* The output with this name. NULL: nobody asked for it, recorded. */
static exo_output *
find(exo_outputs *outputs, const char *name)
{
    exo_output *output = exo_outputs_find(outputs, name);
    if (!output && outputs->tape)
        exo_tape_fail(outputs->tape, EXO_INVAL, "the output '%s' was not asked for", name);
    return output;
}

exo_tensor *
exo_outputs_get(exo_outputs *outputs, const char *name)
{
    exo_output *output = find(outputs, name);
    if (!output)
        return NULL;
    output->made = (exo_logits){.x = exo_logits_tensor(outputs->tape, output->made)};
    return output->made.x;
}

exo_logits
exo_outputs_logits(const exo_outputs *outputs, const char *name)
{
    const exo_output *output = find((exo_outputs *)(uintptr_t)outputs, name);
    return output ? output->made : (exo_logits){0};
}

/* --- Objectives ------------------------------------------------------------------------------- */

static const char *const logits_only[] = {"logits", NULL};
static const exo_meter_class cross_entropy = {
    .name = "loss",
    .unit = "nats",
    .help = "cross-entropy, the mean over the targets that count",
    .kind = EXO_GAUGE};
static const exo_meter_class accuracy = {.name = "accuracy",
                                         .unit = "1",
                                         .help = "share of samples whose class is the likeliest",
                                         .kind = EXO_GAUGE};

/* The number of targets that are not negative. */
static size_t
count_targets(const exo_tensor *targets)
{
    const int32_t *target = exo_tensor_host(targets);
    size_t counted = 0;
    for (size_t i = 0; i < targets->numel; i++)
        counted += target[i] >= 0;
    return counted;
}

/* The count is the number of targets in the mean, so that an evaluation weighs its batches by their
 * targets. */
exo_tensor *
exo_report_cross_entropy(exo_tape *tape, exo_tensor *loss, const exo_tensor *targets)
{
    if (loss)
        exo_tape_metric_later(tape, &cross_entropy, loss->data, EXO_VALUE_MEAN,
                              count_targets(targets));
    return loss;
}

/* The cross-entropy, also as a metric. */
static exo_tensor *
report_cross_entropy(exo_tape *tape, exo_logits logits, exo_tensor *targets)
{
    return exo_report_cross_entropy(tape, exo_cross_entropy(tape, logits, targets), targets);
}

static exo_tensor *
classification_loss(const void *self, exo_tape *tape, exo_outputs *outputs, const exo_batch *batch)
{
    (void)self;
    exo_tensor *logits = exo_outputs_get(outputs, "logits"),
               *labels = exo_batch_tensor(tape, batch, 1);
    exo_tensor *loss = report_cross_entropy(tape, (exo_logits){.x = logits}, labels);
    size_t judged = loss ? count_targets(labels) : 0;
    const double *hits = judged > 0 ? exo_count_hits(tape, logits, labels) : NULL;
    if (hits)
        exo_tape_metric_later(tape, &accuracy, hits, EXO_VALUE_SUM, judged);
    return loss;
}

static exo_tensor *
next_token_loss(const void *self, exo_tape *tape, exo_outputs *outputs, const exo_batch *batch)
{
    (void)self;
    return report_cross_entropy(tape, exo_outputs_logits(outputs, "logits"),
                                exo_batch_field(tape, batch, "targets"));
}

const exo_objective exo_classification = {
    .name = "classification", .outputs = logits_only, .loss = classification_loss};
const exo_objective exo_next_token = {
    .name = "next_token", .outputs = logits_only, .loss = next_token_loss};
