/* The meters of a run, aggregated for the screen. The meters of actors of one name, such as node_0
 * and node_1, make one row with the least and the largest value. Read next: meter_table.c,
 * graph_line.c; prometheus.c, which has them apart. */
#ifndef EXO_PROGRAMS_METER_ROWS_H
#define EXO_PROGRAMS_METER_ROWS_H

#include <exogym/meter.h>

enum {
    EXO_METER_ROWS = 128,     /* of one run, at most */
    EXO_METER_ROW_PATH = 128, /* of a path, with its NUL; a longer path is cut */
};

typedef struct exo_meter_row {
    char path[EXO_METER_ROW_PATH]; /* of the row's first meter: "sink_0.received" */
    /* length of the actor's name without its number: 4; 0: the meter belongs to no actor */
    size_t name;
    size_t inner; /* offset of the path's part after the actor: 7; 0 likewise */
    exo_meter_kind kind;
    char unit[EXO_METER_UNIT], help[EXO_METER_HELP];
    double sum, least, most; /* counters and gauges: of their values; histograms: of their sums */
    uint64_t observations;   /* of histograms */
    size_t actors;           /* number of actors with this meter; 0: it belongs to no actor */
} exo_meter_row;

/* A zeroed struct is empty. Owner: the caller, one thread at a time. */
typedef struct exo_meter_rows {
    exo_meter_row *rows; /* (num), in the order of their first meters */
    size_t num, left_out;
} exo_meter_rows;

/* "sink.received" and 7, the length of "sink_12", for "sink_12.received"; for "train.loss", which
 * belongs to no actor, the path itself and 0. A path that is too long is cut. */
size_t exo_meter_shared_path(const char *path, char out[EXO_METER_PATH]);
/* Adds a meter; skips a gauge that is not set. Counts a meter in `left_out` if there is no room or
 * no memory. */
void exo_meter_rows_add(exo_meter_rows *rows, const exo_meter_sample *sample);
void exo_meter_rows_release(exo_meter_rows *rows);

#endif
