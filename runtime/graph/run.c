/* The runner of graphs: see run.h. Everything in struct run belongs to the caller's thread. */
#include "graph/run.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <exogym/log.h>
#include <exogym/memory.h>

#include "actor/local_args.h"
#include "actor/many.h"
#include "graph/host.h"
#include "graph/report.h"
#include "graph/watch.h"
#include "report/timeline.h"

#define SLICE           (50 * EXO_MS)
#define CLOSE_GRACE     (30 * EXO_SECOND)
#define CONNECT_TIMEOUT (60 * EXO_SECOND)
#define REPORT_TIMEOUT  (5 * EXO_SECOND)

enum {
    SPANS = 200000 /* of each actor, for a timeline */
};

struct run {
    const exo_graph_spec *spec;
    const exo_graph_run_opts *opts;
    exo_graph_result *result;
    exo_site *site; /* in this process: of all actors */
    exo_runtime *runtime;
    uint32_t count;
    exo_ref *actors;      /* (count) in the order of the spec   */
    exo_future **futures; /* (count) of what is under way       */
    exo_future **reports; /* (count) of who has ended           */
    exo_future **looks;   /* (count) of who is asked what it does */
    exo_payload *last;    /* (count) what it said last          */
    exo_place **places;   /* (count) in this process            */
    bool *ended;          /* (count) */
    exo_time began;       /* on the real clock */
    exo_time reported;    /* likewise: the last progress */
    bool cancelled;
    const exo_graph_spec *graph; /* the latest */
    uint64_t changes;
    exo_err change_err; /* on the virtual clock: what came of the change */
    _Atomic bool change_done;
    exo_stall_watch watch;
    bool told_of_stall;
};

static exo_time
real_now(void)
{
    return exo_now(exo_clock_real());
}

/* On the run's clock. */
static exo_time
run_now(const struct run *run)
{
    return run->site ? exo_now(run->site->clock) - run->site->origin : real_now() - run->began;
}

/* The name of actor `i`, and which of the spec it is. */
static const exo_actor_spec *
actor_at(const struct run *run, uint32_t i, uint32_t *index, char name[128])
{
    uint32_t first = 0;
    for (size_t a = 0; a < run->spec->num_actors; a++) {
        const exo_actor_spec *spec = &run->spec->actors[a];
        if (i < first + spec->count) {
            *index = i - first;
            snprintf(name, 128, "%s_%u", spec->name, *index);
            return spec;
        }
        first += spec->count;
    }
    return NULL;
}

/* --- Making ---------------------------------------------------------------------------------------------------------------------- */

static exo_status
make_here(struct run *run, uint32_t i, const exo_actor_spec *spec, uint32_t index, const char *name, exo_err *err)
{
    const exo_host_start start = {
        .site = run->site, .actor = (uint32_t)(spec - run->spec->actors), .index = index, .place = &run->places[i]};
    const exo_spawn_opts opts = {
        .name = name, .namespace_name = run->opts->space, .args = exo_local_args(&start, sizeof start)};
    return exo_spawn(run->runtime, &exo_graph_actor_class, &opts, &run->actors[i], err);
}

static exo_status
make_there(struct run *run, uint32_t i, const exo_actor_spec *spec, uint32_t index, const char *name, exo_err *err)
{
    exo_spawn_opts opts = {.name = name,
                           .namespace_name = run->opts->space,
                           .get_if_exists =
                               true, /* nobody else has the name: the head was lost before it could say so */
                           .placement = EXO_PLACE_SPREAD,
                           .resources = spec->resources,
                           .num_resources = spec->num_resources,
                           .plugins = run->spec->plugins,
                           .num_plugins = run->spec->num_plugins};
    exo_status st = exo_host_start_text(&opts.args, run->opts->space, run->spec->source, run->opts->text,
                                        (uint32_t)(spec - run->spec->actors), index, err);
    if (st == EXO_OK)
        st = exo_spawn_class(run->runtime, "graph_actor", &opts, exo_deadline(exo_clock_real(), CONNECT_TIMEOUT),
                             &run->actors[i], err);
    return st;
}

