/* The functions of NCCL: see library.h. State: the table; a lock guards it. */
#include "nccl/library.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum {
    LEAST_VERSION = 21400 /* of configs, and calls that do not block */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const char *file = "libnccl.so.2";
static exo_nccl_table table;
static bool loaded;

void
exo_nccl_use(const char *path)
{
    file = path;
}

/* Looks a function up. False: it is not there. */
static bool
find(void *library, const char *name, void *out)
{
    *(void **)out = dlsym(library, name);
    return *(void **)out != NULL;
}

static exo_status
look_up(void *library, exo_err *err)
{
    const char *missing = NULL;
#define FIND(result, name, parameters)                                                             \
    if (!find(library, "nccl" #name, &table.name))                                                 \
        missing = "nccl" #name;
    EXO_NCCL_FUNCTIONS(FIND)
#undef FIND
#define FIND(result, name, parameters) (void)find(library, "nccl" #name, &table.name);
    EXO_NCCL_NEWER_FUNCTIONS(FIND)
#undef FIND
    int version = 0, thousands;
    if (missing)
        return exo_fail(err, EXO_UNSUPPORTED,
                        "engine nccl: %s has no %s: install NCCL 2.14 or later (Debian and Ubuntu: "
                        "libnccl2)",
                        file, missing);
    const bool knows = table.GetVersion(&version) == EXO_NCCL_SUCCESS;
    thousands = version < 10000 ? 1000 : 10000; /* 2.8.4 is 2804, 2.14.3 is 21403 */
    if (!knows || version < LEAST_VERSION)
        return exo_fail(err, EXO_UNSUPPORTED,
                        "engine nccl: this is NCCL %d.%d.%d: install 2.14 or later (Debian and "
                        "Ubuntu: libnccl2)",
                        version / thousands, version / 100 % (thousands / 100), version % 100);
    return EXO_OK;
}

exo_status
exo_nccl_load(const exo_nccl_table **out, exo_err *err)
{
    exo_status st = EXO_OK;
    pthread_mutex_lock(&lock);
    if (!loaded) {
        /* pinned for equal bits from run to run, unless the user has chosen; NCCL reads them when the
         * first communicator is made */
        setenv("NCCL_ALGO", "Ring", 0);
        setenv("NCCL_PROTO", "Simple", 0);
        void *library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
        st = library
                 ? look_up(library, err)
                 : exo_fail(err, EXO_UNSUPPORTED,
                            "engine nccl: %.300s: install NCCL (Debian and Ubuntu: libnccl2), or "
                            "name its folder in LD_LIBRARY_PATH; or choose another engine",
                            dlerror());
        loaded = st == EXO_OK;
        if (st != EXO_OK && library)
            dlclose(library);
    }
    pthread_mutex_unlock(&lock);
    *out = &table;
    return st;
}

void
exo_nccl_lack(const char *name)
{
    const exo_nccl_table *all = NULL;
    (void)exo_nccl_load(&all, NULL);
#define LACK(result, own, parameters)                                                              \
    if (strcmp(name, #own) == 0)                                                                   \
        table.own = NULL;
    EXO_NCCL_NEWER_FUNCTIONS(LACK)
#undef LACK
}
