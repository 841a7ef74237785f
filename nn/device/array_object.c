/* Arrays as objects: see exogym/array_object.h. An array on a device is memory of several threads and
 * processes (joint.h), whose record is an object; an array on the CPU is an object of its bytes. No
 * state besides what the caller has. Read next: joint.c, runtime/cluster/objects.c. */
#include <exogym/array_object.h>

#include <string.h>

#include <exogym/memory.h>

#include "nn/device/device_impl.h"
#include "nn/device/joint.h"
#include "store/store.h"

struct exo_array_object {
    exo_array array;    /* may own a copy of `memory`, or of bytes */
    exo_joint *memory;  /* held; NULL: not on a device, or a copy of bytes */
    exo_object *object; /* held: the bytes of `array`, on the CPU */
    bool made, sealed, copied;
    exo_object_id id; /* by which it was got */
};

static void
free_array(exo_array_object **array)
{
    exo_array_object *a = *array;
    *array = NULL;
    if (!a)
        return;
    if (a->memory)
        exo_joint_use(a->memory, a->array.device);
    exo_array_release(&a->array);
    exo_joint_drop(&a->memory);
    exo_object_drop(&a->object);
    exo_free(a);
    exo_joint_sweep();
}

static exo_array_object *
new_array(exo_device *device, exo_err *err)
{
    exo_array_object *a = exo_calloc(1, sizeof *a);
    if (a)
        a->array.device = device;
    else
        exo_fail(err, EXO_NOMEM, "no memory for an array");
    return a;
}

/* --- The maker -------------------------------------------------------------------------------- */

static exo_status
make_on_host(exo_array_object *a, exo_dtype dtype, size_t count, exo_err *err)
{
    size_t bytes = 0;
    if (__builtin_mul_overflow(count, exo_dtype_size(dtype), &bytes))
        return exo_fail(err, EXO_NOMEM, "no memory for %zu elements", count);
    exo_status st = exo_object_new(&a->object, bytes, err);
    if (st != EXO_OK)
        return st;
    exo_object_set_kind(a->object, EXO_JOINT_KIND(dtype));
    a->array = (exo_array){.device = a->array.device,
                           .data = exo_object_data(a->object),
                           .count = count,
                           .dtype = dtype};
    return EXO_OK;
}

exo_status
exo_array_object_new(exo_array_object **out, exo_device *device, exo_dtype dtype, size_t count,
                     exo_err *err)
{
    *out = NULL;
    exo_array_object *a = new_array(device, err);
    if (!a)
        return EXO_NOMEM;
    a->made = true;
    exo_status st = exo_device_is_host(device)
                        ? make_on_host(a, dtype, count, err)
                        : exo_joint_new(&a->memory, device, dtype, count, err);
    if (st == EXO_OK && a->memory)
        a->array = exo_joint_array(a->memory, device);
    if (st == EXO_OK)
        *out = a;
    else
        free_array(&a);
    return st;
}

exo_status
exo_array_object_put(exo_array_object **out, exo_array array, exo_err *err)
{
    exo_status st = exo_array_object_new(out, array.device, array.dtype, array.count, err);
    if (st != EXO_OK)
        return st;
    if (array.count)
        exo_vec_copy((*out)->array, array);
    st = exo_array_object_seal(*out, err);
    if (st != EXO_OK)
        free_array(out);
    return st;
}

exo_array
exo_array_object_of(const exo_array_object *array)
{
    exo_array elements = array->array;
    elements.owned = false;
    return elements;
}

bool
exo_array_object_is_copy(const exo_array_object *array)
{
    return array->copied;
}

exo_status
exo_array_object_seal(exo_array_object *array, exo_err *err)
{
    exo_status st = EXO_OK;
    if (array->sealed || !array->made)
        return EXO_OK;
    if (array->memory)
        st = exo_joint_mark(array->memory, array->array.device, err);
    else
        exo_object_seal(array->object);
    array->sealed = st == EXO_OK;
    return st;
}

exo_status
exo_array_object_name(exo_runtime *runtime, exo_array_object *array, exo_object_id *out,
                      exo_err *err)
{
    if (!array->made) {
        *out = array->id;
        return EXO_OK;
    }
    if (!array->sealed)
        return exo_fail(err, EXO_INVAL, "an array has to be sealed before it has a name");
    exo_status st = array->memory ? exo_joint_wait(array->memory, err) : EXO_OK;
    if (st != EXO_OK)
        return st;
    return exo_object_name(runtime, array->memory ? exo_joint_object(array->memory) : array->object,
                           out, err);
}

