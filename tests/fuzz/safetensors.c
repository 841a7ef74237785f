/* A safetensors file from an untrusted source: the tensors of an accepted file lie within it, so
 * that every byte of each can be read. One thread; the input is a file in memory. Read next:
 * nn/pretrained/safetensors.h. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "nn/pretrained/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static int fd = -1;
    static char path[64];
    static volatile uint8_t sink;
    exo_safetensors *file = NULL;
    exo_err err = {0};
    if (fd < 0) {
        fd = memfd_create("fuzz", 0);
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    }
    if (fd < 0 || ftruncate(fd, (off_t)size) != 0 || pwrite(fd, data, size, 0) != (ssize_t)size)
        return 0;
    if (exo_safetensors_open(&file, path, &err) != EXO_OK) {
        if (!strstr(err.text, path))
            abort();
        return 0;
    }
    size_t bytes = 0;
    for (size_t i = 0; i < exo_safetensors_count(file); i++) {
        const exo_safetensor *t = exo_safetensors_at(file, i);
        const uint8_t *at = t->data;
        char shape[EXO_SHAPE_TEXT];
        if (strlen(exo_safetensors_shape(t->num_dims, t->dims, shape)) < 2)
            abort();
        for (size_t b = 0; b < t->bytes; b++)
            sink = at[b];
        bytes += t->bytes;
    }
    if (bytes > size)
        abort();
    (void)sink;
    exo_safetensors_close(&file);
    return 0;
}
