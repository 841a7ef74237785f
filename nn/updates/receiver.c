/* Receivers: which chunk belongs to which update, replies, and the exchange of the copies. The
 * state is in receiver.h. Read next: incoming.c. */
#include "nn/updates/receiver.h"

#include <inttypes.h>
#include <stdio.h>

#include <exogym/memory.h>
#include <exogym/parallel.h>

#include "nn/generate/generator.h"

static const double usual_tolerance = 1e-3;

/* --- Making ----------------------------------------------------------------------------------- */

static exo_status
make_copy(exo_update_receiver *r, exo_received *copy, exo_err *err)
{
    copy->hashes = exo_calloc(r->count + 1, sizeof *copy->hashes);
    if (!copy->hashes)
        return exo_fail(err, EXO_NOMEM, "no memory for a receiver of updates");
    return exo_model_copy(r->part ? r->part : r->model, &copy->params, err);
}

static exo_status
copy_initial(exo_update_receiver *r, exo_params *initial, exo_err *err)
{
    uint8_t found[EXO_SHA];
    const exo_param_info *infos = exo_params_info(initial, 0);
    exo_array values = exo_params_values_array(initial);
    exo_array buffers = exo_params_buffers_array(initial);
    if (r->part)
        return exo_fail(err, EXO_INVAL, "updates: a receiver of a part begins without parameters");
    exo_status st = exo_update_fingerprint(infos, exo_params_count(initial), found, err);
    if (st != EXO_OK)
        return st;
    if (memcmp(found, r->fingerprint, EXO_SHA) != 0 ||
        values.count != exo_params_numel(r->front->params) ||
        buffers.count != exo_params_buffer_numel(r->front->params))
        return exo_fail(err, EXO_INVAL,
                        "updates: the initial parameters are not those of the model '%s', or have "
                        "other frozen ones",
                        exo_model_name(r->model));
    st = exo_array_read(values, exo_params_values(r->front->params), err);
    return st == EXO_OK ? exo_array_read(buffers, exo_params_buffers(r->front->params), err) : st;
}

/* Whether the part has the model's tensors, each whole or cut by rows. */
static exo_status
check_part(const exo_update_receiver *r, exo_err *err)
{
    const exo_param_info *all = exo_model_infos(r->model), *mine = exo_model_infos(r->part);
    bool good = exo_model_num_infos(r->part) == r->count;
    for (size_t i = 0; good && i < r->count; i++) {
        const exo_param_cut *cut = exo_model_cut(r->part, i);
        good = strcmp(all[i].name, mine[i].name) == 0 && all[i].num_dims == mine[i].num_dims &&
               (cut ? cut->dim == 0 && cut->whole == all[i].dims[0]
                    : mine[i].dims[0] == all[i].dims[0]);
        for (size_t d = 1; good && d < all[i].num_dims; d++)
            good = mine[i].dims[d] == all[i].dims[d];
    }
    return good ? EXO_OK
                : exo_fail(err, EXO_INVAL,
                           "updates: the part is not one of the model '%s' "
                           "(exo_model_output_part)",
                           exo_model_name(r->model));
}

/* The generator that packs and checks the next weights. The caller's may be in a step of another
 * thread: it is only read. */
static exo_status
make_other(exo_update_receiver *r, exo_err *err)
{
    const exo_decoder_spec *spec = exo_generator_spec(r->generator);
    exo_generator_opts opts =
        exo_canary_generator(spec, exo_generator_options(r->generator)->weights);
    opts.group = r->group;
    exo_status st = exo_generator_new(&r->other, spec, r->front->params, &opts, err);
    if (st == EXO_OK)
        st = exo_generator_check_swap(r->generator, r->other, err);
    return st == EXO_OK ? st : exo_fail_in(err, st, "updates: the generator");
}

