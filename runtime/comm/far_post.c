/* Messages of an engine that has a transport of its own but cannot begin with it (exo_engine_post).
 * The communicator of such an engine has one of `net` beside it, which carries them and watches the
 * members. See far_impl.h. */
#include "comm/far_impl.h"

static exo_status
send_post(void *context, uint32_t to, const void *data, size_t bytes, exo_err *err)
{
    exo_far *f = context;
    exo_far_header header = {
        .channel = f->opts.channel, .phase = EXO_FAR_POST, .from = f->opts.rank, .bytes = bytes};
    pthread_mutex_lock(&f->lock);
    const bool there = f->members && to < f->opts.size && f->members[to].id;
    pthread_mutex_unlock(&f->lock);
    return there ? exo_far_send(f, to, &header, NULL, data, 0, err)
                 : exo_fail(err, EXO_PEER_LOST, "%s_%u (rank %u) is not there", f->noun, to, to);
}

exo_status
exo_far_hear(exo_far *f, const exo_far_header *header, exo_payload *payload, exo_err *err)
{
    if (!f->carried)
        return exo_fail(err, EXO_INVAL, "a message of another engine than this communicator's");
    exo_status st =
        f->carried->hear(f->carried_group, header->from,
                         (const char *)payload->data + sizeof *header, header->bytes, err);
    if (st == EXO_OK)
        exo_payload_release(payload);
    return st;
}

void
exo_comm_far_move_on(exo_comm *comm)
{
    if (comm->post)
        ((exo_far *)comm->post->state)->post.moves_on = true;
}

exo_status
exo_comm_far_on(exo_comm **out, const exo_engine_class *engine, const char *key,
                const exo_comm_far_opts *opts, exo_err *err)
{
    exo_comm *post = NULL;
    *out = NULL;
    exo_status st = exo_comm_far(&post, opts, err);
    if (st != EXO_OK)
        return st;
    exo_far *f = post->state;
    f->post = (exo_engine_post){
        .context = f, .rank = opts->rank, .send = send_post, .goes_on = opts->goes_on};
    const exo_engine_opts with = {.size = opts->size,
                                  .clock = exo_runtime_clock(opts->runtime),
                                  .key = key,
                                  .post = &f->post};
    st = exo_comm_open_with(out, engine, &with, err);
    if (st != EXO_OK) {
        exo_comm_drop(&post);
        return st;
    }
    f->carried_group = (*out)->state;
    f->carried = engine;
    (*out)->post = post;
    return EXO_OK;
}
