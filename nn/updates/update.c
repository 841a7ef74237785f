/* Updates: the chunks from a base to the newest version. An update holds its snapshots; its sender
 * must outlive it for the receivers' names only. Owner: one thread. Read next: body.c. */
#include "nn/updates/sender.h"

#include <exogym/memory.h>

struct exo_update {
    const exo_update_sender *sender;
    exo_snapshot *base, *now; /* base NULL: a whole update */
    exo_update_manifest manifest;
    exo_piece_plan plan;
    exo_body body;
    uint8_t id[EXO_SHA];
    uint32_t next; /* chunk */
    exo_update_facts facts;
};

static bool
is_delta(exo_update_form form)
{
    return form == EXO_UPDATE_DELTA || form == EXO_UPDATE_BF16_DELTA;
}

/* --- Beginning -------------------------------------------------------------------------------- */

/* The base that all receivers have; NULL: there is no such one. */
static exo_snapshot *
common_base(const exo_update_sender *s, const char *const *names, size_t count)
{
    exo_snapshot *base = exo_sender_find(s, names[0])->base;
    for (size_t i = 1; i < count; i++)
        if (exo_sender_find(s, names[i])->base != base)
            return NULL;
    return base;
}

static bool
is_sent(const exo_update *u, size_t tensor)
{
    if (!u->base)
        return true;
    if (u->facts.delta)
        return memcmp(u->base->hashes[tensor], u->now->hashes[tensor], EXO_SHA) != 0;
    return u->sender->chosen[tensor];
}

/* Whether all receivers read the version's memory. */
static bool
hands_all(const exo_update_sender *s, const char *const *names, size_t count)
{
    bool all = true;
    for (size_t i = 0; i < count; i++)
        all = all && exo_update_sender_hands(s, names[i]);
    return all;
}

/* The values are in the memory of the version. */
static void
hand_over(exo_update *u)
{
    u->manifest.handed = true;
    u->manifest.handle = u->now->handle;
    u->facts.handed = u->facts.elements * sizeof(float);
}

static exo_status
write_manifest(exo_update *u, bool handed, exo_err *err)
{
    const exo_update_sender *s = u->sender;
    exo_update_manifest *m = &u->manifest;
    u->facts.delta = u->base && is_delta(s->form);
    if (u->base)
        m->base = u->base->id;
    m->state = u->now->id;
    m->piece = s->rounding.piece;
    memcpy(m->fingerprint, s->fingerprint, EXO_SHA);
    m->count = u->now->count;
    m->tensors = exo_calloc(m->count + 1, sizeof *m->tensors);
    if (!m->tensors)
        return exo_fail(err, EXO_NOMEM, "no memory for the manifest of an update");
    for (size_t i = 0; i < m->count; i++) {
        const exo_param_info *info = exo_params_info(u->now->params, i);
        exo_update_tensor *t = &m->tensors[i];
        *t = (exo_update_tensor){.name = info->name,
                                 .name_length = strlen(info->name),
                                 .num_dims = info->num_dims,
                                 .numel = info->numel,
                                 .sent = is_sent(u, i)};
        memcpy(t->dims, info->dims, sizeof t->dims);
        memcpy(t->sha256, u->now->hashes[i], EXO_SHA);
        u->facts.tensors += t->sent;
        u->facts.elements += t->sent ? t->numel : 0;
    }
    m->num_canaries = u->now->num_canaries;
    memcpy(m->canaries, u->now->canaries, sizeof m->canaries);
    if (handed)
        hand_over(u);
    exo_status st = exo_update_manifest_write(m, err);
    return st == EXO_OK ? exo_hash_two(m->bytes + EXO_CHUNK_HEADER, m->size, NULL, 0, u->id, err)
                        : st;
}

static exo_status
meet_all(exo_update_sender *s, const char *const *names, size_t count, exo_err *err)
{
    if (!s->newest)
        return exo_fail(err, EXO_INVAL, "updates: stage a version before an update begins");
    if (count == 0)
        return exo_fail(err, EXO_INVAL, "updates: an update needs a receiver");
    for (size_t i = 0; i < count; i++) {
        const exo_known_receiver *r = exo_sender_meet(s, names[i]);
        if (!r)
            return exo_fail(err, EXO_NOMEM, "no memory for the receiver '%s'", names[i]);
        if (r->base == s->newest)
            return exo_fail(err, EXO_INVAL,
                            "updates: '%s' has version %llu already; stage a newer one first",
                            names[i], (unsigned long long)s->newest->id.version);
    }
    return EXO_OK;
}