static exo_status
make_actors(struct run *run, exo_err *err)
{
    exo_status st = EXO_OK;
    for (uint32_t i = 0; st == EXO_OK && i < run->count; i++) {
        char name[128];
        uint32_t index = 0;
        const exo_actor_spec *spec = actor_at(run, i, &index, name);
        st =
            run->opts->runtime ? make_there(run, i, spec, index, name, err) : make_here(run, i, spec, index, name, err);
        if (st != EXO_OK)
            exo_fail_in(err, st, "%s", name);
    }
    return st;
}

/* What a graph may say, and a run does not do yet, is said. */
static void
warn_of_restarts(const struct run *run)
{
    for (size_t a = 0; a < run->spec->num_actors; a++)
        if (run->spec->actors[a].restart.when != EXO_RESTART_NEVER)
            EXO_LOG(WARN, GRAPH, "actor=%s its restart rule does not count: a graph ends when an actor dies",
                    run->spec->actors[a].name);
}

static exo_status
open_site(struct run *run, exo_err *err)
{
    const exo_runtime_opts runtime_opts = {0};
    warn_of_restarts(run);
    if (run->opts->runtime) {
        run->runtime = run->opts->runtime;
        return run->spec->virtual_clock
                   ? exo_fail(err, EXO_UNSUPPORTED, "the virtual clock is for actors in one process: without workers")
                   : EXO_OK;
    }
    exo_status st = exo_site_new(&run->site, run->spec, run->opts->space, run->opts->folder, run->opts->tie_seed, err);
    if (st == EXO_OK)
        run->site->span_limit = run->opts->timeline ? SPANS : 0;
    return st == EXO_OK ? exo_runtime_open(&run->runtime, &runtime_opts, err) : st;
}

/* --- Telling them ------------------------------------------------------------------------------------------------------------------ */

static void
cancel_all(struct run *run)
{
    run->cancelled = true;
    for (uint32_t i = 0; i < run->count; i++) {
        if (run->places[i]) /* here; without a message, for which there may be no memory */
            exo_host_cancel(run->places[i]);
        else if (run->actors[i].id && !run->ended[i])
            exo_send(run->runtime, run->actors[i], "cancel", (exo_payload){0}, INT64_MAX, NULL);
    }
    if (run->site && run->site->sim)
        exo_sim_expect_no_more(run->site->sim);
}

/* The error of one actor, with why it died as far as that can be learnt. */
static exo_status
blame(const struct run *run, uint32_t i, exo_status st, const char *reason, exo_err *err)
{
    char name[128], why[EXO_ERR_TEXT] = "";
    uint32_t index = 0;
    actor_at(run, i, &index, name);
    if (st == EXO_PEER_LOST && run->opts->explain)
        run->opts->explain(run->opts->explain_context, run->opts->space, name, why, sizeof why);
    if (why[0])
        return exo_fail(err, st, "%s: %s", name, why);
    bool named = strncmp(reason, name, strlen(name)) == 0;
    return exo_fail(err, st, "%s%s%s", named ? "" : name, named ? "" : ": ", reason[0] ? reason : exo_status_text(st));
}

/* How much an error says of what went wrong: least, if it is what an actor heard of another; nothing, if it was told so. */
static int
weight(const struct run *run, uint32_t i, exo_status st)
{
    char cause[EXO_ERR_TEXT];
    if (st == EXO_OK || (st == EXO_CANCELLED && run->cancelled))
        return 0;
    if (st == EXO_PEER_LOST)
        return exo_cause(run->runtime, run->actors[i], cause, sizeof cause) == EXO_OK ? 3 : !run->cancelled;
    return st == EXO_TIMEOUT || st == EXO_CANCELLED ? 2 : 4;
}

/* --- Reports ------------------------------------------------------------------------------------------------------------------------- */

/* The reply to `run` of an actor that ended well; NULL: it did not, or has not yet. */
static const exo_payload *
reply_of(const struct run *run, uint32_t i)
{
    const exo_payload *reply = NULL;
    return run->reports[i] && exo_wait(run->reports[i], INT64_MAX, &reply, NULL) == EXO_OK ? reply : NULL;
}

