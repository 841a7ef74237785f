/* Meters on the screen: a line for each, with its help text. Several actors of one name share a
 * line. No state. */
#ifndef EXO_PROGRAMS_METER_TABLE_H
#define EXO_PROGRAMS_METER_TABLE_H

#include <stdio.h>

#include <exogym/meter.h>
#include <jansson.h>

/* Prints the meters of a report or result (meter_json.h), which are untrusted. Traffic is left out,
 * because the ledger's table has it. */
void exo_meter_table_print(FILE *out, const json_t *meters);
/* "strategy.rounds 12, model.accuracy 0.5312": the strategy's and the model's meters of node 0, as
 * many as fit without a cut; "" if there are none. For a progress line. */
void exo_meter_line(const exo_meters *tree, char *out, size_t size);

#endif
