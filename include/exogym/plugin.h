/* Plugins: shared objects that add strategies, models, data sets, engines, actor classes, graph
 * classes and so on.
 *
 * A plugin needs only the public headers, links no library of exogym, and exports one function:
 *
 *     EXO_PLUGIN { return exo_strategy_register(&my_strategy, err); }
 *
 * A job names it under `plugins: [path/libmine.so]`, relative to the folder of the job.
 */
#ifndef EXOGYM_PLUGIN_H
#define EXOGYM_PLUGIN_H

#include <exogym/status.h>

EXO_DECLS_BEGIN

/* The version of the public structs. A plugin that was built for another number is refused. */
#define EXO_PLUGIN_ABI 26

/* Its functions are found by their names in C, also if it is written in C++. */
#ifdef __cplusplus
#define EXO_PLUGIN_FUNCTION extern "C" EXO_API
#else
#define EXO_PLUGIN_FUNCTION EXO_API
#endif

/* Begins the function that registers the classes of the plugin. Its argument is `exo_err *err`. If
 * it returns an error, the plugin is refused. */
#define EXO_PLUGIN                                                                                 \
    EXO_PLUGIN_FUNCTION unsigned exo_plugin_abi(void);                                             \
    EXO_PLUGIN_FUNCTION unsigned exo_plugin_abi(void)                                              \
    {                                                                                              \
        return EXO_PLUGIN_ABI;                                                                     \
    }                                                                                              \
    EXO_PLUGIN_FUNCTION exo_status exo_plugin_init(exo_err *err);                                  \
    EXO_PLUGIN_FUNCTION exo_status exo_plugin_init(exo_err *err)

/* Loads a plugin until the process ends; to load it again does nothing. Any thread: it waits for
 * another one that loads the same plugin. Where plugins load each other, the call from the plugin's
 * function returns OK before the other plugin is ready. Errors: NOT_FOUND, INVAL (not a plugin,
 * another EXO_PLUGIN_ABI, or a name is taken), those of the plugin's function. */
EXO_API exo_status exo_plugin_load(const char *path, exo_err *err);

EXO_DECLS_END

#endif
