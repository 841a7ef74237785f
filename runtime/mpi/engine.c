/* The engine `mpi`: collectives over point-to-point messages of MPI, summed in rank order.
 *
 * Members may be in any process of the MPI job, several in one, and need not be told where: a
 * member that joins announces itself to all processes. A reduction is a direct exchange, as in the
 * library's engines (comm/far.h): each member sends each other member its part of that member's
 * shard, sums the parts of its own shard with exo_collective_take, and sends the sum to all. Large
 * shards go in rounds. Messages for members of the sender's own process stay within it.
 *
 * Messages carry a header with the group's key, so one communicator of MPI serves all groups, and
 * no call of MPI waits. They own their bytes, since a failed request ends before they have left.
 * Requests match without numbers: MPI keeps the order of messages between two processes, and two
 * members begin the requests in which both take part in the same order.
 *
 * State: the groups and messages of the process, guarded by exo_mpi.lock. Read next: world_impl.h,
 * exogym/engine.h. */
#include <stdio.h>
#include <string.h>

#include <exogym/engine.h>
#include <exogym/memory.h>
#include <exogym/plugin.h>

#include "mpi/world_impl.h"

enum {
    TAG_MESSAGE = 1,
    ROUND_BYTES = 4 << 20, /* the largest piece of a shard in a message */
    TEXT = 256
};

enum kind {
    KIND_JOIN,  /* `from` is in the sender's process */
    KIND_LEAVE, /* `from` takes part no longer */
    KIND_FAIL,  /* the group is broken; the data is the reason */
    KIND_DATA
};

/* The phases of a round. */
enum phase {
    PHASE_BEGIN,
    PHASE_PARTS,   /* parts are on their way to the members that sum them */
    PHASE_RESULTS, /* results, or data that needs no sum, are on their way to all */
    PHASE_SENT     /* everything has arrived here, and must have left here */
};

struct header {
    char key[64];
    uint64_t round, count; /* of the request; elements */
    uint32_t kind, phase, from, to;
    uint32_t operation, dtype, root; /* with `count`: members must agree */
    char pad[20];
};
_Static_assert(sizeof(struct header) % 16 == 0, "the data is aligned like other memory");

struct message {
    struct message *next;
    MPI_Request request; /* of its transmission */
    uint32_t *sending;   /* counts the messages of a member that have not left; NULL: not counted */
    size_t bytes;        /* header and data */
    struct header head;
    char data[];
};

struct member {
    bool here, left;
    int process; /* -1: not announced yet */
    uint32_t sending;
};

struct group {
    struct group *next;
    char key[64];
    unsigned references;
    uint32_t size;
    struct member *members; /* (size) */
    struct message *inbox;  /* data for members of this process */
    exo_err broken;         /* code OK: not broken */
};

static struct group *groups;
static struct message *outgoing, *incoming;
static struct message *unclaimed; /* for groups that this process has not opened yet */

/* --- Messages --------------------------------------------------------------------------------- */

static void
append(struct message **list, struct message *m)
{
    while (*list)
        list = &(*list)->next;
    m->next = NULL;
    *list = m;
}

static struct group *
find_group(const char *key)
{
    struct group *g = groups;
    while (g && strcmp(g->key, key) != 0)
        g = g->next;
    return g;
}

static void
break_group(struct group *g, exo_status status, const char *why)
{
    if (g->broken.code == EXO_OK)
        exo_fail(&g->broken, status, "%s", why);
}

/* Takes a message that has arrived. */
static void
deliver(struct message *m)
{
    struct group *g = find_group(m->head.key);
    struct member *from = g && m->head.from < g->size ? &g->members[m->head.from] : NULL;
    if (!g) {
        append(&unclaimed, m);
        return;
    }
    if (from && m->head.kind == KIND_DATA) {
        append(&g->inbox, m);
        return;
    }
    if (from && m->head.kind == KIND_JOIN)
        from->process = (int)m->head.to; /* the sender's process */
    if (from && m->head.kind == KIND_LEAVE)
        from->left = true;
    if (from && m->head.kind == KIND_FAIL)
        break_group(g, EXO_PEER_LOST, m->data);
    exo_free(m);
}

/* Sends a message to a process, which then owns it. */
static void
post(struct message *m, int process, uint32_t *sending)
{
    if (process == exo_mpi.rank) {
        deliver(m);
        return;
    }
    m->sending = sending;
    if (sending)
        ++*sending;
    MPI_Isend(&m->head, (int)(m->bytes), MPI_BYTE, process, TAG_MESSAGE, exo_mpi.messages,
              &m->request);
    append(&outgoing, m);
}

