/* Communicators and groups. This file checks the arguments and counts the bytes; an engine moves
 * the data (exogym/engine.h, local.c, far.c). A group belongs to one thread at a time, except for
 * its figures, which `lock` guards. A communicator is safe from any thread. */
#include <exogym/comm.h>

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include <exogym/memory.h>

#include "base/pace.h"
#include "base/parallel.h"
#include "comm/commons.h"
#include "comm/counted.h"
#include "comm/group.h"
#include "comm/reduce.h"
#include "comm/seats.h"
#include "comm/server.h"

#define DEFAULT_TIMEOUT (60 * EXO_SECOND)

struct exo_request {
    exo_engine_request engine;
    exo_group *group;
    exo_request *next; /* next request in progress, or next unused one */
    exo_array data;
    void *copy;       /* of data on a device that the engine cannot access; NULL: none */
    uint32_t pair[2]; /* of a swap: the ranks of its members */
    uint64_t number;  /* exo_comm_seats_begin */
};

exo_comm *
exo_comm_hold(exo_comm *comm)
{
    comm->references++;
    return comm;
}

void
exo_comm_drop(exo_comm **comm)
{
    exo_comm *c = *comm;
    *comm = NULL;
    if (!c || --c->references > 0)
        return;
    exo_server_close(c->server);
    exo_server_estate_release(&c->estate);
    c->engine->close(c->state);
    exo_comm_drop(&c->post);
    exo_comm_ways_free(&c->ways);
    exo_comm_seats_free(&c->seats);
    exo_commons_pool_drop(&c->commons);
    exo_free((char *)c->codec);
    exo_free(c);
}

exo_status
exo_comm_open(exo_comm **out, const exo_engine_class *engine, const exo_engine_opts *opts,
              exo_err *err)
{
    /* a caller of an earlier version has no `post` behind these */
    const exo_engine_opts local = {.size = opts->size, .clock = opts->clock, .key = opts->key};
    return exo_comm_open_with(out, engine, &local, err);
}

/* Whether all members of a group are in this process. Of an engine without small messages, but for
 * several processes, nobody knows. */
static bool
are_all_here(const exo_engine_class *engine, const exo_engine_opts *opts)
{
    const unsigned beyond = EXO_ENGINE_PROCESSES | EXO_ENGINE_HOSTS;
    return !(engine->promises & beyond) || (engine->promises & EXO_ENGINE_POST && !opts->post);
}

exo_status
exo_comm_open_with(exo_comm **out, const exo_engine_class *engine, const exo_engine_opts *opts,
                   exo_err *err)
{
    *out = NULL;
    if (!engine->open)
        return exo_fail(err, EXO_UNSUPPORTED,
                        "engine %s: its communicators are made inside the library only",
                        engine->name);
    if (opts->size < 1 || opts->size > UINT16_MAX + 1 || !opts->clock)
        return exo_fail(err, EXO_INVAL, "a communicator has a clock and 1 to 65536 members, not %u",
                        opts->size);
    exo_comm *c = exo_calloc(1, sizeof *c);
    if (!c)
        return exo_fail(err, EXO_NOMEM, "no memory for a communicator");
    *c = (exo_comm){.references = 1, .size = opts->size, .clock = opts->clock, .engine = engine};
    exo_status st = exo_comm_seats_new(&c->seats, opts->size, are_all_here(engine, opts), err);
    if (st == EXO_OK)
        st = engine->open(&c->state, opts, err);
    if (st != EXO_OK) {
        exo_comm_seats_free(&c->seats);
        exo_free(c);
        return st;
    }
    *out = c;
    return EXO_OK;
}

/* Makes the group's codec. Each group has its own, because groups call from different threads. */
static exo_status
make_codec(exo_group *g, exo_err *err)
{
    exo_codec *codec = NULL;
    uint32_t codings = g->comm->codings;
    exo_status st = exo_comm_codec_new(&codec, g->comm->codec, err);
    if (st != EXO_OK)
        return st;
    exo_codec_free(&g->codec);
    g->codec = codec;
    g->codings = codings;
    g->comm->codecs_made += codec != NULL;
    return EXO_OK;
}

