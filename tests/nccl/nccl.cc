/* The NCCL of the tests: see nccl_test.h. Each call of a member puts two pieces of work on its stream.
 * The first says that the member has come; the one of the last member moves the data of all. The
 * second waits for that, or for the end of the communicator. */
#include "nccl/nccl_test.h"

#include <map>
#include <memory>
#include <string>
#include <vector>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bf16.h"
#include "base/fp16.h"
#include "cuda/outside.h"

#define NCCL extern "C" __attribute__((visibility("default")))

enum result {
    SUCCESS = 0,
    SYSTEM_ERROR = 2,
    INVALID_USAGE = 5,
    REMOTE_ERROR = 6,
    IN_PROGRESS = 7
};

enum kind {
    ALL_REDUCE,
    REDUCE_SCATTER,
    REDUCE,
    ALL_GATHER,
    BROADCAST,
    SEND,
    RECV
};

/* One of the calls between ncclGroupStart and ncclGroupEnd. */
struct part {
    kind what;
    const char *from;
    char *to;
    size_t count;
    int type, op, peer; /* peer: or the root */
    bool done;
};

struct id {
    char bytes[128];
};

struct config {
    size_t size;
    unsigned magic, version;
    int blocking;
};

/* A call of all members. */
struct call {
    std::vector<std::vector<part>> parts; /* by rank */
    std::vector<std::shared_ptr<bool>> gates;
    size_t arrived = 0;
    bool dead = false; /* it never moves data */
};

struct room {
    size_t size = 0, joined = 0, gone = 0; /* gone: finalized, or ended in another way */
    std::vector<std::shared_ptr<call>> calls;
};

struct comm {
    std::shared_ptr<room> in;
    size_t rank = 0, number = 0;
    int error = SUCCESS, lag = 0; /* lag: so many times it is asked before it is done */
    bool ended = false, final = false, shrank = false;
    comm *child = nullptr; /* that a shrink of this one makes */
    void **child_at = nullptr;
};

static std::map<std::string, std::shared_ptr<room>> rooms;
static uint64_t living, calls, ids, fail_at, aborted, revoked, shrunk, finalized, state = 1;
static nccl_failure failure;
static bool revoke_fails;
static int version = 22809;
static thread_local bool grouped;
static thread_local std::vector<part> group;
static thread_local comm *group_comm;
static thread_local cudaStream_t group_stream;

static void
locked(const std::function<void()> &act)
{
    cuda_emulated_locked(act);
}

static void
forbid(bool wrong, const char *what)
{
    if (wrong) {
        fprintf(stderr, "nccl: %s\n", what);
        abort();
    }
}

static int
draw_lag(void)
{
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return static_cast<int>((state >> 33) % 4);
}

/* Counts a call. Returns whether it is to fail. With the lock, as all below. */
static bool
fails_now(void)
{
    calls++;
    return fail_at > 0 && --fail_at == 0;
}

/* --- Numbers ---------------------------------------------------------------------------------- */

static size_t
size_of(int type)
{
    return type <= 1 ? 1 : type == 6 || type == 9 ? 2 : type == 4 ? 8 : 4;
}

static double
get(int type, const char *at)
{
    int32_t i32;
    int64_t i64;
    uint16_t half;
    float f32;
    switch (type) {
    case 0:
        return static_cast<int8_t>(*at);
    case 2:
        memcpy(&i32, at, 4);
        return i32;
    case 4:
        memcpy(&i64, at, 8);
        return static_cast<double>(i64);
    case 6:
        memcpy(&half, at, 2);
        return static_cast<double>(exo_from_fp16(half));
    case 9:
        memcpy(&half, at, 2);
        return static_cast<double>(exo_from_bf16(half));
    case 7:
        memcpy(&f32, at, 4);
        return static_cast<double>(f32);
    default:
        forbid(true, "a sum of this type");
        return 0;
    }
}

