/* The operations of a collective among actors, as a direct exchange: see far.h. State:
 * far_impl.h. */
#include <string.h>

#include <exogym/memory.h>
#include <exogym/object.h>

#include "base/parallel.h"
#include "comm/far_impl.h"
#include "comm/near.h"
#include "comm/reduce.h"
#include "comm/timing.h"

struct part {
    size_t first, length; /* elements */
};

static struct part
shard(const exo_collective_args *args, uint32_t place)
{
    struct part p;
    exo_comm_part(args, place, &p.first, &p.length);
    return p;
}

/* The member's encoder if this call has a codec, else NULL. */
static exo_encoder *
encoder_of(exo_far *f, const exo_collective_args *args)
{
    return args->codec ? &f->encoder : NULL;
}

/* Sends each other member this member's part of that one's shard, or the block for it (reduce), or
 * this member's own shard (gather). */
static exo_status
send_shards(exo_far *f, uint32_t phase, const exo_collective_args *args, exo_err *err)
{
    size_t size = exo_dtype_size(args->dtype);
    exo_status st = EXO_OK;
    for (uint32_t i = 1; st == EXO_OK && i < args->size; i++) {
        uint32_t place = (args->place + i) % args->size,
                 to = exo_far_rank_at(args, place); /* members begin with different targets */
        exo_far_header header;
        struct part p = shard(args, phase == EXO_FAR_REDUCE ? place : args->place);
        exo_far_describe(&header, f, to, phase, args, exo_comm_shard_bytes(args, p.length));
        st = exo_far_send(f, to, &header, encoder_of(f, args),
                          (const char *)args->data + p.first * size, p.length, err);
    }
    return st;
}

/* Gets the elements of a message: in place, or decoded to `out`. */
static exo_status
read_data(exo_far *f, const exo_collective_args *args, const exo_far_message *m, void *out,
          size_t count, const void **data, exo_err *err)
{
    const exo_codec_place place = {0};
    exo_encoder *encoder = encoder_of(f, args);
    *data = (const char *)m->payload.data + sizeof(exo_far_header);
    if (!encoder || count == 0)
        return EXO_OK;
    exo_payload bytes = {0};
    exo_status st = exo_payload_stable(&bytes, &m->payload);
    *data = out;
    st = st == EXO_OK ? exo_codec_decode(encoder->codec, &place,
                                         (const char *)bytes.data + sizeof(exo_far_header),
                                         m->header.bytes, out, count, err)
                      : exo_fail(err, st, "no memory to decode a message");
    exo_payload_release(&bytes);
    return st;
}

/* Sums this member's shard over all members, in rank order. */
static exo_status
reduce_shard(exo_far *f, const exo_collective_args *args, exo_time deadline, exo_err *err)
{
    uint64_t sum[EXO_REDUCE_BLOCK]; /* room for the largest type */
    uint32_t size = args->size;
    size_t bytes = exo_dtype_size(args->dtype);
    struct part p = shard(args, args->place);
    exo_far_message **from = exo_calloc(size, sizeof *from);
    void **data = exo_calloc(size, sizeof *data);
    exo_encoder *encoder = encoder_of(f, args);
    exo_status st = from && data ? EXO_OK : exo_fail(err, EXO_NOMEM, "no memory for a reduction");
    for (uint32_t r = 0; st == EXO_OK && r < size; r++) {
        const void *part = (char *)args->data + p.first * bytes;
        if (r != args->place &&
            (from[r] = exo_far_await(f, EXO_FAR_REDUCE, r, args,
                                     exo_comm_shard_bytes(args, p.length), deadline, &st, err)))
            st = read_data(f, args, from[r], encoder ? encoder->floats + r * p.length : NULL,
                           p.length, &part, err);
        data[r] = (void *)part;
    }
    for (size_t at = 0; st == EXO_OK && at < p.length; at += EXO_REDUCE_BLOCK) {
        size_t count = p.length - at < EXO_REDUCE_BLOCK ? p.length - at : EXO_REDUCE_BLOCK;
        exo_reduce_block(sum, data, size, at, count, args->dtype, args->reduce);
        memcpy((char *)args->data + (p.first + at) * bytes, sum, count * bytes);
    }
    for (uint32_t r = 0; from && r < size; r++)
        if (from[r])
            exo_far_message_free(from[r]);
    exo_free(from);
    exo_free(data);
    return st;
}

