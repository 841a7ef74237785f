/* Workers' replies to the head's requests for actors. They arrive on the threads that drive the
 * net, and reach the head as calls of its own method `started`. Few of these are in its mailbox at
 * a time, so other calls are served between them. Read next: head_spawn.c, which has that
 * method. */
#include "cluster/head_impl.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include <exogym/memory.h>

#define SPAWN_TIMEOUT (60 * EXO_SECOND) /* for a worker to make an actor */

enum {
    ANSWERS_AT_ONCE = 8 /* calls of `started` in the head's mailbox */
};

/* A request to a worker that has not been answered. */
struct outcome {
    struct answers *answers; /* one reference */
    uint64_t key, incarnation, node;
    exo_future *future; /* held */
};

static void
read_answer(struct exo_outcome *args, const struct outcome *o, exo_status st, const exo_err *err,
            const exo_payload *reply)
{
    *args = (struct exo_outcome){
        .key = o->key, .incarnation = o->incarnation, .node = o->node, .status = (int)st};
    snprintf(args->reason, sizeof args->reason, "%s", err->text);
    if (st == EXO_OK && reply->size >= sizeof args->id) {
        const char *names = (const char *)reply->data + sizeof args->id;
        memcpy(&args->id, reply->data, sizeof args->id);
        args->idempotent_size = reply->size - sizeof args->id;
        if (args->idempotent_size > sizeof args->idempotent ||
            (args->idempotent_size && names[args->idempotent_size - 1]))
            args->idempotent_size = 0;
        memcpy(args->idempotent, names, args->idempotent_size);
    }
    if (st == EXO_OK && !args->id) {
        args->status = EXO_FAILED;
        snprintf(args->reason, sizeof args->reason, "the worker's reply names no actor");
    }
}

/* A reply on its way to the head. */
struct answer {
    struct answers *answers; /* one reference */
    struct answer *next;
    struct exo_outcome args;
};

/* Replies that wait for room in the head's mailbox. Guarded by its lock. */
struct answers {
    pthread_mutex_t lock;
    unsigned references; /* the head's, and one for each outcome and answer */
    exo_runtime *runtime;
    exo_ref head;
    bool closed, passing; /* passing: a thread hands replies over */
    unsigned called;      /* number in the mailbox */
    struct answer *first, **last;
};

static void
drop_answers(struct answers *answers)
{
    pthread_mutex_lock(&answers->lock);
    bool last = --answers->references == 0;
    pthread_mutex_unlock(&answers->lock);
    if (!last)
        return;
    pthread_mutex_destroy(&answers->lock);
    exo_free(answers);
}

static void answer_over(void *owner);

/* Takes the next reply that may go to the mailbox. first: the thread has just begun, and stops if
 * another one hands over. NULL: none may go, and this thread hands over no more. */
static struct answer *
take_answer(struct answers *answers, bool first, bool *closed)
{
    pthread_mutex_lock(&answers->lock);
    bool mine = !first || !answers->passing;
    *closed = answers->closed;
    struct answer *a =
        mine && (answers->called < ANSWERS_AT_ONCE || *closed) ? answers->first : NULL;
    if (a && !(answers->first = a->next))
        answers->last = &answers->first;
    answers->called += a != NULL;
    answers->passing = mine ? a != NULL : answers->passing;
    pthread_mutex_unlock(&answers->lock);
    return a;
}

/* Sends as many replies as the mailbox may have. The arguments of each message are the reply
 * itself; their release makes room for the next one. */
static void
pass_answers(struct answers *answers)
{
    bool closed;
    for (struct answer *a = take_answer(answers, true, &closed); a;
         a = take_answer(answers, false, &closed)) {
        exo_payload payload = {
            .data = &a->args, .size = sizeof a->args, .release = answer_over, .owner = a};
        if (closed)
            exo_payload_release(&payload);
        else
            exo_send(answers->runtime, answers->head, "started", payload, INT64_MAX, NULL);
    }
}

static void
answer_over(void *owner)
{
    struct answer *a = owner;
    struct answers *answers = a->answers;
    exo_free(a);
    pthread_mutex_lock(&answers->lock);
    answers->called--;
    pthread_mutex_unlock(&answers->lock);
    pass_answers(answers);
    drop_answers(answers);
}

exo_status
exo_head_open_answers(struct head *h, exo_err *err)
{
    struct answers *answers = exo_calloc(1, sizeof *answers);
    if (!answers)
        return exo_fail(err, EXO_NOMEM, "no memory for a head");
    pthread_mutex_init(&answers->lock, NULL);
    answers->references = 1;
    answers->runtime = h->runtime;
    answers->head = h->self;
    answers->last = &answers->first;
    h->answers = answers;
    return EXO_OK;
}

void
exo_head_close_answers(struct head *h)
{
    struct answers *answers = h->answers;
    h->answers = NULL;
    if (!answers)
        return;
    pthread_mutex_lock(&answers->lock);
    answers->closed = true;
    pthread_mutex_unlock(&answers->lock);
    pass_answers(answers);
    drop_answers(answers);
}

static void
worker_answered(void *context, uint64_t tag, exo_future *future)
{
    struct outcome *o = context;
    struct answers *answers = o->answers;
    struct answer *a = exo_calloc(1, sizeof *a);
    exo_payload reply = {0};
    exo_err err = {0};
    (void)tag;
    exo_status st = exo_future_take(future, &reply, &err);
    if (a) {
        a->answers = answers;
        read_answer(&a->args, o, st, &err, &reply);
        pthread_mutex_lock(&answers->lock);
        *answers->last = a;
        answers->last = &a->next;
        answers->references++;
        pthread_mutex_unlock(&answers->lock);
        pass_answers(answers);
    }
    exo_payload_release(&reply);
    exo_future_drop(&o->future);
    exo_free(o);
    drop_answers(answers);
}

static const exo_future_hook worker_hook = {.done = worker_answered};

exo_status
exo_head_ask_worker(struct head *h, exo_entry *a, exo_err *err)
{
    exo_ref worker;
    exo_payload args = {0};
    struct outcome *o = exo_calloc(1, sizeof *o);
    exo_status st = o ? h->env.worker_of(h->env.context, a->node->id, &worker, err) : EXO_NOMEM;
    a->spec->key = a->key;
    a->spec->incarnation = a->incarnation;
    a->spec->asker = exo_account_number(&h->directory.accounts, a->holder);
    if (st == EXO_OK)
        st = exo_message_pack(&args, &a->spec->base);
    if (st == EXO_OK) {
        *o = (struct outcome){.answers = h->answers,
                              .key = a->key,
                              .incarnation = a->incarnation,
                              .node = a->node->id};
        st = exo_call(h->runtime, worker, "spawn", args,
                      exo_deadline(exo_runtime_clock(h->runtime), SPAWN_TIMEOUT), &o->future, err);
    }
    if (st != EXO_OK) {
        exo_free(o);
        return st;
    }
    exo_future *future = exo_future_hold(o->future);
    pthread_mutex_lock(&h->answers->lock);
    h->answers->references++;
    pthread_mutex_unlock(&h->answers->lock);
    exo_future_set_hook(future, &worker_hook, o, 0);
    exo_future_drop(&future);
    return EXO_OK;
}
