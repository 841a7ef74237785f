/* Ends of actors: the head ends them, hears of their deaths, restarts them by their rules, and ends
 * the actors of jobs that end. Read next: head_work.c. */
#include "base/c_locale.h"
#include "base/printable.h"
#include "cluster/head_impl.h"

#include <stdio.h>
#include <string.h>

#include <exogym/log.h>
#include <exogym/memory.h>

/* the least wait before a second or later restart in a row, whatever the rule says */
#define MIN_BACKOFF (10 * EXO_MS)
#define MAX_BACKOFF (30 * EXO_SECOND)
/* a life of this length ends a row of short ones */
#define LONG_LIFE (10 * EXO_SECOND)

void
exo_head_end_at(struct head *h, uint64_t node, struct exo_head_kill *kill, const char *cause)
{
    exo_ref worker;
    exo_payload args = {0};
    exo_cut(kill->cause, sizeof kill->cause, cause);
    if (h->env.worker_of(h->env.context, node, &worker, NULL) == EXO_OK &&
        exo_payload_copy(&args, kill, sizeof *kill) == EXO_OK)
        exo_send(h->runtime, worker, "kill", args, INT64_MAX, NULL);
}

void
exo_head_kill_at(struct head *h, uint64_t node, uint64_t id, const char *cause, bool clean)
{
    struct exo_head_kill kill = {.id = id, .clean = clean};
    exo_head_end_at(h, node, &kill, cause);
}

void
exo_head_schedule(struct head *h, exo_entry *a, exo_time wait)
{
    a->restart_at = exo_head_now(h) + wait;
    exo_head_set_state(h, a, EXO_ENTRY_RESTARTING);
    exo_head_want_tick(h, a->restart_at);
}

/* The wait before the next life: first the rule's backoff, immediately by default. It doubles with
 * each further short life. */
static exo_time
backoff_of(const exo_entry *a)
{
    exo_time wait = a->spec->restart->backoff > 0 ? a->spec->restart->backoff : 0;
    for (uint64_t i = 1; i < a->num_quick && wait < MAX_BACKOFF; i++)
        wait = 2 * wait > MIN_BACKOFF ? 2 * wait : MIN_BACKOFF;
    return wait < MAX_BACKOFF ? wait : MAX_BACKOFF;
}

/* Adds to the cause of the last death that the rule gives no further life. */
static void
note_limit(exo_entry *a)
{
    const Exo__Cluster__RestartRule *rule = a->spec->restart;
    char text[EXO_ERR_TEXT], limit[160], within[40] = "";
    if (rule->within > 0)
        exo_c_snprintf(within, sizeof within, ", within %.3g s", (double)rule->within * 1e-9);
    snprintf(limit, sizeof limit,
             "; no restart is left (its rule allows %u%s): mend the cause, or raise the limit",
             rule->max, within);
    exo_format_cut(text, sizeof text - strlen(limit), "%s", a->cause ? a->cause : "it died");
    memcpy(text + strlen(text), limit, strlen(limit) + 1);
    exo_entry_set_cause(a, text);
}

/* Whether the rule gives the actor another life. *wait: the time until then. False: if that is for the
 * rule's limit, the actor's cause names it. */
static bool
may_restart(struct head *h, exo_entry *a, bool failure, exo_time *wait)
{
    const Exo__Cluster__RestartRule *rule = a->spec->restart;
    if (h->ends_at || !rule || rule->when == EXO_RESTART_NEVER ||
        (rule->when == EXO_RESTART_ON_FAILURE && !failure))
        return false;
    exo_time at = exo_head_now(h);
    a->num_quick = a->alive_since && at - a->alive_since >= LONG_LIFE ? 1 : a->num_quick + 1;
    if (rule->within > 0 && a->num_deaths > 0 && at - a->first_death > rule->within)
        a->num_deaths = 0;
    if (a->num_deaths == 0)
        a->first_death = at;
    a->num_deaths++;
    if (rule->max > 0 && a->num_deaths > rule->max) {
        note_limit(a);
        return false;
    }
    *wait = backoff_of(a);
    return true;
}

/* Restarts the other members of the group that its rule restarts with the failed one. */
static void
restart_group(struct head *h, const exo_entry *failed, exo_time wait)
{
    char cause[160], name[80];
    exo_entry *a = failed->group ? failed->group->members : NULL, *next;
    exo_format_cut(cause, sizeof cause, "restarted with '%s' of its group",
                   exo_cut(name, sizeof name, failed->spec->name));
    exo_durable_begin(h->durable);
    for (; a; a = next) { /* at most EXO_GROUP_MEMBERS */
        next = a->next_member;
        if (a == failed || a->state != EXO_ENTRY_ALIVE || a->given_up ||
            (failed->spec->group_rule == EXO_REST_FOR_ONE && a->key < failed->key))
            continue;
        /* the report of its death is to be ignored */
        exo_directory_unindex(&h->directory, a);
        exo_head_kill_at(h, a->node->id, a->id, cause, false);
        exo_entry_set_cause(a, cause);
        exo_entry_unplace(a);
        exo_head_schedule(h, a, wait);
    }
    exo_head_commit(h);
}