uint64_t
exo_comm_codecs_made(const exo_comm *comm)
{
    return comm->codecs_made;
}

exo_status
exo_group_open(exo_group **out, exo_comm *comm, uint32_t rank, const char *name, exo_err *err)
{
    if (rank >= comm->size)
        return exo_fail(err, EXO_INVAL, "rank %u is not in a communicator of %u", rank, comm->size);
    exo_group *g = exo_calloc(1, sizeof *g);
    if (!g)
        return exo_fail(err, EXO_NOMEM, "no memory for a group");
    exo_status st = comm->engine->join ? comm->engine->join(comm->state, rank, name, err) : EXO_OK;
    if (st != EXO_OK) {
        exo_free(g);
        return st;
    }
    *g = (exo_group){.comm = exo_comm_hold(comm),
                     .rank = rank,
                     .size = comm->size,
                     .place = rank,
                     .timeout = DEFAULT_TIMEOUT};
    pthread_mutex_init(&g->lock, NULL);
    st = make_codec(g, err);
    if (st != EXO_OK)
        exo_group_close(&g);
    *out = g;
    return st;
}

/* Finds this member's place among `ranks`, which must be ascending. */
static exo_status
find_place(const exo_group *parent, const uint32_t *ranks, uint32_t size, uint32_t *place,
           exo_err *err)
{
    bool found = false;
    if (size == 0)
        return exo_fail(err, EXO_INVAL, "a group needs at least one member");
    for (uint32_t i = 0; i < size; i++) {
        if (ranks[i] >= parent->size)
            return exo_fail(err, EXO_INVAL, "rank %u is not in a group of %u", ranks[i],
                            parent->size);
        if (i > 0 && ranks[i] <= ranks[i - 1])
            return exo_fail(err, EXO_INVAL, "the ranks of a group ascend: %u stands before %u",
                            ranks[i - 1], ranks[i]);
        if (ranks[i] == parent->place) {
            *place = i;
            found = true;
        }
    }
    return found ? EXO_OK
                 : exo_fail(err, EXO_INVAL, "rank %u is not in the group that it opens",
                            parent->place);
}

exo_status
exo_group_among(exo_group **out, exo_group *parent, const uint32_t *ranks, uint32_t size,
                exo_err *err)
{
    uint32_t place = 0;
    exo_status st = find_place(parent, ranks, size, &place, err);
    if (st != EXO_OK)
        return st;
    exo_group *g = exo_calloc(1, sizeof *g);
    /* a group of all members needs no ranks */
    uint32_t *own = size < parent->comm->size ? exo_calloc(size, sizeof *own) : NULL;
    if (!g || (!own && size < parent->comm->size)) {
        exo_free(g);
        return exo_fail(err, EXO_NOMEM, "no memory for a group");
    }
    for (uint32_t i = 0; own && i < size; i++)
        own[i] = parent->ranks ? parent->ranks[ranks[i]] : ranks[i];
    *g = (exo_group){.comm = exo_comm_hold(parent->comm),
                     .parent = parent,
                     .rank = parent->rank,
                     .size = size,
                     .place = place,
                     .ranks = own,
                     .timeout = parent->timeout};
    pthread_mutex_init(&g->lock, NULL);
    *out = g;
    return EXO_OK;
}

void
exo_group_close(exo_group **group)
{
    exo_group *g = *group;
    if (!g)
        return;
    while (g->begun) {
        exo_request *request = g->begun;
        exo_request_cancel(&request);
    }
    for (exo_request *r = g->unused, *next; r; r = next) {
        next = r->next;
        exo_free(r);
    }
    if (!g->parent && g->comm->engine->leave)
        g->comm->engine->leave(g->comm->state, g->rank);
    else if (!g->parent)
        g->comm->engine->fail(g->comm->state, g->rank, "it left");
    exo_free(g->ranks);
    exo_codec_free(&g->codec);
    exo_comm_drop(&g->comm);
    pthread_mutex_destroy(&g->lock);
    exo_free(g);
    *group = NULL;
}

