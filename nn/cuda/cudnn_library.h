/* cuDNN as a table of its functions, which are looked up in libcudnn.so.9 when a device first needs
 * them: the plugin exogym-cuda.so loads where there is no cuDNN. Types and numbers are those of
 * cudnn.h, which is not needed; cudnn_header.cu compares them where there is one.
 *
 * State: the table, one for the process. Read next: cudnn_library.cu, cudnn.h. */
#ifndef EXO_CUDA_CUDNN_LIBRARY_H
#define EXO_CUDA_CUDNN_LIBRARY_H

#include <stddef.h>

#include <exogym/status.h>

enum { /* cudnnStatus_t */
    EXO_CUDNN_SUCCESS = 0,
    EXO_CUDNN_NOT_SUPPORTED = 3000, /* and the 999 numbers behind it */
    EXO_CUDNN_NO_HOST_MEMORY = 4003,
    EXO_CUDNN_NO_DEVICE_MEMORY = 4004
};

enum { /* cudnnDataType_t */
    EXO_CUDNN_F32 = 0,
    EXO_CUDNN_BF16 = 9
};

enum {                          /* cudnnMathType_t */
    EXO_CUDNN_DEFAULT_MATH = 0, /* fp32 may be computed as tf32 */
    EXO_CUDNN_TENSOR_OP_MATH = 1,
    EXO_CUDNN_FMA_MATH = 3 /* fp32 alone */
};

enum {
    EXO_CUDNN_NHWC = 1,              /* cudnnTensorFormat_t */
    EXO_CUDNN_CROSS_CORRELATION = 1, /* cudnnConvolutionMode_t */
    EXO_CUDNN_DETERMINISTIC = 1      /* cudnnDeterminism_t */
};

/* cudnnConvolution{Fwd,BwdData,BwdFilter}AlgoPerf_t: an algorithm that a heuristic advises. */
typedef struct exo_cudnn_advice {
    int algorithm, status;
    float time;
    size_t memory;
    int determinism, math, reserved[3];
} exo_cudnn_advice;

typedef void *exo_cudnn_handle;  /* cudnnHandle_t */
typedef void *exo_cudnn_tensor;  /* cudnnTensorDescriptor_t */
typedef void *exo_cudnn_filter;  /* cudnnFilterDescriptor_t */
typedef void *exo_cudnn_windows; /* cudnnConvolutionDescriptor_t */

