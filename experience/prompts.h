/* The prompts of a run, and their order. Draw d is prompt permutation(d / count)[d mod count]: every
 * epoch draws each prompt once, in an order of its own, which depends on the run's seed only. So a
 * draw is a number that names a prompt for all makers, and a restarted maker needs no more.
 *
 * Owner: the caller, one thread at a time. Read next: source.h. */
#ifndef EXO_PROMPTS_H
#define EXO_PROMPTS_H

#include <exogym/config.h>
#include <exogym/tokenizer.h>

typedef struct exo_prompts exo_prompts;

/* Reads `prompts` from a config: {lines: [TEXT, ...]} or {path: FILE}, a text file with a prompt on
 * each line that is not empty, or a file "*.jsonl" with a prompt under the key "prompt" of each line.
 * Both have `tokenizer: bytes` (the default) or a path, or `alphabet: TEXT`, whose characters are the
 * tokens in the order of their code points. Or {tokens: [[NUMBER, ...], ...]}. `shuffle: false` keeps
 * the order of the file. The caller frees it. INVAL (with its place), IO, NOMEM; those of the
 * tokenizer (names the line). */
exo_status exo_prompts_read(exo_prompts **out, exo_config *config, exo_err *err);
void exo_prompts_free(exo_prompts **prompts);

/* The number of prompts, at least 1; the tokens of the longest; one more than the largest token. */
size_t exo_prompts_count(const exo_prompts *prompts);
size_t exo_prompts_longest(const exo_prompts *prompts);
size_t exo_prompts_vocabulary(const exo_prompts *prompts);
/* NULL: the prompts are token numbers. */
exo_tokenizer *exo_prompts_tokenizer(const exo_prompts *prompts);

typedef struct exo_prompt {
    uint64_t index, epoch;
    const int32_t *tokens; /* (length) as long as the prompts */
    size_t length;
} exo_prompt;

/* The prompt of an index, in the order of the file; its epoch is 0. */
exo_prompt exo_prompts_at(const exo_prompts *prompts, size_t index);
/* The prompt of a draw. NOMEM. */
exo_status exo_prompts_draw(exo_prompts *prompts, uint64_t seed, uint64_t draw, exo_prompt *out,
                            exo_err *err);

#endif