void
exo_comm_fail(exo_comm *comm, uint32_t rank, const char *cause)
{
    char text[EXO_ERR_TEXT];
    if (rank >= comm->size)
        return;
    cause = cause && *cause ? cause : "unknown cause";
    comm->engine->fail(comm->state, rank, cause);
    exo_comm_seats_break(comm->seats);
    snprintf(text, sizeof text, "rank %u died: %s", rank, cause);
    if (comm->server)
        exo_server_break(comm->server, EXO_PEER_LOST, text);
}

uint32_t
exo_group_rank(const exo_group *group)
{
    return group->place;
}

uint32_t
exo_group_size(const exo_group *group)
{
    return group->size;
}

void
exo_group_set_timeout(exo_group *group, exo_time timeout)
{
    group->timeout = timeout;
}

exo_status
exo_group_set_device(exo_group *group, exo_device *device, exo_err *err)
{
    const exo_comm *c = group->comm;
    return c->engine->promises & EXO_ENGINE_STAGES && device && !exo_device_is_host(device)
               ? c->engine->stage(c->state, group->rank, device, err)
               : EXO_OK;
}

exo_comm_stats
exo_group_stats(const exo_group *group)
{
    pthread_mutex_lock((pthread_mutex_t *)&group->lock);
    const exo_comm_stats stats = {.calls = group->traffic.items,
                                  .bytes_sent = group->traffic.payload_bytes,
                                  .waited = group->waited};
    pthread_mutex_unlock((pthread_mutex_t *)&group->lock);
    return stats;
}

exo_traffic
exo_group_traffic(const exo_group *group)
{
    pthread_mutex_lock((pthread_mutex_t *)&group->lock);
    const exo_traffic traffic = group->traffic;
    pthread_mutex_unlock((pthread_mutex_t *)&group->lock);
    return traffic;
}

/* --- Extras of the library's engines ---------------------------------------------------------- */

exo_status
exo_comm_set_ways(exo_comm *comm, uint32_t size, const exo_comm_edge *edge, exo_err *err)
{
    exo_way way = EXO_WAY_DIRECT;
    exo_status st = edge ? exo_way_parse(edge->way, &way, err) : EXO_OK;
    if (st == EXO_OK && way != EXO_WAY_DIRECT)
        st = exo_comm_ways_new(&comm->ways, way, !edge->any_bits, size, edge->links, edge->hosts,
                               err);
    return st == EXO_OK && edge && edge->figures ? exo_comm_follow(comm, edge->figures, err) : st;
}

exo_status
exo_comm_follow(exo_comm *comm, const exo_link_figure *figures, exo_err *err)
{
    return comm->ways ? exo_comm_ways_measured(comm->ways, figures, err) : EXO_OK;
}

exo_status
exo_comm_recode(exo_comm *comm, const char *codec, exo_err *err)
{
    exo_codec *probe = NULL;
    char *copy = codec ? exo_strdup(codec) : NULL;
    exo_status st = codec && !copy ? exo_fail(err, EXO_NOMEM, "no memory for a codec") : EXO_OK;
    if (st == EXO_OK)
        st = exo_comm_codec_new(&probe, codec, err);
    if (st == EXO_OK && probe && !(comm->engine->promises & EXO_ENGINE_CODECS))
        st = exo_fail(err, EXO_UNSUPPORTED, "engine %s has no codecs", comm->engine->name);
    exo_codec_free(&probe);
    if (st != EXO_OK) {
        exo_free(copy);
        return st;
    }
    exo_free((char *)comm->codec);
    comm->codec = copy;
    comm->codings++;
    return EXO_OK;
}

