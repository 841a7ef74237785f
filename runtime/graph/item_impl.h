/* The inside of an item. Read next: item.c. */
#ifndef EXO_GRAPH_ITEM_IMPL_H
#define EXO_GRAPH_ITEM_IMPL_H

#include <stdatomic.h>

#include "graph/item.h"

/* What another process needs to open an array. */
typedef struct exo_item_name {
    uint64_t place; /* exo_ipc_place of the memory */
    uint64_t unit;  /* exo_joint_unit of the memory */
    exo_ipc_handle handle;
} exo_item_name;

/* An array that is on a device, or that came with a name. */
typedef struct exo_item_far {
    exo_joint *share; /* held; NULL: none, or not opened yet */
    exo_object *name; /* held: of an array that is to be opened, or tried */
    uint64_t place;   /* exo_ipc_place of the memory; 0: it has no name */
    uint64_t unit;    /* exo_joint_unit of the memory, if it has a name */
    void *host;       /* owned: the values, if they were wanted on the host */
} exo_item_far;

/* An item and its arrays in host memory are one block, with a count of references. */
typedef struct exo_counted_item {
    exo_item item; /* must be first: exo_item_drop frees the block by its item */
    atomic_uint references;
    /* exo_item_mark: it was sent, or it was received. Owner: the sender's thread */
    bool marked;
    exo_item_far far[EXO_MAX_PARTS];
} exo_counted_item;

static inline exo_counted_item *
exo_counted(const exo_item *item)
{
    return (exo_counted_item *)(uintptr_t)item;
}

/* Makes an item without memory for the arrays that are `far`. INVAL, NOMEM. */
exo_status exo_item_make(exo_item **out, const exo_item_part *parts, size_t num_parts,
                         const bool *far, exo_err *err);

#endif