/* Asks all at once who have not given a reply: those that have ended with an error for a whole report, the others for a look. */
static void
ask_for_looks(struct run *run, exo_time deadline)
{
    for (uint32_t i = 0; i < run->count; i++)
        if (run->actors[i].id && !reply_of(run, i) &&
            exo_call(run->runtime, run->actors[i], run->ended[i] ? "report" : "look", (exo_payload){0}, deadline,
                     &run->looks[i], NULL) != EXO_OK)
            run->looks[i] = NULL;
}

/* What actor `i` says, or said last; NULL: it never said anything. *final: nothing will change in it. */
static const exo_payload *
latest_of(struct run *run, uint32_t i, exo_time deadline, bool *final)
{
    const exo_payload *reply = reply_of(run, i);
    *final = reply != NULL;
    if (!reply && run->looks[i] && exo_wait(run->looks[i], deadline, &reply, NULL) == EXO_OK) {
        *final = run->ended[i];
        exo_payload_release(&run->last[i]);
        if (exo_payload_copy(&run->last[i], reply->data, reply->size) != EXO_OK)
            run->last[i] = (exo_payload){0};
        return reply;
    }
    return reply || run->last[i].size == 0 ? reply : &run->last[i];
}

static void
drop_looks(struct run *run)
{
    for (uint32_t i = 0; i < run->count; i++)
        exo_future_drop(&run->looks[i]);
}

static void
add_latest(const struct run *run, uint32_t i, const exo_payload *reply, exo_graph_result *now)
{
    char name[128];
    uint32_t index = 0;
    const exo_actor_spec *spec = actor_at(run, i, &index, name);
    exo_graph_report_add(now, name, run->spec->hosts[spec->hosts[index]].spec.name, reply, false, NULL);
}

/* One that does not answer in time has its last figures. */
static void
show_progress(struct run *run)
{
    exo_time interval = run->opts->interval ? run->opts->interval : EXO_SECOND;
    if (!run->opts->progress || real_now() - run->reported < interval)
        return;
    exo_graph_result now = {0};
    exo_time deadline = exo_deadline(exo_clock_real(), EXO_SECOND);
    ask_for_looks(run, deadline);
    for (uint32_t i = 0; i < run->count; i++) {
        bool final = false;
        const exo_payload *reply = latest_of(run, i, deadline, &final);
        if (reply)
            add_latest(run, i, reply, &now);
    }
    drop_looks(run);
    exo_slow_wait waits[EXO_GRAPH_WAITS];
    size_t num_waits = run->site && run->site->sim ? 0
                                                   : exo_stall_slow(run->graph, run->watch.records, run->count,
                                                                    EXO_SECOND, waits, EXO_GRAPH_WAITS);
    const exo_graph_progress progress = {
        .time = run_now(run), .meters = now.meters, .ledger = &now.ledger, .waits = waits, .num_waits = num_waits};
    run->opts->progress(run->opts->context, &progress);
    run->reported = real_now();
    exo_graph_result_release(&now);
}

/* --- Changes ---------------------------------------------------------------------------------------------------------------------- */

/* Asks those that have not ended, and waits for all of them. */
static exo_status
change_step(struct run *run, exo_change_step step, const char *text, exo_err *err)
{
    exo_status st = EXO_OK;
    exo_time deadline = exo_deadline(exo_clock_real(), CONNECT_TIMEOUT);
    exo_future **futures = exo_calloc(run->count, sizeof(exo_future *));
    if (!futures)
        return exo_fail(err, EXO_NOMEM, "no memory for a change");
    for (uint32_t i = 0; st == EXO_OK && i < run->count; i++) {
        exo_payload payload = {0};
        st = exo_host_change_text(&payload, run->changes, step, text, err);
        if (st == EXO_OK)
            st = exo_call(run->runtime, run->actors[i], "change", payload, deadline, &futures[i], err);
    }
    for (uint32_t i = 0; i < run->count; i++) {
        if (futures[i] && st == EXO_OK)
            st = exo_wait(futures[i], deadline, NULL, err);
        exo_future_drop(&futures[i]);
    }
    exo_free(futures);
    return st;
}

/* On the virtual clock a change is an event: between two steps of everybody. */
static void
on_change(void *context, exo_time at)
{
    struct run *run = context;
    exo_status st = EXO_OK;
    (void)at;
    for (uint32_t i = 0; st == EXO_OK && i < run->count; i++)
        st = exo_place_change_inputs(run->places[i], NULL, &run->change_err);
    for (uint32_t i = 0; st == EXO_OK && i < run->count; i++)
        st = exo_place_change_outputs(run->places[i], NULL, &run->change_err);
    run->change_done = true;
}