exo_status
exo_update_begin(exo_update **out, exo_update_sender *s, const char *const *receivers,
                 size_t num_receivers, exo_err *err)
{
    exo_status st = meet_all(s, receivers, num_receivers, err);
    if (st != EXO_OK)
        return st;
    exo_update *u = exo_calloc(1, sizeof *u);
    if (!u)
        return exo_fail(err, EXO_NOMEM, "no memory for an update");
    u->sender = s;
    u->now = exo_snapshot_hold(s->newest);
    bool handed = hands_all(s, receivers, num_receivers);
    if (!handed && (s->partial || is_delta(s->form)))
        u->base = exo_snapshot_hold(common_base(s, receivers, num_receivers));
    st = write_manifest(u, handed, err);
    if (st == EXO_OK)
        st = exo_piece_plan_init(&u->plan, &u->manifest, err);
    if (st == EXO_OK)
        st = exo_body_init(&u->body, err);
    if (st != EXO_OK) {
        exo_update_free(&u);
        return st;
    }
    u->facts.version = u->now->id.version;
    u->facts.base = u->base ? u->base->id.version : 0;
    u->facts.chunks = (uint32_t)u->plan.num_chunks + 1;
    for (size_t i = 0; i < num_receivers; i++) {
        exo_known_receiver *r = exo_sender_find(s, receivers[i]);
        exo_snapshot_drop(&r->sent);
        r->sent = exo_snapshot_hold(u->now);
    }
    *out = u;
    return EXO_OK;
}

void
exo_update_free(exo_update **update)
{
    exo_update *u = *update;
    if (!u)
        return;
    exo_snapshot_drop(&u->base);
    exo_snapshot_drop(&u->now);
    exo_update_manifest_release(&u->manifest);
    exo_piece_plan_release(&u->plan);
    exo_body_release(&u->body);
    exo_free(u);
    *update = NULL;
}

exo_update_facts
exo_update_facts_of(const exo_update *update)
{
    return update->facts;
}

/* --- Chunks ----------------------------------------------------------------------------------- */

static exo_status
add_piece(exo_update *u, const exo_piece_of *p, exo_err *err)
{
    const exo_update_form form = u->sender->form;
    const exo_rounding *r = &u->sender->rounding;
    const float *now = exo_params_at(u->now->params, p->tensor) + p->first;
    if (u->facts.delta)
        return exo_body_add_delta(&u->body, p, exo_params_at(u->base->params, p->tensor) + p->first,
                                  now, err);
    if (u->now->coded[p->tensor]) {
        size_t size = 0, each = exo_codec_bound(r->int8, r->piece);
        exo_codec_size(r->int8, p->count, &size);
        return exo_body_add_coded(&u->body, p,
                                  u->now->coded[p->tensor] + p->first / r->piece * each, size, err);
    }
    bool bf16 = form == EXO_UPDATE_BF16 || form == EXO_UPDATE_BF16_DELTA;
    return exo_body_add_values(&u->body, p, bf16 ? EXO_PIECE_BF16 : EXO_PIECE_F32, now, err);
}

static exo_status
make_body(exo_update *u, size_t chunk, exo_err *err)
{
    exo_status st = EXO_OK;
    exo_body_begin(&u->body);
    for (size_t i = u->plan.chunks[chunk]; st == EXO_OK && i < u->plan.chunks[chunk + 1]; i++)
        st = add_piece(u, &u->plan.pieces[i], err);
    return st == EXO_OK ? exo_body_finish(&u->body, err) : st;
}

exo_status
exo_update_next(exo_update *u, const void **bytes, size_t *size, exo_err *err)
{
    uint8_t *chunk = u->manifest.bytes;
    size_t length = EXO_CHUNK_HEADER + u->manifest.size;
    if (u->next >= u->facts.chunks)
        return exo_fail(err, EXO_CLOSED, "the update to version %llu has no further chunk",
                        (unsigned long long)u->facts.version);
    if (u->next > 0) {
        exo_status st = make_body(u, u->next - 1, err);
        if (st != EXO_OK)
            return st;
        chunk = u->body.out.data;
        length = u->body.out.size;
    }
    exo_chunk_header h = {.number = u->next,
                          .count = u->facts.chunks,
                          .sender = u->sender->sender,
                          .life = u->sender->life,
                          .version = u->facts.version,
                          .bytes = length - EXO_CHUNK_HEADER};
    memcpy(h.update, u->id, EXO_SHA);
    exo_status st = exo_chunk_seal(&h, chunk, err);
    if (st != EXO_OK)
        return st;
    u->next++;
    u->facts.bytes += length;
    *bytes = chunk;
    *size = length;
    return EXO_OK;
}