void
exo_comm_warm(exo_comm *comm, uint32_t rank, size_t count)
{
    if (comm->extras)
        comm->extras->warm(comm->state, rank, count);
}

void
exo_comm_look_at(exo_comm *comm, uint32_t rank, exo_comm_look *look, uint32_t *missing,
                 uint64_t *counts)
{
    *look = (exo_comm_look){0};
    if (comm->extras)
        comm->extras->look(comm->state, rank, look, missing, counts);
    else if (comm->seats)
        exo_comm_seats_look(comm->seats, rank, look, missing, counts);
}

/* --- Calls ------------------------------------------------------------------------------------ */

/* Chooses the way of a call; the last choice holds for calls like it. */
static void
choose_way(exo_group *g, exo_collective_args *args)
{
    exo_collective_args *last = &g->chosen[args->operation];
    args->ways = g->comm->ways;
    if (!args->ways)
        return;
    if (last->ways != args->ways || last->count != args->count || last->dtype != args->dtype ||
        last->codec != args->codec || last->root != args->root) {
        *last = *args;
        last->way = exo_comm_ways_choose(args->ways, args);
    }
    args->way = last->way;
}

/* Checks whether the engine can do the call, and follows a change of the codec. */
static exo_status
prepare(exo_group *g, exo_collective_args *args, exo_err *err)
{
    exo_group *whole = exo_group_whole(g);
    const exo_engine_class *engine = g->comm->engine;
    bool reduces = args->operation == EXO_ALL_REDUCE || args->operation == EXO_REDUCE_SCATTER;
    args->rehearsal = args->rehearsal || g->comm->rehearses;
    if (reduces && !(engine->dtypes & 1u << args->dtype))
        return exo_fail(err, EXO_UNSUPPORTED, "engine %s does not reduce %s", engine->name,
                        exo_dtype_name(args->dtype));
    if ((g->ranks || args->ranks) && !(engine->promises & EXO_ENGINE_SOME))
        return exo_fail(err, EXO_UNSUPPORTED, "engine %s has no calls among some members",
                        engine->name);
    if (args->rehearsal && !(engine->promises & EXO_ENGINE_LINKS))
        return exo_fail(err, EXO_UNSUPPORTED, "engine %s has no rehearsals", engine->name);
    bool blocks = args->operation == EXO_ALL_TO_ALL || args->operation == EXO_SWAP;
    bool shifts = args->operation == EXO_SHIFT;
    if ((blocks && !(engine->promises & EXO_ENGINE_BLOCKS)) ||
        (shifts && !(engine->promises & EXO_ENGINE_SHIFT)))
        return exo_fail(err, EXO_UNSUPPORTED, "engine %s has no %s", engine->name,
                        exo_collective_name(args->operation));
    if (args->operation != EXO_SWAP) {
        args->size = g->size;
        args->place = g->place;
        args->ranks = g->ranks;
    }
    exo_status st = whole->codings == g->comm->codings ? EXO_OK : make_codec(whole, err);
    if (st == EXO_OK && args->dtype == EXO_F32 && args->operation != EXO_BROADCAST &&
        args->size > 1)
        args->codec = whole->codec;
    choose_way(g, args);
    return st;
}

/* Breaks the communicator, because the other members would wait in vain for a call that did not
 * begin. */
static exo_status
give_up(exo_group *g, exo_status st, const char *cause)
{
    exo_comm_fail(g->comm, g->rank, cause);
    return st;
}

static void
note(exo_group *g, const exo_engine_request *request, exo_status st)
{
    for (exo_group *each = g; each; each = each->parent) {
        pthread_mutex_lock(&each->lock);
        each->waited += request->waited;
        each->traffic.recv_blocked += request->waited;
        if (st == EXO_OK)
            exo_comm_count(&each->traffic, &request->args);
        pthread_mutex_unlock(&each->lock);
    }
}

