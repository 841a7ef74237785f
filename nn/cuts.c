/* Slices of parameters: how a part of a model declares them, and copies between a part and the whole.
 * See exogym/parallel.h. No state. Read next: models/decoder_part.c. */
#include "nn/cuts.h"

#include <string.h>

#include "nn/model_private.h"

bool
exo_cut_has(const exo_param_cut *cut, size_t index)
{
    for (size_t b = 0; b < cut->num_bands; b++)
        if (index >= cut->bands[b].first && index - cut->bands[b].first < cut->bands[b].count)
            return true;
    return false;
}

/* Whether the bands ascend within the whole parameter and make up its slice. */
static bool
fits(const exo_param_info *info, const exo_param_cut *cut)
{
    size_t end = 0, sum = 0;
    if (cut->dim >= info->num_dims || cut->num_bands > EXO_MAX_BANDS)
        return false;
    for (size_t b = 0; b < cut->num_bands; b++) {
        size_t first = cut->bands[b].first, count = cut->bands[b].count;
        if (first < end || first > cut->whole || count > cut->whole - first)
            return false;
        end = first + count;
        sum += count;
    }
    return sum == info->dims[cut->dim];
}

void
exo_build_cut(exo_builder *builder, exo_param param, const exo_param_cut *cut)
{
    exo_builder *b = builder;
    if (b->error.code != EXO_OK || param.index >= b->count || cut->num_bands == 0)
        return;
    if (fits(&b->infos[param.index], cut))
        b->cuts[param.index] = *cut;
    else
        exo_fail(&b->error, EXO_INVAL, "the cut of the parameter '%s' does not fit its dimensions",
                 b->infos[param.index].name);
}

const exo_param_cut *
exo_model_cut(const exo_model *model, size_t index)
{
    const struct exo_builder *b = &model->built;
    return index < b->count && b->cuts[index].num_bands > 0 ? &b->cuts[index] : NULL;
}

/* --- Copies ----------------------------------------------------------------------------------- */

static void
copy_run(float *whole, float *part, size_t count, bool put)
{
    memcpy(put ? whole : part, put ? part : whole, count * sizeof *part);
}

/* Copies the slice `info`, whose cut it is, between the whole parameter's values and its own; put: into
 * the whole. A band is one run of memory for each index of the dimensions before the one that is cut. */
static void
copy_slice(const exo_param_info *info, const exo_param_cut *cut, float *whole, float *part,
           bool put)
{
    size_t outer = 1, inner = 1;
    for (size_t d = 0; d < cut->dim; d++)
        outer *= info->dims[d];
    for (size_t d = cut->dim + 1; d < info->num_dims; d++)
        inner *= info->dims[d];
    for (size_t o = 0; o < outer; o++)
        for (size_t b = 0; b < cut->num_bands; b++) {
            size_t count = cut->bands[b].count * inner;
            copy_run(whole + (o * cut->whole + cut->bands[b].first) * inner, part, count, put);
            part += count;
        }
}

bool
exo_part_unit(const exo_model *whole_model, const exo_model *part_model, size_t unit, size_t *index)
{
    const char *name = exo_model_units(whole_model)[unit].name;
    for (*index = 0; *index < exo_model_num_units(part_model); ++*index)
        if (strcmp(exo_model_units(part_model)[*index].name, name) == 0)
            return true;
    return false;
}

/* Copies the parameters of a unit of the whole model, whose values `whole` and `part` are;
 * EXO_NO_UNIT: all of them. A part has its parameters in the whole model's order. */
