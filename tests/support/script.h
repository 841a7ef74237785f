/* Graph classes whose actors execute a script from their config, in the language of a class's
 * `order` (exogym/graph.h). For tests that plant stalls.
 *
 *   script    outputs and inputs p0 .. p15, collectives g0 and g1. An item is one int32 with key 0.
 *             Declares no order. Its only phase, work, comes before each step.
 *             config: script    the steps; several scripts, separated by '/', are for the actors
 *                               of the name in turn
 *                     pause     (0) between two steps, on the real clock
 *                     lingers   (0) from a cancellation to the actor's end, on the real clock
 *   scripted  the same, and declares its script (the first, if there are several) as its order */
#ifndef EXO_TEST_SCRIPT_H
#define EXO_TEST_SCRIPT_H

/* Registers both classes, once per process. */
void script_register(void);

#endif
