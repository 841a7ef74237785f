/* Compares the numbers and layouts of the stand-ins with those of NVIDIA's headers. A difference ends the
 * process. No state. */
#include "ptx/abi.h"

#include <stdio.h>
#include <stdlib.h>

#define NAME(x) #x,

__attribute__((constructor)) static void
check(void)
{
    static const long own[] = {PTX_ABI(PTX_ABI_VALUE)};
    static const char *const names[] = {PTX_ABI(NAME)};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (own[i] != ptx_nvidia_abi()[i]) {
            fprintf(stderr, "ptx: %s is %ld in tests/cuda, and %ld in NVIDIA's headers\n", names[i],
                    own[i], ptx_nvidia_abi()[i]);
            abort();
        }
}
