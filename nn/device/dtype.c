/* Sizes and names of the types of elements. No state. */
#include <exogym/dtype.h>

size_t
exo_dtype_size(exo_dtype dtype)
{
    static const size_t sizes[] = {
        [EXO_F32] = 4, [EXO_BF16] = 2, [EXO_I32] = 4, [EXO_U8] = 1,
        [EXO_I8] = 1,  [EXO_I64] = 8,  [EXO_F16] = 2,
    };
    return (size_t)dtype < sizeof sizes / sizeof sizes[0] ? sizes[dtype] : 0;
}

const char *
exo_dtype_name(exo_dtype dtype)
{
    static const char *const names[] = {
        [EXO_F32] = "fp32", [EXO_BF16] = "bf16", [EXO_I32] = "int32", [EXO_U8] = "uint8",
        [EXO_I8] = "int8",  [EXO_I64] = "int64", [EXO_F16] = "fp16",
    };
    return (size_t)dtype < sizeof names / sizeof names[0] ? names[dtype] : "unknown type";
}
