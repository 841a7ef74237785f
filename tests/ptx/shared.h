/* The shared memory of a block, and who has used it: see shared.cc. */
#ifndef EXO_TEST_PTX_SHARED_H
#define EXO_TEST_PTX_SHARED_H

#include "ptx/ptx.h"

namespace ptx {

/* The last accesses of a few bytes: in which interval between barriers, and by which thread. */
struct cell {
    uint32_t wrote = 0, read = 0;
    uint16_t writer = 0, reader = 0;
};

struct shared_memory {
    std::vector<unsigned char> bytes;
    std::vector<cell> cells;
    unsigned shift = 4;          /* 2^shift bytes have a cell */
    uint32_t first = 1, now = 1; /* intervals: the block's first one, and this one */

    enum : uint16_t {
        MANY = 0xFFFF,     /* a reader: several threads */
        ATOMIC = 0xFFFF,   /* a writer: the accesses are atomic */
        ARRIVING = 0xFFFE, /* a writer: an asynchronous copy is on its way */
    };

    /* least: bytes of the smallest access, a power of two */
    void resize(size_t count, size_t least);
    void begin_block(void);
    void barrier(void)
    {
        now++;
    }
    /* NULL: it may. Else why not. */
    const char *read_by(size_t at, size_t count, uint16_t thread);
    const char *written_by(size_t at, size_t count, uint16_t thread);
    const char *changed_by_atomic(size_t at, size_t count);
    /* The end of a copy, for which its thread has waited. */
    void arrived_for(size_t at, size_t count, uint16_t thread);
};

} // namespace ptx

#endif
