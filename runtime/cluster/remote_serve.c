/* Calls of other processes: from the envelope to an actor of this process, and its reply back.
 * remote_calls.c has the other side.
 *
 * A call is in the table `serving` until its future is complete. An object of its reply is in
 * `loans` until the caller has it or is lost. The remote's lock guards both tables; the members
 * that identify an entry do not change. Read next: access.c, remote_gate.c. */
#include <stdio.h>
#include <string.h>

#include <utlist.h>

#include <exogym/memory.h>

#include "base/printable.h"
#include "cluster/access.h"
#include "cluster/messages.h"
#include "cluster/quota.h"
#include "cluster/remote_impl.h"

enum {
    /* calls of one connection that may run here: the window, and as many that the caller has given
     * up */
    SERVED = 2 * WINDOW,
    SPAWN_ASKER = 22 /* number of Spawn's field `asker` (proto/cluster.proto) */
};

/* A call that runs here. */
struct serving {
    exo_remote *remote;
    struct {
        const exo_peer *peer;
        uint64_t id;
    } key;
    exo_peer *peer;          /* held */
    struct channel *channel; /* the peer's, which counts this call */
    exo_future *future;      /* held until the reply is sent */
    bool monitors, cancelled;
    struct serving *prev, *next; /* among the channel's */
    UT_hash_handle hh;
};

/* An object of a reply, held until the caller has it. */
struct loan {
    struct {
        const exo_peer *peer;
        uint64_t id;
    } key;
    exo_object *object;
    struct channel *channel;  /* the peer's */
    struct loan *prev, *next; /* among the channel's */
    UT_hash_handle hh;
};

/* Whether the peer has so many unacknowledged objects that it gets bytes instead. The quota is
 * checked before a loan, so the last object may exceed it. */
static bool
has_enough_locked(const struct channel *c)
{
    const uint64_t *most = exo_quotas_default.most;
    return c->num_lent >= most[EXO_QUOTA_LENT] || c->lent_bytes >= most[EXO_QUOTA_LENT_BYTES];
}

static void
count_loan_locked(exo_remote *r, struct loan *loan, bool lent)
{
    struct channel *c = loan->channel;
    uint64_t size = exo_object_size(loan->object);
    c->num_lent += lent ? 1 : -1u;
    c->lent_bytes += lent ? size : -size;
    if (lent) {
        HASH_ADD(hh, r->loans, key, sizeof loan->key, loan);
        DL_APPEND(c->loans, loan);
    } else {
        HASH_DEL(r->loans, loan);
        DL_DELETE(c->loans, loan);
    }
}

/* Holds an object until the caller has it. The reference to it moves into the table. */
static exo_status
lend(exo_remote *r, exo_peer *peer, uint64_t id, exo_object *object, exo_err *err)
{
    struct loan *loan = exo_calloc(1, sizeof *loan);
    if (!loan) {
        exo_object_drop(&object);
        return exo_fail(err, EXO_NOMEM, "no memory to lend an object");
    }
    loan->key.peer = peer;
    loan->key.id = id;
    loan->object = object;
    pthread_mutex_lock(&r->lock);
    /* a loan to a closed connection would never be taken back */
    loan->channel = exo_peer_is_open(peer) ? exo_peer_user(peer) : NULL;
    bool open = loan->channel && !loan->channel->closed;
    if (open)
        count_loan_locked(r, loan, true);
    pthread_mutex_unlock(&r->lock);
    if (open)
        return EXO_OK;
    exo_object_drop(&loan->object);
    exo_free(loan);
    return exo_fail(err, EXO_PEER_LOST, "the caller is lost");
}

/* The call's future is complete: sends the reply. */
static void
serving_done(void *context, uint64_t unused, exo_future *future)
{
    struct serving *s = context;
    exo_remote *r = s->remote;
    exo_err err = {0};
    exo_payload value = {0};
    (void)unused;
    pthread_mutex_lock(&r->lock);
    HASH_DEL(r->serving, s);
    DL_DELETE(s->channel->servings, s);
    s->channel->num_serving--;
    s->channel->num_monitors -= s->monitors;
    bool enough = has_enough_locked(s->channel);
    pthread_mutex_unlock(&r->lock);
    exo_envelope reply = {.kind = EXO_WIRE_REPLY, .id = s->key.id};
    exo_object_handle handle;
    exo_object *lent = NULL;
    reply.status = exo_future_take(future, &value, &err);
    reply.text = err.text;
    exo_status st = EXO_OK;
    if (!enough)
        st = exo_remote_place_payload(s->peer, &reply, &value, &handle, &lent, &err);
    if (st == EXO_OK && lent)
        st = lend(r, s->peer, s->key.id, lent, &err);
    if (st == EXO_OK)
        st = exo_net_send(r->net, s->peer, &reply, lent ? NULL : &value, &err);
    exo_payload_release(&value);
    /* the caller must not wait for a reply that cannot be sent */
    if (st == EXO_INVAL || st == EXO_NOMEM || st == EXO_FULL) {
        exo_envelope failure = {
            .kind = EXO_WIRE_REPLY, .id = s->key.id, .status = st, .text = err.text};
        exo_net_send(r->net, s->peer, &failure, NULL, NULL);
    }
    exo_peer_drop(&s->peer);
    exo_future_drop(&s->future);
    exo_free(s);
}

