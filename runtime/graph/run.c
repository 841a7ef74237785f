/* The runner of graphs: see run.h. The caller's thread owns struct run, except for its atomic
 * members. */
#include "graph/run.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <exogym/log.h>
#include <exogym/memory.h>

#include "actor/local_args.h"
#include "base/c_locale.h"
#include "base/config_edit.h"
#include "base/printable.h"
#include "conduct/conduct.h"
#include "graph/changing.h"
#include "graph/engine.h"
#include "graph/host.h"
#include "graph/lives.h"
#include "graph/report.h"
#include "graph/watch.h"

#define CLOSE_GRACE     (30 * EXO_SECOND)
#define CONNECT_TIMEOUT (60 * EXO_SECOND)
#define REPORT_TIMEOUT  (5 * EXO_SECOND)
#define LATE_REPORT     EXO_SECOND /* the same of a run that has waited for its end in vain */
#define HELD            (20 * EXO_SECOND) /* the longest time that a life waits for a change */
#define SPAWN_AGAIN     (5 * EXO_SECOND)  /* for each attempt at a next life */
#define END_AGAIN       (2 * EXO_SECOND)  /* for each request to end the life before it */

enum {
    SPANS = 200000, /* that each actor records for a timeline */
    LONG_NAME = 320 /* bytes of the name of an actor, with its worker */
};

/* The last report of an actor. */
struct said {
    exo_payload text; /* empty: none */
    bool final;       /* a report of the end */
};

struct run {
    const exo_graph_spec *spec;
    const exo_graph_run_opts *opts;
    exo_graph_result *result;
    exo_site *site;     /* a whole site; NULL: the actors are in workers */
    exo_cast cast;      /* the actors in the order of the spec; their request is "run" */
    struct said *said;  /* (count) */
    exo_place **places; /* (count) in this process; else NULL */
    exo_time origin;    /* of the clock of actors in workers, on the real clock */
    exo_time began;     /* start, on the real clock */
    exo_time grace;
    exo_time reported;     /* time of the last progress, on the real clock */
    exo_changing changing; /* the present graph, and the change to another one */
    exo_time held;         /* since when a life waits for the change, on the real clock; 0: none */
    exo_stall_watch watch;
    exo_lives lives;       /* of the actors in workers */
    exo_graph_files files; /* that the options of actors in workers name */
    bool told_of_stall;
    bool over, stopped; /* the run ends by `until`, or by the caller's `stop` */
    bool late;          /* actors that were told to end have not, in time */
};

static exo_time
real_now(void)
{
    return exo_now(exo_clock_real());
}

/* The time on the run's clock. */
static exo_time
run_now(const struct run *run)
{
    return run->site ? exo_now(run->site->clock) - run->site->origin : real_now() - run->began;
}

/* The spec of actor `i`, and its index in its name. */
static const exo_actor_spec *
actor_at(const struct run *run, uint32_t i, uint32_t *index)
{
    const exo_actor_spec *spec = run->spec->actors;
    for (*index = i; *index >= spec->count; spec++)
        *index -= spec->count;
    return spec;
}

/* --- Making ----------------------------------------------------------------------------------- */

static exo_status
make_here(struct run *run, uint32_t i, const exo_actor_spec *spec, uint32_t index, exo_err *err)
{
    char name[EXO_CAST_NAME];
    const exo_host_start start = {.site = run->site,
                                  .actor = (uint32_t)(spec - run->spec->actors),
                                  .index = index,
                                  .place = &run->places[i]};
    const exo_spawn_opts opts = {.name = name,
                                 .namespace_name = run->opts->space,
                                 .args = exo_local_args(&start, sizeof start)};
    exo_stall_name(run->spec, i, name, sizeof name);
    return exo_spawn(run->cast.runtime, &exo_graph_actor_class, &opts, &run->cast.actors[i], err);
}

