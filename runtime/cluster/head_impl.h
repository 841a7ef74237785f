/* What the files of the head share. Everything in struct head belongs to its lane. */
#ifndef EXO_CLUSTER_HEAD_IMPL_H
#define EXO_CLUSTER_HEAD_IMPL_H

#include "actor/hooks.h"
#include "cluster/directory.h"
#include "cluster/durable.h"
#include "cluster/head.h"
#include "cluster/messages.h"

enum {
    LOG_LINES = 4096,
    REMEMBERED = 10000,       /* dead actors that `why` can tell of: the latest   */
    REMEMBERED_JOBS = 1000,   /* jobs that have ended and are listed: the latest  */
    MAX_REPORT = 64 << 10,    /* bytes of what a driver says of its job */
    MAX_LAST_LINES = 8 << 10, /* bytes of a log that an epitaph has */
    /* of a reply with lines of the log: the caller asks again for the next ones */
    MOST_LINES_BYTES = 256 << 10,
    SLICE = 64 /* actors that are dealt with at once: others are served before the next ones */
};

/* Spawning that finds no place while workers may still come back to a head that was restarted: then
 * it is asked for again. */
struct postponed {
    exo_future *caller, *again; /* held */
    exo_payload args;
    exo_identity *who; /* held; NULL: this process */
    uint64_t peer;     /* for which `count` spawns are counted */
    size_t count;
    struct postponed *next;
};

struct head;
struct answers; /* of workers: head_answers.c */

/* What is to be done with many actors, slice by slice (head_work.c). */
struct work {
    struct work *next;
    /* With each of them that is still known. */
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
    uint64_t next_key, first_key; /* smaller ones are those of earlier heads */
    exo_time grace_ends;          /* 0: it is over */
    bool has_past;                /* there was a head before it, whose workers may come back */
    struct postponed *postponed;
    struct work *works; /* the first one is being worked at */
    struct answers *answers;
    int64_t began;
    char *lines[LOG_LINES]; /* a ring: line n is at n % LOG_LINES */
    uint64_t num_lines;
    struct exo_wish *log_wishes; /* those that wait for more */
    exo_time ends_at;            /* 0: it is not told to end */
    struct exo_wish *end_wishes;
    struct exo_head_note {
        char subject[2 * EXO_NAME], detail[512];
        /* of the call that is served, for the audit log (head_audit.c); "": nothing of it is told
     * unless it is refused */
    } note;
    uint64_t salt; /* of the numbers of keys in accounts */
};

/* --- Common to all ---------------------------------------------------------------------------- */

exo_time exo_head_now(const struct head *h);
/* For people only: nothing is decided by it. */
int64_t exo_head_date(void);
void exo_head_want_tick(struct head *h, exo_time at);
exo_status exo_head_reply(exo_payload *reply, const ProtobufCMessage *message, exo_err *err);
/* Has the call answered later. quota: in which it is counted until then; EXO_QUOTAS: in none. */
exo_status exo_head_wish(struct head *h, exo_call_context *call, struct exo_wish **list,
                         exo_quota quota, exo_err *err);
/* One that was answered. */
void exo_head_free_wish(struct head *h, struct exo_wish *wish);
/* The process that called, for its account; 0: this one. */
uint64_t exo_head_peer(const exo_call_context *call);
/* For whom the actors that a call makes are counted: its process, or, of a driver with a key, its
 * key, since actors may outlive processes. */
uint64_t exo_head_holder(const struct head *h, const exo_call_context *call);
void exo_head_fulfil(struct head *h, struct exo_wish **list, exo_status status, const char *reason,
                     const ProtobufCMessage *message);
/* Answers what a process that is gone waits for. */
void exo_head_forget_wishes(struct head *h, struct exo_wish **list, uint64_t peer);
/* Told to end, and all workers have left, or had the time to. */
void exo_head_maybe_end(struct head *h);
void exo_head_describe(const exo_entry *a, Exo__Cluster__Actor *out);
/* `a`: the last one of that name; may be NULL. */
exo_status exo_head_fail_not_there(const Exo__Cluster__Name *m, const exo_entry *a, exo_err *err);

/* --- Who may say what of whom (head_identity.c); each gives DENIED ---------------------------- */

/* The method is the head's own: nobody else calls it. */
exo_status exo_head_check_own(const exo_call_context *call, const char *method, exo_err *err);
/* The caller is the node that it speaks of. */
exo_status exo_head_check_self(const exo_call_context *call, uint64_t node, const char *method,
                               exo_err *err);
/* The caller is that node, and was it before; it takes no job from a driver that lives (EXISTS). */
exo_status exo_head_check_register(const struct head *h, const exo_call_context *call,
                                   const Exo__Cluster__Register *m, exo_err *err);
/* A driver uses its own namespace, those of its running jobs ("JOB/..."), and elsewhere what it
 * made: `a`, which may be NULL. Nobody makes actors in that of the cluster. */
exo_status exo_head_check_space(const struct head *h, const exo_call_context *call,
                                const char *space, const exo_entry *a, const char *method,
                                exo_err *err);