static const exo_future_hook serving_hook = {.done = serving_done};

static void
answer(exo_remote *r, exo_peer *peer, uint64_t id, exo_status status, const char *reason)
{
    exo_envelope reply = {.kind = EXO_WIRE_REPLY, .id = id, .status = status, .text = reason};
    exo_net_send(r->net, peer, &reply, NULL, NULL);
}

static bool
has_method(const exo_actor_class *c, const char *name)
{
    for (size_t i = 0; i < c->num_methods; i++)
        if (strcmp(c->methods[i].name, name) == 0)
            return true;
    return false;
}

/* The method's name in the table of access.c, for a call of an actor that is not a system actor. */
static const char *
row_of(const exo_actor_info *info, const char *method)
{
    static const char *const common[] = {"ping", "dump", "stop"};
    if (method[0] == '$')
        return method;
    for (size_t i = 0; i < sizeof common / sizeof *common; i++)
        if (strcmp(method, common[i]) == 0 && !has_method(info->actor_class, method))
            return method;
    return "*";
}

static bool
ends(const char *row)
{
    return strcmp(row, "stop") == 0 || strcmp(row, METHOD_STOP) == 0 ||
           strcmp(row, METHOD_DRAIN) == 0 || strcmp(row, METHOD_KILL) == 0;
}

/* A driver may reach actors of its namespace and actors that it has made, and may end only the
 * latter. */
static exo_status
check_driver(exo_remote *r, const exo_identity *who, const exo_actor_info *info, exo_ref actor,
             const char *row, exo_err *err)
{
    char space[256] = "default", owner[EXO_IDENTITY_NAME] = "";
    bool made = r->events->made_from && r->events->made_from(r->context, actor, space, owner);
    if (!made && info->space)
        snprintf(space, sizeof space, "%s", info->space);
    bool own = made && who->name[0] && strcmp(owner, who->name) == 0;
    if (strcmp(space, who->space) != 0 && !own)
        return exo_fail(err, EXO_DENIED,
                        "%s may call actors of the namespace '%s' only, and those that it made",
                        who->name, who->space);
    if (ends(row) && strcmp(owner, who->name) != 0)
        return exo_fail(err, EXO_DENIED, "%s did not make this actor, and cannot end it",
                        who->name);
    return EXO_OK;
}

/* System actors, of which a process consists, accept no stop or kill from other processes: nobody
 * would do their work afterwards, and nobody would notice. */
static exo_status
check_system(const exo_identity *who, const exo_actor_info *info, const char *method, exo_err *err)
{
    exo_right right;
    if (method[0] == '$' || strcmp(method, "stop") == 0)
        return exo_fail(err, EXO_DENIED, "'%s' of the cluster itself takes no `%.60s` from others",
                        info->name, method);
    if (strcmp(method, "ping") == 0 || strcmp(method, "dump") == 0)
        return exo_access_check(who, "actor", method, &right, err);
    if (!has_method(info->actor_class, method)) /* it will be told that there is no such method */
        return who->role == EXO_ACCESS_NONE ? exo_access_check(who, info->name, method, &right, err)
                                            : EXO_OK;
    return exo_access_check(who, info->name, method, &right, err);
}

/* Whether an administrator's call of any actor is allowed, whatever the actor is. */
static bool
needs_no_look(const char *method)
{
    static const char *const others[] = {"stop", "started", "go_on", "tick"};
    if (method[0] == '$')
        return false;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (method[0] == others[i][0] && strcmp(method, others[i]) == 0)
            return false;
    return true;
}

