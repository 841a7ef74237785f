/* Payloads: bytes whose ownership moves. No state. */
#include <exogym/payload.h>

#include <stdint.h>
#include <string.h>

#include <exogym/memory.h>

exo_payload
exo_payload_borrow(const void *data, size_t size)
{
    return (exo_payload){.data = (void *)(uintptr_t)data, .size = size};
}

exo_status
exo_payload_copy(exo_payload *out, const void *data, size_t size)
{
    void *copy = exo_calloc(1, size);
    if (!copy)
        return EXO_NOMEM;
    if (size)
        memcpy(copy, data, size);
    *out = (exo_payload){.data = copy, .size = size, .release = exo_free};
    return EXO_OK;
}

void
exo_payload_release(exo_payload *payload)
{
    if (payload->release)
        payload->release(payload->owner ? payload->owner : payload->data);
    *payload = (exo_payload){0};
}
