/* Arrays of items that are on devices: graph.h has the functions for actors, item.h those for
 * channels. The memory is that of nn/device/joint.h, which any thread may hold. Read next: item.c. */
#include <exogym/memory.h>

#include "graph/item_impl.h"

/* --- The sender ------------------------------------------------------------------------------- */

exo_status
exo_item_new(exo_item **out, const exo_item_part *parts, size_t num_parts, exo_err *err)
{
    bool far[EXO_MAX_PARTS] = {false};
    *out = NULL;
    for (size_t i = 0; i < num_parts && i < EXO_MAX_PARTS; i++)
        far[i] = parts[i].device && !exo_device_is_host(parts[i].device);
    exo_status st = exo_item_make(out, parts, num_parts, far, err);
    for (size_t i = 0; st == EXO_OK && i < num_parts; i++) {
        exo_item_far *f = &exo_counted(*out)->far[i];
        (*out)->parts[i].device = parts[i].device;
        if (far[i])
            st = exo_joint_new(&f->share, parts[i].device, parts[i].dtype, parts[i].count, err);
        if (far[i] && st == EXO_OK) {
            f->place = exo_ipc_place(parts[i].device);
            f->unit = exo_joint_unit(f->share);
        }
    }
    if (st != EXO_OK)
        exo_item_drop(out);
    return st;
}

exo_array
exo_item_array(const exo_item *item, size_t part)
{
    const exo_item_part *p = &item->parts[part];
    const exo_joint *share = exo_counted(item)->far[part].share;
    return share && !p->data ? exo_joint_array(share, p->device)
                             : exo_host_array(p->dtype, p->data, p->count);
}

exo_status
exo_item_mark(exo_item *item, exo_err *err)
{
    exo_counted_item *c = exo_counted(item);
    exo_status st = EXO_OK;
    for (size_t i = 0; st == EXO_OK && !c->marked && i < item->num_parts; i++)
        if (c->far[i].share)
            st = exo_joint_mark(c->far[i].share, item->parts[i].device, err);
    c->marked = c->marked || st == EXO_OK;
    return st;
}

bool
exo_item_is_far(const exo_item *item)
{
    for (size_t i = 0; i < item->num_parts; i++)
        if (!item->parts[i].data && exo_counted(item)->far[i].share)
            return true;
    return false;
}

uint64_t
exo_item_units(const exo_item *item)
{
    uint64_t hash = 0;
    for (size_t i = 0; i < item->num_parts; i++)
        hash = (hash ^ exo_counted(item)->far[i].unit) * UINT64_C(0x100000001b3); /* FNV-1a */
    return hash >> 1;
}

/* --- The receiver ----------------------------------------------------------------------------- */

/* Whether the receiver's device can open the array that it may try; -1: that is not known. */
static int
try_name(exo_item_far *f, exo_device *device)
{
    exo_joint *share = NULL;
    exo_status st = EXO_UNSUPPORTED;
    if (!device || exo_device_is_host(device)) {
        exo_object_drop(&f->name);
        return -1;
    }
    if (f->place == exo_ipc_place(device))
        st = exo_joint_open(&share, device, &f->name, NULL);
    exo_object_drop(&f->name);
    exo_joint_drop(&share);
    return st == EXO_OK ? 1 : st == EXO_UNSUPPORTED ? 0 : -1;
}

static exo_status
open_named(exo_item_far *f, const exo_item_part *part, exo_device *device, exo_err *err)
{
    if (!device || exo_device_is_host(device))
        return exo_fail(err, EXO_INVAL,
                        "the name of an array of a GPU came to an input without a GPU");
    exo_status st = exo_joint_open(&f->share, device, &f->name, err);
    if (st != EXO_OK)
        return st;
    exo_array array = exo_joint_array(f->share, device);
    return array.dtype == part->dtype && array.count == part->count
               ? EXO_OK
               : exo_fail(err, EXO_INVAL, "an array of a GPU is not as its message says");
}

static exo_status
bring_to_host(exo_item_far *f, exo_item_part *part, exo_joint_reader *reader, exo_err *err)
{
    size_t bytes = exo_joint_bytes(f->share);
    f->host = exo_alloc_aligned(bytes ? bytes : 1);
    if (!f->host)
        return exo_fail(err, EXO_NOMEM, "no memory for an item of %zu bytes", bytes);
    exo_status st = exo_joint_read(reader, f->share, f->host, err);
    part->data = f->host;
    part->device = NULL;
    exo_joint_drop(&f->share);
    return st;
}

exo_status
exo_item_land(exo_item *item, exo_device *device, exo_joint_reader *reader, int *reach,
              exo_err *err)
{
    exo_status st = EXO_OK;
    for (size_t i = 0; st == EXO_OK && i < item->num_parts; i++) {
        exo_item_far *f = &exo_counted(item)->far[i];
        exo_item_part *part = &item->parts[i];
        if (f->name && part->data) {
            int can = try_name(f, device);
            *reach = can < 0 || *reach == 0 ? *reach : can; /* names are for all arrays, or none */
        } else if (f->name) {
            st = open_named(f, part, device, err);
        }
        if (st != EXO_OK || !f->share)
            continue;
        if (device && exo_joint_suits(f->share, device))
            part->device = device;
        else
            st = bring_to_host(f, part, reader, err);
    }
    return st;
}

/* Copies an array of another GPU, or to the host. */
static exo_status
copy_array(exo_array *out, const exo_joint *share, exo_device *device, exo_err *err)
{
    exo_joint_reader reader = {0};
    const exo_array from = exo_joint_array(share, device);
    if (!exo_joint_suits(share, device) && !exo_device_is_host(device))
        return exo_fail(err, EXO_UNSUPPORTED, "the device %s cannot read the array of an item",
                        exo_device_name(device));
    exo_status st = exo_array_init(out, device, from.dtype, from.count, err);
    if (st != EXO_OK)
        return st;
    if (exo_device_is_host(device)) {
        st = exo_joint_read(&reader, share, out->data, err);
        exo_joint_reader_release(&reader);
    } else {
        st = exo_joint_follow(share, device, err);
        if (st == EXO_OK)
            exo_vec_copy(*out, from);
    }
    if (st != EXO_OK)
        exo_array_release(out);
    return st;
}

exo_status
exo_item_import(exo_array *out, const exo_item *item, size_t part, exo_device *device, exo_err *err)
{
    const exo_item_part *p = &item->parts[part];
    const exo_joint *share = exo_counted(item)->far[part].share;
    *out = (exo_array){0};
    if (p->data || !share)
        return exo_array_import(out, device, p->dtype, p->data, p->count, err);
    if (!exo_joint_is_on(share, device))
        return copy_array(out, share, device, err);
    exo_status st = exo_joint_follow(share, device, err);
    if (st == EXO_OK)
        *out = exo_joint_array(share, device);
    return st;
}

void
exo_item_drop_after(exo_item **item, exo_device *device)
{
    exo_item *i = *item;
    for (size_t p = 0; i && p < i->num_parts; p++)
        if (exo_counted(i)->far[p].share)
            exo_joint_use(exo_counted(i)->far[p].share, device);
    exo_item_drop(item);
    exo_joint_sweep();
}
