/* cuDNN as a table of its functions, which are looked up in libcudnn.so.9 when a device first needs
 * them: the plugin exogym-cuda.so loads where there is no cuDNN. Types and numbers are those of
 * cudnn.h, which is not needed; cudnn_header.cu compares them where there is one.
 *
 * State: the table, one for the process. Read next: cudnn_library.cu, cudnn.h. */
#ifndef EXO_CUDA_CUDNN_LIBRARY_H
#define EXO_CUDA_CUDNN_LIBRARY_H

#include <stddef.h>
#include <stdint.h>

#include <exogym/status.h>

enum { /* cudnnStatus_t */
    EXO_CUDNN_SUCCESS = 0,
    EXO_CUDNN_NOT_SUPPORTED = 3000, /* and the 999 numbers behind it */
    EXO_CUDNN_NO_HOST_MEMORY = 4003,
    EXO_CUDNN_NO_DEVICE_MEMORY = 4004
};

enum { /* cudnnDataType_t */
    EXO_CUDNN_F32 = 0,
    EXO_CUDNN_INT32 = 4,
    EXO_CUDNN_BF16 = 9,
    EXO_CUDNN_BOOLEAN = 11
};

enum {
    EXO_CUDNN_CROSS_CORRELATION = 1, /* cudnnConvolutionMode_t */
    EXO_CUDNN_HEURISTIC_A = 3,       /* cudnnBackendHeurMode_t: the advised engines, best first */
    EXO_CUDNN_HEURISTIC_FALLBACK = 2 /* those that take more shapes */
};

enum { /* cudnnPointwiseMode_t */
    EXO_CUDNN_ADD = 0,
    EXO_CUDNN_MULTIPLY = 1,
    EXO_CUDNN_DIVIDE = 6,
    EXO_CUDNN_SUBTRACT = 9,
    EXO_CUDNN_EXP = 13,
    EXO_CUDNN_LOG = 15,
    EXO_CUDNN_AT_LEAST = 303,
    EXO_CUDNN_INDEX = 501, /* along an axis */
    EXO_CUDNN_SELECT = 601
};

enum { /* cudnnReduceTensorOp_t */
    EXO_CUDNN_SUM_OF = 0,
    EXO_CUDNN_MOST_OF = 3
};

enum { /* cudnnBackendNumericalNote_t: what an engine does to numbers */
    EXO_CUDNN_TENSOR_CORE = 0,
    EXO_CUDNN_DOWN_CONVERTS = 1, /* operands */
    EXO_CUDNN_REDUCES_SUMS = 2,  /* sums are of less than fp32 */
    EXO_CUDNN_NONDETERMINISTIC = 4
};

enum { /* cudnnBackendDescriptorType_t */
    EXO_CUDNN_POINTWISE = 0,
    EXO_CUDNN_CONVOLUTION = 1,
    EXO_CUDNN_ENGINE = 2,
    EXO_CUDNN_CONFIG = 3, /* of an engine */
    EXO_CUDNN_HEURISTIC = 4,
    EXO_CUDNN_PLAN = 5,
    EXO_CUDNN_FORWARD = 10,
    EXO_CUDNN_BACKWARD_FILTER = 11,
    EXO_CUDNN_BACKWARD_DATA = 12,
    EXO_CUDNN_DO_POINTWISE = 13, /* operations of a graph: DO_... */
    EXO_CUDNN_GRAPH = 15,
    EXO_CUDNN_PACK = 16, /* the arrays of a call */
    EXO_CUDNN_TENSOR = 17,
    EXO_CUDNN_MATMUL = 18,
    EXO_CUDNN_DO_MATMUL = 19,
    EXO_CUDNN_REDUCTION = 21,
    EXO_CUDNN_DO_REDUCTION = 22,
    EXO_CUDNN_DO_RESHAPE = 31,
    EXO_CUDNN_MACHINE = 38 /* the properties of a GPU, from 9.8 on */
};

enum { /* cudnnBackendAttributeType_t: types of the values of attributes */
    EXO_CUDNN_OF_HANDLE = 0,
    EXO_CUDNN_OF_DATA_TYPE = 1,
    EXO_CUDNN_OF_BOOLEAN = 2,
    EXO_CUDNN_OF_INT64 = 3,
    EXO_CUDNN_OF_FLOAT = 4,
    EXO_CUDNN_OF_POINTER = 6,
    EXO_CUDNN_OF_CONVOLUTION_MODE = 7,
    EXO_CUDNN_OF_HEURISTIC_MODE = 8,
    EXO_CUDNN_OF_NOTE = 11,
    EXO_CUDNN_OF_POINTWISE_MODE = 14,
    EXO_CUDNN_OF_THING = 15,
    EXO_CUDNN_OF_REDUCTION = 18,
    EXO_CUDNN_OF_CHAR = 24
};

