/* The loader: reads batches ahead, on its own threads.
 *
 * Batches lie in a ring: batch b in place b % depth. A thread claims the next batch whose place is
 * free, derives its samples from the batch's number alone, reads it outside the lock, and marks the
 * place as full. The user takes batches in order; taking batch b frees the place of b - 1.
 *
 * State: every thread has its own sampler, so threads share only the ring and its counters, which
 * the lock guards. A batch belongs to the thread that claimed it, and to the user once its place is
 * full. Read next: sampler.c. */
#include <exogym/data.h>

#include <pthread.h>
#include <stdio.h>
#include <time.h>

#include <exogym/memory.h>

#include "base/thread.h"
#include "nn/dataset_impl.h"

struct place {
    exo_batch batch;
    uint64_t number; /* the batch in it, if full */
    /* Guarded by the lock. */
    bool full;
};

struct exo_loader {
    exo_dataset *dataset;
    exo_loader_opts opts;
    size_t epoch_batches;

    pthread_mutex_t lock;
    pthread_cond_t freed, filled;
    struct place *ring; /* (depth) */
    uint64_t claimed;   /* the next batch that a thread will read */
    uint64_t next;      /* the next batch that the user will get */
    bool given;         /* the user holds batch next - 1 */
    bool closing;
    /* The error of batch error_at, where reading ends. */
    exo_err error;
    uint64_t error_at;

    struct reader *readers; /* (threads) */
    unsigned started;
};

struct reader {
    exo_loader *loader;
    exo_sampler sampler;
    pthread_t thread;
};

/* The oldest batch whose place is in use. */
static uint64_t
oldest_locked(const exo_loader *l)
{
    return l->next - (l->given ? 1 : 0);
}

/* Waits for a batch to read. False: there are no more. */
static bool
claim(exo_loader *l, uint64_t *number)
{
    pthread_mutex_lock(&l->lock);
    while (!l->closing && l->claimed >= oldest_locked(l) + l->opts.depth)
        pthread_cond_wait(&l->freed, &l->lock);
    bool open = !l->closing && !(l->error.code != EXO_OK && l->claimed > l->error_at);
    if (open)
        *number = l->claimed++;
    pthread_mutex_unlock(&l->lock);
    return open;
}

static exo_status
read_batch(struct reader *r, uint64_t number, exo_batch *batch, exo_err *err)
{
    exo_loader *l = r->loader;
    size_t size = l->opts.batch_size, share = exo_sampler_share(&r->sampler);
    uint64_t epoch = number / l->epoch_batches, within = number % l->epoch_batches;
    const exo_sample_key key = {.seed = l->opts.seed, .epoch = epoch};
    exo_status st = EXO_OK;
    batch->size = size;
    for (size_t i = 0; st == EXO_OK && i < size; i++) {
        size_t index = exo_sampler_at(&r->sampler, epoch * share + within * size + i);
        st = exo_batch_read_row(batch, i, l->dataset, index, &key, err);
    }
    return st;
}

static void *
reader_main(void *argument)
{
    struct reader *r = argument;
    exo_loader *l = r->loader;
    uint64_t number;
    while (claim(l, &number)) {
        struct place *place = &l->ring[number % l->opts.depth];
        exo_err err = {0};
        exo_status st = read_batch(r, number, &place->batch, &err);
        pthread_mutex_lock(&l->lock);
        if (st == EXO_OK) {
            place->number = number;
            place->full = true;
        } else if (l->error.code == EXO_OK || number < l->error_at) {
            l->error = err;
            l->error.code = st;
            l->error_at = number;
        }
        pthread_cond_broadcast(&l->filled);
        pthread_mutex_unlock(&l->lock);
    }
    return NULL;
}

static exo_status
start_readers(exo_loader *l, exo_err *err)
{
    const exo_loader_opts *o = &l->opts;
    size_t length = exo_dataset_length(l->dataset);
    exo_status st = EXO_OK;
    for (unsigned i = 0; st == EXO_OK && i < o->threads; i++) {
        struct reader *r = &l->readers[i];
        r->loader = l;
        st = exo_sampler_init(&r->sampler, length, o->num_nodes, o->rank, o->shuffle, o->seed, err);
        if (st == EXO_OK)
            st = exo_thread_start(&r->thread, reader_main, r, "a loader", err);
        l->started += st == EXO_OK;
    }
    return st;
}

