/* The functions of cuDNN: see cudnn_library.h. State: the table; a lock guards it. */
#include "nn/cuda/cudnn_library.h"

#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const char *file = "libcudnn.so.9";
static exo_cudnn_table table;
static bool loaded;
static const char *machine; /* of tests */

void
exo_cudnn_use(const char *path)
{
    file = path;
}

void
exo_cudnn_plan_for(const char *json)
{
    machine = json;
}

const char *
exo_cudnn_planned_for(void)
{
    return machine;
}

/* Looks a function up. False: it is not there. */
template <typename Function>
static bool
find(void *library, const char *name, Function **out)
{
    *out = reinterpret_cast<Function *>(dlsym(library, name));
    return *out != NULL;
}

static exo_status
look_up(void *library, exo_err *err)
{
    const char *missing = NULL;
#define FIND(result, name, parameters)                                                             \
    if (!find(library, "cudnn" #name, &table.name))                                                \
        missing = "cudnn" #name;
    EXO_CUDNN_FUNCTIONS(FIND)
#undef FIND
    if (missing)
        return exo_fail(err, EXO_UNSUPPORTED, "cuDNN: %s has no %s: install cuDNN 9 for CUDA 13",
                        file, missing);
    const size_t version = table.GetVersion(); /* 9.19.0 is 91900 */
    if (version / 10000 != 9)
        return exo_fail(err, EXO_UNSUPPORTED,
                        "cuDNN: this is number %zu: install cuDNN 9 for CUDA "
                        "13",
                        version);
    return EXO_OK;
}

/* Says why the library was not loaded. The dynamic linker names the file that it has not found: the
 * library itself, or another one that it needs. */
static exo_status
say_unloaded(const char *reason, bool *found, exo_err *err)
{
    const size_t length = strlen(file);
    *found = strncmp(reason, file, length) != 0 ||
             strncmp(reason + length, ": cannot open shared object file: No such file", 46) != 0;
    if (*found)
        return exo_fail(
            err, EXO_UNSUPPORTED,
            "cuDNN: %s is there, and cannot be loaded: %.300s: mend that (a library that "
            "is missing is found by LD_LIBRARY_PATH), or unset EXOGYM_CUDNN",
            file, reason);
    return exo_fail(err, EXO_UNSUPPORTED,
                    "cuDNN: %.300s: install cuDNN 9 for CUDA 13 (libcudnn9-cuda-13 in "
                    "NVIDIA's repository), or name its folder in LD_LIBRARY_PATH; or unset "
                    "EXOGYM_CUDNN",
                    reason);
}

exo_status
exo_cudnn_load(const exo_cudnn_table **out, bool *there, exo_err *err)
{
    exo_status st = EXO_OK;
    bool found = true;
    pthread_mutex_lock(&lock);
    if (!loaded) {
        void *library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
        st = library ? look_up(library, err) : say_unloaded(dlerror(), &found, err);
        loaded = st == EXO_OK;
        if (st != EXO_OK && library)
            dlclose(library);
    }
    pthread_mutex_unlock(&lock);
    if (there)
        *there = found;
    *out = &table;
    return st;
}
