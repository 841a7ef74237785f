/* Shared by the files of the head. All members of struct head belong to its lane. Read head.h
 * first, then head.c. */
#ifndef EXO_CLUSTER_HEAD_IMPL_H
#define EXO_CLUSTER_HEAD_IMPL_H

#include "actor/hooks.h"
#include "cluster/directory.h"
#include "cluster/durable.h"
#include "cluster/head.h"
#include "cluster/messages.h"

enum {
    LOG_LINES = 4096,
    REMEMBERED = 10000,       /* number of dead actors that `why` can explain: the latest */
    REMEMBERED_JOBS = 1000,   /* number of ended jobs that are listed: the latest */
    EXO_HEAD_RESOURCES = 64,  /* most of a worker, and of an actor's request */
    MAX_REPORT = 64 << 10,    /* bytes of a driver's report of its job */
    MAX_LAST_LINES = 8 << 10, /* bytes of the log in an epitaph */
    /* bytes of log lines in a reply; the caller asks again for the rest */
    MOST_LINES_BYTES = 256 << 10,
    /* actors handled at a time; other calls are served before the next slice */
    SLICE = 64
};

/* A spawn that finds no place while workers may still come back to a restarted head. It is tried
 * again when a worker registers, and at the end of the grace. */
struct postponed {
    exo_future *caller, *again; /* both held */
    exo_time until;             /* then it is refused, for this reason */
    exo_err refusal;
    exo_payload args;
    exo_identity *who; /* held; NULL: this process */
    uint64_t peer;     /* whose account `count` spawns are charged to */
    size_t count;
    struct postponed *next;
};

struct head;
struct answers; /* workers' replies: head_answers.c */

/* Something to be done with many actors, slice by slice (head_work.c). */
struct work {
    struct work *next;
    /* Called with each of the actors that is still known. */
    void (*each)(struct head *h, exo_entry *a, const struct work *w);
    uint64_t node;
    bool failure;
    char cause[EXO_ERR_TEXT];
    size_t count, most, at;
    uint64_t keys[];
};

struct head {
    exo_head_env env;
    exo_runtime *runtime;
    exo_ref self;
    exo_directory directory;
    exo_durable *durable;
    /* a change was not written to the file, which is written as a whole at `mend_at` */
    bool file_lacks;
    exo_time mend_at;
    /* Keys of new actors and jobs. Others than those from first_key on come from earlier heads; they are
     * greater if the clock of the head's host was set back. */
    uint64_t next_key, first_key;
    /* end of the time in which nodes of an earlier head may come back; 0: it is over */
    exo_time grace_ends;
    bool is_cut_off; /* it hears no node: the grace begins when it hears one */
    bool has_past;   /* there were actors or jobs before the grace, whose workers may come back */
    struct postponed *postponed;
    struct work *works; /* work in progress; the pieces take turns, the first one is next */
    struct answers *answers;
    int64_t began;
    char *lines[LOG_LINES]; /* a ring: line n is at n % LOG_LINES */
    uint64_t num_lines;
    struct exo_wish *log_wishes; /* calls that wait for further lines */
    /* time at which the head ends even without its workers; 0: no end was asked for */
    exo_time ends_at;
    struct exo_wish *end_wishes;
    /* The subject of the current call, for the audit log (head_audit.c). A call without one is
     * recorded only if it is refused. */
    struct exo_head_note {
        char subject[2 * EXO_NAME], detail[512];
    } note;
    uint64_t salt; /* for the numbers by which accounts of keys are known */
};

/* Serves a call. `args` is the message that the method's row names, and is freed after the call; if
 * the row names none, it is the payload itself, an exo_payload. */
typedef exo_status exo_head_run(struct head *h, exo_call_context *call, const void *args,
                                exo_payload *reply, exo_err *err);

/* A method of the head. A call with a noted subject is recorded as `event`; EXO_AUDIT_EVENTS: only
 * refused calls are recorded. */
struct exo_head_method {
    const char *name;
    const ProtobufCMessageDescriptor *message; /* NULL: the method takes the payload */
    exo_head_run *run;
    exo_audit_event event;
};

/* --- Common to all ---------------------------------------------------------------------------- */

/* Now, on the runtime's clock. */
exo_time exo_head_now(const struct head *h);
/* The date, for people only; no decision depends on it. */
int64_t exo_head_date(void);
/* Has `tick` called at that time, unless an earlier call is due already. */
void exo_head_want_tick(struct head *h, exo_time at);
/* From now on, actors of nodes that have not come back have a while to do so. */
void exo_head_begin_grace(struct head *h);
/* Whether a node that is alive was heard lately. */
bool exo_head_hears_any(const struct head *h);
/* The time to answer a call that waits at the latest: a little before its caller stops waiting, so
 * that the reply arrives in time. INT64_MAX: its caller does not stop. */
