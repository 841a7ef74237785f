/* Running a kernel: see run.cc. */
#ifndef EXO_TEST_PTX_RUN_H
#define EXO_TEST_PTX_RUN_H

#include <string.h>

#include "ptx/device.h"
#include "ptx/ptx.h"
#include "ptx/shared.h"

namespace ptx {

/* Generic addresses of memory that is not the host's, and the first shared address, so that 0 is none. */
static const uint64_t SHARED_WINDOW = UINT64_C(0x1000000000000000),
                      LOCAL_WINDOW = UINT64_C(0x2000000000000000), WINDOW = UINT64_C(1) << 32;
static const uint64_t SHARED_BASE = 1024;

struct dim {
    uint32_t x, y, z;
};

/* The memory of one allocation. */
struct range {
    uintptr_t first = 0, end = 0;
};

/* The allocation that has an address; an empty one: there is none. */
using range_finder = range (*)(uintptr_t at);

struct grid {
    const kernel *what;
    dim blocks, threads;
    size_t launch_bytes; /* shared ones, beside those of the kernel */
    const unsigned char *parameters;
    range_finder find;
    uint64_t seed;          /* of the order of warps */
    bool drawn;             /* lanes and blocks have a drawn order, too */
    device_memory *watched; /* NULL: accesses of device memory are held against its bounds only */
};

/* 16 bytes, or zeros, on their way to shared memory. */
struct copy {
    uint32_t to;
    uintptr_t from;
    uint32_t zeros; /* the last ones */
};

struct copy_group {
    uint32_t lane;
    bool ended;
    std::vector<copy> copies;
};

struct block;

struct warp {
    block *in = nullptr;
    uint32_t number = 0;
    uint32_t lanes = 0; /* that there are */
    uint32_t ended = 0, waiting = 0;
    bool at_barrier = false;
    uint32_t carry = 0; /* of add.cc and the like */
    uint32_t pc[LANES] = {};
    uint32_t now = 0; /* the instruction that runs */
    std::vector<unsigned char> file, local;
    std::vector<bool> local_written; /* by byte; empty: nobody looks */
    std::vector<uint32_t> written;   /* lanes, by row */
    std::vector<copy_group> copies;

    template <typename T> T *row(uint32_t number_of_row)
    {
        return reinterpret_cast<T *>(file.data() + static_cast<size_t>(number_of_row) * ROW_BYTES);
    }
    [[noreturn]] void fail(uint32_t on, const std::string &what) const;
};

struct block {
    const grid *of;
    dim index;
    std::vector<warp> warps;
    shared_memory shared;
    range known; /* the last allocation that was found */
    uint64_t random;
    std::vector<uint32_t> order; /* of warps */
    uint32_t number;             /* in the grid */
    uint32_t interval;           /* of device_memory */

    uint32_t draw(size_t below)
    {
        random = random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        return static_cast<uint32_t>((random >> 33) % below);
    }
    range find(uintptr_t at)
    {
        if (at - known.first >= known.end - known.first)
            known = of->find(at);
        return known;
    }
};

/* The name of a kernel as C++ has it. */
std::string readable(const std::string &name);
/* Runs all blocks, one after the other. Throws a fault. */
void run_grid(const grid &g);

/* --- What handlers are written with ------------------------------------------------------------- */

/* Numbers of fewer than 4 bytes have a lane of 4 each. */
template <typename T>
static inline constexpr size_t
lane_bytes(void)
{
    return sizeof(T) < 4 ? 4 : sizeof(T);
}

template <typename T>
static inline T
get(const void *row, size_t lane)
{
    T value;
    memcpy(&value, static_cast<const char *>(row) + lane * lane_bytes<T>(), sizeof value);
    return value;
}

template <typename T>
static inline void
put(void *row, size_t lane, T value)
{
    char *const at = static_cast<char *>(row) + lane * lane_bytes<T>();
    if (sizeof(T) < 4)
        memset(at, 0, 4);
    memcpy(at, &value, sizeof value);
}

/* Writes the results of the lanes of `on`. */
template <typename T>
static inline void
put_lanes(warp &w, uint32_t number_of_row, const T *values, uint32_t on)
{
    void *const to = w.row<void *>(number_of_row);
    if (on == ALL_LANES)
        for (size_t l = 0; l < LANES; l++)
            put<T>(to, l, values[l]);
    else
        for (size_t l = 0; l < LANES; l++)
            put<T>(to, l, on >> l & 1 ? values[l] : get<T>(to, l));
}

/* The lanes of which a predicate is true. */
static inline uint32_t
lanes_of(warp &w, uint32_t number_of_row)
{
    const uint32_t *const p = w.row<uint32_t>(number_of_row);
    uint32_t bits = 0;
    for (unsigned l = 0; l < LANES; l++)
        bits |= (0u - p[l]) & (1u << l);
    return bits;
}

static inline unsigned
first_lane(uint32_t lanes)
{
    return static_cast<unsigned>(__builtin_ctz(lanes));
}

} // namespace ptx

#endif
