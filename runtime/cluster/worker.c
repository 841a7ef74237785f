/* The worker: see worker.h. Its only state is the environment. Read next: cluster_known.c, which
 * notes the actors. */
#include "cluster/worker.h"

#include <string.h>

#include <exogym/memory.h>

#include "actor/hooks.h"
#include "base/plugin_build.h"
#include "base/plugin_dir.h"
#include "base/printable.h"
#include "cluster/directory.h"
#include "cluster/messages.h"
#include "cluster/quota.h"

struct worker {
    exo_worker_env env;
};

static exo_status
worker_start(exo_call_context *call, void *self, const exo_payload *args, exo_err *err)
{
    struct worker *w = self;
    (void)call;
    (void)err;
    memcpy(&w->env, args->data, sizeof w->env);
    return EXO_OK;
}

static exo_status
begin_life(exo_call_context *call, struct worker *w, const Exo__Cluster__Spawn *spec,
           const exo_actor_class *actor_class, const exo_spawn_opts *opts, exo_ref *out,
           exo_err *err)
{
    if (opts->name)
        w->env.making(w->env.context, true, spec, (exo_ref){0});
    exo_status st = exo_spawn(exo_call_runtime(call), actor_class, opts, out, err);
    w->env.making(w->env.context, false, spec, st == EXO_OK ? *out : (exo_ref){0});
    if (st != EXO_OK || !exo_call_cancelled(call))
        return st;
    /* The head was lost or has given up, and may make another one. */
    exo_kill(exo_call_runtime(call), *out, "the head does not wait for it any more", NULL);
    return exo_fail(err, EXO_CANCELLED, "the head does not wait for it any more");
}

static exo_status
make(exo_call_context *call, struct worker *w, const Exo__Cluster__Spawn *spec, exo_ref *out,
     exo_err *err)
{
    exo_status st = EXO_OK;
    /* for this thread; also restricts plugins that `start` loads */
    exo_plugin_restrict(spec->restricted);
    for (size_t i = 0; st == EXO_OK && i < spec->n_plugins; i++)
        st = exo_plugin_load_build(spec->plugins[i],
                                   i < spec->n_plugin_builds ? spec->plugin_builds[i] : NULL, err);
    const exo_actor_class *actor_class =
        st == EXO_OK ? exo_actor_class_find(spec->class_name) : NULL;
    if (st == EXO_OK && !actor_class)
        st = exo_fail(err, EXO_NOT_FOUND,
                      "there is no actor class '%s' at this worker: load its plugin",
                      spec->class_name);
    exo_lane_opts *lanes = exo_calloc(spec->n_lanes + 1, sizeof *lanes);
    if (st == EXO_OK && !lanes)
        st = exo_fail(err, EXO_NOMEM, "no memory for an actor's lanes");
    for (size_t i = 0; st == EXO_OK && i < spec->n_lanes; i++)
        lanes[i] = (exo_lane_opts){.lane = spec->lanes[i]->lane[0] ? spec->lanes[i]->lane : NULL,
                                   .max_concurrency = spec->lanes[i]->max_concurrency,
                                   .max_pending_calls = spec->lanes[i]->max_pending_calls};
    exo_spawn_opts opts = {.name = spec->name[0] ? spec->name : NULL,
                           .namespace_name = spec->space[0] ? spec->space : NULL,
                           .lanes = lanes,
                           .num_lanes = spec->n_lanes,
                           .gpus = spec->gpus};
    if (st == EXO_OK && spec->args.len > 0)
        st = exo_payload_copy(&opts.args, spec->args.data, spec->args.len);
    if (st == EXO_OK)
        st = begin_life(call, w, spec, actor_class, &opts, out, err);
    exo_free(lanes);
    exo_plugin_restrict(false);
    return st;
}

static exo_status
reply_made(const exo_actor_class *actor_class, exo_ref ref, exo_payload *reply, exo_err *err)
{
    size_t size = sizeof ref.id, at = sizeof ref.id;
    for (size_t i = 0; i < actor_class->num_methods; i++)
        if (actor_class->methods[i].idempotent)
            size += strlen(actor_class->methods[i].name) + 1;
    char *data = exo_calloc(1, size);
    if (!data)
        return exo_fail(err, EXO_NOMEM, "no memory for a reply");
    memcpy(data, &ref.id, sizeof ref.id);
    for (size_t i = 0; i < actor_class->num_methods; i++) {
        if (!actor_class->methods[i].idempotent)
            continue;
        size_t length = strlen(actor_class->methods[i].name) + 1;
        memcpy(data + at, actor_class->methods[i].name, length);
        at += length;
    }
    *reply = (exo_payload){.data = data, .size = size, .release = exo_free};
    return EXO_OK;
}

