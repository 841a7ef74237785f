/* The inside of the calls through shared memory: see near.h. Owner of all of it: the thread that
 * makes the member's calls, except where a member of a struct says otherwise. */
#ifndef EXO_COMM_NEAR_IMPL_H
#define EXO_COMM_NEAR_IMPL_H

#include <stdatomic.h>

#include "base/crowd.h"
#include "comm/near.h"

#include "store/region.h"

/* The steps of a window. A window is one use of the boards: a small call, the beginning of a larger
 * one, or a piece of a staged one. Step k of the window w of a pair of members is 4 w + k. */
enum {
    EXO_NEAR_HERE = 1,    /* the member has come, and its data is there */
    EXO_NEAR_REDUCED = 2, /* its part is reduced; or it has tried to map the buffers */
    EXO_NEAR_DONE = 3,    /* it reads and writes nothing of this window any more */
};

/* The layout of the boards, of what is on them, and of `struct meeting`: another number with each change
 * of them, or of what the operations and types are. Members with another layout, as of another exogym,
 * exchange messages. */
enum {
    EXO_NEAR_LAYOUT = 1
};

/* What a member says about its call. */
typedef struct exo_near_card {
    uint64_t count;
    uint32_t operation, dtype, reduce, root, members, pad;
    exo_region_place place; /* of its buffer; nonce 0: none */
} exo_near_card;

/* A member's board. Others read each word once and check it. What changes with each call has lines of
 * the cache of its own. */
typedef struct exo_near_board {
    _Atomic uint32_t failed;    /* status; the reason stands before it is set. 0: not failed */
    _Atomic uint32_t sleeping;  /* 1 plus the rank whose step the member sleeps for; 0: awake */
    _Atomic uint32_t mapped[2]; /* by turn: 1: the member could map all buffers */
    _Atomic uint32_t core;      /* that the member was on when it came to its call */
    char reason[EXO_ERR_TEXT];
    _Alignas(64) exo_near_card cards[2]; /* by turn */
    /* (size) steps for each other member, (2 size) the turns of even and of odd windows */
    _Alignas(64) _Atomic uint32_t words[];
} exo_near_board;

/* The members that read a turn of this member's board, and the step of each when it is done. */
typedef struct exo_near_use {
    uint32_t count;
    uint32_t ranks[EXO_NEAR_MEMBERS], steps[EXO_NEAR_MEMBERS];
} exo_near_use;

/* Another member. */
typedef struct exo_near_peer {
    exo_segment segment; /* its board's; zero until mapped */
    const exo_near_board *board;
    exo_segment bell_segment;
    _Atomic uint32_t *bell; /* there if the board is */
    exo_process process;
    int folder;       /* of /proc; -1: none */
    uint32_t windows; /* with this member, so far */
} exo_near_peer;

/* Buffers that a set of members has used together. */
typedef struct exo_near_buffers {
    uint64_t nonces[EXO_NEAR_MEMBERS]; /* 0 in the first: unused */
    exo_segment views[EXO_NEAR_MEMBERS];
    bool good; /* all members have mapped all */
} exo_near_buffers;

enum {
    EXO_NEAR_BUFFERS = 8
};

/* A set of members that has called. */
typedef struct exo_near_set {
    struct exo_near_set *next;
    uint32_t size;
    uint32_t *ranks; /* (size) */
    bool near;       /* its calls go through shared memory */
    unsigned next_buffers;
    exo_near_buffers *buffers[EXO_NEAR_BUFFERS];
} exo_near_set;

struct exo_near {
    exo_far *far;
    uint32_t size, rank;
    uint32_t layout; /* EXO_NEAR_LAYOUT; tests have others */
    uint32_t said;   /* bytes of a `struct meeting`; tests have others */
    unsigned cores;  /* that this process may use */
    exo_crowd crowd;
    exo_segment segment; /* of this member's board; zero: it cannot have one */
    exo_near_board *board;
    exo_segment bell_segment;
    _Atomic uint32_t *bell; /* there if the board is; any thread may ring it */
    exo_near_peer *peers;   /* (size) */
    /* The word that the member sleeps for, and its step; NULL: it does not. Guarded by the lock of
     * `far`, as the peers' `board`, which the owner reads without it. */
    const _Atomic uint32_t *awaited;
    uint32_t awaited_step;
    exo_near_set *sets;
    unsigned turn; /* of the next window */
    exo_near_use uses[2];
    exo_near_card cards[EXO_NEAR_MEMBERS]; /* of the members of the present call, as read */
    /* (size, EXO_REDUCE_BLOCK) of the largest type, for sums in the order of a way; NULL: none yet */
    char *scratch;
};

/* The present call. */
typedef struct exo_near_call {
    exo_near *near;
    exo_near_set *set;
    const exo_collective_args *args;
    exo_time deadline;
    size_t bytes;  /* of the buffer */
    unsigned turn; /* of the present window */
    bool exposed;  /* others may have begun to write to this member's buffer */
} exo_near_call;

/* Sleeps until the bell's count is another than `value`, or for `most`; near_futex.c. */
void exo_near_sleep_on(const _Atomic uint32_t *bell, uint32_t value, exo_time most);
/* Counts, and wakes the sleeper. */
void exo_near_ring(_Atomic uint32_t *bell);

/* near_meet.c. NULL: no memory. */
exo_near *exo_near_new(exo_far *far);
/* The set of the members of a call; NULL: it is their first call. exo_near_add_set finds out, with
 * the other members, whether the set is near. Errors: NOMEM, those of messages. */
exo_near_set *exo_near_find_set(exo_near *near, const exo_collective_args *args);
exo_status exo_near_add_set(exo_near *near, const exo_collective_args *args, exo_time deadline,
                            exo_near_set **out, exo_err *err);

/* The data of a turn on a board. */
char *exo_near_slot(const exo_near *near, uint32_t rank, unsigned turn);
/* Bytes of a board of a communicator of `size`. */
size_t exo_near_board_bytes(uint32_t size);

/* Begins a window: takes a turn whose readers are done. Then the data is written, and
 * exo_near_publish follows. */
exo_status exo_near_open_window(exo_near_call *call);
void exo_near_close_window(exo_near_call *call);
/* Says to all members of the call that this one has come to a step of the present window. */
void exo_near_publish(exo_near_call *call, uint32_t step);
/* Waits until the member at a place, or all others, have come to a step of the present window.
 * After an error the communicator is broken. */
exo_status exo_near_await(exo_near_call *call, uint32_t place, uint32_t step);
exo_status exo_near_await_all(exo_near_call *call, uint32_t step);
/* The turn of the present window on the board of the member at a place. */
unsigned exo_near_turn_of(const exo_near_call *call, uint32_t place);
/* Fails if a member of the call has failed; after reads from buffers of others. */
exo_status exo_near_check(exo_near_call *call);
/* Ends a failed call: tells the others, and protects the buffer from late writers. */
void exo_near_fail(exo_near_call *call);

/* Maps the buffers of the members. False: they are not all mapped by all. */
exo_status exo_near_map_buffers(exo_near_call *call, exo_near_buffers **out);

/* The call of a set that is near. */
exo_status exo_near_do(exo_near_call *call);

#endif
