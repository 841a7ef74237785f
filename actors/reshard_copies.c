/* Conversions that leave each copy of the model as it is: the copies are as many as before, and each is
 * cut in another way for the nodes that share it.
 *
 *     node_0 (part 0) --put--> copy 0: parameters, moments, arrays of the strategy --get--> node_0
 *     node_1 (part 1) --put-->                                                     --get--> ... node_3
 *
 * Copies differ under strategies that seldom exchange, so there is no whole of all of them. An entry of a
 * strategy's state has a number for each parameter of the node's part, or for each of the node's shard of
 * it (exo_shard), and then moves with the parameters; or it is a count, which all nodes of a copy must
 * have alike. The host needs memory for a copy with its states, and a node; and for the arrays of which
 * the copies have shards. No state. Read next: reshard.h. */
#include "actors/reshard_impl.h"

#include <inttypes.h>
#include <string.h>

#include <exogym/data_parallel.h>
#include <exogym/memory.h>
#include <exogym/parallel.h>
#include <exogym/whole.h>

#include "base/config_edit.h"

/* --- The state of a strategy ------------------------------------------------------------------ */

/* Lists the strategy's state without the inner optimizer's. The caller frees *out. */
static exo_status
list_entries(struct node *n, exo_state **out, exo_err *err)
{
    exo_optim *optim = n->view.optim;
    exo_status st = exo_state_new(out, err);
    n->view.optim = NULL;
    if (st == EXO_OK)
        exo_strategy_state(n->strategy, &n->view, *out);
    n->view.optim = optim;
    return st;
}

static exo_entry_kind
kind_of(exo_array array, size_t numel, uint32_t copies, uint32_t copy)
{
    size_t first, length;
    exo_shard(numel, copies, copy, &first, &length);
    if (array.dtype != EXO_F32)
        return COUNT;
    return copies > 1 && array.count == length ? SHARD : array.count == numel ? EACH : COUNT;
}

/* UNSUPPORTED: the node's state has other entries than those that the copies have. */
static exo_status
check_entries(const struct copies *m, const struct node *n, const exo_state *state, exo_err *err)
{
    bool same = exo_state_count(state) == m->num_entries;
    for (size_t i = 0; same && i < m->num_entries; i++) {
        const char *name = NULL;
        const exo_array array = exo_state_entry(state, i, &name);
        const struct entry *e = &m->entries[i];
        same = kind_of(array, n->view.numel, m->count, n->view.rank) == e->kind &&
               (e->kind != COUNT || array.count * exo_dtype_size(array.dtype) == e->bytes);
        if (!same)
            return exo_fail(err, EXO_UNSUPPORTED,
                            "the strategy's state '%s' has another form on other nodes: it cannot "
                            "be converted",
                            name);
    }
    return same ? EXO_OK
                : exo_fail(err, EXO_UNSUPPORTED,
                           "the strategy has another number of states on other nodes");
}

/* Makes the entries, as the first node has them. */
static exo_status
make_entries(struct copies *m, exo_err *err)
{
    struct node n;
    exo_state *state = NULL;
    const size_t numel = exo_model_numel(m->c->old.model);
    exo_status st = exo_reshard_load(m->c, &n, 0, err);
    if (st == EXO_OK)
        st = list_entries(&n, &state, err);
    const size_t count = st == EXO_OK ? exo_state_count(state) : 0;
    m->entries = exo_calloc(count + 1, sizeof *m->entries);
    if (st == EXO_OK && !m->entries)
        st = exo_fail(err, EXO_NOMEM, "no memory for %zu states", count);
    for (size_t i = 0; st == EXO_OK && i < count; i++) {
        struct entry *e = &m->entries[m->num_entries++];
        const exo_array array = exo_state_entry(state, i, NULL);
        e->kind = kind_of(array, n.view.numel, m->count, 0);
        e->bytes =
            e->kind == COUNT ? array.count * exo_dtype_size(array.dtype) : numel * sizeof(float);
        if (!(e->data = exo_calloc(e->bytes + 1, 1)))
            st = exo_fail(err, EXO_NOMEM, "no memory for the states of %zu parameters", numel);
    }
    exo_state_free(&state);
    exo_reshard_close(&n);
    return st;
}

