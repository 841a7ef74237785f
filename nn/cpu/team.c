/* Teams: see team.h. The counters of a loop are atomic; exo_team_go alone changes the rest. */
#include "nn/cpu/team.h"

#include <assert.h>
#include <sched.h>
#include <stdatomic.h>

#include <exogym/memory.h>
#include <exogym/tensor.h>

#include "base/crowd.h"
#include "base/parallel.h"

enum {
    LINE = 64,
    SPINS = 2000 /* before a member yields the processor */
};

/* Each counter has a cache line of its own: members change them at different moments. */
struct loop {
    _Alignas(LINE) atomic_size_t next; /* the first item that no member has taken */
    _Alignas(LINE) atomic_size_t done;
};

struct exo_team {
    struct loop *loops;
    size_t count;
    void (*body)(void *context, exo_member *member);
    void *context;
};

exo_status
exo_team_new(exo_team **out, size_t loops, exo_err *err)
{
    exo_team *team = exo_calloc(1, sizeof *team);
    if (team) {
        team->count = loops;
        team->loops = loops <= SIZE_MAX / sizeof *team->loops
                          ? exo_alloc_aligned(loops * sizeof *team->loops)
                          : NULL;
    }
    if (!team || !team->loops) {
        exo_team_free(&team);
        return exo_fail(err, EXO_NOMEM, "no memory for a team of %zu loops", loops);
    }
    *out = team;
    return EXO_OK;
}

void
exo_team_free(exo_team **team)
{
    if (!*team)
        return;
    exo_free((*team)->loops);
    exo_free(*team);
    *team = NULL;
}

static void
join(void *context, size_t index)
{
    (void)index;
    exo_team *team = context;
    exo_member member = {.team = team};
    team->body(team->context, &member);
}

void
exo_team_go(exo_team *team, void (*body)(void *context, exo_member *member), void *context)
{
    for (size_t i = 0; i < team->count; i++) {
        atomic_init(&team->loops[i].next, 0);
        atomic_init(&team->loops[i].done, 0);
    }
    team->body = body;
    team->context = context;
    exo_parallel_for(exo_num_threads(), join, team);
}

void
exo_team_run(exo_member *member, size_t count, void (*item)(void *context, size_t index),
             void *context)
{
    assert(member->loop < member->team->count);
    struct loop *loop = &member->team->loops[member->loop++];
    for (;;) {
        size_t i = atomic_fetch_add_explicit(&loop->next, 1, memory_order_relaxed);
        if (i >= count)
            break;
        item(context, i);
        atomic_fetch_add_explicit(&loop->done, 1, memory_order_release);
    }
    for (unsigned spins = 0; atomic_load_explicit(&loop->done, memory_order_acquire) < count;
         spins++) {
        exo_relax();
        if (spins >= SPINS) {
            sched_yield();
            spins = 0;
        }
    }
}
