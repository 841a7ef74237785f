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

/* The index-th number of stages: a divisor of `nodes` from 2 to the number of blocks. 0: there are no
 * more. */
static uint32_t
stages_at(const exo_parallelism_scope *scope, size_t index)
{
    for (uint32_t stages = 2; stages <= scope->nodes && stages <= scope->layers; stages++)
        if (scope->nodes % stages == 0 && index-- == 0)
            return stages;
    return 0;
}

/* ddp, full_shard, shard_grad_op, two forms for each size of groups, and ddp among copies that nodes share.
 * Groups that are apart have one size, because another one would train in another way. no_shard is left
 * out: it sends what ddp sends. */
static size_t
count_shardings(const exo_parallelism_scope *scope)
{
    size_t groups = 0, pipelines = 0;
    if (scope->apart > 0)
        return 2;
    if (!scope->shards || scope->nodes == 1)
        return 1;
    while (group_at(scope->nodes, groups) > 0)
        groups++;
    while (stages_at(scope, pipelines) > 0)
        pipelines++;
    return 3 + 2 * groups + pipelines + scope->num_forms;
}

/* ddp among copies that nodes share: pipelines first. */
static void
share(const exo_parallelism_scope *scope, size_t index, exo_parallelism *c)
{
    size_t pipelines = 0;
    while (stages_at(scope, pipelines) > 0)
        pipelines++;
    if (index >= pipelines)
        *c = scope->forms[index - pipelines];
    else
        c->stages = stages_at(scope, index);
    c->group_size = 1;
}

static void
set_sharding(const exo_parallelism_scope *scope, size_t index, exo_parallelism *c)
{
    static const char *const hybrid[] = {"hybrid_shard", "hybrid_shard_zero2"};
    static const char *const whole[] = {NULL, "full_shard", "shard_grad_op"};
    c->stages = c->tensor = c->context = 1;
    if (scope->apart > 0) {
        c->sharding = hybrid[index];
        c->group_size = scope->apart;
    } else if (index < 3) {
        c->sharding = whole[index];
        c->group_size = index == 0 ? 1 : scope->nodes;
    } else if (group_at(scope->nodes, (index - 3) / 2) > 0) {
        c->sharding = hybrid[(index - 3) % 2];
        c->group_size = group_at(scope->nodes, (index - 3) / 2);
    } else {
        size_t groups = 0;
        while (group_at(scope->nodes, groups) > 0)
            groups++;
        share(scope, index - 3 - 2 * groups, c);
    }
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

/* Every value of an axis goes with every value of the others. */
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
        for (size_t a = 0, rest = i; a < NUM_AXES; a++) {
            size_t values = axes[a].count(scope);
            axes[a].set(scope, rest % values, c);
            rest /= values;
        }
        /* the nodes of a single copy average nothing */
        const uint32_t sharing = exo_parallelism_sharing(c);
        *count += !(c->overlap && sharing == scope->nodes && sharing > 1);
    }
    return EXO_OK;
}

/* --- As a strategy ---------------------------------------------------------------------------- */

uint32_t
exo_parallelism_sharing(const exo_parallelism *c)
{
    return c->stages * c->tensor * c->context;
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

const char *
exo_parallelism_text(const exo_parallelism *c, char out[EXO_PARALLELISM_TEXT])
{
    char group[24] = "", shared[32] = "";
    if (c->sharding && strncmp(c->sharding, "hybrid", 6) == 0)
        snprintf(group, sizeof group, " of %u", c->group_size);
    if (exo_parallelism_sharing(c) > 1)
        snprintf(shared, sizeof shared, ", %s of %u",
                 c->stages > 1    ? "pipeline"
                 : c->context > 1 ? "context"
                 : c->sequence    ? "sequence"
                                  : "tensor",
                 exo_parallelism_sharing(c));
    snprintf(out, EXO_PARALLELISM_TEXT, "%s%s%s%s%s%s%s", exo_parallelism_strategy(c),
             c->sharding ? " " : "", c->sharding ? c->sharding : "", group, shared,
             !c->overlap   ? ""
             : c->sharding ? ", prefetch"
                           : ", buckets",
             c->checkpoint ? ", checkpoint" : "");
    return out;
}