/* --- Between a node and the arrays of the model ----------------------------------------------- */

static const exo_model *
part_of(const struct form *form, uint32_t rank)
{
    return form->parts ? form->parts[rank % form->num_parts] : form->model;
}

/* Moves the shards of an array, of which all nodes with the same part have one. Those of the other
 * copies stay. join: into the model's; NULL: from there. */
static exo_status
move_shard(const struct form *form, const struct node *n, uint32_t rank, const struct join *join,
           const char *name, exo_array shard, float *model, exo_err *err)
{
    size_t first, length;
    float *part = exo_calloc(n->view.numel + 1, sizeof *part);
    exo_shard(n->view.numel, n->view.num_nodes, n->view.rank, &first, &length);
    exo_status st = part ? EXO_OK : exo_fail(err, EXO_NOMEM, "no memory for a shard");
    if (st == EXO_OK && join) {
        st = exo_array_read(shard, part + first, err);
        if (st == EXO_OK)
            st = exo_reshard_join_values(join, name, first, length, model, part, err);
    } else if (st == EXO_OK) {
        exo_part_take(form->model, part_of(form, rank), model, part);
        st = exo_array_write(shard, part + first, err);
    }
    exo_free(part);
    return st;
}

/* Puts the counts of a node. The first node of a copy gives them, and the others must agree. */
static exo_status
put_count(const struct copies *m, struct entry *e, uint32_t rank, exo_array array, const char *name,
          exo_err *err)
{
    if (rank % m->old_sharing == 0)
        memcpy(e->data, array.data, e->bytes);
    return memcmp(e->data, array.data, e->bytes) == 0
               ? EXO_OK
               : exo_reshard_fail_other(m->c, rank, name, err);
}

/* Moves the entries of the kinds of which `shards` is, from a node, or to it (join: NULL). */
static exo_status
move_entries(struct copies *m, const struct form *form, struct node *n, uint32_t rank,
             const struct join *join, bool shards, exo_err *err)
{
    exo_state *state = NULL;
    exo_status st = list_entries(n, &state, err);
    if (st == EXO_OK)
        st = check_entries(m, n, state, err);
    for (size_t i = 0; st == EXO_OK && i < m->num_entries; i++) {
        struct entry *e = &m->entries[i];
        const char *name = NULL;
        const exo_array array = exo_state_entry(state, i, &name);
        if ((e->kind == SHARD) != shards)
            continue;
        if (e->kind == SHARD)
            st = move_shard(form, n, rank, join, name, array, e->data, err);
        else if (e->kind == EACH && join)
            st = exo_reshard_join_values(join, name, 0, n->view.numel, e->data, array.data, err);
        else if (e->kind == EACH)
            exo_part_take(form->model, part_of(form, rank), e->data, array.data);
        else if (join)
            st = put_count(m, e, rank, array, name, err);
        else
            memcpy(array.data, e->data, e->bytes);
    }
    exo_state_free(&state);
    return st;
}

/* --- A copy ----------------------------------------------------------------------------------- */

/* Puts a node's parameters and inner optimizer into the present copy. */
static exo_status
put_params(struct copies *m, const struct node *n, const struct join *join, exo_err *err)
{
    exo_whole part = {0};
    exo_status st = exo_whole_init(&part, n->view.numel, err);
    if (st == EXO_OK)
        st = exo_whole_put(&part, 0, n->view.params, n->view.optim, err);
    if (st == EXO_OK)
        st = exo_reshard_join_whole(join, &part, &m->whole, err);
    exo_whole_release(&part);
    return st;
}

static exo_status
get_params(const struct copies *m, struct node *n, uint32_t rank, exo_err *err)
{
    exo_whole part = {0};
    exo_status st = exo_reshard_cut(m->c, part_of(&m->c->new, rank), &m->whole, &part, err);
    if (st == EXO_OK)
        st = exo_whole_get(&part, 0, n->view.params, n->view.optim, err);
    exo_whole_release(&part);
    return st;
}

