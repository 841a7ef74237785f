/* The update that comes, decoded into the back copy: see receiver.h. A piece of changes reads its
 * base from the front copy and writes to the back one, so the back copy need not be brought up to
 * date first. Read next: receiver.c. */
#include "nn/updates/receiver.h"

#include <stdio.h>

#include <exogym/memory.h>
#include <exogym/parallel.h>

static const uint8_t unknown[EXO_SHA];

/* Of a copy on the host. */
static float *
values_of(const exo_received *copy, size_t tensor)
{
    return exo_params_at(copy->params, tensor);
}

/* A tensor, on any device. */
static exo_array
array_of(const exo_received *copy, size_t tensor)
{
    const exo_param_info *info = exo_params_info(copy->params, tensor);
    exo_array flat = info->is_buffer ? exo_params_buffers_array(copy->params)
                                     : exo_params_values_array(copy->params);
    return exo_array_part(flat, info->offset, info->numel);
}

/* --- Manifest --------------------------------------------------------------------------------- */

static exo_status
refuse_shape(const exo_update_tensor *t, const exo_param_info *info, exo_err *err)
{
    char sent[128] = "", here[128] = "";
    size_t a = 0, b = 0;
    for (size_t d = 0; d < t->num_dims && a < sizeof sent; d++)
        a += (size_t)snprintf(sent + a, sizeof sent - a, "%s%zu", d ? ", " : "", t->dims[d]);
    for (size_t d = 0; d < info->num_dims && b < sizeof here; d++)
        b += (size_t)snprintf(here + b, sizeof here - b, "%s%zu", d ? ", " : "", info->dims[d]);
    return exo_fail(err, EXO_INVAL,
                    "tensor '%s' has the shape (%s) at the sender and (%s) here: give both sides "
                    "the same model",
                    info->name, sent, here);
}

static bool
is_named(const exo_update_tensor *t, const exo_param_info *info)
{
    return t->name_length == strlen(info->name) && memcmp(t->name, info->name, t->name_length) == 0;
}

static exo_status
check_model(const exo_update_receiver *r, const exo_update_manifest *m, exo_err *err)
{
    const exo_param_info *infos = exo_model_infos(r->model);
    for (size_t i = 0; i < m->count || i < r->count; i++) {
        const exo_update_tensor *t = i < m->count ? &m->tensors[i] : NULL;
        const exo_param_info *info = i < r->count ? &infos[i] : NULL;
        if (!t || !info || !is_named(t, info))
            return exo_fail(err, EXO_INVAL,
                            "tensor %zu of the sender is '%.*s', and '%s' here: give both sides "
                            "the same model",
                            i, t ? (int)t->name_length : 7, t ? t->name : "nothing",
                            info ? info->name : "nothing");
        bool same = t->num_dims == info->num_dims && t->numel == info->numel;
        for (size_t d = 0; same && d < t->num_dims; d++)
            same = t->dims[d] == info->dims[d];
        if (!same)
            return refuse_shape(t, info, err);
    }
    if (memcmp(m->fingerprint, r->fingerprint, EXO_SHA) != 0)
        return exo_fail(err, EXO_INVAL,
                        "the fingerprint of the model is not that of its names and shapes: the "
                        "manifest was altered");
    return EXO_OK;
}

static exo_status
check_header(const exo_update_manifest *m, const exo_chunk_header *h, size_t chunks, exo_err *err)
{
    uint8_t found[EXO_SHA];
    exo_status st = exo_hash_two(m->bytes, m->size, NULL, 0, found, err);
    if (st != EXO_OK)
        return st;
    if (memcmp(found, h->update, EXO_SHA) != 0)
        return exo_fail(err, EXO_DAMAGED,
                        "the manifest of version %llu is not the one that its header names: one of "
                        "them was altered",
                        (unsigned long long)h->version);
    if (m->state.version != h->version || m->state.life != h->life)
        return exo_fail(err, EXO_DAMAGED,
                        "the header says version %llu of life %llu, the manifest version %llu of "
                        "life %llu: one of them was altered",
                        (unsigned long long)h->version, (unsigned long long)h->life,
                        (unsigned long long)m->state.version, (unsigned long long)m->state.life);
    if (chunks + 1 != h->count)
        return exo_fail(err, EXO_DAMAGED,
                        "the header says %u chunks, and the manifest has %zu: one of them was "
                        "altered",
                        h->count, chunks + 1);
    return EXO_OK;
}

