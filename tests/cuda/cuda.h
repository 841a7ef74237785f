/* What nn/cuda uses of the CUDA driver: memory that is mapped to addresses. pages.cc has the
 * functions, and gives them by name. */
#ifndef EXO_TEST_CUDA_H
#define EXO_TEST_CUDA_H

#include <stddef.h>
#include <stdint.h>

typedef uintptr_t CUdeviceptr;
typedef size_t CUmemGenericAllocationHandle; /* here: the bytes */

typedef enum CUresult {
    CUDA_SUCCESS = 0,
    CUDA_ERROR_INVALID_VALUE = 1,
    CUDA_ERROR_OUT_OF_MEMORY = 2,
} CUresult;

enum {
    CU_MEM_ALLOCATION_TYPE_PINNED = 1,
    CU_MEM_LOCATION_TYPE_DEVICE = 1,
    CU_MEM_ACCESS_FLAGS_PROT_READWRITE = 3
};

typedef enum CUmemAllocationGranularity_flags {
    CU_MEM_ALLOC_GRANULARITY_MINIMUM = 0,
} CUmemAllocationGranularity_flags;

typedef struct CUmemLocation {
    int type, id;
} CUmemLocation;

typedef struct CUmemAllocationProp {
    int type;
    CUmemLocation location;
} CUmemAllocationProp;

typedef struct CUmemAccessDesc {
    CUmemLocation location;
    int flags;
} CUmemAccessDesc;

#endif