exo_status
exo_loader_open(exo_loader **out, exo_dataset *dataset, const exo_loader_opts *opts, exo_err *err)
{
    size_t length = exo_dataset_length(dataset);
    uint32_t nodes = opts->num_nodes ? opts->num_nodes : 1;
    size_t share = length / nodes;
    if (opts->batch_size < 1 || opts->batch_size > share)
        return exo_fail(
            err, EXO_INVAL,
            "batch_size %zu does not fit the data: a node gets %zu of %zu sample%s an epoch",
            opts->batch_size, share, length, length == 1 ? "" : "s");
    exo_loader *l = exo_calloc(1, sizeof *l);
    if (!l)
        return exo_fail(err, EXO_NOMEM, "no memory for a loader");
    l->dataset = exo_dataset_hold(dataset);
    l->opts = *opts;
    l->opts.num_nodes = nodes;
    l->opts.depth = opts->depth ? opts->depth + 1 : 3; /* one place is the user's */
    l->opts.threads = opts->threads ? opts->threads : 1;
    l->epoch_batches = share / opts->batch_size;
    l->next = l->claimed = opts->first;
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->freed, NULL);
    pthread_cond_init(&l->filled, &attr);
    pthread_condattr_destroy(&attr);

    l->ring = exo_calloc(l->opts.depth, sizeof *l->ring);
    l->readers = exo_calloc(l->opts.threads, sizeof *l->readers);
    exo_status st =
        l->ring && l->readers
            ? EXO_OK
            : exo_fail(err, EXO_NOMEM, "no memory for a loader of %zu batches", l->opts.depth);
    for (size_t i = 0; st == EXO_OK && i < l->opts.depth; i++)
        st = exo_batch_init(&l->ring[i].batch, dataset, opts->batch_size, err);
    if (st == EXO_OK)
        st = start_readers(l, err);
    if (st != EXO_OK) {
        exo_loader_close(&l);
        return st;
    }
    *out = l;
    return EXO_OK;
}

void
exo_loader_close(exo_loader **loader)
{
    exo_loader *l = *loader;
    if (!l)
        return;
    pthread_mutex_lock(&l->lock);
    l->closing = true;
    pthread_cond_broadcast(&l->freed);
    pthread_mutex_unlock(&l->lock);
    for (unsigned i = 0; i < l->started; i++)
        pthread_join(l->readers[i].thread, NULL); /* waits at most for the batch that it reads */
    for (unsigned i = 0; l->readers && i < l->opts.threads; i++)
        exo_sampler_release(&l->readers[i].sampler);
    for (size_t i = 0; l->ring && i < l->opts.depth; i++)
        exo_batch_release(&l->ring[i].batch);
    pthread_cond_destroy(&l->filled);
    pthread_cond_destroy(&l->freed);
    pthread_mutex_destroy(&l->lock);
    exo_dataset_drop(&l->dataset);
    exo_free(l->readers);
    exo_free(l->ring);
    exo_free(l);
    *loader = NULL;
}

size_t
exo_loader_epoch_batches(const exo_loader *loader)
{
    return loader->epoch_batches;
}

static struct timespec
real_deadline(exo_time timeout)
{
    const exo_time longest = 365 * 24 * 3600 * EXO_SECOND;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    exo_time at =
        (exo_time)now.tv_sec * EXO_SECOND + now.tv_nsec + (timeout < longest ? timeout : longest);
    return (struct timespec){.tv_sec = (time_t)(at / EXO_SECOND),
                             .tv_nsec = (long)(at % EXO_SECOND)};
}

exo_status
exo_loader_next(exo_loader *loader, exo_time timeout, const exo_batch **out, exo_err *err)
{
    exo_loader *l = loader;
    struct timespec until = real_deadline(timeout);
    exo_status st = EXO_OK;
    pthread_mutex_lock(&l->lock);
    /* The user is done with the batch of the last call. */
    if (l->given) {
        l->ring[(l->next - 1) % l->opts.depth].full = false;
        l->given = false;
        pthread_cond_broadcast(&l->freed);
    }
    struct place *place = &l->ring[l->next % l->opts.depth];
    int waited = 0;
    while (!(place->full && place->number == l->next) &&
           !(l->error.code != EXO_OK && l->error_at == l->next) && waited == 0)
        waited = pthread_cond_timedwait(&l->filled, &l->lock, &until);
    if (place->full && place->number == l->next) {
        *out = &place->batch;
        l->next++;
        l->given = true;
    } else if (l->error.code != EXO_OK && l->error_at == l->next) {
        st = l->error.code;
        if (err)
            *err = l->error;
    } else {
        st = exo_fail(err, EXO_TIMEOUT, "batch %llu was not read in time",
                      (unsigned long long)l->next);
    }
    pthread_mutex_unlock(&l->lock);
    return st;
}