static exo_status
check_digest(const exo_update_receiver *r, const exo_update_manifest *m, exo_err *err)
{
    exo_state_id id = m->state;
    uint8_t(*hashes)[EXO_SHA] = exo_calloc(m->count + 1, sizeof *hashes);
    if (!hashes)
        return exo_fail(err, EXO_NOMEM, "no memory to verify an update");
    for (size_t i = 0; i < m->count; i++)
        memcpy(hashes[i], m->tensors[i].sha256, EXO_SHA);
    exo_status st =
        exo_state_digest(&id, r->fingerprint, (const uint8_t(*)[EXO_SHA])hashes, m->count, err);
    exo_free(hashes);
    if (st == EXO_OK && memcmp(id.digest, m->state.digest, EXO_SHA) != 0)
        st = exo_fail(err, EXO_DAMAGED,
                      "the hashes of the tensors are not those of version %llu: the manifest was "
                      "altered",
                      (unsigned long long)m->state.version);
    return st;
}

static bool
is_older(const exo_state_id *a, const exo_state_id *b)
{
    return a->life < b->life || (a->life == b->life && a->version <= b->version);
}

static exo_status
check_versions(const exo_update_receiver *r, const exo_update_manifest *m, bool *need_whole,
               exo_err *err)
{
    const exo_state_id *have = &r->front->id, *base = &m->base;
    unsigned long long version = m->state.version, here = have->version;
    if (here != 0 && is_older(&m->state, have))
        return exo_fail(err, EXO_INVAL,
                        "version %llu of life %llu is stale: version %llu of life %llu is in use; "
                        "a restarted sender needs a larger life",
                        version, (unsigned long long)m->state.life, here,
                        (unsigned long long)have->life);
    if (base->version == 0)
        return EXO_OK;
    *need_whole = true;
    if (here == 0)
        return exo_fail(err, EXO_INVAL,
                        "version %llu has version %llu as its base, and there is none here: send "
                        "a whole update",
                        version, (unsigned long long)base->version);
    if (base->version != here || base->life != have->life ||
        memcmp(base->digest, have->digest, EXO_SHA) != 0)
        return exo_fail(err, EXO_INVAL,
                        "version %llu has version %llu as its base, but version %llu is in use "
                        "here, or one with other values: send a whole update",
                        version, (unsigned long long)base->version, here);
    for (size_t i = 0; i < m->count; i++)
        if (!m->tensors[i].sent && memcmp(m->tensors[i].sha256, r->front->hashes[i], EXO_SHA) != 0)
            return exo_fail(err, EXO_INVAL,
                            "tensor '%s' is not in the update to version %llu, but is another one "
                            "at the sender than here: send a whole update",
                            exo_model_infos(r->model)[i].name, version);
    *need_whole = false;
    return EXO_OK;
}

/* The canary for the generator's format; NULL: there is none. */
static const exo_canary *
canary_of(const exo_update_receiver *r, const exo_update_manifest *m)
{
    for (size_t i = 0; r->generator && i < m->num_canaries; i++)
        if (m->canaries[i].format == exo_generator_options(r->generator)->weights)
            return &m->canaries[i];
    return NULL;
}

exo_status
exo_incoming_begin(exo_update_receiver *r, const exo_chunk_header *header, const uint8_t *bytes,
                   bool *need_whole, exo_err *err)
{
    exo_incoming *in = &r->incoming;
    in->first = *header;
    in->next = 1;
    in->hashing = SIZE_MAX;
    in->stage = EXO_INCOMING_COMING;
    exo_status st = exo_update_manifest_read(&in->manifest, bytes, header->bytes, err);
    if (st == EXO_OK)
        st = check_model(r, &in->manifest, err);
    if (st == EXO_OK)
        st = exo_piece_plan_init(&in->plan, &in->manifest, err);
    if (st == EXO_OK)
        st = check_header(&in->manifest, header, in->plan.num_chunks, err);
    if (st == EXO_OK)
        st = check_digest(r, &in->manifest, err);
    if (st == EXO_OK)
        st = check_versions(r, &in->manifest, need_whole, err);
    if (st == EXO_OK && r->needs_canary && !canary_of(r, &in->manifest))
        st = exo_fail(err, EXO_INVAL,
                      "version %llu has no canary for this generator's format of weights: give "
                      "the sender the format under canaries",
                      (unsigned long long)header->version);
    return st;
}

/* --- Tensors ---------------------------------------------------------------------------------- */