/* Whether this caller may make that call. */
static exo_status
check_access(exo_remote *r, const exo_identity *who, exo_ref actor, const char *method,
             exo_err *err)
{
    exo_actor_info info;
    exo_right right;
    exo_status st;
    if (!who)
        return exo_fail(err, EXO_DENIED, "nothing is known of the caller");
    if (who->role == EXO_ACCESS_ADMIN && needs_no_look(method))
        return EXO_OK;
    /* a dead actor */
    if (!exo_runtime_look(r->runtime, actor, &info))
        return who->role ? EXO_OK : exo_fail(err, EXO_DENIED, "the caller may call nothing here");
    if (info.space && strcmp(info.space, EXO_SYSTEM_SPACE) == 0) {
        st = check_system(who, &info, method, err);
    } else {
        const char *row = row_of(&info, method);
        st = exo_access_check(who, "actor", row, &right, err);
        if (st == EXO_OK && right == EXO_RIGHT_OWN)
            st = check_driver(r, who, &info, actor, row, err);
        if (st == EXO_OK && strcmp(row, "*") == 0)
            st = exo_access_check_class(who, info.actor_class, method, err);
    }
    exo_actor_info_release(&info);
    return st;
}

/* Records a call in the audit log: one that is refused, or that ends an actor. Other calls are too
 * many. */
static void
record_call(exo_remote *r, exo_audit_event event, const exo_peer *peer, const exo_envelope *e,
            exo_ref actor, exo_status status, const exo_err *err)
{
    char subject[2 * EXO_WIRE_NAME] = "";
    exo_actor_info info;
    if (!r->audit)
        return;
    bool own = e->actor == 0 && e->text[0] == 0;
    exo_audit_record record = {.event = event,
                               .who = exo_peer_identity(peer),
                               .object = own             ? "process"
                                         : e->actor == 0 ? e->text
                                                         : "actor",
                               .method = e->method,
                               .subject = subject,
                               .status = status,
                               .reason = err->text};
    bool lives = e->actor != 0 && exo_runtime_look(r->runtime, actor, &info);
    if (lives) {
        record.detail = info.actor_class->name;
        if (info.name)
            snprintf(subject, sizeof subject, "%s/%s", info.space ? info.space : "default",
                     info.name);
    }
    exo_audit_add(r->audit, &record);
    if (lives)
        exo_actor_info_release(&info);
}

/* Records an allowed call that ends an actor, before it is made. */
static void
record_end(exo_remote *r, const exo_peer *peer, const exo_envelope *e, exo_ref actor)
{
    exo_actor_info info;
    if (!r->audit || !ends(e->method) || !exo_runtime_look(r->runtime, actor, &info))
        return;
    /* then the call is one of the class's methods and ends nothing */
    bool own = has_method(info.actor_class, e->method);
    exo_actor_info_release(&info);
    if (!own)
        record_call(r, EXO_AUDIT_KILL, peer, e, actor, EXO_OK, &(exo_err){0});
}

/* Records a failed call if the caller is to blame. The full mailbox of an ordinary actor is not the
 * caller's fault. */
static void
record_failure(exo_remote *r, const exo_peer *peer, const exo_envelope *e, exo_ref actor,
               exo_status st, const exo_err *err)
{
    if (st == EXO_DENIED)
        record_call(r, EXO_AUDIT_DENIED, peer, e, actor, st, err);
    else if (st == EXO_FULL && e->actor == 0)
        record_call(r, EXO_AUDIT_QUOTA, peer, e, actor, st, err);
}

/* Runs a method that is not the actor's own. True: it was one, and *st is its result. */
static bool
run_control(exo_remote *r, exo_ref actor, const char *method, const exo_payload *args,
            exo_future *future, exo_status *st, exo_err *err)
{
    char cause[CAUSE];
    if (method[0] != '$' || strcmp(method, EXO_METHOD_METHODS) == 0)
        return false;
    if (strcmp(method, METHOD_MONITOR) == 0) {
        *st = exo_runtime_monitor(r->runtime, actor, future, err);
        return true;
    }
    if (strcmp(method, METHOD_KILL) == 0) {
        size_t length = args->size < sizeof cause ? args->size : sizeof cause;
        exo_format_cut(cause, sizeof cause, "%.*s", (int)length,
                       length ? (const char *)args->data : "");
        *st = exo_kill(r->runtime, actor, cause, err);
    } else if (strcmp(method, METHOD_STOP) == 0 || strcmp(method, METHOD_DRAIN) == 0) {
        *st = exo_stop(r->runtime, actor, strcmp(method, METHOD_DRAIN) == 0, err);
    } else {
        *st = exo_fail(err, EXO_NOT_FOUND, "there is no method '%s'", method);
    }
    if (*st == EXO_OK)
        exo_future_complete(future, EXO_OK, NULL, NULL);
    return true;
}

