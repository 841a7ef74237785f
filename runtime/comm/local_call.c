/* Calls among threads: see local_call.h. One thread sums an element of a block over all members, in
 * the order of their ranks, so the bits do not depend on the thread. On an edge with a codec a
 * block is a shard, and the thread encodes and decodes each member's part as its transmission
 * would. */
#include "comm/local_call.h"

#include <string.h>

#include <exogym/memory.h>

#include "comm/reduce.h"
#include "comm/timing.h"

enum {
    BLOCK = EXO_REDUCE_BLOCK, /* elements that a thread reduces at a time */
    SHORTEST = 512,           /* of a small all_reduce */
    LONGEST = 64 * BLOCK,     /* of a large one */
    PARTS = 4                 /* blocks of each member of a large one, at least */
};

/* --- Records ---------------------------------------------------------------------------------- */

exo_local_call *
exo_local_call_new(uint32_t room, bool links)
{
    exo_local_call *c = exo_calloc(1, sizeof *c);
    if (!c)
        return NULL;
    c->room = room;
    c->ranks = exo_calloc(room, sizeof *c->ranks);
    c->data = exo_calloc(room, sizeof *c->data);
    c->here = exo_calloc(room, sizeof *c->here);
    c->next_blocks = exo_calloc(room, sizeof *c->next_blocks);
    bool memory = c->ranks && c->data && c->here && c->next_blocks;
    if (links) {
        c->begins = exo_calloc(room, sizeof *c->begins);
        c->ends = exo_calloc(room, sizeof *c->ends);
        c->hosts = exo_calloc(room, sizeof *c->hosts);
        memory = memory && c->begins && c->ends && c->hosts;
    }
    if (memory)
        return c;
    exo_local_call_free(c);
    return NULL;
}

void
exo_local_call_free(exo_local_call *c)
{
    if (!c)
        return;
    exo_free(c->ranks);
    exo_free(c->data);
    exo_free(c->here);
    exo_free(c->next_blocks);
    exo_free(c->begins);
    exo_free(c->ends);
    exo_free(c->hosts);
    exo_free(c);
}

/* Elements of a block. A small all_reduce has a block for each member. A large one has longer
 * blocks, but each member has several, so that one that comes late leaves work to others. */
static size_t
block_of(const exo_collective_args *args)
{
    size_t each = (args->count + args->size - 1) / args->size, most = each / PARTS;
    if (args->operation != EXO_ALL_REDUCE)
        return BLOCK;
    if (most >= BLOCK)
        return most > LONGEST ? LONGEST : most / BLOCK * BLOCK;
    each = (each + SHORTEST - 1) / SHORTEST * SHORTEST;
    return each > BLOCK ? BLOCK : each < SHORTEST ? SHORTEST : each;
}

/* The first block of the part of the member at `place`; of the part after the last: the number of
 * blocks. */
static size_t
first_block(const exo_local_call *c, uint32_t place)
{
    size_t each = c->blocks / c->args.size, more = c->blocks % c->args.size;
    return place * each + (place < more ? place : more);
}

void
exo_local_call_begin(exo_local_call *c, const exo_collective_args *args, const uint32_t *hosts)
{
    c->args = *args;
    if (args->ranks) {
        memcpy(c->ranks, args->ranks, args->size * sizeof *c->ranks);
        c->args.ranks = c->ranks;
    }
    for (uint32_t m = 0; c->hosts && m < args->size; m++)
        c->hosts[m] = hosts[exo_local_call_rank(c, m)];
    c->first = args->place;
    c->arrived = c->inside = 0;
    c->since = INT64_MAX;
    c->committed = false;
    c->block = block_of(args);
    c->blocks = args->rehearsal ? 0
                : args->codec   ? args->size
                                : (args->count + c->block - 1) / c->block;
    for (uint32_t m = 0; m < args->size; m++)
        atomic_store(&c->next_blocks[m], first_block(c, m));
    atomic_store(&c->done, 0);
    atomic_store(&c->asleep, 0);
    atomic_store(&c->failed, 0);
    memset(c->here, 0, args->size * sizeof *c->here);
}

bool
exo_local_call_is_among(const exo_local_call *c, const exo_collective_args *args)
{
    if (c->args.size != args->size || (c->args.ranks == NULL) != (args->ranks == NULL))
        return false;
    return !args->ranks || memcmp(c->ranks, args->ranks, args->size * sizeof *c->ranks) == 0;
}

uint32_t
exo_local_call_rank(const exo_local_call *c, uint32_t place)
{
    return c->args.ranks ? c->ranks[place] : place;
}

bool
exo_local_call_has(const exo_local_call *c, uint32_t rank)
{
    for (uint32_t m = 0; c->args.ranks && m < c->args.size; m++)
        if (c->ranks[m] == rank)
            return true;
    return !c->args.ranks;
}

/* --- The work --------------------------------------------------------------------------------- */

/* The member whose shard has element `at`; *count becomes the number of elements up to the shard's
 * end, at most its former value. */
