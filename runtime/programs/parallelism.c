/* Compositions: see parallelism.h. */
#include "programs/parallelism.h"

#include <stdio.h>
#include <string.h>

#include <exogym/memory.h>

#include "base/config_maker.h"

#define BUCKET "25 MB" /* of ddp that overlaps, unless the job says another size */

/* --- Axes ------------------------------------------------------------------------------------- */

/* The index-th number of nodes that shard a copy of the model while others have further copies: a
 * divisor of `nodes` between 1 and all. 0: there are no more. */
static uint32_t
group_at(uint32_t nodes, size_t index)
{
    for (uint32_t size = 2; size <= nodes / 2; size++)
        if (nodes % size == 0 && index-- == 0)
            return size;
    return 0;
}

/* The ways in which `copies` copies are sharded: ddp, full_shard, shard_grad_op, and two forms for each size
 * of groups. no_shard is left out: it sends what ddp sends. */
static size_t
count_ways(uint32_t copies)
{
    size_t groups = 0;
    if (copies == 1)
        return 1;
    while (group_at(copies, groups) > 0)
        groups++;
    return 3 + 2 * groups;
}

static void
set_way(uint32_t copies, size_t index, exo_parallelism *c)
{
    static const char *const hybrid[] = {"hybrid_shard", "hybrid_shard_zero2"};
    static const char *const whole[] = {NULL, "full_shard", "shard_grad_op"};
    c->sharding = index < 3 ? whole[index] : hybrid[(index - 3) % 2];
    c->group_size = index == 0 ? 1 : index < 3 ? copies : group_at(copies, (index - 3) / 2);
}

/* The ways of whole copies, and then those of each form of sharing a copy. Groups that are apart have one
 * size, because another one would train in another way. */
static size_t
count_shardings(const exo_parallelism_scope *scope)
{
    if (scope->apart > 0)
        return 2;
    if (!scope->shards)
        return 1;
    size_t count = count_ways(scope->nodes);
    for (size_t i = 0; i < scope->num_forms; i++)
        count += count_ways(scope->nodes / exo_parallelism_sharing(&scope->forms[i]));
    return count;
}

static void
set_sharding(const exo_parallelism_scope *scope, size_t index, exo_parallelism *c)
{
    uint32_t copies = scope->nodes;
    c->stages = c->tensor = c->context = 1;
    if (scope->apart > 0) {
        c->sharding = index == 0 ? "hybrid_shard" : "hybrid_shard_zero2";
        c->group_size = scope->apart;
        return;
    }
    for (size_t form = 0; index >= count_ways(copies); form++) {
        index -= count_ways(copies);
        *c = scope->forms[form];
        copies = scope->nodes / exo_parallelism_sharing(c);
    }
    set_way(copies, index, c);
}

static size_t
count_overlaps(const exo_parallelism_scope *scope)
{
    return scope->nodes > 1 ? 2 : 1;
}

static void
set_overlap(const exo_parallelism_scope *scope, size_t index, exo_parallelism *c)
{
    (void)scope;
    c->overlap = index == 1;
}

static size_t
count_checkpoints(const exo_parallelism_scope *scope)
{
    return scope->checkpoints ? 2 : 1;
}

static void
set_checkpoint(const exo_parallelism_scope *scope, size_t index, exo_parallelism *c)
{
    c->checkpoint = scope->checkpoints ? index == 1 : scope->checkpoint;
}

/* Every value of an axis goes with every value of the others, but for those of is_listed. */
static const struct axis {
    size_t (*count)(const exo_parallelism_scope *scope);
    void (*set)(const exo_parallelism_scope *scope, size_t index, exo_parallelism *c);
} axes[] = {
    {count_shardings, set_sharding},
    {count_overlaps, set_overlap},
    {count_checkpoints, set_checkpoint},
};

enum {
    NUM_AXES = sizeof axes / sizeof *axes
};

/* The nodes of a single copy average nothing. Several copies that nodes share in several ways have
 * buckets or prefetch, which are as fast as a single message or faster, and so have stages with shards.
 * Products are sharded over all copies or not at all. Stages keep their units open within a step, so
 * full_shard would do what shard_grad_op does. */
static bool
is_listed(const exo_parallelism_scope *scope, const exo_parallelism *c)
{
    const uint32_t sharing = exo_parallelism_sharing(c);
    if (sharing == scope->nodes && sharing > 1)
        return !c->overlap;
    if (exo_parallelism_is_product(c) && c->group_size < scope->nodes / sharing && c->sharding)
        return false;
    if (c->stages > 1 && c->sharding)
        return c->overlap && exo_parallelism_keeps_open(c);
    return c->overlap || !exo_parallelism_is_product(c);
}

