/* LoRA of the model "gpt": its options, and the parameters A and B of the chosen layers. The base
 * is frozen. See docs/lora.md. No state; any thread. Read next: nn/ops/lora.c, nn/lora.h. */
#include <fnmatch.h>
#include <stdio.h>
#include <string.h>

#include <exogym/memory.h>

#include "nn/lora.h"
#include "nn/models/decoder.h"
#include "nn/pretrained/pretrained.h"

enum {
    MAX_RANK = 65536,
    USUAL_RANK = 8,
    USUAL_ALPHA = 16
};

/* --- Options ---------------------------------------------------------------------------------- */

static size_t
num_layers(const exo_decoder_spec *spec)
{
    exo_decoder_layer layer;
    size_t count = 0;
    while (exo_decoder_layer_at(spec, count, &layer))
        count++;
    return count;
}

/* Chooses the layers whose name, whole or without its block, matches the pattern. */
static exo_status
choose(exo_decoder *d, const exo_config *at, const char *pattern, exo_err *err)
{
    exo_decoder_layer layer;
    char names[160] = "";
    size_t taken = 0, length = 0;
    for (size_t i = 0; exo_decoder_layer_at(&d->spec, i, &layer); i++) {
        if (layer.block == 0 && length < sizeof names)
            length += (size_t)snprintf(names + length, sizeof names - length, "%s%s",
                                       length > 0 ? ", " : "", layer.inside);
        if (fnmatch(pattern, layer.name, 0) != 0 && fnmatch(pattern, layer.inside, 0) != 0)
            continue;
        d->lora.chosen[i] = true;
        taken++;
    }
    return taken > 0 ? EXO_OK
                     : exo_config_fail(at, err,
                                       "lora: no layer matches '%.60s'; those of blocks.0 are %s",
                                       pattern, names);
}

/* Reads `layers`: a pattern, or a list of patterns. */
static exo_status
read_layers(exo_decoder *d, exo_config *map, exo_err *err)
{
    exo_config *list = NULL;
    const char *pattern = NULL;
    d->lora.chosen = exo_calloc(num_layers(&d->spec) + 1, sizeof *d->lora.chosen);
    if (!d->lora.chosen)
        return exo_fail(err, EXO_NOMEM, "lora: no memory");
    exo_status st = exo_config_list(map, "layers", &list, NULL);
    if (st == EXO_NOMEM)
        return exo_fail(err, st, "lora: out of memory");
    if (st != EXO_OK || !list) {
        st = exo_config_string(map, "layers", "*", &pattern, err);
        return st == EXO_OK ? choose(d, map, pattern, err) : st;
    }
    for (size_t i = 0; st == EXO_OK && i < exo_config_length(list); i++) {
        exo_config *item = exo_config_item(list, i);
        pattern = exo_config_scalar(item);
        st = pattern ? choose(d, item, pattern, err)
                     : exo_config_fail(item, err, "lora: expected a pattern of layer names");
    }
    return st == EXO_OK && exo_config_length(list) == 0
               ? exo_config_fail(list, err, "lora: the list of layers is empty")
               : st;
}

/* The adapter defines rank, alpha and layers, so a job may not give them too. */
static exo_status
read_adapter(exo_decoder *d, exo_config *map, const char *path, exo_err *err)
{
    static const char *const given[] = {"rank", "alpha", "layers"};
    exo_adapter adapter = {0};
    exo_err reason = {0};
    for (size_t i = 0; i < sizeof given / sizeof *given; i++)
        if (exo_config_has(map, given[i]))
            return exo_config_fail(
                map, err, "'%s' cannot be set beside 'path': the adapter sets it", given[i]);
    exo_status st = exo_adapter_open(path, &d->spec, &adapter, &reason);
    if (st != EXO_OK)
        return exo_fail(err, st, "%s", reason.text);
    d->lora = (exo_decoder_lora){.rank = adapter.rank,
                                 .alpha = adapter.alpha,
                                 .chosen = adapter.chosen,
                                 .folder = exo_strdup(path)};
    return d->lora.folder ? EXO_OK : exo_fail(err, EXO_NOMEM, "no memory for the path '%s'", path);
}