static exo_status
make_there(struct run *run, uint32_t i, const exo_actor_spec *spec, uint32_t index,
           exo_time timeout, exo_err *err)
{
    exo_spawn_opts opts = {.resources = spec->resources,
                           .num_resources = spec->num_resources,
                           .plugins = run->spec->plugins,
                           .num_plugins = run->spec->num_plugins};
    char real[PATH_MAX];
    const char *folder = run->opts->folder ? realpath(run->opts->folder, real) : NULL;
    const exo_far_start start = {.space = run->opts->space,
                                 .source = run->spec->source,
                                 .text = run->opts->text,
                                 .folder = folder,
                                 .actor = (uint32_t)(spec - run->spec->actors),
                                 .index = index,
                                 .lives = run->lives.lives[i] > 0 ? run->lives.lives : NULL,
                                 .num_lives = run->cast.count,
                                 .ended = run->lives.ended,
                                 .num_ended = exo_lives_ended(&run->lives),
                                 .changes = run->changing.texts,
                                 .num_changes = run->changing.count,
                                 .files = run->files,
                                 .resumes = run->opts->resume || run->lives.lives[i] > 0,
                                 .run = run->opts->number,
                                 .began = run->origin};
    exo_status st = exo_host_start_text(&opts.args, &start, err);
    exo_time deadline = exo_deadline(exo_clock_real(), timeout);
    return st == EXO_OK ? exo_cast_spawn(&run->cast, i, "graph_actor", &opts, deadline, err) : st;
}

/* Makes an actor of a worker in its next life. */
static exo_status
make_again(void *context, uint32_t i, exo_err *err)
{
    uint32_t index = 0;
    const exo_actor_spec *spec = actor_at(context, i, &index);
    return make_there(context, i, spec, index, SPAWN_AGAIN, err);
}

static void
name_of(const void *context, uint32_t i, char out[EXO_CAST_NAME])
{
    const struct run *run = context;
    uint32_t index = 0;
    const exo_actor_spec *spec = actor_at(run, i, &index);
    exo_life_name(spec->name, index, run->lives.lives ? run->lives.lives[i] : 0, out);
}

/* Has the life of an actor of a worker end that the next one is to follow. */
static exo_status
end_there(void *context, uint32_t i, bool is_lost, exo_future **out, exo_err *err)
{
    const struct run *run = context;
    char name[EXO_CAST_NAME];
    name_of(run, i, name);
    return run->opts->end(run->opts->explain_context, run->opts->space, name,
                          is_lost ? "its driver has lost it, and begins its next life"
                                  : "its next life begins",
                          is_lost, exo_deadline(exo_clock_real(), END_AGAIN), out, err);
}

static void
tell_of_life(void *context, uint32_t i, const char *why)
{
    struct run *run = context;
    if (run->opts->failed)
        run->opts->failed(run->opts->context, why, run->lives.lives[i] + 1);
}

static const char *
forlorn(void *context)
{
    const exo_graph_run_opts *opts = ((struct run *)context)->opts;
    return opts->forlorn ? opts->forlorn(opts->workers) : NULL;
}

static exo_status
make_actors(struct run *run, exo_err *err)
{
    exo_status st = EXO_OK;
    for (uint32_t i = 0; st == EXO_OK && i < run->cast.count; i++) {
        char name[EXO_CAST_NAME];
        uint32_t index = 0;
        const exo_actor_spec *spec = actor_at(run, i, &index);
        st = run->opts->runtime ? make_there(run, i, spec, index, CONNECT_TIMEOUT, err)
                                : make_here(run, i, spec, index, err);
        exo_stall_name(run->spec, i, name, sizeof name);
        if (st == EXO_PEER_LOST && run->opts->runtime && exo_lives_take(&run->lives, i, st, err))
            st = EXO_OK; /* its worker has died meanwhile */
        else if (st != EXO_OK)
            exo_fail_in(err, st, "%s", name);
    }
    return st;
}

static exo_status
open_site(struct run *run, exo_err *err)
{
    const exo_runtime_opts runtime_opts = {0};
    exo_status st = exo_graph_check_engines(run->spec, run->opts->runtime != NULL, err);
    if (st != EXO_OK)
        return st;
    if (run->opts->runtime) {
        run->cast.runtime = run->opts->runtime;
        return run->spec->virtual_clock
                   ? exo_fail(err, EXO_UNSUPPORTED,
                              "the virtual clock is for actors in one process: without workers")
                   : exo_graph_files_list(&run->files, run->spec->doc, err);
    }
    st = exo_site_new(&run->site, run->spec, run->opts->space, run->opts->folder,
                      run->opts->tie_seed, err);
    if (st == EXO_OK) {
        run->changing.site = run->site;
        run->site->span_limit = run->opts->timeline ? SPANS : 0;
        run->site->resumes = run->opts->resume;
        run->site->run = run->opts->number;
    }
    return st == EXO_OK ? exo_runtime_open(&run->cast.runtime, &runtime_opts, err) : st;
}

