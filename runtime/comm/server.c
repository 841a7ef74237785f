/* The server of a communicator: see exogym/server.h.
 *
 * Messages to the server and its wake-ups are *events*, in a list in the order of their times. An
 * event is performed when its time has come: on the virtual clock by a callback of the simulation,
 * on the real clock by any member that sends, receives or waits. A member computes between these
 * calls, so on the real clock an event may be performed late; it has the time of its arrival all
 * the same, and the order of events is that of their times.
 *
 * Answers go into the inbox of their member, each with the time of its arrival.
 *
 * If the members are in processes of their own, each has an exo_server, and that of the member `home` has
 * the state and a thread that performs the events. Messages between it and the others are carried by the
 * engine (exo_comm_extras).
 *
 * State: exo_server, guarded by its lock, except where a member says otherwise. `working` is held
 * while the class works; it comes before the lock, and an engine's lock comes before either. The
 * lock is not held while a lane is woken, because that may run callbacks, or during calls into the
 * engine. References: the communicator's, and one for each callback that is due. Read next:
 * exogym/server.h. */
#include <exogym/server.h>

#include <pthread.h>
#include <stdio.h>

#include <exogym/memory.h>

#include "base/pace.h"
#include "base/parallel.h"
#include "base/thread.h"
#include "base/waiting.h"
#include "comm/backend.h"
#include "comm/server.h"
#include "comm/timing.h"

/* A message under way, to the server or from it; or a wake-up. */
struct parcel {
    struct parcel *next;
    exo_time arrives; /* on the clock */
    uint32_t member;  /* of an event: its sender; of an answer: its receiver */
    bool wakes;       /* of an event: it is a wake-up */
    exo_server_message message;
};

enum {
    SLICE_MS = 1000 /* the longest sleep of the thread */
};

struct inbox {
    struct parcel *first, **last;
    exo_sim_lane *lane; /* waits for a message; NULL: none */
};

struct exo_server {
    _Atomic unsigned references;
    uint32_t size;
    exo_comm *comm; /* not held: it owns the server */
    const exo_clock *clock;
    exo_comm_edge edge; /* hosts: owned by the communicator */
    const exo_server_class *class;
    bool apart;    /* members are in processes of their own */
    uint32_t rank; /* then: the member of this process */
    uint32_t home; /* the member that has the state and is on the server's host */
    pthread_t thread;
    bool threaded;           /* `thread` runs. Owner: who opens and closes the server */
    pthread_mutex_t working; /* guards `now` and the class's state */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool closed; /* the communicator has gone */
    void *state;
    exo_time now; /* time of the event that is performed */
    struct parcel *events;
    struct parcel *outgoing, **outgoing_last; /* answers for the engine to carry, in order */
    struct inbox *inboxes;                    /* (size) */
    exo_err broken;                           /* code OK: not broken */
};

/* --- Parcels ---------------------------------------------------------------------------------- */

static void
free_parcels(struct parcel **first)
{
    for (struct parcel *p = *first, *next; p; p = next) {
        next = p->next;
        exo_array_release(&p->message.data);
        exo_free(p);
    }
    *first = NULL;
}

/* Copies a message, its array to the host. */
static exo_status
make_parcel(struct parcel **out, const exo_server_message *message, exo_err *err)
{
    struct parcel *p = exo_calloc(1, sizeof *p);
    const exo_array data = message->data;
    if (!p)
        return exo_fail(err, EXO_NOMEM, "no memory for a message of a server");
    p->message = *message;
    p->message.data = (exo_array){0};
    exo_status st = EXO_OK;
    if (data.count > 0 && data.dtype != EXO_F32)
        st = exo_fail(err, EXO_INVAL, "a server's messages carry fp32, not %s",
                      exo_dtype_name(data.dtype));
    else if (data.count > 0)
        st = exo_array_init(&p->message.data, exo_device_cpu(), EXO_F32, data.count, err);
    if (st == EXO_OK && data.count > 0)
        st = exo_array_read(data, p->message.data.data, err);
    if (st != EXO_OK)
        free_parcels(&p);
    *out = p;
    return st;
}

