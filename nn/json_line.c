/* Lines of JSON: see json_line.h. */
#include "nn/json_line.h"

#include <string.h>

exo_status
exo_json_line(json_t **out, const char *path, size_t number, const char *text, size_t size,
              exo_err *err)
{
    const size_t how = JSON_REJECT_DUPLICATES | JSON_DECODE_INT_AS_REAL | JSON_ALLOW_NUL;
    json_error_t reason;
    /* programs of Windows begin a file with the mark of UTF-8 */
    size_t at = number == 1 && size >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0 ? 3 : 0;
    *out = NULL;
    while (at < size && memchr(" \t\r\n", text[at], 4))
        at++;
    if (at == size)
        return EXO_OK;
    json_t *line = json_loadb(text + at, size - at, how, &reason);
    if (!line)
        return exo_fail(err, EXO_INVAL, "%s:%zu:%zu: no JSON object: %s", path, number,
                        at + (reason.column > 0 ? (size_t)reason.column : 1), reason.text);
    if (!json_is_object(line)) {
        json_decref(line);
        return exo_fail(err, EXO_INVAL, "%s:%zu:%zu: no JSON object, but another value", path,
                        number, at + 1);
    }
    *out = line;
    return EXO_OK;
}
