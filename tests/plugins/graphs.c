/* A plugin with the graph classes of tests/support, for tests of the command line. */
#include <exogym/plugin.h>

#include "../support/graph_classes.c"

EXO_PLUGIN
{
    (void)err;
    graph_classes_register();
    return EXO_OK;
}