/* Makes a message with room for `bytes`. NULL: no memory. */
static struct message *
new_message(const struct group *g, enum kind kind, uint32_t from, size_t bytes)
{
    struct message *m = exo_calloc(1, sizeof *m + bytes);
    if (!m)
        return NULL;
    m->bytes = sizeof m->head + bytes;
    m->head.kind = kind;
    m->head.from = from;
    memcpy(m->head.key, g->key, sizeof g->key);
    return m;
}

/* Tells all processes. Without memory it tells some: the others' deadlines remain. */
static void
tell_all(const struct group *g, enum kind kind, uint32_t from, const char *text)
{
    for (int p = 0; p < exo_mpi.size; p++) {
        struct message *m = new_message(g, kind, from, TEXT);
        if (!m)
            return;
        snprintf(m->data, TEXT, "%s", text);
        m->head.to = (uint32_t)exo_mpi.rank;
        post(m, p, NULL);
    }
}

static void
finish_sends(void)
{
    for (struct message **at = &outgoing; *at;) {
        struct message *m = *at;
        int done = 0;
        MPI_Test(&m->request, &done, MPI_STATUS_IGNORE);
        if (!done) {
            at = &m->next;
            continue;
        }
        if (m->sending)
            --*m->sending;
        *at = m->next;
        exo_free(m);
    }
}

/* Delivers messages in the order in which their transmission began: an announcement, and an end,
 * keep their places among a member's data. */
static void
finish_receives(void)
{
    while (incoming) {
        struct message *m = incoming;
        int done = 0;
        MPI_Test(&m->request, &done, MPI_STATUS_IGNORE);
        if (!done)
            return;
        incoming = m->next;
        deliver(m);
    }
}

void
exo_mpi_move(void)
{
    for (;;) {
        int there = 0, bytes = 0;
        MPI_Message handle;
        MPI_Status status;
        MPI_Improbe(MPI_ANY_SOURCE, TAG_MESSAGE, exo_mpi.messages, &there, &handle, &status);
        if (!there)
            break;
        MPI_Get_count(&status, MPI_BYTE, &bytes);
        struct message *m = exo_calloc(1, sizeof *m + (size_t)bytes);
        if (!m) /* the sender would wait for ever, and nobody could be told why */
            MPI_Abort(exo_mpi.messages, 1);
        m->bytes = (size_t)bytes;
        MPI_Imrecv(&m->head, bytes, MPI_BYTE, &handle, &m->request);
        append(&incoming, m);
    }
    finish_receives();
    finish_sends();
}

/* --- A request -------------------------------------------------------------------------------- */

static uint32_t
rank_at(const exo_collective_args *a, uint32_t place)
{
    return a->ranks ? a->ranks[place] : place;
}

static bool
is_reduction(const exo_collective_args *a)
{
    return a->operation == EXO_ALL_REDUCE || a->operation == EXO_REDUCE_SCATTER;
}

/* Does the member at `place` send results, or data that needs no sum, to the one at `to`? */
static bool
gives(const exo_collective_args *a, uint32_t place, uint32_t to)
{
    if (a->operation == EXO_SHIFT)
        return to == exo_shift_target(a, place);
    return a->operation == EXO_BROADCAST ? place == a->root : a->operation != EXO_REDUCE_SCATTER;
}

/* Does each member bring other data for each other one? */
static bool
has_blocks(const exo_collective_args *a)
{
    return a->operation == EXO_ALL_TO_ALL || a->operation == EXO_SWAP;
}

/* Does a member bring its whole data? */
static bool
is_whole(const exo_collective_args *a)
{
    return a->operation == EXO_BROADCAST || a->operation == EXO_SWAP || a->operation == EXO_SHIFT;
}

/* The elements that the member at `place` sums, or brings, in a round; or those for it, where each
 * has its own. */
static void
piece_of(const exo_collective_args *a, uint32_t place, uint64_t round, size_t *at, size_t *count)
{
    size_t first = 0, length = a->count, most = ROUND_BYTES / exo_dtype_size(a->dtype);
    if (!is_whole(a))
        exo_shard(a->count, a->size, place, &first, &length);
    size_t skip = round * most < length ? (size_t)round * most : length;
    *at = first + skip;
    *count = length - skip < most ? length - skip : most;
}

