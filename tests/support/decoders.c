/* Hugging Face directories for tests: see decoders.h. */
#include "support/decoders.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <exogym/memory.h>

#include "base/file.h"
#include "support/check.h"

enum {
    PATH = 512,
    LIMIT = 1 << 24
};

const char *const decoders_names[] = {"gpt2",    "opt",   "bloom", "llama",      "llama3", "linear",
                                      "mistral", "qwen2", "qwen3", "qwen3_bias", NULL};

const char *
decoders_path(const char *name, char *out)
{
    CHECK(snprintf(out, 256, "%s/golden/decoders/%s", EXO_TEST_SOURCE_DIR, name) < 256);
    return out;
}

char *
decoders_read(const char *folder, const char *file, size_t *size)
{
    char path[PATH], *data = NULL;
    CHECK(snprintf(path, sizeof path, "%s/%s", folder, file) < PATH);
    CHECK(exo_file_read(path, LIMIT, &data, size, NULL) == EXO_OK);
    return data;
}

void
decoders_write(const char *folder, const char *file, const void *data, size_t size)
{
    char path[PATH];
    CHECK(snprintf(path, sizeof path, "%s/%s", folder, file) < PATH);
    CHECK(exo_file_write_atomic(path, data, size, NULL) == EXO_OK);
}

static void
remove_files(const char *folder)
{
    DIR *dir = opendir(folder);
    CHECK(dir != NULL);
    for (struct dirent *entry; (entry = readdir(dir));)
        if (entry->d_name[0] != '.')
            unlinkat(dirfd(dir), entry->d_name, 0);
    closedir(dir);
}

void
decoders_copy(const char *name, const char *folder)
{
    char from[256];
    remove_files(folder);
    DIR *dir = opendir(decoders_path(name, from));
    CHECK(dir != NULL);
    for (struct dirent *entry; (entry = readdir(dir));) {
        size_t size = 0;
        if (entry->d_name[0] == '.' || strcmp(entry->d_name, "expected.safetensors") == 0)
            continue;
        char *data = decoders_read(from, entry->d_name, &size);
        decoders_write(folder, entry->d_name, data, size);
        exo_free(data);
    }
    closedir(dir);
}

void
decoders_edit(const char *folder, const char *file, const char *from, const char *to)
{
    size_t size = 0;
    char *text = decoders_read(folder, file, &size), *at = strstr(text, from);
    CHECK(at != NULL);
    size_t before = (size_t)(at - text), tail = size - before - strlen(from);
    char *changed = exo_calloc(size + strlen(to) + 1, 1);
    CHECK(changed != NULL);
    memcpy(changed, text, before);
    memcpy(changed + before, to, strlen(to));
    memcpy(changed + before + strlen(to), at + strlen(from), tail);
    decoders_write(folder, file, changed, before + strlen(to) + tail);
    exo_free(changed);
    exo_free(text);
}

void
decoders_load(const char *folder, exo_model **model, exo_params **params)
{
    exo_err err = {0};
    if (exo_decoder_load(folder, model, params, &err) != EXO_OK) {
        fprintf(stderr, "%s\n", err.text);
        abort();
    }
}

exo_tensor *
decoders_output(const exo_model *model, exo_tape *tape, const char *name, const int32_t *tokens,
                size_t sequences, size_t length)
{
    exo_batch batch = {.size = sequences, .num_fields = 1};
    batch.fields[0] =
        (exo_field){.name = "tokens", .dtype = EXO_I32, .num_dims = 1, .dims = {length}};
    batch.data[0] = (void *)(uintptr_t)tokens;
    exo_outputs outputs = exo_outputs_init((const char *const[]){name, NULL});
    return exo_model_forward(model, tape, &batch, &outputs) ? exo_outputs_get(&outputs, name)
                                                            : NULL;
}
