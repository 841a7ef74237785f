/* Uptakes: see uptake.h. */
#include "experience/uptake.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include <exogym/clock.h>
#include <exogym/memory.h>

#include "base/thread.h"

enum {
    SMALL = 256 << 10 /* bytes of an update that is taken on the maker's own thread */
};

struct exo_uptake {
    exo_model *model; /* held */
    exo_params *initial;
    exo_generator *generator;
    exo_model *part; /* held; NULL: all of the model */
    bool has_host;   /* the generator's memory is the host's, so any thread may pack */
    exo_update_receiver *receiver; /* NULL until the first update */
    exo_update_reply reply, accepted;
    int64_t version;
    double spent;
    bool begun;    /* and not ended */
    exo_err fault; /* in a group: why no update can be taken any more */
    /* The thread. */
    bool has_thread;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    exo_item *item; /* guarded; what the thread takes. NULL: it is done */
    bool stop;      /* guarded */
};

exo_status
exo_uptake_new(exo_uptake **out, exo_model *model, exo_params *initial, exo_generator *generator,
               exo_model *part, exo_err *err)
{
    exo_uptake *in = exo_calloc(1, sizeof *in);
    if (!in)
        return exo_fail(err, EXO_NOMEM, "no memory for an uptake of weights");
    in->model = exo_model_hold(model);
    in->initial = part ? NULL : initial;
    in->generator = generator;
    in->part = part ? exo_model_hold(part) : NULL;
    in->has_host = exo_device_is_host(exo_params_device(initial));
    in->version = -1;
    pthread_mutex_init(&in->lock, NULL);
    pthread_cond_init(&in->changed, NULL);
    *out = in;
    return EXO_OK;
}

void
exo_uptake_free(exo_uptake **uptake)
{
    exo_uptake *in = *uptake;
    *uptake = NULL;
    if (!in)
        return;
    if (in->has_thread) {
        pthread_mutex_lock(&in->lock);
        in->stop = true;
        pthread_cond_broadcast(&in->changed);
        pthread_mutex_unlock(&in->lock);
        pthread_join(in->thread, NULL);
    }
    exo_item_drop(&in->item);
    exo_update_receiver_free(&in->receiver);
    pthread_cond_destroy(&in->changed);
    pthread_mutex_destroy(&in->lock);
    if (in->part)
        exo_model_drop(&in->part);
    exo_model_drop(&in->model);
    exo_free(in);
}

bool
exo_uptake_is_free(const exo_uptake *in)
{
    return !in->begun && !exo_uptake_is_ready(in);
}

int64_t
exo_uptake_version(const exo_uptake *in)
{
    return in->version;
}

const exo_update_reply *
exo_uptake_accepted(const exo_uptake *in)
{
    return &in->accepted;
}

/* --- Taking ----------------------------------------------------------------------------------- */

static void
refuse(exo_uptake *in, const exo_err *reason)
{
    in->reply = (exo_update_reply){.answer = EXO_UPDATE_REFUSED, .code = reason->code};
    snprintf(in->reply.text, sizeof in->reply.text, "%s", reason->text);
}

/* Ends an update that the receiver still expects chunks of. The first reason counts. */
static void
give_up(exo_uptake *in, const exo_parameters *p)
{
    exo_update_reply left;
    exo_err reason = {0};
    exo_update_abandon(in->receiver, &left);
    if (left.answer != EXO_UPDATE_NONE && in->reply.answer != EXO_UPDATE_NONE) {
        left.code = in->reply.code;
        memcpy(left.text, in->reply.text, sizeof left.text);
    }
    if (left.answer != EXO_UPDATE_NONE)
        in->reply = left;
    if (in->reply.answer != EXO_UPDATE_NONE)
        return;
    exo_fail(&reason, EXO_DAMAGED, "the item of version %llu has no whole chunk",
             (unsigned long long)p->version);
    refuse(in, &reason);
}

/* Whether the item ends where its last chunk does. */
static exo_status
check_end(const exo_parameters *p, exo_err *err)
{
    const uint8_t *bytes = NULL;
    size_t at = 0, size = 0;
    bool damaged = false;
    while (exo_parameters_chunk(p, &at, &bytes, &size, &damaged))
        ;
    return damaged ? exo_fail(err, EXO_DAMAGED,
                              "the item of version %llu has %zu bytes after its last whole chunk",
                              (unsigned long long)p->version, p->size - at)
                   : EXO_OK;
}

