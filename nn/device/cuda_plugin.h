/* What exogym-cuda.so gives the library: see nn/cuda/module.cu. Read next: gpu_kinds.c. */
#ifndef EXO_DEVICE_CUDA_PLUGIN_H
#define EXO_DEVICE_CUDA_PLUGIN_H

#include <exogym/device.h>

#define EXO_CUDA_CALLS_SYMBOL "exo_cuda_plugin" /* an exo_cuda_calls */

/* The bytes of the structs that the library and the plugin share, the arguments of all kernels among
 * them: a plugin of another version has others. */
#define EXO_CUDA_BYTES_OF(kernel) +sizeof(exo_##kernel##_args)
#define EXO_CUDA_BYTES                                                                             \
    (sizeof(exo_kernels) + sizeof(exo_device_class) + sizeof(exo_device) +                         \
     sizeof(exo_cuda_machine) + sizeof(exo_cuda_calls) EXO_KERNELS(EXO_CUDA_BYTES_OF))

enum {
    EXO_CUDA_MOST_GPUS = 64,
    EXO_CUDA_FP8_CAPABILITY = 89 /* from which on GPUs multiply fp8: 8.9, Ada */
};

/* A GPU that the process sees. */
typedef struct exo_cuda_gpu {
    char name[256];        /* "NVIDIA H100 80GB HBM3" */
    int major, minor;      /* compute capability */
    uint64_t memory, free; /* bytes */
    uint64_t limit;        /* of them EXOGYM_CUDA_MEMORY lets the process have; UINT64_MAX: all */
    char pci[16];          /* its address, "0000:17:00.0" */
} exo_cuda_gpu;

/* What the plugin finds on this machine. Versions are as CUDA counts them: 13000 is 13.0; 0: there
 * is none. */
typedef struct exo_cuda_machine {
    int driver, runtime;
    size_t cublaslt; /* as cuBLASLt counts them: 130001 is 13.0.1 */
    size_t cudnn;    /* as cuDNN counts them: 91900 is 9.19.0 */
    int num_gpus;
    uint64_t own; /* bytes of a GPU that a device takes to open, for each node */
    exo_cuda_gpu gpus[EXO_CUDA_MOST_GPUS];
    char architectures[64];  /* that the plugin was compiled for: "90" */
    char problem[256];       /* why there are none; "": nothing */
    int nccl;                /* NCCL's version as it counts: 22809 is 2.28.9; 0: there is none */
    char nccl_problem[512];  /* why */
    char nccl_lacks[128];    /* its newer functions that it lacks: "CommGrow, CommSuspend" */
    char cudnn_problem[512]; /* why cuDNN cannot be used, although it is there; "": nothing */
} exo_cuda_machine;

typedef struct exo_cuda_calls {
    size_t bytes;       /* EXO_CUDA_BYTES, as the plugin knows it */
    int (*count)(void); /* GPUs that the process sees; 0: none, or no driver */
    exo_status (*open)(exo_device **out, int ordinal, exo_err *err);
    void (*close)(exo_device *device);
    void (*look)(exo_cuda_machine *out);
} exo_cuda_calls;

/* Loads the plugin, once. Errors: UNSUPPORTED, if this exogym was built without CUDA, or the plugin
 * is of another version. gpu_kinds.c */
exo_status exo_cuda_load(const exo_cuda_calls **out, exo_err *err);

#endif
