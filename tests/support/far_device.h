/* A device whose memory is out of the host's reach: for tests that nothing above nn/cpu reads an
 * array behind its device's back.
 *
 * Its memory is mapped without access (mprotect) but while the device works, so that a stray read
 * or write of the host ends the test with a segmentation fault. It keeps what it is asked for, and
 * does it at the next synchronize, with the CPU's kernels and so with the CPU's bits. It can fail
 * on schedule: the n-th thing that is asked of it fails when it is done, and so does all that comes
 * after.
 *
 * Owner: one thread at a time. */
#ifndef EXO_TEST_FAR_DEVICE_H
#define EXO_TEST_FAR_DEVICE_H

#include <exogym/device.h>

exo_device *far_device_new(void);
/* After its arrays have been released. */
void far_device_free(exo_device **device);
/* From now on the n-th kernel or copy fails with FAILED, from 1; 0: none. */
void far_device_fail_at(exo_device *device, uint64_t n);
/* How many kernels and copies it was asked for, and how many it has done. */
uint64_t far_device_asked(const exo_device *device);
uint64_t far_device_done(const exo_device *device);

#endif