/* A driver ends only what it has made. */
exo_status exo_head_check_owner(const exo_call_context *call, const exo_entry *a,
                                const char *method, exo_err *err);
/* A driver sees the actors of its namespace and those that it made, every worker, and of drivers,
 * jobs and what processes hold what belongs to its key. */
bool exo_head_is_hidden(const exo_call_context *call, const exo_entry *a);
bool exo_head_hides_node(const exo_call_context *call, const exo_cluster_node *node);
bool exo_head_hides_job(const exo_call_context *call, const exo_job_entry *job);
/* `node` may be NULL: the process is none. */
bool exo_head_hides_holding(const exo_call_context *call, uint64_t peer,
                            const exo_cluster_node *node);
/* It sees nothing of what others print and run. */
bool exo_head_hides_logs(const exo_call_context *call);
/* *out: the spec (whose texts it borrows) as the caller's, whatever it says of itself. */
void exo_head_own_spec(const exo_call_context *call, const Exo__Cluster__Spawn *spec,
                       Exo__Cluster__Spawn *out);
/* *out: the spec (whose texts it borrows, and which points to *rule) of an actor that a node says
 * it has of an earlier head, as far as the node is believed: a driver's is the driver's own. Whose
 * key is no admin's has nothing made elsewhere by it: the actor has no other life. DENIED. */
exo_status exo_head_told_spec(const struct head *h, const exo_call_context *call,
                              const Exo__Cluster__Spawn *spec, Exo__Cluster__Spawn *out,
                              Exo__Cluster__RestartRule *rule, exo_err *err);
/* The caller watched that node's process. */
exo_status exo_head_check_epitaph(const struct head *h, const exo_call_context *call, uint64_t id,
                                  exo_err *err);

/* --- What is recorded of who asked for what (head_audit.c) ------------------------------------ */

/* What the call that is served is about; `detail` may be NULL. */
void exo_head_note(struct head *h, const char *subject, const char *detail);
/* An actor: "SPACE/NAME". */
void exo_head_note_actor(struct head *h, const char *space, const char *name, const char *detail);
/* An actor, and all that are made with it. */
void exo_head_note_spawn(struct head *h, const Exo__Cluster__Spawn *spec);
/* A job begins or ends, by its driver (NULL: not known). */
void exo_head_record_job(struct head *h, const exo_job_entry *job, const exo_cluster_node *driver,
                         const char *detail);
/* Serves a call by `run`, and records it as `event` if it was noted, or refused. */
exo_status exo_head_serve(exo_call_context *call, struct head *h, exo_audit_event event,
                          const exo_method *inner, const exo_payload *args, exo_payload *reply,
                          exo_err *err);

/* --- What is kept (head_records.c) ------------------------------------------------------------ */

void exo_head_keep_actor(struct head *h, const exo_entry *a);
void exo_head_keep_job(struct head *h, const exo_job_entry *j);
/* Forgets the oldest of the dead actors, `at_once` at most, and of the jobs that ended, here and in
 * the file, when there are many. The caller goes through neither table and has no dead entry. */
void exo_head_trim(struct head *h, size_t at_once);
void exo_head_set_state(struct head *h, exo_entry *a, exo_entry_state state);
void exo_head_recall_actor(void *context, const exo_durable_row *row);
void exo_head_recall_job(void *context, const exo_durable_row *row);
/* The job is counted for `peer` while it runs, and for nobody else. */
exo_status exo_head_take_job(struct head *h, exo_job_entry *job, uint64_t peer, exo_err *err);
void exo_head_give_job(struct head *h, exo_job_entry *job);
/* How a job goes, until it has ended: in memory only. */
exo_status exo_head_report(exo_call_context *call, void *self, const exo_payload *args,
                           exo_payload *reply, exo_err *err);

/* --- Nodes (head_nodes.c) --------------------------------------------------------------------- */

exo_status exo_head_register(exo_call_context *call, void *self, const exo_payload *args,
                             exo_payload *reply, exo_err *err);
exo_status exo_head_gone(exo_call_context *call, void *self, const exo_payload *args,
                         exo_payload *reply, exo_err *err);
exo_status exo_head_epitaph(exo_call_context *call, void *self, const exo_payload *args,
                            exo_payload *reply, exo_err *err);

/* --- Work in slices (head_work.c) ------------------------------------------------------------- */

/* Something to be done with `most` actors at most. NULL: no memory. */
struct work *exo_head_new_work(size_t most,
                               void (*each)(struct head *h, exo_entry *a, const struct work *w));
/* There must be room. */
void exo_head_add_work(struct work *w, const exo_entry *a);
/* Does the first slice, and sees to the others; *w is moved, and may be NULL. Entries may be gone
 * afterwards. */
void exo_head_do_work(struct head *h, struct work **w);
void exo_head_free_works(struct head *h);
/* The next slice: of the head's own calls. */
exo_status exo_head_go_on(exo_call_context *call, void *self, const exo_payload *args,
                          exo_payload *reply, exo_err *err);
/* The actor of that name, key or reference. Before one of a node that ended just now is given, its
 * death is dealt with. */
