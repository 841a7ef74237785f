/* The NCCL of the tests: see nccl_test.h. The members of a communicator meet in a room, which is a file
 * that their processes map; EXO_NCCL_ROOMS names the folder, /dev/shm unless given, and EXO_NCCL_VERSION
 * the version. Each call of a member puts two pieces of work on its stream. The first says that the
 * member has come; the second waits for
 * the member's data, or for the end of the communicator. Between them (go_on):
 *
 *     WAITS      until all have come
 *     GIVES      the member writes what it sends to a file of its own
 *     TAKES      once all have written, it computes its result from what all sent
 *
 * A member gives as late as it can, so a buffer that is written too early shows as a wrong number. It
 * computes with what was written, so nothing but the room is shared. */
#include "nccl/nccl_test.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

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

enum {
    MOST_MEMBERS = 64
};

/* What the members of a room share. Counters are of calls. */
struct seat {
    std::atomic<uint32_t> joined, gone, ended; /* gone: finalized, or ended */
    std::atomic<uint64_t> asleep, awake;       /* how often it has suspended and resumed */
    std::atomic<int> gpu, process;
    std::atomic<uint64_t> came, gave;
};

struct board {
    std::atomic<uint32_t> living;  /* communicators; the last one removes the files */
    std::atomic<uint32_t> invited; /* the number of the growth for which there is an id */
    seat seats[MOST_MEMBERS];
};

struct room {
    std::string path;
    size_t size = 0;
    board *at = nullptr;

    room(const std::string &name, size_t members);
    ~room();
    size_t count(std::atomic<uint32_t> seat::*what) const;
    bool all(std::atomic<uint64_t> seat::*what, uint64_t least) const;
    std::string data(size_t rank) const;
};

enum phase {
    WAITS,
    GIVES,
    TAKES
};

/* A member's part in a call. */
struct call {
    std::vector<part> parts;
    std::shared_ptr<bool> gate = std::make_shared<bool>(false);
    uint64_t number = 0;
    phase at = WAITS;
    bool here = false,
         dead = false; /* here: the stream has come to it; dead: it never moves data */
};

struct comm {
    std::shared_ptr<room> in;
    std::vector<std::shared_ptr<call>> calls; /* those that are not done */
    size_t rank = 0;
    uint64_t number = 0;
    int error = SUCCESS, lag = 0; /* lag: so many times it is asked before it is done */
    bool ended = false, final = false, shrank = false;
    comm *child = nullptr; /* that a shrink of this one makes */
    void **child_at = nullptr;
    comm *grown = nullptr; /* that was grown from this one */
    uint32_t growths = 0;
    uint64_t asleep = 0, awake = 0; /* if they differ it is suspended */
};

static std::set<comm *> comms;
static uint64_t calls, ids, fail_at, aborted, revoked, shrunk, grown, finalized, state = 1;
static uint64_t suspended, resumed;
static nccl_failure failure;
static const char *last_error = "";
static bool revoke_fails, invite_fails, suspend_fails;
static std::atomic<bool> holds;
static std::atomic<uint64_t> held;
static int version = 23007;
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
    const bool fails = fail_at > 0 && --fail_at == 0;
    if (fails && failure == NCCL_RETURNS)
        last_error = "no interface is up";
    return fails;
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

/* --- Rooms ------------------------------------------------------------------------------------ */

static std::string
folder(void)
{
    const char *named = getenv("EXO_NCCL_ROOMS");
    return named && *named ? named : "/dev/shm";
}

