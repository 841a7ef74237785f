/* Graph classes that tests of graphs use. */
#ifndef EXO_TEST_GRAPH_CLASSES_H
#define EXO_TEST_GRAPH_CLASSES_H

/* Registers, once a process:
 *
 *   maker     outputs experience (required), inputs parameters (looked at when it comes); config {length, name}, phases act, learn
 *   learner   inputs experience (required, waited for), outputs parameters, collective gradients; phase learn
 *   talker    outputs and inputs state (waited for)
 *   ping      inputs pong (waited for), outputs ping          pong      the other way round
 *   starter   as ping, but sends before it waits
 *   text      outputs experience of another type */
void graph_classes_register(void);

#endif
