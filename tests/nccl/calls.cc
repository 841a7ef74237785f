/* Calls of the NCCL of the tests that move data. Each call of a member puts two pieces of work on its
 * stream. The first says that the member has come; the second waits for the member's data, or for the end
 * of the communicator. Between them (go_on):
 *
 *     WAITS      until all have come
 *     GIVES      the member writes what it sends to a file of its own
 *     TAKES      once all have written, it computes its result from what all sent
 *
 * A member gives as late as it can, so a buffer that is written too early shows as a wrong number. Each
 * thread owns its group; the rest is in state.h. Read next: data.cc. */
#include "nccl/state.h"

#include <stdlib.h>

static thread_local bool grouped;
static thread_local std::vector<part> group;
static thread_local comm *group_comm;
static thread_local cudaStream_t group_stream;

/* Takes the oldest call of a communicator as far as it goes. Nobody gives before all have come, so a
 * member's file is not written while another reads it. */
static void
go_on(comm *c)
{
    if (c->calls.empty() || !c->calls[0]->here || c->calls[0]->dead)
        return;
    const std::shared_ptr<call> mine = c->calls[0];
    seat &own = c->in->at->seats[c->rank];
    if (mine->at == WAITS) {
        own.came = mine->number;
        mine->at = GIVES;
    }
    if (mine->at == GIVES && c->in->all(&seat::came, mine->number) &&
        c->in->count(&seat::ended) == 0) {
        cuda_emulated_show_memory();
        give(c, mine.get());
        own.gave = mine->number;
        mine->at = TAKES;
    }
    if (mine->at == TAKES && c->in->all(&seat::gave, mine->number)) {
        cuda_emulated_show_memory();
        take_all(c, mine.get());
        *mine->gate = true;
        c->calls.erase(c->calls.begin());
    }
}

/* The emulator calls it while streams do work, with its lock. */
static void
poll_all(void)
{
    for (comm *c : comms)
        go_on(c);
}

__attribute__((constructor)) static void
begin_to_poll(void)
{
    cuda_emulated_set_poll(poll_all);
}

__attribute__((destructor)) static void
end_to_poll(void)
{
    cuda_emulated_set_poll(nullptr);
}

/* Whether a GPU of this process reads or writes an array of another one, as before 2.23. The pool of
 * nn/cuda shows its memory to its own GPU only. */
static bool
reaches_into_another(const comm *c)
{
    const seat &own = c->in->at->seats[c->rank];
    bool reaches = false;
    for (size_t r = 0; r < c->in->size; r++)
        reaches = reaches || (c->in->at->seats[r].process == own.process &&
                              c->in->at->seats[r].gpu != own.gpu);
    return reaches && version < 22300 && !getenv("NCCL_P2P_DIRECT_DISABLE");
}

/* Puts the parts of a call on the member's stream. */
static int
enqueue(comm *c, cudaStream_t stream, const std::vector<part> &parts)
{
    int result = SUCCESS;
    locked([&]() {
        forbid(c->ended, "a call of an ended communicator");
        forbid(c->asleep != c->awake, "a call of a suspended communicator");
        forbid(c->in->count(&seat::joined) < c->in->size || c->lag > 0,
               "a call before the one before is started");
        forbid(parts.empty(), "an empty group");
        forbid(reaches_into_another(c), "an illegal memory access by another GPU of the process");
        const bool fails = fails_now();
        if (fails && failure == NCCL_RETURNS) {
            c->error = result = SYSTEM_ERROR;
            return;
        }
        const std::shared_ptr<call> mine = std::make_shared<call>();
        mine->parts = parts;
        mine->number = ++c->number;
        mine->dead = fails;
        c->calls.push_back(mine);
        if (fails && failure == NCCL_LATER)
            c->error = REMOTE_ERROR;
        cuda_emulated_push(stream, nullptr, [mine]() { mine->here = true; });
        cuda_emulated_push(stream, mine->gate, []() {});
        c->lag = draw_lag();
        result = c->lag > 0 ? IN_PROGRESS : SUCCESS;
    });
    return result;
}

static int
add(void *comm_, void *stream, const part &p)
{
    comm *c = static_cast<comm *>(comm_);
    if (!grouped)
        return enqueue(c, static_cast<cudaStream_t>(stream), {p});
    group.push_back(p);
    group_comm = c;
    group_stream = static_cast<cudaStream_t>(stream);
    return SUCCESS;
}

/* --- NCCL's functions ------------------------------------------------------------------------- */

NCCL int
ncclAllReduce(const void *from, void *to, size_t count, int type, int op, void *comm_, void *stream)
{
    return add(comm_, stream,
               {ALL_REDUCE, static_cast<const char *>(from), static_cast<char *>(to), count, type,
                op, 0, false});
}

NCCL int
ncclReduceScatter(const void *from, void *to, size_t count, int type, int op, void *comm_,
                  void *stream)
{
    return add(comm_, stream,
               {REDUCE_SCATTER, static_cast<const char *>(from), static_cast<char *>(to), count,
                type, op, 0, false});
}

NCCL int
ncclReduce(const void *from, void *to, size_t count, int type, int op, int root, void *comm_,
           void *stream)
{
    return add(comm_, stream,
               {REDUCE, static_cast<const char *>(from), static_cast<char *>(to), count, type, op,
                root, false});
}

NCCL int
ncclAllGather(const void *from, void *to, size_t count, int type, void *comm_, void *stream)
{
    return add(comm_, stream,
               {ALL_GATHER, static_cast<const char *>(from), static_cast<char *>(to), count, type,
                0, 0, false});
}

NCCL int
ncclBroadcast(const void *from, void *to, size_t count, int type, int root, void *comm_,
              void *stream)
{
    return add(comm_, stream,
               {BROADCAST, static_cast<const char *>(from), static_cast<char *>(to), count, type, 0,
                root, false});
}

NCCL int
ncclSend(const void *from, size_t count, int type, int to, void *comm_, void *stream)
{
    return add(comm_, stream,
               {SEND, static_cast<const char *>(from), nullptr, count, type, 0, to, false});
}

NCCL int
ncclRecv(void *to, size_t count, int type, int from, void *comm_, void *stream)
{
    return add(comm_, stream,
               {RECV, nullptr, static_cast<char *>(to), count, type, 0, from, false});
}

NCCL int
ncclGroupStart(void)
{
    forbid(grouped, "a group within a group");
    grouped = true;
    group.clear();
    return SUCCESS;
}

NCCL int
ncclGroupEnd(void)
{
    forbid(!grouped, "the end of no group");
    grouped = false;
    return enqueue(group_comm, group_stream, group);
}
