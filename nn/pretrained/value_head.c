/* The value head of a decoder, in a file of its own beside a Hugging Face directory's weights: see
 * pretrained.h. transformers ignores the file. No state. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include <exogym/state.h>

#include "base/dir.h"
#include "nn/pretrained/paths.h"
#include "nn/pretrained/pretrained.h"

static const char *const parts[] = {"value.weight", "value.bias"};

enum {
    NUM_PARTS = sizeof parts / sizeof *parts
};

bool
exo_value_head_has(const char *param)
{
    for (size_t i = 0; i < NUM_PARTS; i++)
        if (strcmp(param, parts[i]) == 0)
            return true;
    return false;
}

/* Adds the head's parameters to a state; *count: how many there are with memory. */
static exo_status
list_parts(exo_state **out, exo_params *params, size_t *count, exo_err *err)
{
    *count = 0;
    exo_status st = exo_state_new(out, err);
    for (size_t i = 0; st == EXO_OK && i < exo_params_count(params); i++) {
        const exo_param_info *info = exo_params_info(params, i);
        if (!exo_value_head_has(info->name) || !exo_params_at(params, i))
            continue;
        exo_state_add_shaped(*out, info->name, EXO_F32, exo_params_at(params, i), info->num_dims,
                             info->dims);
        ++*count;
    }
    return st;
}

exo_status
exo_value_head_read(const char *folder, exo_params *params, exo_err *err)
{
    char path[EXO_PRETRAINED_PATH];
    exo_state *state = NULL;
    size_t count = 0;
    exo_status st = exo_pretrained_path(path, folder, EXO_VALUE_HEAD_FILE, err);
    if (st == EXO_OK)
        st = list_parts(&state, params, &count, err);
    if (st == EXO_OK && count > 0 && access(path, F_OK) == 0)
        st = exo_state_load(state, path, err);
    exo_state_free(&state);
    return st;
}

exo_status
exo_value_head_write(const char *folder, exo_params *params, exo_err *err)
{
    char path[EXO_PRETRAINED_PATH];
    exo_state *state = NULL;
    size_t count = 0;
    exo_status st = exo_pretrained_path(path, folder, EXO_VALUE_HEAD_FILE, err);
    if (st == EXO_OK)
        st = list_parts(&state, params, &count, err);
    if (st == EXO_OK && count > 0)
        st = exo_state_save(state, path, err);
    else if (st == EXO_OK && exo_dir_unlink(path) != 0 && errno != ENOENT)
        st = exo_fail(err, EXO_IO, "cannot remove '%s': %s", path, exo_dir_reason(errno));
    exo_state_free(&state);
    return st;
}

bool
exo_value_head_exists(const char *folder)
{
    char path[EXO_PRETRAINED_PATH];
    return exo_pretrained_path(path, folder, EXO_VALUE_HEAD_FILE, NULL) == EXO_OK &&
           access(path, R_OK) == 0;
}
