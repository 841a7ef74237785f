/* Boards, sets of members, and the buffers that they have mapped: see near.h. Read next:
 * near_wait.c (the steps), near_work.c (the operations). */
#include "comm/near.h"

#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <exogym/memory.h>

#include "actor/hooks.h"
#include "base/parallel.h"
#include "comm/near_impl.h"

enum {
    BELL_BYTES = 64
};

/* Where a board and its bell are, of which layout, and whether their owner has mapped those of all
 * members. */
struct meeting {
    uint64_t start, nonce, bell_nonce;
    uint32_t pid, fd, bell_fd; /* pid 0: no board */
    uint32_t size, good, layout;
};

size_t
exo_near_board_bytes(uint32_t size)
{
    size_t words = sizeof(exo_near_board) + 3 * (size_t)size * sizeof(uint32_t);
    return (words + EXO_NEAR_EDGE - 1) / EXO_NEAR_EDGE * EXO_NEAR_EDGE + 2 * EXO_NEAR_PIECE;
}

char *
exo_near_slot(const exo_near *n, uint32_t rank, unsigned turn)
{
    const exo_near_board *board = rank == n->rank ? n->board : n->peers[rank].board;
    return (char *)(uintptr_t)board + exo_near_board_bytes(n->size) - 2 * EXO_NEAR_PIECE +
           (size_t)turn * EXO_NEAR_PIECE;
}

/* --- Life ------------------------------------------------------------------------------------- */

/* Makes the member's board and its bell, or neither. */
static void
make_board(exo_near *n)
{
    exo_process self;
    /* A process that is not dumpable lets nobody open its memory (docs/decisions/0018). */
    if (prctl(PR_GET_DUMPABLE) != 1 || exo_process_self(&self, NULL) != EXO_OK ||
        exo_segment_create_open(&n->bell_segment, &self, BELL_BYTES, NULL) != EXO_OK ||
        exo_segment_create(&n->segment, &self, exo_near_board_bytes(n->size), 1, NULL) != EXO_OK) {
        exo_segment_release(&n->bell_segment);
        return;
    }
    n->bell = (_Atomic uint32_t *)(void *)exo_segment_slot(&n->bell_segment, 0);
    n->board = (exo_near_board *)(void *)exo_segment_slot(&n->segment, 0);
}

exo_near *
exo_near_new(exo_far *f)
{
    exo_near *n = exo_calloc(1, sizeof *n);
    exo_near_peer *peers = exo_calloc(f->opts.size, sizeof *peers);
    if (!n || !peers) {
        exo_free(n);
        exo_free(peers);
        return NULL;
    }
    *n = (exo_near){.far = f,
                    .size = f->opts.size,
                    .rank = f->opts.rank,
                    .layout = EXO_NEAR_LAYOUT,
                    .said = sizeof(struct meeting),
                    .cores = exo_usable_cores(),
                    .peers = peers};
    for (uint32_t r = 0; r < n->size; r++)
        peers[r].folder = -1;
    make_board(n);
    return n;
}

static void
buffers_free(exo_near_buffers *b)
{
    if (!b)
        return;
    for (unsigned i = 0; i < EXO_NEAR_MEMBERS; i++)
        exo_segment_release(&b->views[i]);
    exo_free(b);
}

void
exo_near_free(exo_near *n)
{
    if (!n)
        return;
    exo_free(n->scratch);
    for (exo_near_set *s = n->sets, *next; s; s = next) {
        next = s->next;
        for (unsigned i = 0; i < EXO_NEAR_BUFFERS; i++)
            buffers_free(s->buffers[i]);
        exo_free(s->ranks);
        exo_free(s);
    }
    for (uint32_t r = 0; r < n->size; r++) {
        exo_segment_release(&n->peers[r].segment);
        exo_segment_release(&n->peers[r].bell_segment);
        if (n->peers[r].folder >= 0)
            close(n->peers[r].folder);
    }
    exo_segment_release(&n->segment);
    exo_segment_release(&n->bell_segment);
    exo_free(n->peers);
    exo_free(n);
}

/* --- Meeting ---------------------------------------------------------------------------------- */

/* Whether messages to the member go by ipc, or stay in this process. A user who asks for tcp wants
 * the bytes on the wire. */
static bool
is_reached_by_ipc(const exo_far *f, uint32_t rank)
{
    void *context = NULL;
    const exo_remote_ops *ops = exo_runtime_remote(f->opts.runtime, &context);
    return !(f->members[rank].id & EXO_REMOTE) ||
           (ops && ops->is_near && ops->is_near(context, f->members[rank]));
}

