/* A plugin that was built for another ABI version of exogym. */
#include <exogym/status.h>

EXO_API unsigned exo_plugin_abi(void);
EXO_API unsigned
exo_plugin_abi(void)
{
    return 12345;
}

EXO_API exo_status exo_plugin_init(exo_err *err);
EXO_API exo_status
exo_plugin_init(exo_err *err)
{
    return exo_fail(err, EXO_FAILED, "must not be called");
}