static exo_status
engine_begin(exo_group *g, exo_engine_request *request, exo_err *err)
{
    const exo_comm *c = g->comm;
    return c->engine->advance
               ? exo_stepped_begin(&exo_group_whole(g)->stepped, c, g->rank, request, err)
               : c->engine->begin(c->state, g->rank, request, err);
}

static exo_status
engine_test(exo_group *g, exo_engine_request *request, bool *done, exo_err *err)
{
    const exo_comm *c = g->comm;
    return c->engine->advance
               ? exo_stepped_test(&exo_group_whole(g)->stepped, c, g->rank, request, done, err)
               : c->engine->test(c->state, g->rank, request, done, err);
}

static exo_status
engine_wait(exo_group *g, exo_engine_request *request, exo_err *err)
{
    const exo_comm *c = g->comm;
    return c->engine->advance
               ? exo_stepped_wait(&exo_group_whole(g)->stepped, c, g->rank, request, err)
               : c->engine->wait(c->state, g->rank, request, err);
}

static void
engine_cancel(exo_group *g, exo_engine_request *request)
{
    const exo_comm *c = g->comm;
    if (c->engine->advance)
        exo_stepped_cancel(&exo_group_whole(g)->stepped, c, g->rank, request);
    else
        c->engine->cancel(c->state, g->rank, request);
}

/* Waits for a request, whose number is that of exo_comm_seats_begin. The library's engines release the
 * compute slot and measure the wait themselves; for other engines this function does so. */
static exo_status
wait_for(exo_group *g, exo_engine_request *request, uint64_t number, exo_err *err)
{
    const exo_comm *c = g->comm;
    if (c->extras)
        return c->engine->wait(c->state, g->rank, request, err);
    exo_pace *pace = exo_pace_current();
    exo_time before = exo_now(c->clock);
    exo_pace_wait_begin(pace, "collective", EXO_SPAN_RECV_BLOCKED);
    exo_comm_seats_wait(c->seats, g->rank, number, request->args.operation, before);
    exo_compute_pause();
    exo_status st = engine_wait(g, request, err);
    exo_compute_resume_after(st);
    exo_comm_seats_wait(c->seats, g->rank, 0, request->args.operation, before);
    request->waited += exo_now(c->clock) - before;
    exo_pace_wait_end(pace);
    return st;
}

static exo_status
begin(exo_group *g, exo_engine_request *request, uint64_t *number, exo_err *err)
{
    exo_comm *c = g->comm;
    exo_status st = prepare(g, &request->args, err);
    if (st != EXO_OK)
        return give_up(g, st, "it cannot begin a collective");
    request->deadline = exo_deadline(c->clock, g->timeout);
    st = engine_begin(g, request, err);
    if (st == EXO_OK)
        *number = exo_comm_seats_begin(c->seats, g->rank, &request->args);
    else
        note(g, request, st);
    return st;
}

/* Finds the data of a call. Data on a device that the engine cannot access is copied to the host's
 * memory, and back after the call. */
static exo_status
find_data(const exo_group *g, exo_array data, exo_collective_args *args, void **copy, exo_err *err)
{
    args->count = data.count;
    args->dtype = data.dtype;
    args->data = data.data;
    *copy = NULL;
    if (!data.data && data.count > 0)
        return exo_fail(err, EXO_INVAL,
                        "a collective of %zu elements without memory: node->grads has none if the "
                        "strategy declares steps_alone, which a strategy that uses them must not",
                        data.count);
    if (!data.device || exo_device_is_host(data.device))
        return EXO_OK;
    if (g->comm->engine->promises & EXO_ENGINE_DEVICES) {
        args->device = data.device;
        return EXO_OK;
    }
    *copy = args->data = exo_alloc_aligned(data.count * exo_dtype_size(data.dtype));
    return *copy
               ? exo_array_read(data, *copy, err)
               : exo_fail(err, EXO_NOMEM, "no memory for a collective of %zu elements", data.count);
}

