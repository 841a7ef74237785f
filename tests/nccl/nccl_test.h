/* What tests say to the NCCL of the tests (state.h), which they load as a shared object. It does what
 * nccl.h says, among threads and processes of a host, on the streams of tests/cuda: nothing returns a
 * result at once, and any call can fail on schedule. A use that NCCL forbids ends the process.
 *
 * Owner: the process; the emulator's lock guards all of it. */
#ifndef EXO_TEST_NCCL_H
#define EXO_TEST_NCCL_H

#include <stdint.h>

/* How the n-th call fails. */
typedef enum nccl_failure {
    NCCL_RETURNS, /* it returns an error */
    NCCL_LATER,   /* its communicator has an error when it is next asked; the data never comes */
    NCCL_HANGS    /* it never ends */
} nccl_failure;

typedef struct nccl_test {
    /* From now on the n-th call that makes a communicator or moves data fails, counted from 1; 0: none
     * does. */
    void (*fail_at)(uint64_t n, nccl_failure how);
    /* From now on: whether there is ncclCommRevoke, as NCCL says it; and whether it fails. */
    void (*revoke_fails)(int fails);
    /* From now on: whether ncclCommGetUniqueId refuses, as with NCCL_COMM_ID. */
    void (*invite_fails)(int fails);
    /* From now on: whether ncclCommSuspend refuses, as without a memory manager. */
    void (*suspend_fails)(int fails);
    /* The number that ncclGetVersion has. */
    void (*version)(int number);
    /* The seed of how long things take. */
    void (*seed)(uint64_t seed);
    /* From now on: whether ncclCommDestroy waits, at most 30 s, until it is told not to. */
    void (*hold_destroys)(int hold);
    /* Threads that wait there. */
    uint64_t (*held)(void);
    /* Communicators that are there, and calls since the start. */
    uint64_t (*comms)(void);
    uint64_t (*calls)(void);
    /* Communicators that were aborted, revoked, made by shrinking or growing, or finalized. */
    uint64_t (*aborted)(void);
    uint64_t (*revoked)(void);
    uint64_t (*shrunk)(void);
    uint64_t (*grown)(void);
    /* How often one was suspended, or resumed. */
    uint64_t (*suspended)(void);
    uint64_t (*resumed)(void);
    uint64_t (*finalized)(void);
} nccl_test;

#define NCCL_TEST_SYMBOL "nccl_test_calls" /* an nccl_test */

#endif
