/* Device memory of which every access is checked: see device.cc. */
#ifndef EXO_TEST_PTX_DEVICE_H
#define EXO_TEST_PTX_DEVICE_H

#include <bitset>
#include <unordered_map>

#include "ptx/ptx.h"

namespace ptx {

/* The last accesses of a few bytes: in which interval of which block, and by which thread. */
struct use {
    uint32_t wrote = 0, read = 0;
    uint16_t writer = 0, reader = 0;
};

/* A thread of a block. interval: begin_interval gave it. */
struct user {
    uint32_t interval;
    uint16_t thread;
};

struct device_memory {
    enum : uint16_t {
        MANY = 0xFFFF,  /* a reader: several threads */
        ATOMIC = 0xFFFF /* a writer: the accesses are atomic */
    };
    enum : size_t {
        PAGE = 4096 /* bytes that are looked up together, or uses */
    };

    /* --- Which bytes nobody has written. Those of whom nothing is said have been written. --- */

    void made(uintptr_t at, size_t bytes);
    void freed(uintptr_t at, size_t bytes);
    void written(uintptr_t at, size_t bytes);
    void copied(uintptr_t to, uintptr_t from, size_t bytes);

    /* --- Grids --- */

    /* least: bytes of the smallest access, a power of two */
    void begin_grid(size_t least);
    /* The block has begun, or passed a barrier. Returns the number of its new interval. */
    uint32_t begin_interval(uint32_t block);
    /* NULL: it may. Else why not. */
    const char *read_by(uintptr_t at, size_t bytes, user who);
    const char *written_by(uintptr_t at, size_t bytes, user who);
    const char *changed_by_atomic(uintptr_t at, size_t bytes, user who);

  private:
    using bits = std::bitset<PAGE>; /* 1: the byte has not been written */
    struct page {
        use uses[PAGE];
    };
    std::unordered_map<uintptr_t, bits> unwritten;
    std::unordered_map<uintptr_t, std::unique_ptr<page>> pages;
    uintptr_t last_number = UINTPTR_MAX, last_bits_number = UINTPTR_MAX; /* of the last lookups */
    page *last_page = nullptr;
    bits *last_bits = nullptr;
    std::vector<uint32_t> blocks = {UINT32_MAX}; /* of the grid's intervals */
    unsigned shift = 4;                          /* 2^shift bytes have a use */
    uint32_t first = 1;                          /* interval of the grid: of several blocks */

    use &use_of(uintptr_t number);
    bits *bits_of(uintptr_t at);
    bool is_unwritten(uintptr_t at);
    const char *find_unwritten(uintptr_t at, size_t bytes);
    bool is_of_other_block(uint32_t interval, user who) const;
    bool collides(uint32_t interval, uint16_t thread, user who) const;
};

} // namespace ptx

#endif
