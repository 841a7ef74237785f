/* A graph class whose actors do what their config says, in the language of a class's `order`
 * (exogym/graph.h): for tests that plant stalls.
 *
 *   script   outputs, inputs p0 .. p15; collectives g0, g1. config: script, the steps; several, separated by '/', are for the actors of
 *            the name in turn; pause (0): between two steps, on the real clock. Phase work: before each step. An
 *            item is of one int32, with key 0. It declares no order.
 *   scripted the same, and declares its script as its order (the first, if there are several) */
#ifndef EXO_TEST_SCRIPT_H
#define EXO_TEST_SCRIPT_H

/* Registers both, once a process. */
void script_register(void);

#endif
