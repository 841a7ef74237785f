/* The table of how actors spent the time: see network_table.h. */
#include "programs/network_table.h"

#include <string.h>

#include "programs/text.h"

static double
share(exo_time part, exo_time all)
{
    return all > 0 ? 100 * (double)part / (double)all : 0;
}

static void
print_row(FILE *out, const exo_network_row *row, exo_time all, int host_width, int actor_width,
          bool links)
{
    char up[EXO_FIGURE], down[EXO_FIGURE];
    fprintf(out, "%-*s  %-*s  %6.1f %%  %8.1f %%  %8.1f %%", host_width, row->host, actor_width,
            row->actor, share(row->compute, all), share(row->send_blocked, all),
            share(row->recv_blocked, all));
    if (links)
        fprintf(out, "  %9s  %9s", exo_text_bytes((double)row->up_bytes, up),
                exo_text_bytes((double)row->down_bytes, down));
    fputc('\n', out);
}

void
exo_network_print(FILE *out, const exo_network_row *rows, size_t count, exo_time all, bool links)
{
    int host_width = 4, actor_width = 5;
    size_t shown = count < EXO_NETWORK_ROWS ? count : EXO_NETWORK_ROWS, least = 0, most = 0;
    for (size_t i = 0; i < count; i++) {
        if (i < shown && (int)strlen(rows[i].host) > host_width)
            host_width = (int)strlen(rows[i].host);
        if (i < shown && (int)strlen(rows[i].actor) > actor_width)
            actor_width = (int)strlen(rows[i].actor);
        least = rows[i].compute < rows[least].compute ? i : least;
        most = rows[i].compute > rows[most].compute ? i : most;
    }
    fprintf(out, "%-*s  %-*s  computes  send waits  recv waits%s\n", host_width, "host",
            actor_width, "actor", links ? "         up       down" : "");
    for (size_t i = 0; i < shown; i++)
        print_row(out, &rows[i], all, host_width, actor_width, links);
    if (shown < count)
        fprintf(out, "... %zu more; utilization from %.1f %% (%s) to %.1f %% (%s)\n", count - shown,
                share(rows[least].compute, all), rows[least].actor, share(rows[most].compute, all),
                rows[most].actor);
}
