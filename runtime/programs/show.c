/* Untrusted text: see show.h. */
#include "programs/show.h"

#include <string.h>

#include <exogym/memory.h>

#include "base/utf8.h"

void
exo_show(FILE *out, const char *text, size_t size, exo_shown shown)
{
    exo_text safe = {0};
    exo_printable_add(&safe, text, size, shown);
    if (safe.length > 0)
        fwrite(safe.data, 1, safe.length, out);
    if (safe.failed)
        fputs("...", out);
    exo_free(safe.data);
}

json_t *
exo_lossy_json_bytes(const char *text, size_t size)
{
    exo_text valid = {0};
    exo_utf8_lossy(&valid, text, size);
    json_t *json =
        valid.failed ? NULL : json_stringn(valid.length > 0 ? valid.data : "", valid.length);
    exo_free(valid.data);
    return json;
}

json_t *
exo_lossy_json(const char *text)
{
    return exo_lossy_json_bytes(text, strlen(text));
}
