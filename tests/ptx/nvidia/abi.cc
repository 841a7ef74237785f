/* The numbers and layouts of NVIDIA's headers: see ptx/abi.h. */
#include "ptx/abi.h"

const long *
ptx_nvidia_abi(void)
{
    static const long values[] = {PTX_ABI(PTX_ABI_VALUE)};
    return values;
}