void
exo_head_entry_died(struct head *h, exo_entry *a, const char *cause, bool failure)
{
    exo_time wait = 0;
    exo_directory_unindex(&h->directory, a);
    exo_entry_set_cause(a, cause);
    exo_entry_set_waits(a, NULL);
    a->failed = failure;
    a->name_taken_since = 0;
    a->lost_with = a->node && !a->node->alive ? a->node->id : 0;
    exo_entry_unplace(a);
    bool started = !a->first_life || a->state != EXO_ENTRY_STARTING;
    bool again = (started || !a->batch) && may_restart(h, a, failure, &wait);
    if (a->batch && !again) {
        char reason[EXO_ERR_TEXT], name[80];
        exo_format_cut(
            reason, sizeof reason, "'%s' died while others of its group started: %s",
            exo_cut(name, sizeof name, a->spec->name[0] ? a->spec->name : a->spec->class_name),
            cause);
        exo_head_fail_batch(h, a->batch, EXO_PEER_LOST, started ? reason : cause);
        return;
    }
    if (again && failure && a->spec->group[0] && a->spec->group_rule != EXO_ONE_FOR_ONE)
        restart_group(h, a, wait);
    if (again) {
        exo_head_schedule(h, a, wait);
        return;
    }
    exo_head_set_state(h, a, EXO_ENTRY_DEAD);
    exo_head_fulfil(h, &a->spawn_wishes, EXO_PEER_LOST, a->cause, NULL);
    exo_head_fulfil(h, &a->find_wishes, EXO_NOT_FOUND, a->cause, NULL);
    if (!a->spec->name[0]) { /* without a name, nobody can ask for it */
        if (a->spec->detached)
            exo_head_forget_row(h, "actors", a->key);
        exo_directory_remove(&h->directory, a);
    }
}

void
exo_head_await(struct head *h, exo_entry *a)
{
    if (a->given_up) { /* its node ends it when it is back */
        exo_head_entry_died(h, a, "it was given up, and its node is not heard", false);
        return;
    }
    exo_directory_unindex(&h->directory, a);
    exo_entry_unplace(a);
    a->ended = false;
    exo_head_set_state(h, a, EXO_ENTRY_UNKNOWN);
}

exo_status
exo_head_died(struct head *h, exo_call_context *call, const void *args, exo_payload *reply,
              exo_err *err)
{
    (void)reply;
    const Exo__Cluster__Name *m = args;
    exo_status st = exo_head_check_self(call, m->node, "died", err);
    if (st != EXO_OK)
        return st;
    exo_entry *a = m->key ? exo_head_by_key(h, m->key) : exo_head_by_id(h, m->node, m->id);
    bool same =
        a && a->node && a->node->id == m->node && (!m->key || a->incarnation == m->incarnation);
    if (same && a->state == EXO_ENTRY_ALIVE && a->id == m->id) {
        exo_head_entry_died(h, a, m->cause, m->failure);
    } else if (same && a->state == EXO_ENTRY_STARTING && m->key) {
        /* its death was reported before its start */
        exo_entry_set_cause(a, m->cause);
        a->failed = m->failure;
        a->died_early = true;
    }
    return EXO_OK;
}

/* Ends an actor of a job that ended. w->node: the job's driver, which is gone, so actors in its
 * process are dead already; 0: none. */
static void
end_with_job(struct head *h, exo_entry *a, const struct work *w)
{
    char reason[200];
    if (a->spec->detached || a->state == EXO_ENTRY_DEAD)
        return;
    exo_format_cut(reason, sizeof reason, "its job ended: %s", w->cause);
    if (a->state == EXO_ENTRY_ALIVE && a->node && a->node->alive && a->node->id != w->node)
        exo_head_kill_at(h, a->node->id, a->id, reason, true);
    if (a->spec->restart)
        a->spec->restart->when = EXO_RESTART_NEVER;
    exo_head_entry_died(h, a, reason, false);
}

static bool
is_of_former_driver(struct head *h, const exo_entry *a, uint64_t driver)
{
    uint64_t former = a->spec->driver;
    const exo_cluster_node *node =
        former && former != driver ? exo_directory_node(&h->directory, former) : NULL;
    return former && former != driver && (!node || !node->alive);
}

/* Ends the actors of a job. driver: the job's driver if that is gone, else 0. but: if not 0, ends
 * only the actors of other drivers, if these are gone. */
static void
end_crew(struct head *h, const exo_crew *crew, uint64_t driver, uint64_t but, const char *cause)
{
    struct work *w = crew ? exo_head_new_work(crew->count, end_with_job) : NULL;
    if (crew && !w) { /* they end when another driver takes the job's name, or with their nodes */
        EXO_LOG(ERROR, HEAD, "job=%s its actors go on: no memory to end them", crew->job);
        return;
    }
    for (const exo_entry *a = crew ? crew->members : NULL; a; a = a->next_mate)
        if (!but || is_of_former_driver(h, a, but))
            exo_head_add_work(w, a);
    if (w) {
        w->node = driver;
        snprintf(w->cause, sizeof w->cause, "%s", cause);
    }
    exo_head_do_work(h, &w);
}

