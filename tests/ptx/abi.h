/* The numbers and layouts that the stand-ins for NVIDIA's headers (tests/cuda) share with these, since objects of
 * nvcc are linked to the functions of the tests. abi.cc has them of the stand-ins, nvidia/abi.cc of NVIDIA's. */
#ifndef EXO_TEST_PTX_ABI_H
#define EXO_TEST_PTX_ABI_H

#include <stddef.h>

#include <cublasLt.h>
#include <cuda.h>
#include <cuda_runtime.h>

#define PTX_ABI(X)                                                                                 \
    X(cudaErrorInvalidValue)                                                                       \
    X(cudaErrorMemoryAllocation)                                                                   \
    X(cudaErrorInsufficientDriver)                                                                 \
    X(cudaErrorNoDevice)                                                                           \
    X(cudaErrorDeviceUninitialized)                                                                \
    X(cudaErrorNoKernelImageForDevice)                                                             \
    X(cudaErrorInvalidResourceHandle)                                                              \
    X(cudaErrorNotReady)                                                                           \
    X(cudaErrorStreamCaptureUnsupported)                                                           \
    X(cudaErrorGraphExecUpdateFailure)                                                             \
    X(cudaStreamNonBlocking)                                                                       \
    X(cudaEventDisableTiming)                                                                      \
    X(cudaMemcpyHostToDevice)                                                                      \
    X(cudaMemcpyDeviceToHost)                                                                      \
    X(cudaMemcpyDeviceToDevice)                                                                    \
    X(cudaMemPoolAttrReleaseThreshold)                                                             \
    X(cudaMemPoolAttrReservedMemCurrent)                                                           \
    X(cudaMemPoolAttrUsedMemCurrent)                                                               \
    X(cudaFuncAttributeMaxDynamicSharedMemorySize)                                                 \
    X(cudaIpcMemLazyEnablePeerAccess)                                                              \
    X(cudaStreamCaptureModeThreadLocal)                                                            \
    X(cudaGraphExecUpdateErrorTopologyChanged)                                                     \
    X(cudaDriverEntryPointSymbolNotFound)                                                          \
    X(sizeof(dim3))                                                                                \
    X(sizeof(cudaIpcMemHandle_t))                                                                  \
    X(offsetof(cudaDeviceProp, uuid))                                                              \
    X(offsetof(cudaDeviceProp, totalGlobalMem))                                                    \
    X(offsetof(cudaDeviceProp, major))                                                             \
    X(offsetof(cudaDeviceProp, minor))                                                             \
    X(CUDA_ERROR_OUT_OF_MEMORY)                                                                    \
    X(sizeof(CUmemGenericAllocationHandle))                                                        \
    X(CUBLAS_STATUS_ALLOC_FAILED)                                                                  \
    X(CUBLAS_STATUS_INVALID_VALUE)                                                                 \
    X(CUBLAS_STATUS_NOT_SUPPORTED)                                                                 \
    X(CUDA_R_32F)                                                                                  \
    X(CUDA_R_16BF)                                                                                 \
    X(CUDA_R_8F_E4M3)                                                                              \
    X(CUDA_R_8F_E5M2)                                                                              \
    X(CUBLAS_OP_T)                                                                                 \
    X(CUBLAS_COMPUTE_32F)                                                                          \
    X(CUBLAS_COMPUTE_32F_FAST_TF32)                                                                \
    X(CUBLASLT_EPILOGUE_BIAS)                                                                      \
    X(CUBLASLT_EPILOGUE_GELU_AUX_BIAS)                                                             \
    X(CUBLASLT_EPILOGUE_DGELU)                                                                     \
    X(CUBLASLT_EPILOGUE_BGRADB)                                                                    \
    X(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE)                                                      \
    X(CUBLASLT_MATMUL_DESC_TRANSA)                                                                 \
    X(CUBLASLT_MATMUL_DESC_TRANSB)                                                                 \
    X(CUBLASLT_MATMUL_DESC_EPILOGUE)                                                               \
    X(CUBLASLT_MATMUL_DESC_BIAS_POINTER)                                                           \
    X(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE)                                                         \
    X(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER)                                                   \
    X(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD)                                                        \
    X(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER)                                                        \
    X(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER)                                                        \
    X(CUBLASLT_MATMUL_DESC_FAST_ACCUM)                                                             \
    X(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT)                                                          \
    X(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET)                                                 \
    X(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES)                                                    \
    X(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK)                                                  \
    X(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES)                                                  \
    X(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES)                                                  \
    X(sizeof(cublasLtMatmulHeuristicResult_t))                                                     \
    X(offsetof(cublasLtMatmulHeuristicResult_t, state))                                            \
    X(offsetof(cublasLtMatmulHeuristicResult_t, wavesCount))

#define PTX_ABI_VALUE(x) static_cast<long>(x),

/* NVIDIA's, in the order of the list. */
const long *ptx_nvidia_abi(void);

#endif