static uint64_t
bytes_of(const exo_server_message *message)
{
    return message->data.count * sizeof(float);
}

/* The time at which a message arrives that is sent at `now`. */
static exo_time
arrival(const exo_server *s, uint32_t from, uint32_t to, const exo_server_message *message,
        exo_time now)
{
    exo_transit transit;
    if (!s->edge.links || s->apart)
        return now;
    exo_links_send(s->edge.links, s->edge.hosts[from], s->edge.hosts[to], s->edge.flow,
                   bytes_of(message) + EXO_COMM_HEADER + EXO_COMM_ENVELOPE, now - s->edge.origin,
                   &transit);
    return transit.arrives == INT64_MAX ? INT64_MAX : transit.arrives + s->edge.origin;
}

/* --- Life ------------------------------------------------------------------------------------- */

static void
drop(exo_server *s)
{
    if (--s->references > 0)
        return;
    for (uint32_t r = 0; s->inboxes && r < s->size; r++)
        free_parcels(&s->inboxes[r].first);
    free_parcels(&s->events);
    free_parcels(&s->outgoing);
    exo_free(s->inboxes);
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->lock);
    pthread_mutex_destroy(&s->working);
    exo_free(s);
}

void
exo_server_close(exo_server *s)
{
    if (!s)
        return;
    if (s->apart)
        s->comm->extras->attach(s->comm->state, NULL);
    pthread_mutex_lock(&s->lock);
    s->closed = true;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
    if (s->threaded)
        pthread_join(s->thread, NULL);
    pthread_mutex_lock(&s->working);
    void *state = s->state;
    s->state = NULL;
    pthread_mutex_unlock(&s->working);
    if (state && s->class->close)
        s->class->close(state);
    drop(s);
}

static void *thread_main(void *argument);

static bool
is_home(const exo_server *s)
{
    return !s->apart || s->rank == s->home;
}

/* Lets the engine carry messages, and starts the thread of the member that has the state. */
static exo_status
attach(exo_server *s, exo_err *err)
{
    if (!s->apart)
        return EXO_OK;
    exo_status st = EXO_OK;
    if (is_home(s))
        st = exo_thread_start(&s->thread, thread_main, s, "a server of nodes", err);
    if (st != EXO_OK)
        return st;
    s->threaded = is_home(s);
    s->comm->extras->attach(s->comm->state, s);
    return EXO_OK;
}

/* Makes the state, or takes that of an earlier server. */
static exo_status
open_state(exo_server *s, exo_comm *comm, const void *opts, exo_err *err)
{
    if (!is_home(s))
        return EXO_OK;
    if (!comm->estate.state)
        return s->class->open(&s->state, opts, s->size, err);
    if (comm->estate.class != s->class)
        return exo_fail(err, EXO_EXISTS, "the server '%s' cannot go on as '%s'",
                        comm->estate.class->name, s->class->name);
    s->state = comm->estate.state;
    comm->estate = (exo_server_estate){0};
    return EXO_OK;
}

static exo_status
new_server(exo_server **out, exo_comm *comm, uint32_t rank, const exo_server_class *class,
           const void *opts, exo_err *err)
{
    exo_server *s = exo_calloc(1, sizeof *s);
    struct inbox *inboxes = exo_calloc(comm->size, sizeof *inboxes);
    if (!s || !inboxes) {
        exo_free(s);
        exo_free(inboxes);
        return exo_fail(err, EXO_NOMEM, "no memory for the server '%s'", class->name);
    }
    *s = (exo_server){.references = 1,
                      .size = comm->size,
                      .comm = comm,
                      .clock = comm->clock,
                      .edge = *comm->extras->edge(comm->state),
                      .class = class,
                      .apart = comm->extras->attach != NULL,
                      .rank = rank,
                      .home = comm->home,
                      .inboxes = inboxes};
    pthread_mutex_init(&s->working, NULL);
    pthread_mutex_init(&s->lock, NULL);
    exo_condition_init(&s->changed);
    for (uint32_t r = 0; r < s->size; r++)
        s->inboxes[r].last = &s->inboxes[r].first;
    s->outgoing_last = &s->outgoing;
    exo_status st = open_state(s, comm, opts, err);
    if (st == EXO_OK)
        *out = s;
    else
        drop(s);
    return st;
}

