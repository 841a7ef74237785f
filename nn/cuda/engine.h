/* The engine `gpu`, for C. Read next: engine.cu. */
#ifndef EXO_CUDA_ENGINE_H
#define EXO_CUDA_ENGINE_H

#include <exogym/status.h>

EXO_DECLS_BEGIN

/* Registers the engine, for good. Errors: those of exo_engine_register. */
exo_status exo_cuda_engine_register(exo_err *err);

EXO_DECLS_END

#endif