static uint32_t
owner_of(const exo_local_call *c, size_t at, size_t *count)
{
    size_t total = c->args.count, size = c->args.size, each = total / size, longer = total % size,
           first, length;
    size_t place = at < longer * (each + 1)
                       ? at / (each + 1)
                       : longer + (at - longer * (each + 1)) / (each ? each : 1);
    exo_shard(total, c->args.size, (uint32_t)place, &first, &length);
    if (first + length - at < *count)
        *count = first + length - at;
    return (uint32_t)place;
}

static void
reduce_range(const exo_local_call *c, size_t at, size_t count)
{
    uint64_t room[BLOCK]; /* room for the largest type */
    char *sum = (char *)room;
    size_t size = exo_dtype_size(c->args.dtype);
    if (c->args.operation == EXO_ALL_REDUCE) {
        void *parts[c->args.size];
        for (uint32_t r = 0; r < c->args.size; r++)
            parts[r] = (char *)c->data[r] + at * size;
        exo_reduce_into(parts, c->args.size, parts, c->args.size, count, c->args.dtype,
                        c->args.reduce);
        return;
    }
    exo_reduce_block(sum, c->data, c->args.size, at, count, c->args.dtype, c->args.reduce);
    for (size_t done = 0; done < count;) {
        size_t part = count - done;
        uint32_t owner = owner_of(c, at + done, &part);
        memcpy((char *)c->data[owner] + (at + done) * size, sum + done * size, part * size);
        done += part;
    }
}

/* Members may have one buffer in common (commons.h). */
static void
copy_range(const exo_local_call *c, uint32_t from, size_t at, size_t count)
{
    size_t size = exo_dtype_size(c->args.dtype);
    const char *source = (const char *)c->data[from] + at * size;
    for (uint32_t r = 0; r < c->args.size; r++)
        if (c->data[r] != c->data[from])
            memcpy((char *)c->data[r] + at * size, source, count * size);
}

/* Exchanges the elements [at, at + count) of the data of two members with as many from `other` on of
 * the other one's. */
static void
swap_range(const exo_local_call *c, uint32_t a, size_t at, uint32_t b, size_t other, size_t count)
{
    uint64_t room[BLOCK]; /* room for the largest type */
    size_t size = exo_dtype_size(c->args.dtype), bytes = count * size;
    char *left = (char *)c->data[a] + at * size, *right = (char *)c->data[b] + other * size;
    memcpy(room, left, bytes);
    memcpy(left, right, bytes);
    memcpy(right, room, bytes);
}

/* Exchanges the elements [at, at + count) of an all_to_all between each member and all with lower
 * places. They are in the block of one member. */
static void
swap_blocks(const exo_local_call *c, uint32_t owner, size_t at, size_t count)
{
    size_t length = c->args.count / c->args.size, within = at - owner * length;
    for (uint32_t m = 0; m < owner; m++)
        swap_range(c, m, at, owner, m * length + within, count);
}

/* Gives each member of a shift the elements [at, at + count) of its source, encoded and decoded if there
 * is an encoder. The members form cycles, which begin with the first members; what a cycle overwrites
 * first is kept in `room`, (count), for its last member. */
static exo_status
shift_range(const exo_local_call *c, size_t at, size_t count, void *room, exo_encoder *encoder)
{
    size_t size = exo_dtype_size(c->args.dtype), bytes = count * size;
    exo_status st = EXO_OK;
    if (c->args.root == 0 || count == 0)
        return EXO_OK;
    for (uint32_t first = 0, moved = 0; moved < c->args.size; first++) {
        uint32_t to = first, from;
        memcpy(room, (const char *)c->data[first] + at * size, bytes);
        do {
            from = exo_shift_source(&c->args, to);
            void *out = (char *)c->data[to] + at * size;
            const void *in = from == first ? room : (const char *)c->data[from] + at * size;
            if (encoder && st == EXO_OK)
                st = exo_encoder_round_trip(encoder, in, out, count, NULL);
            else if (!encoder)
                memcpy(out, in, bytes);
            to = from;
            moved++;
        } while (from != first);
    }
    return st;
}

/* Reduces elements in the order in which the moves of the call's way add them up. */
static void
reduce_by_moves(const exo_local_call *c, size_t at, size_t count)
{
    void *data[EXO_WAYS_MEMBERS];
    for (uint32_t m = 0; m < c->args.size; m++)
        data[m] = (char *)c->data[m] + at * exo_dtype_size(c->args.dtype);
    exo_reduce_by_moves(&c->args, at, count, data);
    for (uint32_t m = 0; c->args.reduce == EXO_MEAN && m < c->args.size; m++)
        exo_vec_divide(exo_host_array(EXO_F32, data[m], count), (float)c->args.size);
}