/* Counts the call. FULL: too many calls of the peer run here, or it does not read its replies. The
 * callee does not trust the caller to keep its own window. */
static exo_status
begin_serving(exo_remote *r, exo_peer *peer, struct serving *s, exo_err *err)
{
    exo_status st = EXO_OK;
    pthread_mutex_lock(&r->lock);
    struct channel *c = exo_remote_channel_locked(r, peer);
    if (!c)
        st = exo_fail(err, EXO_NOMEM, "the callee has no memory for a call");
    else if (c->num_serving >= SERVED || exo_peer_is_full(peer))
        st = exo_fail(
            err, EXO_FULL,
            "the callee has too many calls of this process, or replies that it has not read");
    else if (s->monitors)
        st = exo_quota_check(NULL, EXO_QUOTA_MONITORS, c->num_monitors, 1, err);
    if (st == EXO_OK) {
        c->num_serving++;
        c->num_monitors += s->monitors;
        s->channel = c;
        s->peer = exo_peer_hold(peer);
        HASH_ADD(hh, r->serving, key, sizeof s->key, s);
        DL_PREPEND(c->servings, s);
    }
    pthread_mutex_unlock(&r->lock);
    return st;
}

/* The process for which the head asks something of this worker. 0: the head itself, or the
 * arguments are not there yet. */
static uint64_t
asker_of(const exo_envelope *e, const exo_payload *args)
{
    bool spawns = strcmp(e->text, "worker") == 0 && strcmp(e->method, "spawn") == 0;
    return spawns ? exo_message_number(args, SPAWN_ASKER) : 0;
}

/* Enters the call into `serving`; the hook of its future will send the reply. */
static exo_status
open_serving(exo_remote *r, exo_peer *peer, const exo_envelope *e, struct serving **out,
             exo_err *err)
{
    exo_time deadline = e->timeout == INT64_MAX
                            ? INT64_MAX
                            : exo_deadline(exo_runtime_clock(r->runtime), e->timeout);
    struct serving *s = exo_calloc(1, sizeof *s);
    if (!s || exo_future_new(&s->future, exo_runtime_clock(r->runtime), deadline, NULL) != EXO_OK) {
        exo_free(s);
        return exo_fail(err, EXO_NOMEM, "the callee has no memory for a call");
    }
    s->remote = r;
    s->key.peer = peer;
    s->key.id = e->id;
    s->monitors = e->method[0] == '$' && strcmp(e->method, METHOD_MONITOR) == 0;
    exo_status st = begin_serving(r, peer, s, err);
    if (st == EXO_OK) {
        *out = s;
        return st;
    }
    exo_future_drop(&s->future);
    exo_free(s);
    return st;
}

/* Serves a call of the process itself. */
static exo_status
serve_own(exo_remote *r, const exo_peer *peer, const exo_envelope *e, const exo_payload *args,
          exo_future *future, exo_err *err)
{
    exo_right right;
    exo_status st = exo_access_check(exo_peer_identity(peer), "process", e->method, &right, err);
    return st == EXO_OK ? exo_remote_answer_own(r, e->method, args, future, err) : st;
}

/* Finds the actor, checks the caller's right, and delivers the call. */
static exo_status
serve_actor(exo_remote *r, struct channel *channel, exo_peer *peer, const exo_envelope *e,
            exo_payload *args, exo_future *future, exo_ref *actor, exo_err *err)
{
    const exo_identity *who = exo_peer_identity(peer);
    exo_status st = EXO_OK;
    if (e->actor == 0)
        st = exo_runtime_find_name(r->runtime, EXO_SYSTEM_SPACE, e->text, actor, err);
    if (st == EXO_OK && (actor->id & EXO_REMOTE))
        st = exo_fail(err, EXO_INVAL, "a reference that is no actor of this process");
    if (st == EXO_OK)
        st = check_access(r, who, *actor, e->method, err);
    if (st != EXO_OK)
        return st;
    record_end(r, peer, e, *actor);
    if (run_control(r, *actor, e->method, args, future, &st, err))
        return st;
    return e->actor == 0
               ? exo_remote_pass(r, channel, peer, asker_of(e, args), *actor, e->method, args,
                                 future, err)
               : exo_runtime_deliver(r->runtime, *actor, e->method, args, who, future, err);
}

