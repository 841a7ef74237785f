/* Devices, and the arrays in their memory.
 *
 * A device has memory and computes on it. It works in the order in which it was asked, possibly
 * later; exo_device_synchronize waits for it. Parameters, gradients, optimizer state and the state
 * of strategies are arrays (exo_array). An array knows its device, and the functions exo_vec_*
 * change it. DiLoCo's pseudo-gradient is
 *
 *     exo_vec_sub(shard, outer, shard);       shard = outer - shard
 *
 * and is computed where the arrays are. A loop over the elements is possible only on the host:
 * exo_array_host says whether the host reaches an array.
 *
 * Errors stick: the first failure of a device is reported by every later call that waits for the
 * device. So functions that only ask for work return no status. The CPU computes at once and does
 * not fail.
 *
 * Bits: every function below has a result that is defined to the bit, except sums, whose order is
 * the device's own and depends on the count alone. On the CPU all results are the same for any
 * number of threads.
 *
 * Threads: the CPU serves any number of threads at once. Any other device belongs to one thread at
 * a time, and so does an array.
 */
#ifndef EXOGYM_DEVICE_H
#define EXOGYM_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <exogym/dtype.h>
#include <exogym/status.h>

EXO_DECLS_BEGIN

/* A device: memory, and the processor that works on it in order. */
typedef struct exo_device exo_device;

/* The CPU of this host and its memory. Lives as long as the process. */
EXO_API exo_device *exo_device_cpu(void);
/* Opens the device of a name: "cpu" gives exo_device_cpu(), any other kind that this build has
 * gives a new device. "cuda" is a GPU of NVIDIA, the first that the process sees, and "cuda:1" the
 * next; "auto" is "cuda" where there is one, else "cpu". The caller closes it. Errors: NOT_FOUND (the
 * text names the kinds of this build), UNSUPPORTED (this machine or this build has none), NOMEM, or
 * the device's. */
EXO_API exo_status exo_device_open(exo_device **out, const char *name, exo_err *err);
/* The same; if the name has no number, the place-th of the devices that the process sees, in turn:
 * so nodes share several GPUs. */
EXO_API exo_status exo_device_open_place(exo_device **out, const char *name, uint32_t place,
                                         exo_err *err);
/* Whether all devices of that name that this process opens are on one GPU, as for "cuda:1", and for
 * "cuda" where it sees one. */
EXO_API bool exo_device_is_one_gpu(const char *name);
/* Closes a device and sets *device to NULL; accepts NULL in it. The caller has released everything
 * on the device before. */
EXO_API void exo_device_close(exo_device **device);
/* Returns OK if exo_device_open knows the name, else NOT_FOUND. */
EXO_API exo_status exo_device_check(const char *name, exo_err *err);
/* The name, such as "cpu": a literal. */
EXO_API const char *exo_device_name(const exo_device *device);
/* Whether the host can read and write the device's memory directly. */
EXO_API bool exo_device_is_host(const exo_device *device);
/* Waits until the device has done all of its work. Errors: the device's first failure. */
EXO_API exo_status exo_device_synchronize(exo_device *device, exo_err *err);
/* What is asked for from here to the end belongs together, such as a step of training. A device may put
 * it off and start it at the end, or when results are asked for: a GPU starts it as a CUDA graph where
 * EXOGYM_CUDA_GRAPHS is `on`. Passes and the steps of optimizers are such sections by themselves, and
 * sections may lie within others. Results are the same. */
EXO_API void exo_device_section_begin(exo_device *device);
/* Ends it; every begin needs that, also after a failure. Errors: what the device knows at once, such as
 * FAILED. */
EXO_API exo_status exo_device_section_end(exo_device *device, exo_err *err);

/* An array: `count` elements on a device, or a part of another array. Passed by value; a copy names
 * the same elements. All zero: no array. */
typedef struct exo_array {
    exo_device *device;
    void *data;      /* the device's address; only for the host if exo_device_is_host */
    size_t count;    /* elements */
    exo_dtype dtype; /* type of the elements */
    /* exo_array_release frees the memory, which exo_array_init or exo_array_import allocated */
    bool owned;
} exo_array;

/* Makes an array of zeros. The caller releases it. Errors: NOMEM, or the device's. Blocks: no
 * longer than the device's allocator. */
EXO_API exo_status exo_array_init(exo_array *out, exo_device *device, exo_dtype dtype, size_t count,
                                  exo_err *err);
/* Frees the memory, if the array owns it, after the device's work on it; *array becomes no
 * array. */