/* The bits of a number that fp16 holds exactly, and that is normal or zero. */
static uint16_t
to_fp16(double value)
{
    int exponent = 0;
    const double m = frexp(fabs(value), &exponent);
    if (value == 0)
        return 0;
    return static_cast<uint16_t>((value < 0 ? 0x8000 : 0) | (exponent + 14) << 10 |
                                 (static_cast<int>(m * 2048) & 0x3FF));
}

static void
put(int type, char *at, double value)
{
    const int8_t i8 = static_cast<int8_t>(static_cast<int64_t>(value));
    const int32_t i32 = static_cast<int32_t>(static_cast<int64_t>(value));
    const int64_t i64 = static_cast<int64_t>(value);
    const float f32 = static_cast<float>(value);
    const uint16_t half = type == 6 ? to_fp16(value) : exo_to_bf16(f32);
    const void *from = type == 0   ? static_cast<const void *>(&i8)
                       : type == 2 ? static_cast<const void *>(&i32)
                       : type == 4 ? static_cast<const void *>(&i64)
                       : type == 7 ? static_cast<const void *>(&f32)
                                   : static_cast<const void *>(&half);
    memcpy(at, from, size_of(type));
}

/* --- Data ------------------------------------------------------------------------------------- */

typedef std::vector<std::string> sent; /* what each member sends in one part */

static std::string
sum(const sent &all, const part &p, size_t first, size_t count)
{
    const size_t size = size_of(p.type);
    std::string out(count * size, '\0');
    for (size_t i = 0; i < count; i++) {
        double value = 0;
        for (size_t r = 0; r < all.size(); r++) /* from the last: in another order than exogym's */
            value += get(p.type, all[all.size() - 1 - r].data() + (first + i) * size);
        put(p.type, &out[i * size], p.op == 4 ? value / static_cast<double>(all.size()) : value);
    }
    return out;
}

static void
give(const std::string &bytes, char *to)
{
    memcpy(to, bytes.data(), bytes.size());
}

/* The k-th part, which is the same operation on all members. */
static void
do_part(call *c, size_t k)
{
    const part &p = c->parts[0][k];
    const size_t size = size_of(p.type), n = c->parts.size();
    sent all;
    std::string gathered;
    for (auto &parts : c->parts) {
        const part &q = parts[k];
        const size_t length = p.what == REDUCE_SCATTER ? p.count * n : p.count;
        forbid(q.what != p.what || q.count != p.count || q.type != p.type || q.op != p.op ||
                   ((p.what == REDUCE || p.what == BROADCAST) && q.peer != p.peer),
               "members disagree");
        all.emplace_back(q.from, length * size);
        gathered += all.back();
    }
    for (size_t r = 0; r < n; r++) {
        char *to = c->parts[r][k].to;
        if (p.what == ALL_REDUCE || (p.what == REDUCE && static_cast<size_t>(p.peer) == r))
            give(sum(all, p, 0, p.count), to);
        else if (p.what == REDUCE_SCATTER)
            give(sum(all, p, r * p.count, p.count), to);
        else if (p.what == ALL_GATHER)
            give(gathered, to);
        else if (p.what == BROADCAST)
            give(all[static_cast<size_t>(p.peer)], to);
    }
}

/* What is sent meets what is received, in their order between two members. The sender's memory is
 * read at any time, so it must not be written meanwhile. */
static void
do_exchange(call *c)
{
    for (size_t r = 0; r < c->parts.size(); r++)
        for (part &in : c->parts[r]) {
            bool found = false;
            for (part &out : c->parts[static_cast<size_t>(in.peer)])
                if (in.what == RECV && out.what == SEND && !out.done && !found &&
                    static_cast<size_t>(out.peer) == r) {
                    forbid(out.count != in.count || out.type != in.type, "members disagree");
                    memcpy(in.to, out.from, in.count * size_of(in.type));
                    out.done = found = true;
                }
            forbid(in.what == RECV && !found, "nothing is sent for a receive");
        }
}

