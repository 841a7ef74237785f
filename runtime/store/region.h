/* Regions: memory of this process's large arrays that other processes of this host and user may map
 * and write, so that a collective can reduce them in place (comm/near.h).
 *
 * A region is an open segment (segment.h) with one slot. It behaves like other memory of the
 * process. Another process that knows its place maps it; the place has the segment's random name.
 * The size is sealed, so that nobody can make another process fault. Arrays are regions only in a
 * process that has called exo_region_enable, and only from EXO_REGION_LEAST bytes on.
 *
 * State: the table of regions, guarded by a lock of its own. Any thread may call any function; no
 * function waits for another process. Read next: region.c, segment.h. */
#ifndef EXO_STORE_REGION_H
#define EXO_STORE_REGION_H

#include "store/segment.h"

enum {
    EXO_REGION_LEAST = 64 * 1024, /* bytes */
    EXO_REGION_MOST = 512,        /* regions of a process; each takes a descriptor */
};

/* The place of a buffer in a region: plain numbers, sent as they are. */
typedef struct exo_region_place {
    uint64_t nonce;  /* the segment's; 0: the buffer is in no region */
    uint64_t offset; /* of the buffer, in the segment's slot; bytes */
    uint32_t fd, pad;
} exo_region_place;

/* From now on large arrays of the CPU are regions. A cluster's member calls it when it joins. */
void exo_region_enable(void);
bool exo_region_is_enabled(void);

/* Allocates zeroed memory, aligned to 4096 bytes. NULL: not enabled, too small, no descriptor or no
 * memory; the caller then takes other memory. */
void *exo_region_alloc(size_t bytes);
/* Frees a region; a process that has it mapped keeps its pages until it unmaps them. False: the
 * memory is no region. */
bool exo_region_free(void *memory);

/* Finds the place of a buffer. False: it is in no region, or in one that was disowned in part. */
bool exo_region_find(const void *data, size_t bytes, exo_region_place *out);
/* Replaces the memory of a buffer by a copy at the same addresses, because another process may
 * still write to it. Only whole pages inside the buffer are replaced. If the buffer is a whole
 * region, it is a region again, with a new name; else the region is never found again. The caller
 * owns all bytes of the buffer. Without memory for a copy the pages are zero afterwards. False: not
 * even that was possible, and others may still write to the buffer. */
bool exo_region_disown(void *data, size_t bytes);

#endif
