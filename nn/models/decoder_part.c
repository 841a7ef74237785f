/* Shares of the class "gpt": parts of its layers (tensor parallelism; Shoeybi et al., 2019,
 * arXiv:1909.08053), some of its layers (pipeline parallelism; Huang et al., 2019, arXiv:1811.06965), all
 * of them for some tokens (context parallelism; Liu et al., 2023, arXiv:2310.01889), and each of these of
 * another. This file makes them. decoder.c declares the parameters, decoder_cuts.c says how they are cut,
 * decoder_forward.c has the pass and decoder_loss.c the objective. No state; any thread. Read next:
 * exogym/parallel.h. */
#include "nn/builtin_models.h"
#include "nn/model_impl.h"
#include "nn/models/decoder.h"

/* --- Parts for generation ---------------------------------------------------------------------- */

static void
no_pass(const void *self, exo_tape *tape, const exo_batch *batch, exo_outputs *outputs)
{
    (void)self;
    (void)batch;
    (void)outputs;
    exo_tape_fail(tape, EXO_UNSUPPORTED,
                  "gpt: a part that is cut by outputs computes in generators only");
}

const exo_model_class exo_gpt_output_part = {
    .name = "gpt",
    .help = "a part of a decoder, for one of the generators that share it",
    .state_size = sizeof(exo_decoder),
    .build = exo_decoder_build,
    .outputs = (const char *const[]){"hidden", NULL},
    .forward = no_pass,
    .release = exo_decoder_release,
    .takes_vocabulary = true,
};

/* --- Making a share --------------------------------------------------------------------------- */

/* The kind of a share, for messages. */
static const char *
kind_of(const exo_decoder_part *part)
{
    return part->members > 0   ? "tensor parallelism"
           : part->context > 0 ? "context parallelism"
                               : "pipeline parallelism";
}

static exo_status
check_sizes(const exo_decoder_spec *s, const exo_decoder_part *part, exo_err *err)
{
    const struct {
        const char *name;
        size_t value;
    } divided[] = {{"heads", s->heads},
                   {"kv_heads", s->kv_heads},
                   {"inner", s->inner},
                   {"width", part->by_outputs ? s->width : 0}};
    for (size_t i = 0; i < sizeof divided / sizeof *divided; i++)
        if (divided[i].value % part->members != 0)
            return exo_fail(err, EXO_INVAL,
                            "tensor parallelism over %u nodes: it must divide the model's %s "
                            "(%zu)",
                            part->members, divided[i].name, divided[i].value);
    if (s->vocabulary < part->members)
        return exo_fail(err, EXO_INVAL,
                        "tensor parallelism over %u nodes: the vocabulary has only %zu elements",
                        part->members, s->vocabulary);
    return EXO_OK;
}

/* Checks that the member is one of its groups, and the model can be divided among so many. */
static exo_status
check_place(const exo_decoder_spec *s, const exo_decoder_part *part, exo_err *err)
{
    if (part->members > 0 && part->rank >= part->members)
        return exo_fail(err, EXO_INVAL, "tensor parallelism: there is no part %u of %u", part->rank,
                        part->members);
    if (part->context > 0 && part->member >= part->context)
        return exo_fail(err, EXO_INVAL, "context parallelism: there is no member %u of %u",
                        part->member, part->context);
    if (part->stages > 0 && (part->stages < 2 || part->stage >= part->stages))
        return exo_fail(err, EXO_INVAL, "pipeline parallelism: there is no stage %u of %u",
                        part->stage, part->stages);
    if (s->layers < part->stages)
        return exo_fail(err, EXO_INVAL,
                        "pipeline parallelism over %u stages: the model has only %zu layers",
                        part->stages, s->layers);
    return part->members > 0 ? check_sizes(s, part, err) : EXO_OK;
}

