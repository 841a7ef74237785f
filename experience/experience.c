/* Items of experience: see experience.h. No state. */
#include "experience/experience.h"

#include <math.h>
#include <string.h>

#include <exogym/log.h>

enum {
    FORMAT = 3
};

/* The parts of an item, and the words of the first. */
enum {
    HEADER,
    PROMPT,
    LENGTHS,
    TOKENS,
    VERSIONS,
    CACHE_VERSIONS,
    LOG_PROBS,
    PLAIN,
    SCORES,
    FINISH,
    MASK,
    REWARDS,
};
enum {
    FORMAT_WORD,
    ID,
    PROMPT_WORD,
    EPOCH,
    MAKER,
    LIFE,
    TEMPERATURE, /* the bits of a float */
    FILTERED,
    HEADER_WORDS
};

static const struct {
    const char *name;
    exo_dtype dtype;
    size_t each; /* elements of an entry */
} parts_of[EXO_EXPERIENCE_PARTS] = {
    [HEADER] = {"header", EXO_I64, HEADER_WORDS},
    [PROMPT] = {"prompt", EXO_I32, 1},
    [LENGTHS] = {"lengths", EXO_I32, 1},
    [TOKENS] = {"tokens", EXO_I32, 1},
    [VERSIONS] = {"versions", EXO_I64, 1},
    [CACHE_VERSIONS] = {"cache_versions", EXO_I64, 1},
    [LOG_PROBS] = {"log_probs", EXO_U8, sizeof(float)},
    [PLAIN] = {"plain_log_probs", EXO_U8, sizeof(float)},
    [SCORES] = {"scores", EXO_U8, sizeof(double)},
    [FINISH] = {"finish", EXO_U8, 1},
    [MASK] = {"mask", EXO_U8, 1},
    [REWARDS] = {"rewards", EXO_U8, sizeof(float)},
};

/* The entries of a part. */
static size_t
entries_of(size_t part, size_t answers, size_t prompt_length, size_t tokens_length, bool turns)
{
    switch (part) {
    case HEADER:
        return 1;
    case PROMPT:
        return prompt_length;
    case LENGTHS:
    case SCORES:
    case FINISH:
        return answers;
    case MASK:
    case REWARDS:
        return turns ? tokens_length : 0;
    default:
        return tokens_length;
    }
}

static void
take_arrays(exo_experience *e, const exo_item *item)
{
    const exo_item_part *p = item->parts;
    const int64_t *header = p[HEADER].data;
    e->id = (uint64_t)header[ID];
    e->prompt = (uint64_t)header[PROMPT_WORD];
    e->epoch = (uint64_t)header[EPOCH];
    e->maker = (uint64_t)header[MAKER];
    e->life = header[LIFE];
    memcpy(&e->temperature, &header[TEMPERATURE], sizeof e->temperature);
    e->filtered = header[FILTERED] != 0;
    e->sent = item->sent;
    e->received = item->received;
    e->prompt_tokens = p[PROMPT].data;
    e->lengths = p[LENGTHS].data;
    e->tokens = p[TOKENS].data;
    e->versions = p[VERSIONS].data;
    e->cache_versions = p[CACHE_VERSIONS].data;
    e->log_probs = p[LOG_PROBS].data;
    e->plain_log_probs = p[PLAIN].data;
    e->scores = p[SCORES].data;
    e->finish = p[FINISH].data;
    e->mask = p[MASK].count ? p[MASK].data : NULL;
    e->rewards = p[MASK].count ? p[REWARDS].data : NULL;
}

exo_status
exo_experience_new(exo_item **item, exo_experience *out, size_t answers, size_t prompt_length,
                   size_t tokens_length, bool turns, exo_err *err)
{
    exo_item_part parts[EXO_EXPERIENCE_PARTS];
    for (size_t i = 0; i < EXO_EXPERIENCE_PARTS; i++)
        parts[i] = (exo_item_part){.dtype = parts_of[i].dtype,
                                   .count = parts_of[i].each * entries_of(i, answers, prompt_length,
                                                                          tokens_length, turns)};
    exo_status st = exo_item_new(item, parts, EXO_EXPERIENCE_PARTS, err);
    if (st != EXO_OK)
        return st;
    *out = (exo_experience){
        .answers = answers, .prompt_length = prompt_length, .tokens_length = tokens_length};
    ((int64_t *)(*item)->parts[HEADER].data)[FORMAT_WORD] = FORMAT;
    take_arrays(out, *item);
    return EXO_OK;
}

void
exo_experience_sign(const exo_experience *e, exo_item *item)
{
    int64_t *header = item->parts[HEADER].data;
    header[ID] = (int64_t)e->id;
    header[PROMPT_WORD] = (int64_t)e->prompt;
    header[EPOCH] = (int64_t)e->epoch;
    header[MAKER] = (int64_t)e->maker;
    header[LIFE] = e->life;
    memcpy(&header[TEMPERATURE], &e->temperature, sizeof e->temperature);
    header[FILTERED] = e->filtered;
}

/* --- Checks ----------------------------------------------------------------------------------- */