exo_time exo_head_answer_by(const struct head *h, const exo_call_context *call);
/* Packs a reply. NOMEM. */
exo_status exo_head_reply(exo_payload *reply, const ProtobufCMessage *message, exo_err *err);
/* Replies with the description of an actor. */
exo_status exo_head_reply_actor(const exo_entry *a, exo_payload *reply, exo_err *err);
/* Defers the reply of a call. quota: the caller's quota that counts the call until its reply;
 * EXO_QUOTAS: none. */
exo_status exo_head_wish(struct head *h, exo_call_context *call, struct exo_wish **list,
                         exo_quota quota, exo_err *err);
/* Frees a wish that was answered, and gives its quota back. */
void exo_head_free_wish(struct head *h, struct exo_wish *wish);
/* The account of the calling process; 0: this process. */
uint64_t exo_head_peer(const exo_call_context *call);
/* The account that actors made by this call are charged to: the calling process's, or, if the
 * caller is a driver with a key, the key's, because actors may outlive processes. */
uint64_t exo_head_holder(const struct head *h, const exo_call_context *call);
/* Completes and frees all wishes of a list, with `message` as their reply; it may be NULL. */
void exo_head_fulfil(struct head *h, struct exo_wish **list, exo_status status, const char *reason,
                     const ProtobufCMessage *message);
/* Completes the wishes of a process that is gone. */
void exo_head_forget_wishes(struct head *h, struct exo_wish **list, uint64_t peer);
/* Ends the process if that was asked for, and all workers have left or their time is up. */
void exo_head_maybe_end(struct head *h);
/* *out borrows the entry's texts. */
void exo_head_describe(const exo_entry *a, Exo__Cluster__Actor *out);
/* Fails with NOT_FOUND. a: the last actor of that name; may be NULL. */
exo_status exo_head_fail_not_there(const Exo__Cluster__Name *m, const exo_entry *a, exo_err *err);

/* --- Rights of callers (head_identity.c); each check fails with DENIED ------------------------ */

/* Allows only the head's own calls of the method. */
exo_status exo_head_check_own(const exo_call_context *call, const char *method, exo_err *err);
/* The caller is the node that its message is about. */
exo_status exo_head_check_self(const exo_call_context *call, uint64_t node, const char *method,
                               exo_err *err);
/* The caller is that node, and was its earlier owner if the node is known. EXISTS: the job's name
 * belongs to another driver that lives, or that may still come back to this head. */
exo_status exo_head_check_register(const struct head *h, const exo_call_context *call,
                                   const Exo__Cluster__Register *m, exo_err *err);
/* A driver may use its own namespace, those of its running jobs ("JOB/..."), and elsewhere the
 * actor `a` if the driver made it; `a` may be NULL. Nobody makes actors in the cluster's own
 * namespace. */
exo_status exo_head_check_space(const struct head *h, const exo_call_context *call,
                                const char *space, const exo_entry *a, const char *method,
                                exo_err *err);
/* A driver may end only actors that it has made. */
exo_status exo_head_check_owner(const exo_call_context *call, const exo_entry *a,
                                const char *method, exo_err *err);
/* A driver sees the actors of its namespace, the actors that it made, and every worker. Of drivers,
 * jobs and holdings it sees those that belong to its key. */
bool exo_head_is_hidden(const exo_call_context *call, const exo_entry *a);
bool exo_head_hides_node(const exo_call_context *call, const exo_cluster_node *node);
bool exo_head_hides_job(const exo_call_context *call, const exo_job_entry *job);
/* node may be NULL: the process is no node. */
bool exo_head_hides_holding(const exo_call_context *call, uint64_t peer,
                            const exo_cluster_node *node);
/* A driver sees neither output nor running methods of others. */
bool exo_head_hides_logs(const exo_call_context *call);
/* Makes *out from the spec, with the caller as its owner, whatever the spec says. *out borrows the
 * spec's texts. */
void exo_head_own_spec(const exo_call_context *call, const Exo__Cluster__Spawn *spec,
                       Exo__Cluster__Spawn *out);
/* For an actor that an earlier head made, as its node describes it. Makes *out from the spec as far
 * as the node may be believed: a driver's actor belongs to that driver. Unless the caller is an
 * admin, the actor has no restart rule, because by a restart a node could have actors made at other
 * nodes. *out borrows the spec's texts and points to *rule. DENIED: the node may have no such
 * actor. */