exo_status
exo_update_receiver_new(exo_update_receiver **out, exo_model *model, exo_params *initial,
                        const exo_update_receiver_opts *opts, exo_err *err)
{
    const exo_update_receiver_opts usual = {0};
    opts = opts ? opts : &usual;
    exo_update_receiver *r = exo_calloc(1, sizeof *r);
    if (!r)
        return exo_fail(err, EXO_NOMEM, "no memory for a receiver of updates");
    r->model = exo_model_hold(model);
    r->part = opts->part ? exo_model_hold(opts->part) : NULL;
    r->count = exo_model_num_infos(model);
    r->front = &r->copies[0];
    r->back = &r->copies[1];
    r->generator = opts->generator;
    r->group = opts->generator ? exo_generator_options(opts->generator)->group : NULL;
    r->needs_canary = opts->generator && !opts->without_canary;
    r->tolerance = opts->tolerance > 0 ? opts->tolerance : usual_tolerance;
    r->incoming.hashing = SIZE_MAX;
    r->device = opts->generator ? exo_generator_device(opts->generator)
                : opts->device  ? opts->device
                                : exo_device_cpu();
    r->place = exo_ipc_place(r->device);
    exo_status st = exo_update_fingerprint(exo_model_infos(model), r->count, r->fingerprint, err);
    if (st == EXO_OK && r->part)
        st = check_part(r, err);
    for (size_t i = 0; st == EXO_OK && i < 2; i++)
        st = make_copy(r, &r->copies[i], err);
    if (st == EXO_OK && initial)
        st = copy_initial(r, initial, err);
    for (size_t i = 0; st == EXO_OK && i < 2; i++)
        st = exo_params_move(&r->copies[i].params, r->device, err);
    if (st == EXO_OK)
        st = exo_body_init(&r->body, err);
    if (st == EXO_OK && r->generator)
        st = make_other(r, err);
    if (st == EXO_OK)
        *out = r;
    else
        exo_update_receiver_free(&r);
    return st;
}

void
exo_update_receiver_free(exo_update_receiver **receiver)
{
    exo_update_receiver *r = *receiver;
    if (!r)
        return;
    exo_incoming_end(r);
    exo_generator_free(&r->other);
    for (size_t i = 0; i < 2; i++) {
        exo_params_free(&r->copies[i].params);
        exo_free(r->copies[i].hashes);
    }
    exo_body_release(&r->body);
    exo_free(r->whole);
    if (r->part)
        exo_model_drop(&r->part);
    exo_model_drop(&r->model);
    exo_free(r);
    *receiver = NULL;
}

/* --- Replies ---------------------------------------------------------------------------------- */

/* A reply about the update of a header (NULL: none could be read), with the state in use. */
static void
write_reply(const exo_update_receiver *r, exo_update_reply *out, exo_update_answer answer,
            const exo_chunk_header *about)
{
    *out = (exo_update_reply){.answer = answer, .have = r->front->id.version, .place = r->place};
    memcpy(out->state, r->front->state, sizeof out->state);
    if (about) {
        out->sender = about->sender;
        out->life = about->life;
        out->version = about->version;
    }
}

static void
write_reason(exo_update_reply *out, exo_status code, const char *text)
{
    out->code = code;
    snprintf(out->text, sizeof out->text, "%s", text);
}

/* Ends the update that comes with a reply that refuses it. */
static void
refuse(exo_update_receiver *r, bool need_whole, const exo_err *reason, exo_update_reply *out)
{
    exo_chunk_header about = r->incoming.first;
    memcpy(r->refused, about.update, EXO_SHA);
    exo_incoming_end(r);
    write_reply(r, out, need_whole ? EXO_UPDATE_NEED_WHOLE : EXO_UPDATE_REFUSED, &about);
    write_reason(out, reason->code, reason->text);
}

void
exo_update_abandon(exo_update_receiver *receiver, exo_update_reply *reply)
{
    const exo_incoming *in = &receiver->incoming;
    exo_err reason = {0};
    write_reply(receiver, reply, EXO_UPDATE_NONE, NULL);
    if (in->stage != EXO_INCOMING_COMING)
        return;
    exo_fail(&reason, EXO_CANCELLED,
             "version %" PRIu64 " is given up: its chunks %u to %u of %u have not come",
             in->first.version, in->next, in->first.count - 1, in->first.count);
    refuse(receiver, false, &reason, reply);
}

void
exo_update_greet(const exo_update_receiver *receiver, exo_update_reply *reply)
{
    bool none = receiver->front->id.version == 0;
    write_reply(receiver, reply, none ? EXO_UPDATE_NEED_WHOLE : EXO_UPDATE_NONE, NULL);
    if (none)
        write_reason(reply, EXO_NOT_FOUND, "this receiver has no version yet");
}

/* --- Chunks ----------------------------------------------------------------------------------- */

static bool
is_of_incoming(const exo_update_receiver *r, const exo_chunk_header *h)
{
    const exo_chunk_header *first = &r->incoming.first;
    return r->incoming.stage == EXO_INCOMING_COMING &&
           memcmp(h->update, first->update, EXO_SHA) == 0 && h->sender == first->sender &&
           h->life == first->life && h->version == first->version;
}

