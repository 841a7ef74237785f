/* The engine `nccl`, for the entry of exogym-cuda.so. Read next: group.h. */
#ifndef EXO_NCCL_REGISTER_H
#define EXO_NCCL_REGISTER_H

#include <exogym/status.h>

EXO_DECLS_BEGIN

/* Registers the engine, for good. It loads NCCL when a group is first opened. Errors: those of
 * exo_engine_register. */
exo_status exo_nccl_register(exo_err *err);

EXO_DECLS_END

#endif
