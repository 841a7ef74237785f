/* Numbers of tokens as rows of a model's positions, and back (exogym/learning.h). Pure functions.
 * Read next: rewards.c. */
#include <exogym/learning.h>

/* The number of tokens of sequence n. */
static size_t
length_of(const exo_token_batch *b, size_t n)
{
    return b->offsets[n + 1] - b->offsets[n];
}

void
exo_rows_of_tokens(const exo_token_batch *b, const int32_t *tokens, size_t positions,
                   int32_t *inputs, int32_t *targets)
{
    for (size_t n = 0; n < b->sequences; n++)
        for (size_t p = 0; p < positions; p++) {
            size_t token = b->offsets[n] + p, row = n * positions + p;
            bool action = p + 1 < length_of(b, n) && b->mask[token + 1] != 0.0f;
            inputs[row] = p < length_of(b, n) ? tokens[token] : 0;
            targets[row] = action ? tokens[token + 1] : -1;
        }
}

void
exo_rows_of_numbers(const exo_token_batch *b, const float *by_token, size_t positions,
                    float *by_row)
{
    for (size_t n = 0; n < b->sequences; n++)
        for (size_t p = 0; p < positions; p++)
            by_row[n * positions + p] =
                p + 1 < length_of(b, n) ? by_token[b->offsets[n] + p + 1] : 0.0f;
}

void
exo_numbers_of_rows(const exo_token_batch *b, const float *by_row, size_t positions,
                    float *by_token)
{
    for (size_t n = 0; n < b->sequences; n++)
        for (size_t t = 0; t < length_of(b, n); t++)
            by_token[b->offsets[n] + t] =
                t > 0 && t <= positions ? by_row[n * positions + t - 1] : 0.0f;
}