exo_status
exo_server_open(exo_server **out, exo_comm *comm, uint32_t rank, const exo_server_class *class,
                const void *opts, exo_err *err)
{
    static pthread_mutex_t making = PTHREAD_MUTEX_INITIALIZER;
    exo_status st = EXO_OK;
    pthread_mutex_lock(&making);
    exo_server *s = comm->server;
    if (!s && (st = new_server(&s, comm, rank, class, opts, err)) == EXO_OK &&
        (st = attach(s, err)) != EXO_OK) {
        exo_server_close(s);
        s = NULL;
    }
    if (st == EXO_OK)
        comm->server = s;
    pthread_mutex_unlock(&making);
    if (st == EXO_OK && s->class != class)
        st = exo_fail(err, EXO_EXISTS, "the communicator has the server '%s': it cannot have '%s'",
                      s->class->name, class->name);
    *out = s;
    return st;
}

void *
exo_server_state(const exo_server *s)
{
    return s->state;
}

bool
exo_server_pause(exo_server *s, struct exo_state *list)
{
    if (!s || !s->class->list)
        return false;
    pthread_mutex_lock(&s->working);
    const bool here = s->state != NULL;
    if (here)
        s->class->list(s->state, list);
    else
        pthread_mutex_unlock(&s->working);
    return here;
}

void
exo_server_resume(exo_server *s)
{
    pthread_mutex_unlock(&s->working);
}

void
exo_server_set_members(exo_server *s, const uint32_t *ranks, uint32_t count)
{
    pthread_mutex_lock(&s->working);
    if (s->apart && s->state && s->class->members)
        s->class->members(s->state, ranks, count);
    pthread_mutex_unlock(&s->working);
}

void
exo_server_take_estate(exo_comm *comm, exo_server_estate *out)
{
    exo_server *s = comm->server;
    *out = (exo_server_estate){0};
    if (!s)
        return;
    exo_server_break(s, EXO_CLOSED, "the server has gone to another communicator");
    pthread_mutex_lock(&s->working); /* the class does nothing any more: take_event */
    *out = (exo_server_estate){.class = s->class, .state = s->state};
    s->state = NULL;
    pthread_mutex_unlock(&s->working);
}

void
exo_server_leave_estate(exo_comm *comm, exo_server_estate *estate)
{
    comm->estate = *estate;
    *estate = (exo_server_estate){0};
}

void
exo_server_estate_release(exo_server_estate *estate)
{
    if (estate->state && estate->class->close)
        estate->class->close(estate->state);
    *estate = (exo_server_estate){0};
}

/* --- Events ----------------------------------------------------------------------------------- */

static void
break_locked(exo_server *s, const exo_err *reason)
{
    if (s->broken.code == EXO_OK)
        s->broken = *reason;
}

/* Takes the first event if its time has come; NULL: it has not. */
static struct parcel *
take_event(exo_server *s, exo_time now)
{
    pthread_mutex_lock(&s->lock);
    struct parcel *event = s->events;
    if (event && (event->arrives > now || s->closed || s->broken.code != EXO_OK))
        event = NULL;
    if (event) {
        s->events = event->next;
        event->next = NULL;
    }
    pthread_mutex_unlock(&s->lock);
    return event;
}

/* Ends all calls of all members with this reason. */
static void
fail_all(exo_server *s, const exo_err *reason)
{
    pthread_mutex_lock(&s->lock);
    break_locked(s, reason);
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
    if (s->apart)
        s->comm->extras->fail_all(s->comm->state, reason);
}