/* Gives all chunks to the receiver, up to its answer. */
static void
take_chunks(exo_uptake *in, const exo_parameters *p)
{
    const uint8_t *bytes = NULL;
    size_t at = 0, size = 0;
    bool damaged = false;
    in->reply = (exo_update_reply){0};
    while (in->reply.answer == EXO_UPDATE_NONE &&
           exo_parameters_chunk(p, &at, &bytes, &size, &damaged))
        exo_update_receive(in->receiver, bytes, size, &in->reply, NULL);
    if (in->reply.answer != EXO_UPDATE_ACCEPTED)
        give_up(in, p);
}

/* Accepts the update with the other members of the group, or refuses it with them. */
static void
agree(exo_uptake *in, const exo_err *reason)
{
    if (!in->receiver) { /* the others wait in vain, until this member has left */
        in->fault = *reason;
        return;
    }
    exo_err fault = {0};
    bool unsupported = in->reply.code == EXO_UNSUPPORTED;
    exo_status st = exo_update_agree(in->receiver, &in->reply, &fault);
    if (unsupported)
        st = exo_fail(&fault, EXO_UNSUPPORTED, "%s", in->reply.text);
    if (st != EXO_OK && st != EXO_FAILED)
        in->fault = fault;
}

static void
take(exo_uptake *in, const exo_item *item)
{
    exo_parameters p;
    exo_err reason = {0};
    exo_time begin = exo_now(exo_clock_real());
    exo_status st = exo_parameters_view(&p, item, &reason);
    if (st == EXO_OK)
        st = check_end(&p, &reason);
    if (st == EXO_OK && !in->receiver) {
        const exo_update_receiver_opts opts = {
            .generator = in->generator, .without_canary = !p.canary, .part = in->part};
        st = exo_update_receiver_new(&in->receiver, in->model, in->initial, &opts, &reason);
    }
    if (st == EXO_OK) {
        take_chunks(in, &p);
    } else {
        refuse(in, &reason);
    }
    if (in->part)
        agree(in, &reason);
    in->spent = (double)(exo_now(exo_clock_real()) - begin) * 1e-9;
}

static void *
uptake_main(void *argument)
{
    exo_uptake *in = argument;
    pthread_mutex_lock(&in->lock);
    while (!in->stop) {
        exo_item *item = in->item;
        if (!item) {
            pthread_cond_wait(&in->changed, &in->lock);
            continue;
        }
        pthread_mutex_unlock(&in->lock);
        take(in, item);
        pthread_mutex_lock(&in->lock);
        exo_item_drop(&in->item);
        pthread_cond_broadcast(&in->changed);
    }
    pthread_mutex_unlock(&in->lock);
    return NULL;
}

static size_t
bytes_of(const exo_item *item)
{
    size_t bytes = 0;
    for (size_t i = 0; i < item->num_parts; i++)
        bytes += item->parts[i].count * exo_dtype_size(item->parts[i].dtype);
    return bytes;
}

exo_status
exo_uptake_begin(exo_uptake *in, exo_item **item, exo_err *err)
{
    exo_item *i = *item;
    *item = NULL;
    in->begun = true;
    if (in->part || !in->has_host || bytes_of(i) <= SMALL) {
        take(in, i);
        exo_item_drop(&i);
        return in->fault.code == EXO_OK ? EXO_OK
                                        : exo_fail(err, in->fault.code, "%s", in->fault.text);
    }
    exo_status st = EXO_OK;
    if (!in->has_thread)
        st = exo_thread_start(&in->thread, uptake_main, in, "taking weights", err);
    if (st != EXO_OK) {
        exo_item_drop(&i);
        in->begun = false;
        return st;
    }
    in->has_thread = true;
    pthread_mutex_lock(&in->lock);
    in->item = i;
    pthread_cond_broadcast(&in->changed);
    pthread_mutex_unlock(&in->lock);
    return EXO_OK;
}

bool
exo_uptake_end(exo_uptake *in, bool wait, exo_update_reply *reply, double *spent)
{
    if (!in->begun)
        return false;
    pthread_mutex_lock(&in->lock);
    while (wait && in->item)
        pthread_cond_wait(&in->changed, &in->lock);
    bool done = !in->item;
    pthread_mutex_unlock(&in->lock);
    if (!done)
        return false;
    in->begun = false;
    *reply = in->reply;
    *spent = in->spent;
    if (reply->answer == EXO_UPDATE_ACCEPTED) {
        in->version = (int64_t)reply->version - 1;
        in->accepted = *reply;
    }
    return true;
}

/* --- The exchange ----------------------------------------------------------------------------- */

bool
exo_uptake_is_ready(const exo_uptake *in)
{
    return !in->begun && in->receiver && exo_update_is_ready(in->receiver);
}

void
exo_uptake_swap(exo_uptake *in)
{
    exo_update_swap(in->receiver);
}