static uint64_t
rounds_of(const exo_collective_args *a)
{
    size_t first = 0, length = a->count, most = ROUND_BYTES / exo_dtype_size(a->dtype);
    if (!is_whole(a))
        exo_shard(a->count, a->size, 0, &first, &length); /* the longest */
    return length > most ? (length + most - 1) / most : 1;
}

/* Sends elements of the member's data to the member at `place`. */
static exo_status
send_data(struct group *g, uint32_t rank, const exo_engine_request *r, uint32_t place, size_t at,
          size_t count, enum phase phase)
{
    const exo_collective_args *a = &r->args;
    const size_t size = exo_dtype_size(a->dtype);
    struct message *m = new_message(g, KIND_DATA, rank, count * size);
    if (!m)
        return EXO_NOMEM;
    m->head.to = rank_at(a, place);
    m->head.round = r->number;
    m->head.phase = phase;
    m->head.count = a->count;
    m->head.operation = a->operation;
    m->head.dtype = a->dtype;
    m->head.root = a->root;
    if (count > 0)
        memcpy(m->data, (const char *)a->data + at * size, count * size);
    post(m, g->members[m->head.to].process, &g->members[rank].sending);
    return EXO_OK;
}

/* The link to the first message from the member at `place`; NULL: there is none. */
static struct message **
find_data(struct group *g, uint32_t rank, const exo_engine_request *r, uint32_t place)
{
    struct message **m = &g->inbox;
    while (*m && ((*m)->head.to != rank || (*m)->head.from != rank_at(&r->args, place)))
        m = &(*m)->next;
    return *m ? m : NULL;
}

static void
drop_data(struct message **at)
{
    struct message *m = *at;
    *at = m->next;
    exo_free(m);
}

/* Checks that a message is that of this phase of the request. */
static exo_status
check_data(const struct message *m, const exo_engine_request *r, enum phase phase, size_t count,
           exo_err *err)
{
    const exo_collective_args *a = &r->args;
    const struct header *h = &m->head;
    if (h->count == a->count && h->operation == (uint32_t)a->operation &&
        h->dtype == (uint32_t)a->dtype && h->root == a->root && h->round == r->number &&
        h->phase == phase && m->bytes == sizeof *h + count * exo_dtype_size(a->dtype))
        return EXO_OK;
    return exo_fail(err, EXO_INVAL, "rank %u calls %s of %llu elements, rank %u another call",
                    h->to, exo_collective_name(a->operation), (unsigned long long)a->count,
                    h->from);
}

/* Looks whether the messages of this phase are there, from all others or from the root. */
static exo_status
look_for(struct group *g, uint32_t rank, const exo_engine_request *r, enum phase phase, bool *all,
         exo_err *err)
{
    const exo_collective_args *a = &r->args;
    exo_status st = EXO_OK;
    *all = true;
    for (uint32_t p = 0; st == EXO_OK && p < a->size; p++) {
        size_t at, count;
        if (p == a->place || (phase == PHASE_RESULTS && !gives(a, p, a->place)))
            continue;
        struct message **m = find_data(g, rank, r, p);
        *all = *all && m;
        piece_of(a, phase == PHASE_PARTS ? a->place : p, r->number, &at, &count);
        if (m)
            st = check_data(*m, r, phase, count, err);
        else if (g->members[rank_at(a, p)].left)
            st = exo_fail(err, EXO_PEER_LOST, "rank %u has left", rank_at(a, p));
    }
    return st;
}

static exo_status
send_parts(struct group *g, uint32_t rank, exo_engine_request *r)
{
    const exo_collective_args *a = &r->args;
    exo_status st = EXO_OK;
    for (uint32_t p = 0; st == EXO_OK && is_reduction(a) && p < a->size; p++) {
        size_t at, count;
        piece_of(a, p, r->number, &at, &count);
        if (p != a->place)
            st = send_data(g, rank, r, p, at, count, PHASE_PARTS);
    }
    return st;
}

