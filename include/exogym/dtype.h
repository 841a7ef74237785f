/* Element types of arrays, tensors, collectives and checkpoints. */
#ifndef EXOGYM_DTYPE_H
#define EXOGYM_DTYPE_H

#include <stddef.h>

#include <exogym/export.h>

EXO_DECLS_BEGIN

/* An element type. The numbers stand in files and messages, and never change their meaning. */
typedef enum exo_dtype {
    EXO_F32 = 0,
    EXO_BF16 = 1,
    EXO_I32 = 2,
    EXO_U8 = 3,
    EXO_I8 = 4,
    EXO_I64 = 5,
    EXO_F16 = 6, /* IEEE 754 binary16 */
} exo_dtype;

/* The bytes of one element; 0 for a number that is not a type. */
EXO_API size_t exo_dtype_size(exo_dtype dtype);
/* The name, "fp32", "bf16" and so on: a literal. */
EXO_API const char *exo_dtype_name(exo_dtype dtype);

EXO_DECLS_END

#endif
