/* Making actors where the head finds room: the request to the head, and references to the actors
 * that it made. head_spawn.c has the head's side.
 *
 * Keeps nothing; all of it runs on the caller's thread. */
#include <exogym/memory.h>

#include "base/plugin_build.h"
#include "cluster/cluster_impl.h"

/* The lists of a Spawn message; their texts belong to the options. */
struct spawn_lists {
    Exo__Cluster__Resource *resources, **resource_list;
    Exo__Cluster__LaneOpts *lanes, **lane_list;
    Exo__Cluster__RestartRule restart;
    char (*builds)[EXO_BUILD], **build_list;
};

static exo_status
describe_spawn(exo_cluster *c, const char *class_name, const exo_spawn_opts *o,
               Exo__Cluster__Spawn *out, struct spawn_lists *lists, exo_err *err)
{
    exo__cluster__spawn__init(out);
    exo__cluster__restart_rule__init(&lists->restart);
    lists->resources = exo_calloc(o->num_resources + 1, sizeof *lists->resources);
    lists->resource_list = exo_calloc(o->num_resources + 1, sizeof *lists->resource_list);
    lists->lanes = exo_calloc(o->num_lanes + 1, sizeof *lists->lanes);
    lists->lane_list = exo_calloc(o->num_lanes + 1, sizeof *lists->lane_list);
    lists->builds = exo_calloc(o->num_plugins + 1, sizeof *lists->builds);
    lists->build_list = exo_calloc(o->num_plugins + 1, sizeof *lists->build_list);
    if (!lists->resources || !lists->resource_list || !lists->lanes || !lists->lane_list ||
        !lists->builds || !lists->build_list)
        return exo_fail(err, EXO_NOMEM, "no memory to make an actor");
    for (size_t i = 0; i < o->num_resources; i++) {
        exo__cluster__resource__init(&lists->resources[i]);
        lists->resources[i].name = exo_pb_text(o->resources[i].name);
        lists->resources[i].amount = o->resources[i].amount;
        lists->resource_list[i] = &lists->resources[i];
    }
    for (size_t i = 0; i < o->num_lanes; i++) {
        exo__cluster__lane_opts__init(&lists->lanes[i]);
        lists->lanes[i].lane = exo_pb_text(o->lanes[i].lane);
        lists->lanes[i].max_concurrency = o->lanes[i].max_concurrency;
        lists->lanes[i].max_pending_calls = o->lanes[i].max_pending_calls;
        lists->lane_list[i] = &lists->lanes[i];
    }
    out->class_name = exo_pb_text(class_name);
    out->name = exo_pb_text(o->name);
    out->space = exo_pb_text(o->namespace_name ? o->namespace_name : "default");
    out->get_if_exists = o->get_if_exists;
    out->detached = o->detached;
    out->job = c->job;
    out->args.data = o->args.data;
    out->args.len = o->args.size;
    out->resources = lists->resource_list;
    out->n_resources = o->num_resources;
    out->lanes = lists->lane_list;
    out->n_lanes = o->num_lanes;
    out->placement = (uint32_t)o->placement;
    out->node = exo_pb_text(o->node);
    out->group = exo_pb_text(o->group);
    out->group_rule = (uint32_t)o->group_rule;
    out->plugins = (char **)(uintptr_t)o->plugins;
    out->n_plugins = o->num_plugins;
    for (size_t i = 0; i < o->num_plugins; i++) {
        exo_plugin_build(o->plugins[i], lists->builds[i]);
        lists->build_list[i] = lists->builds[i];
    }
    out->plugin_builds = lists->build_list;
    out->n_plugin_builds = o->num_plugins;
    lists->restart.when = (uint32_t)o->restart.when;
    lists->restart.max = o->restart.max;
    lists->restart.within = o->restart.within;
    lists->restart.backoff = o->restart.backoff;
    out->restart = &lists->restart;
    return EXO_OK;
}

static void
release_args(const exo_spawn_item *items, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        exo_payload args = items[i].opts.args;
        exo_payload_release(&args);
    }
}

