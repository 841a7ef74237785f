/* The tokenizer of a decoder: see decoder_tokenizer.h. */
#include "programs/decoder_tokenizer.h"

#include <string.h>
#include <unistd.h>

#include <exogym/data.h>
#include <exogym/memory.h>

#include "base/grow_text.h"
#include "report/json_text.h"

/* Takes a reference to the data set's tokenizer before the data set is dropped. */
static exo_status
of_data(const char *name, exo_config *config, exo_tokenizer **out, exo_err *err)
{
    exo_dataset *train = NULL;
    exo_status st = exo_dataset_named(name, config, &train, NULL, err);
    exo_tokenizer *tokenizer = st == EXO_OK ? exo_dataset_tokenizer(train) : NULL;
    if (tokenizer)
        *out = exo_tokenizer_hold(tokenizer);
    exo_dataset_drop(&train);
    return st;
}

/* Reads the tokenizer.json beside the run's config.json, or takes that of its data. */
static exo_status
of_run(const char *path, const json_t *config, exo_tokenizer **out, exo_err *err)
{
    const char *slash = strrchr(path, '/');
    int before = slash ? (int)(slash + 1 - path) : 0;
    char *beside = exo_text_make(err, "%.*stokenizer.json", before, path);
    if (!beside)
        return EXO_NOMEM;
    bool there = access(beside, F_OK) == 0;
    exo_status found = there ? exo_tokenizer_load(out, beside, err) : EXO_OK;
    exo_free(beside);
    if (there)
        return found;
    const json_t *data = json_object_get(config, "data");
    const char *name = json_string_value(json_object_get(data, "name"));
    char *text = name ? exo_json_dump(data, JSON_COMPACT) : NULL;
    exo_config_doc *doc = NULL;
    *out = NULL;
    if (!text)
        return EXO_OK;
    exo_status st = exo_config_parse(&doc, "data", text, err);
    const char *ignored = NULL; /* these keys belong to the job; the data set does not know them */
    bool split = false;
    if (st == EXO_OK)
        st = exo_config_string(exo_config_root(doc), "name", NULL, &ignored, err);
    if (st == EXO_OK)
        st = exo_config_bool(exo_config_root(doc), "split_by_node", false, &split, err);
    if (st == EXO_OK)
        st = of_data(name, exo_config_root(doc), out, err);
    exo_config_free(&doc);
    exo_free(text);
    return st;
}

/* Compares the tokenizer with the folder's. If the folder's is unreadable and another one was named
 * instead, the folder's token numbers count as those of the named one. */
static void
compare(exo_decoder_tokenizer *t, bool instead)
{
    exo_tokenizer *theirs = NULL;
    bool readable = exo_tokenizer_load(&theirs, t->folder, NULL) == EXO_OK;
    t->of_folder = readable && exo_tokenizer_same(t->own, theirs);
    t->numbers = t->of_folder || (!readable && instead);
    exo_tokenizer_drop(&theirs);
}

exo_status
exo_decoder_tokenizer_find(exo_decoder_tokenizer *out, const exo_decoder_source *s,
                           const char *named, exo_err *err)
{
    const char *began =
        json_string_value(json_object_get(json_object_get(s->json, "model"), "path"));
    *out = (exo_decoder_tokenizer){.folder = s->pretrained ? s->path : began};
    exo_status st = EXO_OK;
    if (named && strcmp(named, "bytes") == 0)
        st = exo_tokenizer_bytes(&out->own, err);
    else if (named)
        st = exo_tokenizer_load(&out->own, named, err);
    else if (!s->pretrained)
        st = of_run(s->config, s->json, &out->own, err);
    if (st != EXO_OK)
        return st;
    out->of_folder = out->numbers = !out->own && out->folder;
    if (out->own && out->folder)
        compare(out, named && s->pretrained);
    return EXO_OK;
}