/* A chunk that belongs to no update under way. It is answered once for each update. */
static exo_status
refuse_stray(exo_update_receiver *r, const exo_chunk_header *h, exo_update_reply *reply,
             exo_err *err)
{
    bool again = memcmp(h->update, r->refused, EXO_SHA) == 0;
    exo_err reason = {0};
    if (again)
        exo_fail(&reason, EXO_DAMAGED,
                 "chunk %u of version %" PRIu64 " is of an update that was refused", h->number,
                 h->version);
    else if (r->incoming.stage == EXO_INCOMING_COMING)
        exo_fail(&reason, EXO_DAMAGED,
                 "chunk %u of version %" PRIu64 " of sender %" PRIu64
                 " is of another update than version %" PRIu64 " of sender %" PRIu64
                 ", of which chunk %u is expected",
                 h->number, h->version, h->sender, r->incoming.first.version,
                 r->incoming.first.sender, r->incoming.next);
    else
        exo_fail(&reason, EXO_DAMAGED,
                 "chunk %u of version %" PRIu64 " came before chunk 0 of its update", h->number,
                 h->version);
    write_reply(r, reply, again ? EXO_UPDATE_NONE : EXO_UPDATE_REFUSED, h);
    write_reason(reply, reason.code, reason.text);
    memcpy(r->refused, h->update, EXO_SHA);
    return exo_fail(err, reason.code, "%s", reason.text);
}

/* Refuses the update under way, if there is one, with the reason in `reason`. */
static exo_status
refuse_incoming(exo_update_receiver *r, bool need_whole, const exo_err *reason,
                exo_update_reply *reply, exo_err *err)
{
    if (r->incoming.stage == EXO_INCOMING_COMING) {
        refuse(r, need_whole, reason, reply);
    } else {
        write_reply(r, reply, EXO_UPDATE_REFUSED, NULL);
        write_reason(reply, reason->code, reason->text);
    }
    return exo_fail(err, reason->code, "%s", reason->text);
}

static exo_status
accept(exo_update_receiver *r, exo_update_reply *reply, exo_err *reason)
{
    exo_status st = exo_incoming_complete(r, reason);
    if (st != EXO_OK)
        return st;
    write_reply(r, reply, EXO_UPDATE_ACCEPTED, &r->incoming.first);
    reply->have = r->back->id.version;
    memcpy(reply->state, r->back->state, sizeof reply->state);
    return EXO_OK;
}

/* A manifest. One of the same sender gives up the update under way, which *reply says. */
static exo_status
receive_first(exo_update_receiver *r, const exo_chunk_header *h, const uint8_t *bytes,
              exo_update_reply *reply, exo_err *err)
{
    bool need_whole = false;
    exo_err reason = {0};
    if (r->incoming.stage == EXO_INCOMING_COMING) {
        if (h->sender != r->incoming.first.sender)
            return refuse_stray(r, h, reply, err);
        exo_update_abandon(r, reply);
    }
    exo_status st = exo_incoming_begin(r, h, bytes, &need_whole, &reason);
    if (st == EXO_OK && r->incoming.manifest.handed)
        st = exo_incoming_fetch(r, &reason);
    if (st == EXO_OK && h->count == 1)
        st = accept(r, reply, &reason);
    return st == EXO_OK ? st : refuse_incoming(r, need_whole, &reason, reply, err);
}

static exo_status
receive_next(exo_update_receiver *r, const exo_chunk_header *h, const uint8_t *bytes,
             exo_update_reply *reply, exo_err *err)
{
    exo_incoming *in = &r->incoming;
    exo_err reason = {0};
    exo_status st = EXO_OK;
    if (h->count != in->first.count)
        st = exo_fail(&reason, EXO_DAMAGED,
                      "chunk %u of version %" PRIu64 " says that there are %u chunks, chunk 0 "
                      "said %u",
                      h->number, h->version, h->count, in->first.count);
    else if (h->number != in->next)
        st = exo_fail(&reason, EXO_DAMAGED,
                      "chunk %u of version %" PRIu64 " came where chunk %u was expected: a chunk "
                      "was %s",
                      h->number, h->version, in->next,
                      h->number < in->next ? "repeated" : "lost or overtaken");
    if (st == EXO_OK)
        st = exo_incoming_take(r, h, bytes, &reason);
    if (st == EXO_OK && in->next == in->first.count)
        st = accept(r, reply, &reason);
    return st == EXO_OK ? st : refuse_incoming(r, false, &reason, reply, err);
}

