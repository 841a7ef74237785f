/* Rounds in the background: their messages begin when the values are taken, and are waited for when
 * the new values are due, so that they pass while the nodes compute. The values wait in a slot of
 * the exchange, which a checkpoint has; a buffer beside it belongs to the collective. A run that
 * goes on from a checkpoint begins the messages anew.
 *
 * With a codec, a round sends encoded pseudo-gradients. The encodings of all members are gathered;
 * each node decodes them, adds them up in fp32 in the order of ranks, and divides by their number.
 * With feedback beta, error e and pseudo-gradient delta, a node sends
 *
 *     e = beta e + delta,  sent = decode(encode(e)),  e = e - sent
 *
 * (Seide et al., 2014; SparseLoCo, Sarfi et al., 2025, arXiv:2508.15706).
 *
 * State: the exchange's pending rounds and its residual. Read next: exchange.c. */
#include "strategies/exchange.h"

#include <exogym/memory.h>

size_t
exo_background_bytes(const exo_param_exchange *e, size_t part)
{
    size_t bytes = 0;
    exo_codec_size(e->codec, e->parts[part].count, &bytes);
    return bytes;
}

/* --- Start and end ---------------------------------------------------------------------------- */

static exo_status
start_pending(exo_param_exchange *e, const exo_node *node, size_t part, exo_pending *out,
              exo_err *err)
{
    exo_device *device = node->params.device;
    size_t count = e->selects ? e->capacity : e->parts[part].count;
    return e->codec ? exo_commons_new(&out->commons, node->group, device, EXO_I8,
                                      node->num_nodes * exo_background_bytes(e, part), count, err)
                    : exo_array_init(&out->buffer, device, EXO_F32, count, err);
}

/* Room for the largest fragment and its encoding, and the residual. */
static exo_status
start_codec(exo_param_exchange *e, const exo_node *node, exo_err *err)
{
    size_t count = 0, bytes = 0;
    exo_status st = EXO_OK;
    for (size_t p = 0; p < e->num_parts; p++) {
        size_t own = exo_background_bytes(e, p);
        count = e->parts[p].count > count ? e->parts[p].count : count;
        bytes = own > bytes ? own : bytes;
    }
    e->floats = exo_calloc(count + 1, sizeof *e->floats);
    e->bytes = exo_calloc(bytes + 1, 1);
    if (!e->floats || !e->bytes)
        return exo_fail(err, EXO_NOMEM, "%s: no memory to encode %zu values", e->name, count);
    st = exo_array_init(&e->decoded, node->params.device, EXO_F32, count, err);
    if (st == EXO_OK && e->feedback > 0)
        st = exo_array_init(&e->residual, node->params.device, EXO_F32, node->numel, err);
    return st;
}

exo_status
exo_background_start(exo_param_exchange *e, const exo_node *node, exo_err *err)
{
    const size_t count = e->num_slots * e->num_parts;
    exo_status st = EXO_OK;
    if (!exo_param_exchange_flies(e))
        return EXO_OK;
    e->pending = exo_calloc(count, sizeof *e->pending);
    if (!e->pending)
        return exo_fail(err, EXO_NOMEM, "%s: no memory for %zu rounds", e->name, count);
    for (size_t i = 0; st == EXO_OK && i < count; i++)
        st = start_pending(e, node, i % e->num_parts, &e->pending[i], err);
    if (st == EXO_OK && e->codec)
        st = start_codec(e, node, err);
    return st == EXO_OK ? EXO_OK
                        : exo_fail_in(err, st, "%s: %zu rounds in the background", e->name, count);
}

/* The node's encoding is gone, too. */
static void
leave_commons(exo_pending *pending)
{
    pending->packed = false;
    if (pending->commons)
        exo_commons_leave(pending->commons);
}

void
exo_background_leave(exo_param_exchange *e)
{
    for (size_t i = 0; e->pending && i < e->num_slots * e->num_parts; i++) {
        exo_request_cancel(&e->pending[i].request);
        exo_group_close(&e->pending[i].group);
        leave_commons(&e->pending[i]);
    }
}

static void
free_pending(exo_pending *pending)
{
    exo_array_release(&pending->buffer);
    exo_commons_free(&pending->commons);
}

void
exo_background_release(exo_param_exchange *e)
{
    exo_background_leave(e);
    for (size_t i = 0; e->pending && i < e->num_slots * e->num_parts; i++)
        free_pending(&e->pending[i]);
    exo_free(e->pending);
    exo_codec_free(&e->codec);
    exo_array_release(&e->residual);
    exo_array_release(&e->decoded);
    exo_free(e->floats);
    exo_free(e->bytes);
}

/* --- Encodings -------------------------------------------------------------------------------- */