/* --- Cancelling ------------------------------------------------------------------------------- */

static void
cancel_all(struct run *run)
{
    run->cast.told = true;
    for (uint32_t i = 0; i < run->cast.count; i++) {
        if (run->places[i]) /* without a message, for which memory may be lacking */
            exo_host_cancel(run->places[i]);
        else if (run->cast.actors[i].id && !run->cast.replies[i])
            exo_send(run->cast.runtime, run->cast.actors[i], "cancel", (exo_payload){0}, INT64_MAX,
                     NULL);
    }
    if (run->site && run->site->sim)
        exo_sim_expect_no_more(run->site->sim);
    exo_cast_be_patient(&run->cast, run->grace);
}

/* --- Reports ---------------------------------------------------------------------------------- */

/* Asks all actors that have given no good reply, all at once: for the whole report if they ended
 * with an error, else for a look. An actor that does not answer in time keeps its last report. */
static exo_status
ask_for_looks(struct run *run, exo_time timeout, exo_err *err)
{
    const exo_cast *cast = &run->cast;
    exo_cast_round round;
    exo_status st = exo_cast_round_open(&round, cast, timeout, err);
    for (uint32_t i = 0; st == EXO_OK && i < cast->count; i++)
        if (cast->actors[i].id && !exo_cast_reply(cast, i))
            exo_cast_round_ask(&round, i, cast->replies[i] ? "report" : "look", (exo_payload){0},
                               NULL);
    while (st == EXO_OK && exo_cast_round_next(&round)) {
        struct said *said = &run->said[round.actor];
        if (round.status != EXO_OK)
            continue;
        exo_payload_release(&said->text);
        *said = (struct said){.final = cast->replies[round.actor] != NULL};
        if (exo_payload_copy(&said->text, round.reply->data, round.reply->size) != EXO_OK)
            st = exo_fail(err, EXO_NOMEM, "no memory for the actors' figures");
    }
    exo_cast_round_close(&round);
    return st;
}

static void
report_of(void *context, uint32_t i, exo_graph_report *out)
{
    struct run *run = context;
    uint32_t index = 0;
    const exo_actor_spec *spec = actor_at(run, i, &index);
    const exo_payload *reply = exo_cast_reply(&run->cast, i);
    exo_stall_name(run->spec, i, out->actor, sizeof out->actor);
    out->host = run->spec->hosts[spec->hosts[index]].spec.name;
    out->at_the_end = reply || run->said[i].final;
    out->reply = reply || run->said[i].text.size == 0 ? reply : &run->said[i].text;
}

static void
show_progress(struct run *run)
{
    exo_time interval = run->opts->interval ? run->opts->interval : EXO_SECOND;
    if (!run->opts->progress || real_now() - run->reported < interval)
        return;
    exo_graph_result now = {0};
    ask_for_looks(run, EXO_SECOND, NULL);
    exo_graph_report_add_all(&now, run->cast.count, report_of, run, NULL);
    exo_slow_wait waits[EXO_GRAPH_WAITS];
    size_t num_waits = run->site && run->site->sim
                           ? 0
                           : exo_stall_slow(run->changing.graph, run->watch.records,
                                            run->cast.count, EXO_SECOND, waits, EXO_GRAPH_WAITS);
    const exo_graph_progress progress = {.time = run_now(run),
                                         .meters = now.meters,
                                         .ledger = &now.ledger,
                                         .waits = waits,
                                         .num_waits = num_waits};
    run->opts->progress(run->opts->context, &progress);
    run->reported = real_now();
    exo_graph_result_release(&now);
}

/* --- Changes ---------------------------------------------------------------------------------- */

/* Ends the run with an error that no actor has answered with. */
static void
fail_run(struct run *run, uint32_t culprit, exo_status st, const exo_err *err)
{
    if (run->cast.root.status != EXO_OK)
        return;
    run->cast.root =
        (exo_cast_root){.status = st, .err = *err, .actor = culprit, .weight = EXO_CAST_OWN};
    cancel_all(run);
}

static void
tell_of_change(struct run *run, exo_status st, const char *reason)
{
    if (run->opts->changed)
        run->opts->changed(run->opts->context, run_now(run), st, reason);
}