static exo_status
finish_tensor(exo_update_receiver *r, size_t tensor, uint32_t chunk, exo_err *err)
{
    exo_incoming *in = &r->incoming;
    const exo_update_tensor *t = &in->manifest.tensors[tensor];
    uint8_t found[EXO_SHA];
    in->hashing = SIZE_MAX;
    if (!exo_hash_end_bytes(&in->hash, found))
        return exo_fail(err, EXO_FAILED, "libcrypto gives no SHA-256");
    if (memcmp(found, t->sha256, EXO_SHA) != 0)
        return exo_fail(err, EXO_DAMAGED,
                        "tensor '%.*s', which ends in chunk %u, has other values than the sender's "
                        "version %llu: its SHA-256 differs",
                        (int)t->name_length, t->name, chunk, (unsigned long long)in->first.version);
    memcpy(r->back->hashes[tensor], found, EXO_SHA);
    return EXO_OK;
}

/* Keeps the rows of the part: `piece` are elements [first, first + count) of the whole tensor, on the
 * host or on the copies' device. */
static void
keep_rows(exo_update_receiver *r, const exo_piece_of *p, exo_array piece)
{
    const exo_param_info *info = &exo_model_infos(r->model)[p->tensor];
    const exo_param_cut *cut = r->part ? exo_model_cut(r->part, p->tensor) : NULL;
    const exo_param_cut all = {.num_bands = 1, .bands = {{.first = 0, .count = info->numel}}};
    size_t row = cut ? info->numel / info->dims[0] : 1, end = p->first + p->count, at = 0;
    exo_array mine = array_of(r->back, p->tensor);
    cut = cut ? cut : &all;
    for (size_t b = 0; b < cut->num_bands; b++) {
        size_t from = cut->bands[b].first * row, length = cut->bands[b].count * row;
        size_t first = from > p->first ? from : p->first;
        size_t last = from + length < end ? from + length : end;
        if (first < last) {
            exo_array to = exo_array_part(mine, at + (first - from), last - first);
            exo_array source = exo_array_part(piece, first - p->first, last - first);
            if (exo_device_is_host(piece.device))
                exo_array_send(to, source.data);
            else
                exo_vec_copy(to, source);
        }
        at += length;
    }
}

/* Room for a piece of a whole tensor. NULL: no memory. */
static float *
room_for(exo_update_receiver *r, size_t count)
{
    if (count > r->whole_room) {
        float *more = exo_realloc(r->whole, count, sizeof *more);
        if (!more)
            return NULL;
        r->whole = more;
        r->whole_room = count;
    }
    return r->whole;
}

/* Decodes a piece for a part. */
static exo_status
take_part(exo_update_receiver *r, const exo_piece_of *p, exo_err *err)
{
    float *piece = room_for(r, p->count);
    if (!piece)
        return exo_fail(err, EXO_NOMEM, "no memory for %zu values", (size_t)p->count);
    if (r->incoming.manifest.base.version > 0 && exo_body_has_changes(&r->body))
        return exo_fail(
            err, EXO_UNSUPPORTED,
            "a maker with a part of the model (parallel) cannot verify changes, because "
            "it does not have the whole base: set the trainer's update.form to whole, "
            "bf16 or int8");
    exo_status st = exo_body_take(&r->body, p, NULL, piece, err);
    if (st != EXO_OK)
        return st;
    exo_hash_add(&r->incoming.hash, piece, p->count * sizeof *piece);
    keep_rows(r, p, exo_host_array(EXO_F32, piece, p->count));
    return EXO_OK;
}

/* Decodes a piece on the host for a copy on another device. */
static exo_status
take_there(exo_update_receiver *r, const exo_piece_of *p, exo_err *err)
{
    float *now = room_for(r, 2 * (size_t)p->count);
    exo_status st = EXO_OK;
    if (!now)
        return exo_fail(err, EXO_NOMEM, "no memory for %zu values", (size_t)p->count);
    float *base = now + p->count;
    bool changes = r->incoming.manifest.base.version > 0 && exo_body_has_changes(&r->body);
    if (changes)
        st = exo_array_read(exo_array_part(array_of(r->front, p->tensor), p->first, p->count), base,
                            err);
    if (st == EXO_OK)
        st = exo_body_take(&r->body, p, changes ? base : NULL, now, err);
    if (st != EXO_OK)
        return st;
    exo_hash_add(&r->incoming.hash, now, p->count * sizeof *now);
    exo_array_send(exo_array_part(array_of(r->back, p->tensor), p->first, p->count), now);
    return EXO_OK;
}

