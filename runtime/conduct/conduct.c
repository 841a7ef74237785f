/* The conductor: see conduct.h. */
#include "conduct/conduct.h"

#include <ctype.h>
#include <string.h>
#include <time.h>

#include <exogym/memory.h>

#include "actor/many.h"

#define SLICE (50 * EXO_MS) /* the longest wait between two calls of the hooks */
#define PAUSE (10 * EXO_MS) /* between two calls while nobody was asked */
/* the longest wait for the head and a worker between two looks at a request to stop */
#define LOOK (2 * EXO_SECOND)

exo_status
exo_cast_open(exo_cast *cast, exo_err *err)
{
    cast->patience = INT64_MAX;
    cast->actors = exo_calloc(cast->count, sizeof *cast->actors);
    cast->futures = exo_calloc(cast->count, sizeof(exo_future *));
    cast->replies = exo_calloc(cast->count, sizeof(exo_future *));
    return cast->actors && cast->futures && cast->replies
               ? EXO_OK
               : exo_fail(err, EXO_NOMEM, "no memory for %u actors", cast->count);
}

/* Asks the head until the actor is there: a request joins the one before it, by the actor's name.
 * Takes opts->args. */
static exo_status
spawn_joined(exo_cast *cast, uint32_t i, const char *class_name, exo_spawn_opts *opts,
             exo_time deadline, exo_err *err)
{
    exo_payload args = opts->args;
    exo_status st = EXO_TIMEOUT;
    for (bool again = true; again;) {
        exo_time look = exo_deadline(exo_clock_real(), LOOK);
        if (cast->stop && *cast->stop) {
            st = exo_fail(err, EXO_CANCELLED, "stopped before '%s' was made", opts->name);
            break;
        }
        look = look < deadline ? look : deadline;
        st = exo_payload_copy(&opts->args, args.data, args.size);
        if (st == EXO_OK)
            st = exo_spawn_class(cast->runtime, class_name, opts, look, &cast->actors[i], err);
        exo_time now = exo_now(exo_clock_real());
        again = st == EXO_TIMEOUT && now >= look && now < deadline;
    }
    opts->args = (exo_payload){0};
    exo_payload_release(&args);
    return st;
}

exo_status
exo_cast_spawn(exo_cast *cast, uint32_t i, const char *class_name, exo_spawn_opts *opts,
               exo_time deadline, exo_err *err)
{
    char name[EXO_CAST_NAME];
    cast->name(cast->context, i, name);
    opts->name = name;
    opts->namespace_name = cast->space;
    opts->get_if_exists = true;
    opts->placement = EXO_PLACE_SPREAD;
    if (cast->joined)
        return spawn_joined(cast, i, class_name, opts, deadline, err);
    return exo_spawn_class(cast->runtime, class_name, opts, deadline, &cast->actors[i], err);
}

exo_status
exo_cast_end(exo_cast *cast, exo_time grace, exo_err *err)
{
    exo_cast_drop(cast);
    if (cast->runtime && !cast->joined)
        return exo_runtime_close(&cast->runtime, exo_deadline(exo_clock_real(), grace), err);
    for (uint32_t i = 0; cast->actors && i < cast->count; i++)
        if (cast->actors[i].id)
            exo_stop(cast->runtime, cast->actors[i], false, NULL);
    return EXO_OK;
}

void
exo_cast_close(exo_cast *cast)
{
    exo_cast_drop(cast);
    exo_free(cast->actors);
    exo_free(cast->futures);
    exo_free(cast->replies);
}

void
exo_cast_be_patient(exo_cast *cast, exo_time time)
{
    cast->patience = exo_deadline(exo_clock_real(), time);
}

/* --- Errors ----------------------------------------------------------------------------------- */

/* Whether an error begins with these bytes of a name, and not with a longer name. */
static bool
begins_with(const char *reason, const char *name, size_t length)
{
    return strncmp(reason, name, length) == 0 && !isalnum((unsigned char)reason[length]) &&
           reason[length] != '_';
}

exo_status
exo_cast_blame(const exo_cast *cast, uint32_t i, exo_status status, const char *reason,
               exo_err *err)
{
    char name[EXO_CAST_NAME], why[EXO_ERR_TEXT] = "";
    cast->name(cast->context, i, name);
    if (err && status == EXO_PEER_LOST && cast->explain)
        cast->explain(cast->explain_context, cast->space, name, why, sizeof why);
    /* an actor knows its name, "maker_0", and not that of its life, "maker_0.1" */
    size_t length = strcspn(name, ".");
    bool named = !why[0] && cast->names_itself && begins_with(reason, name, length);
    if (named && strncmp(reason + length, ": ", 2) == 0) {
        reason += length + 2;
        named = false;
    }
    return exo_fail(err, status, "%s%s%s", named ? "" : name, named ? "" : ": ",
                    why[0]      ? why
                    : reason[0] ? reason
                                : exo_status_text(status));
}

/* The rank of an error (conduct.h, rule 2); 0: no error. */
static int
weight(const exo_cast *cast, uint32_t i, exo_status status)
{
    char cause[EXO_ERR_TEXT];
    if (status == EXO_OK || (status == EXO_CANCELLED && cast->told))
        return 0;
    if (status == EXO_PEER_LOST &&
        exo_cause(cast->runtime, cast->actors[i], cause, sizeof cause) == EXO_OK)
        return 3;
    if (status == EXO_PEER_LOST)
        return cast->told ? 0 : EXO_CAST_HEARD;
    return status == EXO_TIMEOUT || status == EXO_CANCELLED ? 2 : EXO_CAST_OWN;
}