/* Goes on with a change. Meanwhile no actor begins another life, because it would have edges that the
 * others lack; one that is due does not wait longer than for an answer to `relink`. */
static void
go_on_with_change(struct run *run)
{
    exo_err err = {0};
    exo_status st = EXO_OK;
    uint32_t culprit = 0;
    if (exo_changing_go_on(&run->changing, &st, &culprit, &err)) {
        run->held = 0;
        if (!run->site)
            exo_lives_miss(&run->lives, run->changing.missed);
        tell_of_change(run, st, err.text);
        if (st != EXO_OK)
            fail_run(run, culprit, st, &err);
        return;
    }
    if (!exo_lives_pend(&run->lives))
        run->held = 0;
    else if (!run->held)
        run->held = real_now();
    else if (real_now() - run->held > HELD) {
        st = exo_fail(&err, EXO_TIMEOUT,
                      "no answer to a change of the graph within %d s while another actor is to "
                      "begin a life: its process is stopped, or too busy",
                      (int)(HELD / EXO_SECOND));
        fail_run(run, exo_changing_late(&run->changing), st, &err);
    }
}

/* Changes to another graph if the caller has one. */
static void
look_for_change(struct run *run)
{
    const exo_graph_spec *next = NULL;
    const char *text = NULL;
    exo_err err = {0};
    if (!run->opts->next || exo_changing_pends(&run->changing) ||
        !run->opts->next(run->opts->context, run->changing.graph, &next, &text))
        return;
    exo_status st = exo_changing_begin(&run->changing, next, text, &err);
    if (st != EXO_OK)
        tell_of_change(run, st, err.text);
}

/* --- Running ---------------------------------------------------------------------------------- */

/* Whether an actor that could not be connected is dead, or has lost another one, and gets another
 * life. */
static bool
begins_again(struct run *run, uint32_t i, exo_status status, exo_err *reason)
{
    return run->opts->runtime && exo_lives_is_loss(status) &&
           exo_lives_take(&run->lives, i, status, reason);
}

/* Takes the answers to `connect`, first those of actors that have died: the others of their units
 * may have failed for that. */
static exo_status
take_connected(struct run *run, exo_cast_round *round, bool dead, exo_err *err)
{
    char cause[EXO_ERR_TEXT];
    for (round->next = 0; exo_cast_round_next(round);) {
        uint32_t i = round->actor;
        if (round->status == EXO_OK || exo_lives_is_due(&run->lives, i))
            continue;
        if (dead &&
            exo_cause(run->cast.runtime, run->cast.actors[i], cause, sizeof cause) != EXO_OK)
            continue;
        if (!begins_again(run, i, round->status, &round->reason))
            return exo_cast_blame(&run->cast, i, round->status, round->reason.text, err);
    }
    return EXO_OK;
}

static exo_status
connect_all(struct run *run, exo_err *err)
{
    exo_cast_round round;
    exo_status st = exo_cast_round_open(&round, &run->cast, CONNECT_TIMEOUT, err);
    for (uint32_t i = 0; st == EXO_OK && i < run->cast.count; i++) {
        if (exo_lives_is_due(&run->lives, i))
            continue;
        st = exo_cast_round_ask(&round, i, "connect", (exo_payload){0}, err);
        if (st != EXO_OK && begins_again(run, i, st, err))
            st = EXO_OK;
    }
    if (st == EXO_OK)
        st = take_connected(run, &round, true, err);
    if (st == EXO_OK)
        st = take_connected(run, &round, false, err);
    exo_cast_round_close(&round);
    return st;
}

/* True: the graph's `until` has passed. */
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
    for (uint32_t i = 0; i < run->cast.count; i++)
        exo_host_cancel(run->places[i]);
}

/* The end of an actor's run, on the virtual clock, where it does not depend on threads; else 0. */
static exo_time
ended_at(const void *context, uint32_t i)
{
    const struct run *run = context;
    return run->site && run->site->sim ? run->places[i]->ended_at : 0;
}

