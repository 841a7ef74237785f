/* Pointers for an actor of this process: see local_args.h. */
#include "actor/local_args.h"

#include <stdint.h>

/* Frees nothing. Its address marks the payload as one of exo_local_args. */
static void
release_local(void *owner)
{
    (void)owner;
}

exo_payload
exo_local_args(const void *what, size_t size)
{
    return (exo_payload){.data = (void *)(uintptr_t)what, .size = size, .release = release_local};
}

const void *
exo_local_args_get(const exo_payload *args, size_t size)
{
    return args->release == release_local && args->size == size ? args->data : NULL;
}