/* Fetches large arguments, and bounds those of a system actor's method. */
static exo_status
take_args(const exo_envelope *e, bool system, exo_payload *args, exo_err *err)
{
    exo_status st =
        e->payload.place == EXO_WIRE_OBJECT ? exo_remote_fetch_payload(e, args, err) : EXO_OK;
    if (st == EXO_OK && system && args->size > EXO_MAX_CONTROL)
        st = exo_fail(err, EXO_INVAL,
                      "a call of '%s' has at most %d bytes of arguments, not %zu: give large data "
                      "as an object",
                      e->text, EXO_MAX_CONTROL, args->size);
    return st;
}

void
exo_remote_serve_call(exo_remote *r, exo_peer *peer, const exo_envelope *e, exo_payload *args)
{
    exo_err err = {0};
    exo_ref actor = {.id = e->actor};
    struct serving *s = NULL;
    bool own = e->actor == 0 && e->text[0] == 0, system = e->actor == 0 && !own;
    exo_status st =
        system ? exo_remote_check_gate(r, peer, asker_of(e, args), args->size, &err) : EXO_OK;
    if (st != EXO_OK)
        record_failure(r, peer, e, actor, st, &err);
    else if ((st = open_serving(r, peer, e, &s, &err)) == EXO_FULL)
        record_call(r, EXO_AUDIT_QUOTA, peer, e, actor, st, &err);
    if (st != EXO_OK) {
        answer(r, peer, e->id, st, err.text);
        exo_payload_release(args);
        return;
    }
    struct channel *channel = s->channel;
    st = take_args(e, system, args, &err);
    /* s may be freed as soon as the future is complete */
    exo_future *future = exo_future_hold(s->future);
    exo_future_set_hook(future, &serving_hook, s, 0);
    if (st == EXO_OK)
        st = own ? serve_own(r, peer, e, args, future, &err)
                 : serve_actor(r, channel, peer, e, args, future, &actor, &err);
    if (st != EXO_OK) {
        record_failure(r, peer, e, actor, st, &err);
        exo_future_complete(future, st, err.text, NULL);
    }
    exo_payload_release(args);
    exo_future_drop(&future);
}

void
exo_remote_cancel_call(exo_remote *r, exo_peer *peer, uint64_t id)
{
    struct serving *s = NULL, probe = {0}; /* the key's padding must be zero */
    struct loan *loan = NULL;
    exo_future *future = NULL;
    probe.key.peer = peer;
    probe.key.id = id;
    pthread_mutex_lock(&r->lock);
    HASH_FIND(hh, r->serving, &probe.key, sizeof probe.key, s);
    if (s)
        future = exo_future_hold(s->future);
    else
        HASH_FIND(hh, r->loans, &probe.key, sizeof probe.key, loan);
    if (loan)
        count_loan_locked(r, loan, false);
    pthread_mutex_unlock(&r->lock);
    if (future)
        exo_cancel(future);
    exo_future_drop(&future);
    if (loan)
        exo_object_drop(&loan->object);
    exo_free(loan);
}

/* Cancels calls whose caller is gone. Those whose methods run stay in the list until these
 * return. */
static bool
cancel_some(exo_remote *r, struct channel *c)
{
    exo_future *futures[ENDED_AT_ONCE];
    size_t count = 0;
    pthread_mutex_lock(&r->lock);
    for (struct serving *s; count < ENDED_AT_ONCE && (s = c->servings) && !s->cancelled; count++) {
        s->cancelled = true;
        futures[count] = exo_future_hold(s->future);
        DL_DELETE(c->servings, s);
        DL_APPEND(c->servings, s);
    }
    bool more = c->servings && !c->servings->cancelled;
    pthread_mutex_unlock(&r->lock);
    for (size_t i = 0; i < count; i++) {
        exo_cancel(futures[i]);
        exo_future_drop(&futures[i]);
    }
    return more;
}

static bool
take_some_back(exo_remote *r, struct channel *c)
{
    for (size_t i = 0; i < ENDED_AT_ONCE; i++) {
        pthread_mutex_lock(&r->lock);
        struct loan *loan = c->loans;
        if (loan)
            count_loan_locked(r, loan, false);
        pthread_mutex_unlock(&r->lock);
        if (!loan)
            return false;
        exo_object_drop(&loan->object);
        exo_free(loan);
    }
    return true;
}

bool
exo_remote_end_serving(exo_remote *r, struct channel *c)
{
    bool cancels = cancel_some(r, c), takes = take_some_back(r, c);
    return cancels || takes;
}