/* Writes the name of an actor, with its worker. */
static void
name_with_worker(const struct run *run, uint32_t i, char out[LONG_NAME])
{
    char name[EXO_CAST_NAME], full[EXO_CAST_NAME], where[256] = "";
    exo_stall_name(run->spec, i, name, sizeof name);
    run->cast.name(run, i, full);
    if (run->opts->where)
        run->opts->where(run->opts->explain_context, run->opts->space, full, where, sizeof where);
    exo_format_cut(out, LONG_NAME, "%s%s%s%s", name, where[0] ? " (" : "", where,
                   where[0] ? ")" : "");
}

static bool
has_rule(const struct run *run, uint32_t i)
{
    uint32_t index = 0;
    return actor_at(run, i, &index)->restart.when != EXO_RESTART_NEVER;
}

/* Two actors live and cannot reach each other: what was on its way between them does not come any more.
 * One of them begins another life, which opens their channels again, or the run ends. */
static void
end_split(struct run *run)
{
    char mine[LONG_NAME], others[LONG_NAME];
    exo_err err = {0};
    const exo_split found = run->watch.split,
                    split = exo_split_for_rules(found, has_rule(run, found.actor),
                                                has_rule(run, found.peer));
    name_with_worker(run, split.actor, mine);
    name_with_worker(run, split.peer, others);
    exo_fail(&err, EXO_PEER_LOST,
             "%s and %s are alive but have lost their connection, with the items on it: check the "
             "network between their hosts%s",
             mine, others,
             has_rule(run, split.actor)
                 ? ""
                 : ", and give one of them a 'restart' rule to outlive such a cut");
    if (!exo_lives_end(&run->lives, split.actor, &err))
        fail_run(run, split.actor, EXO_PEER_LOST, &err);
}

/* Reports a stall and cancels the run: a stall never ends by itself. */
static void
look_for_stall(void *context)
{
    struct run *run = context;
    if (!run->cast.told && !exo_lives_pend(&run->lives))
        exo_stall_watch_look(&run->watch);
    if (run->watch.split.found && !run->cast.told)
        end_split(run);
    run->watch.split.found = false;
    if (!run->watch.found || run->told_of_stall)
        return;
    run->told_of_stall = true;
    if (run->opts->stalled)
        run->opts->stalled(run->opts->context, &run->watch.stall, run->watch.at);
    if (!run->cast.told)
        cancel_all(run);
}

/* Goes on with a change, or begins the lives that are due, and looks for a stall or a cut. */
static void
on_look(void *context)
{
    struct run *run = context;
    exo_err err = {0};
    uint32_t culprit = 0;
    if (!exo_changing_pends(&run->changing)) {
        exo_status st = exo_lives_tend(&run->lives, &culprit, &err);
        if (st != EXO_OK)
            fail_run(run, culprit, st, &err);
    } else if (!run->cast.told) {
        go_on_with_change(run);
    }
    look_for_stall(context);
}

static bool
forgives(void *context, uint32_t i, exo_status status, exo_err *err)
{
    struct run *run = context;
    return !run->site && exo_lives_take(&run->lives, i, status, err);
}

static uint32_t
owed(void *context)
{
    return exo_lives_owed(&((struct run *)context)->lives);
}

static void
on_idle(void *context)
{
    struct run *run = context;
    if (run->cast.told)
        return;
    run->stopped = run->opts->stop && *run->opts->stop;
    run->over = !run->stopped && is_over(run);
    if (run->stopped || run->over) {
        cancel_all(run);
        return;
    }
    look_for_change(run);
    show_progress(run);
}

/* Cancels the other actors at the first error. */
static void
on_answer(void *context, uint32_t i, exo_status status, const exo_err *err)
{
    struct run *run = context;
    (void)i;
    (void)status;
    (void)err;
    if (run->cast.root.status != EXO_OK && !run->cast.told)
        cancel_all(run);
}

/* Appends the actors that have not ended in time to the error that ended the run, which is cut for
 * them if need be. */
static exo_status
blame_late(const struct run *run, uint32_t left, exo_status st, exo_err *err)
{
    char name[LONG_NAME], others[48] = "", cause[EXO_ERR_TEXT];
    const char *has = left > 1 ? "have" : "has";
    double grace = (double)run->grace * 1e-9;
    name_with_worker(run, exo_cast_late(&run->cast), name);
    if (left > 1)
        snprintf(others, sizeof others, " and %u other%s", left - 1, left > 2 ? "s" : "");
    if (st == EXO_OK || (run->stopped && st == EXO_CANCELLED)) /* no more than the caller's stop */
        return exo_fail(err, EXO_TIMEOUT, "%s%s %s not ended within %.3g s", name, others, has,
                        grace);
    const int rest =
        exo_c_snprintf(NULL, 0, "; %s%s %s not ended since, for %.3g s", name, others, has, grace);
    exo_format_cut(cause, sizeof cause - (size_t)rest, "%s", err->text);
    return exo_fail(err, st, "%s; %s%s %s not ended since, for %.3g s", cause, name, others, has,
                    grace);
}

