/* The classes of tests/plugins/stream.c for programs without plugins, and graphs of them. */
#ifndef EXO_TEST_STREAM_H
#define EXO_TEST_STREAM_H

#include "graph/spec.h"

/* Registers stream_source and stream_sink, once per process. */
void stream_register(void);
/* Parses a graph from YAML. Prints the reason and aborts on an error. The caller frees the
 * graph. */
exo_graph_spec *stream_graph(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