/* The encoding of a member. */
static exo_array
encoding_of(const exo_param_exchange *e, size_t part, const exo_pending *pending, uint32_t member)
{
    size_t bytes = exo_background_bytes(e, part);
    return exo_array_part(exo_commons_parts(pending->commons), member * bytes, bytes);
}

static exo_status
encode(exo_param_exchange *e, const exo_node *node, size_t part, exo_pending *pending,
       exo_array values, exo_err *err)
{
    size_t size = 0;
    exo_status st = exo_commons_take(pending->commons, node->group, err);
    if (st == EXO_OK)
        st = exo_array_read(values, e->floats, err);
    if (st == EXO_OK)
        st = exo_codec_encode(e->codec, NULL, e->floats, values.count, e->bytes, &size, err);
    if (st == EXO_OK)
        st = exo_array_write(encoding_of(e, part, pending, node->rank), e->bytes, err);
    pending->packed = st == EXO_OK;
    return st;
}

/* Decodes the encoding of a member to e->decoded, of which *out is the fragment. */
static exo_status
decode(exo_param_exchange *e, size_t part, const exo_pending *pending, uint32_t member,
       exo_array *out, exo_err *err)
{
    const exo_array encoding = encoding_of(e, part, pending, member);
    *out = exo_array_part(e->decoded, 0, e->parts[part].count);
    exo_status st = exo_array_read(encoding, e->bytes, err);
    if (st == EXO_OK)
        st = exo_codec_decode(e->codec, NULL, e->bytes, encoding.count, e->floats, out->count, err);
    return st == EXO_OK ? exo_array_write(*out, e->floats, err) : st;
}

exo_status
exo_background_feed_back(exo_param_exchange *e, const exo_node *node, size_t part,
                         exo_pending *pending, exo_array values, exo_err *err)
{
    exo_array sent;
    if (!e->residual.data)
        return EXO_OK;
    const exo_array residual = exo_array_part(e->residual, e->parts[part].at, values.count);
    exo_vec_scale(residual, e->feedback);
    exo_vec_add(residual, residual, values);
    exo_vec_copy(values, residual);
    exo_status st = encode(e, node, part, pending, values, err);
    if (st == EXO_OK)
        st = decode(e, part, pending, node->rank, &sent, err);
    if (st == EXO_OK)
        exo_vec_sub(residual, residual, sent);
    return st;
}

/* --- A pending --------------------------------------------------------------------------------- */

exo_status
exo_background_begin(exo_param_exchange *e, const exo_node *node, size_t part, uint64_t round,
                     exo_pending *pending, exo_array values, exo_err *err)
{
    exo_group *group = NULL;
    if (values.count == 0) /* a stage may have no unit of a fragment */
        return EXO_OK;
    exo_status st = exo_param_exchange_meet(e, node, round, &group, err);
    if (st != EXO_OK || !group)
        return st;
    pending->group = group == node->group ? NULL : group;
    if (e->codec) {
        st = pending->packed ? EXO_OK : encode(e, node, part, pending, values, err);
        return st == EXO_OK ? exo_comm_begin_all_gather(&pending->request, group,
                                                        exo_commons_parts(pending->commons), err)
                            : st;
    }
    const exo_array buffer = exo_array_part(pending->buffer, 0, values.count);
    exo_vec_copy(buffer, values);
    return buffer.count > 0
               ? exo_comm_begin_all_reduce(&pending->request, group, buffer, EXO_MEAN, err)
               : EXO_OK;
}

/* The encodings of a round. */
struct encodings {
    exo_param_exchange *exchange;
    const exo_pending *pending;
    size_t part;
    uint32_t members;
};

/* The mean of all members' decoded values. */
static exo_status
mean_of_encodings(void *context, exo_array out, exo_err *err)
{
    const struct encodings *all = context;
    exo_status st = EXO_OK;
    for (uint32_t member = 0; st == EXO_OK && member < all->members; member++) {
        exo_array decoded;
        st = decode(all->exchange, all->part, all->pending, member, &decoded, err);
        if (st == EXO_OK && member == 0)
            exo_vec_copy(out, decoded);
        else if (st == EXO_OK)
            exo_vec_add(out, out, decoded);
    }
    if (st == EXO_OK)
        exo_vec_divide(out, (float)all->members);
    return st;
}

exo_status
exo_background_end(exo_param_exchange *e, const exo_node *node, size_t part, exo_pending *pending,
                   exo_array values, exo_err *err)
{
    exo_status st = exo_request_wait(&pending->request, err);
    exo_group_close(&pending->group);
    if (st == EXO_OK && e->codec)
        st = exo_commons_compute(pending->commons, values, mean_of_encodings,
                                 &(struct encodings){e, pending, part, node->num_nodes}, err);
    else if (st == EXO_OK)
        exo_vec_copy(values, exo_array_part(pending->buffer, 0, values.count));
    leave_commons(pending);
    return st;
}