static exo_status
change_virtually(struct run *run, exo_err *err)
{
    run->change_err = (exo_err){0};
    run->change_done = false;
    exo_status st = exo_sim_at(run->site->sim, 0, on_change, run, err); /* now */
    exo_time deadline = exo_deadline(exo_clock_real(), CONNECT_TIMEOUT);
    while (st == EXO_OK && !run->change_done && real_now() < deadline)
        nanosleep(&(struct timespec){.tv_nsec = EXO_MS}, NULL);
    if (st == EXO_OK && !run->change_done)
        return exo_fail(err, EXO_TIMEOUT, "the change was not made in time");
    if (st == EXO_OK && run->change_err.code != EXO_OK)
        *err = run->change_err;
    return st == EXO_OK ? run->change_err.code : st;
}

/* Goes over to another graph, if there is one. */
static void
look_for_change(struct run *run)
{
    const exo_graph_spec *next = NULL;
    const char *text = NULL;
    exo_err err = {0};
    if (!run->opts->next || !run->opts->next(run->opts->context, run->graph, &next, &text))
        return;
    run->changes++;
    exo_status st = run->site ? exo_site_change(run->site, next, &err) : EXO_OK;
    if (st == EXO_OK && run->site && run->site->sim) {
        st = change_virtually(run, &err);
    } else if (st == EXO_OK) {
        st = change_step(run, EXO_CHANGE_INPUTS, text, &err);
        if (st == EXO_OK)
            st = change_step(run, EXO_CHANGE_OUTPUTS, text, &err);
    }
    if (st == EXO_OK)
        run->graph = next;
    if (run->opts->changed)
        run->opts->changed(run->opts->context, run_now(run), st, err.text);
}

/* --- Running ------------------------------------------------------------------------------------------------------------------------- */

static exo_status
ask_all(struct run *run, const char *method, exo_err *err)
{
    exo_status st = EXO_OK;
    for (uint32_t i = 0; st == EXO_OK && i < run->count; i++) {
        exo_err reason = {0};
        st = exo_call(run->runtime, run->actors[i], method, (exo_payload){0}, INT64_MAX, &run->futures[i], &reason);
        if (st != EXO_OK)
            blame(run, i, st, reason.text, err);
    }
    return st;
}

static exo_status
connect_all(struct run *run, exo_err *err)
{
    exo_status st = ask_all(run, "connect", err);
    exo_time deadline = exo_deadline(exo_clock_real(), CONNECT_TIMEOUT);
    for (uint32_t i = 0; i < run->count; i++) {
        exo_err reason = {0};
        if (st == EXO_OK && run->futures[i] && (st = exo_wait(run->futures[i], deadline, NULL, &reason)) != EXO_OK)
            blame(run, i, st, reason.text, err);
        exo_future_drop(&run->futures[i]);
    }
    return st;
}

/* Is the time over that the graph gives itself? */
static bool
is_over(const struct run *run)
{
    if (!run->spec->until)
        return false;
    return run_now(run) >= run->spec->until;
}

static void
on_until(void *context, exo_time at)
{
    struct run *run = context;
    (void)at;
    for (uint32_t i = 0; i < run->count; i++)
        exo_host_cancel(run->places[i]);
}

/* When an actor's run was over, where that does not depend on whose thread was faster; else 0. */
static exo_time
ended_at(const struct run *run, uint32_t i)
{
    return run->site && run->site->sim ? run->places[i]->ended_at : 0;
}

/* Of those that have ended with an error, the one that says most. */
struct root {
    exo_status status; /* OK: none has */
    exo_err err;
    uint32_t at;
    int weight;
};

/* Everybody was told to end: so long that is waited for. */
static exo_time
patience_of(const struct run *run)
{
    return exo_deadline(exo_clock_real(), run->opts->grace ? run->opts->grace : CLOSE_GRACE);
}