/* Performs the first event if its time has come. */
static bool
perform_one(exo_server *s, exo_time now)
{
    exo_err reason = {0};
    exo_status st = EXO_OK;
    pthread_mutex_lock(&s->working);
    struct parcel *event = take_event(s, now);
    const bool any = event != NULL;
    if (any) {
        s->now = event->arrives;
        st = event->wakes
                 ? s->class->wake(s->state, s, s->now, &reason)
                 : s->class->handle(s->state, s, event->member, &event->message, s->now, &reason);
    }
    pthread_mutex_unlock(&s->working);
    free_parcels(&event);
    if (st != EXO_OK)
        fail_all(s, &reason);
    return any;
}

/* Wakes the members that wait: the lanes at the arrival of their message. */
static void
wake_members(exo_server *s)
{
    for (uint32_t r = 0; s->edge.sim && r < s->size; r++) {
        pthread_mutex_lock(&s->lock);
        const struct inbox *inbox = &s->inboxes[r];
        exo_sim_lane *lane = inbox->first || s->broken.code != EXO_OK ? inbox->lane : NULL;
        exo_time at = s->broken.code == EXO_OK && inbox->first ? inbox->first->arrives : 0;
        pthread_mutex_unlock(&s->lock);
        if (lane)
            exo_sim_wake(lane, at);
    }
}

/* Performs the events whose time has come, and wakes those that wait for their answers. */
static void
perform(exo_server *s, exo_time now)
{
    bool any = false;
    while (perform_one(s, now))
        any = true;
    if (!any)
        return;
    pthread_mutex_lock(&s->lock);
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
    wake_members(s);
}

/* Callback of the simulation. */
static void
on_time(void *context, exo_time at)
{
    exo_server *s = context;
    perform(s, at);
    drop(s);
}

/* Puts an event into its place: after those of the same time. Owns it. */
static exo_status
add_event_locked(exo_server *s, struct parcel *event, exo_err *err)
{
    struct parcel **at = &s->events;
    while (*at && (*at)->arrives <= event->arrives)
        at = &(*at)->next;
    event->next = *at;
    *at = event;
    if (!s->edge.sim || event->arrives == INT64_MAX)
        return EXO_OK;
    s->references++;
    exo_status st = exo_sim_at(s->edge.sim, event->arrives, on_time, s, err);
    if (st != EXO_OK)
        s->references--;
    return st;
}

static void
add_answer_locked(exo_server *s, struct parcel *p)
{
    struct inbox *inbox = &s->inboxes[p->member];
    *inbox->last = p;
    inbox->last = &p->next;
}

/* --- Between processes ------------------------------------------------------------------------ */

/* Has the engine carry the first outgoing answer. False: there is none. */
static bool
carry_one(exo_server *s)
{
    exo_err reason = {0};
    pthread_mutex_lock(&s->lock);
    struct parcel *p = s->outgoing;
    if (p) {
        s->outgoing = p->next;
        p->next = NULL;
        if (!s->outgoing)
            s->outgoing_last = &s->outgoing;
    }
    pthread_mutex_unlock(&s->lock);
    if (!p)
        return false;
    if (s->comm->extras->carry(s->comm->state, p->member, &p->message, &reason) != EXO_OK)
        fail_all(s, &reason);
    free_parcels(&p);
    return true;
}

/* Sleeps until an event is due, at most SLICE_MS. */
static void
idle_thread(exo_server *s)
{
    pthread_mutex_lock(&s->lock);
    const bool works = s->events && s->broken.code == EXO_OK;
    exo_time now = exo_now(s->clock), until = now + SLICE_MS * EXO_MS;
    if (works && s->events->arrives < until)
        until = s->events->arrives;
    if (!s->closed && until > now)
        exo_condition_wait_until(&s->changed, &s->lock, until);
    pthread_mutex_unlock(&s->lock);
}

static void *
thread_main(void *argument)
{
    exo_server *s = argument;
    bool closed = false;
    while (!closed) {
        perform(s, exo_now(s->clock));
        while (carry_one(s))
            continue;
        idle_thread(s);
        pthread_mutex_lock(&s->lock);
        closed = s->closed;
        pthread_mutex_unlock(&s->lock);
    }
    return NULL;
}

