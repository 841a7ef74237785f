/* The functions of NCCL: see library.h. State: the table; a lock guards it. */
#include "nccl/library.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <exogym/log.h>

enum {
    LEAST_VERSION = 21400, /* of configs, and calls that do not block */
    /* GPUs of one process do not read and write each other's arrays, unless these are registered */
    APART_VERSION = 22300,
    SUSPENDS_VERSION = 23003 /* of CommSuspend and CommResume that do not block */
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

/* What a version does otherwise than the engine needs it. NCCL reads its environment when the first
 * communicator is made. */
static void
adapt_to(int version)
{
    if (version < SUSPENDS_VERSION) {
        table.CommSuspend = NULL;
        table.CommResume = NULL;
    }
    if (version < APART_VERSION) /* arrays are of a pool, which shows them to their own GPU only */
        setenv("NCCL_P2P_DIRECT_DISABLE", "1", 0);
}

/* Looks a function up. False: it is not there. */
static bool
find(void *library, const char *name, void *out)
{
    *(void **)out = dlsym(library, name);
    return *(void **)out != NULL;
}

/* The loader may have found another library than the one that was meant: errors name the file. */
static void
name_library(int version)
{
    Dl_info found = {0};
    const bool knows = dladdr(*(void **)&table.GetVersion, &found) != 0 && found.dli_fname;
    snprintf(table.name, sizeof table.name, "NCCL %d.%d.%d (%.250s)", version / 10000,
             version / 100 % 100, version % 100, knows ? found.dli_fname : file);
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
    adapt_to(version);
    name_library(version);
    EXO_LOG(DEBUG, COMM, "engine=nccl event=loaded library=\"%s\"", table.name);
    return EXO_OK;
}

/* Refuses an environment in which NCCL's calls would wait without a deadline. */
static exo_status
check_environment(exo_err *err)
{
    const char *blocking = getenv("NCCL_COMM_BLOCKING");
    return !blocking || strtol(blocking, NULL, 0) != 1
               ? EXO_OK
               : exo_fail(
                     err, EXO_UNSUPPORTED,
                     "engine nccl: NCCL_COMM_BLOCKING=1 has calls of NCCL wait for other members "
                     "without a deadline: unset it");
}

static exo_status
load(exo_err *err)
{
    exo_status st = check_environment(err);
    if (st != EXO_OK)
        return st;
    /* pinned for equal bits from run to run, unless the user has chosen */
    setenv("NCCL_ALGO", "Ring", 0);
    setenv("NCCL_PROTO", "Simple", 0);
    void *library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return exo_fail(err, EXO_UNSUPPORTED,
                        "engine nccl: %.300s: install NCCL (Debian and Ubuntu: libnccl2), or "
                        "name its folder in LD_LIBRARY_PATH; or choose another engine",
                        dlerror());
    st = look_up(library, err);
    if (st != EXO_OK)
        dlclose(library);
    return st;
}

exo_status
exo_nccl_load(const exo_nccl_table **out, exo_err *err)
{
    exo_status st = EXO_OK;
    pthread_mutex_lock(&lock);
    if (!loaded)
        st = load(err);
    loaded = loaded || st == EXO_OK;
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
