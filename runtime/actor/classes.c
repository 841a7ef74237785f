/* The registry of actor classes, and spawning by class name. See classes.h. */
#include "actor/classes.h"

#include <exogym/plugin.h>

#include "actor/runtime_impl.h"

exo_registry exo_actor_class_registry = EXO_REGISTRY("actor class");

exo_status
exo_actor_class_register(const exo_actor_class *actor_class, exo_err *err)
{
    exo_err reason = {0};
    exo_status st = exo_registry_add(&exo_actor_class_registry, actor_class, &reason);
    if (st == EXO_EXISTS && exo_actor_class_find(actor_class->name) == actor_class)
        return EXO_OK;
    return st == EXO_OK ? st : exo_fail(err, st, "%s", reason.text);
}

const exo_actor_class *
exo_actor_class_find(const char *name)
{
    return exo_registry_find(&exo_actor_class_registry, name);
}

const exo_actor_class *
exo_actor_class_at(size_t index)
{
    return exo_registry_at(&exo_actor_class_registry, index);
}

static void
release_args(const exo_spawn_item *items, size_t first, size_t count)
{
    for (size_t i = first; i < count; i++) {
        exo_payload args = items[i].opts.args;
        exo_payload_release(&args);
    }
}

static exo_status
load_plugins(const exo_spawn_opts *opts, exo_err *err)
{
    exo_status st = EXO_OK;
    for (size_t i = 0; st == EXO_OK && i < opts->num_plugins; i++)
        st = exo_plugin_load(opts->plugins[i], err);
    return st;
}

/* Of what a cluster needs, and this process does not: so programs fail alike with and without one. */
static exo_status
check_placement(const exo_spawn_item *items, size_t count, exo_err *err)
{
    for (size_t i = 0; i < count; i++) {
        const exo_spawn_opts *o = &items[i].opts;
        if (o->placement == EXO_PLACE_STRICT && (!o->node || !*o->node))
            return exo_fail(err, EXO_INVAL,
                            "an actor of class '%.100s': EXO_PLACE_STRICT needs the name of a "
                            "worker in `node`",
                            items[i].class_name);
    }
    return EXO_OK;
}

exo_status
exo_spawn_group(exo_runtime *runtime, const exo_spawn_item *items, size_t count, exo_time deadline,
                exo_ref *out, exo_err *err)
{
    void *context;
    const exo_remote_ops *remote = exo_runtime_remote(runtime, &context);
    if (count == 0)
        return exo_fail(err, EXO_INVAL, "a group needs at least one actor");
    exo_status st = exo_runtime_check_own(runtime, err);
    if (st == EXO_OK)
        st = check_placement(items, count, err);
    if (st != EXO_OK) {
        release_args(items, 0, count);
        return st;
    }
    if (remote) {
        /* an OK must not leave the errors of failed attempts in *err */
        exo_err reason = {0};
        st = remote->spawn(context, items, count, deadline, out, &reason);
        if (st != EXO_OK && err)
            *err = reason;
        return st;
    }
    size_t made = 0;
    while (st == EXO_OK && made < count) {
        const exo_spawn_item *item = &items[made];
        st = load_plugins(&item->opts, err);
        const exo_actor_class *actor_class =
            st == EXO_OK ? exo_actor_class_find(item->class_name) : NULL;
        if (st == EXO_OK && !actor_class)
            st = exo_registry_unknown(&exo_actor_class_registry, item->class_name, err);
        if (st != EXO_OK) {
            release_args(items, made, count);
            break;
        }
        st = exo_spawn(runtime, actor_class, &item->opts, &out[made], err);
        if (st == EXO_OK)
            made++;
        else
            release_args(items, made + 1, count);
    }
    for (size_t i = 0; st != EXO_OK && i < made; i++)
        exo_stop(runtime, out[i], false, NULL);
    return st;
}

exo_status
exo_spawn_class(exo_runtime *runtime, const char *class_name, const exo_spawn_opts *opts,
                exo_time deadline, exo_ref *out, exo_err *err)
{
    exo_spawn_item item = {.class_name = class_name};
    if (opts)
        item.opts = *opts;
    return exo_spawn_group(runtime, &item, 1, deadline, out, err);
}
