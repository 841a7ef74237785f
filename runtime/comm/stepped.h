/* Requests of an engine that moves data only in its function `advance` (exo_engine_class): their
 * order, waits, deadlines and ends. Read next: stepped.c, exogym/engine.h. */
#ifndef EXO_COMM_STEPPED_H
#define EXO_COMM_STEPPED_H

#include "comm/backend.h"

/* A member's requests; zeroed initially. Owner: the member's thread. */
typedef struct exo_stepped {
    exo_engine_request *first; /* begun and not complete, in the order of their begins */
    exo_err broken;            /* code OK: not broken */
} exo_stepped;

/* Like begin, test, wait and cancel of exo_engine_class. */
exo_status exo_stepped_begin(exo_stepped *s, const exo_comm *comm, uint32_t rank,
                             exo_engine_request *request, exo_err *err);
exo_status exo_stepped_test(exo_stepped *s, const exo_comm *comm, uint32_t rank,
                            exo_engine_request *request, bool *done, exo_err *err);
exo_status exo_stepped_wait(exo_stepped *s, const exo_comm *comm, uint32_t rank,
                            exo_engine_request *request, exo_err *err);
void exo_stepped_cancel(exo_stepped *s, const exo_comm *comm, uint32_t rank,
                        exo_engine_request *request);

#endif
