/* A vocabulary over the members of a group (exogym/parallel.h): embeddings and cross-entropy. The
 * operations on one part are in nn/ops; this file adds the group. State: none beyond the pass's
 * buffers. Read next: nn/ops/vocabulary.c. */
#include "nn/parallel/members.h"

#include "nn/ops/embedding.h"
#include "nn/ops/vocabulary.h"
#include "nn/tape_run.h"

static exo_status
gather(void *context, exo_tape *tape, float *all, size_t count, exo_err *err)
{
    const exo_array array = {
        .device = exo_tape_device(tape), .data = all, .count = count, .dtype = EXO_F32};
    return exo_tape_rehearses(tape) && !context ? EXO_OK : exo_all_gather(context, array, err);
}

/* The part of a vocabulary that has the rows of `weight`. A rehearsal may have no group: it then is
 * member 0 of as many as such rows fill the vocabulary. False: recorded. */
static bool
open_part(exo_tape *tape, const char *name, exo_group *group, const exo_tensor *weight,
          size_t vocabulary, exo_vocabulary_part *out)
{
    size_t rows = weight->num_dims == 2 ? weight->dims[0] : 0, count = 0;
    *out = (exo_vocabulary_part){.vocabulary = vocabulary, .gather = gather, .context = group};
    if (!group && exo_tape_rehearses(tape) && rows > 0) {
        out->members = (uint32_t)((vocabulary + rows - 1) / rows);
        return true;
    }
    if (!group) {
        exo_tape_fail(tape, EXO_INVAL, "%s: the pass has no group", name);
        return false;
    }
    out->rank = exo_group_rank(group);
    out->members = exo_group_size(group);
    exo_shard(vocabulary, out->members, out->rank, &out->first, &count);
    if (rows == count)
        return true;
    exo_tape_fail(tape, EXO_INVAL,
                  "%s: member %u of %u has %zu rows of a vocabulary of %zu: expected %zu", name,
                  out->rank, out->members, rows, vocabulary, count);
    return false;
}

exo_tensor *
exo_members_embedding(exo_tape *tape, exo_group *group, exo_tensor *tokens, exo_tensor *weight,
                      size_t vocabulary)
{
    exo_vocabulary_part part;
    if (!tokens || !weight || exo_tape_error(tape, NULL) != EXO_OK ||
        !open_part(tape, "embedding", group, weight, vocabulary, &part))
        return NULL;
    return exo_embedding_part(tape, tokens, weight, part.first, vocabulary);
}

exo_tensor *
exo_tape_embedding(exo_tape *tape, exo_group *group, exo_tensor *tokens, exo_tensor *weight,
                   size_t vocabulary)
{
    return exo_tape_all_reduce(tape, group,
                               exo_members_embedding(tape, group, tokens, weight, vocabulary));
}

exo_tensor *
exo_tape_cross_entropy(exo_tape *tape, exo_group *group, exo_tensor *x, exo_tensor *weight,
                       exo_tensor *targets, size_t vocabulary)
{
    exo_vocabulary_part part;
    if (!x || !weight || !targets || exo_tape_error(tape, NULL) != EXO_OK ||
        !open_part(tape, "cross_entropy", group, weight, vocabulary, &part))
        return NULL;
    return exo_part_cross_entropy(tape, x, weight, targets, &part);
}