/* The same. After an error the other members are told the reason. */
static exo_status
place_data(exo_group *g, exo_array data, exo_collective_args *args, void **copy, exo_err *err)
{
    exo_err reason = {0};
    char cause[EXO_ERR_TEXT];
    exo_status st = find_data(g, data, args, copy, &reason);
    if (st == EXO_OK)
        return st;
    snprintf(cause, sizeof cause, "it cannot read its data: %.450s", reason.text);
    return give_up(g, exo_fail(err, st, "%s", reason.text), cause);
}

static exo_status
run(exo_group *g, exo_array data, exo_collective_args *args, exo_err *err)
{
    exo_engine_request request = {.args = *args};
    void *copy = NULL;
    uint64_t number = 0;
    request.args.waits = true;
    exo_status st = place_data(g, data, &request.args, &copy, err);
    if (st == EXO_OK && (st = begin(g, &request, &number, err)) == EXO_OK) {
        st = wait_for(g, &request, number, err);
        note(g, &request, st);
    }
    if (st == EXO_OK && copy)
        st = exo_array_write(data, copy, err);
    exo_free(copy);
    return st;
}

static exo_status
check_reduction(exo_dtype dtype, exo_reduce op, exo_err *err)
{
    if (dtype > EXO_F16 || !(EXO_REDUCE_DTYPES & 1u << dtype))
        return exo_fail(err, EXO_UNSUPPORTED,
                        "a reduction takes fp32, bf16, fp16, int32, int8 or int64, not %s",
                        exo_dtype_name(dtype));
    if (op == EXO_MEAN && !(EXO_MEAN_DTYPES & 1u << dtype))
        return exo_fail(err, EXO_UNSUPPORTED,
                        "a mean of integers is not an integer: reduce by sum");
    return EXO_OK;
}

static exo_status
check_root(const exo_group *g, uint32_t root, exo_err *err)
{
    return root < g->size
               ? EXO_OK
               : exo_fail(err, EXO_INVAL, "the root %u is not in a group of %u", root, g->size);
}

static exo_status
check_blocks(const exo_group *g, size_t count, exo_err *err)
{
    return count % g->size == 0
               ? EXO_OK
               : exo_fail(err, EXO_INVAL,
                          "all_to_all: %zu elements are not %u blocks of one length", count,
                          g->size);
}

/* Makes the two members of a swap the members of the call; `pair` is its memory. */
static exo_status
set_pair(const exo_group *g, uint32_t partner, exo_collective_args *args, uint32_t pair[2],
         exo_err *err)
{
    if (partner >= g->size || partner == g->place)
        return exo_fail(err, EXO_INVAL, "swap: rank %u cannot swap with %u in a group of %u",
                        g->place, partner, g->size);
    uint32_t other = g->ranks ? g->ranks[partner] : partner;
    args->place = g->rank > other;
    pair[args->place] = g->rank;
    pair[!args->place] = other;
    args->size = 2;
    args->ranks = g->comm->size > 2 ? pair : NULL;
    return EXO_OK;
}

exo_status
exo_all_reduce(exo_group *group, exo_array data, exo_reduce op, exo_err *err)
{
    exo_collective_args args = {.operation = EXO_ALL_REDUCE, .reduce = op};
    exo_status st = check_reduction(data.dtype, op, err);
    return st == EXO_OK ? run(group, data, &args, err) : st;
}

exo_status
exo_reduce_scatter(exo_group *group, exo_array data, exo_reduce op, exo_err *err)
{
    exo_collective_args args = {.operation = EXO_REDUCE_SCATTER, .reduce = op};
    exo_status st = check_reduction(data.dtype, op, err);
    return st == EXO_OK ? run(group, data, &args, err) : st;
}

exo_status
exo_all_gather(exo_group *group, exo_array data, exo_err *err)
{
    exo_collective_args args = {.operation = EXO_ALL_GATHER};
    return run(group, data, &args, err);
}

