/* Devices, and the arrays that live on them.
 *
 * A device has memory and computes on it in the order in which it was asked, perhaps later: exo_device_synchronize waits for it. Whatever
 * holds many numbers (parameters, gradients, optimizer state, what a strategy keeps) is an exo_array, which knows its device, and is
 * changed by exo_vec_*. DiLoCo's pseudo-gradient is
 *
 *     exo_vec_sub(shard, outer, shard);       shard = outer - shard
 *
 * and runs where the arrays are. A loop over an array's elements runs on the host alone: exo_array_host says whether it may.
 *
 * Errors stick: what fails on a device is reported by the next call that waits for it, the first failure for ever. So nothing that only
 * asks for work gives a status. The CPU computes at once and does not fail.
 *
 * Bits: the result of each function below is defined to the bit, but for sums, whose order is the device's, and depends on the count alone.
 * With the CPU it is the same for any number of threads.
 *
 * Threads: the CPU serves any number of threads at once; another device belongs to one thread at a time, and so does an array.
 */
#ifndef EXOGYM_DEVICE_H
#define EXOGYM_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <exogym/dtype.h>
#include <exogym/status.h>

EXO_DECLS_BEGIN

typedef struct exo_device exo_device; /* memory, and what computes on it in order */

/* The processors of this host and its memory. Lives as long as the process. */
EXO_API exo_device *exo_device_cpu(void);
/* The device of that name: "cpu", the one above, or a new one of a kind that this build has. The caller closes it. Errors: NOT_FOUND names those
 * that there are; NOMEM, or the device's. */
EXO_API exo_status exo_device_open(exo_device **out, const char *name, exo_err *err);
/* After all that is on it has been released. Accepts NULL in *device, and sets it to NULL. */
EXO_API void exo_device_close(exo_device **device);
/* Whether exo_device_open knows the name: OK, or NOT_FOUND. */
EXO_API exo_status exo_device_check(const char *name, exo_err *err);
/* "cpu": a literal. */
EXO_API const char *exo_device_name(const exo_device *device);
/* Whether the host may read and write the device's memory as its own. */
EXO_API bool exo_device_is_host(const exo_device *device);
/* Waits until all that was asked of the device is done. Errors: the first that anything on it ended with. */
EXO_API exo_status exo_device_synchronize(exo_device *device, exo_err *err);

/* `count` elements on a device, or a part of them. Passed by value: a copy names the same elements. All zero: no array. */
typedef struct exo_array {
    exo_device *device;
    void *data;      /* the device's address, which the host may follow only if exo_device_is_host */
    size_t count;    /* elements */
    exo_dtype dtype; /* of each  */
    bool owned;      /* exo_array_release frees the memory: of what exo_array_init and exo_array_import gave */
} exo_array;

/* A new array of zeros. The caller releases it. Errors: NOMEM, or the device's. Blocks: no longer than the device's allocator. */
EXO_API exo_status exo_array_init(exo_array *out, exo_device *device, exo_dtype dtype, size_t count, exo_err *err);
/* Frees the memory of an array that owns it, after what was asked of the device; *array becomes no array. */
EXO_API void exo_array_release(exo_array *array);
/* The caller's memory (count elements of dtype) as an array of the CPU: not copied, and it stays the caller's. */
EXO_API exo_array exo_host_array(exo_dtype dtype, void *data, size_t count);
/* Values of the host for a device to read: the caller's memory itself where the device can, a copy of it elsewhere. `data` stays as it is
 * until the caller releases *out. Errors: NOMEM. */
EXO_API exo_status exo_array_import(exo_array *out, exo_device *device, exo_dtype dtype, const void *data, size_t count,
                                    exo_err *err);
/* Elements [first, first + count), which lie within the array; not owned. */
EXO_API exo_array exo_array_part(exo_array array, size_t first, size_t count);
/* The elements as the host's memory, when everything that was asked of the device is done; NULL: the host cannot reach them, or there are
 * none. For loops that exo_vec_* does not have; exo_array_read and exo_array_write work everywhere. */
EXO_API void *exo_array_host(exo_array array);

/* Copies all elements to or from the host's memory, and waits for it. Errors: the device's, as exo_device_synchronize. */
EXO_API exo_status exo_array_read(exo_array array, void *to, exo_err *err);
EXO_API exo_status exo_array_write(exo_array array, const void *from, exo_err *err);

/* --- Whole-array arithmetic --------------------------------------------------------------------------------------------------------
 *
 * Arrays of a call have one device, one count, and fp32 elements unless another type is named; they are equal or do not overlap. Each
 * operation of a formula is rounded to fp32 by itself. None of these waits, but for those that give a number to the host. */

/* to = from, of any type. */
EXO_API void exo_vec_copy(exo_array to, exo_array from);
/* y = value */
EXO_API void exo_vec_fill(exo_array y, float value);
/* y = a y. */
EXO_API void exo_vec_scale(exo_array y, float a);
/* y = y / a: not the same bits as a product with 1 / a. */
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
/* y = -1, 0 or 1; of NaN 0. */
EXO_API void exo_vec_sign(exo_array y, exo_array x);
/* y = (x - mean) factor, computed in double and rounded once. */
EXO_API void exo_vec_standardize(exo_array y, exo_array x, double mean, double factor);
/* y = x, from fp32 to bf16 (to nearest, ties to even) or back, or between equal types. */
EXO_API void exo_vec_cast(exo_array y, exo_array x);
/* y[i] = x[index[i]]; index: int32 or, as its bits, uint32, each below x's count, as many as y has. Nothing overlaps. */
EXO_API void exo_vec_gather(exo_array y, exo_array x, exo_array index);
/* y[index[i]] = x[i]; no index comes twice. */
EXO_API void exo_vec_scatter(exo_array y, exo_array index, exo_array x);

/* Sums in double, of no elements 0: *out is written when they are there, which these wait for. Errors: the device's. */
EXO_API exo_status exo_vec_sum(exo_array x, double *out, exo_err *err);
/* The sum of (x - center)^2. */
EXO_API exo_status exo_vec_sum_squares(exo_array x, double center, double *out, exo_err *err);
/* The sum of a b. */
EXO_API exo_status exo_vec_dot(exo_array a, exo_array b, double *out, exo_err *err);

EXO_DECLS_END

#endif