exo_status
exo_server_arrived(exo_server *s, uint32_t from, exo_server_message *message, exo_time at,
                   exo_err *err)
{
    struct parcel *p = exo_calloc(1, sizeof *p);
    exo_status st = EXO_OK;
    if (!p)
        return exo_fail(err, EXO_NOMEM, "no memory for a message of a server");
    *p = (struct parcel){.arrives = at, .member = is_home(s) ? from : s->rank, .message = *message};
    *message = (exo_server_message){0};
    pthread_mutex_lock(&s->lock);
    if (is_home(s))
        st = add_event_locked(s, p, err);
    else
        add_answer_locked(s, p);
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
    return st;
}

/* --- For the class ---------------------------------------------------------------------------- */

exo_status
exo_server_send(exo_server *s, uint32_t to, const exo_server_message *message, exo_err *err)
{
    struct parcel *p = NULL;
    if (to >= s->size)
        return exo_fail(err, EXO_INVAL, "server '%s': there is no member %u among %u",
                        s->class->name, to, s->size);
    exo_status st = make_parcel(&p, message, err);
    if (st != EXO_OK)
        return st;
    p->member = to;
    p->arrives = arrival(s, s->home, to, message, s->now);
    pthread_mutex_lock(&s->lock);
    if (s->apart && to != s->rank) {
        *s->outgoing_last = p;
        s->outgoing_last = &p->next;
    } else {
        add_answer_locked(s, p);
    }
    pthread_mutex_unlock(&s->lock);
    return EXO_OK;
}

exo_status
exo_server_wake(exo_server *s, exo_time at, exo_err *err)
{
    struct parcel *p = exo_calloc(1, sizeof *p);
    if (!p)
        return exo_fail(err, EXO_NOMEM, "no memory for a wake-up of the server '%s'",
                        s->class->name);
    p->wakes = true;
    p->arrives = at > s->now ? at : s->now;
    pthread_mutex_lock(&s->lock);
    exo_status st = add_event_locked(s, p, err);
    pthread_mutex_unlock(&s->lock);
    return st;
}

/* --- For members ------------------------------------------------------------------------------ */

/* Sends a message to the server in another process. */
static exo_status
post_far(exo_server *s, const exo_server_message *message, exo_err *err)
{
    pthread_mutex_lock(&s->lock);
    exo_status st = s->broken.code;
    if (st != EXO_OK && err)
        *err = s->broken;
    pthread_mutex_unlock(&s->lock);
    return st == EXO_OK ? s->comm->extras->carry(s->comm->state, s->home, message, err) : st;
}

exo_status
exo_server_post(exo_server *s, uint32_t from, const exo_server_message *message, exo_err *err)
{
    exo_sim_lane *lane = s->edge.sim ? exo_sim_current() : NULL;
    struct parcel *p = NULL;
    if (!is_home(s))
        return post_far(s, message, err);
    exo_status st = make_parcel(&p, message, err);
    if (st != EXO_OK)
        return st;
    if (lane)
        exo_sim_sync(lane); /* earlier messages on a link come first */
    exo_time now = exo_now(s->clock);
    pthread_mutex_lock(&s->lock);
    p->member = from;
    p->arrives = arrival(s, from, s->home, message, now);
    if (s->broken.code == EXO_OK) {
        st = add_event_locked(s, p, err);
        pthread_cond_broadcast(&s->changed);
    } else {
        st = s->broken.code;
        if (err)
            *err = s->broken;
        free_parcels(&p);
    }
    pthread_mutex_unlock(&s->lock);
    if (st == EXO_OK && !lane && !s->apart)
        perform(s, now);
    return st;
}

/* Takes the first message of an inbox if it has arrived. */
static bool
take_locked(struct inbox *inbox, exo_time now, exo_server_message *out)
{
    struct parcel *p = inbox->first;
    if (!p || p->arrives > now)
        return false;
    inbox->first = p->next;
    if (!inbox->first)
        inbox->last = &inbox->first;
    *out = p->message;
    out->arrived = p->arrives;
    exo_free(p);
    return true;
}

