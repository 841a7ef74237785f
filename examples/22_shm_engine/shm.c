/* An engine over POSIX shared memory (README.md). A member puts a chunk into its slot once all
 * members have taken the last one, and takes from all slots once all have put theirs. */
#include <exogym/exogym.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#define CHUNK   (1 << 18)
#define MEMBERS 64
struct segment {
    _Atomic uint64_t put[MEMBERS], taken[MEMBERS]; /* chunks that each member has put and taken */
    _Atomic uint32_t size, gone; /* gone: 1 + the first rank that failed or left; 0: none has */
    char name[80];               /* every member writes the same */
    char slots[MEMBERS][CHUNK];  /* pages exist only where members write */
};

static bool
all_at(const struct segment *s, const _Atomic uint64_t *counts, uint64_t want)
{
    uint32_t q = 0;
    while (q < s->size && counts[q] >= want)
        q++;
    return q == s->size;
}

static exo_status
advance(void *group, uint32_t rank, exo_engine_request *r, bool *done, exo_err *err)
{
    struct segment *s = group;
    void *slots[MEMBERS];
    for (uint32_t q = 0; q < s->size; q++)
        slots[q] = s->slots[q];
    while (!*done) { /* r->number elements are done */
        const size_t size = exo_dtype_size(r->args.dtype), left = r->args.count - r->number;
        const size_t n = left < CHUNK / size ? left : CHUNK / size;
        if (s->put[rank] == s->taken[rank] && all_at(s, s->taken, s->taken[rank])) {
            if (n > 0)
                memcpy(s->slots[rank], (char *)r->args.data + r->number * size, n * size);
            s->put[rank]++;
        }
        if (s->put[rank] == s->taken[rank] || !all_at(s, s->put, s->put[rank]))
            return s->gone ? exo_fail(err, EXO_PEER_LOST, "rank %u failed or left", s->gone - 1)
                           : EXO_OK;
        exo_collective_take(&r->args, r->number, n, slots);
        if (s->taken[rank]++ == 0)
            shm_unlink(s->name); /* all have mapped it: it ends with the last of them */
        *done = (r->number += n) == r->args.count;
    }
    return EXO_OK;
}

static void
fail(void *group, uint32_t rank, const char *cause)
{
    (void)cause;
    uint32_t nobody = 0;
    atomic_compare_exchange_strong(&((struct segment *)group)->gone, &nobody, rank + 1);
}

static void
close_group(void *group)
{
    shm_unlink(((struct segment *)group)->name); /* if no collective did */
    munmap(group, sizeof(struct segment));
}

static exo_status
open_group(void **group, const exo_engine_opts *opts, exo_err *err)
{
    char name[80];
    snprintf(name, sizeof name, "/shm_engine.%s", opts->key);
    int fd = opts->size <= MEMBERS ? shm_open(name, O_CREAT | O_RDWR | O_CLOEXEC, 0600) : -1;
    bool sized = fd >= 0 && ftruncate(fd, sizeof(struct segment)) == 0; /* zeros at first */
    struct segment *s =
        sized ? mmap(NULL, sizeof *s, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) : MAP_FAILED;
    close(fd);
    if (s == MAP_FAILED)
        return exo_fail(err, EXO_IO, "%s: no shared memory, or over %d members", name, MEMBERS);
    memcpy(s->name, name, sizeof name);
    s->size = opts->size;
    *group = s;
    return EXO_OK;
}

EXO_PLUGIN
{
    static const exo_engine_class shm = {.name = "shm",
                                         .help = "shared memory among the processes of a host",
                                         .dtypes = EXO_ENGINE_ALL_DTYPES,
                                         .open = open_group,
                                         .close = close_group,
                                         .fail = fail,
                                         .advance = advance,
                                         .promises = EXO_ENGINE_ORDERED | EXO_ENGINE_PROCESSES |
                                                     EXO_ENGINE_SHIFT};
    return exo_engine_register(&shm, err);
}
