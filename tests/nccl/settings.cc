/* What tests say to the NCCL of the tests (nccl_test.h), its state, and what it says of errors.
 * EXO_NCCL_VERSION is the version. Read next: state.h. */
#include "nccl/state.h"

#include <stdio.h>
#include <stdlib.h>

namespace nccl_emulated {
std::set<comm *> comms;
uint64_t calls, fail_at, aborted, revoked, shrunk, grown, finalized, state = 1;
uint64_t suspended, resumed;
nccl_failure failure;
bool revoke_fails, invite_fails, suspend_fails;
std::atomic<bool> holds;
std::atomic<uint64_t> held;
int version = 23007;
} /* namespace nccl_emulated */

static const char *last_error = "";

__attribute__((constructor)) static void
read_version(void)
{
    const char *number = getenv("EXO_NCCL_VERSION");
    version = number ? atoi(number) : version;
}

void
nccl_emulated::locked(const std::function<void()> &act)
{
    cuda_emulated_locked(act);
}

void
nccl_emulated::forbid(bool wrong, const char *what)
{
    if (wrong) {
        fprintf(stderr, "nccl: %s\n", what);
        abort();
    }
}

int
nccl_emulated::draw_lag(void)
{
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return static_cast<int>((state >> 33) % 4);
}

bool
nccl_emulated::fails_now(void)
{
    calls++;
    const bool fails = fail_at > 0 && --fail_at == 0;
    if (fails && failure == NCCL_RETURNS)
        last_error = "no interface is up";
    return fails;
}

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