static exo_status
check_parts(const exo_experience *e, const exo_item *item, exo_err *err)
{
    for (size_t i = 0; i < EXO_EXPERIENCE_PARTS; i++) {
        size_t count = parts_of[i].each * entries_of(i, e->answers, e->prompt_length,
                                                     e->tokens_length, item->parts[MASK].count > 0);
        if (item->parts[i].dtype != parts_of[i].dtype || item->parts[i].count != count)
            return exo_fail(
                err, EXO_INVAL, "experience: %s has %zu elements of %s, expected %zu of %s",
                parts_of[i].name, item->parts[i].count, exo_dtype_name(item->parts[i].dtype), count,
                exo_dtype_name(parts_of[i].dtype));
    }
    if (((const int64_t *)item->parts[HEADER].data)[FORMAT_WORD] != FORMAT)
        return exo_fail(err, EXO_INVAL, "experience: format %lld, expected %d",
                        (long long)((const int64_t *)item->parts[HEADER].data)[FORMAT_WORD],
                        FORMAT);
    return EXO_OK;
}

/* Whether the numbers of a token that the policy drew are in their ranges. */
static bool
is_drawn(const exo_experience *e, size_t i)
{
    return e->log_probs[i] <= 0 && e->plain_log_probs[i] <= 0 && isfinite(e->log_probs[i]) &&
           isfinite(e->plain_log_probs[i]) && e->versions[i] >= 0 && e->cache_versions[i] >= 0 &&
           e->cache_versions[i] <= e->versions[i] && (!e->rewards || isfinite(e->rewards[i]));
}

/* The same of a token of a tool. */
static bool
is_of_tool(const exo_experience *e, size_t i)
{
    return e->mask[i] == 0 && e->log_probs[i] == 0 && e->plain_log_probs[i] == 0 &&
           e->versions[i] == -1 && e->cache_versions[i] == -1 && e->rewards[i] == 0;
}

static exo_status
check_tokens(const exo_experience *e, exo_err *err)
{
    for (size_t i = 0; i < e->tokens_length; i++) {
        bool drawn = !e->mask || e->mask[i] == 1;
        if (e->tokens[i] < 0 || !(drawn ? is_drawn(e, i) : is_of_tool(e, i)))
            return exo_fail(err, EXO_INVAL, "experience: token %zu has a value out of its range",
                            i);
    }
    return EXO_OK;
}

static exo_status
check_values(const exo_experience *e, exo_err *err)
{
    uint64_t sum = 0;
    if (!(e->temperature >= 0) || !isfinite(e->temperature))
        return exo_fail(err, EXO_INVAL, "experience: a temperature of %g", (double)e->temperature);
    for (size_t i = 0; i < e->prompt_length; i++)
        if (e->prompt_tokens[i] < 0)
            return exo_fail(err, EXO_INVAL, "experience: prompt[%zu] is negative", i);
    for (size_t i = 0; i < e->answers; i++) {
        if (e->lengths[i] < 1)
            return exo_fail(err, EXO_INVAL, "experience: answer %zu has no token", i);
        if (e->finish[i] == EXO_FINISH_NONE || e->finish[i] > EXO_FINISH_NOT_FINITE)
            return exo_fail(err, EXO_INVAL, "experience: answer %zu has the wrong end %d", i,
                            e->finish[i]);
        if (!isfinite(e->scores[i]))
            return exo_fail(err, EXO_INVAL, "experience: the score of answer %zu is not finite", i);
        if (e->mask && sum < e->tokens_length && e->mask[sum] != 1)
            return exo_fail(err, EXO_INVAL,
                            "experience: answer %zu does not begin with a token of the policy", i);
        sum += (uint64_t)e->lengths[i];
    }
    if (sum != e->tokens_length)
        return exo_fail(err, EXO_INVAL, "experience: %llu tokens in the lengths, %zu in the item",
                        (unsigned long long)sum, e->tokens_length);
    return check_tokens(e, err);
}

size_t
exo_experience_actions(const exo_experience *e, size_t first, size_t count)
{
    size_t actions = 0;
    for (size_t i = first; e->mask && i < first + count; i++)
        actions += e->mask[i];
    return e->mask ? actions : count;
}

exo_status
exo_experience_view(exo_experience *out, const exo_item *item, exo_err *err)
{
    if (item->num_parts != EXO_EXPERIENCE_PARTS)
        return exo_fail(err, EXO_INVAL, "experience: %zu arrays, expected %d", item->num_parts,
                        EXO_EXPERIENCE_PARTS);
    *out = (exo_experience){.answers = item->parts[LENGTHS].count,
                            .prompt_length = item->parts[PROMPT].count,
                            .tokens_length = item->parts[TOKENS].count};
    if (out->answers < 1 || out->answers > EXO_EXPERIENCE_MAX_ANSWERS || out->prompt_length < 1 ||
        out->prompt_length > EXO_EXPERIENCE_MAX_TOKENS ||
        out->tokens_length > EXO_EXPERIENCE_MAX_TOKENS)
        return exo_fail(err, EXO_INVAL,
                        "experience: %zu answers and %zu tokens to a prompt of %zu tokens",
                        out->answers, out->tokens_length, out->prompt_length);
    exo_status st = check_parts(out, item, err);
    if (st == EXO_OK) {
        take_arrays(out, item);
        st = check_values(out, err);
    }
    return st;
}

exo_status
exo_experience_drop(exo_item **item, uint64_t id, exo_status st, uint64_t *repeated, exo_err *err)
{
    const unsigned long long number = (*item)->number;
    const uint32_t from = (*item)->from;
    exo_item_drop(item);
    if (st != EXO_OK && st != EXO_EXISTS)
        return exo_fail_in(err, st, "experience from sender %u, item %llu", from, number);
    ++*repeated;
    EXO_LOG(INFO, GRAPH, "event=repeated item=%llu from=%u: dropped", (unsigned long long)id, from);
    return EXO_OK;
}