static void
arrive(const std::shared_ptr<call> &c)
{
    if (++c->arrived < c->parts.size() || c->dead)
        return;
    const kind what = c->parts[0][0].what;
    if (what == SEND || what == RECV)
        do_exchange(c.get());
    else
        for (size_t k = 0; k < c->parts[0].size(); k++)
            do_part(c.get(), k);
    for (const auto &gate : c->gates)
        *gate = true;
}

/* Puts the parts of a call on the member's stream. */
static int
enqueue(comm *c, cudaStream_t stream, const std::vector<part> &parts)
{
    int result = SUCCESS;
    locked([&]() {
        forbid(c->ended, "a call of an ended communicator");
        forbid(c->in->joined < c->in->size || c->lag > 0,
               "a call before the one before is started");
        forbid(parts.empty(), "an empty group");
        const bool fails = fails_now();
        if (fails && failure == NCCL_RETURNS) {
            c->error = result = SYSTEM_ERROR;
            return;
        }
        if (c->number >= c->in->calls.size())
            c->in->calls.push_back(std::make_shared<call>());
        const std::shared_ptr<call> mine = c->in->calls[c->number++];
        if (mine->parts.empty()) {
            mine->parts.resize(c->in->size);
            for (size_t r = 0; r < c->in->size; r++)
                mine->gates.push_back(std::make_shared<bool>(false));
        }
        mine->parts[c->rank] = parts;
        mine->dead = mine->dead || fails;
        if (fails && failure == NCCL_LATER)
            c->error = REMOTE_ERROR;
        cuda_emulated_push(stream, nullptr, [mine]() { arrive(mine); });
        cuda_emulated_push(stream, mine->gates[c->rank], []() {});
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

/* The stream goes on behind all calls, whose data never comes. */
static void
release_all(comm *c)
{
    for (const auto &each : c->in->calls)
        if (each->gates.size() > c->rank && !*each->gates[c->rank]) {
            each->dead = true;
            *each->gates[c->rank] = true;
        }
    if (!c->ended && !c->final)
        c->in->gone++;
    c->ended = true;
}

static void
free_comm(comm *c)
{
    if (c->child)
        free_comm(c->child);
    living--;
    delete c;
}

/* --- NCCL's functions ------------------------------------------------------------------------- */

NCCL int
ncclGetVersion(int *out)
{
    *out = version;
    return SUCCESS;
}

NCCL const char *
ncclGetErrorString(int result)
{
    return result == SYSTEM_ERROR ? "unhandled system error (run with NCCL_DEBUG=INFO for details)"
           : result == REMOTE_ERROR  ? "remote process exited or there was a network error"
           : result == INVALID_USAGE ? "invalid usage (run with NCCL_DEBUG=WARN for details)"
                                     : "no error";
}

NCCL const char *
ncclGetLastError(void *comm_)
{
    (void)comm_;
    return "";
}

NCCL int
ncclGetUniqueId(id *out)
{
    locked([&]() { snprintf(out->bytes, sizeof out->bytes, "room %llu", 1ull * ++ids); });
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
        comm *c = new comm;
        std::shared_ptr<room> &in = rooms[which.bytes];
        if (!in)
            in = std::make_shared<room>();
        in->size = static_cast<size_t>(size);
        in->joined += !fails;
        c->in = in;
        c->rank = static_cast<size_t>(rank);
        c->lag = draw_lag();
        c->error = fails && failure == NCCL_LATER ? SYSTEM_ERROR : SUCCESS;
        living++;
        *out = c;
    });
    return result;
}

/* A shrink is done by the parent, and its result is written at the end: ncclCommShrink. */
static int
poll_shrink(comm *c)
{
    comm *made = c->child;
    if (made->error == SUCCESS && (made->in->joined < made->in->size || c->lag-- > 0))
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

NCCL int
ncclCommGetAsyncError(void *comm_, int *result)
{
    comm *c = static_cast<comm *>(comm_);
    locked([&]() {
        if (c->child) {
            *result = poll_shrink(c);
            return;
        }
        const bool waits = !c->ended && (c->final ? c->in->gone : c->in->joined) < c->in->size;
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
        forbid(c->ended || c->final, "finalizes an ended communicator");
        c->final = true;
        c->in->gone++;
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
        forbid(flags != 0 || c->ended, "revokes wrongly");
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

NCCL int
ncclCommShrink(void *comm_, int *excluded, int count, void **out, config *how, int flags)
{
    comm *c = static_cast<comm *>(comm_);
    int result = IN_PROGRESS;
    forbid(how->magic != 0xcafebeef || how->blocking != 0, "a config that NCCL would refuse");
    locked([&]() {
        forbid(flags != 0 || !c->ended || c->lag > 0 || count < 1, "shrinks wrongly");
        const bool fails = fails_now();
        if (fails && failure == NCCL_RETURNS) {
            result = SYSTEM_ERROR;
            return;
        }
        comm *made = new comm;
        std::string name = "shrunk " + std::to_string(reinterpret_cast<uintptr_t>(c->in.get()));
        made->rank = c->rank;
        for (int i = 0; i < count; i++) {
            name += " " + std::to_string(excluded[i]);
            forbid(static_cast<size_t>(excluded[i]) == c->rank,
                   "a member that is excluded shrinks");
            made->rank -= static_cast<size_t>(excluded[i]) < c->rank;
        }
        std::shared_ptr<room> &in = rooms[name];
        if (!in)
            in = std::make_shared<room>();
        in->size = c->in->size - static_cast<size_t>(count);
        in->joined += !fails;
        made->in = in;
        made->lag = draw_lag();
        made->error = fails && failure == NCCL_LATER ? SYSTEM_ERROR : SUCCESS;
        living++;
        shrunk++;
        c->child = made;
        c->child_at = out;
        c->lag = draw_lag();
        c->shrank = true;
    });
    return result;
}

NCCL int
ncclCommDestroy(void *comm_)
{
    comm *c = static_cast<comm *>(comm_);
    locked([&]() {
        forbid((!c->final && !c->ended) || c->lag > 0 || c->child ||
                   (!c->ended && c->in->gone < c->in->size),
               "destroys what is not quiet");
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
        free_comm(c);
        aborted++;
    });
    return SUCCESS;
}

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

/* --- What tests say --------------------------------------------------------------------------- */

static void
set_fail_at(uint64_t n, nccl_failure how)
{
    locked([&]() {
        fail_at = n;
        failure = how;
    });
}

static void
set_revoke_fails(int fails)
{
    locked([&]() { revoke_fails = fails != 0; });
}

static void
set_version(int number)
{
    locked([&]() { version = number; });
}

static void
set_seed(uint64_t seed)
{
    locked([&]() { state = seed * 2 + 1; });
}

static uint64_t
read(const uint64_t *counter)
{
    uint64_t value = 0;
    locked([&]() { value = *counter; });
    return value;
}

static uint64_t
get_comms(void)
{
    return read(&living);
}

static uint64_t
get_calls(void)
{
    return read(&calls);
}

static uint64_t
get_aborted(void)
{
    return read(&aborted);
}

static uint64_t
get_revoked(void)
{
    return read(&revoked);
}

static uint64_t
get_shrunk(void)
{
    return read(&shrunk);
}

static uint64_t
get_finalized(void)
{
    return read(&finalized);
}

NCCL const nccl_test nccl_test_calls;
const nccl_test nccl_test_calls = {set_fail_at, set_revoke_fails, set_version, set_seed,
                                   get_comms,   get_calls,        get_aborted, get_revoked,
                                   get_shrunk,  get_finalized};
