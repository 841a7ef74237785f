/* What an open device takes of its GPU for itself, in bytes: to copy from the host, to sum, for
 * products, and for the numbers of graphs. Libraries' own memory is not in it. No state. */
#ifndef EXO_CUDA_OWN_BYTES_H
#define EXO_CUDA_OWN_BYTES_H

#include <stddef.h>
#include <stdint.h>

uint64_t exo_cuda_own_bytes(void);    /* all of it. device.cu */
size_t exo_cuda_matmul_bytes(void);   /* that of exo_cuda_matmul_new. matmul_lt.cu */
size_t exo_cuda_sections_bytes(void); /* that of exo_cuda_sections_new. sections.cu */

#endif