/* --- Requests --------------------------------------------------------------------------------- */

static exo_status
call(const exo_cast *cast, uint32_t i, const char *method, exo_payload args, exo_time deadline,
     exo_future **out, exo_err *err)
{
    exo_err reason = {0};
    exo_status st = exo_call(cast->runtime, cast->actors[i], method, args, deadline, out, &reason);
    return st == EXO_OK ? st : exo_cast_blame(cast, i, st, reason.text, err);
}

exo_status
exo_cast_ask(exo_cast *cast, uint32_t i, const char *method, exo_payload args, exo_err *err)
{
    exo_future_drop(&cast->futures[i]);
    exo_future_drop(&cast->replies[i]);
    return call(cast, i, method, args, INT64_MAX, &cast->futures[i], err);
}

static void
take_answer(exo_cast *cast, const exo_cast_hooks *hooks, uint32_t i)
{
    exo_err reason = {0};
    exo_cast_root *root = &cast->root;
    exo_status st = exo_wait(cast->futures[i], INT64_MAX, NULL, &reason);
    exo_future *answer = cast->futures[i];
    cast->futures[i] = NULL;
    if (hooks->forgives && hooks->forgives(hooks->context, i, st, &reason)) {
        exo_future_drop(&answer);
        return;
    }
    cast->replies[i] = answer;
    int says = weight(cast, i, st);
    bool earlier = says && says == root->weight && hooks->when &&
                   hooks->when(hooks->context, i) < hooks->when(hooks->context, root->actor);
    if (says > root->weight || earlier)
        *root = (exo_cast_root){.status = st, .err = reason, .actor = i, .weight = says};
    hooks->answered(hooks->context, i, st, &reason);
}

static uint32_t
count_asked(const exo_cast *cast)
{
    uint32_t asked = 0;
    for (uint32_t i = 0; i < cast->count; i++)
        asked += cast->futures[i] != NULL;
    return asked;
}

/* Waits for an answer, for a slice of time at most. */
static exo_status
await_one(const exo_cast *cast, uint32_t asked, size_t *at)
{
    exo_time slice = exo_deadline(exo_clock_real(), SLICE);
    if (asked > 0)
        return exo_wait_any_of_many(cast->futures, cast->count, slice, at, NULL);
    nanosleep(&(struct timespec){.tv_nsec = PAUSE}, NULL);
    return EXO_TIMEOUT;
}

uint32_t
exo_cast_await(exo_cast *cast, const exo_cast_hooks *hooks)
{
    uint32_t left = 0;
    cast->root = (exo_cast_root){0};
    while ((left = count_asked(cast) + (hooks->owed ? hooks->owed(hooks->context) : 0)) > 0) {
        size_t at = 0;
        if (hooks->look)
            hooks->look(hooks->context);
        if (await_one(cast, count_asked(cast), &at) == EXO_OK)
            take_answer(cast, hooks, (uint32_t)at);
        else if (exo_now(exo_clock_real()) > cast->patience)
            break;
        else
            hooks->idle(hooks->context);
    }
    return left;
}

const exo_payload *
exo_cast_reply(const exo_cast *cast, uint32_t i)
{
    const exo_payload *reply = NULL;
    return cast->replies[i] && exo_wait(cast->replies[i], INT64_MAX, &reply, NULL) == EXO_OK ? reply
                                                                                             : NULL;
}

uint32_t
exo_cast_late(const exo_cast *cast)
{
    uint32_t i = 0;
    while (i + 1 < cast->count && !cast->futures[i])
        i++;
    return i;
}

void
exo_cast_drop(exo_cast *cast)
{
    for (uint32_t i = 0; cast->futures && cast->replies && i < cast->count; i++) {
        exo_future_drop(&cast->futures[i]);
        exo_future_drop(&cast->replies[i]);
    }
}

/* --- Rounds ----------------------------------------------------------------------------------- */

exo_status
exo_cast_round_open(exo_cast_round *round, const exo_cast *cast, exo_time timeout, exo_err *err)
{
    *round = (exo_cast_round){.cast = cast, .deadline = exo_deadline(exo_clock_real(), timeout)};
    round->futures = exo_calloc(cast->count, sizeof(exo_future *));
    return round->futures ? EXO_OK
                          : exo_fail(err, EXO_NOMEM, "no memory to ask %u actors", cast->count);
}

exo_status
exo_cast_round_ask(exo_cast_round *round, uint32_t i, const char *method, exo_payload args,
                   exo_err *err)
{
    return call(round->cast, i, method, args, round->deadline, &round->futures[i], err);
}

bool
exo_cast_round_next(exo_cast_round *round)
{
    while (round->next < round->cast->count && !round->futures[round->next])
        round->next++;
    if (round->next == round->cast->count)
        return false;
    round->actor = round->next++;
    round->reply = NULL;
    round->status =
        exo_wait(round->futures[round->actor], round->deadline, &round->reply, &round->reason);
    return true;
}

void
exo_cast_round_close(exo_cast_round *round)
{
    for (uint32_t i = 0; round->futures && i < round->cast->count; i++)
        exo_future_drop(&round->futures[i]);
    exo_free(round->futures);
    round->futures = NULL;
}