static exo_status
take_whole(exo_update_receiver *r, const exo_piece_of *p, exo_err *err)
{
    if (!exo_device_is_host(r->device))
        return take_there(r, p, err);
    const float *base =
        r->incoming.manifest.base.version > 0 ? values_of(r->front, p->tensor) + p->first : NULL;
    float *now = values_of(r->back, p->tensor) + p->first;
    exo_status st = exo_body_take(&r->body, p, base, now, err);
    if (st == EXO_OK)
        exo_hash_add(&r->incoming.hash, now, p->count * sizeof *now);
    return st;
}

/* From now on the tensor of the back copy is written. */
static exo_status
begin_tensor(exo_update_receiver *r, size_t tensor, exo_err *err)
{
    memcpy(r->back->hashes[tensor], unknown, EXO_SHA);
    exo_status st = exo_hash_init(&r->incoming.hash, err);
    r->incoming.hashing = st == EXO_OK ? tensor : SIZE_MAX;
    return st;
}

static exo_status
take_piece(exo_update_receiver *r, const exo_piece_of *p, uint32_t chunk, exo_err *err)
{
    exo_incoming *in = &r->incoming;
    const exo_update_tensor *t = &in->manifest.tensors[p->tensor];
    exo_status st = p->first == 0 ? begin_tensor(r, p->tensor, err) : EXO_OK;
    if (st == EXO_OK)
        st = r->part ? take_part(r, p, err) : take_whole(r, p, err);
    if (st != EXO_OK)
        return exo_fail_in(err, st, "chunk %u of version %llu, tensor '%.*s'", chunk,
                           (unsigned long long)in->first.version, (int)t->name_length, t->name);
    return p->first + p->count == t->numel ? finish_tensor(r, p->tensor, chunk, err) : EXO_OK;
}

exo_status
exo_incoming_take(exo_update_receiver *r, const exo_chunk_header *header, const uint8_t *bytes,
                  exo_err *err)
{
    exo_incoming *in = &r->incoming;
    size_t first = in->plan.chunks[in->next - 1], end = in->plan.chunks[in->next], elements = 0;
    for (size_t i = first; i < end; i++)
        elements += in->plan.pieces[i].count;
    exo_status st = exo_body_open(&r->body, bytes, header->bytes, end - first, elements, err);
    if (st != EXO_OK)
        return exo_fail_in(err, st, "chunk %u of version %llu", header->number,
                           (unsigned long long)header->version);
    for (size_t i = first; st == EXO_OK && i < end; i++)
        st = take_piece(r, &in->plan.pieces[i], header->number, err);
    if (st == EXO_OK && exo_body_close(&r->body, err) != EXO_OK)
        st = exo_fail_in(err, EXO_DAMAGED, "chunk %u of version %llu", header->number,
                         (unsigned long long)header->version);
    in->next++;
    return st;
}

/* --- Memory of the device --------------------------------------------------------------------- */

/* Hashes a piece of a tensor of the sender's, and keeps the part's rows of it. The sender may change its
 * memory at any time, so nothing but the copy in `room` is looked at. */
static exo_status
fetch_piece(exo_update_receiver *r, const exo_piece_of *p, exo_array from, exo_array room,
            exo_err *err)
{
    float *piece = room_for(r, p->count);
    exo_array copy = exo_array_part(room, 0, p->count);
    if (!piece)
        return exo_fail(err, EXO_NOMEM, "no memory for %zu values", (size_t)p->count);
    exo_vec_copy(copy, from);
    exo_status st = exo_array_read(copy, piece, err);
    if (st != EXO_OK)
        return st;
    exo_hash_add(&r->incoming.hash, piece, p->count * sizeof *piece);
    keep_rows(r, p, copy);
    return EXO_OK;
}

/* Copies and verifies a tensor of the sender's, whose elements are `all`. */
static exo_status
fetch_tensor(exo_update_receiver *r, size_t tensor, exo_array all, exo_array room, exo_err *err)
{
    exo_status st = begin_tensor(r, tensor, err);
    for (size_t first = 0; st == EXO_OK && first < all.count; first += room.count) {
        size_t left = all.count - first;
        const exo_piece_of p = {.tensor = (uint32_t)tensor,
                                .first = first,
                                .count = (uint32_t)(left < room.count ? left : room.count)};
        st = fetch_piece(r, &p, exo_array_part(all, first, p.count), room, err);
    }
    return st == EXO_OK ? finish_tensor(r, tensor, 0, err) : st;
}