static void
break_by_timeout_locked(exo_server *s, uint32_t member, exo_time since, exo_time now)
{
    exo_err reason = {0};
    exo_fail(&reason, EXO_TIMEOUT,
             "deadline passed after %.1f s while rank %u waited for the server '%s'",
             (double)(now - since) * 1e-9, member, s->class->name);
    break_locked(s, &reason);
}

/* The time until which a member has nothing to do: its message arrives, or, on the real clock, an
 * event is due. */
static exo_time
idle_until_locked(const exo_server *s, uint32_t member, exo_time deadline)
{
    const struct inbox *inbox = &s->inboxes[member];
    exo_time until = deadline;
    if (inbox->first && inbox->first->arrives < until)
        until = inbox->first->arrives;
    if (!s->edge.sim && !s->apart && s->events && s->events->arrives < until)
        until = s->events->arrives;
    return until;
}

/* Waits once. */
static void
idle(exo_server *s, uint32_t member, exo_sim_lane *lane, exo_time deadline)
{
    struct inbox *inbox = &s->inboxes[member];
    pthread_mutex_lock(&s->lock);
    exo_time until = idle_until_locked(s, member, deadline);
    bool waits = s->broken.code == EXO_OK;
    inbox->lane = waits ? lane : NULL;
    if (!lane && waits && exo_now(s->clock) < until)
        exo_condition_wait_until(&s->changed, &s->lock, until);
    pthread_mutex_unlock(&s->lock);
    if (!lane || !waits)
        return;
    exo_sim_wait(lane, until);
    pthread_mutex_lock(&s->lock);
    inbox->lane = NULL;
    pthread_mutex_unlock(&s->lock);
}

static exo_status
await(exo_server *s, uint32_t member, exo_time deadline, bool waits, exo_server_message *out,
      bool *received, exo_err *err)
{
    exo_sim_lane *lane = s->edge.sim ? exo_sim_current() : NULL;
    exo_time since = exo_now(s->clock);
    for (;;) {
        exo_time now = exo_now(s->clock);
        if (!s->edge.sim && !s->apart)
            perform(s, now);
        pthread_mutex_lock(&s->lock);
        *received = take_locked(&s->inboxes[member], now, out);
        bool late = !*received && waits && now >= deadline && s->broken.code == EXO_OK;
        if (late)
            break_by_timeout_locked(s, member, since, now);
        exo_err reason = s->broken;
        exo_status st = *received ? EXO_OK : reason.code;
        if (st != EXO_OK && err)
            *err = reason;
        pthread_mutex_unlock(&s->lock);
        if (late) {
            fail_all(s, &reason);
            wake_members(s);
        }
        if (*received || st != EXO_OK || !waits)
            return st;
        idle(s, member, lane, deadline);
    }
}

exo_status
exo_server_take(exo_server *s, uint32_t member, exo_time deadline, bool waits,
                exo_server_message *out, bool *received, exo_time *waited, exo_err *err)
{
    exo_pace *pace = exo_pace_current();
    bool in_lane = s->edge.sim && exo_sim_current();
    exo_time before = exo_now(s->clock);
    exo_pace_wait_begin(pace, s->edge.name ? s->edge.name : s->class->name, EXO_SPAN_RECV_BLOCKED);
    if (in_lane)
        exo_sim_sync(exo_sim_current());
    else
        exo_compute_pause();
    exo_status st = await(s, member, deadline, waits, out, received, err);
    if (!in_lane)
        exo_compute_resume_after(st);
    *waited = exo_now(s->clock) - before;
    exo_pace_wait_end(pace);
    return st;
}

void
exo_server_break(exo_server *s, exo_status status, const char *text)
{
    exo_err reason = {0};
    exo_fail(&reason, status, "%s", text);
    pthread_mutex_lock(&s->lock);
    break_locked(s, &reason);
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
    wake_members(s);
}
