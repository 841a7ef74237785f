/* A job in YAML: the input is parsed, all keys are read in every type, and the document is written
 * as YAML and as JSON. The written YAML must parse to the same document. One thread; each input
 * owns its document. Read next: include/exogym/config.h. */
#include <stdlib.h>
#include <string.h>

#include <exogym/config.h>
#include <exogym/memory.h>

static void
visit(exo_config *node, int depth)
{
    exo_err err = {0};
    if (exo_config_is_map(node)) {
        for (size_t i = 0; i < exo_config_length(node); i++) {
            exo_config *value = NULL;
            const char *key = exo_config_key(node, i, &value), *text;
            bool flag;
            uint64_t number;
            double real;
            exo_config_bool(node, key, false, &flag, &err);
            exo_config_u64(node, key, 1, 0, UINT64_MAX, &number, &err);
            exo_config_double(node, key, 1, -1e300, 1e300, &real, &err);
            exo_config_string(node, key, "", &text, &err);
            visit(value, depth + 1);
        }
        exo_config_finish(node, &err);
    } else if (exo_config_is_list(node)) {
        for (size_t i = 0; i < exo_config_length(node); i++)
            visit(exo_config_item(node, i), depth + 1);
    } else if (node && exo_config_scalar(node) &&
               strlen(exo_config_scalar(node)) > (size_t)1 << 30) {
        abort();
    }
}

/* libfyaml leaks memory when a simple key spans lines. The leak is libfyaml's own, and a job is the
 * user's own file. */
const char *__lsan_default_suppressions(void);

const char *
__lsan_default_suppressions(void)
{
    return "leak:libfyaml";
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    exo_config_doc *doc = NULL, *again = NULL;
    exo_err err = {0};
    char *text = exo_calloc(1, size + 1), *yaml = NULL, *json = NULL, *second = NULL;
    if (!text)
        return 0;
    memcpy(text, data, size);
    if (exo_config_parse(&doc, "fuzz.yaml", text, &err) == EXO_OK) {
        visit(exo_config_root(doc), 0);
        if (exo_config_json(exo_config_root(doc), &json, &err) == EXO_OK &&
            exo_config_text(exo_config_root(doc), &yaml, &err) == EXO_OK) {
            if (exo_config_parse(&again, "again.yaml", yaml, &err) != EXO_OK ||
                exo_config_json(exo_config_root(again), &second, &err) != EXO_OK ||
                strcmp(json, second) != 0)
                abort();
        }
        char *newline = strchr(text, '\n');
        if (newline)
            *newline = 0;
        exo_config_set(doc, text, &err);
    } else if (!err.text[0]) {
        abort();
    }
    exo_config_free(&doc);
    exo_config_free(&again);
    exo_free(text);
    exo_free(yaml);
    exo_free(json);
    exo_free(second);
    return 0;
}
