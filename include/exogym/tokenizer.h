/* Tokenizers: text to token numbers and back, by the rules of a Hugging Face tokenizer.json.
 * docs/tokenizers.md lists the supported parts of such a file.
 *
 * A tokenizer is read-only; any thread may use it, several at once. Only functions that read or
 * write files block.
 */
#ifndef EXOGYM_TOKENIZER_H
#define EXOGYM_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <exogym/status.h>

EXO_DECLS_BEGIN

typedef struct exo_tokenizer exo_tokenizer; /* A tokenizer; counted references. */

/* Loads a tokenizer.json, or the one of a folder: BPE over bytes (GPT-2, OPT, BLOOM, LLaMA 3) or
 * over characters with byte fallback (SentencePiece's: LLaMA 1 and 2). A folder without this file
 * may have vocab.json and merges.txt, which are read by GPT-2's rules. tokenizer_config.json and
 * special_tokens_map.json beside it name the tokens that begin and end a document. Where they
 * contradict tokenizer.json, tokenizer.json counts and a warning is logged. The caller drops the
 * tokenizer. Errors: NOT_FOUND, IO, NOMEM; DAMAGED and UNSUPPORTED (name the file and its part). */
EXO_API exo_status exo_tokenizer_load(exo_tokenizer **out, const char *path, exo_err *err);
/* Makes a tokenizer with one number for each character (code point) of a sorted alphabet without
 * repetition, given as UTF-8. Encoding fails for other characters. INVAL: empty, not UTF-8, not
 * sorted, or with U+0000 (names the offset). */
EXO_API exo_status exo_tokenizer_characters(exo_tokenizer **out, const char *alphabet, size_t size,
                                            exo_err *err);
/* The same with the alphabet of a text in order of code points: nanoGPT's character tokenizer.
 * INVAL: empty, not UTF-8, or with U+0000 (names the offset). */
EXO_API exo_status exo_tokenizer_characters_of(exo_tokenizer **out, const char *text, size_t size,
                                               exo_err *err);
/* Makes a tokenizer with one number for each byte. */
EXO_API exo_status exo_tokenizer_bytes(exo_tokenizer **out, exo_err *err);
/* Counts one more reference and returns `tokenizer`. */
EXO_API exo_tokenizer *exo_tokenizer_hold(exo_tokenizer *tokenizer);
/* Drops a reference and sets *tokenizer to NULL; accepts NULL in it. */
EXO_API void exo_tokenizer_drop(exo_tokenizer **tokenizer);

/* Writes <folder>/tokenizer.json, atomically, and makes the folder. A loaded tokenizer is written
 * byte for byte as it was read, with the tokenizer_config.json, special_tokens_map.json and chat
 * templates that lay beside it. Other tokenizers are written as a file that transformers'
 * PreTrainedTokenizerFast and exo_tokenizer_load can read. When read back from such a file, the
 * tokenizer of bytes takes bytes that are not UTF-8 as U+FFFD, like every loaded one. Errors: IO,
 * NOMEM. */
EXO_API exo_status exo_tokenizer_save(const exo_tokenizer *tokenizer, const char *folder,
                                      exo_err *err);

/* Whether both have the same tokenizer.json, apart from its layout, so that every number means the
 * same. Reads the files again if their bytes differ; without memory for this, false. */
EXO_API bool exo_tokenizer_same(const exo_tokenizer *a, const exo_tokenizer *b);
/* The size of the vocabulary: one more than the largest number. */
EXO_API size_t exo_tokenizer_vocabulary(const exo_tokenizer *tokenizer);
/* The number of a token by its spelling in the vocabulary ("<|endoftext|>"), or -1. */
EXO_API int32_t exo_tokenizer_token(const exo_tokenizer *tokenizer, const char *text);

/* The token that ends a document or an answer; the one that begins it; -1: none. Taken from the
 * files beside tokenizer.json (eos_token, bos_token); else the tokens that the post-processor puts
 * after and before a text; else a special token with a usual name, such as </s>, <s> or
 * <|endoftext|>. */
EXO_API int32_t exo_tokenizer_end(const exo_tokenizer *tokenizer);
EXO_API int32_t exo_tokenizer_begin(const exo_tokenizer *tokenizer);

/* Encodes `size` bytes of text to *tokens (*count), which the caller frees with exo_free.
 * `special`: adds the tokens of the file's post-processor, such as a first token. Special tokens in
 * the text are recognized, as in transformers. Bytes that are not UTF-8 become U+FFFD, one for each
 * longest prefix of a character (Unicode's rule); the tokenizer of bytes keeps them. Errors: INVAL
 * (a character has no token, and the file has no token for unknown ones), UNSUPPORTED (a word of 2
 * GiB), FAILED (a regular expression of the file takes too long on this text), NOMEM. */
EXO_API exo_status exo_tokenizer_encode(const exo_tokenizer *tokenizer, const char *text,
                                        size_t size, bool special, int32_t **tokens, size_t *count,
                                        exo_err *err);
/* Decodes to *text (*size, with a NUL after it), which the caller frees with exo_free. `special`:
 * spells out special tokens, and a number that no token has is INVAL. Otherwise both are left out: a
 * model whose vocabulary is larger than the tokenizer's may draw such numbers. The text is UTF-8,
 * except that of the tokenizer of bytes. Errors: INVAL, FAILED, NOMEM. */
EXO_API exo_status exo_tokenizer_decode(const exo_tokenizer *tokenizer, const int32_t *tokens,
                                        size_t count, bool special, char **text, size_t *size,
                                        exo_err *err);

/* Decoding token by token, as for a terminal: returns whole characters only, as soon as their bytes
 * are complete. All pieces together are the text of exo_tokenizer_decode without U+0000.
 * docs/tokenizers.md#streams has the exceptions, such as this one: for bytes that are not text, after
 * valid ones, LLaMA's decoder turns all of them into U+FFFD, but a stream has already returned the
 * first ones. One thread at a time; a stream holds its tokenizer. */
typedef struct exo_token_stream exo_token_stream;
/* Starts a text; the caller closes the stream. NOMEM. */
EXO_API exo_status exo_token_stream_open(exo_token_stream **out, exo_tokenizer *tokenizer,
                                         bool special, exo_err *err);
/* Frees the stream with its unfinished characters, and sets *stream to NULL; accepts NULL in it. */
EXO_API void exo_token_stream_close(exo_token_stream **stream);
/* Starts a text that goes on after `tokens` (count), as an answer after its prompt, whose text is not
 * returned. Where the decoder leaves out a space at the beginning of a text, as SentencePiece's does,
 * it stays here. INVAL: one of the last numbers has no token; the stream is as before. */
EXO_API exo_status exo_token_stream_follow(exo_token_stream *stream, const int32_t *tokens,
                                           size_t count, exo_err *err);
/* Adds a token and returns the text that is now complete. *text belongs to the stream until the
 * next call, and may be empty. INVAL: a number that no token has; the stream goes on. */
EXO_API exo_status exo_token_stream_put(exo_token_stream *stream, int32_t token, const char **text,
                                        exo_err *err);
/* Returns the rest: U+FFFD for an unfinished character. The stream can then start a new text. */
EXO_API exo_status exo_token_stream_end(exo_token_stream *stream, const char **text, exo_err *err);

EXO_DECLS_END

#endif
