/* JSON as text: see json_text.h. */
#include "report/json_text.h"

#include <exogym/memory.h>

#include "base/grow_text.h"

static int
add(const char *bytes, size_t size, void *text)
{
    exo_text_add_bytes(text, bytes, size);
    return ((exo_text *)text)->failed ? -1 : 0;
}

char *
exo_json_dump(const json_t *json, size_t flags)
{
    exo_text text = {0};
    if (json && json_dump_callback(json, add, &text, flags) == 0 && !text.failed)
        return text.data;
    exo_free(text.data);
    return NULL;
}
