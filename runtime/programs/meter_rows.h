/* The meters of a run, put together for the screen: those of actors of one name, as node_0 and
 * node_1, are one row, with the least and the largest value. Read next: meter_table.c,
 * graph_line.c. */
#ifndef EXO_PROGRAMS_METER_ROWS_H
#define EXO_PROGRAMS_METER_ROWS_H

#include <exogym/meter.h>

enum {
    EXO_METER_ROWS = 128,     /* of one run, at most */
    EXO_METER_ROW_PATH = 128, /* of a path, with its NUL; what is longer is cut */
};

typedef struct exo_meter_row {
    char path
        [EXO_METER_ROW_PATH]; /* of the first meter in it: "sink_0.received"                     */
    size_t name;  /* length of the actor's name without its number: 4; 0: it is no actor's */
    size_t inner; /* where what comes after the actor begins: 7; 0 likewise          */
    exo_meter_kind kind;
    char unit[EXO_METER_UNIT], help[EXO_METER_HELP];
    double sum, least, most; /* of counters and gauges their values, of histograms their sums */
    uint64_t observations;   /* of histograms                                                 */
    size_t actors;           /* that have it; 0: it is no actor's                             */
} exo_meter_row;

/* Zeroed is empty. Owner: the caller, one thread at a time. */
typedef struct exo_meter_rows {
    exo_meter_row *rows; /* (num), in the order in which their first meters came */
    size_t num, left_out;
} exo_meter_rows;

/* Adds a meter; a gauge that is not set is none. One for which there is no room or no memory counts
 * in `left_out`. */
void exo_meter_rows_add(exo_meter_rows *rows, const exo_meter_sample *sample);
void exo_meter_rows_release(exo_meter_rows *rows);

#endif
