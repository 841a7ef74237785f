/* Meters on the screen: a line for each, with what it means; those of several actors of one name
 * stand in one line. No state. */
#ifndef EXO_PROGRAMS_METER_TABLE_H
#define EXO_PROGRAMS_METER_TABLE_H

#include <stdio.h>

#include <exogym/meter.h>
#include <jansson.h>

/* Those of a report or result (meter_json.h), which may be anybody's. Traffic is left out: the
 * ledger's table has it. */
void exo_meter_table_print(FILE *out, const json_t *meters);
/* "strategy.rounds 12, model.accuracy 0.5312": the strategy's and the model's of node 0, as many of
 * them as fit whole; "" if there are none. For a line of progress. */
void exo_meter_line(const exo_meters *tree, char *out, size_t size);

#endif