exo_status
exo_broadcast(exo_group *group, exo_array data, uint32_t root, exo_err *err)
{
    exo_collective_args args = {.operation = EXO_BROADCAST, .root = root};
    exo_status st = check_root(group, root, err);
    return st == EXO_OK ? run(group, data, &args, err) : st;
}

exo_status
exo_all_to_all(exo_group *group, exo_array data, exo_err *err)
{
    exo_collective_args args = {.operation = EXO_ALL_TO_ALL};
    exo_status st = check_blocks(group, data.count, err);
    return st == EXO_OK ? run(group, data, &args, err) : st;
}

exo_status
exo_swap(exo_group *group, exo_array data, uint32_t partner, exo_err *err)
{
    uint32_t pair[2];
    exo_collective_args args = {.operation = EXO_SWAP};
    exo_status st = set_pair(group, partner, &args, pair, err);
    return st == EXO_OK ? run(group, data, &args, err) : st;
}

exo_status
exo_shift(exo_group *group, exo_array data, uint32_t by, exo_err *err)
{
    exo_collective_args args = {.operation = EXO_SHIFT, .root = by % group->size};
    return run(group, data, &args, err);
}

exo_status
exo_barrier(exo_group *group, exo_err *err)
{
    exo_collective_args args = {.operation = EXO_BARRIER};
    return run(group, (exo_array){0}, &args, err);
}

exo_status
exo_group_suspend(exo_group *g, exo_err *err)
{
    const exo_engine_class *e = g->comm->engine;
    const exo_collective_args among = {
        .operation = EXO_BARRIER, .size = g->size, .place = g->place, .ranks = g->ranks};
    if (g->begun)
        return exo_fail(err, EXO_INVAL, "suspend: a request is under way: wait for it before");
    if (!(e->promises & EXO_ENGINE_SUSPEND) || g->size == 1)
        return EXO_OK;
    exo_compute_pause();
    exo_status st =
        e->suspend(g->comm->state, g->rank, &among, exo_deadline(g->comm->clock, g->timeout), err);
    exo_compute_resume_after(st);
    return st;
}

/* --- Requests --------------------------------------------------------------------------------- */

static exo_request *
take_request(exo_group *g)
{
    exo_request *r = g->unused;
    if (r)
        g->unused = r->next;
    else
        r = exo_calloc(1, sizeof *r);
    if (!r)
        return NULL;
    *r = (exo_request){.group = g, .next = g->begun};
    g->begun = r;
    return r;
}

static void
give_back(exo_request *r)
{
    exo_group *g = r->group;
    exo_request **at = &g->begun;
    while (*at != r)
        at = &(*at)->next;
    *at = r->next;
    exo_free(r->copy);
    r->next = g->unused;
    g->unused = r;
}

static exo_status
begin_request(exo_request **out, exo_group *g, exo_array data, const exo_collective_args *args,
              exo_err *err)
{
    *out = NULL;
    exo_request *r = take_request(g);
    if (!r)
        return give_up(g, exo_fail(err, EXO_NOMEM, "no memory for a request"),
                       "it has no memory for a request");
    r->engine.args = *args;
    if (args->ranks) { /* those of a swap */
        memcpy(r->pair, args->ranks, sizeof r->pair);
        r->engine.args.ranks = r->pair;
    }
    r->data = data;
    exo_status st = EXO_OK;
    if (!args->rehearsal)
        st = place_data(g, data, &r->engine.args, &r->copy, err);
    if (st == EXO_OK)
        st = begin(g, &r->engine, &r->number, err);
    if (st == EXO_OK)
        *out = r;
    else
        give_back(r);
    return st;
}

/* Ends a request whose status is `st`. */
static exo_status
end_request(exo_request **request, exo_status st, exo_err *err)
{
    exo_request *r = *request;
    *request = NULL;
    note(r->group, &r->engine, st);
    if (st == EXO_OK && r->copy)
        st = exo_array_write(r->data, r->copy, err);
    give_back(r);
    return st;
}

