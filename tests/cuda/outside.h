/* Work that something beside CUDA does in the order of streams, such as the NCCL and the cuDNN of the tests. The
 * functions are exported, for shared objects. */
#ifndef EXO_TEST_CUDA_OUTSIDE_H
#define EXO_TEST_CUDA_OUTSIDE_H

#include <cuda_runtime.h>

#include <memory>

/* Calls `act` with the emulator's lock, and wakes those who wait for something outside. */
CUDA_EMULATED_EXPORT void cuda_emulated_locked(const std::function<void()> &act);
/* With the lock: lets the host reach device memory, until the call that does work ends. */
CUDA_EMULATED_EXPORT void cuda_emulated_show_memory(void);
/* Queues work, which waits until *gate is true (NULL: for nothing), also on a GPU that has failed. With
 * the lock, as `run` has it. It cannot be recorded: the capture of a stream fails at its end. */
CUDA_EMULATED_EXPORT void cuda_emulated_push(cudaStream_t stream, std::shared_ptr<bool> gate,
                                             std::function<void()> run);
/* From now on `poll` is called, with the lock, whenever streams do work or wait: it opens gates for which
 * other processes are waited. NULL: nothing is called. */
CUDA_EMULATED_EXPORT void cuda_emulated_set_poll(void (*poll)(void));
/* Whether a thread records something on the GPU: then nobody may wait for it. With the lock. */
CUDA_EMULATED_EXPORT bool cuda_emulated_is_recorded(int gpu);
/* What a library does that waits for a GPU, as long as its work takes: CUDA refuses what is recorded there
 * meanwhile. With the lock, which is given up for what is outside. */
CUDA_EMULATED_EXPORT void cuda_emulated_await_gpu(int gpu);
/* The same, as cudaFree does it: what is recorded on other threads is left alone. */
CUDA_EMULATED_EXPORT void cuda_emulated_await_work(int gpu);
/* Says that work has written these bytes of device memory, for those who look for bytes that nobody has
 * written. With the lock. */
CUDA_EMULATED_EXPORT void cuda_emulated_wrote(const void *memory, size_t bytes);
/* Whether all these bytes are of one block of device memory that is not freed. With the lock. */
CUDA_EMULATED_EXPORT bool cuda_emulated_holds(const void *memory, size_t bytes);
/* Loads a kernel of a library, by a number of its own, as a launch does (cuda_emulator_load_lazily). False:
 * the thread records, and may not. With the lock. */
CUDA_EMULATED_EXPORT bool cuda_emulated_load(uint64_t kernel);

#endif
