/* How the parameters of a decoder are cut into parts, and the groups of a pass over a share. No state;
 * any thread. Read next: decoder_part.c. */
#include "nn/models/decoder.h"
#include "nn/tape_impl.h"

exo_param_cut
exo_decoder_part_cut(const exo_decoder_part *part, const exo_decoder_cut *cut)
{
    exo_param_cut out = {.dim = cut->dim};
    for (size_t i = 0; i < cut->num; i++) {
        size_t share = part->members > 0 ? cut->pieces[i] / part->members : 0;
        out.bands[i] = (exo_band){.first = out.whole + part->rank * share, .count = share};
        out.whole += cut->pieces[i];
    }
    out.num_bands = part->members > 0 ? cut->num : 0;
    return out;
}

bool
exo_decoder_has_first(const exo_decoder *decoder)
{
    return decoder->part.stages == 0 || decoder->part.stage == 0;
}

bool
exo_decoder_has_last(const exo_decoder *decoder)
{
    return decoder->part.stages == 0 || decoder->part.stage + 1 == decoder->part.stages;
}

void
exo_decoder_blocks(const exo_decoder *decoder, size_t *first, size_t *count)
{
    const exo_decoder_part *part = &decoder->part;
    *first = 0;
    *count = decoder->spec.layers;
    if (part->stages > 0)
        exo_shard(decoder->spec.layers, part->stages, part->stage, first, count);
}

/* Whether the pass is that of member `rank` of the group. `setter`: the function that sets the group. */
static bool
check_group(exo_tape *tape, const exo_group *group, uint32_t rank, uint32_t members,
            const char *setter)
{
    if ((!group && exo_tape_rehearses(tape)) ||
        (group && exo_group_size(group) == members && exo_group_rank(group) == rank))
        return true;
    if (group)
        exo_tape_fail(tape, EXO_INVAL, "gpt: part %u of %u in a pass of member %u of %u", rank,
                      members, exo_group_rank(group), exo_group_size(group));
    else
        exo_tape_fail(tape, EXO_INVAL, "gpt: a pass over part %u of %u needs a group (%s)", rank,
                      members, setter);
    return false;
}

bool
exo_decoder_check_groups(const exo_decoder *decoder, exo_tape *tape)
{
    const exo_decoder_part *part = &decoder->part;
    return (part->members == 0 || check_group(tape, exo_tape_group(tape), part->rank, part->members,
                                              "exo_tape_set_group")) &&
           (part->context == 0 || check_group(tape, exo_tape_context_group(tape), part->member,
                                              part->context, "exo_tape_set_context_group"));
}