exo_status
exo_comm_begin_all_reduce(exo_request **out, exo_group *group, exo_array data, exo_reduce op,
                          exo_err *err)
{
    const exo_collective_args args = {.operation = EXO_ALL_REDUCE, .reduce = op};
    *out = NULL;
    exo_status st = check_reduction(data.dtype, op, err);
    return st == EXO_OK ? begin_request(out, group, data, &args, err) : st;
}

void
exo_comm_rehearse(exo_comm *comm)
{
    comm->rehearses = true;
}

exo_status
exo_comm_begin_rehearsal(exo_request **out, exo_group *group, size_t count, exo_dtype dtype,
                         exo_err *err)
{
    const exo_collective_args args = {.operation = EXO_ALL_REDUCE,
                                      .count = count,
                                      .dtype = dtype,
                                      .reduce = EXO_SUM,
                                      .rehearsal = true};
    return begin_request(out, group, (exo_array){0}, &args, err);
}

exo_status
exo_comm_begin_reduce_scatter(exo_request **out, exo_group *group, exo_array data, exo_reduce op,
                              exo_err *err)
{
    const exo_collective_args args = {.operation = EXO_REDUCE_SCATTER, .reduce = op};
    *out = NULL;
    exo_status st = check_reduction(data.dtype, op, err);
    return st == EXO_OK ? begin_request(out, group, data, &args, err) : st;
}

exo_status
exo_comm_begin_all_gather(exo_request **out, exo_group *group, exo_array data, exo_err *err)
{
    const exo_collective_args args = {.operation = EXO_ALL_GATHER};
    return begin_request(out, group, data, &args, err);
}

exo_status
exo_comm_begin_broadcast(exo_request **out, exo_group *group, exo_array data, uint32_t root,
                         exo_err *err)
{
    const exo_collective_args args = {.operation = EXO_BROADCAST, .root = root};
    *out = NULL;
    exo_status st = check_root(group, root, err);
    return st == EXO_OK ? begin_request(out, group, data, &args, err) : st;
}

exo_status
exo_comm_begin_all_to_all(exo_request **out, exo_group *group, exo_array data, exo_err *err)
{
    const exo_collective_args args = {.operation = EXO_ALL_TO_ALL};
    *out = NULL;
    exo_status st = check_blocks(group, data.count, err);
    return st == EXO_OK ? begin_request(out, group, data, &args, err) : st;
}

exo_status
exo_comm_begin_swap(exo_request **out, exo_group *group, exo_array data, uint32_t partner,
                    exo_err *err)
{
    uint32_t pair[2];
    exo_collective_args args = {.operation = EXO_SWAP};
    *out = NULL;
    exo_status st = set_pair(group, partner, &args, pair, err);
    return st == EXO_OK ? begin_request(out, group, data, &args, err) : st;
}

exo_status
exo_comm_begin_shift(exo_request **out, exo_group *group, exo_array data, uint32_t by, exo_err *err)
{
    const exo_collective_args args = {.operation = EXO_SHIFT, .root = by % group->size};
    return begin_request(out, group, data, &args, err);
}

exo_status
exo_comm_begin_barrier(exo_request **out, exo_group *group, exo_err *err)
{
    const exo_collective_args args = {.operation = EXO_BARRIER};
    return begin_request(out, group, (exo_array){0}, &args, err);
}

exo_status
exo_request_test(exo_request **request, bool *done, exo_err *err)
{
    exo_request *r = *request;
    exo_status st = engine_test(r->group, &r->engine, done, err);
    return st != EXO_OK || *done ? end_request(request, st, err) : EXO_OK;
}

exo_status
exo_request_wait(exo_request **request, exo_err *err)
{
    exo_request *r = *request;
    if (!r)
        return EXO_OK;
    return end_request(request, wait_for(r->group, &r->engine, r->number, err), err);
}

void
exo_request_cancel(exo_request **request)
{
    exo_request *r = *request;
    *request = NULL;
    if (!r)
        return;
    engine_cancel(r->group, &r->engine);
    give_back(r);
}
