/* Loads the cuDNN of the tests, also for the GPUs that are opened from then on. */
#ifndef EXO_TEST_CUDNN_LOAD_H
#define EXO_TEST_CUDNN_LOAD_H

#include <criterion/criterion.h>

#include <dlfcn.h>

#include "cudnn/cudnn_test.h"
#include "nn/cuda/cudnn_library.h"

static inline const cudnn_test *
load_cudnn(void)
{
    static const char library[] = EXO_TEST_BINARY_DIR "/tests/cudnn/libcudnn_test.so";
    void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    cr_assert_not_null(handle, "%s", dlerror());
    exo_cudnn_use(library);
    return dlsym(handle, CUDNN_TEST_SYMBOL);
}

#endif