/* Maps the board and the bell of another member, or neither. */
static bool
map_board(exo_near *n, uint32_t rank, const struct meeting *m)
{
    exo_near_peer *p = &n->peers[rank];
    const exo_process owner = {.id = (pid_t)m->pid, .start = m->start};
    if (p->board)
        return true;
    if (!n->board || m->pid == 0 || m->pid > INT32_MAX || m->fd > INT32_MAX ||
        m->bell_fd > INT32_MAX || m->start == 0 || m->size != n->size || m->layout != n->layout)
        return false;
    if (p->folder < 0 && exo_process_open(&owner, &p->folder, NULL) != EXO_OK)
        return false;
    p->process = owner;
    if (exo_segment_map(&p->segment, &owner, p->folder, (int)m->fd, m->nonce, NULL) == EXO_OK &&
        exo_segment_map_open(&p->bell_segment, &owner, p->folder, (int)m->bell_fd, m->bell_nonce,
                             NULL) == EXO_OK &&
        p->segment.slot_size >= exo_near_board_bytes(n->size) &&
        p->bell_segment.slot_size >= BELL_BYTES) {
        p->bell = (_Atomic uint32_t *)(void *)exo_segment_slot(&p->bell_segment, 0);
        pthread_mutex_lock(&n->far->lock);
        p->board = (const exo_near_board *)(const void *)exo_segment_slot(&p->segment, 0);
        pthread_mutex_unlock(&n->far->lock);
        return true;
    }
    exo_segment_release(&p->segment);
    exo_segment_release(&p->bell_segment);
    return false;
}

/* Reads what another member says, and frees the message. One of another size is of another layout. */
static struct meeting
read_meeting(exo_far_message *m)
{
    struct meeting said = {0};
    if (m->header.bytes == sizeof said)
        memcpy(&said, (const char *)m->payload.data + sizeof(exo_far_header), sizeof said);
    exo_far_message_free(m);
    return said;
}

/* Sends `mine` to the other members, and reads theirs. In the first round maps their boards. */
static exo_status
round_of_meeting(exo_near *n, const exo_collective_args *args, uint32_t phase, exo_time deadline,
                 struct meeting *mine, exo_err *err)
{
    exo_far *f = n->far;
    exo_status st = EXO_OK;
    bool good = true;
    for (uint32_t i = 1; st == EXO_OK && i < args->size; i++) {
        uint32_t to = exo_far_rank_at(args, (args->place + i) % args->size);
        exo_far_header header;
        exo_far_describe(&header, f, to, phase, args, n->said);
        struct meeting said = *mine;
        if (!is_reached_by_ipc(f, to))
            said.pid = said.good = 0;
        st = exo_far_send(f, to, &header, NULL, &said, 0, err);
    }
    for (uint32_t i = 1; st == EXO_OK && i < args->size; i++) {
        uint32_t place = (args->place + i) % args->size;
        exo_far_message *m = exo_far_await(f, phase, place, args, SIZE_MAX, deadline, &st, err);
        if (!m)
            break;
        const struct meeting theirs = read_meeting(m);
        uint32_t rank = exo_far_rank_at(args, place);
        if (phase == EXO_FAR_MEET)
            good = good && is_reached_by_ipc(f, rank) && map_board(n, rank, &theirs);
        else
            good = good && theirs.good == 1;
    }
    mine->good = good && mine->good;
    return st;
}

/* Finds out whether the members of a set share memory. All get the same answer, or an error. */
static exo_status
meet(exo_near *n, exo_near_set *s, const exo_collective_args *args, exo_time deadline, exo_err *err)
{
    struct meeting mine = {.size = n->size, .good = 1, .layout = n->layout};
    if (n->board) {
        mine.pid = (uint32_t)n->segment.owner.id;
        mine.start = n->segment.owner.start;
        mine.nonce = n->segment.nonce;
        mine.fd = (uint32_t)n->segment.file;
        mine.bell_fd = (uint32_t)n->bell_segment.file;
        mine.bell_nonce = n->bell_segment.nonce;
    }
    exo_status st = round_of_meeting(n, args, EXO_FAR_MEET, deadline, &mine, err);
    if (st == EXO_OK)
        st = round_of_meeting(n, args, EXO_FAR_MET, deadline, &mine, err);
    s->near = mine.good;
    return st;
}