/* Nobody ends a stall but the run. */
static void
look_for_stall(struct run *run, exo_time *patience)
{
    if (!run->cancelled)
        exo_stall_watch_look(&run->watch);
    if (!run->watch.found || run->told_of_stall)
        return;
    run->told_of_stall = true;
    if (run->opts->stalled)
        run->opts->stalled(run->opts->context, &run->watch.stall, run->watch.at);
    if (run->cancelled)
        return;
    cancel_all(run);
    *patience = patience_of(run);
}

/* Actor `at` has ended. */
static void
take_end(struct run *run, uint32_t at, struct root *root)
{
    exo_err reason = {0};
    exo_status st = exo_wait(run->futures[at], INT64_MAX, NULL, &reason);
    run->ended[at] = true;
    run->reports[at] = run->futures[at];
    run->futures[at] = NULL;
    int says = weight(run, at, st);
    if (says > root->weight || (says && says == root->weight && ended_at(run, at) < ended_at(run, root->at)))
        *root = (struct root){.status = st, .err = reason, .at = at, .weight = says};
}

/* Adds to what ended the run that some have not ended with it. */
static exo_status
blame_late(const struct run *run, uint32_t left, exo_status st, exo_err *err)
{
    char name[128] = "", others[48] = "", cause[EXO_ERR_TEXT];
    const char *has = left > 1 ? "have" : "has";
    uint32_t index = 0, late = 0;
    exo_time grace = run->opts->grace ? run->opts->grace : CLOSE_GRACE;
    while (late + 1 < run->count && !run->futures[late])
        late++;
    actor_at(run, late, &index, name);
    if (left > 1)
        snprintf(others, sizeof others, " and %u other%s", left - 1, left > 2 ? "s" : "");
    if (st == EXO_OK)
        return exo_fail(err, EXO_TIMEOUT, "%s%s %s not ended within %.3g s", name, others, has, (double)grace * 1e-9);
    memcpy(cause, err->text, sizeof cause);
    return exo_fail(err, st, "%.*s; %s%s %s not ended since, for %.3g s", EXO_ERR_TEXT - 250, cause, name, others, has,
                    (double)grace * 1e-9);
}

/* What ended the run. */
static exo_status
conclude(struct run *run, const struct root *root, bool over, bool stopped, exo_err *err)
{
    if (run->watch.found)
        return exo_stall_text(run->spec, &run->watch.stall, run->watch.at, err);
    bool told = root->status == EXO_CANCELLED || (root->status == EXO_PEER_LOST && root->weight == 1);
    if (root->status != EXO_OK && !(told && (over || is_over(run))))
        return blame(run, root->at, root->status, root->err.text, err);
    return stopped ? exo_fail(err, EXO_CANCELLED, "stopped") : EXO_OK;
}

/* Until all that run have ended. The first error that is an actor's own, or its death, is the run's; the others are told to end. */
static exo_status
await_all(struct run *run, exo_err *err)
{
    struct root root = {0};
    uint32_t left = 0;
    exo_time patience = run->cancelled ? patience_of(run) : INT64_MAX;
    bool over = false, stopped = false;
    for (uint32_t i = 0; i < run->count; i++)
        left += run->futures[i] != NULL;
    while (left > 0) {
        size_t at = 0;
        look_for_stall(run, &patience);
        exo_status st =
            exo_wait_any_of_many(run->futures, run->count, exo_deadline(exo_clock_real(), SLICE), &at, NULL);
        if (st == EXO_TIMEOUT) {
            if (!run->cancelled) {
                stopped = run->opts->stop && *run->opts->stop;
                over = !stopped && is_over(run);
            }
            if ((stopped || over) && !run->cancelled) {
                cancel_all(run);
                patience = patience_of(run);
            }
            if (real_now() > patience)
                break;
            if (!run->cancelled) {
                look_for_change(run);
                show_progress(run);
            }
            continue;
        }
        take_end(run, (uint32_t)at, &root);
        left--;
        if (root.status != EXO_OK && !run->cancelled) {
            cancel_all(run);
            patience = patience_of(run);
        }
    }
    look_for_stall(run, &patience); /* on the virtual clock it may have ended all of them */
    exo_status st = conclude(run, &root, over, stopped, err);
    if (left > 0)
        return blame_late(run, left, st, err);
    if (st != EXO_OK)
        return st;
    bool cut = run->cancelled || (run->site && run->site->sim && is_over(run)); /* its actors may all have ended well */
    run->result->end = cut ? EXO_GRAPH_UNTIL : EXO_GRAPH_FINISHED;
    return EXO_OK;
}

