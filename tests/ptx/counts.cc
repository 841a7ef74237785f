/* What kernels would cost a GPU: instructions of warps, sectors of 32 bytes of global memory, and passes of
 * shared memory, in each of which a bank of 4 bytes serves one word. With EXO_PTX=counts a process prints them at its
 * end, by kernel and by line. State: the process's; the emulator's lock guards it. */
#include "ptx/counts.h"

#include <stdio.h>
#include <stdlib.h>

#include <algorithm>

namespace ptx {

bool counting;

namespace {

/* Of an instruction. used: sectors or passes; least: those that as many bytes would need. */
struct cost {
    uint64_t times = 0, bytes = 0, used = 0, least = 0;
};

struct costs {
    uint64_t launches = 0;
    std::vector<cost> code;
};

} // namespace

/* Never freed, since it is printed at the very end. */
static std::map<const kernel *, costs> &
all(void)
{
    static auto *const only = new std::map<const kernel *, costs>;
    return *only;
}

/* The first parts of an opcode, such as "ld.global" and "fma". */
static std::string
opcode_of(const kernel &k, const instruction &i)
{
    const std::string &text = k.lines->at(i.line - 1);
    size_t at = text.find_first_not_of(" \t{");
    if (at != std::string::npos && text[at] == '@')
        at = text.find_first_not_of(" \t", text.find_first_of(" \t", at));
    const std::string opcode = text.substr(at, text.find_first_of(" \t;", at) - at);
    return opcode.substr(0, opcode.find('.', i.accesses ? opcode.find('.') + 1 : 0));
}

static void
print_kernel(const kernel &k, const costs &c)
{
    std::map<std::string, uint64_t> kinds;
    uint64_t sum = 0;
    for (size_t n = 0; n < c.code.size(); n++)
        if (c.code[n].times > 0) {
            kinds[opcode_of(k, k.code[n])] += c.code[n].times;
            sum += c.code[n].times;
        }
    printf("ptx kernel=%s launches=%llu instructions=%llu", readable(k.name).c_str(),
           static_cast<unsigned long long>(c.launches), static_cast<unsigned long long>(sum));
    for (const auto &kind : kinds)
        printf(" %s=%llu", kind.first.c_str(), static_cast<unsigned long long>(kind.second));
    putchar('\n');
    for (size_t n = 0; n < c.code.size(); n++) {
        const cost &is = c.code[n];
        if (is.used > 0)
            printf(
                "ptx   used=%llu least=%llu efficiency=%.2f times=%llu bytes=%llu line=%u '%s'\n",
                static_cast<unsigned long long>(is.used), static_cast<unsigned long long>(is.least),
                static_cast<double>(is.least) / static_cast<double>(is.used),
                static_cast<unsigned long long>(is.times),
                static_cast<unsigned long long>(is.bytes), k.code[n].line,
                k.lines->at(k.code[n].line - 1).c_str());
    }
}

static void
print_all(void)
{
    for (const auto &k : all())
        print_kernel(*k.first, k.second);
    fflush(stdout);
}

__attribute__((constructor)) static void
read_environment(void)
{
    const char *const text = getenv("EXO_PTX");
    counting = text && strstr(text, "counts");
    if (counting)
        atexit(print_all);
}

void
count_launch(const grid &g)
{
    costs &c = all()[g.what];
    c.launches++;
    c.code.resize(g.what->code.size());
}

/* Makes each number of a list appear once. */
static size_t
distinct(uint64_t *numbers, size_t count)
{
    std::sort(numbers, numbers + count);
    return static_cast<size_t>(std::unique(numbers, numbers + count) - numbers);
}

static void
count_sectors(const uint64_t *at, size_t lanes, size_t bytes, cost *c)
{
    uint64_t sectors[LANES], places[LANES];
    for (size_t l = 0; l < lanes; l++) {
        sectors[l] = at[l] / 32;
        places[l] = at[l];
    }
    c->used += distinct(sectors, lanes);
    c->least += (distinct(places, lanes) * bytes + 31) / 32;
}

/* 128 bytes of lanes at a time. */
static void
count_passes(const uint64_t *at, size_t lanes, size_t bytes, cost *c)
{
    const size_t together = bytes <= 4 ? 32 : 128 / bytes;
    for (size_t first = 0; first < lanes; first += together) {
        uint64_t words[LANES];
        size_t count = 0, in_bank[32] = {}, most = 0;
        for (size_t l = first; l < lanes && l < first + together; l++)
            for (uint64_t word = at[l] / 4; word <= (at[l] + bytes - 1) / 4; word++)
                words[count++] = word;
        count = distinct(words, count);
        for (size_t n = 0; n < count; n++)
            most = std::max(most, ++in_bank[words[n] % 32]);
        c->used += most;
        c->least++;
    }
}

void
count(warp &w, const instruction &i, uint32_t on)
{
    cost &c = all()[w.in->of->what].code[w.now];
    const bool matrices = !i.accesses && i.does == kind::meet && i.results == 4 && i.rows == 5;
    const space where = matrices ? space::shared : i.where;
    c.times++;
    if ((!i.accesses && !matrices) || (where != space::global && where != space::shared))
        return;
    const size_t bytes = matrices ? 16 : static_cast<size_t>(i.vector) * i.bytes;
    const uint32_t row = i.row[i.results];
    uint64_t at[LANES];
    size_t lanes = 0;
    for (uint32_t left = on; left; left &= left - 1) {
        const unsigned l = first_lane(left);
        const bool wide = i.accesses && i.wide_address;
        at[lanes++] = static_cast<uint64_t>(i.offset) +
                      (wide ? w.row<uint64_t>(row)[l] : w.row<uint32_t>(row)[l]);
    }
    c.bytes += lanes * bytes;
    if (where == space::global)
        count_sectors(at, lanes, bytes, &c);
    else
        count_passes(at, lanes, bytes, &c);
}

} // namespace ptx
