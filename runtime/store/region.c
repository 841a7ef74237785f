/* Regions: see region.h. The table is sorted by address. */
#include "store/region.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "store/store.h"

struct region {
    exo_segment segment;
    bool mixed; /* some of its pages are private */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct region regions[EXO_REGION_MOST]; /* guarded by lock, sorted by address */
static size_t num_regions;
static _Atomic bool enabled;

void
exo_region_enable(void)
{
    enabled = true;
}

bool
exo_region_is_enabled(void)
{
    return enabled;
}

/* The number of regions that begin at or before an address. */
static size_t
count_before_locked(const char *at)
{
    size_t low = 0, high = num_regions;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (exo_segment_slot(&regions[middle].segment, 0) <= at)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static struct region *
region_at_locked(const void *data, size_t bytes)
{
    size_t before = count_before_locked(data);
    struct region *r = before ? &regions[before - 1] : NULL;
    if (!r)
        return NULL;
    size_t offset = (size_t)((const char *)data - exo_segment_slot(&r->segment, 0));
    return offset <= r->segment.slot_size && bytes <= r->segment.slot_size - offset ? r : NULL;
}

void *
exo_region_alloc(size_t bytes)
{
    static _Thread_local exo_process self; /* of this thread's process; a fork changes the id */
    size_t page = EXO_SEGMENT_PAGE;
    if (!enabled || bytes < EXO_REGION_LEAST || bytes > SIZE_MAX / 2)
        return NULL;
    if (self.id != getpid() && exo_process_self(&self, NULL) != EXO_OK)
        return NULL;
    pthread_mutex_lock(&lock);
    bool room = num_regions < EXO_REGION_MOST;
    pthread_mutex_unlock(&lock);
    exo_segment segment;
    if (!room ||
        exo_segment_create_open(&segment, &self, (bytes + page - 1) / page * page, NULL) != EXO_OK)
        return NULL;
    char *memory = exo_segment_slot(&segment, 0);
    pthread_mutex_lock(&lock);
    room = num_regions < EXO_REGION_MOST;
    if (room) {
        size_t at = count_before_locked(memory);
        memmove(regions + at + 1, regions + at, (num_regions - at) * sizeof *regions);
        regions[at] = (struct region){.segment = segment};
        num_regions++;
    }
    pthread_mutex_unlock(&lock);
    if (!room)
        exo_segment_release(&segment);
    return room ? memory : NULL;
}

bool
exo_region_free(void *memory)
{
    exo_segment segment = {0};
    pthread_mutex_lock(&lock);
    struct region *r = region_at_locked(memory, 1);
    if (r && exo_segment_slot(&r->segment, 0) == memory) {
        segment = r->segment;
        num_regions--;
        memmove(r, r + 1, (size_t)(regions + num_regions - r) * sizeof *r);
    }
    pthread_mutex_unlock(&lock);
    bool found = segment.base != NULL;
    exo_segment_release(&segment); /* not under the lock: unmapping much memory takes long */
    return found;
}

bool
exo_region_find(const void *data, size_t bytes, exo_region_place *out)
{
    pthread_mutex_lock(&lock);
    const struct region *r = region_at_locked(data, bytes);
    bool found = r && !r->mixed;
    if (found)
        *out = (exo_region_place){
            .nonce = r->segment.nonce,
            .fd = (uint32_t)r->segment.file,
            .offset = (uint64_t)((const char *)data - exo_segment_slot(&r->segment, 0))};
    pthread_mutex_unlock(&lock);
    return found;
}

/* Puts private pages with the same contents in the place of [first, end), whole pages. */
static bool
make_private(char *first, char *end)
{
    size_t bytes = (size_t)(end - first);
    if (first >= end)
        return true;
    void *copy = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (copy == MAP_FAILED)
        return false;
    memcpy(copy, first, bytes);
    if (mremap(copy, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, first) != MAP_FAILED)
        return true;
    munmap(copy, bytes);
    return false;
}

static bool
make_empty(char *first, char *end)
{
    return mmap(first, (size_t)(end - first), PROT_READ | PROT_WRITE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED;
}

bool
exo_region_disown(void *data, size_t bytes)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    char *first = (char *)data + (page - (uintptr_t)data % page) % page;
    char *end = (char *)data + bytes - ((uintptr_t)data + bytes) % page;
    pthread_mutex_lock(&lock);
    struct region *r = region_at_locked(data, bytes);
    bool done = r != NULL;
    if (r && data == exo_segment_slot(&r->segment, 0) && !r->mixed &&
        (uint64_t)bytes + page > r->segment.slot_size)
        done = exo_segment_renew(&r->segment);
    else if (r) {
        r->mixed = true;
        done = make_private(first, end);
    }
    if (r && !done) { /* no memory for a copy */
        r->mixed = true;
        done = make_empty(first, end);
    }
    pthread_mutex_unlock(&lock);
    return done;
}
