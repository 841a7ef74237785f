/* Which threads of a block have used which shared bytes since the last barrier. Two threads of which one
 * writes need a barrier between them; shuffles and the like order nothing. State: a block's. Read next:
 * memory.cc. */
#include "ptx/shared.h"

namespace ptx {

void
shared_memory::resize(size_t count, size_t least)
{
    shift = static_cast<unsigned>(__builtin_ctzll(least));
    bytes.assign(count, 0xFF);
    cells.assign((count >> shift) + 1, cell());
    first = now = 1;
}

/* What a block before has left is not there. */
void
shared_memory::begin_block(void)
{
    first = ++now;
    bytes.assign(bytes.size(), 0xFF);
}

const char *
shared_memory::read_by(size_t at, size_t count, uint16_t thread)
{
    for (size_t c = at >> shift; c <= (at + count - 1) >> shift; c++) {
        cell &is = cells[c];
        if (is.wrote < first)
            return "reads shared bytes that no thread of the block has written";
        if (is.writer == ARRIVING)
            return "reads shared bytes that a copy has yet to bring";
        if (is.wrote == now && is.writer != thread)
            return "reads what another thread wrote, with no barrier between";
        is.reader = is.read == now && is.reader != thread ? static_cast<uint16_t>(MANY) : thread;
        is.read = now;
    }
    return nullptr;
}

const char *
shared_memory::written_by(size_t at, size_t count, uint16_t thread)
{
    for (size_t c = at >> shift; c <= (at + count - 1) >> shift; c++) {
        cell &is = cells[c];
        if (is.wrote >= first && is.writer == ARRIVING)
            return "writes shared bytes that a copy has yet to bring";
        if (is.wrote == now && is.writer != thread)
            return "writes what another thread wrote, with no barrier between";
        if (is.read == now && is.reader != thread)
            return "writes what another thread read, with no barrier between";
        is.wrote = now;
        is.writer = thread;
    }
    return nullptr;
}

const char *
shared_memory::changed_by_atomic(size_t at, size_t count)
{
    for (size_t c = at >> shift; c <= (at + count - 1) >> shift; c++) {
        cell &is = cells[c];
        if (is.wrote < first)
            return "changes shared bytes that no thread of the block has written";
        if (is.writer == ARRIVING)
            return "changes shared bytes that a copy has yet to bring";
        if ((is.wrote == now && is.writer != ATOMIC) || is.read == now)
            return "changes what another thread used, with no barrier between";
        is.wrote = now;
        is.writer = ATOMIC;
    }
    return nullptr;
}

void
shared_memory::arrived_for(size_t at, size_t count, uint16_t thread)
{
    for (size_t c = at >> shift; c <= (at + count - 1) >> shift; c++) {
        cells[c].wrote = now;
        cells[c].writer = thread;
    }
}

} // namespace ptx
