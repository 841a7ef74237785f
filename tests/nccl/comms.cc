/* Communicators of the NCCL of the tests: made, shrunk, grown, suspended and resumed, finalized, revoked,
 * destroyed and aborted. A use that NCCL forbids ends the process. State: state.h, and the count of
 * ids, under the same lock. Read next: rooms.cc. */
#include "nccl/state.h"

#include <algorithm>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

static uint64_t ids; /* that were given */

/* The stream goes on behind all calls, whose data never comes. */
static void
release_all(comm *c)
{
    for (const auto &each : c->calls) {
        each->dead = true;
        *each->gate = true;
    }
    c->calls.clear();
    if (!c->ended && !c->final)
        c->in->at->seats[c->rank].gone = 1;
    c->in->at->seats[c->rank].ended = 1;
    c->ended = true;
}

/* A communicator in a room, which it has joined unless that fails. */
static comm *
new_comm(const std::string &name, size_t size, size_t rank, bool fails)
{
    comm *c = new comm;
    int gpu = 0;
    (void)cudaGetDevice(&gpu);
    c->in = std::make_shared<room>(name, size);
    c->rank = rank;
    c->in->at->seats[rank].gpu = gpu;
    c->in->at->seats[rank].process = getpid();
    c->in->at->seats[rank].joined = !fails;
    c->lag = draw_lag();
    c->error = fails && failure == NCCL_LATER ? SYSTEM_ERROR : SUCCESS;
    comms.insert(c);
    return c;
}

/* Whether two members that have joined are on one GPU, and may not. */
static bool
share_gpu(const room &in)
{
    const char *allowed = getenv("NCCL_MULTI_RANK_GPU_ENABLE");
    bool share = false;
    if (allowed && strcmp(allowed, "1") == 0)
        return false;
    for (size_t r = 0; r < in.size; r++)
        for (size_t q = 0; q < r; q++)
            share = share || (in.at->seats[r].joined && in.at->seats[q].joined &&
                              in.at->seats[r].gpu == in.at->seats[q].gpu);
    return share;
}

static void
free_comm(comm *c)
{
    if (c->child)
        free_comm(c->child);
    comms.erase(c);
    for (comm *other : comms)
        other->grown = other->grown == c ? nullptr : other->grown;
    delete c;
}

/* --- NCCL's functions ------------------------------------------------------------------------- */

NCCL int
ncclGetUniqueId(id *out)
{
    const char *wanted = getenv("EXO_NCCL_LISTENS"), *listens = getenv("NCCL_SOCKET_IFNAME");
    uint64_t drawn = 0;
    forbid(wanted && strcmp(wanted, listens ? listens : "everywhere") != 0,
           "to listen on other interfaces than EXO_NCCL_LISTENS says");
    forbid(getrandom(&drawn, sizeof drawn, 0) != sizeof drawn, "no random number");
    locked([&]() {
        snprintf(out->bytes, sizeof out->bytes, "room %llu %llx", 1ull * ++ids, 1ull * drawn);
    });
    return SUCCESS;
}

NCCL int
ncclCommInitRankConfig(void **out, int size, id which, int rank, config *how)
{
    int result = IN_PROGRESS;
    forbid(how->magic != 0xcafebeef || how->blocking != 0, "a config that NCCL would refuse");
    locked([&]() {
        const bool fails = fails_now();
        if (fails && failure == NCCL_RETURNS) {
            result = SYSTEM_ERROR;
            return;
        }
        comm *c =
            new_comm(which.bytes, static_cast<size_t>(size), static_cast<size_t>(rank), fails);
        *out = c;
    });
    return result;
}

/* A shrink is done by the parent, and its result is written at the end: ncclCommShrink. */
static int
poll_shrink(comm *c)
{
    comm *made = c->child;
    if (made->error == SUCCESS && (made->in->count(&seat::joined) < made->in->size || c->lag-- > 0))
        return IN_PROGRESS;
    c->lag = 0;
    c->child = nullptr;
    if (made->error == SUCCESS) {
        *c->child_at = made;
        return SUCCESS;
    }
    c->error = made->error;
    free_comm(made);
    return c->error;
}

/* A suspension waits for its GPU. */
static void
await_gpu(const comm *c)
{
    forbid(cuda_emulated_is_recorded(c->in->at->seats[c->rank].gpu),
           "waits for a GPU on which something is recorded");
}