static exo_status
refer_to_all(exo_cluster *c, const exo_payload *reply, size_t count, exo_time deadline,
             exo_ref *out, exo_err *err)
{
    exo_status st = EXO_OK;
    Exo__Cluster__SpawnReply *made =
        EXO_UNPACK(Exo__Cluster__SpawnReply, exo__cluster__spawn_reply, reply);
    if (!made || made->n_actors != count)
        st = exo_fail(err, EXO_FAILED, "the head's reply cannot be read");
    for (size_t i = 0; st == EXO_OK && i < count; i++)
        st = exo_cluster_refer_to(c, made->actors[i], deadline, &out[i], err);
    EXO_RELEASE(made);
    return st;
}

/* Has the head make one actor, or several together. */
static exo_status
spawn_all(exo_cluster *c, const Exo__Cluster__Spawn *spec, exo_time deadline, exo_ref *out,
          exo_err *err)
{
    exo_future *future = NULL;
    const exo_payload *reply = NULL;
    bool alone = spec->n_together == 0, shared = alone && spec->get_if_exists;
    exo_status st =
        exo_cluster_call_head(c, "spawn", &spec->base, shared, deadline, &future, &reply, err);
    if (st == EXO_EXISTS && alone &&
        exo_cluster_is_free_again(c, spec->space, spec->name, deadline))
        st = exo_cluster_call_head(c, "spawn", &spec->base, shared, deadline, &future, &reply, err);
    if (st != EXO_OK)
        return st;
    st = refer_to_all(c, reply, 1 + spec->n_together, deadline, out, err);
    exo_future_drop(&future);
    return st;
}

/* For get_if_exists: the existing actor may be dead. If so, another one is made once the head has
 * heard of the death. */
static exo_status
spawn_shared(exo_cluster *c, const Exo__Cluster__Spawn *spec, exo_time deadline, exo_ref *out,
             exo_err *err)
{
    exo_status st = spawn_all(c, spec, deadline, out, err);
    bool dead = st == EXO_PEER_LOST;
    if (st == EXO_OK && exo_remote_is_suspect(c->remote, *out))
        dead = exo_call_wait(c->runtime, *out, "ping", (exo_payload){0}, deadline, NULL, NULL) ==
               EXO_PEER_LOST;
    if (dead && exo_cluster_is_free_again(c, spec->space, spec->name, deadline))
        st = spawn_all(c, spec, deadline, out, err);
    else if (dead)
        st = exo_cluster_find(c, spec->space, spec->name, out, err);
    return st;
}

exo_status
exo_cluster_spawn(void *context, const exo_spawn_item *items, size_t count, exo_time deadline,
                  exo_ref *out, exo_err *err)
{
    exo_cluster *c = context;
    Exo__Cluster__Spawn *specs = exo_calloc(count, sizeof *specs);
    Exo__Cluster__Spawn **together = exo_calloc(count, sizeof *together);
    struct spawn_lists *lists = exo_calloc(count, sizeof *lists);
    exo_status st = specs && together && lists
                        ? EXO_OK
                        : exo_fail(err, EXO_NOMEM, "no memory to make an actor");
    for (size_t i = 0; st == EXO_OK && i < count; i++) {
        st = describe_spawn(c, items[i].class_name, &items[i].opts, &specs[i], &lists[i], err);
        together[i] = &specs[i];
    }
    if (st == EXO_OK) {
        specs[0].together = together + 1;
        specs[0].n_together = count - 1;
        bool shared = count == 1 && specs[0].get_if_exists && specs[0].name[0];
        st = shared ? spawn_shared(c, &specs[0], deadline, out, err)
                    : spawn_all(c, &specs[0], deadline, out, err);
    }
    for (size_t i = 0; lists && i < count; i++) {
        exo_free(lists[i].resources);
        exo_free(lists[i].resource_list);
        exo_free(lists[i].lanes);
        exo_free(lists[i].lane_list);
        exo_free(lists[i].builds);
        exo_free(lists[i].build_list);
    }
    exo_free(lists);
    exo_free(together);
    exo_free(specs);
    release_args(items, count);
    return st;
}