exo_entry *exo_head_by_name(struct head *h, const char *space, const char *name);
exo_entry *exo_head_by_key(struct head *h, uint64_t key);
exo_entry *exo_head_by_id(struct head *h, uint64_t node, uint64_t id);
/* What actors of a node that ended have died of. */
void exo_head_tell_loss(const exo_cluster_node *node, char *out, size_t size);
/* The node has ended, and its actors with it. */
void exo_head_end_entries(struct head *h, exo_cluster_node *node, bool failure);
/* Why it ended, for actors whose death was dealt with before. */
void exo_head_explain(struct head *h, exo_cluster_node *node, const char *cause);

/* --- What workers answer (head_answers.c) ----------------------------------------------------- */

/* The arguments of `started`. */
struct exo_outcome {
    uint64_t key, incarnation, id, node;
    int status;
    char reason[EXO_ERR_TEXT];
    char idempotent[512]; /* names, each with a 0; those that have room */
    size_t idempotent_size;
};

/* What workers answer goes to `h` until it is closed. */
exo_status exo_head_open_answers(struct head *h, exo_err *err);
void exo_head_close_answers(struct head *h);
/* Asks the node's worker to make the actor; its answer becomes a call of `started`. */
exo_status exo_head_ask_worker(struct head *h, exo_entry *a, exo_err *err);

/* --- Making actors (head_spawn.c) ------------------------------------------------------------- */

/* Begins a life of an actor that has a place. */
void exo_head_begin_life(struct head *h, exo_entry *a);
/* NaN is refused, too: it would spoil every sum that it is in. */
exo_status exo_head_check_resources(Exo__Cluster__Resource *const *list, size_t count,
                                    exo_err *err);
/* An entry for a spec that is copied, counted for `peer`; a dead one of the same name makes room.
 * key 0: a new one. */
exo_status exo_head_new_entry(struct head *h, uint64_t key, uint64_t peer,
                              const Exo__Cluster__Spawn *spec, exo_entry **out, exo_err *err);
void exo_head_end_batch(struct head *h, exo_spawn_batch *b, exo_status status, const char *reason,
                        exo_payload *reply);
/* One of them does not live: none does. */
void exo_head_fail_batch(struct head *h, exo_spawn_batch *b, exo_status status, const char *reason);
/* h may be NULL for one that is not counted any more. */
void exo_head_free_postponed(struct head *h, struct postponed *p);
/* There is another worker, or none will come any more. */
void exo_head_ask_again(struct head *h);
exo_status exo_head_spawn(exo_call_context *call, void *self, const exo_payload *args,
                          exo_payload *reply, exo_err *err);
/* It lives: who waits for it is told. */
void exo_head_announce(struct head *h, exo_entry *a);
exo_status exo_head_started(exo_call_context *call, void *self, const exo_payload *args,
                            exo_payload *reply, exo_err *err);

/* --- Death and restart (head_lives.c) --------------------------------------------------------- */

/* Has a node end a life of an actor. If the node is away, it is told when it registers again. */
void exo_head_end_at(struct head *h, uint64_t node, struct exo_head_kill *kill, const char *cause);
void exo_head_kill_at(struct head *h, uint64_t node, uint64_t id, const char *cause, bool clean);
void exo_head_schedule(struct head *h, exo_entry *a, exo_time wait);
void exo_head_entry_died(struct head *h, exo_entry *a, const char *cause, bool failure);
exo_status exo_head_died(exo_call_context *call, void *self, const exo_payload *args,
                         exo_payload *reply, exo_err *err);
/* The job of a driver that went: what it made and did not detach goes, too. */
/* The process whose job this is now; 0: none, or not known. */
uint64_t exo_head_driver_of(struct head *h, const char *job);
/* A driver took a job's name: actors of a job that had it before end, unless its driver is
 * there. */
void exo_head_end_former(struct head *h, const exo_job_entry *job);
void exo_head_end_job(struct head *h, const exo_cluster_node *driver, const char *state,
                      const char *cause);
/* Those whose drivers went while there was no head, and the actors of those that nobody
 * remembers. */
void exo_head_end_lost_jobs(struct head *h);
exo_status exo_head_give_up(exo_call_context *call, void *self, const exo_payload *args,
                            exo_payload *reply, exo_err *err);

/* --- Looking (head_look.c) -------------------------------------------------------------------- */

exo_status exo_head_why(exo_call_context *call, void *self, const exo_payload *args,
                        exo_payload *reply, exo_err *err);
exo_status exo_head_list(exo_call_context *call, void *self, const exo_payload *args,
                         exo_payload *reply, exo_err *err);
/* What others hold of a node: from it. */
exo_status exo_head_holds(exo_call_context *call, void *self, const exo_payload *args,
                          exo_payload *reply, exo_err *err);
exo_status exo_head_log(exo_call_context *call, void *self, const exo_payload *args,
                        exo_payload *reply, exo_err *err);
exo_status exo_head_logs(exo_call_context *call, void *self, const exo_payload *args,
                         exo_payload *reply, exo_err *err);

#endif
