/* A tokenizer, inside: what tokenizer.json says. Read-only after it is made; what a call needs besides is the call's. */
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
    char *file; /* tokenizer.json, as it was read or made */
    size_t file_size;
    bool raw; /* of bytes: takes and gives any, not only UTF-8 */
    exo_bpe bpe;
    exo_added added;
    exo_steps normalizer, pre_tokenizer, decoder;
    bool joins;               /* no decoder: tokens are joined by spaces */
    exo_tokens before, after; /* what the post-processor adds */
    int32_t begin, end;
    exo_beside beside; /* of one that was loaded */
};

/* A tokenizer of a tokenizer.json in memory, whose name is for errors; takes `file` (exo_free), also on failure. */
exo_status exo_tokenizer_parse(exo_tokenizer **out, const char *name, char *file, size_t size,
                               exo_err *err);

/* Parts of tokenizer.json, each into the tokenizer. The parts are there and not null, but that of the added tokens. */
exo_status exo_load_model(exo_tokenizer *t, const exo_json *part, exo_err *err);
exo_status exo_load_added(exo_tokenizer *t, const exo_json *part, exo_err *err);
exo_status exo_load_normalizer(exo_tokenizer *t, const exo_json *part, exo_err *err);
exo_status exo_load_pre_tokenizer(exo_tokenizer *t, const exo_json *part, exo_err *err);
exo_status exo_load_post_processor(exo_tokenizer *t, const exo_json *part, exo_err *err);
exo_status exo_load_decoder(exo_tokenizer *t, const exo_json *part, exo_err *err);
/* The tokenizer.json that says what vocab.json and merges.txt in `folder` do, with GPT-2's rules: *out (*size, exo_free). NOT_FOUND: there is
 * no vocab.json; IO, NOMEM; DAMAGED and UNSUPPORTED name the file and what to do. */
exo_status exo_gpt2_files(const char *folder, const exo_beside *beside, char **out, size_t *size,
                          exo_err *err);
/* Which tokens begin and end a document: as the files beside `path`, t->beside, say, else by what the file adds, else by their names. */
exo_status exo_load_ends(exo_tokenizer *t, const char *path, exo_err *err);

/* Logs where tokenizer_config.json says something else than the tokenizer does. */
void exo_warn_of_contradictions(const exo_tokenizer *t, const exo_json *config);

/* Decodes as exo_tokenizer_decode does, but always to UTF-8. */
exo_status exo_tokenizer_decode_text(const exo_tokenizer *t, const int32_t *tokens, size_t count,
                                     bool special, exo_text *out, exo_err *err);

#endif
