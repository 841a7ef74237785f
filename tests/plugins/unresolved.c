/* A plugin that needs a function that no exogym has. */
#include <exogym/plugin.h>

exo_status exo_of_a_later_version(exo_err *err);

EXO_PLUGIN
{
    return exo_of_a_later_version(err);
}