exo_status
exo_update_receive(exo_update_receiver *r, const void *bytes, size_t size, exo_update_reply *reply,
                   exo_err *err)
{
    exo_chunk_header h;
    exo_err reason = {0};
    write_reply(r, reply, EXO_UPDATE_NONE, NULL);
    if (r->incoming.stage >= EXO_INCOMING_COMPLETE)
        return exo_fail(
            err, EXO_FULL, "version %" PRIu64 " is ready: call %s, then give this chunk again",
            r->back->id.version,
            r->incoming.stage == EXO_INCOMING_READY ? "exo_update_swap" : "exo_update_agree");
    if (exo_chunk_open(bytes, size, &h, &reason) != EXO_OK)
        return refuse_incoming(r, false, &reason, reply, err);
    const uint8_t *body = (const uint8_t *)bytes + EXO_CHUNK_HEADER;
    if (is_of_incoming(r, &h) && h.number > 0)
        return receive_next(r, &h, body, reply, err);
    if (is_of_incoming(r, &h)) { /* chunk 0 again */
        exo_fail(&reason, EXO_DAMAGED, "chunk 0 of version %" PRIu64 " came twice", h.version);
        return refuse_incoming(r, false, &reason, reply, err);
    }
    if (h.number > 0)
        return refuse_stray(r, &h, reply, err);
    return receive_first(r, &h, body, reply, err);
}

/* --- Groups ----------------------------------------------------------------------------------- */

/* Compares what the members have: the digest of a version that is good here, or zeros. *others: how
 * many have something else than this member. */
static exo_status
vote(exo_update_receiver *r, bool good, uint32_t *others, exo_err *err)
{
    const uint32_t size = exo_group_size(r->group);
    uint8_t(*all)[EXO_SHA] = exo_calloc(size, sizeof *all);
    *others = 0;
    if (!all)
        return exo_fail(err, EXO_NOMEM, "no memory to ask %u members", size);
    uint8_t *mine = all[exo_group_rank(r->group)];
    if (good)
        memcpy(mine, r->incoming.manifest.state.digest, EXO_SHA);
    exo_status st =
        exo_all_gather(r->group, exo_host_array(EXO_U8, all, (size_t)size * EXO_SHA), err);
    for (uint32_t i = 0; st == EXO_OK && i < size; i++)
        *others += memcmp(all[i], mine, EXO_SHA) != 0;
    exo_free(all);
    return st;
}

exo_status
exo_update_agree(exo_update_receiver *r, exo_update_reply *reply, exo_err *err)
{
    exo_err reason = {0}, fault = {0};
    uint32_t others = 0;
    if (!r->group)
        return exo_fail(err, EXO_INVAL, "updates: the receiver's generator is in no group");
    bool mine = reply->answer == EXO_UPDATE_ACCEPTED && r->incoming.stage == EXO_INCOMING_COMPLETE;
    exo_status st = vote(r, mine, &others, &reason), proved = EXO_OK;
    if (st == EXO_OK && mine && others == 0) {
        proved = exo_incoming_prove(r, &fault);
        st = vote(r, proved == EXO_OK, &others, &reason);
    }
    if (proved != EXO_OK) {
        st = proved;
        reason = fault;
    } else if (st == EXO_OK && mine && others > 0) {
        exo_fail(&reason, EXO_FAILED,
                 "version %" PRIu64 " was refused by %u of the other %u members of this group",
                 r->incoming.first.version, others, exo_group_size(r->group) - 1);
    }
    if (mine && st == EXO_OK && others == 0)
        r->incoming.stage = EXO_INCOMING_READY;
    else if (mine)
        refuse(r, false, &reason, reply);
    return st == EXO_OK ? st : exo_fail(err, st, "%s", reason.text);
}

/* --- Exchange --------------------------------------------------------------------------------- */

bool
exo_update_is_ready(const exo_update_receiver *receiver)
{
    return receiver->incoming.stage == EXO_INCOMING_READY;
}

bool
exo_update_swap(exo_update_receiver *r)
{
    if (r->incoming.stage != EXO_INCOMING_READY)
        return false;
    exo_received *front = r->front;
    r->front = r->back;
    r->back = front;
    if (r->generator) /* of one layout: exo_update_receiver_new has tried it */
        (void)exo_generator_swap_weights(r->generator, r->other, NULL);
    exo_incoming_end(r);
    return true;
}

exo_params *
exo_update_params(exo_update_receiver *receiver)
{
    return receiver->front->params;
}

uint64_t
exo_update_version(const exo_update_receiver *receiver)
{
    return receiver->front->id.version;
}

const char *
exo_update_state(const exo_update_receiver *receiver)
{
    return receiver->front->state;
}