/* The functions: exo_cudnn_table.NAME is cudnnNAME. X(result, NAME, (parameters)). */
#define EXO_CUDNN_FUNCTIONS(X)                                                                     \
    X(size_t, GetVersion, (void))                                                                  \
    X(const char *, GetErrorString, (int status))                                                  \
    X(int, Create, (exo_cudnn_handle * out))                                                       \
    X(int, Destroy, (exo_cudnn_handle handle))                                                     \
    X(int, SetStream, (exo_cudnn_handle handle, void *stream))                                     \
    X(int, CreateTensorDescriptor, (exo_cudnn_tensor * out))                                       \
    X(int, DestroyTensorDescriptor, (exo_cudnn_tensor tensor))                                     \
    X(int, SetTensor4dDescriptor,                                                                  \
      (exo_cudnn_tensor tensor, int format, int type, int n, int c, int h, int w))                 \
    X(int, CreateFilterDescriptor, (exo_cudnn_filter * out))                                       \
    X(int, DestroyFilterDescriptor, (exo_cudnn_filter filter))                                     \
    X(int, SetFilter4dDescriptor,                                                                  \
      (exo_cudnn_filter filter, int type, int format, int k, int c, int h, int w))                 \
    X(int, CreateConvolutionDescriptor, (exo_cudnn_windows * out))                                 \
    X(int, DestroyConvolutionDescriptor, (exo_cudnn_windows windows))                              \
    X(int, SetConvolution2dDescriptor,                                                             \
      (exo_cudnn_windows windows, int pad_h, int pad_w, int stride_h, int stride_w,                \
       int dilation_h, int dilation_w, int mode, int type))                                        \
    X(int, SetConvolutionMathType, (exo_cudnn_windows windows, int math))                          \
    X(int, GetConvolutionForwardAlgorithm_v7,                                                      \
      (exo_cudnn_handle handle, exo_cudnn_tensor x, exo_cudnn_filter w, exo_cudnn_windows windows, \
       exo_cudnn_tensor y, int room, int *count, exo_cudnn_advice *out))                           \
    X(int, GetConvolutionBackwardDataAlgorithm_v7,                                                 \
      (exo_cudnn_handle handle, exo_cudnn_filter w, exo_cudnn_tensor dy,                           \
       exo_cudnn_windows windows, exo_cudnn_tensor dx, int room, int *count,                       \
       exo_cudnn_advice *out))                                                                     \
    X(int, GetConvolutionBackwardFilterAlgorithm_v7,                                               \
      (exo_cudnn_handle handle, exo_cudnn_tensor x, exo_cudnn_tensor dy,                           \
       exo_cudnn_windows windows, exo_cudnn_filter dw, int room, int *count,                       \
       exo_cudnn_advice *out))                                                                     \
    X(int, GetConvolutionForwardWorkspaceSize,                                                     \
      (exo_cudnn_handle handle, exo_cudnn_tensor x, exo_cudnn_filter w, exo_cudnn_windows windows, \
       exo_cudnn_tensor y, int algorithm, size_t *bytes))                                          \
    X(int, GetConvolutionBackwardDataWorkspaceSize,                                                \
      (exo_cudnn_handle handle, exo_cudnn_filter w, exo_cudnn_tensor dy,                           \
       exo_cudnn_windows windows, exo_cudnn_tensor dx, int algorithm, size_t *bytes))              \
    X(int, GetConvolutionBackwardFilterWorkspaceSize,                                              \
      (exo_cudnn_handle handle, exo_cudnn_tensor x, exo_cudnn_tensor dy,                           \
       exo_cudnn_windows windows, exo_cudnn_filter dw, int algorithm, size_t *bytes))              \
    X(int, ConvolutionForward,                                                                     \
      (exo_cudnn_handle handle, const void *alpha, exo_cudnn_tensor x_is, const void *x,           \
       exo_cudnn_filter w_is, const void *w, exo_cudnn_windows windows, int algorithm,             \
       void *workspace, size_t bytes, const void *beta, exo_cudnn_tensor y_is, void *y))           \
    X(int, ConvolutionBackwardData,                                                                \
      (exo_cudnn_handle handle, const void *alpha, exo_cudnn_filter w_is, const void *w,           \
       exo_cudnn_tensor dy_is, const void *dy, exo_cudnn_windows windows, int algorithm,           \
       void *workspace, size_t bytes, const void *beta, exo_cudnn_tensor dx_is, void *dx))         \
    X(int, ConvolutionBackwardFilter,                                                              \
      (exo_cudnn_handle handle, const void *alpha, exo_cudnn_tensor x_is, const void *x,           \
       exo_cudnn_tensor dy_is, const void *dy, exo_cudnn_windows windows, int algorithm,           \
       void *workspace, size_t bytes, const void *beta, exo_cudnn_filter dw_is, void *dw))

typedef struct exo_cudnn_table {
#define EXO_CUDNN_MEMBER(result, name, parameters) result(*name) parameters;
    EXO_CUDNN_FUNCTIONS(EXO_CUDNN_MEMBER)
#undef EXO_CUDNN_MEMBER
} exo_cudnn_table;

EXO_DECLS_BEGIN

/* Loads the library, once. The table stays as long as the process. Errors: UNSUPPORTED (there is no
 * cuDNN, it cannot be loaded, or it is not version 9). *there: whether the file was found; may be
 * NULL. Any thread. */
exo_status exo_cudnn_load(const exo_cudnn_table **out, bool *there, exo_err *err);
/* For tests: the file to load in place of libcudnn.so.9. Before the first load. */
void exo_cudnn_use(const char *path);

EXO_DECLS_END

#endif
