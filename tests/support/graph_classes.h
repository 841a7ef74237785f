/* Graph classes for tests of graphs. */
#ifndef EXO_TEST_GRAPH_CLASSES_H
#define EXO_TEST_GRAPH_CLASSES_H

/* Registers these classes, once per process:
 *
 *   maker     outputs experience (required), inputs parameters (polled);
 *             config {length, name}, phases act and learn
 *   learner   inputs experience (required, waited for), outputs parameters, collective gradients;
 *             phase learn
 *   talker    outputs and inputs state (waited for)
 *   ping      inputs pong (waited for), outputs ping
 *   pong      inputs ping (waited for), outputs pong
 *   starter   as ping, but sends before it waits
 *   text      outputs experience of another type */
void graph_classes_register(void);

#endif
