/* Parts of the class "gpt" for tensor parallelism (Shoeybi et al., 2019, arXiv:1909.08053): their
 * making, and their objective. decoder.c declares the parameters, decoder_cuts.c says how they are
 * cut, and decoder_forward.c has the pass. No state; any thread. Read next: exogym/parallel.h. */
#include "nn/builtin_models.h"
#include "nn/model_impl.h"
#include "nn/models/decoder.h"
#include "nn/ops/objectives.h"

/* exo_next_token, with the head over the group. */
static exo_tensor *
part_loss(const void *self, exo_tape *tape, exo_outputs *outputs, const exo_batch *batch)
{
    const exo_decoder *d = self;
    exo_group *group = exo_tape_group(tape);
    exo_tensor *targets = exo_batch_field(tape, batch, "targets");
    exo_tensor *x = exo_outputs_get(outputs, "hidden");
    if (!d->part.sequence) /* else the gather of the hidden rows sums their gradient */
        x = exo_tape_all_reduce_backward(tape, group, x);
    exo_tensor *head = exo_tape_param(tape, d->head.there ? d->head.param : d->embedding);
    return exo_report_cross_entropy(
        tape, exo_tape_cross_entropy(tape, group, x, head, targets, d->spec.vocabulary), targets);
}

static const exo_objective part_objective = {
    .name = "next_token", .outputs = (const char *const[]){"hidden", NULL}, .loss = part_loss};

const exo_model_class exo_gpt_part = {
    .name = "gpt",
    .help = "a part of a decoder, for one member of a tensor-parallel group",
    .state_size = sizeof(exo_decoder),
    .build = exo_decoder_build,
    .outputs = (const char *const[]){"hidden", "values", NULL},
    .forward = exo_decoder_forward,
    .objective = &part_objective,
    .release = exo_decoder_release,
    .takes_vocabulary = true,
};

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

/* --- Making a part ---------------------------------------------------------------------------- */

static exo_status
check_sizes(const exo_decoder_spec *s, uint32_t rank, uint32_t members, bool by_outputs,
            exo_err *err)
{
    const struct {
        const char *name;
        size_t value;
    } divided[] = {{"heads", s->heads},
                   {"kv_heads", s->kv_heads},
                   {"inner", s->inner},
                   {"width", by_outputs ? s->width : 0}};
    if (members < 1 || rank >= members)
        return exo_fail(err, EXO_INVAL, "tensor parallelism: there is no part %u of %u", rank,
                        members);
    for (size_t i = 0; i < sizeof divided / sizeof *divided; i++)
        if (divided[i].value % members != 0)
            return exo_fail(err, EXO_INVAL,
                            "tensor parallelism over %u nodes: it must divide the model's %s "
                            "(%zu)",
                            members, divided[i].name, divided[i].value);
    if (s->vocabulary < members)
        return exo_fail(err, EXO_INVAL,
                        "tensor parallelism over %u nodes: the vocabulary has only %zu elements",
                        members, s->vocabulary);
    return EXO_OK;
}

const char *
exo_decoder_no_parts(const exo_decoder *d, const exo_model *whole)
{
    if (d->part.members > 0 || d->part.context > 0)
        return "a part";
    if (d->lora.rank > 0)
        return "LoRA";
    if (d->folder)
        return "a directory (path)";
    if (d->spec.dropout > 0.0f)
        return "dropout";
    for (size_t i = 0; i < exo_model_num_infos(whole); i++)
        if (exo_model_infos(whole)[i].frozen)
            return "frozen parameters";
    return NULL;
}

/* Makes a part of a decoder without what no part supports. */
static exo_status
make_part(exo_model **out, const exo_model *whole, const exo_decoder_part *how, exo_err *err)
{
    const exo_decoder *d = exo_model_state_of(whole, &exo_gpt);
    const char *lacks = d ? exo_decoder_no_parts(d, whole) : NULL;
    if (d && !lacks && !how->by_outputs && d->spec.position == EXO_POSITION_ALIBI)
        lacks = "alibi positions";
    if (!d)
        return exo_fail(err, EXO_UNSUPPORTED,
                        "tensor parallelism needs a model of the class gpt, not '%s'",
                        exo_model_name(whole));
    if (lacks)
        return exo_fail(err, EXO_UNSUPPORTED,
                        "tensor parallelism does not support a gpt with %s: leave it out", lacks);
    exo_status st = check_sizes(&d->spec, how->rank, how->members, how->by_outputs, err);
    if (st != EXO_OK)
        return st;
    const exo_decoder part = {.spec = d->spec, .values = d->values, .part = *how};
    return exo_model_new_from(out, how->by_outputs ? &exo_gpt_output_part : &exo_gpt_part, &part,
                              err);
}

exo_status
exo_model_part(exo_model **out, const exo_model *whole, uint32_t rank, uint32_t members,
               exo_err *err)
{
    const exo_decoder_part part = {.rank = rank, .members = members};
    return make_part(out, whole, &part, err);
}

exo_status
exo_model_sequence_part(exo_model **out, const exo_model *whole, uint32_t rank, uint32_t members,
                        exo_err *err)
{
    const exo_decoder_part part = {.rank = rank, .members = members, .sequence = true};
    return make_part(out, whole, &part, err);
}

exo_status
exo_model_output_part(exo_model **out, const exo_model *whole, uint32_t rank, uint32_t members,
                      exo_err *err)
{
    const exo_decoder_part part = {.rank = rank, .members = members, .by_outputs = true};
    return make_part(out, whole, &part, err);
}
