/* The numbers of tensors as fp32. The interface is in safetensors.h. No state. */
#include <string.h>

#include "base/bf16.h"
#include "nn/pretrained/safetensors.h"

exo_status
exo_tensor_floats_check(const exo_safetensor *t, const char *path, exo_err *err)
{
    if (strcmp(t->dtype, "F32") != 0 && strcmp(t->dtype, "F16") != 0 &&
        strcmp(t->dtype, "BF16") != 0)
        return exo_fail(err, EXO_UNSUPPORTED,
                        "%s: tensor '%s' has the type %s; expected F32, F16 or BF16: save the "
                        "weights as one of these, not quantized",
                        path, t->name, t->dtype);
    return EXO_OK;
}

static void
from_bf16(const void *data, float *out, size_t count)
{
    const unsigned char *in = data;
    for (size_t i = 0; i < count; i++) {
        uint16_t bits;
        memcpy(&bits, in + 2 * i, sizeof bits);
        out[i] = exo_from_bf16(bits);
    }
}

/* IEEE 754 binary16. */
static float
from_half(uint16_t bits)
{
    uint32_t sign = (uint32_t)(bits & 0x8000u) << 16, exponent = bits >> 10 & 31u,
             fraction = bits & 1023u, out;
    float value;
    if (exponent == 0) { /* zero or subnormal: a multiple of 2^-24 */
        value = (float)fraction * 0x1p-24f;
        memcpy(&out, &value, sizeof out);
        out |= sign;
    } else if (exponent == 31) {
        out = sign | 0x7F800000u | fraction << 13;
    } else {
        out = sign | (exponent + 112u) << 23 | fraction << 13;
    }
    memcpy(&value, &out, sizeof value);
    return value;
}

static void
from_f16(const void *data, float *out, size_t count)
{
    const unsigned char *in = data;
    for (size_t i = 0; i < count; i++) {
        uint16_t bits;
        memcpy(&bits, in + 2 * i, sizeof bits);
        out[i] = from_half(bits);
    }
}

void
exo_tensor_floats(const exo_safetensor *t, float *out)
{
    if (strcmp(t->dtype, "BF16") == 0)
        from_bf16(t->data, out, t->numel);
    else if (strcmp(t->dtype, "F16") == 0)
        from_f16(t->data, out, t->numel);
    else
        memcpy(out, t->data, t->bytes);
}