/* Puts the shards of a node, or everything else of it. */
static exo_status
put_node(struct copies *m, uint32_t rank, bool shards, exo_err *err)
{
    struct node n;
    struct join join = {0};
    size_t first = 0, length = 0;
    exo_status st = exo_reshard_load(m->c, &n, rank, err);
    if (st == EXO_OK && shards)
        st = exo_reshard_count(m->c, &n, rank, err);
    if (st == EXO_OK)
        st = exo_reshard_open_join(&join, m->c, rank, err);
    if (st == EXO_OK && !shards)
        st = put_params(m, &n, &join, err);
    if (st == EXO_OK)
        st = move_entries(m, &m->c->old, &n, rank, &join, shards, err);
    if (st == EXO_OK && shards)
        exo_shard(n.view.numel, n.view.num_nodes, n.view.rank, &first, &length);
    exo_reshard_close_join(&join, first, shards ? length : n.view.numel);
    exo_reshard_close(&n);
    return st;
}

/* Puts the nodes of these copies, first those with the first share of the model. */
static exo_status
put_nodes(struct copies *m, uint32_t first, uint32_t count, bool shards, exo_err *err)
{
    exo_status st = EXO_OK;
    memset(m->c->given, 0, exo_model_numel(m->c->old.model) * sizeof *m->c->given);
    for (uint32_t share = 0; st == EXO_OK && share < m->old_sharing; share++)
        for (uint32_t k = first; st == EXO_OK && k < first + count; k++)
            st = put_node(m, k * m->old_sharing + share, shards, err);
    return st;
}

static exo_status
write_nodes(struct copies *m, uint32_t copy, const char *folder, char (*sums)[65], exo_err *err)
{
    exo_status st = EXO_OK;
    for (uint32_t i = 0; st == EXO_OK && i < m->new_sharing; i++) {
        struct node n;
        const uint32_t r = copy * m->new_sharing + i;
        st = exo_reshard_open(&n, &m->c->new, r, err);
        if (st == EXO_OK)
            st = get_params(m, &n, r, err);
        for (int shards = 0; st == EXO_OK && shards < 2; shards++)
            st = move_entries(m, &m->c->new, &n, r, NULL, shards, err);
        if (st == EXO_OK)
            st = exo_reshard_save(m->c, &n, r, folder, sums[r], err);
        exo_reshard_close(&n);
    }
    return st;
}

/* --- Nodes with the whole model --------------------------------------------------------------- */

/* Writes the nodes that share a copy, each of which has all of it: with the old node's bytes. */
static exo_status
write_same(struct copies *m, uint32_t copy, const char *folder, char (*sums)[65], exo_err *err)
{
    struct node old;
    void *bytes = NULL;
    exo_status st = exo_reshard_load(m->c, &old, copy * m->old_sharing, err);
    const uint64_t size = st == EXO_OK ? exo_state_bytes(old.state) : 0;
    if (st == EXO_OK && !(bytes = exo_calloc(size + 1, 1)))
        st = exo_fail(err, EXO_NOMEM, "no memory for the state of a node");
    if (st == EXO_OK)
        st = exo_state_store(old.state, bytes, err);
    exo_reshard_close(&old);
    for (uint32_t i = 0; st == EXO_OK && i < m->new_sharing; i++) {
        struct node n;
        const uint32_t r = copy * m->new_sharing + i;
        st = exo_reshard_open(&n, &m->c->new, r, err);
        if (st == EXO_OK && exo_state_bytes(n.state) != size)
            st = exo_fail(err, EXO_UNSUPPORTED, "the strategy has other states on other nodes");
        if (st == EXO_OK)
            st = exo_state_restore(n.state, bytes, err);
        if (st == EXO_OK)
            st = exo_reshard_save(m->c, &n, r, folder, sums[r], err);
        exo_reshard_close(&n);
    }
    exo_free(bytes);
    return st;
}

