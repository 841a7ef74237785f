/* The files beside a tokenizer.json: see beside.h. */
#include "nn/text/beside.h"

#include <errno.h>
#include <string.h>

#include <exogym/memory.h>

#include "base/dir.h"
#include "base/file.h"
#include "base/grow_text.h"

enum {
    FILE_MOST = 16 << 20 /* bytes */
};

static const char *const names[EXO_NUM_BESIDE] = {"tokenizer_config.json",
                                                  "special_tokens_map.json", "chat_template.jinja",
                                                  "chat_template.json"};

const char *
exo_beside_name(size_t index)
{
    return names[index];
}

/* The path of `name` in the folder of `path`; NULL: no memory. */
static char *
beside_path(const char *path, const char *name)
{
    exo_text out = {0};
    const char *slash = strrchr(path, '/');
    exo_text_add(&out, "%.*s%s", slash ? (int)(slash + 1 - path) : 0, path, name);
    return out.data;
}

exo_status
exo_beside_read(exo_beside *beside, const char *path, exo_err *err)
{
    exo_status st = EXO_OK;
    for (size_t i = 0; i < EXO_NUM_BESIDE && st == EXO_OK; i++) {
        char *file = beside_path(path, names[i]);
        exo_err missing = {0};
        st = file ? exo_file_read(file, FILE_MOST, &beside->text[i], &beside->size[i], &missing)
                  : EXO_NOMEM;
        exo_free(file);
        if (st == EXO_NOT_FOUND)
            st = EXO_OK;
        else if (st != EXO_OK)
            exo_fail(err, st, "%s", missing.text[0] ? missing.text : "no memory for a path");
    }
    return st;
}

exo_status
exo_beside_save(const exo_beside *beside, const char *folder, exo_err *err)
{
    exo_status st = EXO_OK;
    for (size_t i = 0; i < EXO_NUM_BESIDE && st == EXO_OK; i++) {
        exo_text file = {0};
        exo_text_add(&file, "%s/%s", folder, names[i]);
        if (file.failed)
            st = exo_fail(err, EXO_NOMEM, "%s: no memory", folder);
        else if (beside->text[i])
            st = exo_file_write_atomic(file.data, beside->text[i], beside->size[i], err);
        else if (exo_dir_unlink(file.data) != 0 && errno != ENOENT)
            st = exo_fail(err, EXO_IO, "%s: %s", file.data, exo_dir_reason(errno));
        exo_free(file.data);
    }
    return st;
}

void
exo_beside_release(exo_beside *beside)
{
    for (size_t i = 0; i < EXO_NUM_BESIDE; i++)
        exo_free(beside->text[i]);
    *beside = (exo_beside){0};
}