exo_near_set *
exo_near_find_set(exo_near *n, const exo_collective_args *args)
{
    for (exo_near_set *s = n->sets; s; s = s->next) {
        bool same = s->size == args->size;
        for (uint32_t m = 0; same && m < s->size; m++)
            same = s->ranks[m] == exo_far_rank_at(args, m);
        if (same)
            return s;
    }
    return NULL;
}

exo_status
exo_near_add_set(exo_near *n, const exo_collective_args *args, exo_time deadline,
                 exo_near_set **out, exo_err *err)
{
    exo_near_set *s = exo_calloc(1, sizeof *s);
    uint32_t *ranks = exo_calloc(args->size, sizeof *ranks);
    if (!s || !ranks) {
        exo_free(s);
        exo_free(ranks);
        return exo_fail(err, EXO_NOMEM, "no memory for a group of %u members", args->size);
    }
    for (uint32_t m = 0; m < args->size; m++)
        ranks[m] = exo_far_rank_at(args, m);
    *s = (exo_near_set){.next = n->sets, .size = args->size, .ranks = ranks};
    n->sets = *out = s;
    return meet(n, s, args, deadline, err);
}

/* --- Buffers ---------------------------------------------------------------------------------- */

/* Frees buffers that their owners have freed; no member uses these again. */
static void
forget_freed(exo_near *n)
{
    for (exo_near_set *s = n->sets; s; s = s->next)
        for (unsigned i = 0; i < EXO_NEAR_BUFFERS; i++) {
            exo_near_buffers *b = s->buffers[i];
            bool freed = false;
            for (uint32_t m = 0; b && m < s->size; m++)
                freed = freed || (b->views[m].base && exo_segment_is_over(&b->views[m]));
            if (!freed)
                continue;
            buffers_free(b);
            s->buffers[i] = NULL;
        }
}

static bool
map_all(exo_near_call *c, exo_near_buffers *b)
{
    bool good = true;
    for (uint32_t m = 0; m < c->args->size; m++) {
        const exo_region_place *place = &c->near->cards[m].place;
        const exo_near_peer *p = &c->near->peers[exo_far_rank_at(c->args, m)];
        b->nonces[m] = place->nonce;
        if (m != c->args->place && good)
            good = place->fd <= INT32_MAX &&
                   exo_segment_map_open(&b->views[m], &p->process, p->folder, (int)place->fd,
                                        place->nonce, NULL) == EXO_OK;
    }
    return good;
}

/* Maps new buffers, and asks whether all members could. */
static exo_near_buffers *
add_buffers(exo_near_call *c, exo_status *st)
{
    exo_near_set *s = c->set;
    forget_freed(c->near);
    exo_near_buffers *b = exo_calloc(1, sizeof *b);
    if (!b) {
        *st = EXO_NOMEM;
        return NULL;
    }
    bool good = map_all(c, b);
    atomic_store(&c->near->board->mapped[c->turn], good);
    exo_near_publish(c, EXO_NEAR_REDUCED);
    *st = exo_near_await_all(c, EXO_NEAR_REDUCED);
    for (uint32_t m = 0; *st == EXO_OK && m < s->size; m++)
        if (m != c->args->place)
            good = good &&
                   atomic_load(
                       &c->near->peers[s->ranks[m]].board->mapped[exo_near_turn_of(c, m)]) == 1;
    if (*st != EXO_OK) {
        buffers_free(b);
        return NULL;
    }
    b->good = good;
    unsigned at = s->next_buffers;
    s->next_buffers = (at + 1) % EXO_NEAR_BUFFERS;
    buffers_free(s->buffers[at]);
    s->buffers[at] = b;
    return b;
}

exo_status
exo_near_map_buffers(exo_near_call *c, exo_near_buffers **out)
{
    exo_near_buffers *found = NULL;
    exo_status st = EXO_OK;
    *out = NULL;
    for (unsigned i = 0; i < EXO_NEAR_BUFFERS && !found; i++) {
        exo_near_buffers *b = c->set->buffers[i];
        bool same = b != NULL;
        for (uint32_t m = 0; same && m < c->args->size; m++)
            same = b->nonces[m] == c->near->cards[m].place.nonce;
        found = same ? b : NULL;
    }
    if (!found)
        found = add_buffers(c, &st);
    if (!found || !found->good)
        return st;
    for (uint32_t m = 0; m < c->args->size; m++)
        if (m != c->args->place &&
            (c->near->cards[m].place.offset > found->views[m].slot_size ||
             c->bytes > found->views[m].slot_size - c->near->cards[m].place.offset))
            return EXO_INVAL;
    *out = found;
    return EXO_OK;
}
