/* Plugins: loading, the check of the ABI, and the list of loaded plugins.
 *
 * A plugin stays in the process for good, because the classes that it registers point into it. Even
 * if its function fails, nothing is unloaded once it has run.
 *
 * A process loads a file once, so it knows by their SHA-256 which file that was, and whether another
 * process has the same one: a plugin that is built again while a worker lives would else run there as
 * it was.
 *
 * `lock` guards the lists; a plugin's own function runs without it. If two threads load the same
 * plugin, the second waits for the first and gets the same answer, unless the first waits for it: plugins
 * may load each other. Read next: plugin_dir.c. */
#include <exogym/plugin.h>

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <exogym/memory.h>

#include "base/plugin_build.h"
#include "base/plugin_dir.h"

struct plugin {
    void *handle;
    char *path;                /* absolute */
    char build[EXO_BUILD];     /* of the file that was loaded */
    exo_build_state unchanged; /* the file still has this build in this state; guarded by lock */
    pthread_t loader;          /* the thread that runs its function, until it is ready */
    bool ready;
    struct plugin *link;
};

/* A thread that waits until another one has loaded a plugin, which may itself load plugins. */
struct waiting {
    pthread_t thread;
    const struct plugin *plugin; /* NULL once it is ready, or has failed */
    struct waiting *link;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t loaded = PTHREAD_COND_INITIALIZER;
static struct plugin *plugins; /* guarded by lock */
static struct waiting *waits;  /* guarded by lock */

static struct plugin *
find_path_locked(const char *path)
{
    struct plugin *p = plugins;
    while (p && !(p->ready && strcmp(p->path, path) == 0))
        p = p->link;
    return p;
}

/* dlopen returns the same handle for the same file under any path. */
static struct plugin *
find_locked(const void *handle)
{
    struct plugin *p = plugins;
    while (p && p->handle != handle)
        p = p->link;
    return p;
}

/* Whether the plugin is ready only after this thread: its loader is this thread, or waits for a plugin
 * of which that is so. */
static bool
needs_this_thread_locked(const struct plugin *p)
{
    while (p && !pthread_equal(p->loader, pthread_self())) {
        const struct waiting *w = waits;
        while (w && !pthread_equal(w->thread, p->loader))
            w = w->link;
        p = w ? w->plugin : NULL;
    }
    return p != NULL;
}

static void
wait_locked(const struct plugin *p)
{
    struct waiting here = {.thread = pthread_self(), .plugin = p, .link = waits}, **at = &waits;
    waits = &here;
    pthread_cond_wait(&loaded, &lock);
    while (*at != &here)
        at = &(*at)->link;
    *at = here.link;
}

static void
wake_locked(const struct plugin *p)
{
    for (struct waiting *w = waits; w; w = w->link)
        if (w->plugin == p)
            w->plugin = NULL;
    pthread_cond_broadcast(&loaded);
}

/* Opens the file; *handle stays NULL on an error. */
static exo_status
open_file(const char *path, void **handle, exo_err *err)
{
    /* Without a slash, dlopen would search the system's folders. */
    const char *here = strchr(path, '/') ? "" : "./";
    exo_status st = exo_plugin_check_file(path, err);
    if (st != EXO_OK)
        return st;
    size_t size = strlen(here) + strlen(path) + 1;
    char *file = exo_calloc(size, 1);
    if (!file)
        return exo_fail(err, EXO_NOMEM, "plugin '%s': out of memory", path);
    snprintf(file, size, "%s%s", here, path);
    if (!(*handle = dlopen(file, RTLD_NOW | RTLD_LOCAL)))
        st = exo_fail(err, EXO_INVAL, "cannot load plugin: %s", dlerror());
    exo_free(file);
    return st;
}

/* Copies the address of a function into a pointer to a function, which POSIX allows and C does
 * not. */
static bool
find_function(void *handle, const char *name, void *function, size_t size)
{
    void *symbol = dlsym(handle, name);
    memcpy(function, &symbol, size);
    return symbol != NULL;
}

static exo_status
check_and_init(void *handle, const char *path, bool *ran, exo_err *err)
{
    unsigned (*abi)(void) = NULL;
    exo_status (*init)(exo_err * err) = NULL;
    if (!find_function(handle, "exo_plugin_abi", &abi, sizeof abi) ||
        !find_function(handle, "exo_plugin_init", &init, sizeof init))
        return exo_fail(err, EXO_INVAL, "'%s' is no exogym plugin: it does not define EXO_PLUGIN",
                        path);
    if (abi() != EXO_PLUGIN_ABI)
        return exo_fail(
            err, EXO_INVAL,
            "plugin '%s' was built for plugin ABI %u, this exogym has %d: build it again", path,
            abi(), EXO_PLUGIN_ABI);
    exo_err reason = {0};
    *ran = true;
    exo_status st = init(&reason);
    if (st == EXO_OK)
        return EXO_OK;
    /* a plugin whose name is taken is wrong */
    return exo_fail(err, st == EXO_EXISTS ? EXO_INVAL : st, "plugin '%s': %s", path,
                    reason.text[0] ? reason.text : exo_status_text(st));
}

/* Whether a plugin is what another process has. */
static exo_status
check_other(const char *path, const char *ours, const char *theirs, exo_err *err)
{
    char here[16], there[16];
    return !exo_build_is_other(ours, theirs)
               ? EXO_OK
               : exo_fail(err, EXO_FAILED,
                          "plugin '%s' is another file here (SHA-256 %s...) than for the process "
                          "that asks "
                          "for it (%s...): the same file must be on all hosts",
                          path, exo_build_short(ours, here), exo_build_short(theirs, there));
}

/* Whether another process, which has `build`, gets the same from a plugin that this one has. */
static exo_status
check_again(struct plugin *p, const char *build, exo_err *err)
{
    char now[EXO_BUILD], ours[16], theirs[16];
    exo_build_state state;
    if (build && strcmp(build, p->build) == 0)
        return EXO_OK;
    pthread_mutex_lock(&lock);
    bool unchanged = exo_build_is_unchanged(p->path, &p->unchanged);
    pthread_mutex_unlock(&lock);
    exo_status st = unchanged ? EXO_OK : exo_build_read(p->path, now, &state, err);
    if (st == EXO_OK && !unchanged && strcmp(now, p->build) != 0)
        st = exo_fail(err, EXO_FAILED,
                      "plugin '%s' has changed since this process loaded it (SHA-256 %s..., now "
                      "%s...), and a process loads a plugin once: restart the process",
                      p->path, exo_build_short(p->build, ours), exo_build_short(now, theirs));
    if (st == EXO_OK && !unchanged) {
        pthread_mutex_lock(&lock);
        p->unchanged = state;
        pthread_mutex_unlock(&lock);
    }
    return st == EXO_OK ? check_other(p->path, p->build, build, err) : st;
}

/* Puts the plugin, which `handle` is of, into the list. Returns the one that is there already, once it
 * is ready, or NULL. */
static struct plugin *
enter(struct plugin *mine)
{
    struct plugin *other = NULL;
    pthread_mutex_lock(&lock);
    while ((other = find_locked(mine->handle)) != NULL && !other->ready &&
           !needs_this_thread_locked(other))
        wait_locked(other);
    if (!other) {
        mine->loader = pthread_self();
        mine->link = plugins;
        plugins = mine;
    }
    pthread_mutex_unlock(&lock);
    return other;
}

/* Lets those who wait for the plugin go on, and takes it off the list if it is not ready. */
static void
settle(struct plugin *mine, bool ready)
{
    pthread_mutex_lock(&lock);
    mine->ready = ready;
    if (!ready) {
        struct plugin **at = &plugins;
        while (*at != mine)
            at = &(*at)->link;
        *at = mine->link;
    }
    wake_locked(mine);
    pthread_mutex_unlock(&lock);
}

static void
free_plugin(struct plugin *p)
{
    exo_free(p->path);
    exo_free(p);
}

/* Loads a plugin that no ready one of the list has the path of. *found: the one that has its handle. */
static exo_status
load_new(const char *path, const char *real, const char *build, struct plugin **found, exo_err *err)
{
    bool ran = false;
    struct plugin *mine = exo_calloc(1, sizeof *mine);
    exo_status st = mine && (mine->path = exo_strdup(real))
                        ? exo_build_read(real, mine->build, &mine->unchanged, err)
                        : exo_fail(err, EXO_NOMEM, "plugin '%s': out of memory", path);
    if (st == EXO_OK)
        st = check_other(real, mine->build, build, err);
    if (st == EXO_OK)
        st = open_file(path, &mine->handle, err);
    if (st == EXO_OK && (*found = enter(mine)) != NULL) {
        dlclose(mine->handle); /* loaded under another name, or plugins load each other */
        free_plugin(mine);
        return EXO_OK;
    }
    if (st == EXO_OK) {
        st = check_and_init(mine->handle, path, &ran, err);
        settle(mine, st == EXO_OK);
    }
    if (st != EXO_OK && mine) {
        if (mine->handle && !ran)
            dlclose(mine->handle);
        free_plugin(mine);
    }
    return st;
}

/* checks: whether the plugin must be in `build`. */
static exo_status
load(const char *path, bool checks, const char *build, exo_err *err)
{
    char real[PATH_MAX];
    exo_status st = exo_plugin_check_dir(path, err);
    if (st == EXO_OK)
        st = exo_plugin_check_file(path, err);
    if (st != EXO_OK)
        return st;
    if (!realpath(path, real))
        return exo_fail(err, EXO_NOT_FOUND, "plugin '%s': %s", path, strerror(errno));
    pthread_mutex_lock(&lock);
    struct plugin *found = find_path_locked(real);
    pthread_mutex_unlock(&lock);
    if (!found)
        st = load_new(path, real, build, &found, err);
    return st == EXO_OK && found && found->ready && checks ? check_again(found, build, err) : st;
}

exo_status
exo_plugin_load(const char *path, exo_err *err)
{
    return load(path, false, NULL, err);
}

exo_status
exo_plugin_load_build(const char *path, const char *build, exo_err *err)
{
    return load(path, true, build, err);
}

void
exo_plugin_build(const char *path, char out[EXO_BUILD])
{
    char real[PATH_MAX];
    out[0] = '\0';
    if (!realpath(path, real))
        return;
    pthread_mutex_lock(&lock);
    const struct plugin *p = find_path_locked(real);
    if (p)
        memcpy(out, p->build, EXO_BUILD);
    pthread_mutex_unlock(&lock);
    if (!p)
        exo_build_read(real, out, NULL, NULL);
}
