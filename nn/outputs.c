/* The outputs of a pass by name: those asked for, and those that forward gives. Functions that
 * compute (exo_outputs_get, objectives) are in ops/objectives.c. State: an exo_outputs, which
 * belongs to the caller of the pass. Read next: ops/objectives.c. */
#include <string.h>

#include "nn/outputs.h"

exo_outputs
exo_outputs_init(const char *const *names)
{
    exo_outputs outputs = {0};
    for (; names[outputs.count]; outputs.count++) {
        if (outputs.count == EXO_MAX_OUTPUTS) {
            outputs.count++;
            break;
        }
        outputs.items[outputs.count].name = names[outputs.count];
    }
    return outputs;
}

exo_output *
exo_outputs_find(exo_outputs *outputs, const char *name)
{
    for (size_t i = 0; i < outputs->count && i < EXO_MAX_OUTPUTS; i++)
        if (strcmp(outputs->items[i].name, name) == 0)
            return &outputs->items[i];
    return NULL;
}

bool
exo_outputs_wants(const exo_outputs *outputs, const char *name)
{
    return exo_outputs_find((exo_outputs *)(uintptr_t)outputs, name) != NULL;
}

void
exo_outputs_give(exo_outputs *outputs, const char *name, exo_tensor *output)
{
    exo_outputs_give_product(outputs, name, output, NULL);
}

void
exo_outputs_give_product(exo_outputs *outputs, const char *name, exo_tensor *x, exo_tensor *weight)
{
    exo_output *output = exo_outputs_find(outputs, name);
    if (output && x)
        output->made = (exo_logits){.x = x, .weight = weight};
}

bool
exo_names_have(const char *const *names, const char *name)
{
    for (size_t i = 0; names[i]; i++)
        if (strcmp(names[i], name) == 0)
            return true;
    return false;
}
