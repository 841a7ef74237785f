/* An engine over POSIX shared memory: README.md. Each member has a slot in a segment that all map, and counts the chunks that it has
 * put into it and taken from all. It puts one when all have taken the last, and takes one when all have put theirs. */
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <exogym/exogym.h>

enum {
    CHUNK = 1 << 18,
    MEMBERS = 64,
    HERE = 1,
    LEFT = 2,
    OVER = 1
};

struct segment {
    _Atomic uint64_t put[MEMBERS], taken[MEMBERS];
    _Atomic uint32_t place[MEMBERS], joined, broken; /* broken: a status, and the rank in the upper 24 bits */
    char slots[MEMBERS][CHUNK];                      /* memory only where members write */
};

struct group {
    struct segment *s;
    exo_engine_opts opts;
    char name[80];
    exo_engine_request *first[MEMBERS]; /* begun by members of this process, in order */
};

static void
break_all(struct group *g, uint32_t rank, exo_status st)
{
    uint32_t none = EXO_OK;
    atomic_compare_exchange_strong(&g->s->broken, &none, (uint32_t)st | rank << 8);
}

static bool
all_at(struct group *g, _Atomic uint64_t *counts, uint64_t want)
{
    for (uint32_t q = 0; q < g->opts.size; q++)
        if (counts[q] < want) {
            if (g->s->place[q] == LEFT && counts[q] < want)
                break_all(g, q, EXO_PEER_LOST);
            return false;
        }
    return true;
}

/* Elements [at, at + n) of the result, from all slots. */
static void
take(const struct group *g, const exo_collective_args *a, size_t at, size_t n, size_t size)
{
    float *sum = (float *)a->data + at;
    for (uint32_t q = 0; q < g->opts.size; q++) {
        const float *slot = (const float *)g->s->slots[q];
        size_t first = 0, length = q == a->root ? a->count : 0;
        for (size_t i = 0; a->operation <= EXO_REDUCE_SCATTER && i < n; i++)
            sum[i] = q == 0 ? slot[i] : sum[i] + slot[i];
        if (a->operation == EXO_ALL_GATHER)
            exo_shard(a->count, g->opts.size, q, &first, &length);
        size_t from = first > at ? first : at, to = first + length < at + n ? first + length : at + n;
        if (a->operation > EXO_REDUCE_SCATTER && from < to)
            memcpy((char *)a->data + from * size, g->s->slots[q] + (from - at) * size, (to - from) * size);
    }
    for (size_t i = 0; a->reduce == EXO_MEAN && a->operation <= EXO_REDUCE_SCATTER && i < n; i++)
        sum[i] /= (float)g->opts.size;
}

/* Goes on with a request as far as it can; r->number elements are done. Whether it is over. */
static bool
advance(struct group *g, uint32_t rank, exo_engine_request *r)
{
    struct segment *s = g->s;
    size_t size = exo_dtype_size(r->args.dtype);
    while (r->state != OVER && !s->broken) {
        size_t left = r->args.count - r->number, n = left < CHUNK / size ? left : CHUNK / size;
        if (s->put[rank] == s->taken[rank]) {
            if (!all_at(g, s->taken, s->taken[rank]))
                return false;
            if (n > 0)
                memcpy(s->slots[rank], (char *)r->args.data + r->number * size, n * size);
            s->put[rank]++;
        }
        if (!all_at(g, s->put, s->put[rank]))
            return false;
        take(g, &r->args, r->number, n, size);
        s->taken[rank]++;
        r->number += n;
        r->state = r->number == r->args.count ? OVER : 0;
    }
    return r->state == OVER;
}

static exo_status
test(void *group, uint32_t rank, exo_engine_request *r, bool *done, exo_err *err)
{
    struct group *g = group;
    while (g->first[rank] && advance(g, rank, g->first[rank]))
        g->first[rank] = g->first[rank]->next;
    *done = r->state == OVER;
    if (!*done && exo_now(g->opts.clock) >= r->deadline)
        break_all(g, rank, EXO_TIMEOUT);
    uint32_t broken = *done ? EXO_OK : g->s->broken;
    if (!broken)
        return EXO_OK;
    g->first[rank] = NULL; /* all of them end so */
    return exo_fail(err, broken & 255, "rank %u: %s", broken >> 8, exo_status_text(broken & 255));
}

static exo_status
wait_for(void *group, uint32_t rank, exo_engine_request *r, exo_err *err)
{
    bool done = false;
    exo_status st = EXO_OK;
    while ((st = test(group, rank, r, &done, err)) == EXO_OK && !done)
        nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
    return st;
}

static exo_status
begin(void *group, uint32_t rank, exo_engine_request *r, exo_err *err)
{
    struct group *g = group;
    exo_engine_request **last = &g->first[rank];
    while (*last)
        last = &(*last)->next;
    *last = r;
    bool done;
    return test(group, rank, r, &done, err);
}

static void
cancel(void *group, uint32_t rank, exo_engine_request *r)
{
    if (r->state == OVER)
        return;
    break_all(group, rank, EXO_CANCELLED);
    ((struct group *)group)->first[rank] = NULL;
}

static void
fail(void *group, uint32_t rank, const char *cause)
{
    (void)cause;
    break_all(group, rank, EXO_PEER_LOST);
}

static exo_status
join(void *group, uint32_t rank, const char *name, exo_err *err)
{
    struct group *g = group;
    (void)name;
    if (atomic_exchange(&g->s->place[rank], HERE))
        return exo_fail(err, EXO_EXISTS, "rank %u is taken", rank);
    if (++g->s->joined == g->opts.size)
        shm_unlink(g->name); /* all have it: it goes with the last of them */
    return EXO_OK;
}

static void
leave(void *group, uint32_t rank)
{
    ((struct group *)group)->s->place[rank] = LEFT;
}

static void
close_group(void *group)
{
    munmap(((struct group *)group)->s, sizeof(struct segment));
    exo_free(group);
}

static exo_status
open_group(void **group, const exo_engine_opts *opts, exo_err *err)
{
    struct group *g = opts->size <= MEMBERS ? exo_calloc(1, sizeof *g) : NULL;
    if (!g)
        return exo_fail(err, EXO_NOMEM, "no memory, or more than %d members", MEMBERS);
    g->opts = *opts;
    snprintf(g->name, sizeof g->name, "/shm_engine.%s", opts->key);
    int fd = shm_open(g->name, O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    bool sized = fd >= 0 && ftruncate(fd, sizeof(struct segment)) == 0; /* zero at first */
    g->s = sized ? mmap(NULL, sizeof(struct segment), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) : MAP_FAILED;
    if (fd >= 0)
        close(fd);
    *group = g;
    if (g->s != MAP_FAILED)
        return EXO_OK;
    exo_free(g);
    return exo_fail(err, EXO_IO, "%s: no shared memory", opts->key);
}

static const exo_engine_class shm = {.name = "shm",
                                     .help = "shared memory among the processes of a host",
                                     .dtypes = 1u << EXO_F32,
                                     .promises = EXO_ENGINE_ORDERED | EXO_ENGINE_PROCESSES,
                                     .open = open_group,
                                     .close = close_group,
                                     .join = join,
                                     .leave = leave,
                                     .fail = fail,
                                     .begin = begin,
                                     .test = test,
                                     .wait = wait_for,
                                     .cancel = cancel};

EXO_PLUGIN
{
    return exo_engine_register(&shm, err);
}
