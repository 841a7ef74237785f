/* What the files of the NCCL of the tests share: its state, and what they call of each other. Tests call
 * nccl_test.h. State: everything here; the emulator's lock guards all of it, and all functions here are
 * called with it, except `locked` and `forbid`. Read next:
 *
 *     comms.cc     communicators, from the first call to the last
 *     calls.cc     calls that move data, and when they go on
 *     data.cc      what members give and take, with numbers of NCCL's types
 *     rooms.cc     where the members of a communicator meet
 *     settings.cc  what tests say, and the state */
#ifndef EXO_TEST_NCCL_STATE_H
#define EXO_TEST_NCCL_STATE_H

#include "nccl/nccl_test.h"

#include <atomic>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "cuda/outside.h"

#define NCCL extern "C" __attribute__((visibility("default")))

#pragma GCC visibility push(hidden)
namespace nccl_emulated {
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

extern std::set<comm *> comms;
extern uint64_t calls, fail_at, aborted, revoked, shrunk, grown, finalized, state;
extern uint64_t suspended, resumed;
extern nccl_failure failure;
extern bool revoke_fails, invite_fails, suspend_fails;
extern std::atomic<bool> holds;
extern std::atomic<uint64_t> held;
extern int version;

/* --- settings.cc -------------------------------------------------------------------------------- */

void locked(const std::function<void()> &act);
/* Ends the process if NCCL forbids a use. */
void forbid(bool wrong, const char *what);
/* How often something is asked before it is done. */
int draw_lag(void);
/* Counts a call. Returns whether it is to fail. */
bool fails_now(void);

/* --- rooms.cc ----------------------------------------------------------------------------------- */

/* Of all rooms. */
std::string folder(void);

/* --- data.cc ------------------------------------------------------------------------------------ */

/* Writes what a member sends, for the others. */
void give(const comm *c, const call *mine);
/* Computes a member's result from what all have sent. */
void take_all(const comm *c, const call *mine);
} /* namespace nccl_emulated */
#pragma GCC visibility pop
using namespace nccl_emulated;

#endif