/* Sums the parts of this member's piece. */
static exo_status
sum_parts(struct group *g, uint32_t rank, exo_engine_request *r)
{
    const exo_collective_args *a = &r->args;
    const size_t size = exo_dtype_size(a->dtype);
    size_t at, count;
    piece_of(a, a->place, r->number, &at, &count);
    void **parts = exo_calloc(a->size, sizeof *parts);
    char *own = exo_calloc(count + 1, size);
    if (parts && own) {
        if (count > 0)
            memcpy(own, (char *)a->data + at * size, count * size);
        for (uint32_t p = 0; p < a->size; p++)
            parts[p] = p == a->place ? own : (void *)(*find_data(g, rank, r, p))->data;
        exo_collective_take(a, at, count, parts);
        for (uint32_t p = 0; p < a->size; p++)
            if (p != a->place)
                drop_data(find_data(g, rank, r, p));
    }
    exo_status st = parts && own ? EXO_OK : EXO_NOMEM;
    exo_free(own);
    exo_free(parts);
    return st;
}

static exo_status
send_results(struct group *g, uint32_t rank, exo_engine_request *r)
{
    const exo_collective_args *a = &r->args;
    exo_status st = EXO_OK;
    for (uint32_t p = 0; st == EXO_OK && p < a->size; p++) {
        size_t at, count;
        piece_of(a, has_blocks(a) ? p : a->place, r->number, &at, &count);
        if (p != a->place && gives(a, a->place, p))
            st = send_data(g, rank, r, p, at, count, PHASE_RESULTS);
    }
    return st;
}

static void
take_results(struct group *g, uint32_t rank, exo_engine_request *r)
{
    const exo_collective_args *a = &r->args;
    const size_t size = exo_dtype_size(a->dtype);
    for (uint32_t p = 0; p < a->size; p++) {
        size_t at, count;
        if (p == a->place || !gives(a, p, a->place))
            continue;
        piece_of(a, p, r->number, &at, &count);
        struct message **m = find_data(g, rank, r, p);
        if (count > 0)
            memcpy((char *)a->data + at * size, (*m)->data, count * size);
        drop_data(m);
    }
}

/* Does the next thing of a round. *stuck: it needs messages that are not there yet. */
static exo_status
step(struct group *g, uint32_t rank, exo_engine_request *r, bool *done, bool *stuck, exo_err *err)
{
    exo_status st = EXO_OK;
    bool all = true;
    switch ((enum phase)r->state) {
    case PHASE_BEGIN:
        st = send_parts(g, rank, r);
        r->state = PHASE_PARTS;
        break;
    case PHASE_PARTS:
        if (is_reduction(&r->args))
            st = look_for(g, rank, r, PHASE_PARTS, &all, err);
        if (st == EXO_OK && all && is_reduction(&r->args))
            st = sum_parts(g, rank, r);
        if (st == EXO_OK && all) {
            st = send_results(g, rank, r);
            r->state = PHASE_RESULTS;
        }
        break;
    case PHASE_RESULTS:
        st = look_for(g, rank, r, PHASE_RESULTS, &all, err);
        if (st == EXO_OK && all) {
            take_results(g, rank, r);
            bool last = ++r->number == rounds_of(&r->args);
            r->state = last ? PHASE_SENT : PHASE_BEGIN;
        }
        break;
    case PHASE_SENT:
        /* what has not left needs this process's calls, which may not come for long */
        all = g->members[rank].sending == 0;
        *done = all;
        break;
    }
    *stuck = !all;
    return st == EXO_NOMEM ? exo_fail(err, st, "no memory for a message") : st;
}

static bool
all_are_there(const struct group *g)
{
    uint32_t i = 0;
    while (i < g->size && g->members[i].process >= 0)
        i++;
    return i == g->size;
}

static exo_status
advance(void *group, uint32_t rank, exo_engine_request *r, bool *done, exo_err *err)
{
    struct group *g = group;
    exo_status st = EXO_OK;
    bool stuck = false;
    pthread_mutex_lock(&exo_mpi.lock);
    exo_mpi_move();
    while (st == EXO_OK && !*done && !stuck) {
        if (g->broken.code != EXO_OK)
            st = exo_fail(err, g->broken.code, "%s", g->broken.text);
        else if (!all_are_there(g))
            stuck = true;
        else
            st = step(g, rank, r, done, &stuck, err);
    }
    if (st != EXO_OK && g->broken.code == EXO_OK) {
        break_group(g, st, err ? err->text : "");
        tell_all(g, KIND_FAIL, rank, g->broken.text);
    }
    pthread_mutex_unlock(&exo_mpi.lock);
    return st;
}

/* --- Groups ----------------------------------------------------------------------------------- */

static void
free_list(struct message **list)
{
    while (*list)
        drop_data(list);
}