/* Names the actor that ended the run. A full buffer also has its place in the file, which the actor
 * may not know, because workers read another text of the graph. */
static exo_status
blame(const struct run *run, const exo_cast_root *root, exo_err *err)
{
    char name[512];
    exo_status st = exo_cast_blame(&run->cast, root->actor, root->status, root->err.text, err);
    const exo_edge_spec *end = run->spec->edges + run->spec->num_edges;
    for (const exo_edge_spec *e = run->spec->edges; err && st == EXO_FULL && e < end; e++) {
        const exo_config *place = exo_config_get(exo_config_get(e->node, "buffer"), "on_full");
        snprintf(name, sizeof name, "edge %s: ", e->name);
        if (place && e->on_full == EXO_FULL_FAIL && strstr(err->text, name))
            return exo_config_add_place(place, err);
    }
    return st;
}

/* The outcome of the run. */
static exo_status
conclude(const struct run *run, exo_err *err)
{
    const exo_cast_root *root = &run->cast.root;
    if (run->watch.found)
        return exo_stall_text(run->spec, &run->watch.stall, run->watch.at, err);
    bool told = root->status == EXO_CANCELLED ||
                (root->status == EXO_PEER_LOST && root->weight == EXO_CAST_HEARD);
    if (root->status != EXO_OK && !(told && (run->over || is_over(run))))
        return blame(run, root, err);
    return run->stopped ? exo_fail(err, EXO_CANCELLED, "stopped") : EXO_OK;
}

/* Waits until all actors have ended. */
static exo_status
await_all(struct run *run, exo_err *err)
{
    const exo_cast_hooks hooks = {.context = run,
                                  .look = on_look,
                                  .idle = on_idle,
                                  .answered = on_answer,
                                  .forgives = forgives,
                                  .owed = owed,
                                  .when = ended_at};
    uint32_t left = exo_cast_await(&run->cast, &hooks);
    run->late = left > 0;
    if (exo_changing_pends(&run->changing) && !run->cast.told)
        go_on_with_change(run); /* the actors may have made it before they ended */
    /* on the virtual clock, a stall may have cancelled all actors since the last look */
    look_for_stall(run);
    exo_status st = conclude(run, err);
    if (left > 0)
        return blame_late(run, left, st, err);
    if (st != EXO_OK)
        return st;
    /* an actor may return OK when it is cancelled */
    bool cut = run->cast.told || (run->site && run->site->sim && is_over(run));
    run->result->end = cut ? EXO_GRAPH_UNTIL : EXO_GRAPH_FINISHED;
    return EXO_OK;
}

/* Adds all actors' reports to the result, in the actors' order, however the run ended. An actor
 * that still is in its class's run reports no phases. Of a dead actor, the last report counts. */
static exo_status
read_reports(struct run *run, exo_err *err)
{
    exo_status st = ask_for_looks(run, run->late ? LATE_REPORT : REPORT_TIMEOUT, err);
    exo_status read = exo_graph_report_add_all(run->result, run->cast.count, report_of, run,
                                               st == EXO_OK ? err : NULL);
    return st == EXO_OK ? read : st;
}

static exo_status
open_watch(struct run *run, exo_err *err)
{
    run->watch = (exo_stall_watch){.spec = run->spec,
                                   .cast = &run->cast,
                                   .site = run->site,
                                   .places = run->places,
                                   .count = run->cast.count,
                                   .began = run->began,
                                   .next = run->began};
    exo_status st = exo_stall_watch_open(&run->watch, err);
    return st == EXO_OK ? exo_stall_watch_begin(&run->watch, err) : st;
}