static void
finish_job(struct head *h, exo_job_entry *job, const char *state, const char *cause)
{
    char detail[200], why[150];
    exo_format_cut(detail, sizeof detail, "%s: %s", state, exo_cut(why, sizeof why, cause));
    exo_head_record_job(h, job, exo_directory_node(&h->directory, job->driver), detail);
    job->state = state;
    job->ended = exo_head_date();
    exo_free(job->cause);
    job->cause = exo_strdup(cause);
    exo_free(job->report);
    job->report = NULL;
    exo_head_give_job(h, job);
    exo_head_keep_job(h, job);
    end_crew(h, exo_directory_crew(&h->directory, job->name), job->driver, 0, cause);
}

uint64_t
exo_head_driver_of(struct head *h, const char *job)
{
    const exo_job_entry *j = exo_directory_job(&h->directory, job, 0);
    return j && !j->ended ? j->driver : 0;
}

void
exo_head_end_former(struct head *h, const exo_job_entry *job)
{
    end_crew(h, exo_directory_crew(&h->directory, job->name), 0, job->driver,
             "another driver has its name");
}

void
exo_head_end_job(struct head *h, const exo_cluster_node *driver, const char *state,
                 const char *cause)
{
    exo_job_entry *job = exo_directory_job(&h->directory, driver->job, 0);
    if (job && job->driver == driver->id)
        finish_job(h, job, state, cause);
}

void
exo_head_end_lost_jobs(struct head *h)
{
    static const char cause[] =
        "its driver did not come back to a head that was restarted or cut off";
    exo_job_entry *job, *next_job;
    HASH_ITER (hh, h->directory.jobs, job, next_job)
        if (strcmp(job->state, "running") == 0 && !job->driver)
            finish_job(h, job, "lost", cause);
    struct work *w = exo_head_new_work(HASH_CNT(by_key, h->directory.actors), end_with_job);
    for (const exo_crew *crew = w ? h->directory.crews : NULL; crew; crew = crew->hh.next) {
        job = exo_directory_job(&h->directory, crew->job, 0);
        if (!job || strcmp(job->state, "running") != 0)
            for (const exo_entry *a = crew->members; a; a = a->next_mate)
                exo_head_add_work(w, a);
    }
    if (w)
        snprintf(w->cause, sizeof w->cause, "%s", cause);
    exo_head_do_work(h, &w);
}

/* Gives up an actor that is not alive at the moment: it gets no further life. */
static void
give_up(struct head *h, exo_entry *a, const char *why)
{
    char cause[EXO_ERR_TEXT], was[EXO_ERR_TEXT], first[150];
    exo_entry_describe(a, was, sizeof was);
    exo_format_cut(cause, sizeof cause, "%s; before, %s", exo_cut(first, sizeof first, why), was);
    if (a->spec->restart)
        a->spec->restart->when = EXO_RESTART_NEVER;
    exo_head_entry_died(h, a, cause, false);
}

/* Has the actor's node end it for good, and answers when the actor is dead. Its place is free from then
 * on, not earlier: another one there would share it with this one. */
static exo_status
give_up_alive(struct head *h, exo_call_context *call, exo_entry *a, const Exo__Cluster__Name *m,
              exo_err *err)
{
    char name[80];
    if (a->node->is_driver)
        return exo_fail(err, EXO_INVAL,
                        "give_up: '%s' lives in the process of a driver, which ends it by itself",
                        exo_cut(name, sizeof name, m->name));
    exo_status st = exo_head_wish(h, call, &a->find_wishes, EXO_QUOTA_FINDS, err);
    if (st != EXO_OK)
        return st;
    exo_directory_stir(&h->directory, a);
    exo_head_want_tick(h, a->find_wishes->until = exo_head_answer_by(h, call));
    if (a->spec->restart)
        a->spec->restart->when = EXO_RESTART_NEVER;
    a->given_up = true;
    exo_head_kill_at(h, a->node->id, a->id, m->cause, true);
    return EXO_OK;
}

exo_status
exo_head_give_up(struct head *h, exo_call_context *call, const void *args, exo_payload *reply,
                 exo_err *err)
{
    const Exo__Cluster__Name *m = args;
    exo_entry *a = exo_head_by_name(h, m->space, m->name);
    exo_head_note_actor(h, m->space, m->name, m->cause);
    exo_status st = exo_head_check_space(h, call, m->space, a, "give_up", err);
    if (st == EXO_OK && (!a || a->state == EXO_ENTRY_DEAD))
        st = exo_head_fail_not_there(m, a, err);
    if (st == EXO_OK)
        st = exo_head_check_owner(call, a, "give_up", err);
    if (st == EXO_OK && m->failure)
        exo_entry_note_refusal(a, exo_head_now(h));
    if (st == EXO_OK && a->state == EXO_ENTRY_ALIVE && m->alive)
        return give_up_alive(h, call, a, m, err);
    if (st == EXO_OK && a->state != EXO_ENTRY_ALIVE)
        give_up(h, a, m->cause);
    return st == EXO_OK ? exo_head_reply_actor(a, reply, err) : st;
}
