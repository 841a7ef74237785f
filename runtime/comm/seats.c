/* The seats of a communicator: see seats.h. */
#include "comm/seats.h"

#include <exogym/memory.h>

struct seat {
    uint64_t begun;  /* calls of all members that it has begun */
    uint64_t awaits; /* the call that it waits for; 0: none */
    exo_collective operation;
    exo_time since;
};

struct exo_comm_seats {
    pthread_mutex_t lock;
    uint32_t size;
    bool whole, broken;
    struct seat seats[];
};

exo_status
exo_comm_seats_new(struct exo_comm_seats **out, uint32_t size, bool whole, exo_err *err)
{
    struct exo_comm_seats *s = exo_calloc(1, sizeof *s + size * sizeof s->seats[0]);
    *out = s;
    if (!s)
        return exo_fail(err, EXO_NOMEM, "no memory for a communicator of %u", size);
    pthread_mutex_init(&s->lock, NULL);
    s->size = size;
    s->whole = whole;
    return EXO_OK;
}

void
exo_comm_seats_free(struct exo_comm_seats **seats)
{
    if (*seats)
        pthread_mutex_destroy(&(*seats)->lock);
    exo_free(*seats);
    *seats = NULL;
}

uint64_t
exo_comm_seats_begin(struct exo_comm_seats *s, uint32_t rank, const exo_collective_args *args)
{
    if (!s || args->size < s->size)
        return 0;
    pthread_mutex_lock(&s->lock);
    const uint64_t number = ++s->seats[rank].begun;
    pthread_mutex_unlock(&s->lock);
    return number;
}

void
exo_comm_seats_wait(struct exo_comm_seats *s, uint32_t rank, uint64_t number,
                    exo_collective operation, exo_time since)
{
    if (!s)
        return;
    pthread_mutex_lock(&s->lock);
    s->seats[rank].awaits = number;
    s->seats[rank].operation = operation;
    s->seats[rank].since = since;
    pthread_mutex_unlock(&s->lock);
}

void
exo_comm_seats_break(struct exo_comm_seats *s)
{
    if (!s)
        return;
    pthread_mutex_lock(&s->lock);
    s->broken = true;
    pthread_mutex_unlock(&s->lock);
}

/* What the member knows of the others: nothing. */
static void
count_calls(const struct exo_comm_seats *s, const struct seat *seat, uint64_t *counts)
{
    for (uint32_t r = 0; r < s->size; r++) {
        counts[r] = seat->begun;
        counts[s->size + r] = seat->awaits ? seat->awaits - 1 : seat->begun;
    }
}

void
exo_comm_seats_look(struct exo_comm_seats *s, uint32_t rank, exo_comm_look *look, uint32_t *missing,
                    uint64_t *counts)
{
    pthread_mutex_lock(&s->lock);
    const struct seat *seat = &s->seats[rank];
    look->inside = seat->awaits > 0;
    look->operation = exo_collective_name(seat->operation);
    look->number = seat->awaits;
    look->since = seat->since;
    for (uint32_t r = 0; r < s->size && look->inside && !s->broken; r++)
        if (s->whole ? s->seats[r].begun < seat->awaits : r != rank)
            missing[look->num_missing++] = r;
    look->waits = look->num_missing > 0;
    look->counts = look->unsure = !s->whole;
    if (!s->whole)
        count_calls(s, seat, counts);
    pthread_mutex_unlock(&s->lock);
}