static void
record(const struct worker *w, const exo_call_context *call, exo_audit_event event,
       const char *subject, const char *detail, exo_status status, const exo_err *err)
{
    exo_audit_add(w->env.audit, &(exo_audit_record){.event = event,
                                                    .who = exo_call_identity(call),
                                                    .object = "worker",
                                                    .method = exo_call_method(call),
                                                    .subject = subject,
                                                    .detail = detail,
                                                    .status = status,
                                                    .reason = err ? err->text : NULL});
}

/* Records what was made, and its owner. */
static void
record_spawn(const struct worker *w, const exo_call_context *call, const Exo__Cluster__Spawn *spec,
             exo_status status, const exo_err *err)
{
    char subject[512], detail[512], class_name[200];
    if (!w->env.audit)
        return;
    exo_format_cut(subject, sizeof subject, "%s/%s", spec->space[0] ? spec->space : "default",
                   spec->name);
    exo_format_cut(detail, sizeof detail, "class %s%s%s%s%s",
                   exo_cut(class_name, sizeof class_name, spec->class_name),
                   spec->owner[0] ? ", for " : "", spec->owner, spec->n_plugins ? ", plugins " : "",
                   spec->n_plugins ? spec->plugins[0] : "");
    record(w, call, EXO_AUDIT_SPAWN, subject, detail, status, err);
}

static exo_status
worker_spawn(exo_call_context *call, void *self, const exo_payload *args, exo_payload *reply,
             exo_err *err)
{
    exo_ref ref = {0};
    Exo__Cluster__Spawn *spec = EXO_UNPACK_ARGS(Exo__Cluster__Spawn, exo__cluster__spawn, args);
    if (!spec)
        return exo_message_refuse_args("spawn", err);
    exo_status st = make(call, self, spec, &ref, err);
    if (st == EXO_OK)
        st = reply_made(exo_actor_class_find(spec->class_name), ref, reply, err);
    record_spawn(self, call, spec, st, err);
    EXO_RELEASE(spec);
    return st;
}

static void
record_kill(const struct worker *w, const exo_call_context *call, const struct exo_head_kill *kill)
{
    char subject[512] = "";
    exo_actor_info info;
    if (!w->env.audit)
        return;
    if (exo_runtime_look(exo_call_runtime(call), (exo_ref){.id = kill->id}, &info)) {
        exo_format_cut(subject, sizeof subject, "%s/%s", info.space ? info.space : "default",
                       info.name ? info.name : "");
        exo_actor_info_release(&info);
    }
    record(w, call, EXO_AUDIT_KILL, subject, kill->cause, EXO_OK, NULL);
}

static exo_status
worker_kill(exo_call_context *call, void *self, const exo_payload *args, exo_payload *reply,
            exo_err *err)
{
    const struct worker *w = self;
    struct exo_head_kill kill;
    (void)reply;
    if (args->size != sizeof kill)
        return exo_fail(err, EXO_INVAL, "kill: the arguments cannot be read");
    memcpy(&kill, args->data, sizeof kill);
    kill.cause[sizeof kill.cause - 1] = 0;
    if (kill.id == 0)
        kill.id = w->env.find(w->env.context, kill.key, kill.incarnation).id;
    record_kill(w, call, &kill);
    if (kill.clean)
        return exo_runtime_stop(exo_call_runtime(call), (exo_ref){.id = kill.id}, kill.cause, err);
    return exo_kill(exo_call_runtime(call), (exo_ref){.id = kill.id}, kill.cause, err);
}

static exo_status
worker_end(exo_call_context *call, void *self, const exo_payload *args, exo_payload *reply,
           exo_err *err)
{
    const struct worker *w = self;
    (void)args;
    (void)reply;
    (void)err;
    record(w, call, EXO_AUDIT_STOP, "", "the worker ends", EXO_OK, NULL);
    w->env.end(w->env.context);
    return EXO_OK;
}

/* `start` of an actor may take long, and must not delay others: each turn of the head's askers
 * (remote_gate.c) has a thread. */
static const exo_lane_class lanes[] = {{.name = "main"},
                                       {.name = "spawn",
                                        .blocking = true,
                                        .max_concurrency = EXO_QUOTA_ASKED_TURNS,
                                        .capacity = 65536}};

static const exo_method methods[] = {{.name = "spawn", .lane = 1, .run = worker_spawn},
                                     {.name = "kill", .run = worker_kill},
                                     {.name = "end", .run = worker_end}};

const exo_actor_class exo_worker_class = {
    .name = "worker",
    .state_size = sizeof(struct worker),
    .start = worker_start,
    .lanes = lanes,
    .num_lanes = sizeof lanes / sizeof lanes[0],
    .methods = methods,
    .num_methods = sizeof methods / sizeof methods[0],
};
