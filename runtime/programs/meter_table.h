/* The meters of a run on the screen: a line for each, with what it means; those that every node has stand in one line. No state. */
#ifndef EXO_PROGRAMS_METER_TABLE_H
#define EXO_PROGRAMS_METER_TABLE_H

#include <stdio.h>

#include <exogym/meter.h>
#include <jansson.h>

enum {
    EXO_METER_ROWS = 64 /* lines that are printed, at most */
};

/* Those of a report (meter_json.h), which may be anybody's. What the report's other lines say is left out: step, training loss, traffic. */
void exo_meter_table_print(FILE *out, const json_t *meters);
/* "strategy.rounds 12, model.accuracy 0.5312": the strategy's and the model's of node 0, as many of them as fit whole; "" if there are none. For a line of
 * progress. */
void exo_meter_line(const exo_meters *tree, char *out, size_t size);

#endif