/* The last report of actor `i`, for exo_graph_report_add_all. */
struct last_words {
    struct run *run;
    exo_time deadline;
};

static void
last_words_of(void *context, uint32_t i, exo_graph_report *out)
{
    const struct last_words *words = context;
    struct run *run = words->run;
    uint32_t index = 0;
    const exo_actor_spec *spec = actor_at(run, i, &index, out->actor);
    out->host = run->spec->hosts[spec->hosts[index]].spec.name;
    out->reply = latest_of(run, i, words->deadline, &out->at_the_end);
}

/* What every actor had done and sent, in the actors' order, however the run ended: an actor that is still inside its class gives its
 * figures without phases, and of a dead one there is what it said last. */
static exo_status
read_reports(struct run *run, exo_err *err)
{
    struct last_words words = {.run = run, .deadline = exo_deadline(exo_clock_real(), REPORT_TIMEOUT)};
    ask_for_looks(run, words.deadline);
    exo_status st = exo_graph_report_add_all(run->result, run->count, last_words_of, &words, err);
    drop_looks(run);
    return st;
}

static exo_status
open_watch(struct run *run, exo_err *err)
{
    run->watch = (exo_stall_watch){.spec = run->spec,
                                   .runtime = run->runtime,
                                   .site = run->site,
                                   .actors = run->actors,
                                   .places = run->places,
                                   .ended = run->ended,
                                   .count = run->count,
                                   .began = run->began,
                                   .next = run->began};
    exo_status st = exo_stall_watch_open(&run->watch, err);
    return st == EXO_OK ? exo_stall_watch_begin(&run->watch, err) : st;
}

static exo_status
run_actors(struct run *run, exo_err *err)
{
    exo_err unused = {0};
    exo_sim *sim = run->site ? run->site->sim : NULL;
    exo_status st = EXO_OK;
    if (sim)
        exo_sim_expect(sim, run->count);
    if (sim && run->spec->until)
        st = exo_sim_at(sim, run->spec->until, on_until, run, err);
    run->began = run->reported = real_now();
    if (st == EXO_OK)
        st = open_watch(run, err);
    if (st == EXO_OK)
        st = ask_all(run, "run", err);
    if (st != EXO_OK)
        cancel_all(run);
    exo_status ended = await_all(run, st == EXO_OK ? err : &unused);
    st = st == EXO_OK ? ended : st;
    if (st != EXO_OK)
        run->result->end =
            st == EXO_CANCELLED && run->opts->stop && *run->opts->stop ? EXO_GRAPH_STOPPED : EXO_GRAPH_FAILED;
    run->result->seconds = (double)(real_now() - run->began) * 1e-9;
    exo_status read = read_reports(run, st == EXO_OK ? err : &unused);
    return st == EXO_OK ? read : st;
}

/* --- The end ------------------------------------------------------------------------------------------------------------------------- */

static exo_status
read_hosts(struct run *run, exo_err *err)
{
    if (!run->site || !run->site->network)
        return EXO_OK;
    exo_graph_result *r = run->result;
    r->hosts = exo_calloc(run->spec->num_hosts, sizeof *r->hosts);
    if (!r->hosts)
        return exo_fail(err, EXO_NOMEM, "no memory for the hosts' figures");
    r->num_hosts = run->spec->num_hosts;
    for (uint32_t h = 0; h < run->spec->num_hosts; h++) {
        exo_link_stats up = {0}, down = {0};
        exo_links_host_stats(run->site->network, h, &up, &down);
        r->hosts[h] = (exo_graph_host){.name = run->spec->hosts[h].spec.name,
                                       .up_bytes = up.bytes,
                                       .down_bytes = down.bytes,
                                       .up_busy = up.busy,
                                       .down_busy = down.busy};
    }
    return EXO_OK;
}

