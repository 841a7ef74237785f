/* Actor classes by name. */
#include <pthread.h>
#include <string.h>

#include <exogym/memory.h>
#include <exogym/plugin.h>

#include "runtime_impl.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const exo_actor_class **classes; /* guarded by lock, as all below; in the order of registering */
static size_t num_classes, cap_classes;

static const exo_actor_class *
find_locked(const char *name)
{
    for (size_t i = 0; i < num_classes; i++)
        if (strcmp(classes[i]->name, name) == 0)
            return classes[i];
    return NULL;
}

exo_status
exo_actor_class_register(const exo_actor_class *actor_class, exo_err *err)
{
    exo_status st = EXO_OK;
    pthread_mutex_lock(&lock);
    const exo_actor_class *there = find_locked(actor_class->name);
    if (there && there != actor_class) {
        st = exo_fail(err, EXO_EXISTS, "there is an actor class '%s' already", actor_class->name);
    } else if (!there) {
        if (num_classes == cap_classes) {
            size_t cap = cap_classes ? 2 * cap_classes : 16;
            const exo_actor_class **larger = exo_realloc(classes, cap, sizeof *larger);
            if (larger) {
                classes = larger;
                cap_classes = cap;
            }
        }
        if (num_classes < cap_classes)
            classes[num_classes++] = actor_class;
        else
            st = exo_fail(err, EXO_NOMEM, "no memory for the actor class '%s'", actor_class->name);
    }
    pthread_mutex_unlock(&lock);
    return st;
}

const exo_actor_class *
exo_actor_class_find(const char *name)
{
    pthread_mutex_lock(&lock);
    const exo_actor_class *found = find_locked(name);
    pthread_mutex_unlock(&lock);
    return found;
}

const exo_actor_class *
exo_actor_class_at(size_t index)
{
    pthread_mutex_lock(&lock);
    const exo_actor_class *found = index < num_classes ? classes[index] : NULL;
    pthread_mutex_unlock(&lock);
    return found;
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

exo_status
exo_spawn_group(exo_runtime *runtime, const exo_spawn_item *items, size_t count, exo_time deadline, exo_ref *out,
                exo_err *err)
{
    void *context;
    const exo_remote_ops *remote = exo_runtime_remote(runtime, &context);
    if (count == 0)
        return exo_fail(err, EXO_INVAL, "a group of no actors");
    exo_status st = EXO_OK;
    if (remote) {
        exo_err reason = {0}; /* addresses that were tried in vain are no error */
        st = remote->spawn(context, items, count, deadline, out, &reason);
        if (st != EXO_OK && err)
            *err = reason;
        return st;
    }
    size_t made = 0;
    while (st == EXO_OK && made < count) {
        const exo_spawn_item *item = &items[made];
        st = load_plugins(&item->opts, err);
        const exo_actor_class *actor_class = st == EXO_OK ? exo_actor_class_find(item->class_name) : NULL;
        if (st == EXO_OK && !actor_class)
            st = exo_fail(err, EXO_NOT_FOUND, "there is no actor class '%s'", item->class_name);
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
exo_spawn_class(exo_runtime *runtime, const char *class_name, const exo_spawn_opts *opts, exo_time deadline,
                exo_ref *out, exo_err *err)
{
    exo_spawn_item item = {.class_name = class_name};
    if (opts)
        item.opts = *opts;
    return exo_spawn_group(runtime, &item, 1, deadline, out, err);
}
