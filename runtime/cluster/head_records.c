/* What the head keeps of actors and jobs: in the state file, for a head that starts after this one,
 * and a job's report in memory. Read next: durable.c (the file). */
#include "cluster/head_impl.h"

#include <stdio.h>
#include <string.h>

#include <exogym/log.h>
#include <exogym/memory.h>

#include "cluster/durable.h"
#include "cluster/place.h"
#include "net/process.h"

#define MEND_AFTER EXO_SECOND /* time from a failure to the next attempt to write all entries */

/* A change was not written: the file lacks it until exo_head_mend_file. */
static void
file_failed(struct head *h, const exo_err *err)
{
    EXO_LOG(ERROR, HEAD, "%s", err->text);
    if (h->file_lacks)
        return;
    h->file_lacks = true;
    h->mend_at = exo_head_now(h) + MEND_AFTER;
    exo_head_want_tick(h, h->mend_at);
}

/* fits: whether the row's messages could be packed. */
static void
put_row(struct head *h, bool fits, const exo_durable_row *row)
{
    exo_err err = {0};
    exo_status st = fits ? exo_durable_put(h->durable, row, &err)
                         : exo_fail(&err, EXO_NOMEM, "the head has no memory for its file");
    if (st != EXO_OK)
        file_failed(h, &err);
}

void
exo_head_forget_row(struct head *h, const char *table, uint64_t key)
{
    exo_err err = {0};
    if (h->durable && exo_durable_remove(h->durable, table, key, &err) != EXO_OK)
        file_failed(h, &err);
}

void
exo_head_commit(struct head *h)
{
    exo_err err = {0};
    if (exo_durable_commit(h->durable, &err) != EXO_OK)
        file_failed(h, &err);
}

void
exo_head_mend_file(struct head *h)
{
    exo_err err = {0};
    if (!h->file_lacks)
        return;
    if (exo_head_now(h) < h->mend_at) {
        exo_head_want_tick(h, h->mend_at);
        return;
    }
    h->file_lacks = false;
    exo_durable_begin(h->durable);
    if (exo_durable_clear(h->durable, &err) != EXO_OK)
        file_failed(h, &err);
    for (const exo_entry *a = h->directory.actors; a && !h->file_lacks; a = a->by_key.next)
        exo_head_keep_actor(h, a);
    for (const exo_job_entry *j = h->directory.jobs; j && !h->file_lacks; j = j->hh.next)
        exo_head_keep_job(h, j);
    if (h->file_lacks) {
        exo_durable_cancel(h->durable); /* older rows are better than none */
        return;
    }
    exo_head_commit(h);
    if (!h->file_lacks)
        EXO_LOG(WARN, HEAD, "the head's file has all changes again");
}

void
exo_head_keep_actor(struct head *h, const exo_entry *a)
{
    Exo__Cluster__Actor info;
    exo_payload packed = {0}, spec = {0};
    if (!h->durable || (!a->spec->name[0] && !a->spec->detached))
        return; /* an anonymous actor of a job cannot be asked for, and ends with its job */
    exo_head_describe(a, &info);
    bool fits = exo_message_pack(&packed, &info.base) == EXO_OK &&
                exo_message_pack(&spec, &a->spec->base) == EXO_OK;
    const exo_durable_row row = {.table = "actors",
                                 .key = a->key,
                                 .name = a->spec->name,
                                 .state = exo_entry_state_text(a->state),
                                 .detail = a->cause ? a->cause : a->spec->class_name,
                                 .info = packed.data,
                                 .info_size = packed.size,
                                 .spec = spec.data,
                                 .spec_size = spec.size};
    put_row(h, fits, &row);
    exo_payload_release(&packed);
    exo_payload_release(&spec);
}

void
exo_head_keep_job(struct head *h, const exo_job_entry *j)
{
    Exo__Cluster__Job info;
    exo_payload packed = {0};
    if (!h->durable)
        return;
    exo_job_describe(j, &info);
    info.report = exo_pb_text(NULL); /* a restarted head gets the next report */
    bool fits = exo_message_pack(&packed, &info.base) == EXO_OK;
    const exo_durable_row row = {.table = "jobs",
                                 .key = j->key,
                                 .name = j->name,
                                 .state = j->state,
                                 .detail = j->cause,
                                 .info = packed.data,
                                 .info_size = packed.size};
    put_row(h, fits, &row);
    exo_payload_release(&packed);
}

exo_status
exo_head_take_job(struct head *h, exo_job_entry *job, uint64_t peer, exo_err *err)
{
    exo_status st = exo_account_take(&h->directory.accounts, peer, EXO_QUOTA_JOBS, 1, err);
    if (st != EXO_OK)
        return st;
    exo_head_give_job(h, job);
    job->holder = peer;
    job->held = true;
    return EXO_OK;
}

void
exo_head_give_job(struct head *h, exo_job_entry *job)
{
    if (job->held)
        exo_account_give(&h->directory.accounts, job->holder, EXO_QUOTA_JOBS, 1);
    job->held = false;
}

static void
forget_actor(void *context, uint64_t key)
{
    exo_head_forget_row(context, "actors", key);
}

static void
forget_job(void *context, uint64_t key)
{
    exo_head_forget_row(context, "jobs", key);
}

void
exo_head_trim(struct head *h, size_t at_once)
{
    size_t most =
        h->directory.trim_jobs_at ? h->directory.trim_jobs_at : 2 * (size_t)REMEMBERED_JOBS;
    if (h->directory.num_dead <= REMEMBERED && HASH_COUNT(h->directory.jobs) < most)
        return;
    exo_durable_begin(h->durable);
    exo_directory_trim(&h->directory, REMEMBERED, at_once, forget_actor, h);
    exo_directory_trim_jobs(&h->directory, REMEMBERED_JOBS, forget_job, h);
    exo_head_commit(h);
}