NCCL int
ncclCommGetAsyncError(void *comm_, int *result)
{
    comm *c = static_cast<comm *>(comm_);
    locked([&]() {
        if (c->child) {
            *result = poll_shrink(c);
            return;
        }
        if (c->error == SUCCESS && share_gpu(*c->in))
            c->error = INVALID_USAGE;
        if (c->asleep != c->awake && (c->lag > 0 || !c->in->all(&seat::asleep, c->asleep)))
            await_gpu(c);
        const bool sleeps =
            !c->in->all(&seat::asleep, c->asleep) || !c->in->all(&seat::awake, c->awake);
        const bool waits =
            !c->ended &&
            (sleeps || c->in->count(c->final ? &seat::gone : &seat::joined) < c->in->size);
        *result = c->error != SUCCESS && (!c->ended || c->shrank) ? c->error
                  : waits || c->lag > 0                           ? IN_PROGRESS
                                                                  : SUCCESS;
        c->lag -= c->lag > 0 && !waits;
    });
    return SUCCESS;
}

NCCL int
ncclCommFinalize(void *comm_)
{
    comm *c = static_cast<comm *>(comm_);
    locked([&]() {
        forbid(c->ended || c->final || c->asleep != c->awake,
               "finalizes an ended or suspended communicator");
        forbid(c->grown && c->grown->in->count(&seat::joined) < c->grown->in->size,
               "finalizes what is still grown");
        c->final = true;
        c->in->at->seats[c->rank].gone = 1;
        c->lag = draw_lag();
        finalized++;
    });
    return IN_PROGRESS;
}

NCCL int
ncclCommRevoke(void *comm_, int flags)
{
    comm *c = static_cast<comm *>(comm_);
    int result = IN_PROGRESS;
    locked([&]() {
        forbid(flags != 0 || c->ended || c->asleep != c->awake, "revokes wrongly");
        if (revoke_fails) {
            result = INVALID_USAGE;
            return;
        }
        release_all(c);
        c->lag = draw_lag();
        revoked++;
    });
    return result;
}

static bool
is_idle(const comm *c)
{
    return !c->ended && !c->final && !c->child && c->lag == 0 && c->error == SUCCESS &&
           c->calls.empty() && c->asleep == c->awake && c->in->count(&seat::joined) == c->in->size;
}

/* Whether a member that stays has revoked the communicator, and this one has not, or the other way
 * round. */
static bool
is_mixed(const comm *c, const int *excluded, int count)
{
    bool mixed = false;
    for (size_t r = 0; r < c->in->size; r++)
        mixed = mixed ||
                (std::find(excluded, excluded + count, static_cast<int>(r)) == excluded + count &&
                 (c->in->at->seats[r].ended != 0) != c->ended);
    return mixed;
}

NCCL int
ncclCommShrink(void *comm_, int *excluded, int count, void **out, config *how, int flags)
{
    comm *c = static_cast<comm *>(comm_);
    int result = IN_PROGRESS;
    forbid(how->magic != 0xcafebeef || how->blocking != 0, "a config that NCCL would refuse");
    locked([&]() {
        forbid(flags != 0 || (c->ended ? c->lag > 0 : !is_idle(c)) || count < 1, "shrinks wrongly");
        forbid(is_mixed(c, excluded, count), "shrinks what only some have revoked");
        const bool fails = fails_now();
        if (fails && failure == NCCL_RETURNS) {
            result = SYSTEM_ERROR;
            return;
        }
        std::string name = c->in->path + " without";
        size_t rank = c->rank;
        for (int i = 0; i < count; i++) {
            name += " " + std::to_string(excluded[i]);
            forbid(static_cast<size_t>(excluded[i]) == c->rank,
                   "a member that is excluded shrinks");
            rank -= static_cast<size_t>(excluded[i]) < c->rank;
        }
        comm *made = new_comm(name, c->in->size - static_cast<size_t>(count), rank, fails);
        shrunk++;
        c->child = made;
        c->child_at = out;
        c->lag = draw_lag();
        c->shrank = true;
    });
    return result;
}

/* The room of what is grown from a communicator. */
static std::string
name_of_growth(const comm *c, uint32_t number)
{
    return c->in->path.substr(folder().size()) + " grown " + std::to_string(number) + " of " +
           std::to_string(c->in->size);
}

NCCL int
ncclCommGetUniqueId(void *comm_, id *out)
{
    const comm *c = static_cast<comm *>(comm_);
    int result = SUCCESS;
    locked([&]() {
        forbid(!is_idle(c), "an id of what is not ready");
        if (invite_fails) {
            result = INVALID_USAGE;
            return;
        }
        forbid(c->in->at->invited > c->growths, "a second id before the first is used");
        c->in->at->invited = c->growths + 1;
        snprintf(out->bytes, sizeof out->bytes, "%s", name_of_growth(c, c->growths + 1).c_str());
    });
    return result;
}

