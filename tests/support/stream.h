/* The classes of tests/plugins/stream.c in a program that loads no plugins, and graphs of them. */
#ifndef EXO_TEST_STREAM_H
#define EXO_TEST_STREAM_H

#include "graph/spec.h"

/* Registers stream_source and stream_sink, once a process. */
void stream_register(void);
/* The graph of this YAML; aborts with the reason if it is none. The caller frees it. */
exo_graph_spec *stream_graph(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
