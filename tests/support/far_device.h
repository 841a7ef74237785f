/* A device whose memory the host cannot reach. It tests that no code above nn/cpu accesses an array
 * without its device.
 *
 * The memory is mapped without access (mprotect), or poisoned, except while the device works, so a
 * stray access of the host ends the test with a segmentation fault, or with a report of the address
 * sanitizer. The device queues kernels and copies and executes them at the next synchronize, or
 * earlier if its queue is full or memory is freed. It uses the CPU's kernels and therefore gets the
 * CPU's bits. It can fail on schedule: the n-th operation fails when it is executed, and so do all
 * later ones.
 *
 * Owner: one thread at a time. */
#ifndef EXO_TEST_FAR_DEVICE_H
#define EXO_TEST_FAR_DEVICE_H

#include <exogym/device.h>

exo_device *far_device_new(void);
/* Call it after all arrays have been released. */
void far_device_free(exo_device **device);
/* From now on the n-th kernel or copy, counted from 1, fails with FAILED; 0: none. */
void far_device_fail_at(exo_device *device, uint64_t n);
/* The n-th allocation from now on gives NOMEM, once; n counts from 1, 0: none does. */
void far_device_no_memory_at(exo_device *device, uint64_t n);
/* From now on the device has `bytes` of memory, those in use included, and says what is free of
 * it; 0: as much as the host gives, and it does not know how much. */
void far_device_set_memory(exo_device *device, uint64_t bytes);
/* The bytes of the device's memory that are in use, and the most that were at once; its own room for
 * a sum included. */
uint64_t far_device_used(const exo_device *device);
uint64_t far_device_most_used(const exo_device *device);
/* From now on each copy from the host is told to `tell` when it is asked for, with its bytes and the
 * number of kernels that were asked for before and have not been executed; NULL: none is. */
typedef void far_device_watcher(void *context, size_t bytes, size_t pending_kernels);
void far_device_watch(exo_device *device, far_device_watcher *tell, void *context);
/* The number of kernels and copies that were queued, and that were executed. */
uint64_t far_device_asked(const exo_device *device);
uint64_t far_device_done(const exo_device *device);

#endif
