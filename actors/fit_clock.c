/* The clock of a fit, and the counts up to now: see fit_impl.h. */
#include "actors/fit_impl.h"

exo_time
exo_fit_now(const struct run *run)
{
    return run->fit->sim ? exo_sim_now(run->fit->sim)
                         : run->before.now + exo_now(run->clock) - run->started;
}

exo_time
exo_fit_wall(const struct run *run)
{
    return run->before.wall + exo_now(run->clock) - run->started;
}

uint64_t
exo_fit_elapsed(const struct run *run)
{
    return run->elapsed_before + (uint64_t)(exo_fit_now(run) - run->before.now);
}

void
exo_fit_expect_nodes(struct run *run, uint32_t nodes)
{
    if (run->fit->sim)
        exo_sim_expect(run->fit->sim, nodes);
}

void
exo_fit_expect_no_more(struct run *run)
{
    if (run->fit->sim)
        exo_sim_expect_no_more(run->fit->sim);
}

static void
add_link(exo_link_stats *sum, const exo_link_stats *more)
{
    sum->messages += more->messages;
    sum->bytes += more->bytes;
    sum->busy += more->busy;
}

bool
exo_fit_link_stats(const struct run *run, uint32_t rank, exo_link_stats *up, exo_link_stats *down)
{
    *up = *down = (exo_link_stats){0};
    if (!run->fit->links)
        return false;
    exo_links_host_stats(run->fit->links, exo_fit_host(run->fit->graph, rank), up, down);
    add_link(up, &run->before.up[rank]);
    add_link(down, &run->before.down[rank]);
    return true;
}

uint64_t
exo_fit_mean_bytes(const struct run *run, uint64_t all)
{
    return (all + run->fit->num_nodes / 2) / run->fit->num_nodes;
}
