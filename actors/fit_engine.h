/* The engine that a job chooses for the collectives of its strategy (exogym/engine.h). Averages and
 * evaluations always use the library's engines. No state. */
#ifndef EXO_FIT_ENGINE_H
#define EXO_FIT_ENGINE_H

#include <exogym/engine.h>
#include <exogym/strategy.h>
#include <exogym/trainer.h>

#include "comm/far.h"
#include "comm/ways.h"

/* Finds the engine of that name. *out is NULL for NULL and "auto", which mean the library's choice:
 * `local` among the threads of a process, `net` elsewhere. Errors: NOT_FOUND; INVAL: equal_bits is
 * true and the engine does not promise equal bits; UNSUPPORTED: it does not reduce fp32. */
exo_status exo_fit_find_engine(const exo_engine_class **out, const char *name, bool equal_bits,
                               exo_err *err);

/* Reads the way of the messages of collectives; NULL: direct. INVAL: there is none of this name; it
 * sums in another order than that of ranks, and equal_bits is true; or the engine, which is not the
 * library's, has ways of its own. */
exo_status exo_fit_find_way(exo_way *out, const char *name, const exo_engine_class *engine,
                            bool equal_bits, exo_err *err);

/* The conditions under which a job uses its engine. */
typedef struct exo_fit_engine_use {
    /* The nodes are on workers; links are emulated, or the clock is virtual; the edge has a
     * codec. */
    bool far, emulated, coded;
} exo_fit_engine_use;

/* Checks that the engine supports these conditions; NULL does. UNSUPPORTED. */
exo_status exo_fit_check_engine(const exo_engine_class *engine, const exo_fit_engine_use *use,
                                exo_err *err);

/* Checks `engine_suspends` of a run. UNSUPPORTED: the run is elastic, or the engine has nothing to suspend; NULL: the
 * library's choice. */
exo_status exo_fit_check_suspends(const exo_engine_class *engine, const exo_fit_opts *opts,
                                  exo_err *err);
/* Checks that a strategy leaves the engine alone between its exchanges, as `engine_suspends` needs it.
 * UNSUPPORTED: it does not; the text says why. */
exo_status exo_fit_check_rests(const exo_strategy *strategy, const char *name, exo_err *err);
/* Whether collectives use an engine that is not the library's. */
bool exo_fit_is_foreign(const exo_engine_class *engine);
/* Whether the engine's small messages go to other actors (EXO_ENGINE_POST). */
bool exo_fit_engine_posts(const exo_engine_class *engine);
/* Makes the communicator of an engine that is not the library's. The run's name distinguishes it from others on this
 * host. */
exo_status exo_fit_open_engine(exo_comm **out, const exo_engine_class *engine, const char *run,
                               uint32_t size, const exo_clock *clock, exo_err *err);
/* The same for an engine with EXO_ENGINE_POST whose members are on workers: exo_comm_far_on. */
exo_status exo_fit_open_engine_far(exo_comm **out, const exo_engine_class *engine, const char *run,
                                   const exo_comm_far_opts *opts, exo_err *err);

#endif
