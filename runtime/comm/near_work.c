/* The operations of calls through shared memory: see near.h for the ways of a call. */
#include <string.h>
#include <unistd.h>

#include "comm/near_impl.h"
#include "comm/reduce.h"

struct range {
    size_t first, end; /* elements */
};

static size_t
least(size_t a, size_t b)
{
    return a < b ? a : b;
}

static size_t
most(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* The elements that the member at `place` reduces of an all_reduce of the elements of `all`, in
 * whole lines of the cache. */
static struct range
part_of(const exo_collective_args *args, struct range all, uint32_t place)
{
    size_t line = 64 / exo_dtype_size(args->dtype), count = all.end - all.first;
    size_t each = ((count + args->size - 1) / args->size + line - 1) / line * line;
    return (struct range){all.first + least(count, place * each),
                          all.first + least(count, (place + 1) * each)};
}

/* The elements of the shard of the member at `place` that are in `all`. */
static struct range
shard_in(const exo_collective_args *args, struct range all, uint32_t place)
{
    size_t first, length;
    exo_shard(args->count, args->size, place, &first, &length);
    struct range r = {most(first, all.first), least(first + length, all.end)};
    return r.first < r.end ? r : (struct range){all.first, all.first};
}

static void
copy(const exo_collective_args *args, struct range r, const void *from)
{
    size_t size = exo_dtype_size(args->dtype);
    if (r.first < r.end)
        memcpy((char *)args->data + r.first * size, from, (r.end - r.first) * size);
}

/* Operations that go over the boards, because each member overwrites what another has to read. */
static bool
exchanges_blocks(const exo_collective_args *args)
{
    return args->operation == EXO_ALL_TO_ALL || args->operation == EXO_SWAP ||
           args->operation == EXO_SHIFT;
}

/* The elements that windows are cut from; of an all_to_all those of a block: a window then has the
 * same elements of each block. */
static struct range
whole(const exo_collective_args *args)
{
    return (struct range){0, args->operation == EXO_ALL_TO_ALL ? args->count / args->size
                                                               : args->count};
}

/* --- Arrival ---------------------------------------------------------------------------------- */

static void
write_card(exo_near_call *c)
{
    const exo_collective_args *args = c->args;
    exo_near_card *card = &c->near->board->cards[c->turn];
    *card = (exo_near_card){.count = args->count,
                            .operation = (uint32_t)args->operation,
                            .dtype = (uint32_t)args->dtype,
                            .reduce = (uint32_t)args->reduce,
                            .root = args->root,
                            .members = c->near->far->among};
    if (c->bytes >= EXO_NEAR_DIRECT && !exchanges_blocks(args) &&
        sysconf(_SC_PAGESIZE) == EXO_NEAR_EDGE &&
        (uintptr_t)args->data % exo_dtype_size(args->dtype) == 0)
        exo_region_find(args->data, c->bytes, &card->place);
    c->exposed = card->place.nonce && args->operation == EXO_ALL_REDUCE;
}

/* Reads what the others say about their calls, and compares it. */
static exo_status
read_cards(exo_near_call *c)
{
    exo_far *f = c->near->far;
    const exo_collective_args *args = c->args;
    for (uint32_t m = 0; m < args->size; m++) {
        uint32_t rank = exo_far_rank_at(args, m);
        const exo_near_board *board =
            m == args->place ? c->near->board : c->near->peers[rank].board;
        exo_near_card *card = &c->near->cards[m];
        memcpy(card, &board->cards[exo_near_turn_of(c, m)], sizeof *card);
        if (card->operation == (uint32_t)args->operation && card->count == args->count &&
            card->dtype == (uint32_t)args->dtype && card->reduce == (uint32_t)args->reduce &&
            card->root == args->root && card->members == f->among)
            continue;
        const exo_far_header header = {
            .from = rank, .operation = card->operation, .count = card->count, .root = card->root};
        pthread_mutex_lock(&f->lock);
        exo_far_disagree_locked(f, args, &header);
        pthread_mutex_unlock(&f->lock);
        return EXO_INVAL;
    }
    return EXO_OK;
}

/* The first window of a call: says what this member calls, and learns it of the others. Before, its
 * data of the window has to be on the board. */
static exo_status
arrive(exo_near_call *c)
{
    write_card(c);
    exo_near_publish(c, EXO_NEAR_HERE);
    exo_status st = exo_near_await_all(c, EXO_NEAR_HERE);
    return st == EXO_OK ? read_cards(c) : st;
}

/* --- Over the boards -------------------------------------------------------------------------- */

/* Where the elements from `at` on of a window are on the boards of all members. */
static void
slots_at(const exo_near_call *c, size_t at, void **slots)
{
    for (uint32_t m = 0; m < c->args->size; m++)
        slots[m] = exo_near_slot(c->near, exo_far_rank_at(c->args, m), exo_near_turn_of(c, m)) +
                   at * exo_dtype_size(c->args->dtype);
}

/* Writes a window of each block to the board, one after the other. */
static void
stage_blocks(exo_near_call *c, struct range w)
{
    const exo_collective_args *args = c->args;
    size_t size = exo_dtype_size(args->dtype), bytes = (w.end - w.first) * size;
    char *slot = exo_near_slot(c->near, c->near->rank, c->turn);
    for (uint32_t m = 0; bytes > 0 && m < args->size; m++)
        memcpy(slot + m * bytes,
               (const char *)args->data + (m * (args->count / args->size) + w.first) * size, bytes);
}

/* Reads the window of this member's block of each other member. */
static void
take_blocks(const exo_near_call *c, struct range w)
{
    const exo_collective_args *args = c->args;
    void *slots[EXO_NEAR_MEMBERS];
    slots_at(c, args->place * (w.end - w.first), slots);
    for (uint32_t m = 0; m < args->size; m++) {
        size_t first = m * (args->count / args->size) + w.first;
        if (m != args->place)
            copy(args, (struct range){first, first + w.end - w.first}, slots[m]);
    }
}

/* Writes this member's data of a window to its board. */
static void
stage(exo_near_call *c, struct range w)
{
    const exo_collective_args *args = c->args;
    size_t size = exo_dtype_size(args->dtype);
    struct range r = w;
    if (args->operation == EXO_ALL_TO_ALL) {
        stage_blocks(c, w);
        return;
    }
    if (args->operation == EXO_ALL_GATHER)
        r = shard_in(args, w, args->place);
    if (r.first >= r.end || (args->operation == EXO_BROADCAST && args->place != args->root))
        return;
    memcpy(exo_near_slot(c->near, c->near->rank, c->turn) + (r.first - w.first) * size,
           (const char *)args->data + r.first * size, (r.end - r.first) * size);
}

/* Sums the elements from `at` on of the members' parts, in the order of the call's way. */
static void
sum_by_way(const exo_near_call *c, size_t at, size_t count, void *const *parts, void *const *out,
           uint32_t num_out)
{
    const exo_collective_args *args = c->args;
    size_t size = exo_dtype_size(args->dtype);
    void *data[EXO_NEAR_MEMBERS];
    for (size_t done = 0; done < count; done += EXO_REDUCE_BLOCK) {
        size_t block = least(count - done, EXO_REDUCE_BLOCK);
        for (uint32_t m = 0; m < args->size; m++) {
            data[m] = c->near->scratch + m * EXO_REDUCE_BLOCK * size;
            memcpy(data[m], (const char *)parts[m] + done * size, block * size);
        }
        exo_reduce_by_moves(args, at + done, block, data);
        void *sum = data[args->place];
        if (args->reduce == EXO_MEAN)
            exo_vec_divide(exo_host_array(EXO_F32, sum, block), (float)args->size);
        for (uint32_t i = 0; i < num_out; i++)
            memcpy((char *)out[i] + done * size, sum, block * size);
    }
}

/* Sums `count` elements, of which the first one has the index `at`, of all members' parts, and
 * writes them to each of `num_out` buffers. */
static void
sum(const exo_near_call *c, size_t at, size_t count, void *const *parts, void *const *out,
    uint32_t num_out)
{
    const exo_collective_args *args = c->args;
    if (exo_comm_ways_reorders(args))
        sum_by_way(c, at, count, parts, out, num_out);
    else
        exo_reduce_into(out, num_out, parts, args->size, count, args->dtype, args->reduce);
}

static void
sum_slots(const exo_near_call *c, struct range w, struct range r)
{
    void *slots[EXO_NEAR_MEMBERS], *out = (char *)c->args->data;
    if (r.first >= r.end)
        return;
    out = (char *)out + r.first * exo_dtype_size(c->args->dtype);
    slots_at(c, r.first - w.first, slots);
    sum(c, r.first, r.end - r.first, slots, &out, 1);
}

static void
copy_from_slot(const exo_near_call *c, struct range w, struct range r, uint32_t place)
{
    void *slots[EXO_NEAR_MEMBERS];
    slots_at(c, r.first - w.first, slots);
    if (place != c->args->place)
        copy(c->args, r, slots[place]);
}

/* A large window of an all_reduce: each member sums its part, on its own board, too. */
static exo_status
reduce_in_parts(exo_near_call *c, struct range w)
{
    struct range mine = part_of(c->args, w, c->args->place);
    size_t size = exo_dtype_size(c->args->dtype);
    sum_slots(c, w, mine);
    if (mine.first < mine.end)
        memcpy(exo_near_slot(c->near, c->near->rank, c->turn) + (mine.first - w.first) * size,
               (const char *)c->args->data + mine.first * size, (mine.end - mine.first) * size);
    exo_near_publish(c, EXO_NEAR_REDUCED);
    exo_status st = EXO_OK;
    for (uint32_t i = 1; st == EXO_OK && i < c->args->size; i++) {
        uint32_t place = (c->args->place + i) % c->args->size;
        st = exo_near_await(c, place, EXO_NEAR_REDUCED);
        if (st == EXO_OK)
            copy_from_slot(c, w, part_of(c->args, w, place), place);
    }
    return st;
}

/* Does a window whose data is on the boards of all members. */
static exo_status
do_window(exo_near_call *c, struct range w)
{
    const exo_collective_args *args = c->args;
    exo_status st = EXO_OK;
    switch (args->operation) {
    case EXO_ALL_REDUCE:
        if (c->bytes > EXO_NEAR_SMALL)
            st = reduce_in_parts(c, w);
        else
            sum_slots(c, w, w);
        break;
    case EXO_REDUCE_SCATTER:
        sum_slots(c, w, shard_in(args, w, args->place));
        break;
    case EXO_ALL_GATHER:
        for (uint32_t m = 0; m < args->size; m++)
            copy_from_slot(c, w, shard_in(args, w, m), m);
        break;
    case EXO_BROADCAST:
        copy_from_slot(c, w, w, args->root);
        break;
    case EXO_ALL_TO_ALL:
        take_blocks(c, w);
        break;
    case EXO_SWAP:
        copy_from_slot(c, w, w, 1 - args->place);
        break;
    case EXO_SHIFT:
        copy_from_slot(c, w, w, exo_shift_source(args, args->place));
        break;
    case EXO_BARRIER:
        break;
    }
    exo_near_publish(c, EXO_NEAR_DONE);
    return st;
}

/* The pieces of a call whose buffers are not all in regions. */
static exo_status
do_staged(exo_near_call *c)
{
    size_t piece = EXO_NEAR_PIECE / exo_dtype_size(c->args->dtype), end = whole(c->args).end;
    if (c->args->operation == EXO_ALL_TO_ALL)
        piece /= c->args->size;
    exo_status st = EXO_OK;
    for (size_t at = 0; st == EXO_OK && at < end; at += piece) {
        struct range w = {at, least(at + piece, end)};
        st = exo_near_open_window(c);
        if (st != EXO_OK)
            break;
        stage(c, w);
        exo_near_publish(c, EXO_NEAR_HERE);
        st = exo_near_await_all(c, EXO_NEAR_HERE);
        if (st == EXO_OK)
            st = do_window(c, w);
        exo_near_close_window(c);
    }
    return st;
}

/* --- In place --------------------------------------------------------------------------------- */

/* Writes the edges of the buffer to the board, because its first and last page may have other data,
 * too. */
static void
stage_edges(exo_near_call *c)
{
    char *slot = exo_near_slot(c->near, c->near->rank, c->turn);
    if (c->args->operation != EXO_ALL_REDUCE || c->bytes < EXO_NEAR_DIRECT)
        return;
    memcpy(slot, c->args->data, EXO_NEAR_EDGE);
    memcpy(slot + EXO_NEAR_EDGE, (const char *)c->args->data + c->bytes - EXO_NEAR_EDGE,
           EXO_NEAR_EDGE);
}

/* The elements that are in whole pages of every member's buffer. */
static struct range
whole_pages(const exo_near_call *c)
{
    size_t size = exo_dtype_size(c->args->dtype), page = EXO_NEAR_EDGE;
    struct range r = {0, c->args->count};
    for (uint32_t m = 0; m < c->args->size; m++) {
        size_t offset = c->near->cards[m].place.offset, end = offset + c->bytes;
        r.first = most(r.first, ((offset + page - 1) / page * page - offset) / size);
        r.end = least(r.end, (end / page * page - offset) / size);
    }
    return r;
}

static void
reduce_in_place(const exo_near_call *c, void *const *data)
{
    const exo_collective_args *args = c->args;
    size_t size = exo_dtype_size(args->dtype);
    struct range all = whole_pages(c), mine = part_of(args, all, args->place);
    void *parts[EXO_NEAR_MEMBERS], *slots[EXO_NEAR_MEMBERS];
    for (uint32_t m = 0; m < args->size; m++)
        parts[m] = (char *)data[m] + mine.first * size;
    if (mine.first < mine.end)
        sum(c, mine.first, mine.end - mine.first, parts, parts, args->size);
    slots_at(c, 0, slots);
    void *out = args->data;
    if (all.first > 0)
        sum(c, 0, all.first, slots, &out, 1);
    size_t left = args->count - all.end;
    out = (char *)args->data + all.end * size;
    for (uint32_t m = 0; m < args->size; m++)
        slots[m] = (char *)slots[m] + 2 * EXO_NEAR_EDGE - left * size;
    if (left > 0)
        sum(c, all.end, left, slots, &out, 1);
}

/* Operations that write to their own buffer only. */
static void
read_others(const exo_near_call *c, void *const *data)
{
    const exo_collective_args *args = c->args;
    size_t size = exo_dtype_size(args->dtype);
    const struct range all = {0, args->count};
    struct range mine = shard_in(args, all, args->place);
    void *parts[EXO_NEAR_MEMBERS];
    if (args->operation == EXO_BROADCAST && args->place != args->root)
        copy(args, all, data[args->root]);
    for (uint32_t m = 0; m < args->size; m++) {
        parts[m] = (char *)data[m] + mine.first * size;
        struct range shard = shard_in(args, all, m);
        if (args->operation == EXO_ALL_GATHER && m != args->place)
            copy(args, shard, (const char *)data[m] + shard.first * size);
    }
    if (args->operation == EXO_REDUCE_SCATTER && mine.first < mine.end)
        sum(c, mine.first, mine.end - mine.first, parts, &parts[args->place], 1);
}

static exo_status
do_direct(exo_near_call *c, const exo_near_buffers *buffers)
{
    void *data[EXO_NEAR_MEMBERS];
    for (uint32_t m = 0; m < c->args->size; m++)
        data[m] = m == c->args->place
                      ? c->args->data
                      : exo_segment_slot(&buffers->views[m], 0) + c->near->cards[m].place.offset;
    if (c->args->operation == EXO_ALL_REDUCE)
        reduce_in_place(c, data);
    else
        read_others(c, data);
    exo_near_publish(c, EXO_NEAR_DONE);
    exo_status st = exo_near_await_all(c, EXO_NEAR_DONE);
    /* the owner of a buffer that this member has read may have gone on after a failure */
    return st == EXO_OK ? exo_near_check(c) : st;
}

/* --- Calls ------------------------------------------------------------------------------------ */

/* A call of more bytes than a small one: begins with a window of its own, in which the members
 * learn whether all buffers are in regions. */
static exo_status
do_large(exo_near_call *c)
{
    exo_near_buffers *buffers = NULL;
    stage_edges(c);
    exo_status st = arrive(c);
    bool direct = st == EXO_OK;
    for (uint32_t m = 0; direct && m < c->args->size; m++)
        direct = c->near->cards[m].place.nonce != 0;
    if (direct)
        st = exo_near_map_buffers(c, &buffers);
    if (st == EXO_OK && buffers)
        st = do_direct(c, buffers);
    else if (st == EXO_OK)
        exo_near_publish(c, EXO_NEAR_DONE);
    if (st != EXO_OK)
        return st;
    exo_near_close_window(c);
    c->exposed = false;
    return buffers ? EXO_OK : do_staged(c);
}

exo_status
exo_near_do(exo_near_call *c)
{
    const struct range all = whole(c->args);
    exo_status st = exo_near_open_window(c);
    if (st != EXO_OK)
        return st;
    if (c->bytes > EXO_NEAR_SMALL)
        return do_large(c);
    stage(c, all);
    st = arrive(c);
    if (st == EXO_OK)
        st = do_window(c, all);
    if (st == EXO_OK)
        exo_near_close_window(c);
    return st;
}
