/* The classes of tests/plugins/stream.c, compiled into the program: see stream.h. */
#include "support/stream.h"

#include <stdarg.h>
#include <stdio.h>

#include "support/check.h"

#include "../plugins/stream.c"

void
stream_register(void)
{
    if (!exo_graph_class_find("stream_source"))
        CHECK(exo_plugin_init(NULL) == EXO_OK);
}

exo_graph_spec *
stream_graph(const char *format, ...)
{
    char text[4096];
    exo_graph_spec *spec = NULL;
    exo_err err = {0};
    va_list values;
    stream_register();
    va_start(values, format);
    CHECK(vsnprintf(text, sizeof text, format, values) < (int)sizeof text);
    va_end(values);
    if (exo_graph_parse(&spec, "graph.yaml", text, NULL, &err) != EXO_OK) {
        fprintf(stderr, "%s\n%s", err.text, text);
        abort();
    }
    return spec;
}
