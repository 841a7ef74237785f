/* Tokenizers: text to numbers and back, as Hugging Face's tokenizer.json says.
 *
 * Read-only after they are made; any thread, many at once.
 */
#ifndef EXOGYM_TOKENIZER_H
#define EXOGYM_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <exogym/status.h>

typedef struct exo_tokenizer exo_tokenizer; /* counted references */

/* A tokenizer.json, or the folder it is in: BPE over bytes (GPT-2, OPT, BLOOM, LLaMA 3) and over characters with byte fallback
 * (SentencePiece's: LLaMA 1 and 2). NOT_FOUND, IO; INVAL and UNSUPPORTED name the file and the part of it. */
EXO_API exo_status exo_tokenizer_load(exo_tokenizer **out, const char *path, exo_err *err);
/* One number for each character (code point) of a sorted alphabet without repetition, given as UTF-8. Others are an error of encode. */
EXO_API exo_status exo_tokenizer_characters(exo_tokenizer **out, const char *alphabet, size_t size, exo_err *err);
/* The alphabet of a text, in order of code points: nanoGPT's character tokenizer of it. INVAL: not UTF-8 (names the offset). */
EXO_API exo_status exo_tokenizer_characters_of(exo_tokenizer **out, const char *text, size_t size, exo_err *err);
/* One number for each byte. */
EXO_API exo_status exo_tokenizer_bytes(exo_tokenizer **out, exo_err *err);
EXO_API exo_tokenizer *exo_tokenizer_hold(exo_tokenizer *tokenizer);
EXO_API void exo_tokenizer_drop(exo_tokenizer **tokenizer);

/* Writes <folder>/tokenizer.json, at once: of one that was loaded what was read, byte for byte; of the others a file that transformers'
 * PreTrainedTokenizerFast reads and exo_tokenizer_load too. */
EXO_API exo_status exo_tokenizer_save(const exo_tokenizer *tokenizer, const char *folder, exo_err *err);

/* One more than the largest number. */
EXO_API size_t exo_tokenizer_vocabulary(const exo_tokenizer *tokenizer);
/* The number of a token by its text as the vocabulary spells it ("<|endoftext|>"), or -1. */
EXO_API int32_t exo_tokenizer_token(const exo_tokenizer *tokenizer, const char *text);
/* What ends a document or an answer, what begins one: -1 if there is none. */
EXO_API int32_t exo_tokenizer_end(const exo_tokenizer *tokenizer);
EXO_API int32_t exo_tokenizer_begin(const exo_tokenizer *tokenizer);

/* `size` bytes of text -> *tokens (*count), which the caller frees with exo_free. `special`: with what the file's post-processor adds, such as
 * a first token. Special tokens in the text are recognized, as transformers does. Bytes that are no UTF-8 are taken as U+FFFD
 * (documented there), but by the tokenizer of bytes. */
EXO_API exo_status exo_tokenizer_encode(const exo_tokenizer *tokenizer, const char *text, size_t size, bool special,
                                        int32_t **tokens, size_t *count, exo_err *err);
/* -> *text (*size, and a 0 after it), freed with exo_free. `special`: special tokens are spelled out, else left out. */
EXO_API exo_status exo_tokenizer_decode(const exo_tokenizer *tokenizer, const int32_t *tokens, size_t count,
                                        bool special, char **text, size_t *size, exo_err *err);

/* Decoding token by token, for a terminal: gives only whole characters. */
typedef struct exo_token_stream exo_token_stream;
EXO_API exo_status exo_token_stream_open(exo_token_stream **out, exo_tokenizer *tokenizer, bool special, exo_err *err);
EXO_API void exo_token_stream_close(exo_token_stream **stream);
/* What can be shown now: *text is the stream's until the next call, and may be empty. */
EXO_API exo_status exo_token_stream_put(exo_token_stream *stream, int32_t token, const char **text, exo_err *err);
/* What is left: an unfinished character as U+FFFD. */
EXO_API exo_status exo_token_stream_end(exo_token_stream *stream, const char **text, exo_err *err);

#endif