/* --- The reader ------------------------------------------------------------------------------- */

/* Opens the maker's memory. Errors: as exo_joint_open. */
static exo_status
open_memory(exo_array_object *a, const exo_object_handle *handle, exo_err *err)
{
    exo_ipc_handle name;
    exo_object *record = NULL;
    memcpy(&name, handle, sizeof name);
    exo_status st = exo_joint_import(&record, &name, err);
    return st == EXO_OK ? exo_joint_open(&a->memory, a->array.device, &record, err) : st;
}

/* The elements of memory that was opened; a copy if the device's kernels do not reach it. */
static exo_status
take_memory(exo_array_object *a, exo_err *err)
{
    exo_device *device = a->array.device;
    const exo_array theirs = exo_joint_array(a->memory, device);
    a->copied = !exo_joint_is_on(a->memory, device);
    exo_status st = exo_joint_follow(a->memory, device, err);
    if (st != EXO_OK)
        return st;
    if (!a->copied) {
        a->array = theirs;
        return EXO_OK;
    }
    st = exo_array_init(&a->array, device, theirs.dtype, theirs.count, err);
    if (st != EXO_OK)
        a->array = (exo_array){.device = device};
    else if (theirs.count)
        exo_vec_copy(a->array, theirs);
    return st;
}

/* Whether an object of bytes is the maker's own memory. */
static bool
is_that(const exo_object *object, const exo_object_handle *handle)
{
    exo_object_handle own;
    return exo_object_export(object, &own, NULL) == EXO_OK &&
           memcmp(&own, handle, sizeof own) == 0 &&
           exo_object_is_imported(object) == exo_object_may_change(object);
}

/* Gets the bytes, and puts them on the device. */
static exo_status
take_bytes(exo_array_object *a, exo_runtime *runtime, exo_dtype dtype, exo_time deadline,
           exo_err *err)
{
    exo_device *device = a->array.device;
    exo_object_name_words words;
    memcpy(&words, &a->id, sizeof words);
    exo_status st = exo_object_get(runtime, &a->id, deadline, &a->object, err);
    if (st != EXO_OK)
        return st;
    const uint64_t bytes = exo_object_size(a->object);
    if (bytes % exo_dtype_size(dtype) != 0)
        return exo_fail(err, EXO_INVAL, "an array of %llu bytes has no whole elements",
                        (unsigned long long)bytes);
    a->copied = !exo_device_is_host(device) || !is_that(a->object, &words.handle);
    st = exo_array_import(&a->array, device, dtype, exo_object_data(a->object),
                          bytes / exo_dtype_size(dtype), err);
    if (st != EXO_OK)
        a->array = (exo_array){.device = device};
    else if (!exo_device_is_host(device))
        exo_object_drop(&a->object); /* the device has taken the bytes */
    return st;
}

static exo_status
get(exo_array_object *a, exo_runtime *runtime, exo_time deadline, exo_err *err)
{
    exo_object_name_words words;
    exo_err reason = {0};
    memcpy(&words, &a->id, sizeof words);
    const exo_object_handle *h = &words.handle;
    if (h->kind == 0 || h->kind > EXO_JOINT_KIND(EXO_I64))
        return exo_fail(err, EXO_INVAL, "the object is no array");
    if (h->elsewhere && a->array.device->device_class->share_new) {
        exo_status st = open_memory(a, h, &reason);
        if (st == EXO_OK)
            return take_memory(a, err);
        /* another host's process looks as if it had ended */
        if (st != EXO_UNSUPPORTED && st != EXO_PEER_LOST)
            return exo_fail(err, st, "%s", reason.text);
    }
    return take_bytes(a, runtime, (exo_dtype)(h->kind - 1), deadline, err);
}

exo_status
exo_array_object_get(exo_array_object **out, exo_device *device, exo_runtime *runtime,
                     const exo_object_id *id, exo_time deadline, exo_err *err)
{
    *out = NULL;
    exo_array_object *a = new_array(device, err);
    if (!a)
        return EXO_NOMEM;
    a->id = *id;
    exo_status st = get(a, runtime, deadline, err);
    if (st == EXO_OK)
        *out = a;
    else
        free_array(&a);
    return st;
}

void
exo_array_object_drop(exo_array_object **array)
{
    free_array(array);
}
