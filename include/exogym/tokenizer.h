/* Tokenizers: text to numbers and back, as Hugging Face's tokenizer.json says. docs/tokenizers.md
 * has what such a file may hold.
 *
 * Read-only after they are made; any thread, many at once. Nothing here blocks but reading and
 * writing files.
 */
#ifndef EXOGYM_TOKENIZER_H
#define EXOGYM_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <exogym/status.h>

EXO_DECLS_BEGIN

typedef struct exo_tokenizer exo_tokenizer; /* counted references */

/* A tokenizer.json, or the folder it is in: BPE over bytes (GPT-2, OPT, BLOOM, LLaMA 3) and over
 * characters with byte fallback (SentencePiece's: LLaMA 1 and 2). A folder without one may have
 * vocab.json and merges.txt, which are read by GPT-2's rules. tokenizer_config.json and
 * special_tokens_map.json beside them are asked what begins and ends a document; where they
 * contradict tokenizer.json, it counts, and a warning in the log says so. NOT_FOUND, IO, NOMEM;
 * DAMAGED and UNSUPPORTED name the file and the part of it. */
EXO_API exo_status exo_tokenizer_load(exo_tokenizer **out, const char *path, exo_err *err);
/* One number for each character (code point) of a sorted alphabet without repetition, given as
 * UTF-8. Others are an error of encode. INVAL: empty, not UTF-8, not sorted, or with U+0000 (names
 * the offset). */
EXO_API exo_status exo_tokenizer_characters(exo_tokenizer **out, const char *alphabet, size_t size,
                                            exo_err *err);
/* The alphabet of a text, in order of code points: nanoGPT's character tokenizer of it. INVAL:
 * empty, not UTF-8, or with U+0000 (names the offset). */
EXO_API exo_status exo_tokenizer_characters_of(exo_tokenizer **out, const char *text, size_t size,
                                               exo_err *err);
/* One number for each byte. */
EXO_API exo_status exo_tokenizer_bytes(exo_tokenizer **out, exo_err *err);
/* Counts one more reference and returns `tokenizer`. */
EXO_API exo_tokenizer *exo_tokenizer_hold(exo_tokenizer *tokenizer);
/* Gives a reference back and sets *tokenizer to NULL; accepts NULL in it. */
EXO_API void exo_tokenizer_drop(exo_tokenizer **tokenizer);

/* Writes <folder>/tokenizer.json, at once: of one that was loaded what was read, byte for byte,
 * with tokenizer_config.json, special_tokens_map.json and chat templates as they lay beside it; of
 * the others a file that transformers' PreTrainedTokenizerFast reads and exo_tokenizer_load too (as
 * which the tokenizer of bytes takes what is no UTF-8 as U+FFFD, as others do). Makes the folder.
 * IO, NOMEM. */
EXO_API exo_status exo_tokenizer_save(const exo_tokenizer *tokenizer, const char *folder,
                                      exo_err *err);

/* Do both come of the same tokenizer.json, but for how it is laid out? Then every number means the
 * same to both. Reads the files again where their bytes differ; no memory for that: false. */
EXO_API bool exo_tokenizer_same(const exo_tokenizer *a, const exo_tokenizer *b);
/* One more than the largest number. */
EXO_API size_t exo_tokenizer_vocabulary(const exo_tokenizer *tokenizer);
/* The number of a token by its text as the vocabulary spells it ("<|endoftext|>"), or -1. */
EXO_API int32_t exo_tokenizer_token(const exo_tokenizer *tokenizer, const char *text);

/* What ends a document or an answer, what begins one: -1 if there is none. As the files beside
 * tokenizer.json say (eos_token, bos_token); else what the post-processor puts after and before a
 * text; else a special token of a usual name, such as </s>, <s> or <|endoftext|>. */
EXO_API int32_t exo_tokenizer_end(const exo_tokenizer *tokenizer);
EXO_API int32_t exo_tokenizer_begin(const exo_tokenizer *tokenizer);

/* `size` bytes of text -> *tokens (*count), which the caller frees with exo_free. `special`: with
 * what the file's post-processor adds, such as a first token. Special tokens in the text are
 * recognized, as transformers does. Bytes that are no UTF-8 are taken as U+FFFD (Unicode's way: one
 * for each longest beginning of a character), but by the tokenizer of bytes. INVAL: a character
 * without token, where the file has none for unknown ones. UNSUPPORTED: a word of 2 GiB. FAILED: a
 * regular expression of the file takes too long on this text. NOMEM. */
EXO_API exo_status exo_tokenizer_encode(const exo_tokenizer *tokenizer, const char *text,
                                        size_t size, bool special, int32_t **tokens, size_t *count,
                                        exo_err *err);
/* -> *text (*size, and a 0 after it), freed with exo_free. `special`: special tokens are spelled
 * out, else left out. The text is UTF-8, but that of the tokenizer of bytes. INVAL: a number that
 * no token has. FAILED, NOMEM. */
EXO_API exo_status exo_tokenizer_decode(const exo_tokenizer *tokenizer, const int32_t *tokens,
                                        size_t count, bool special, char **text, size_t *size,
                                        exo_err *err);

/* Decoding token by token, for a terminal: gives only whole characters, as soon as their bytes are
 * there. Together they are what exo_tokenizer_decode gives, without U+0000; only of bytes that are
 * no text, behind some that are, LLaMA's decoder makes U+FFFD of all, and a stream has shown the
 * first by then. One thread at a time; a stream holds the tokenizer. */
typedef struct exo_token_stream exo_token_stream;
/* Begins a text; the caller closes the stream. NOMEM. */
EXO_API exo_status exo_token_stream_open(exo_token_stream **out, exo_tokenizer *tokenizer,
                                         bool special, exo_err *err);
/* Frees it, and what is unfinished, and sets *stream to NULL; accepts NULL in it. */
EXO_API void exo_token_stream_close(exo_token_stream **stream);
/* What can be shown now: *text is the stream's until the next call, and may be empty. INVAL: a
 * number that no token has; the stream goes on. */
EXO_API exo_status exo_token_stream_put(exo_token_stream *stream, int32_t token, const char **text,
                                        exo_err *err);
/* What is left: an unfinished character as U+FFFD. The stream can begin anew. */
EXO_API exo_status exo_token_stream_end(exo_token_stream *stream, const char **text, exo_err *err);

EXO_DECLS_END

#endif