room::room(const std::string &name, size_t members) : size(members)
{
    uint64_t hash = UINT64_C(14695981039346656037); /* FNV-1a */
    char text[32];
    for (const char c : name)
        hash = (hash ^ static_cast<unsigned char>(c)) * UINT64_C(1099511628211);
    snprintf(text, sizeof text, "/nccl-room-%016llx", static_cast<unsigned long long>(hash));
    path = folder() + text;
    const int file = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    forbid(members < 1 || members > MOST_MEMBERS, "a communicator of this size");
    forbid(file < 0 || ftruncate(file, sizeof(board)) != 0, "no room: see EXO_NCCL_ROOMS");
    void *memory = mmap(NULL, sizeof(board), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    forbid(memory == MAP_FAILED, "no memory for a room");
    at = static_cast<board *>(memory);
    at->living++;
}

room::~room()
{
    if (--at->living == 0) {
        unlink(path.c_str());
        for (size_t r = 0; r < size; r++)
            unlink(data(r).c_str());
    }
    munmap(at, sizeof *at);
}

size_t
room::count(std::atomic<uint32_t> seat::*what) const
{
    size_t number = 0;
    for (size_t r = 0; r < size; r++)
        number += (at->seats[r].*what).load();
    return number;
}

bool
room::all(std::atomic<uint64_t> seat::*what, uint64_t least) const
{
    bool all = true;
    for (size_t r = 0; r < size; r++)
        all = all && (at->seats[r].*what).load() >= least;
    return all;
}

/* The file of what a member sends. */
std::string
room::data(size_t rank) const
{
    return path + "-" + std::to_string(rank);
}

/* --- Data ------------------------------------------------------------------------------------- */

/* What a member has sent: its parts, and the bytes of each. */
struct sent {
    std::vector<part> parts;
    std::vector<std::string> bytes;
};

/* The bytes that a member sends in a part. */
static size_t
bytes_of(const part &p, size_t members)
{
    const size_t size = size_of(p.type);
    return p.what == RECV ? 0 : p.count * size * (p.what == REDUCE_SCATTER ? members : 1);
}

static void
give(const comm *c, const call *mine)
{
    std::string text;
    const size_t number = mine->parts.size();
    text.append(reinterpret_cast<const char *>(&number), sizeof number);
    for (const part &p : mine->parts)
        text.append(reinterpret_cast<const char *>(&p), sizeof p);
    for (const part &p : mine->parts)
        if (bytes_of(p, c->in->size) > 0)
            text.append(p.from, bytes_of(p, c->in->size));
    FILE *file = fopen(c->in->data(c->rank).c_str(), "we");
    forbid(!file || fwrite(text.data(), 1, text.size(), file) != text.size() || fclose(file) != 0,
           "no room for data: see EXO_NCCL_ROOMS");
}

static void
get_bytes(FILE *file, void *to, size_t bytes)
{
    forbid(bytes > 0 && fread(to, 1, bytes, file) != bytes, "a member has written too little");
}

static sent
take(const comm *c, size_t rank)
{
    sent out;
    size_t number = 0;
    FILE *file = fopen(c->in->data(rank).c_str(), "re");
    forbid(!file, "the data of a member is not there");
    get_bytes(file, &number, sizeof number);
    out.parts.resize(number);
    get_bytes(file, out.parts.data(), number * sizeof(part));
    for (const part &p : out.parts) {
        out.bytes.emplace_back(bytes_of(p, c->in->size), '\0');
        get_bytes(file, &out.bytes.back()[0], out.bytes.back().size());
    }
    fclose(file);
    return out;
}

static std::string
sum(const std::vector<sent> &all, size_t k, const part &p, size_t first)
{
    const size_t size = size_of(p.type);
    std::string out(p.count * size, '\0');
    for (size_t i = 0; i < p.count; i++) {
        double value = 0;
        for (size_t r = all.size(); r-- > 0;) /* from the last: in another order than exogym's */
            value += get(p.type, all[r].bytes[k].data() + (first + i) * size);
        put(p.type, &out[i * size], p.op == 4 ? value / static_cast<double>(all.size()) : value);
    }
    return out;
}

static void
write_to(const std::string &bytes, char *to)
{
    memcpy(to, bytes.data(), bytes.size());
}

/* The k-th part, which is the same operation on all members. */
static void
do_part(const comm *c, const call *mine, const std::vector<sent> &all, size_t k)
{
    const part &p = mine->parts[k];
    std::string gathered;
    for (const sent &each : all) {
        forbid(each.parts.size() <= k, "members disagree");
        const part &q = each.parts[k];
        forbid(q.what != p.what || q.count != p.count || q.type != p.type || q.op != p.op ||
                   ((p.what == REDUCE || p.what == BROADCAST) && q.peer != p.peer),
               "members disagree");
        gathered += each.bytes[k];
    }
    if (p.what == ALL_REDUCE || (p.what == REDUCE && static_cast<size_t>(p.peer) == c->rank))
        write_to(sum(all, k, p, 0), p.to);
    else if (p.what == REDUCE_SCATTER)
        write_to(sum(all, k, p, c->rank * p.count), p.to);
    else if (p.what == ALL_GATHER)
        write_to(gathered, p.to);
    else if (p.what == BROADCAST)
        write_to(all[static_cast<size_t>(p.peer)].bytes[k], p.to);
}

/* What is sent meets what is received, in their order between two members. */
static void
do_exchange(const comm *c, const call *mine, std::vector<sent> &all)
{
    for (const part &in : mine->parts) {
        bool found = false;
        sent &from = all[static_cast<size_t>(in.peer)];
        for (size_t k = 0; in.what == RECV && !found && k < from.parts.size(); k++) {
            part &out = from.parts[k];
            if (out.what != SEND || out.done || static_cast<size_t>(out.peer) != c->rank)
                continue;
            forbid(out.count != in.count || out.type != in.type, "members disagree");
            write_to(from.bytes[k], in.to);
            out.done = found = true;
        }
        forbid(in.what == RECV && !found, "nothing is sent for a receive");
    }
}

static void
take_all(const comm *c, const call *mine)
{
    std::vector<sent> all;
    for (size_t r = 0; r < c->in->size; r++)
        all.push_back(take(c, r));
    if (mine->parts[0].what == SEND || mine->parts[0].what == RECV)
        do_exchange(c, mine, all);
    else
        for (size_t k = 0; k < mine->parts.size(); k++)
            do_part(c, mine, all, k);
}

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
    const char *number = getenv("EXO_NCCL_VERSION");
    version = number ? atoi(number) : version;
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
    (void)comm_; /* as in NCCL, also NULL */
    return last_error;
}

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
set_invite_fails(int fails)
{
    locked([&]() { invite_fails = fails != 0; });
}

static void
set_suspend_fails(int fails)
{
    locked([&]() { suspend_fails = fails != 0; });
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

static void
set_hold_destroys(int hold)
{
    holds = hold != 0;
}

static uint64_t
get_held(void)
{
    return held;
}

static uint64_t
get_comms(void)
{
    uint64_t number = 0;
    locked([&]() { number = comms.size(); });
    return number;
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
get_grown(void)
{
    return read(&grown);
}

static uint64_t
get_suspended(void)
{
    return read(&suspended);
}

static uint64_t
get_resumed(void)
{
    return read(&resumed);
}

static uint64_t
get_finalized(void)
{
    return read(&finalized);
}

NCCL const nccl_test nccl_test_calls;
const nccl_test nccl_test_calls = {
    set_fail_at, set_revoke_fails,  set_invite_fails, set_suspend_fails, set_version,
    set_seed,    set_hold_destroys, get_held,         get_comms,         get_calls,
    get_aborted, get_revoked,       get_shrunk,       get_grown,         get_suspended,
    get_resumed, get_finalized};
