/* What tests say to the CUDA runtime of the tests (cuda_runtime.h here). Owner: the process. */
#ifndef EXO_TEST_CUDA_EMULATOR_H
#define EXO_TEST_CUDA_EMULATOR_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Equal arguments of kernels are equal bytes (clear_padding of nn/cuda/table.cu), so that an equal pass
 * is not recorded again. */
#if defined(__GNUC__) && !defined(__clang__)
#define CUDA_EMULATOR_EQUAL_BYTES 1
#else
#define CUDA_EMULATOR_EQUAL_BYTES 0
#endif

/* From now on the order of streams and threads is drawn from this seed. */
void cuda_emulator_seed(uint64_t seed);
/* The number of GPUs, 1 at first; -1: there is no driver. */
void cuda_emulator_set_gpus(int count);
/* The number of the first one among those of the machine, 0 at first: a process with another one sees
 * other GPUs. */
void cuda_emulator_set_first(int first);
/* The compute capability of the GPUs, 90 at first: 9.0. */
void cuda_emulator_set_capability(int number);
/* From now on, or no longer, no kernel was compiled for the GPUs. */
void cuda_emulator_lack_image(bool wanted);
/* The n-th kernel, copy or fill from now on fails when it is done, and so does all later work; n
 * counts from 1, 0: none does, and the GPU works again. */
void cuda_emulator_fail_at(uint64_t n);
/* The n-th call of a function that can fail fails from now on, once. */
void cuda_emulator_fail_call(uint64_t n);
/* The n-th allocation from now on lacks memory, once. */
void cuda_emulator_no_memory_at(uint64_t n);
/* The GPU has so many bytes; 0: 1 TiB. */
void cuda_emulator_set_memory(uint64_t bytes);
/* The bytes and the other things (streams, events, graphs, pinned blocks) that are in use. */
uint64_t cuda_emulator_memory(void);
uint64_t cuda_emulator_things(void);
/* Graphs that were launched, recorded, and changed. */
uint64_t cuda_emulator_graphs(void);
uint64_t cuda_emulator_records(void);
uint64_t cuda_emulator_updates(void);
/* The n-th change of a graph from now on is refused, once. */
void cuda_emulator_refuse_update_at(uint64_t n);
/* What of a graph fails: the begin of its record, a kernel or a copy that is recorded, the end of the record, the
 * graph that is made of it, a change, and a launch. */
typedef enum cuda_graph_call {
    CUDA_BEGIN_CAPTURE,
    CUDA_IN_CAPTURE,
    CUDA_END_CAPTURE,
    CUDA_INSTANTIATE,
    CUDA_UPDATE,
    CUDA_LAUNCH_GRAPH,
    CUDA_GRAPH_CALLS
} cuda_graph_call;

/* The n-th of these from now on fails, and `times` in all; n counts from 1, 0: none does. The GPU goes on
 * working. */
void cuda_emulator_fail_graph(cuda_graph_call call, uint64_t n, uint64_t times);
/* How many have failed that way. */
uint64_t cuda_emulator_failed_graphs(void);
/* From now on, or no longer, kernels are loaded when they are first launched on a GPU, as with CUDA's
 * CUDA_MODULE_LOADING=LAZY: a thread that records may not launch one for the first time, and what other
 * threads record on the GPU meanwhile is lost. Kernels that were launched before count as loaded. */
void cuda_emulator_load_lazily(bool wanted);
/* First launches that were refused, or have spoiled a record of another thread. */
uint64_t cuda_emulator_late_loads(void);
/* From now on, or no longer, a race between the threads of a grid ends the process (races.cc). False:
 * this build has another sanitizer, and races are not seen. */
bool cuda_emulator_watch_races(bool wanted);
/* The same, whatever is wanted later. */
void cuda_emulator_always_watch(bool wanted);

/* Faults of planted.cc. */
typedef enum cuda_fault {
    CUDA_SOUND, /* none */
    CUDA_NO_BARRIER,
    CUDA_SHUFFLE_AS_BARRIER,
    CUDA_TWO_BLOCKS,  /* that write the same */
    CUDA_NOT_WRITTEN, /* shared bytes that are read */
    CUDA_NOT_WRITTEN_DECLARED,
    CUDA_MUCH_DECLARED, /* shared bytes, with those of the launch */
    CUDA_NO_MULTIPLE,   /* an address */
    CUDA_COPY_EARLY,    /* what a copy brings is read before the wait for it */
    CUDA_COPY_LATE,     /* a thread waits for its copy behind the barrier before others read */
    CUDA_ENDED_LANE,    /* whose warp shuffles without it */
    CUDA_COPY_BEYOND,   /* the end of an allocation */
    CUDA_FILL_BEYOND,
    CUDA_MUCH_SHARED, /* which nobody has allowed */
    /* Those that the thread sanitizer finds (order.h). */
    CUDA_SOUND_STREAMS, /* none */
    CUDA_NO_EVENT,      /* two streams write the same */
    CUDA_READ_EARLY,    /* the host reads what a copy brings before it waits */
    CUDA_CHANGED_EARLY  /* the host changes what a copy takes */
} cuda_fault;

/* Runs a kernel with the fault. Returns the error of its launch. */
int cuda_emulator_plant(cuda_fault fault);
/* Waits of the host for a stream. */
uint64_t cuda_emulator_waits(void);
/* Products of fp8 that the cuBLASLt of the tests has taken. */
uint64_t cuda_emulator_fp8_products(void);
/* Epilogues of cublasLt.h, and the products with one that it has taken; those with a bias in fp32 are
 * not counted. */
typedef enum cuda_epilogue {
    CUDA_BIAS = 4,
    CUDA_GELU = 32,
    CUDA_GELU_BIAS = CUDA_GELU | CUDA_BIAS,
    CUDA_GELU_AUX = CUDA_GELU | 128,
    CUDA_GELU_AUX_BIAS = CUDA_GELU_AUX | CUDA_BIAS,
    CUDA_GELU_SLOPE = 64 | 128,
    CUDA_SUM_B = 512
} cuda_epilogue;

uint64_t cuda_emulator_epilogues(cuda_epilogue epilogue);
/* From now on, or no longer, it has no algorithm for any epilogue, those with a bias in fp32 excepted. */
void cuda_emulator_refuse_epilogues(bool wanted);
/* The same, and it calls them an invalid value. */
void cuda_emulator_invalid_epilogues(bool wanted);
/* From now on, or no longer, its products with CUDA_SUM_B have half as many blocks as plain ones. */
void cuda_emulator_poor_sums(bool wanted);
/* Kernels, copies and fills that were done, and calls of functions that can fail. */
uint64_t cuda_emulator_done(void);
uint64_t cuda_emulator_calls(void);

#ifdef __cplusplus
}
#endif

#endif