/* A member of the communicator has its rank there, and needs no id but that of rank 0. */
static comm *
grow_old(comm *c, int size, const id *which, int rank, bool fails)
{
    const uint32_t number = ++c->growths;
    const std::string name = name_of_growth(c, number);
    forbid(!is_idle(c), "grows what is not ready");
    forbid(static_cast<size_t>(size) <= c->in->size || rank != -1, "grows wrongly");
    forbid(c->in->at->invited < number, "grows before there is an id, for which NCCL would wait");
    forbid((c->rank == 0) != (which != nullptr) || (which && name != which->bytes),
           "grows by another id");
    c->grown = new_comm(name, static_cast<size_t>(size), c->rank, fails);
    return c->grown;
}

static comm *
grow_new(int size, const id *which, int rank, bool fails)
{
    forbid(!which, "a newcomer without an id");
    const char *of = strstr(which->bytes, " of ");
    forbid(!of || rank < atoi(of + 4) || rank >= size, "the rank of a newcomer is that of another");
    return new_comm(which->bytes, static_cast<size_t>(size), static_cast<size_t>(rank), fails);
}

NCCL int
ncclCommGrow(void *comm_, int size, const id *which, int rank, void **out, config *how)
{
    int result = IN_PROGRESS;
    forbid(how->magic != 0xcafebeef || how->blocking != 0, "a config that NCCL would refuse");
    locked([&]() {
        const bool fails = fails_now();
        if (fails && failure == NCCL_RETURNS) {
            result = SYSTEM_ERROR;
            return;
        }
        *out = comm_ ? grow_old(static_cast<comm *>(comm_), size, which, rank, fails)
                     : grow_new(size, which, rank, fails);
        grown++;
    });
    return result;
}

/* Both wait for all members, as NCCL does, beside the calling thread; before 2.30.3 it is that
 * thread. */
static int
change_memory(comm *c, std::atomic<uint64_t> seat::*what, uint64_t *own, uint64_t *counter)
{
    const bool fails = fails_now();
    forbid(version < 23003, "a call that waits for the other members without a deadline");
    if (fails && failure == NCCL_RETURNS) {
        c->error = SYSTEM_ERROR;
        return SYSTEM_ERROR;
    }
    ++*own;
    if (!fails)
        c->in->at->seats[c->rank].*what = *own;
    if (fails && failure == NCCL_LATER)
        c->error = SYSTEM_ERROR;
    c->lag = draw_lag();
    ++*counter;
    return IN_PROGRESS;
}

NCCL int
ncclCommSuspend(void *comm_, int flags)
{
    comm *c = static_cast<comm *>(comm_);
    int result = SUCCESS;
    locked([&]() {
        forbid(flags != 1 || !is_idle(c), "suspends what is not ready");
        await_gpu(c);
        result =
            suspend_fails ? INVALID_USAGE : change_memory(c, &seat::asleep, &c->asleep, &suspended);
    });
    return result;
}

NCCL int
ncclCommResume(void *comm_)
{
    comm *c = static_cast<comm *>(comm_);
    int result = SUCCESS;
    locked([&]() {
        forbid(c->asleep == c->awake || c->ended || c->lag > 0 ||
                   !c->in->all(&seat::asleep, c->asleep),
               "resumes what is not suspended");
        result = change_memory(c, &seat::awake, &c->awake, &resumed);
    });
    return result;
}

NCCL int
ncclCommDestroy(void *comm_)
{
    comm *c = static_cast<comm *>(comm_);
    held++;
    for (int ms = 0; holds && ms < 30 * 1000; ms++)
        usleep(1000);
    held--;
    locked([&]() {
        forbid((!c->final && !c->ended) || c->lag > 0 || c->child || c->asleep != c->awake ||
                   (!c->ended && c->in->count(&seat::gone) < c->in->size),
               "destroys what is not quiet");
        cuda_emulated_await_work(c->in->at->seats[c->rank].gpu); /* to free its memory there */
        free_comm(c);
    });
    return SUCCESS;
}

NCCL int
ncclCommAbort(void *comm_)
{
    comm *c = static_cast<comm *>(comm_);
    locked([&]() {
        release_all(c);
        cuda_emulated_await_work(c->in->at->seats[c->rank].gpu); /* the same */
        free_comm(c);
        aborted++;
    });
    return SUCCESS;
}
