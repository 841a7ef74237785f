/* Fragments of the parameters, each with rounds of its own. Fragment p of P has the units p, p + P,
 * p + 2 P, ... of the model, so that each has layers from all of its depth, and its rounds end after
 * the steps offset + (p + 1) H / P + k H (Streaming DiLoCo, Douillard et al., 2025,
 * arXiv:2501.18512). Without fragments there is one, with all parameters. State: the exchange's
 * parts. */
#include "strategies/exchange.h"

#include <exogym/memory.h>

/* The steps from `offset` to the first round of a fragment: (part + 1) H / P, rounded down. */
static uint64_t
shift_of(const exo_param_exchange *e, size_t part)
{
    const uint64_t interval = e->rounds.interval, parts = e->fragments > 0 ? e->fragments : 1;
    return interval / parts * (part + 1) + interval % parts * (part + 1) / parts;
}

bool
exo_fragment_due(const exo_param_exchange *e, size_t part, uint64_t step)
{
    uint64_t done = step + 1, shift = shift_of(e, part);
    return done > e->rounds.offset && done - e->rounds.offset >= shift &&
           (done - e->rounds.offset - shift) % e->rounds.interval == 0;
}

size_t
exo_fragment_count(const exo_param_exchange *e, size_t part, const exo_param_info *infos,
                   size_t num_infos, size_t numel)
{
    size_t units = 0, first, count = 0;
    if (e->parts)
        return e->parts[part].count;
    if (e->fragments == 0)
        return numel;
    for (size_t i = 0; i < num_infos; i++) {
        if (infos[i].unit == EXO_NO_UNIT)
            continue;
        units = infos[i].unit >= units ? infos[i].unit + 1 : units;
        count += infos[i].unit % e->fragments == part ? infos[i].numel : 0;
    }
    if (units < e->fragments)
        exo_shard(numel, (uint32_t)e->fragments, (uint32_t)part, &first, &count);
    return count;
}

/* The units of the whole model, of which the node may have a part; 0: unknown. */
static size_t
num_units(const exo_node *node)
{
    return !node->units ? 0 : node->part ? exo_model_num_units(node->part->whole) : node->num_units;
}

/* Finds the ranges of a fragment: those of its units that the node has. A model without units is cut into
 * equal ranges. */
static exo_status
find_spans(exo_fragment *out, size_t part, size_t parts, const exo_node *node, exo_err *err)
{
    const size_t units = parts > 1 ? num_units(node) : 0;
    const size_t most = units ? (units - part + parts - 1) / parts : 1;
    out->spans = exo_calloc(2 * most, sizeof *out->spans);
    if (!out->spans)
        return exo_fail(err, EXO_NOMEM, "no memory for a fragment of %zu units", most);
    if (!units) {
        out->num_spans = 1;
        exo_shard(node->numel, (uint32_t)parts, (uint32_t)part, &out->spans[0], &out->spans[1]);
    }
    for (size_t u = part; u < units; u += parts) {
        size_t at = u;
        if (node->part && !exo_part_unit(node->part->whole, node->part->own, u, &at))
            continue;
        out->spans[2 * out->num_spans] = node->units[at].first;
        out->spans[2 * out->num_spans++ + 1] = node->units[at].count;
    }
    for (size_t i = 0; i < out->num_spans; i++)
        out->count += out->spans[2 * i + 1];
    return EXO_OK;
}

exo_status
exo_fragments_check(const exo_param_exchange *e, size_t num_units, exo_err *err)
{
    if (e->fragments < 2 || num_units == 0 || e->fragments <= num_units)
        return EXO_OK;
    return exo_fail(err, EXO_INVAL,
                    "%.300s: the model has %zu unit%s, which is fewer than the %llu fragments: "
                    "choose at most %zu",
                    e->cut_at, num_units, num_units == 1 ? "" : "s",
                    (unsigned long long)e->fragments, num_units);
}

exo_status
exo_fragments_start(exo_param_exchange *e, const exo_node *node, exo_err *err)
{
    const size_t parts = e->fragments > 0 ? (size_t)e->fragments : 1;
    size_t at = 0, outer_at = 0;
    exo_status st = exo_fragments_check(e, num_units(node), err);
    if (st != EXO_OK)
        return st;
    e->parts = exo_calloc(parts, sizeof *e->parts);
    if (!e->parts)
        return exo_fail(err, EXO_NOMEM, "no memory for %zu fragments", parts);
    e->num_parts = parts;
    for (size_t p = 0; st == EXO_OK && p < parts; p++) {
        exo_fragment *part = &e->parts[p];
        st = find_spans(part, p, parts, node, err);
        part->at = at;
        part->length = part->count;
        if (exo_param_exchange_shares(e))
            exo_shard(part->count, node->num_nodes, node->rank, &part->first, &part->length);
        part->outer_at = outer_at;
        at += part->count;
        outer_at += part->length;
    }
    return st;
}

void
exo_fragments_release(exo_param_exchange *e)
{
    for (size_t p = 0; p < e->num_parts; p++) {
        exo_free(e->parts[p].spans);
        exo_optim_free(&e->parts[p].optim);
    }
    exo_free(e->parts);
}

void
exo_fragment_pack(const exo_fragment *part, exo_array packed, exo_array params)
{
    for (size_t i = 0, at = 0; i < part->num_spans; at += part->spans[2 * i + 1], i++)
        exo_vec_copy(exo_array_part(packed, at, part->spans[2 * i + 1]),
                     exo_array_part(params, part->spans[2 * i], part->spans[2 * i + 1]));
}

void
exo_fragment_unpack(const exo_fragment *part, exo_array packed, float alpha, exo_array params)
{
    for (size_t i = 0, at = 0; i < part->num_spans; at += part->spans[2 * i + 1], i++) {
        const exo_array from = exo_array_part(packed, at, part->spans[2 * i + 1]),
                        to = exo_array_part(params, part->spans[2 * i], part->spans[2 * i + 1]);
        if (alpha > 0)
            exo_vec_lerp(from, alpha, to);
        exo_vec_copy(to, from);
    }
}