static exo_status
run_actors(struct run *run, exo_err *err)
{
    exo_err unused = {0};
    uint32_t culprit = 0;
    exo_sim *sim = run->site ? run->site->sim : NULL;
    exo_status st = EXO_OK;
    if (sim)
        exo_sim_expect(sim, run->cast.count);
    if (sim && run->spec->until)
        st = exo_sim_at(sim, run->spec->until, on_until, run, err);
    run->began = run->reported = real_now();
    if (st == EXO_OK)
        st = open_watch(run, err);
    if (st == EXO_OK && !run->site)
        st = exo_lives_begin(&run->lives, &culprit, err);
    for (uint32_t i = 0; st == EXO_OK && run->site && i < run->cast.count; i++)
        st = exo_cast_ask(&run->cast, i, "run", (exo_payload){0}, err);
    if (st != EXO_OK)
        cancel_all(run);
    exo_status ended = await_all(run, st == EXO_OK ? err : &unused);
    st = st == EXO_OK ? ended : st;
    if (st != EXO_OK)
        run->result->end = st == EXO_CANCELLED && run->opts->stop && *run->opts->stop
                               ? EXO_GRAPH_STOPPED
                               : EXO_GRAPH_FAILED;
    run->result->seconds = (double)(real_now() - run->began) * 1e-9;
    exo_status read = read_reports(run, st == EXO_OK ? err : &unused);
    return st == EXO_OK ? read : st;
}

/* --- The end ---------------------------------------------------------------------------------- */

static exo_status
report(struct run *run, exo_err *err)
{
    exo_status st = EXO_OK;
    if (run->site && run->site->network)
        st = exo_graph_report_hosts(run->result, run->spec, run->site->network, err);
    if (st == EXO_OK && run->opts->timeline && run->site)
        st = exo_graph_report_timeline(run->opts->timeline, run->spec, run->places, run->cast.count,
                                       err);
    return st;
}

static exo_status
close_run(struct run *run, exo_err *err)
{
    exo_status st = exo_cast_end(&run->cast, CLOSE_GRACE, err);
    if (st != EXO_OK)
        return st; /* actors that still run use this memory: it leaks */
    exo_stall_watch_close(&run->watch);
    exo_site_free(&run->site);
    for (uint32_t i = 0; run->said && i < run->cast.count; i++)
        exo_payload_release(&run->said[i].text);
    exo_free(run->said);
    exo_free(run->places);
    exo_changing_close(&run->changing);
    exo_lives_close(&run->lives);
    exo_graph_files_release(&run->files);
    exo_cast_close(&run->cast);
    return st;
}

static exo_status
allocate(struct run *run, exo_err *err)
{
    exo_cast *cast = &run->cast;
    *cast = (exo_cast){.joined = run->opts->runtime != NULL,
                       .space = run->opts->space,
                       .context = run,
                       .name = name_of,
                       .names_itself = true,
                       .explain = run->opts->explain,
                       .explain_context = run->opts->explain_context,
                       .stop = run->opts->stop};
    for (size_t a = 0; a < run->spec->num_actors; a++)
        cast->count += run->spec->actors[a].count;
    run->said = exo_calloc(cast->count, sizeof *run->said);
    run->places = exo_calloc(cast->count, sizeof(exo_place *));
    run->result->parts = exo_calloc(cast->count, sizeof *run->result->parts);
    if (!run->said || !run->places || !run->result->parts)
        return exo_fail(err, EXO_NOMEM, "no memory for %u actors", cast->count);
    exo_status st = exo_cast_open(cast, err);
    run->changing = (exo_changing){.cast = cast, .graph = run->spec, .places = run->places};
    run->lives = (exo_lives){.spec = run->spec,
                             .cast = cast,
                             .context = run,
                             .make = make_again,
                             .end = run->opts->end ? end_there : NULL,
                             .forlorn = forlorn,
                             .tell = tell_of_life};
    return st == EXO_OK ? exo_lives_open(&run->lives, err) : st;
}

exo_status
exo_graph_run(const exo_graph_spec *spec, const exo_graph_run_opts *opts, exo_graph_result *result,
              exo_err *err)
{
    exo_err unused = {0}, close_err = {0};
    struct run run = {.spec = spec,
                      .opts = opts,
                      .result = result,
                      .grace = opts->grace ? opts->grace : CLOSE_GRACE};
    err = err ? err : &unused;
    *result = (exo_graph_result){0};
    run.origin = real_now();
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
        exo_status told = report(&run, st == EXO_OK ? err : &unused);
        st = st == EXO_OK ? told : st;
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