static exo_status
write_timeline(const struct run *run, exo_err *err)
{
    if (!run->opts->timeline || !run->site)
        return EXO_OK;
    exo_timeline_track *tracks = exo_calloc(run->count, sizeof *tracks);
    if (!tracks)
        return exo_fail(err, EXO_NOMEM, "no memory for the timeline");
    for (uint32_t i = 0; i < run->count; i++) {
        const exo_place *p = run->places[i];
        tracks[i] = (exo_timeline_track){
            .host = run->spec->hosts[p->host].spec.name, .actor = p->actor.name, .track = &p->pace.track};
    }
    exo_status st = exo_timeline_write(run->opts->timeline, tracks, run->count, err);
    exo_free(tracks);
    return st;
}

static exo_status
close_run(struct run *run, exo_err *err)
{
    exo_status st = EXO_OK;
    for (uint32_t i = 0; run->futures && i < run->count; i++)
        exo_future_drop(&run->futures[i]);
    for (uint32_t i = 0; run->reports && i < run->count; i++)
        exo_future_drop(&run->reports[i]);
    if (run->opts->runtime) {
        for (uint32_t i = 0; run->actors && i < run->count; i++)
            if (run->actors[i].id)
                exo_stop(run->runtime, run->actors[i], false, NULL);
    } else if (run->runtime) {
        st = exo_runtime_close(&run->runtime, exo_deadline(exo_clock_real(), CLOSE_GRACE), err);
        if (st != EXO_OK)
            return st; /* what its actors still use is left alone */
    }
    exo_stall_watch_close(&run->watch);
    exo_site_free(&run->site);
    exo_free(run->actors);
    exo_free(run->futures);
    exo_free(run->reports);
    exo_free(run->looks);
    for (uint32_t i = 0; run->last && i < run->count; i++)
        exo_payload_release(&run->last[i]);
    exo_free(run->last);
    exo_free(run->places);
    exo_free(run->ended);
    return st;
}

static exo_status
allocate(struct run *run, exo_err *err)
{
    for (size_t a = 0; a < run->spec->num_actors; a++)
        run->count += run->spec->actors[a].count;
    run->actors = exo_calloc(run->count, sizeof *run->actors);
    run->futures = exo_calloc(run->count, sizeof(exo_future *));
    run->reports = exo_calloc(run->count, sizeof(exo_future *));
    run->looks = exo_calloc(run->count, sizeof(exo_future *));
    run->last = exo_calloc(run->count, sizeof *run->last);
    run->places = exo_calloc(run->count, sizeof(exo_place *));
    run->ended = exo_calloc(run->count, sizeof *run->ended);
    run->result->parts = exo_calloc(run->count, sizeof *run->result->parts);
    return run->actors && run->futures && run->reports && run->looks && run->last && run->places && run->ended &&
                   run->result->parts
               ? EXO_OK
               : exo_fail(err, EXO_NOMEM, "no memory for %u actors", run->count);
}

exo_status
exo_graph_run(const exo_graph_spec *spec, const exo_graph_run_opts *opts, exo_graph_result *result, exo_err *err)
{
    exo_err unused = {0}, close_err = {0};
    struct run run = {.spec = spec, .graph = spec, .opts = opts, .result = result};
    err = err ? err : &unused;
    *result = (exo_graph_result){0};
    exo_status st = allocate(&run, err);
    if (st == EXO_OK)
        st = open_site(&run, err);
    if (st == EXO_OK)
        st = make_actors(&run, err);
    if (st == EXO_OK && run.site)
        exo_site_begin(run.site);
    if (st == EXO_OK)
        st = connect_all(&run, err);
    if (st == EXO_OK) {
        st = run_actors(&run, err);
        exo_status hosts = read_hosts(&run, st == EXO_OK ? err : &unused);
        st = st == EXO_OK ? hosts : st;
        exo_status drawn = write_timeline(&run, st == EXO_OK ? err : &unused);
        st = st == EXO_OK ? drawn : st;
    }
    exo_status closed = close_run(&run, &close_err);
    return st == EXO_OK && closed != EXO_OK ? exo_fail(err, closed, "%s", close_err.text) : st;
}

void
exo_graph_result_release(exo_graph_result *result)
{
    exo_meters_free(&result->meters);
    exo_free(result->parts);
    exo_free(result->hosts);
    exo_ledger_release(&result->ledger);
    *result = (exo_graph_result){0};
}