exo_status exo_head_told_spec(const struct head *h, const exo_call_context *call,
                              const Exo__Cluster__Spawn *spec, Exo__Cluster__Spawn *out,
                              Exo__Cluster__RestartRule *rule, exo_err *err);
/* The caller was the watcher of that node's process, or has the node's own identity. A node that
 * the head does not know is not checked. */
exo_status exo_head_check_epitaph(const struct head *h, const exo_call_context *call, uint64_t id,
                                  exo_err *err);

/* --- The audit log's records of the head's calls (head_audit.c) ------------------------------- */

/* Notes the subject of the current call; detail may be NULL. */
void exo_head_note(struct head *h, const char *subject, const char *detail);
/* Notes an actor: "SPACE/NAME". */
void exo_head_note_actor(struct head *h, const char *space, const char *name, const char *detail);
/* Notes an actor, and all that are made with it. */
void exo_head_note_spawn(struct head *h, const Exo__Cluster__Spawn *spec);
/* Records the beginning or end of a job, with its driver (NULL: not known). */
void exo_head_record_job(struct head *h, const exo_job_entry *job, const exo_cluster_node *driver,
                         const char *detail);
/* Unpacks the arguments, serves the call, and records it if it comes from another process and has
 * noted a subject, or was refused. Errors: INVAL if the arguments are no such message. */
exo_status exo_head_serve(const struct exo_head_method *method, struct head *h,
                          exo_call_context *call, const exo_payload *args, exo_payload *reply,
                          exo_err *err);

/* --- The state file (head_records.c) ---------------------------------------------------------- */

/* Write an entry to the state file, if there is one and a next head needs the entry. If that fails,
 * the failure is logged, the head goes on, and the file gets all entries again a second later. */
void exo_head_keep_actor(struct head *h, const exo_entry *a);
void exo_head_keep_job(struct head *h, const exo_job_entry *j);
/* Removes an entry from the state file, if there is one. Failures as above. */
void exo_head_forget_row(struct head *h, const char *table, uint64_t key);
/* Ends what exo_durable_begin began. Failures as above. */
void exo_head_commit(struct head *h);
/* If the file lacks changes, writes all entries to it when that is due. */
void exo_head_mend_file(struct head *h);
/* Forgets the oldest dead actors, `at_once` at most, and the oldest ended jobs, if there are too
 * many, here and in the file. The caller neither iterates over the tables nor holds a dead
 * entry. */
void exo_head_trim(struct head *h, size_t at_once);
/* Changes an actor's state, with everything that follows from it: quotas, lists, the state file. */
void exo_head_set_state(struct head *h, exo_entry *a, exo_entry_state state);
/* For exo_durable_each: enter a row that an earlier head has written. */
void exo_head_recall_actor(void *context, const exo_durable_row *row);
void exo_head_recall_job(void *context, const exo_durable_row *row);
/* Forgets the arguments of the dead that an older head has left in the file. */
void exo_head_forget_starts(struct head *h);
/* Charges a running job to `peer`, and to no other account. */
exo_status exo_head_take_job(struct head *h, exo_job_entry *job, uint64_t peer, exo_err *err);
void exo_head_give_job(struct head *h, exo_job_entry *job);
/* The progress of a job, kept in memory until the job ends. */
exo_head_run exo_head_report;

/* --- Nodes (head_nodes.c) --------------------------------------------------------------------- */

exo_head_run exo_head_register;
exo_head_run exo_head_gone;
exo_head_run exo_head_epitaph;

/* --- Work in slices (head_work.c) ------------------------------------------------------------- */

/* Prepares work on at most `most` actors. NULL: no memory. */
struct work *exo_head_new_work(size_t most,
                               void (*each)(struct head *h, exo_entry *a, const struct work *w));
/* Adds an actor; there must be room. */
void exo_head_add_work(struct work *w, const exo_entry *a);
/* Does the first slice and queues the others. *w is moved; it may be NULL. Entries may be gone
 * afterwards. */
void exo_head_do_work(struct head *h, struct work **w);
void exo_head_free_works(struct head *h);
/* Does the next slice; the head calls it. */
exo_head_run exo_head_go_on;
/* Look up an actor by name, key or reference. If the actor's node has ended and the actor's death
 * has not been handled, it is handled first. */
exo_entry *exo_head_by_name(struct head *h, const char *space, const char *name);
exo_entry *exo_head_by_key(struct head *h, uint64_t key);
exo_entry *exo_head_by_id(struct head *h, uint64_t node, uint64_t id);
/* Ends the actors of a node that has ended. */
void exo_head_end_entries(struct head *h, exo_cluster_node *node, bool failure);
/* Corrects the cause of death of actors that died with the node, once the cause is known. */
void exo_head_explain(struct head *h, exo_cluster_node *node, const char *cause);