void
exo_head_set_state(struct head *h, exo_entry *a, exo_entry_state state)
{
    if (a->batch)
        a->batch->alive +=
            (size_t)(state == EXO_ENTRY_ALIVE) - (size_t)(a->state == EXO_ENTRY_ALIVE);
    a->state = state;
    a->since = exo_head_date();
    if (state != EXO_ENTRY_STARTING)
        exo_entry_give(&h->directory, a, EXO_QUOTA_SPAWNS);
    if (state == EXO_ENTRY_DEAD) {
        exo_entry_give(&h->directory, a, EXO_QUOTA_ACTORS);
        exo_entry_give(&h->directory, a, EXO_QUOTA_NAMES);
        exo_directory_bury(&h->directory, a);
        exo_entry_forget_start(a);
    }
    if (state == EXO_ENTRY_RESTARTING)
        exo_directory_stir(&h->directory, a);
    exo_head_keep_actor(h, a);
}

/* Whether the process in which the actor lived has visibly ended: a process of this host has a
 * socket as long as it lives. */
static bool
has_ended(const Exo__Cluster__Actor *was)
{
    char host[EXO_BOOT_ID], path[EXO_CLUSTER_PLACE_PATH];
    size_t length = strcspn(was->endpoint, " ");
    exo_boot_id(host);
    if (strcmp(was->host, host) != 0 || strncmp(was->endpoint, "ipc://", 6) != 0 ||
        length - 6 >= sizeof path)
        return false;
    snprintf(path, sizeof path, "%.*s", (int)(length - 6), was->endpoint + 6);
    return !exo_cluster_place_has_owner(path);
}

void
exo_head_recall_actor(void *context, const exo_durable_row *row)
{
    struct head *h = context;
    const exo_payload info = {.data = (void *)(uintptr_t)row->info, .size = row->info_size};
    const exo_payload packed = {.data = (void *)(uintptr_t)row->spec, .size = row->spec_size};
    Exo__Cluster__Actor *was = EXO_UNPACK(Exo__Cluster__Actor, exo__cluster__actor, &info);
    Exo__Cluster__Spawn *spec = EXO_UNPACK(Exo__Cluster__Spawn, exo__cluster__spawn, &packed);
    exo_entry *a = was && spec ? exo_directory_add(&h->directory, row->key, spec) : NULL;
    if (a) {
        a->incarnation = was->incarnation;
        a->since = was->since;
        exo_entry_set_last(a, was->node, was->key_text);
        if (was->cause[0])
            exo_entry_set_cause(a, was->cause);
        a->state = strcmp(was->state, "dead") == 0         ? EXO_ENTRY_DEAD
                   : strcmp(was->state, "restarting") == 0 ? EXO_ENTRY_RESTARTING
                                                           : EXO_ENTRY_UNKNOWN;
        if (a->state == EXO_ENTRY_DEAD)
            exo_directory_bury(&h->directory, a);
        if (a->state == EXO_ENTRY_RESTARTING)
            exo_directory_stir(&h->directory, a);
        a->ended = a->state == EXO_ENTRY_UNKNOWN && has_ended(was);
    }
    if (row->key >= h->next_key)
        h->next_key = row->key + 1;
    EXO_RELEASE(was);
    EXO_RELEASE(spec);
}

void
exo_head_forget_starts(struct head *h)
{
    exo_durable_begin(h->durable);
    for (exo_entry *a = h->directory.dead; a; a = a->next_dead)
        if (a->spec->args.len > 0) {
            exo_entry_forget_start(a);
            exo_head_keep_actor(h, a);
        }
    exo_head_commit(h);
}

void
exo_head_recall_job(void *context, const exo_durable_row *row)
{
    struct head *h = context;
    const exo_payload info = {.data = (void *)(uintptr_t)row->info, .size = row->info_size};
    Exo__Cluster__Job *was = EXO_UNPACK(Exo__Cluster__Job, exo__cluster__job, &info);
    exo_job_entry *job = was ? exo_directory_job(&h->directory, was->name, row->key) : NULL;
    if (job) {
        job->state = strcmp(was->state, "running") == 0 ? "running"
                     : strcmp(was->state, "done") == 0  ? "done"
                                                        : "lost";
        job->began = was->began;
        job->ended = was->ended;
        job->cause = was->cause[0] ? exo_strdup(was->cause) : NULL;
        job->owner = was->owner[0] ? exo_strdup(was->owner) : NULL;
    }
    if (row->key >= h->next_key)
        h->next_key = row->key + 1;
    EXO_RELEASE(was);
}

exo_status
exo_head_report(struct head *h, exo_call_context *call, const void *args, exo_payload *reply,
                exo_err *err)
{
    (void)reply;
    const Exo__Cluster__Report *m = args;
    exo_status st = exo_head_check_self(call, m->node, "report", err);
    exo_job_entry *job = exo_directory_job(&h->directory, m->job, 0);
    char *report = NULL;
    if (st == EXO_OK && strlen(m->json) > MAX_REPORT)
        st = exo_fail(err, EXO_INVAL, "a report has at most %d bytes, not %zu", MAX_REPORT,
                      strlen(m->json));
    else if (st == EXO_OK && (!job || job->ended || job->driver != m->node))
        st = exo_fail(err, EXO_NOT_FOUND, "there is no job '%s' of this driver that runs", m->job);
    else if (st == EXO_OK && !(report = exo_strdup(m->json)))
        st = exo_fail(err, EXO_NOMEM, "the head has no memory for a report");
    if (st == EXO_OK) {
        exo_free(job->report);
        job->report = report;
    }
    return st;
}
