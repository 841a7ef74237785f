/* A plugin that adds an actor class without methods. */
#include <exogym/actor.h>
#include <exogym/plugin.h>

static const exo_actor_class of_a_plugin = {.name = "of_a_plugin"};

EXO_PLUGIN
{
    return exo_actor_class_register(&of_a_plugin, err);
}