/* --- Workers' replies (head_answers.c) -------------------------------------------------------- */

/* The arguments of `started`. */
struct exo_outcome {
    uint64_t key, incarnation, id, node;
    int status;
    char reason[EXO_ERR_TEXT];
    /* names, each with its 0; none if they do not fit */
    char idempotent[512];
    size_t idempotent_size;
};

/* Opens the path by which workers' replies reach `h`, until it is closed. */
exo_status exo_head_open_answers(struct head *h, exo_err *err);
void exo_head_close_answers(struct head *h);
/* Asks the node's worker to make the actor; the reply arrives as a call of `started`. */
exo_status exo_head_ask_worker(struct head *h, exo_entry *a, exo_err *err);

/* --- Making actors (head_spawn.c) ------------------------------------------------------------- */

/* Begins a life of an actor that has a place. */
void exo_head_begin_life(struct head *h, exo_entry *a);
/* INVAL: too many resources, one without a name or named twice, or an amount that is negative, NaN, or
 * above 1e18. A NaN would spoil every sum. */
exo_status exo_head_check_resources(Exo__Cluster__Resource *const *list, size_t count,
                                    exo_err *err);
/* Adds an entry for a copy of `spec`, charged to `peer`. A dead actor of the same name is removed.
 * key 0: the entry gets a new key. EXISTS, FULL, INVAL, NOMEM. */
exo_status exo_head_new_entry(struct head *h, uint64_t key, uint64_t peer,
                              const Exo__Cluster__Spawn *spec, exo_entry **out, exo_err *err);
/* Replies to the batch's caller and frees the batch; its actors stay. `reply` may be NULL;
 * otherwise *reply is moved. */
void exo_head_end_batch(struct head *h, exo_spawn_batch *b, exo_status status, const char *reason,
                        exo_payload *reply);
/* One actor of the batch cannot live, so none does. */
void exo_head_fail_batch(struct head *h, exo_spawn_batch *b, exo_status status, const char *reason);
/* h may be NULL if nothing is charged any more. */
void exo_head_free_postponed(struct head *h, struct postponed *p);
/* Tries postponed spawns again: a node has registered, or none will come back any more. */
void exo_head_ask_again(struct head *h);
/* Refuses postponed spawns whose deadline is close. */
void exo_head_refuse_postponed(struct head *h);
exo_head_run exo_head_spawn;
/* The actor is alive: answers the calls that wait for it. */
void exo_head_announce(struct head *h, exo_entry *a);
exo_head_run exo_head_started;

/* --- Death and restart (head_lives.c) --------------------------------------------------------- */

/* Has a node end a life of an actor. A node that is away is told when it registers again. */
void exo_head_end_at(struct head *h, uint64_t node, struct exo_head_kill *kill, const char *cause);
/* The same for the life with the reference `id`. clean: stops it instead of killing it. */
void exo_head_kill_at(struct head *h, uint64_t node, uint64_t id, const char *cause, bool clean);
/* The actor waits for its next life, which begins after `wait`. */
void exo_head_schedule(struct head *h, exo_entry *a, exo_time wait);
/* The actor's node is unheard, and may come back with it, as after a restart of the head. */
void exo_head_await(struct head *h, exo_entry *a);
/* A life has ended, or could not begin. The restart rule gives the actor another one, or the actor
 * is dead. The entry may be gone afterwards. */
void exo_head_entry_died(struct head *h, exo_entry *a, const char *cause, bool failure);
exo_head_run exo_head_died;
/* The process that drives this job now; 0: none, or not known. */
uint64_t exo_head_driver_of(struct head *h, const char *job);
/* Another driver took a job's name: ends the actors of the former job, unless their driver is
 * alive. */
void exo_head_end_former(struct head *h, const exo_job_entry *job);
/* Ends the job of a driver that has gone, with the actors that it made and did not detach. */
void exo_head_end_job(struct head *h, const exo_cluster_node *driver, const char *state,
                      const char *cause);
/* Ends jobs whose drivers went while there was no head, and the actors of jobs that the head does
 * not know. */
void exo_head_end_lost_jobs(struct head *h);
exo_head_run exo_head_give_up;

/* --- Information (head_look.c) ---------------------------------------------------------------- */

exo_head_run exo_head_why;
exo_head_run exo_head_list;
/* A node reports the holdings of other processes at it. */
exo_head_run exo_head_holds;
exo_head_run exo_head_log;
exo_head_run exo_head_logs;

#endif