/* Checks that the nodes that share a copy have the same state, and adds up their figures. */
static exo_status
check_same(struct copies *m, exo_err *err)
{
    char *first = NULL; /* the state of the copy's first node */
    exo_status st = EXO_OK;
    for (uint32_t r = 0; st == EXO_OK && r < m->c->old.is.num_nodes; r++) {
        struct node n;
        char *bytes = NULL;
        st = exo_reshard_load(m->c, &n, r, err);
        if (st == EXO_OK)
            st = exo_reshard_count(m->c, &n, r, err);
        const uint64_t size = st == EXO_OK ? exo_state_bytes(n.state) : 0;
        n.elapsed = n.bytes = 0; /* each node's own */
        if (st == EXO_OK && !(bytes = exo_calloc(size + 1, 1)))
            st = exo_fail(err, EXO_NOMEM, "no memory for the state of a node");
        if (st == EXO_OK)
            st = exo_state_store(n.state, bytes, err);
        if (st == EXO_OK && r % m->old_sharing == 0) {
            char *before = first;
            first = bytes;
            bytes = before;
        } else if (st == EXO_OK && memcmp(first, bytes, size) != 0) {
            st = exo_reshard_fail_state(m->c, r, n.state, first, bytes, err);
        }
        exo_free(bytes);
        exo_reshard_close(&n);
    }
    exo_free(first);
    return st;
}

/* --- The conversion --------------------------------------------------------------------------- */

exo_status
exo_reshard_check_copies(const struct conversion *c, const exo_strategy *strategy,
                         const exo_err *reason, exo_err *err)
{
    static const char *const skipped[] = {"name", "cpu_offload", NULL};
    const exo_reshard_form *old = &c->old.is, *new = &c->new.is;
    exo_text path = {0};
    const bool same = strcmp(old->strategy, new->strategy) == 0 &&
                      !exo_config_differs(old->options, new->options, skipped, &path);
    exo_free(path.data);
    const uint32_t before = old->num_nodes / exo_reshard_sharing(&c->old),
                   after = new->num_nodes / exo_reshard_sharing(&c->new);
    if (!same || exo_strategy_keeps_units(strategy) || exo_strategy_is_apart(strategy))
        return exo_fail(err, EXO_UNSUPPORTED, "%s", reason->text);
    if (before != after)
        return exo_fail(err, EXO_UNSUPPORTED,
                        "%s; under this strategy the copies of the model have to stay %" PRIu32
                        ", not %" PRIu32,
                        reason->text, before, after);
    if (!exo_strategy_is_ordered(strategy) && (c->old.parts || c->new.parts))
        return exo_fail(err, EXO_UNSUPPORTED,
                        "the strategy '%s' has states that do not follow the order of the "
                        "parameters, so nodes with other parts of the model cannot continue them",
                        old->strategy);
    return EXO_OK;
}

static bool
have_whole_models(const struct conversion *c)
{
    return !c->old.parts && !c->new.parts;
}

exo_status
exo_reshard_read_copies(struct conversion *c, exo_err *err)
{
    struct copies *m = &c->copies;
    m->c = c;
    m->old_sharing = exo_reshard_sharing(&c->old);
    m->new_sharing = exo_reshard_sharing(&c->new);
    m->count = c->old.is.num_nodes / m->old_sharing;
    if (have_whole_models(c))
        return check_same(m, err);
    exo_status st = make_entries(m, err);
    return st == EXO_OK ? put_nodes(m, 0, m->count, true, err) : st;
}

exo_status
exo_reshard_write_copies(struct conversion *c, const char *folder, char (*sums)[65], exo_err *err)
{
    struct copies *m = &c->copies;
    exo_status st = EXO_OK;
    for (uint32_t k = 0; st == EXO_OK && k < m->count; k++) {
        if (have_whole_models(c)) {
            st = write_same(m, k, folder, sums, err);
            continue;
        }
        st = exo_whole_init(&m->whole, exo_model_numel(c->old.model), err);
        if (st == EXO_OK)
            st = put_nodes(m, k, 1, false, err);
        if (st == EXO_OK)
            st = write_nodes(m, k, folder, sums, err);
        exo_whole_release(&m->whole);
    }
    return st;
}

void
exo_reshard_release_copies(struct conversion *c)
{
    for (size_t i = 0; i < c->copies.num_entries; i++)
        exo_free(c->copies.entries[i].data);
    exo_free(c->copies.entries);
}