static void
copy_unit(const exo_model *whole_model, const exo_model *part_model, uint32_t unit, float *whole,
          float *part, bool put)
{
    const exo_param_info *of_whole = exo_model_infos(whole_model);
    const exo_param_info *of_part = exo_model_infos(part_model);
    const bool all = unit == EXO_NO_UNIT;
    size_t own = 0;
    if (!all && !exo_part_unit(whole_model, part_model, unit, &own))
        return;
    const size_t first = all ? 0 : exo_model_units(whole_model)[unit].first;
    const size_t own_first = all ? 0 : exo_model_units(part_model)[own].first;
    for (size_t i = 0, w = 0; i < exo_model_num_infos(part_model); i++, w++) {
        const exo_param_cut *cut = exo_model_cut(part_model, i);
        while (strcmp(of_whole[w].name, of_part[i].name) != 0)
            w++;
        if (of_part[i].is_buffer || (!all && of_part[i].unit != own))
            continue;
        float *at = whole + (of_whole[w].offset - first);
        float *slice = part + (of_part[i].offset - own_first);
        if (cut)
            copy_slice(&of_part[i], cut, at, slice, put);
        else
            copy_run(at, slice, of_part[i].numel, put);
    }
}

void
exo_part_take(const exo_model *whole_model, const exo_model *part_model, const float *whole,
              float *part)
{
    copy_unit(whole_model, part_model, EXO_NO_UNIT, (float *)(uintptr_t)whole, part, false);
}

void
exo_part_put(const exo_model *whole_model, const exo_model *part_model, float *whole,
             const float *part)
{
    copy_unit(whole_model, part_model, EXO_NO_UNIT, whole, (float *)(uintptr_t)part, true);
}

void
exo_part_put_unit(const exo_model *whole_model, const exo_model *part_model, size_t unit,
                  float *whole, const float *part)
{
    copy_unit(whole_model, part_model, (uint32_t)unit, whole, (float *)(uintptr_t)part, true);
}

/* --- Elements --------------------------------------------------------------------------------- */

/* A parameter of the whole model, and the same in a part. */
struct match {
    const exo_param_info *whole, *part; /* part NULL: the part lacks it */
    const exo_param_cut *cut;
};

static struct match
match_element(const exo_model *whole_model, const exo_model *part_model, size_t index)
{
    const exo_param_info *of_whole = exo_model_infos(whole_model);
    const exo_param_info *of_part = exo_model_infos(part_model);
    struct match m = {0};
    for (size_t w = 0; w < exo_model_num_infos(whole_model); w++)
        if (!of_whole[w].is_buffer && index >= of_whole[w].offset &&
            index - of_whole[w].offset < of_whole[w].numel)
            m.whole = &of_whole[w];
    for (size_t p = 0; m.whole && p < exo_model_num_infos(part_model); p++)
        if (strcmp(of_part[p].name, m.whole->name) == 0) {
            m.part = &of_part[p];
            m.cut = exo_model_cut(part_model, p);
        }
    return m;
}

/* Finds an element of the whole parameter in its slice. */
static bool
find_in_slice(const struct match *m, size_t index, size_t *out)
{
    const exo_param_cut *cut = m->cut;
    size_t inner = 1, before = 0;
    *out = index;
    if (!cut)
        return true;
    for (size_t d = cut->dim + 1; d < m->part->num_dims; d++)
        inner *= m->part->dims[d];
    const size_t at = index / inner % cut->whole, outer = index / inner / cut->whole;
    for (size_t b = 0; b < cut->num_bands; before += cut->bands[b++].count)
        if (at >= cut->bands[b].first && at - cut->bands[b].first < cut->bands[b].count) {
            *out = (outer * m->part->dims[cut->dim] + before + at - cut->bands[b].first) * inner +
                   index % inner;
            return true;
        }
    return false;
}

size_t
exo_part_select(const exo_model *whole_model, const exo_model *part_model, const uint32_t *whole,
                size_t count, uint32_t *out)
{
    struct match m = {0};
    size_t found = 0, at = 0;
    for (size_t i = 0; i < count; i++) {
        const bool same =
            m.whole && whole[i] >= m.whole->offset && whole[i] - m.whole->offset < m.whole->numel;
        if (!same)
            m = match_element(whole_model, part_model, whole[i]);
        if (m.part && find_in_slice(&m, whole[i] - m.whole->offset, &at))
            out[found++] = (uint32_t)(m.part->offset + at);
    }
    return found;
}