exo_status
exo_decoder_read_lora(exo_decoder *d, exo_config *config, exo_err *err)
{
    exo_config *map = NULL;
    const char *path = NULL;
    uint64_t rank = USUAL_RANK;
    float alpha = USUAL_ALPHA;
    exo_status st = exo_config_map(config, "lora", &map, err);
    if (st != EXO_OK || !map)
        return st;
    st = exo_config_string(map, "path", NULL, &path, err);
    if (st == EXO_OK && path) {
        st = read_adapter(d, map, path, err);
    } else if (st == EXO_OK) {
        st = exo_config_u64(map, "rank", rank, 1, MAX_RANK, &rank, err);
        if (st == EXO_OK)
            st = exo_config_float(map, "alpha", alpha, 1e-6, 1e6, &alpha, err);
        d->lora.rank = (size_t)rank;
        d->lora.alpha = alpha;
        if (st == EXO_OK)
            st = read_layers(d, map, err);
    }
    if (st == EXO_OK)
        d->spec.lora_scale = d->lora.alpha / (float)d->lora.rank;
    return st == EXO_OK ? exo_config_finish(map, err) : st;
}

void
exo_decoder_lora_release(exo_decoder_lora *lora)
{
    exo_free(lora->chosen);
    exo_free(lora->folder);
    *lora = (exo_decoder_lora){0};
}

/* --- Parameters ------------------------------------------------------------------------------- */

static exo_decoder_linear *
linear_of(exo_decoder *d, const exo_decoder_layer *layer)
{
    exo_decoder_block *b = &d->blocks[layer->block];
    return layer->role == EXO_DECODER_QKV   ? &b->qkv
           : layer->role == EXO_DECODER_OUT ? &b->out
           : layer->role == EXO_DECODER_UP  ? &b->up
                                            : &b->down;
}

static void
freeze_base(exo_decoder *d, exo_builder *b)
{
    exo_decoder_entry entry;
    /* declared in this order, from parameter 0 on */
    for (size_t i = 0; exo_decoder_entry_at(&d->spec, i, &entry); i++)
        exo_build_frozen(b, (exo_param){.index = (uint32_t)i});
}

/* Initial values as in Hu et al., 2021, and PEFT: A uniform by its inputs, B zero. */
static void
declare_part(exo_decoder *d, exo_builder *b, const exo_decoder_layer *layer)
{
    char name[EXO_LORA_NAME];
    size_t rank = d->lora.rank;
    exo_decoder_linear *linear = linear_of(d, layer);
    exo_decoder_lora_part *part = &linear->lora[linear->num_lora++];
    part->first = layer->first;
    snprintf(name, sizeof name, "%s" EXO_LORA_A, layer->name);
    part->a = exo_build_param(b, name, 2, (size_t[]){rank, layer->columns},
                              exo_init_kaiming_uniform(layer->columns));
    snprintf(name, sizeof name, "%s" EXO_LORA_B, layer->name);
    part->b = exo_build_param(b, name, 2, (size_t[]){layer->rows, rank}, exo_init_constant(0.0f));
}

void
exo_decoder_declare_lora(exo_decoder *d, exo_builder *b)
{
    exo_decoder_layer layer;
    char unit[32];
    size_t block = SIZE_MAX;
    if (d->lora.rank == 0)
        return;
    freeze_base(d, b);
    for (size_t i = 0; exo_decoder_layer_at(&d->spec, i, &layer); i++) {
        if (!d->lora.chosen[i])
            continue;
        snprintf(unit, sizeof unit, "lora.%zu", layer.block);
        if (block != layer.block)
            exo_build_unit(b, unit);
        block = layer.block;
        declare_part(d, b, &layer);
    }
}
