/* The engine that a job chooses for the collectives of its strategy (exogym/engine.h). Averages and
 * evaluations always use the library's engines. No state. */
#ifndef EXO_FIT_ENGINE_H
#define EXO_FIT_ENGINE_H

#include <exogym/engine.h>
#include <exogym/strategy.h>
#include <exogym/trainer.h>

#include "comm/choose.h"
#include "comm/far.h"
#include "comm/ways.h"

/* Reads the way of the messages of collectives; NULL: direct. INVAL: there is none of this name; it
 * sums in another order than that of ranks, and equal_bits is true; or the engine, which is not the
 * library's, has ways of its own. */
exo_status exo_fit_find_way(exo_way *out, const char *name, const exo_engine_class *engine,
                            bool equal_bits, exo_err *err);

/* Checks `engine_suspends` of a run. UNSUPPORTED: the run is elastic, or the engine has nothing to suspend; NULL: the
 * library's choice. */
exo_status exo_fit_check_suspends(const exo_engine_class *engine, const exo_fit_opts *opts,
                                  exo_err *err);
/* Checks that a strategy leaves the engine alone between its exchanges, as `engine_suspends` needs it.
 * UNSUPPORTED: it does not; the text says why. */
exo_status exo_fit_check_rests(const exo_strategy *strategy, const char *name, exo_err *err);
/* Makes the communicator of an engine that is not the library's. The run's name distinguishes it from others on this
 * host. */
exo_status exo_fit_open_engine(exo_comm **out, const exo_engine_class *engine, const char *run,
                               uint32_t size, const exo_clock *clock, exo_err *err);
/* The same for an engine with EXO_ENGINE_POST whose members are on workers: exo_comm_far_on. */
exo_status exo_fit_open_engine_far(exo_comm **out, const exo_engine_class *engine, const char *run,
                                   const exo_comm_far_opts *opts, exo_err *err);

#endif
