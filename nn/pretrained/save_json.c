/* Writes JSON files: see save_json.h. */
#include "nn/pretrained/save_json.h"

#include <exogym/memory.h>

#include "base/file.h"
#include "nn/pretrained/paths.h"

exo_status
exo_pretrained_write_json(const char *folder, const char *name, const json_t *json, exo_err *err)
{
    char path[EXO_PRETRAINED_PATH];
    const size_t flags = JSON_INDENT(2) | JSON_REAL_PRECISION(9);
    exo_status st = exo_pretrained_path(path, folder, name, err);
    size_t size = json ? json_dumpb(json, NULL, 0, flags) : 0;
    char *text = size ? exo_calloc(size + 1, 1) : NULL;
    if (st == EXO_OK && !text)
        st = exo_fail(err, EXO_NOMEM, "%s: no memory to write it", folder);
    if (st == EXO_OK) {
        json_dumpb(json, text, size, flags);
        text[size] = '\n';
        st = exo_file_write_atomic(path, text, size + 1, err);
    }
    exo_free(text);
    return st;
}
