/* Plugins: loading, the check of the ABI, and the list of loaded plugins.
 *
 * A plugin stays in the process for good, because the classes that it registers point into it. Even
 * if its function fails, nothing is unloaded once it has run.
 *
 * `lock` guards the lists; a plugin's own function runs without it. If two threads load the same
 * plugin, the second waits for the first and gets the same answer, unless the first waits for it: plugins
 * may load each other. Read next: plugin_dir.c. */
#include <exogym/plugin.h>

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <exogym/memory.h>

#include "base/file.h"
#include "base/plugin_dir.h"

struct plugin {
    void *handle;
    pthread_t loader; /* the thread that runs its function, until it is ready */
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

exo_status
exo_plugin_check_file(const char *path, exo_err *err)
{
    struct stat info;
    if (stat(path, &info) != 0)
        return exo_fail(err, EXO_NOT_FOUND, "plugin '%s': %s", path, strerror(errno));
    if (!S_ISREG(info.st_mode))
        return exo_fail(err, EXO_INVAL, "plugin '%s': not a file", path);
    int descriptor = -1;
    ElfW(Ehdr) header = {0};
    const unsigned char class = sizeof(void *) == 8 ? ELFCLASS64 : ELFCLASS32;
    exo_status st = exo_file_open(path, &descriptor, err);
    if (st != EXO_OK)
        return st;
    bool whole = pread(descriptor, &header, sizeof header, 0) == (ssize_t)sizeof header;
    close(descriptor);
    if (!whole || memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
        header.e_ident[EI_CLASS] != class || header.e_type != ET_DYN)
        return exo_fail(err, EXO_INVAL,
                        "cannot load plugin '%s': it is no shared object of this system: build it "
                        "with cc -shared -fPIC",
                        path);
    return EXO_OK;
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

exo_status
exo_plugin_load(const char *path, exo_err *err)
{
    void *handle = NULL;
    bool ran = false;
    exo_status st = exo_plugin_check_dir(path, err);
    if (st == EXO_OK)
        st = open_file(path, &handle, err);
    if (!handle)
        return st;
    struct plugin *mine = exo_calloc(1, sizeof *mine);
    if (!mine) {
        dlclose(handle);
        return exo_fail(err, EXO_NOMEM, "plugin '%s': out of memory", path);
    }

    pthread_mutex_lock(&lock);
    struct plugin *other = NULL;
    while ((other = find_locked(handle)) != NULL && !other->ready &&
           !needs_this_thread_locked(other))
        wait_locked(other);
    if (!other) {
        *mine = (struct plugin){.handle = handle, .loader = pthread_self(), .link = plugins};
        plugins = mine;
    }
    pthread_mutex_unlock(&lock);
    if (other) { /* loaded already, or plugins load each other */
        dlclose(handle);
        exo_free(mine);
        return EXO_OK;
    }

    st = check_and_init(handle, path, &ran, err);

    pthread_mutex_lock(&lock);
    mine->ready = st == EXO_OK;
    if (!mine->ready) {
        struct plugin **at = &plugins;
        while (*at != mine)
            at = &(*at)->link;
        *at = mine->link;
    }
    wake_locked(mine);
    pthread_mutex_unlock(&lock);

    if (st != EXO_OK) {
        exo_free(mine);
        if (!ran)
            dlclose(handle);
    }
    return st;
}