/* Receives the shard or the block of the member at a place, or all of its data. */
static exo_status
receive_from(exo_far *f, uint32_t phase, const exo_collective_args *args, uint32_t place,
             exo_time deadline, exo_err *err)
{
    struct part p = shard(args, place);
    char *own = (char *)args->data + p.first * exo_dtype_size(args->dtype);
    const void *data = NULL;
    exo_status st = EXO_OK;
    exo_far_message *m = exo_far_await(f, phase, place, args, exo_comm_shard_bytes(args, p.length),
                                       deadline, &st, err);
    if (!m)
        return st;
    st = read_data(f, args, m, own, p.length, &data, err);
    if (st == EXO_OK && p.length && data != own)
        memcpy(own, data, p.length * exo_dtype_size(args->dtype));
    exo_far_message_free(m);
    return st;
}

/* Receives the shards of the others, in a gathering, or their blocks. */
static exo_status
receive_shards(exo_far *f, uint32_t phase, const exo_collective_args *args, exo_time deadline,
               exo_err *err)
{
    struct part p = shard(args, args->place);
    exo_status st = EXO_OK;
    for (uint32_t r = 0; st == EXO_OK && r < args->size; r++) {
        if (r != args->place) {
            st = receive_from(f, phase, args, r, deadline, err);
        } else if (encoder_of(f, args) && p.length && phase == EXO_FAR_GATHER) {
            float *own = (float *)args->data + p.first;
            st = exo_encoder_round_trip(&f->encoder, own, own, p.length, err);
        }
    }
    return st;
}

/* The root sends all data, and waits until each member confirms it, so that it never runs ahead. */
static exo_status
broadcast(exo_far *f, const exo_collective_args *args, exo_time deadline, exo_err *err)
{
    exo_status st = EXO_OK;
    exo_far_header header;
    size_t bytes = args->count * exo_dtype_size(args->dtype);
    if (args->place == args->root) {
        for (uint32_t r = 0; st == EXO_OK && r < args->size; r++) {
            if (r == args->root)
                continue;
            exo_far_describe(&header, f, exo_far_rank_at(args, r), EXO_FAR_GATHER, args, bytes);
            st = exo_far_send(f, exo_far_rank_at(args, r), &header, NULL, args->data, args->count,
                              err);
        }
        for (uint32_t r = 0; st == EXO_OK && r < args->size; r++) {
            exo_far_message *m = NULL;
            if (r != args->root &&
                (m = exo_far_await(f, EXO_FAR_REDUCE, r, args, 0, deadline, &st, err)))
                exo_far_message_free(m);
        }
        return st;
    }
    exo_far_message *m =
        exo_far_await(f, EXO_FAR_GATHER, args->root, args, bytes, deadline, &st, err);
    if (!m)
        return st;
    if (bytes)
        memcpy(args->data, (char *)m->payload.data + sizeof(exo_far_header), bytes);
    exo_far_message_free(m);
    exo_far_describe(&header, f, exo_far_rank_at(args, args->root), EXO_FAR_REDUCE, args, 0);
    return exo_far_send(f, exo_far_rank_at(args, args->root), &header, NULL, NULL, 0, err);
}

/* Sends all data to the member's target, and gets that of its source. */
static exo_status
shift(exo_far *f, const exo_collective_args *args, exo_time deadline, exo_err *err)
{
    size_t bytes = exo_comm_shard_bytes(args, args->count);
    uint32_t to = exo_far_rank_at(args, exo_shift_target(args, args->place));
    exo_far_header header;
    if (args->root == 0)
        return EXO_OK;
    exo_far_describe(&header, f, to, EXO_FAR_REDUCE, args, bytes);
    exo_status st = exo_far_send(f, to, &header, encoder_of(f, args), args->data, args->count, err);
    return st == EXO_OK ? receive_from(f, EXO_FAR_REDUCE, args, exo_shift_source(args, args->place),
                                       deadline, err)
                        : st;
}