exo_status
exo_parallelisms(const exo_parallelism_scope *scope, exo_parallelism **out, size_t *count,
                 exo_err *err)
{
    *count = 1;
    for (size_t a = 0; a < NUM_AXES; a++)
        *count *= axes[a].count(scope);
    *out = exo_calloc(*count, sizeof **out);
    if (!*out)
        return exo_fail(err, EXO_NOMEM, "no memory for %zu compositions", *count);
    const size_t all = *count;
    *count = 0;
    for (size_t i = 0; i < all; i++) {
        exo_parallelism *c = &(*out)[*count];
        *c = (exo_parallelism){0}; /* one that is not listed leaves its values */
        for (size_t a = 0, rest = i; a < NUM_AXES; a++) {
            size_t values = axes[a].count(scope);
            axes[a].set(scope, rest % values, c);
            rest /= values;
        }
        *count += is_listed(scope, c);
    }
    return EXO_OK;
}

/* --- As a strategy ---------------------------------------------------------------------------- */

uint32_t
exo_parallelism_sharing(const exo_parallelism *c)
{
    return c->stages * c->tensor * c->context;
}

bool
exo_parallelism_is_product(const exo_parallelism *c)
{
    return (c->stages > 1) + (c->tensor > 1) + (c->context > 1) > 1;
}

bool
exo_parallelism_keeps_open(const exo_parallelism *c)
{
    return c->sharding && (strcmp(c->sharding, "shard_grad_op") == 0 ||
                           strcmp(c->sharding, "hybrid_shard_zero2") == 0);
}

const char *
exo_parallelism_strategy(const exo_parallelism *c)
{
    return c->sharding ? "fsdp" : "ddp";
}

static bool
is_own_key(const exo_parallelism *c, const char *key)
{
    static const char *const own[] = {"name",       "label",    "bucket_size", "sharding_strategy",
                                      "group_size", "prefetch", NULL};
    for (size_t i = 0; own[i]; i++)
        if (strcmp(key, own[i]) == 0)
            return true;
    return !c->sharding && (strcmp(key, "across") == 0 || strcmp(key, "cpu_offload") == 0);
}

static void
add_own(exo_config_maker *m, exo_config *root, const exo_parallelism *c, exo_config *given)
{
    exo_make_text(m, root, "name", exo_parallelism_strategy(c));
    if (!c->sharding) {
        const exo_config *size = exo_config_get(given, "bucket_size");
        const char *text = size ? exo_config_scalar(size) : NULL;
        if (c->overlap)
            exo_make_text(m, root, "bucket_size", text && strcmp(text, "0") != 0 ? text : BUCKET);
        return;
    }
    exo_make_text(m, root, "sharding_strategy", c->sharding);
    if (strncmp(c->sharding, "hybrid", 6) == 0)
        exo_make_number(m, root, "group_size", c->group_size);
    exo_make_truth(m, root, "prefetch", c->overlap);
}

exo_status
exo_parallelism_options(const exo_parallelism *c, exo_config *given, exo_config_doc **out,
                        exo_err *err)
{
    exo_config_maker m = {.err = err};
    const char *key;
    exo_config *value = NULL;
    m.status = exo_config_parse(out, "strategy", "{}", err);
    if (m.status != EXO_OK)
        return m.status;
    exo_config *root = exo_config_root(*out);
    add_own(&m, root, c, given);
    for (size_t i = 0; given && (key = exo_config_key(given, i, &value)); i++)
        if (!is_own_key(c, key))
            exo_make_copy(&m, root, key, value);
    if (m.status != EXO_OK)
        exo_config_free(out);
    return m.status;
}

/* Writes ", tensor of 2 x pipeline of 2", or nothing if no nodes share a copy. */
static void
write_shared(const exo_parallelism *c, char *out, size_t size)
{
    const struct {
        const char *name;
        uint32_t count;
    } each[] = {{c->sequence ? "sequence" : "tensor", c->tensor},
                {"pipeline", c->stages},
                {"context", c->context}};
    size_t length = 0;
    out[0] = '\0';
    for (size_t i = 0; i < sizeof each / sizeof *each && length < size; i++)
        if (each[i].count > 1)
            length += (size_t)snprintf(out + length, size - length, "%s%s of %u",
                                       length == 0 ? ", " : " x ", each[i].name, each[i].count);
}

const char *
exo_parallelism_text(const exo_parallelism *c, char out[EXO_PARALLELISM_TEXT])
{
    char group[24] = "", shared[72];
    if (c->sharding && strncmp(c->sharding, "hybrid", 6) == 0)
        snprintf(group, sizeof group, " of %u", c->group_size);
    write_shared(c, shared, sizeof shared);
    snprintf(out, EXO_PARALLELISM_TEXT, "%s%s%s%s%s%s%s", exo_parallelism_strategy(c),
             c->sharding ? " " : "", c->sharding ? c->sharding : "", group, shared,
             !c->overlap   ? ""
             : c->sharding ? ", prefetch"
                           : ", buckets",
             c->checkpoint ? ", checkpoint" : "");
    return out;
}
