/* The JSON schema of graphs and of jobs, for editors that check and complete YAML. */
#ifndef EXO_PROGRAMS_SCHEMA_H
#define EXO_PROGRAMS_SCHEMA_H

#include <jansson.h>

/* Draft 2020-12. The caller drops it; NULL: no memory. */
json_t *exo_schema(void);

#endif
