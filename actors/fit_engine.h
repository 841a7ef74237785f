/* The engine that a job chooses for its strategy's collectives (exogym/engine.h). Averages and evaluations always go through the library's. */
#ifndef EXO_FIT_ENGINE_H
#define EXO_FIT_ENGINE_H

#include <exogym/engine.h>

/* The engine of that name; NULL for NULL and "auto", which are the library's: local among the threads of a process, net elsewhere. Errors:
 * NOT_FOUND; INVAL: it does not promise equal bits, and they are needed; UNSUPPORTED: it does not reduce fp32. */
exo_status exo_fit_find_engine(const exo_engine_class **out, const char *name, bool equal_bits,
                               exo_err *err);

/* Where nodes are, and what is between them. */
typedef struct exo_fit_engine_use {
    bool far, emulated, coded; /* in workers; over links or on the virtual clock; with a codec */
} exo_fit_engine_use;

/* Whether the engine can do it; NULL can. UNSUPPORTED. */
exo_status exo_fit_check_engine(const exo_engine_class *engine, const exo_fit_engine_use *use,
                                exo_err *err);

/* Whether collectives go through an engine that is not the library's: then exo_fit_open_engine makes the communicator of a run of that
 * name, which tells it from others on this host. */
bool exo_fit_is_foreign(const exo_engine_class *engine);
exo_status exo_fit_open_engine(exo_comm **out, const exo_engine_class *engine, const char *run,
                               uint32_t size, const exo_clock *clock, exo_err *err);

#endif
