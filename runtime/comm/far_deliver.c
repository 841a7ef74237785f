/* What arrives at a member of a collective among actors: checks a message, and puts it where its
 * call waits for it. See far_impl.h. */
#include <string.h>

#include <exogym/memory.h>

#include "comm/far_impl.h"

uint32_t
exo_comm_far_channel(const exo_payload *payload)
{
    uint32_t channel = UINT32_MAX;
    if (payload->size >= sizeof(exo_far_header))
        memcpy(&channel, payload->data, sizeof channel);
    return channel;
}

exo_status
exo_comm_far_deliver(exo_comm *comm, exo_payload *payload, uint64_t from, exo_err *err)
{
    exo_far *f = exo_far_of(comm);
    exo_far_header header;
    char text[EXO_ERR_TEXT];
    if (payload->size < sizeof header)
        return exo_fail(err, EXO_INVAL, "a message of %zu bytes is too short for a collective",
                        payload->size);
    memcpy(&header, payload->data, sizeof header);
    if (header.from >= f->opts.size || header.channel != f->opts.channel ||
        header.bytes != payload->size - sizeof header)
        return exo_fail(err, EXO_INVAL, "a message that is not for this communicator");
    pthread_mutex_lock(&f->lock);
    uint64_t node = f->nodes[header.from];
    pthread_mutex_unlock(&f->lock);
    if (from && node && from != node)
        return exo_fail(err, EXO_INVAL, "a message as of rank %u, of another process than its",
                        header.from);
    if (header.phase == EXO_FAR_POST)
        return exo_far_hear(f, &header, payload, err);
    if (header.phase == EXO_FAR_FAILED) {
        size_t length = header.bytes < 400 ? header.bytes : 400;
        uint32_t rank = header.root < f->opts.size ? header.root : header.from;
        exo_status status = header.count == EXO_CANCELLED ? EXO_CANCELLED : EXO_PEER_LOST;
        exo_far_end_text(f, text, rank, status, (const char *)payload->data + sizeof header,
                         length);
        exo_far_break(f, status, text);
        exo_payload_release(payload);
        return EXO_OK;
    }
    exo_far_message *m = exo_calloc(1, sizeof *m);
    if (!m) {
        exo_far_break(f, EXO_NOMEM, "no memory for a message of a collective");
        return exo_fail(err, EXO_NOMEM, "no memory for a message of a collective");
    }
    m->header = header;
    exo_time now = exo_now(f->clock);
    m->ready = !f->edge.links || header.passing < 0 ? now
               : header.passing < INT64_MAX - now   ? now + header.passing
                                                    : INT64_MAX;
    m->payload = *payload;
    *payload = (exo_payload){0};
    if (header.phase == EXO_FAR_SERVER)
        return exo_far_server_message(f, m, err);
    pthread_mutex_lock(&f->lock);
    m->next = f->inbox;
    f->inbox = m;
    f->counts[f->opts.size + header.from]++;
    f->awaited = 0; /* the waiting thread checks whether it has its message */
    pthread_cond_broadcast(&f->changed);
    pthread_mutex_unlock(&f->lock);
    return EXO_OK;
}
