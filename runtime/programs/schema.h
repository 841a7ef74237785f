/* The JSON schema of graphs and jobs, for editors that check and complete YAML. No state. */
#ifndef EXO_PROGRAMS_SCHEMA_H
#define EXO_PROGRAMS_SCHEMA_H

#include <jansson.h>

/* Returns the schema, Draft 2020-12. The caller drops it; NULL: no memory. */
json_t *exo_schema(void);

#endif