EXO_API void exo_array_release(exo_array *array);
/* The caller's memory (count elements of dtype) as an array of the CPU. It is not copied and still
 * belongs to the caller. */
EXO_API exo_array exo_host_array(exo_dtype dtype, void *data, size_t count);
/* Makes values of the host available to a device: the caller's memory itself if the device can read
 * it, else a copy. The caller does not change `data` until it releases *out. Errors: NOMEM. */
EXO_API exo_status exo_array_import(exo_array *out, exo_device *device, exo_dtype dtype,
                                    const void *data, size_t count, exo_err *err);
/* The elements [first, first + count), which lie within the array; not owned. */
EXO_API exo_array exo_array_part(exo_array array, size_t first, size_t count);
/* The elements as host memory, after the device's work is done. NULL: the host cannot reach them,
 * or there are none. For loops that exo_vec_* lacks; exo_array_read and exo_array_write work on
 * every device. */
EXO_API void *exo_array_host(exo_array array);

/* Copies all elements to, or from, host memory, and waits for the copy. Errors: as
 * exo_device_synchronize. */
EXO_API exo_status exo_array_read(exo_array array, void *to, exo_err *err);
EXO_API exo_status exo_array_write(exo_array array, const void *from, exo_err *err);

/* Asks the device to copy host memory to all elements, and does not wait. The caller may change `from`
 * afterwards. The device remembers a failure. */
EXO_API void exo_array_send(exo_array array, const void *from);

/* --- Whole-array arithmetic -------------------------------------------------------------------
 *
 * The arrays of a call are on one device and have one count; they are fp32 unless another type is
 * named; they are equal or do not overlap. Each operation of a formula is rounded to fp32 by
 * itself. These functions do not wait, except those that return a number to the host. */

/* to = from; any type, equal for both. */
EXO_API void exo_vec_copy(exo_array to, exo_array from);
/* y = value. */
EXO_API void exo_vec_fill(exo_array y, float value);
/* y = a y. */
EXO_API void exo_vec_scale(exo_array y, float a);
/* y = y / a. A product with 1 / a would give other bits. */
EXO_API void exo_vec_divide(exo_array y, float a);
/* y = y + a x. */
EXO_API void exo_vec_axpy(exo_array y, float a, exo_array x);
/* y = a + b; also bf16, and int32 modulo 2^32. */
EXO_API void exo_vec_add(exo_array y, exo_array a, exo_array b);
/* y = a - b. */
EXO_API void exo_vec_sub(exo_array y, exo_array a, exo_array b);
/* y = a b. */
EXO_API void exo_vec_mul(exo_array y, exo_array a, exo_array b);
/* y = y + t (x - y). */
EXO_API void exo_vec_lerp(exo_array y, float t, exo_array x);
/* y = sign(x): -1, 0 or 1; 0 for NaN. */
EXO_API void exo_vec_sign(exo_array y, exo_array x);
/* y = (x - mean) factor, computed in double and rounded once. */
EXO_API void exo_vec_standardize(exo_array y, exo_array x, double mean, double factor);
/* y = x, from fp32 to bf16 (to nearest, ties to even) or back, or between equal types. */
EXO_API void exo_vec_cast(exo_array y, exo_array x);
/* y[i] = x[index[i]]. index: as many as y has elements, int32 or the bits of uint32, each below x's
 * count. The arrays do not overlap. */
EXO_API void exo_vec_gather(exo_array y, exo_array x, exo_array index);
/* y[index[i]] = x[i]. No index occurs twice. */
EXO_API void exo_vec_scatter(exo_array y, exo_array index, exo_array x);

/* y[i] = the mean of x[r][i] over the rows r without the `trim` smallest and the `trim` largest of
 * them; 2 trim is below `rows`. x: (rows, x.count / rows), each row at least as long as y; y does
 * not overlap x. The values that are left are added in the order of the rows, and the sum is
 * divided by their number. NaN counts as larger than any number; of equal values, those of earlier
 * rows count as smaller. With trim = (rows - 1) / 2 this is the median. */
EXO_API void exo_vec_trimmed_mean(exo_array y, exo_array x, size_t rows, size_t trim);

/* The sum of x, in double; 0 for no elements. As the next two: waits for the device and writes
 * *out. Errors: the device's. */
EXO_API exo_status exo_vec_sum(exo_array x, double *out, exo_err *err);
/* The sum of (x - center)^2. */
EXO_API exo_status exo_vec_sum_squares(exo_array x, double center, double *out, exo_err *err);
/* The sum of a b. */
EXO_API exo_status exo_vec_dot(exo_array a, exo_array b, double *out, exo_err *err);

EXO_DECLS_END

#endif