static exo_status
exchange(exo_far *f, const exo_collective_args *args, exo_time deadline, exo_err *err)
{
    if (args->way != EXO_WAY_DIRECT)
        return exo_far_move(f, args, deadline, err);
    if (args->operation == EXO_BROADCAST)
        return broadcast(f, args, deadline, err);
    if (args->operation == EXO_SHIFT)
        return shift(f, args, deadline, err);
    bool reduces = args->operation == EXO_ALL_REDUCE || args->operation == EXO_REDUCE_SCATTER;
    if (args->operation == EXO_ALL_TO_ALL || args->operation == EXO_SWAP) {
        exo_status sent = send_shards(f, EXO_FAR_REDUCE, args, err);
        return sent == EXO_OK ? receive_shards(f, EXO_FAR_REDUCE, args, deadline, err) : sent;
    }
    exo_status st = reduces ? send_shards(f, EXO_FAR_REDUCE, args, err) : EXO_OK;
    if (st == EXO_OK && reduces)
        st = reduce_shard(f, args, deadline, err);
    if (st != EXO_OK || args->operation == EXO_REDUCE_SCATTER)
        return st;
    /* a barrier sends empty messages */
    st = send_shards(f, EXO_FAR_GATHER, args, err);
    return st == EXO_OK ? receive_shards(f, EXO_FAR_GATHER, args, deadline, err) : st;
}

/* A hash of the ranks, FNV-1a (http://www.isthe.com/chongo/tech/comp/fnv/); 0: all members. */
static uint32_t
members_of(const exo_collective_args *args)
{
    uint32_t hash = 2166136261u;
    for (uint32_t m = 0; args->ranks && m < args->size; m++)
        for (int byte = 0; byte < 4; byte++)
            hash = (hash ^ ((args->ranks[m] >> (8 * byte)) & 255)) * 16777619u;
    return !args->ranks ? 0 : hash ? hash : 1;
}

/* Checks whether the call can begin. A failure goes to f->broken, so that later calls fail, too. */
static exo_status
check_locked(exo_far *f)
{
    if (f->broken.code == EXO_OK && !f->members && f->opts.size > 1)
        exo_fail(&f->broken, EXO_CLOSED, "the communicator is not connected");
    return f->broken.code;
}

exo_status
exo_far_run(exo_far *f, const exo_collective_args *args, exo_time since, exo_time deadline,
            exo_err *err)
{
    exo_err reason; /* not cleared whole: that takes a part of a small call's time */
    reason.code = EXO_OK;
    reason.text[0] = '\0';
    pthread_mutex_lock(&f->lock);
    exo_status st = check_locked(f);
    if (st != EXO_OK)
        reason = f->broken;
    f->inside = st == EXO_OK;
    f->made++;
    f->operation = args->operation;
    f->since = since;
    pthread_mutex_unlock(&f->lock);
    if (st == EXO_OK) {
        exo_compute_pause();
        f->among = members_of(args);
        f->deadline = deadline;
        bool done = false;
        st = exo_encoder_use_for(&f->encoder, args, &reason);
        if (st == EXO_OK)
            st = exo_near_run(f, args, deadline, &done, &reason);
        if (st == EXO_OK && !done)
            st = exchange(f, args, deadline, &reason);
        exo_compute_resume_after(st);
        for (uint32_t m = 0; m < args->size; m++)
            f->calls[exo_far_rank_at(args, m)]++;
        if (st != EXO_OK)
            exo_far_break(f, st, reason.text);
        pthread_mutex_lock(&f->lock);
        f->inside = false;
        pthread_mutex_unlock(&f->lock);
    }
    if (st != EXO_OK && err)
        *err = reason;
    return st;
}