static void
free_group(struct group *g)
{
    free_list(&g->inbox);
    exo_free(g->members);
    exo_free(g);
}

static struct group *
new_group(const exo_engine_opts *opts)
{
    struct group *g = exo_calloc(1, sizeof *g);
    if (!g)
        return NULL;
    g->members = exo_calloc(opts->size, sizeof *g->members);
    if (!g->members) {
        free_group(g);
        return NULL;
    }
    g->size = opts->size;
    snprintf(g->key, sizeof g->key, "%s", opts->key);
    for (uint32_t i = 0; i < opts->size; i++)
        g->members[i].process = -1;
    g->next = groups;
    groups = g;
    struct message *waiting = unclaimed;
    unclaimed = NULL;
    while (waiting) { /* those of other groups become unclaimed again, in their order */
        struct message *m = waiting;
        waiting = m->next;
        deliver(m);
    }
    return g;
}

static exo_status
open_group(void **group, const exo_engine_opts *opts, exo_err *err)
{
    pthread_mutex_lock(&exo_mpi.lock);
    exo_status st = exo_mpi_start(err);
    struct group *g = st == EXO_OK ? find_group(opts->key) : NULL;
    if (st == EXO_OK && !g)
        g = new_group(opts);
    if (st == EXO_OK && !g)
        st = exo_fail(err, EXO_NOMEM, "no memory for a group of %u", opts->size);
    if (g && g->size != opts->size)
        st = exo_fail(err, EXO_INVAL, "group %s has %u members, not %u", opts->key, g->size,
                      opts->size);
    else if (g)
        g->references++;
    *group = st == EXO_OK ? g : NULL;
    pthread_mutex_unlock(&exo_mpi.lock);
    return st;
}

/* Messages that come after the end, such as a late goodbye, stay unclaimed until the process ends:
 * few bytes a group. */
static void
close_group(void *group)
{
    struct group *g = group, **at = &groups;
    pthread_mutex_lock(&exo_mpi.lock);
    if (--g->references == 0) {
        while (*at != g)
            at = &(*at)->next;
        *at = g->next;
        for (struct message *m = outgoing; m; m = m->next)
            for (uint32_t i = 0; i < g->size; i++)
                m->sending = m->sending == &g->members[i].sending ? NULL : m->sending;
        free_group(g);
    }
    pthread_mutex_unlock(&exo_mpi.lock);
}

static exo_status
join(void *group, uint32_t rank, const char *name, exo_err *err)
{
    struct group *g = group;
    (void)name;
    exo_status st = EXO_OK;
    pthread_mutex_lock(&exo_mpi.lock);
    if (g->members[rank].here || g->members[rank].process >= 0)
        st = exo_fail(err, EXO_EXISTS, "rank %u is taken", rank);
    g->members[rank].here = true;
    if (st == EXO_OK)
        tell_all(g, KIND_JOIN, rank, "");
    pthread_mutex_unlock(&exo_mpi.lock);
    return st;
}

static void
leave(void *group, uint32_t rank)
{
    pthread_mutex_lock(&exo_mpi.lock);
    tell_all(group, KIND_LEAVE, rank, "");
    exo_mpi_move();
    pthread_mutex_unlock(&exo_mpi.lock);
}

static void
fail(void *group, uint32_t rank, const char *cause)
{
    struct group *g = group;
    pthread_mutex_lock(&exo_mpi.lock);
    if (g->broken.code == EXO_OK) {
        char text[TEXT];
        snprintf(text, sizeof text, "rank %u: %s", rank, cause);
        break_group(g, EXO_PEER_LOST, text);
        tell_all(g, KIND_FAIL, rank, text);
        exo_mpi_move();
    }
    pthread_mutex_unlock(&exo_mpi.lock);
}

EXO_PLUGIN
{
    static const exo_engine_class mpi = {
        .name = "mpi",
        .help = "MPI, among the processes that mpirun or srun has started",
        .dtypes = EXO_ENGINE_ALL_DTYPES,
        .promises = EXO_ENGINE_ORDERED | EXO_ENGINE_SOME | EXO_ENGINE_PROCESSES | EXO_ENGINE_HOSTS |
                    EXO_ENGINE_BLOCKS | EXO_ENGINE_SHIFT,
        .open = open_group,
        .close = close_group,
        .join = join,
        .leave = leave,
        .fail = fail,
        .advance = advance};
    return exo_engine_register(&mpi, err);
}
