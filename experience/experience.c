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

static bool
is_log_prob(float x)
{
    return x <= 0 && isfinite(x);
}

/* The first array whose value of token i is out of its range, and that value; 0: there is none. */
static size_t
wrong_part(const exo_experience *e, size_t i, double *value)
{
    const bool drawn = !e->mask || e->mask[i] == 1;
    const float log_prob = e->log_probs[i], plain = e->plain_log_probs[i],
                reward = e->rewards ? e->rewards[i] : 0;
    const int64_t version = e->versions[i], cache = e->cache_versions[i];
    const struct {
        size_t part;
        double value;
        bool good;
    } checks[] = {
        {MASK, e->mask ? e->mask[i] : 1, !e->mask || e->mask[i] <= 1},
        {TOKENS, e->tokens[i], e->tokens[i] >= 0},
        {LOG_PROBS, (double)log_prob, drawn ? is_log_prob(log_prob) : log_prob == 0},
        {PLAIN, (double)plain, drawn ? is_log_prob(plain) : plain == 0},
        {VERSIONS, (double)version, drawn ? version >= 0 : version == -1},
        {CACHE_VERSIONS, (double)cache, drawn ? cache >= 0 && cache <= version : cache == -1},
        {REWARDS, (double)reward, drawn ? isfinite(reward) : reward == 0},
    };
    for (size_t k = 0; k < sizeof checks / sizeof *checks; k++)
        if (!checks[k].good) {
            *value = checks[k].value;
            return checks[k].part;
        }
    return HEADER;
}

static exo_status
check_tokens(const exo_experience *e, exo_err *err)
{
    double value = 0;
    for (size_t i = 0; i < e->tokens_length; i++) {
        size_t part = wrong_part(e, i, &value);
        if (part != HEADER)
            return exo_fail(err, EXO_INVAL, "%s[%zu] is %.9g, which is out of its range",
                            parts_of[part].name, i, value);
    }
    return EXO_OK;
}

static exo_status
check_header(const exo_experience *e, const exo_item *item, exo_err *err)
{
    static const struct {
        const char *name;
        size_t word;
        int64_t least, most;
    } words[] = {
        {"item", ID, 0, INT64_MAX},     {"prompt", PROMPT_WORD, 0, INT64_MAX},
        {"epoch", EPOCH, 0, INT64_MAX}, {"maker", MAKER, 0, INT64_MAX},
        {"life", LIFE, -1, INT64_MAX},  {"filtered", FILTERED, 0, 1},
    };
    const int64_t *header = item->parts[HEADER].data;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (header[words[i].word] < words[i].least || header[words[i].word] > words[i].most)
            return exo_fail(err, EXO_INVAL, "header: %s is %lld, which is out of its range",
                            words[i].name, (long long)header[words[i].word]);
    if (!(e->temperature >= 0) || !isfinite(e->temperature))
        return exo_fail(err, EXO_INVAL, "header: a temperature of %g", (double)e->temperature);
    return EXO_OK;
}

static exo_status
check_values(const exo_experience *e, exo_err *err)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < e->prompt_length; i++)
        if (e->prompt_tokens[i] < 0)
            return exo_fail(err, EXO_INVAL, "prompt[%zu] is negative", i);
    for (size_t i = 0; i < e->answers; i++) {
        if (e->lengths[i] < 1)
            return exo_fail(err, EXO_INVAL, "lengths: answer %zu has no token", i);
        if (e->finish[i] == EXO_FINISH_NONE || e->finish[i] > EXO_FINISH_NOT_FINITE)
            return exo_fail(err, EXO_INVAL, "finish: answer %zu has the wrong end %d", i,
                            e->finish[i]);
        if (!isfinite((float)e->scores[i]))
            return exo_fail(err, EXO_INVAL,
                            "scores: that of answer %zu is %g, which is no finite number of single "
                            "precision: scale the reward down",
                            i, e->scores[i]);
        if (e->mask && sum < e->tokens_length && e->mask[sum] != 1)
            return exo_fail(err, EXO_INVAL,
                            "mask: answer %zu does not begin with a token of the policy", i);
        sum += (uint64_t)e->lengths[i];
    }
    if (sum != e->tokens_length)
        return exo_fail(err, EXO_INVAL, "%llu tokens in the lengths, %zu in the item",
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
        st = check_header(out, item, err);
        if (st == EXO_OK)
            st = check_values(out, err);
        if (st != EXO_OK)
            st = exo_fail_in(err, st, "experience: item %lld of maker %lld", (long long)out->id,
                             (long long)out->maker);
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
        return exo_fail_in(err, st, "experience from sender %u, message %llu", from, number);
    ++*repeated;
    EXO_LOG(INFO, GRAPH, "event=repeated item=%llu from=%u: dropped", (unsigned long long)id, from);
    return EXO_OK;
}
