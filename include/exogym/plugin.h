/* Plugins: shared objects that add strategies, models, engines, actor classes and graph classes of their own.
 *
 * A plugin is built against the public headers only, links nothing, and exports one function:
 *
 *     EXO_PLUGIN { return exo_strategy_register(&my_strategy, err); }
 *
 * A job names it under `plugins: [path/libmine.so]`, relative to the job's file.
 */
#ifndef EXOGYM_PLUGIN_H
#define EXOGYM_PLUGIN_H

#include <exogym/status.h>

EXO_DECLS_BEGIN

/* Bumped when a public struct changes; a plugin built for another number is refused. */
#define EXO_PLUGIN_ABI 15

/* Begins the function that registers what the plugin brings; it has `err`, and returns a status
 * other than OK to be refused. */
#define EXO_PLUGIN                                                                                                     \
    EXO_API unsigned exo_plugin_abi(void);                                                                             \
    EXO_API unsigned exo_plugin_abi(void)                                                                              \
    {                                                                                                                  \
        return EXO_PLUGIN_ABI;                                                                                         \
    }                                                                                                                  \
    EXO_API exo_status exo_plugin_init(exo_err *err);                                                                  \
    EXO_API exo_status exo_plugin_init(exo_err *err)

/* Loads a plugin for the rest of the process's life; again is a no-op. Errors: NOT_FOUND, INVAL (no plugin, other ABI), or
 * what its function gave. */
EXO_API exo_status exo_plugin_load(const char *path, exo_err *err);

EXO_DECLS_END

#endif