static exo_status
fetch_tensors(exo_update_receiver *r, exo_array all, exo_err *err)
{
    const exo_param_info *infos = exo_model_infos(r->model);
    exo_array room = {0};
    size_t numel = 0, piece = (size_t)r->incoming.manifest.piece;
    for (size_t i = 0; i < r->count; i++)
        numel += infos[i].numel;
    if (all.dtype != EXO_F32 || all.count != numel)
        return exo_fail(err, EXO_DAMAGED,
                        "the shared array of the update has %zu elements, and the model %zu",
                        all.count, numel);
    exo_status st = exo_array_init(&room, r->device, EXO_F32, piece < numel ? piece : numel, err);
    for (size_t i = 0, at = 0; st == EXO_OK && i < r->count; at += infos[i++].numel)
        st = fetch_tensor(r, i, exo_array_part(all, at, infos[i].numel), room, err);
    exo_array_release(&room);
    return st == EXO_OK ? exo_device_synchronize(r->device, err) : st;
}

exo_status
exo_incoming_fetch(exo_update_receiver *r, exo_err *err)
{
    const exo_incoming *in = &r->incoming;
    exo_ipc_array *from = NULL;
    exo_status st = exo_ipc_array_open(&from, r->device, &in->manifest.handle, err);
    if (st == EXO_OK)
        st = fetch_tensors(r, exo_ipc_array_of(from), err);
    exo_ipc_array_drop(&from);
    if (st == EXO_FULL) /* of exo_update_receive it means that a version is ready */
        st = EXO_NOMEM;
    if (st != EXO_OK && st != EXO_NOT_FOUND) /* NOT_FOUND: a newer version is on its way */
        r->place = 0;                        /* from now on updates come as bytes */
    return st == EXO_OK
               ? st
               : exo_fail_in(err, st, "version %llu", (unsigned long long)in->first.version);
}

/* --- The end ---------------------------------------------------------------------------------- */

/* Copies the tensors that were not sent, where the back copy has older ones. */
static void
keep_tensors(exo_update_receiver *r)
{
    for (size_t i = 0; i < r->count; i++) {
        const exo_update_tensor *t = &r->incoming.manifest.tensors[i];
        if (memcmp(r->back->hashes[i], t->sha256, EXO_SHA) == 0)
            continue;
        exo_vec_copy(array_of(r->back, i), array_of(r->front, i));
        memcpy(r->back->hashes[i], t->sha256, EXO_SHA);
    }
}

exo_status
exo_incoming_prove(exo_update_receiver *r, exo_err *err)
{
    const exo_canary *sent = canary_of(r, &r->incoming.manifest);
    exo_canary mine;
    if (!sent)
        return EXO_OK;
    exo_status st = exo_canary_compute(&mine, r->other, r->fingerprint, err);
    if (st == EXO_OK)
        st = exo_canary_compare(&mine, sent, r->tolerance, err);
    return st == EXO_OK ? st
                        : exo_fail_in(err, st, "version %llu",
                                      (unsigned long long)r->incoming.first.version);
}

exo_status
exo_incoming_complete(exo_update_receiver *r, exo_err *err)
{
    exo_incoming *in = &r->incoming;
    keep_tensors(r);
    exo_status st = exo_device_synchronize(r->device, err);
    if (st == EXO_OK && r->generator)
        st = exo_generator_set_weights(r->other, r->back->params, err);
    if (st != EXO_OK)
        return exo_fail_in(err, st, "version %llu", (unsigned long long)in->first.version);
    if (r->generator && !r->group) /* a group computes it in exo_update_agree */
        st = exo_incoming_prove(r, err);
    if (st != EXO_OK)
        return st;
    r->back->id = in->manifest.state;
    exo_hash_text(r->back->id.digest, r->back->state);
    in->stage = r->group ? EXO_INCOMING_COMPLETE : EXO_INCOMING_READY;
    return EXO_OK;
}

void
exo_incoming_end(exo_update_receiver *r)
{
    exo_incoming *in = &r->incoming;
    if (in->hashing != SIZE_MAX)
        exo_hash_release(&in->hash);
    exo_update_manifest_release(&in->manifest);
    exo_piece_plan_release(&in->plan);
    *in = (exo_incoming){.hashing = SIZE_MAX};
}
