/* Requests of an engine with `advance`: see stepped.h. */
#include "comm/stepped.h"

#include <sched.h>
#include <string.h>
#include <time.h>

#include "comm/reduce.h"

enum {
    YIELDS_US = 100, /* a wait yields between its tries for so long before it sleeps there */
    SLEEP_NS = 50 * 1000
};

/* Removes a request from the list. False: it is not there. */
static bool
take_out(exo_stepped *s, const exo_engine_request *request)
{
    exo_engine_request **at = &s->first;
    while (*at && *at != request)
        at = &(*at)->next;
    if (!*at)
        return false;
    *at = request->next;
    return true;
}

static bool
is_begun(const exo_stepped *s, const exo_engine_request *request)
{
    const exo_engine_request *each = s->first;
    while (each && each != request)
        each = each->next;
    return each != NULL;
}

/* Ends all of this member's requests with an error, and tells the other members. */
static void
break_it(exo_stepped *s, const exo_comm *comm, uint32_t rank, exo_status status,
         const exo_engine_request *request, const char *why)
{
    exo_fail(&s->broken, status, "%s: %s", exo_collective_name(request->args.operation), why);
    comm->engine->fail(comm->state, rank, s->broken.text);
}

static void
go_on(exo_stepped *s, const exo_comm *comm, uint32_t rank)
{
    bool done = true;
    while (s->first && done && s->broken.code == EXO_OK) {
        exo_err reason = {0};
        done = false;
        exo_status st = comm->engine->advance(comm->state, rank, s->first, &done, &reason);
        if (st != EXO_OK)
            exo_fail(&s->broken, st, "%s", reason.text[0] ? reason.text : exo_status_text(st));
        else if (done)
            s->first = s->first->next;
    }
}

exo_status
exo_stepped_begin(exo_stepped *s, const exo_comm *comm, uint32_t rank, exo_engine_request *request,
                  exo_err *err)
{
    exo_engine_request **last = &s->first;
    if (s->broken.code != EXO_OK)
        return exo_fail(err, s->broken.code, "%s", s->broken.text);
    while (*last)
        last = &(*last)->next;
    *last = request;
    go_on(s, comm, rank);
    return EXO_OK;
}

exo_status
exo_stepped_test(exo_stepped *s, const exo_comm *comm, uint32_t rank, exo_engine_request *request,
                 bool *done, exo_err *err)
{
    go_on(s, comm, rank);
    *done = !is_begun(s, request);
    if (*done)
        return EXO_OK;
    if (s->broken.code == EXO_OK && exo_now(comm->clock) >= request->deadline)
        break_it(s, comm, rank, EXO_TIMEOUT, request, "deadline passed while waiting for others");
    if (s->broken.code == EXO_OK)
        return EXO_OK;
    take_out(s, request);
    return exo_fail(err, s->broken.code, "%s", s->broken.text);
}

exo_status
exo_stepped_wait(exo_stepped *s, const exo_comm *comm, uint32_t rank, exo_engine_request *request,
                 exo_err *err)
{
    exo_time until = exo_now(exo_clock_real()) + YIELDS_US * EXO_US;
    for (;;) {
        bool done = false;
        exo_status st = exo_stepped_test(s, comm, rank, request, &done, err);
        if (st != EXO_OK || done)
            return st;
        if (exo_now(exo_clock_real()) < until) /* beside other work one yield may take long */
            sched_yield();
        else
            nanosleep(&(struct timespec){.tv_nsec = SLEEP_NS}, NULL);
    }
}

void
exo_stepped_cancel(exo_stepped *s, const exo_comm *comm, uint32_t rank, exo_engine_request *request)
{
    if (take_out(s, request) && s->broken.code == EXO_OK)
        break_it(s, comm, rank, EXO_CANCELLED, request, "it was cancelled");
}

/* --- Functions for engines -------------------------------------------------------------------- */

static void
take_sums(const exo_collective_args *args, size_t at, size_t count, void *const *parts)
{
    size_t size = exo_dtype_size(args->dtype);
    for (size_t done = 0; done < count;) {
        size_t n = count - done < EXO_REDUCE_BLOCK ? count - done : EXO_REDUCE_BLOCK;
        exo_reduce_block((char *)args->data + (at + done) * size, parts, args->size, done, n,
                         args->dtype, args->reduce);
        done += n;
    }
}

/* Copies the part of [at, at + count) that is in [first, first + length). */
static void
take_part(const exo_collective_args *args, size_t at, size_t count, const void *part, size_t first,
          size_t length)
{
    size_t size = exo_dtype_size(args->dtype), from = first > at ? first : at;
    size_t to = first + length < at + count ? first + length : at + count;
    if (from < to)
        memcpy((char *)args->data + from * size, (const char *)part + (from - at) * size,
               (to - from) * size);
}

void
exo_collective_take(const exo_collective_args *args, size_t at, size_t count, void *const *parts)
{
    switch (args->operation) {
    case EXO_ALL_REDUCE:
    case EXO_REDUCE_SCATTER:
        take_sums(args, at, count, parts);
        break;
    case EXO_ALL_GATHER:
    case EXO_ALL_TO_ALL:
        for (uint32_t q = 0; q < args->size; q++) {
            size_t first, length;
            exo_shard(args->count, args->size, q, &first, &length);
            take_part(args, at, count, parts[q], first, length);
        }
        break;
    case EXO_BROADCAST:
        take_part(args, at, count, parts[args->root], 0, args->count);
        break;
    case EXO_SWAP:
        take_part(args, at, count, parts[1 - args->place], 0, args->count);
        break;
    case EXO_SHIFT:
        take_part(args, at, count, parts[exo_shift_source(args, args->place)], 0, args->count);
        break;
    case EXO_BARRIER:
        break;
    }
}
