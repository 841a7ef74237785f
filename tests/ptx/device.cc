/* Whether accesses of device memory race, and whether they read what nobody has written. Two threads of a block of
 * which one writes need a barrier between them; two blocks of a grid, of which one writes, cannot be
 * ordered. Atomic accesses race with plain ones only. State: the caller's, under its lock. Read next:
 * memory.cc. */
#include "ptx/device.h"

#include <string.h>

#include <algorithm>

namespace ptx {

/* --- What nobody has written -------------------------------------------------------------------- */

/* Whole words, as find_unwritten looks at them. */
static size_t
in_words(size_t bytes)
{
    return (bytes + 3) / 4 * 4;
}

void
device_memory::made(uintptr_t at, size_t bytes)
{
    const uintptr_t end = at + in_words(bytes);
    while (at < end) {
        bits &of = unwritten[at / PAGE];
        last_bits_number = UINTPTR_MAX;
        do
            of.set(at % PAGE);
        while (++at < end && at % PAGE != 0);
    }
}

void
device_memory::freed(uintptr_t at, size_t bytes)
{
    written(at, in_words(bytes));
}

void
device_memory::written(uintptr_t at, size_t bytes)
{
    const uintptr_t end = at + bytes;
    while (at < end) {
        bits *const of = bits_of(at);
        const uintptr_t last = std::min<uintptr_t>(end, (at / PAGE + 1) * PAGE);
        for (; of && at < last; at++)
            of->reset(at % PAGE);
        at = last;
    }
}

void
device_memory::copied(uintptr_t to, uintptr_t from, size_t bytes)
{
    std::vector<bool> is(bytes);
    for (size_t b = 0; b < bytes; b++)
        is[b] = is_unwritten(from + b);
    written(to, bytes);
    for (size_t b = 0; b < bytes; b++)
        if (is[b])
            unwritten[(to + b) / PAGE].set((to + b) % PAGE);
    last_bits_number = UINTPTR_MAX;
}

/* NULL: all of the page has been written. */
device_memory::bits *
device_memory::bits_of(uintptr_t at)
{
    if (at / PAGE != last_bits_number) {
        const auto of = unwritten.find(at / PAGE);
        last_bits_number = at / PAGE;
        last_bits = of == unwritten.end() ? nullptr : &of->second;
    }
    return last_bits;
}

bool
device_memory::is_unwritten(uintptr_t at)
{
    const bits *const of = bits_of(at);
    return of && of->test(at % PAGE);
}

/* Fresh memory is full of 0xFF. Stand-ins for libraries write without a word: a word of which nothing is known
 * to be written, and which has other bits, is theirs. */
const char *
device_memory::find_unwritten(uintptr_t at, size_t bytes)
{
    for (uintptr_t b = at; b < at + bytes; b++) {
        if (!is_unwritten(b))
            continue;
        const uintptr_t word = b / 4 * 4;
        uint32_t value;
        memcpy(&value, reinterpret_cast<const void *>(word), sizeof value);
        bool known = false;
        for (uintptr_t w = word; w < word + 4; w++)
            known = known || !is_unwritten(w);
        if (value == UINT32_MAX || known)
            return "reads device memory that nobody has written";
        written(word, 4);
    }
    return nullptr;
}

/* --- Races -------------------------------------------------------------------------------------- */

void
device_memory::begin_grid(size_t least)
{
    const unsigned next = static_cast<unsigned>(__builtin_ctzll(least));
    if (next != shift || first > UINT32_MAX / 2) {
        pages.clear();
        last_number = UINTPTR_MAX;
        first = 0;
    }
    shift = next;
    first += static_cast<uint32_t>(blocks.size());
    blocks.assign(1, UINT32_MAX);
}

uint32_t
device_memory::begin_interval(uint32_t block)
{
    blocks.push_back(block);
    return first + static_cast<uint32_t>(blocks.size()) - 1;
}

use &
device_memory::use_of(uintptr_t number)
{
    if (number / PAGE != last_number) {
        std::unique_ptr<page> &found = pages[number / PAGE];
        if (!found)
            found.reset(new page());
        last_number = number / PAGE;
        last_page = found.get();
    }
    return last_page->uses[number % PAGE];
}

bool
device_memory::is_of_other_block(uint32_t interval, user who) const
{
    return interval >= first && blocks[interval - first] != blocks[who.interval - first];
}

/* Whether nothing orders an access of a thread in an interval and that of `who`. */
bool
device_memory::collides(uint32_t interval, uint16_t thread, user who) const
{
    return interval == who.interval ? thread != who.thread : is_of_other_block(interval, who);
}

const char *
device_memory::read_by(uintptr_t at, size_t bytes, user who)
{
    for (uintptr_t n = at >> shift; n <= (at + bytes - 1) >> shift; n++) {
        use &is = use_of(n);
        if (collides(is.wrote, is.writer, who))
            return "reads device memory that another thread of the grid wrote, and nothing orders "
                   "the two";
        const bool many = is.read == who.interval && is.reader != who.thread;
        is.read = is_of_other_block(is.read, who) ? first : who.interval;
        is.reader = many ? static_cast<uint16_t>(MANY) : who.thread;
    }
    return find_unwritten(at, bytes);
}

const char *
device_memory::written_by(uintptr_t at, size_t bytes, user who)
{
    for (uintptr_t n = at >> shift; n <= (at + bytes - 1) >> shift; n++) {
        use &is = use_of(n);
        if (collides(is.wrote, is.writer, who))
            return "writes device memory that another thread of the grid wrote, and nothing orders "
                   "the two";
        if (collides(is.read, is.reader, who))
            return "writes device memory that another thread of the grid read, and nothing orders "
                   "the two";
        is.wrote = who.interval;
        is.writer = who.thread;
    }
    written(at, bytes);
    return nullptr;
}

const char *
device_memory::changed_by_atomic(uintptr_t at, size_t bytes, user who)
{
    for (uintptr_t n = at >> shift; n <= (at + bytes - 1) >> shift; n++) {
        use &is = use_of(n);
        if ((is.writer != ATOMIC && collides(is.wrote, is.writer, who)) ||
            collides(is.read, is.reader, who))
            return "changes device memory that another thread of the grid used, and nothing orders "
                   "the two";
        is.wrote = is_of_other_block(is.wrote, who) ? first : who.interval;
        is.writer = ATOMIC;
    }
    return find_unwritten(at, bytes);
}

} // namespace ptx
