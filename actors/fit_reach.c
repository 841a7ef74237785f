/* The members that others cannot reach: see fit_reach.h. No state. */
#include "actors/fit_reach.h"

/* The process with which `process` is at odds, because of what rank `r` says; 0: there is none. */
static uint64_t
opponent(const exo_fit_reach *ranks, uint32_t count, uint32_t r, uint64_t process)
{
    const exo_fit_reach *from = &ranks[r];
    if (!from->is_member || !from->fails || from->to >= count || !ranks[from->to].is_member)
        return 0;
    const uint64_t to = ranks[from->to].process;
    if (from->process == to)
        return 0;
    return process == from->process ? to : process == to ? from->process : 0;
}

/* The number of processes with which one is at odds. */
static uint32_t
count_opponents(const exo_fit_reach *ranks, uint32_t count, uint64_t process)
{
    uint32_t sum = 0;
    for (uint32_t r = 0; r < count; r++) {
        const uint64_t other = opponent(ranks, count, r, process);
        bool known = other == 0;
        for (uint32_t before = 0; !known && before < r; before++)
            known = opponent(ranks, count, before, process) == other;
        sum += !known;
    }
    return sum;
}

static bool
is_first_of_process(const exo_fit_reach *ranks, uint32_t r)
{
    for (uint32_t before = 0; before < r; before++)
        if (ranks[before].is_member && ranks[before].process == ranks[r].process)
            return false;
    return ranks[r].is_member;
}

uint32_t
exo_fit_find_unreached(const exo_fit_reach *ranks, uint32_t count, uint32_t home, bool *leaves)
{
    const uint64_t kept = home < count ? ranks[home].process : 0;
    uint64_t worst = 0;
    uint32_t most = 0, found = 0;
    for (uint32_t r = 0; r < count; r++) {
        const uint32_t n =
            is_first_of_process(ranks, r) ? count_opponents(ranks, count, ranks[r].process) : 0;
        if (n > most || (n > 0 && n == most && ranks[r].process != kept)) {
            most = n;
            worst = ranks[r].process;
        }
    }
    for (uint32_t r = 0; r < count; r++) {
        leaves[r] = most > 0 && ranks[r].is_member && ranks[r].process == worst;
        found += leaves[r];
    }
    return found;
}