static void
do_block(const exo_local_call *c, size_t block)
{
    size_t at = block * c->block;
    size_t count = c->args.count - at < c->block ? c->args.count - at : c->block;
    uint64_t room[BLOCK]; /* room for the largest type */
    switch (c->args.operation) {
    case EXO_ALL_REDUCE:
    case EXO_REDUCE_SCATTER:
        if (exo_comm_ways_reorders(&c->args))
            reduce_by_moves(c, at, count);
        else
            reduce_range(c, at, count);
        break;
    case EXO_BROADCAST:
        copy_range(c, c->args.root, at, count);
        break;
    case EXO_ALL_GATHER:
    case EXO_ALL_TO_ALL:
        for (size_t done = 0; done < count;) {
            size_t part = count - done;
            uint32_t owner = owner_of(c, at + done, &part);
            if (c->args.operation == EXO_ALL_GATHER)
                copy_range(c, owner, at + done, part);
            else
                swap_blocks(c, owner, at + done, part);
            done += part;
        }
        break;
    case EXO_SWAP:
        swap_range(c, 0, at, 1, at, count);
        break;
    case EXO_SHIFT:
        shift_range(c, at, count, room, NULL);
        break;
    case EXO_BARRIER:
        break;
    }
}

/* Exchanges what members j and m < j have for each other, as they decode it. */
static exo_status
swap_encoded(const exo_local_call *c, uint32_t j, uint32_t m, exo_encoder *encoder)
{
    size_t first, other, length;
    exo_comm_part(&c->args, m, &other, &length);
    exo_comm_part(&c->args, j, &first, &length);
    float *left = (float *)c->data[m] + first, *right = (float *)c->data[j] + other;
    if (length == 0)
        return EXO_OK;
    memcpy(encoder->floats, left, length * sizeof *left);
    exo_status st = exo_encoder_round_trip(encoder, right, left, length, NULL);
    return st == EXO_OK ? exo_encoder_round_trip(encoder, encoder->floats, right, length, NULL)
                        : st;
}

/* Does shard `j` of a call on an edge with a codec: each member's part as member j would decode it,
 * their sum, and the sum as the other members would decode it. */
static exo_status
do_shard(const exo_local_call *c, uint32_t j, exo_encoder *encoder)
{
    size_t first, length;
    exo_shard(c->args.count, c->args.size, j, &first, &length);
    float *sum = encoder->floats + c->args.size * length;
    exo_status st = EXO_OK;
    if (c->args.operation == EXO_ALL_TO_ALL || c->args.operation == EXO_SWAP) {
        for (uint32_t m = 0; st == EXO_OK && m < j; m++)
            st = swap_encoded(c, j, m, encoder);
        return st;
    }
    if (c->args.operation == EXO_SHIFT) /* all in one go: its parts are whole */
        return j == 0 ? shift_range(c, 0, c->args.count, encoder->floats, encoder) : EXO_OK;
    if (length == 0)
        return EXO_OK;
    if (c->args.operation == EXO_ALL_GATHER) {
        memcpy(sum, (const float *)c->data[j] + first, length * sizeof *sum);
    } else {
        void *parts[c->args.size];
        for (uint32_t r = 0; st == EXO_OK && r < c->args.size; r++) {
            float *part = encoder->floats + r * length;
            const float *own = (const float *)c->data[r] + first;
            parts[r] = part;
            if (r == j)
                memcpy(part, own, length * sizeof *part);
            else
                st = exo_encoder_round_trip(encoder, own, part, length, NULL);
        }
        for (size_t at = 0; st == EXO_OK && at < length; at += BLOCK) {
            size_t count = length - at < BLOCK ? length - at : BLOCK;
            exo_reduce_block(sum + at, parts, c->args.size, at, count, EXO_F32, c->args.reduce);
        }
    }
    if (st == EXO_OK && c->args.operation != EXO_REDUCE_SCATTER)
        st = exo_encoder_round_trip(encoder, sum, sum, length, NULL);
    for (uint32_t r = 0; st == EXO_OK && r < c->args.size; r++)
        if (r == j || c->args.operation != EXO_REDUCE_SCATTER)
            memcpy((float *)c->data[r] + first, sum, length * sizeof *sum);
    return st;
}

/* Does a block. True: it was the last one of the call to be completed. */
static bool
finish_block(exo_local_call *c, size_t block, exo_encoder *encoder)
{
    exo_status st = EXO_OK;
    if (encoder)
        st = do_shard(c, (uint32_t)block, encoder);
    else
        do_block(c, block);
    if (st != EXO_OK)
        atomic_store(&c->failed, (int)st);
    return atomic_fetch_add(&c->done, 1) + 1 == c->blocks;
}

bool
exo_local_call_help(exo_local_call *c, uint32_t place, exo_encoder *encoder)
{
    bool last = false;
    for (uint32_t i = 0; i < c->args.size; i++) {
        uint32_t m = (place + i) % c->args.size;
        size_t end = first_block(c, m + 1), block;
        while ((block = atomic_fetch_add(&c->next_blocks[m], 1)) < end)
            last = finish_block(c, block, encoder) || last;
    }
    return last;
}