/* What the making of a share does not support yet. NULL: nothing. */
static const char *
lacks(const exo_decoder *d, const exo_model *whole, const exo_decoder_part *part)
{
    const bool rows = part->members > 0 || part->context > 0;
    if (d->part.members > 0 || d->part.context > 0 || d->part.stages > 0)
        return "a part";
    if (d->lora.rank > 0)
        return "lora";
    if (d->folder)
        return "path, a directory";
    if (d->spec.dropout > 0.0f)
        return "dropout";
    if (rows && !part->by_outputs && d->spec.position == EXO_POSITION_ALIBI)
        return "position: alibi";
    for (size_t i = 0; i < exo_model_num_infos(whole); i++)
        if (exo_model_infos(whole)[i].frozen)
            return "frozen";
    return NULL;
}

static const exo_model_class *
class_of(const exo_decoder_part *part)
{
    if (part->by_outputs)
        return &exo_gpt_output_part;
    if (part->stages > 0 && part->stage + 1 < part->stages)
        return &exo_gpt_stage;
    return part->members > 0   ? &exo_gpt_part
           : part->context > 0 ? &exo_gpt_context
                               : &exo_gpt_last_stage;
}

static exo_status
make(exo_model **out, const exo_model *whole, const exo_decoder_part *part, exo_err *err)
{
    const exo_decoder *d = exo_model_state_of(whole, &exo_gpt);
    const char *without = d ? lacks(d, whole, part) : NULL;
    if (!d)
        return exo_fail(err, EXO_UNSUPPORTED, "%s needs a model of the class gpt, not '%s'",
                        kind_of(part), exo_model_name(whole));
    if (without)
        return exo_fail(err, EXO_UNSUPPORTED, "%s does not support a gpt with %s: leave it out",
                        kind_of(part), without);
    exo_status st = check_place(&d->spec, part, err);
    const exo_decoder share = {.spec = d->spec, .values = d->values, .part = *part};
    return st == EXO_OK ? exo_model_new_from(out, class_of(part), &share, err) : st;
}

exo_status
exo_model_share(exo_model **out, const exo_model *whole, const exo_share *share, exo_err *err)
{
    const exo_decoder_part part = {.rank = share->part,
                                   .members = share->parts,
                                   .sequence = share->sequence,
                                   .member = share->member,
                                   .context = share->members,
                                   .stage = share->stage,
                                   .stages = share->stages};
    if (part.members + part.context + part.stages == 0)
        return exo_fail(err, EXO_INVAL, "a share of a model needs parts, members or stages");
    if (part.sequence && part.members == 0)
        return exo_fail(err, EXO_INVAL, "sequence parallelism needs parts of the layers");
    return make(out, whole, &part, err);
}

/* A count of members that a caller gives; 0 is one that no member is in. */
static exo_status
make_counted(exo_model **out, const exo_model *whole, const exo_decoder_part *part, uint32_t count,
             const char *kind, exo_err *err)
{
    return count > 0 ? make(out, whole, part, err)
                     : exo_fail(err, EXO_INVAL, "%s over no nodes", kind);
}

exo_status
exo_model_part(exo_model **out, const exo_model *whole, uint32_t rank, uint32_t members,
               exo_err *err)
{
    const exo_decoder_part part = {.rank = rank, .members = members};
    return make_counted(out, whole, &part, members, "tensor parallelism", err);
}

exo_status
exo_model_sequence_part(exo_model **out, const exo_model *whole, uint32_t rank, uint32_t members,
                        exo_err *err)
{
    const exo_decoder_part part = {.rank = rank, .members = members, .sequence = true};
    return make_counted(out, whole, &part, members, "tensor parallelism", err);
}

exo_status
exo_model_output_part(exo_model **out, const exo_model *whole, uint32_t rank, uint32_t members,
                      exo_err *err)
{
    const exo_decoder_part part = {.rank = rank, .members = members, .by_outputs = true};
    return make_counted(out, whole, &part, members, "tensor parallelism", err);
}

exo_status
exo_model_context_part(exo_model **out, const exo_model *whole, uint32_t rank, uint32_t members,
                       exo_err *err)
{
    const exo_decoder_part part = {.member = rank, .context = members};
    return make_counted(out, whole, &part, members, "context parallelism", err);
}

exo_status
exo_model_stage(exo_model **out, const exo_model *whole, uint32_t stage, uint32_t stages,
                exo_err *err)
{
    const exo_decoder_part part = {.stage = stage, .stages = stages};
    return make_counted(out, whole, &part, stages, "pipeline parallelism", err);
}
