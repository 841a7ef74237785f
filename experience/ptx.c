/* The ptx loss of a learner: see ptx.h. */
#include "experience/ptx.h"

#include <exogym/decoder.h>
#include <exogym/loss.h>
#include <exogym/memory.h>
#include <exogym/rng.h>

#include "base/config_edit.h"

enum {
    STREAM = 1 << 16 /* of random numbers; a learner's slices have those below */
};

struct exo_ptx {
    double coef;
    uint64_t batch;
    exo_texts *texts;
    exo_text_rows rows;
    const exo_prompted **drawn; /* (batch) */
};

void
exo_ptx_free(exo_ptx **ptx)
{
    exo_ptx *p = *ptx;
    *ptx = NULL;
    if (!p)
        return;
    exo_text_rows_release(&p->rows);
    exo_texts_free(&p->texts);
    exo_free(p->drawn);
    exo_free(p);
}

static exo_status
read_options(exo_ptx *p, exo_config *map, const exo_model *model, exo_err *err)
{
    const exo_decoder_spec *spec = exo_decoder_spec_of(model);
    const exo_texts_limits limits = {.vocabulary = spec->vocabulary, .length = spec->context + 1};
    exo_status st = exo_config_double(map, "coef", 1, 0, 1e9, &p->coef, err);
    if (st == EXO_OK)
        st = exo_config_u64(map, "batch", 8, 1, 1 << 16, &p->batch, err);
    if (st == EXO_OK)
        st = exo_texts_read(&p->texts, map, EXO_TEXTS_ANSWERS, &limits, err);
    if (st == EXO_OK)
        st = exo_config_finish(map, err);
    if (st != EXO_OK)
        return st;
    p->drawn = exo_calloc(p->batch, sizeof *p->drawn);
    return p->drawn ? EXO_OK : exo_fail(err, EXO_NOMEM, "no memory for a batch of texts");
}

exo_status
exo_ptx_read(exo_ptx **out, exo_config *config, const exo_model *model, exo_err *err)
{
    exo_config *map = NULL;
    exo_status st = exo_config_map(config, "ptx", &map, err);
    *out = NULL;
    if (st != EXO_OK || !map)
        return st;
    exo_ptx *p = exo_calloc(1, sizeof *p);
    st = p ? read_options(p, map, model, err) : exo_fail(err, EXO_NOMEM, "no memory for ptx");
    if (st != EXO_OK && st != EXO_NOMEM)
        exo_config_add_place(map, err);
    if (st == EXO_OK)
        *out = p;
    else
        exo_ptx_free(&p);
    return st;
}

/* Draws the texts of a step and keeps those of the slice. Returns their number; *total: the targets of
 * all texts. */
static size_t
draw(exo_ptx *p, const exo_ptx_place *place, size_t *total)
{
    exo_rng rng;
    size_t count = 0;
    *total = 0;
    exo_rng_init(&rng, place->seed, EXO_RNG_SHUFFLE, STREAM + place->stream, place->step);
    for (uint64_t i = 0; i < p->batch; i++) {
        uint32_t index = exo_rng_below(&rng, (uint32_t)exo_texts_count(p->texts));
        const exo_prompted *text = exo_texts_at(p->texts, index);
        *total += text->length - text->prompt;
        if (i % place->slices == place->slice)
            p->drawn[count++] = text;
    }
    return count;
}

exo_status
exo_ptx_add(exo_ptx *p, const exo_ptx_place *place, const exo_model *model, exo_tape *tape,
            exo_params *params, float *loss, exo_err *err)
{
    const exo_pass pass = {.grad = true, .seed = place->seed, .step = place->step};
    exo_outputs outputs = exo_outputs_init((const char *const[]){"logits", NULL});
    size_t total = 0, count = draw(p, place, &total);
    *loss = 0;
    if (count == 0)
        return EXO_OK;
    exo_status st =
        exo_text_rows_fill(&p->rows, p->drawn, count, exo_decoder_spec_of(model)->context, err);
    if (st != EXO_OK)
        return st;
    exo_batch batch = exo_text_rows_batch(&p->rows);
    size_t rows = p->rows.texts * p->rows.length;
    exo_tape_begin(tape, params, &pass);
    if (!exo_model_forward(model, tape, &batch, &outputs))
        return exo_tape_error(tape, err);
    exo_tensor *mean = exo_cross_entropy(tape, exo_outputs_logits(&outputs, "logits"),
                                         exo_tape_input(tape, EXO_I32, 1, &rows, p->rows.targets));
    if (!mean)
        return exo_tape_error(tape, err);
    double share = (double)p->rows.count / (double)total;
    *loss = (float)(share * (double)exo_tensor_item(mean));
    return exo_tape_backward(tape, mean, (float)(p->coef * share), err);
}
