/* A field of a batch as a tensor. No state. Read next: dataset.c. */
#include <exogym/data.h>

#include <string.h>

exo_tensor *
exo_batch_tensor(exo_tape *tape, const exo_batch *batch, size_t index)
{
    if (index >= batch->num_fields)
        return exo_tape_fail(tape, EXO_INVAL,
                             "the model reads field %zu of a batch with %zu fields", index,
                             batch->num_fields);
    const exo_field *field = &batch->fields[index];
    size_t dims[EXO_MAX_DIMS] = {batch->size};
    for (size_t d = 0; d < field->num_dims; d++)
        dims[d + 1] = field->dims[d];
    return exo_tape_input(tape, field->dtype, field->num_dims + 1, dims, batch->data[index]);
}

exo_tensor *
exo_batch_field(exo_tape *tape, const exo_batch *batch, const char *name)
{
    for (size_t i = 0; i < batch->num_fields; i++)
        if (batch->fields[i].name && strcmp(batch->fields[i].name, name) == 0)
            return exo_batch_tensor(tape, batch, i);
    return exo_tape_fail(tape, EXO_INVAL, "the batch has no field '%s'", name);
}
