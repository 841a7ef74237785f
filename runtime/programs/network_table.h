/* How the actors of a run spent its time, as a table with a line for each actor. No state. */
#ifndef EXO_PROGRAMS_NETWORK_TABLE_H
#define EXO_PROGRAMS_NETWORK_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <exogym/clock.h>

typedef struct exo_network_row {
    const char *host, *actor;
    exo_time compute, send_blocked, recv_blocked;
    uint64_t up_bytes, down_bytes; /* of the host's links */
} exo_network_row;

enum {
    /* rows shown; if there are more, the least and greatest utilization of all follow the first
     * ones */
    EXO_NETWORK_ROWS = 16
};

/* links: the hosts' bytes are shown, too. `all` is the duration of the run. */
void exo_network_print(FILE *out, const exo_network_row *rows, size_t count, exo_time all,
                       bool links);

#endif