enum { /* cudnnBackendAttributeName_t */
    EXO_CUDNN_POINTWISE_MODE = 0,
    EXO_CUDNN_POINTWISE_TYPE = 1, /* of what is computed */
    EXO_CUDNN_POINTWISE_AXIS = 9,
    EXO_CUDNN_CONVOLUTION_TYPE = 100, /* of sums */
    EXO_CUDNN_CONVOLUTION_MODE = 101,
    EXO_CUDNN_CONVOLUTION_DILATIONS = 102,
    EXO_CUDNN_CONVOLUTION_STRIDES = 103,
    EXO_CUDNN_CONVOLUTION_POST_PADDINGS = 104,
    EXO_CUDNN_CONVOLUTION_PRE_PADDINGS = 105,
    EXO_CUDNN_CONVOLUTION_DIMENSIONS = 106,
    EXO_CUDNN_HEURISTIC_MODE = 200,
    EXO_CUDNN_HEURISTIC_GRAPH = 201,
    EXO_CUDNN_HEURISTIC_RESULTS = 202,
    EXO_CUDNN_HEURISTIC_MACHINE = 204,
    EXO_CUDNN_CONFIG_ENGINE = 300,
    EXO_CUDNN_PLAN_HANDLE = 400,
    EXO_CUDNN_PLAN_CONFIG = 401,
    EXO_CUDNN_PLAN_WORKSPACE = 402,
    EXO_CUDNN_PLAN_MACHINE = 407,
    /* The attributes of each of the three operations begin at a number: */
    EXO_CUDNN_FORWARD_FIRST = 700,
    EXO_CUDNN_BACKWARD_DATA_FIRST = 706,
    EXO_CUDNN_BACKWARD_FILTER_FIRST = 712,
    EXO_CUDNN_ALPHA = 0, /* and go on in this order */
    EXO_CUDNN_BETA = 1,
    EXO_CUDNN_WINDOWS = 2,
    EXO_CUDNN_W = 3,
    EXO_CUDNN_X = 4,
    EXO_CUDNN_Y = 5,
    EXO_CUDNN_DO_POINTWISE_MODE = 750, /* its descriptor */
    EXO_CUDNN_DO_POINTWISE_X = 751,
    EXO_CUDNN_DO_POINTWISE_B = 752,
    EXO_CUDNN_DO_POINTWISE_Y = 753,
    EXO_CUDNN_DO_POINTWISE_T = 758, /* what a selection goes by */
    EXO_CUDNN_GRAPH_HANDLE = 800,
    EXO_CUDNN_GRAPH_OPERATIONS = 801,
    EXO_CUDNN_TENSOR_ALIGNMENT = 900,
    EXO_CUDNN_TENSOR_TYPE = 901,
    EXO_CUDNN_TENSOR_DIMENSIONS = 902,
    EXO_CUDNN_TENSOR_STRIDES = 903,
    EXO_CUDNN_TENSOR_ID = 906,
    EXO_CUDNN_TENSOR_VIRTUAL = 907,  /* it is in no array */
    EXO_CUDNN_TENSOR_BY_VALUE = 908, /* it is on the host */
    EXO_CUDNN_PACK_IDS = 1000,
    EXO_CUDNN_PACK_POINTERS = 1001,
    EXO_CUDNN_PACK_WORKSPACE = 1003,
    EXO_CUDNN_ENGINE_INDEX = 1301,
    EXO_CUDNN_ENGINE_NOTES = 1303,
    EXO_CUDNN_MATMUL_TYPE = 1500,
    EXO_CUDNN_DO_MATMUL_A = 1520,
    EXO_CUDNN_DO_MATMUL_B = 1521,
    EXO_CUDNN_DO_MATMUL_C = 1522,
    EXO_CUDNN_DO_MATMUL_MODE = 1523,
    EXO_CUDNN_REDUCTION_OPERATOR = 1600,
    EXO_CUDNN_REDUCTION_TYPE = 1601,
    EXO_CUDNN_DO_REDUCTION_X = 1610,
    EXO_CUDNN_DO_REDUCTION_Y = 1611,
    EXO_CUDNN_DO_REDUCTION_MODE = 1612,
    EXO_CUDNN_DO_RESHAPE_X = 2200,
    EXO_CUDNN_DO_RESHAPE_Y = 2201,
    EXO_CUDNN_MACHINE_JSON = 2702
};

typedef void *exo_cudnn_handle; /* cudnnHandle_t */
typedef void *exo_cudnn_thing;  /* cudnnBackendDescriptor_t */

/* The functions: exo_cudnn_table.NAME is cudnnNAME. X(result, NAME, (parameters)). */
#define EXO_CUDNN_FUNCTIONS(X)                                                                     \
    X(size_t, GetVersion, (void))                                                                  \
    X(const char *, GetErrorString, (int status))                                                  \
    X(int, Create, (exo_cudnn_handle * out))                                                       \
    X(int, Destroy, (exo_cudnn_handle handle))                                                     \
    X(int, SetStream, (exo_cudnn_handle handle, void *stream))                                     \
    X(int, BackendCreateDescriptor, (int kind, exo_cudnn_thing *out))                              \
    X(int, BackendDestroyDescriptor, (exo_cudnn_thing thing))                                      \
    X(int, BackendSetAttribute,                                                                    \
      (exo_cudnn_thing thing, int attribute, int type, int64_t count, const void *values))         \
    X(int, BackendGetAttribute,                                                                    \
      (exo_cudnn_thing thing, int attribute, int type, int64_t room, int64_t *count,               \
       void *values))                                                                              \
    X(int, BackendFinalize, (exo_cudnn_thing thing))                                               \
    X(int, BackendExecute, (exo_cudnn_handle handle, exo_cudnn_thing plan, exo_cudnn_thing pack))

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
/* For tests: plans are for the GPU that the JSON describes, as cuDNN 9.8 and later read it, and no GPU
 * is needed. Nothing of them can run. Before the first device; NULL: no longer. */
void exo_cudnn_plan_for(const char *json);
const char *exo_cudnn_planned_for(void);

EXO_DECLS_END

#endif
