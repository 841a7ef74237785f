/* The state of a tokenizer: the parts of tokenizer.json, loaded.
 *
 * Read-only once loaded, except the count of references; each call owns its working state. Read
 * next: load.c, which makes one; tokenizer.c, which encodes and decodes. */
#ifndef EXO_TEXT_TOKENIZER_IMPL_H
#define EXO_TEXT_TOKENIZER_IMPL_H

#include <stdatomic.h>
#include <stdbool.h>

#include <exogym/tokenizer.h>

#include "nn/text/added.h"
#include "nn/text/beside.h"
#include "nn/text/bpe.h"
#include "nn/text/json.h"
#include "nn/text/steps.h"

struct exo_tokenizer {
    atomic_size_t references;
    char *file; /* tokenizer.json, as read or as written in memory */
    size_t file_size;
    bool raw; /* the tokenizer of bytes: text may be any bytes, not only UTF-8 */
    exo_bpe bpe;
    exo_added added;
    exo_steps normalizer, pre_tokenizer, decoder;
    bool joins;               /* there is no decoder: spaces join the tokens */
    exo_tokens before, after; /* tokens that the post-processor adds to a text */
    int32_t begin, end;       /* tokens that begin and end a document, or -1 */
    exo_beside beside;        /* of a tokenizer that was loaded; else empty */
};

/* Makes a tokenizer of a tokenizer.json in memory. `name` is the file's name in errors. Takes
 * ownership of `file` (freed with exo_free), also on failure. DAMAGED, UNSUPPORTED, NOMEM. */
exo_status exo_tokenizer_parse(exo_tokenizer **out, const char *name, char *file, size_t size,
                               exo_err *err);

/* Load one part of tokenizer.json, which must not be null, into the tokenizer. Errors: as above. */
exo_status exo_load_model(exo_tokenizer *t, const exo_json *part, exo_err *err);
exo_status exo_load_added(exo_tokenizer *t, const exo_json *part, exo_err *err);
exo_status exo_load_normalizer(exo_tokenizer *t, const exo_json *part, exo_err *err);
exo_status exo_load_pre_tokenizer(exo_tokenizer *t, const exo_json *part, exo_err *err);
exo_status exo_load_post_processor(exo_tokenizer *t, const exo_json *part, exo_err *err);
exo_status exo_load_decoder(exo_tokenizer *t, const exo_json *part, exo_err *err);
/* Converts vocab.json and merges.txt in `folder`, with GPT-2's rules, to a tokenizer.json: *out,
 * of *size bytes, which the caller frees with exo_free. NOT_FOUND: a file is missing. IO, NOMEM.
 * DAMAGED and UNSUPPORTED name the file. */
exo_status exo_gpt2_files(const char *folder, const exo_beside *beside, char **out, size_t *size,
                          exo_err *err);
/* Sets the tokens that begin and end a document: from t->beside, the files beside `path`; else
 * from the post-processor; else by their names. DAMAGED, NOMEM. */
exo_status exo_load_ends(exo_tokenizer *t, const char *path, exo_err *err);

/* Logs each contradiction between `config`, tokenizer_config.json, and the tokenizer. */
void exo_warn_of_contradictions(const exo_tokenizer *t, const exo_json *config);

/* Decodes like exo_tokenizer_decode, but to UTF-8 also with the tokenizer of bytes. Appends to
 * *out, which the caller frees, also on failure. */
exo_status exo_tokenizer_decode_text(const exo_tokenizer *t, const int32_t *tokens, size_t count,
                                     bool special, exo_text *out, exo_err *err);

#endif
