/* Drafts: see draft.h. */
#include "experience/draft.h"

#include <string.h>

#include <exogym/memory.h>

size_t
exo_draft_most(const exo_draft_rules *r)
{
    const exo_tool_shape *s = r->tool ? exo_tool_shape_of(r->tool) : NULL;
    size_t drawn = r->max_new_tokens;
    if (!s)
        return drawn;
    if (s->turn_tokens && s->turn_tokens < (drawn + s->turns - 1) / s->turns)
        drawn = s->turns * s->turn_tokens;
    return drawn + s->turns * s->reply_tokens;
}

exo_status
exo_draft_init(exo_draft *d, const exo_draft_rules *r, exo_err *err)
{
    size_t most = exo_draft_most(r), state = r->tool ? exo_tool_shape_of(r->tool)->state : 0;
    d->tokens = exo_calloc(r->longest_prompt + most, sizeof *d->tokens);
    d->log_probs = exo_calloc(most, sizeof *d->log_probs);
    d->plain = exo_calloc(most, sizeof *d->plain);
    d->versions = exo_calloc(most, sizeof *d->versions);
    d->caches = exo_calloc(most, sizeof *d->caches);
    d->mask = exo_calloc(most, sizeof *d->mask);
    d->rewards = exo_calloc(most, sizeof *d->rewards);
    d->state = exo_alloc_aligned(state ? state : 1);
    return d->tokens && d->log_probs && d->plain && d->versions && d->caches && d->mask &&
                   d->rewards && d->state
               ? EXO_OK
               : exo_fail(err, EXO_NOMEM, "no memory for an answer of %zu tokens", most);
}

void
exo_draft_release(exo_draft *d)
{
    void *all[] = {d->tokens, d->log_probs, d->plain,   d->versions,
                   d->caches, d->mask,      d->rewards, d->state};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        exo_free(all[i]);
    *d = (exo_draft){0};
}

void
exo_draft_begin(exo_draft *d, const exo_draft_rules *r, const int32_t *prompt, size_t count)
{
    memcpy(d->tokens, prompt, count * sizeof *d->tokens);
    d->prompt = count;
    d->finish = EXO_FINISH_NONE;
    d->scored = d->waits = false;
    exo_draft_rewind(d, r);
}

void
exo_draft_rewind(exo_draft *d, const exo_draft_rules *r)
{
    d->length = d->known = d->prompt;
    d->drawn = d->turn = d->first = 0;
    d->earned = 0;
    if (r->tool && exo_tool_shape_of(r->tool)->state)
        memset(d->state, 0, exo_tool_shape_of(r->tool)->state);
}

size_t
exo_draft_left(const exo_draft *d, const exo_draft_rules *r)
{
    size_t left = r->max_new_tokens - d->drawn, turn = d->length - d->prompt - d->first;
    size_t limit = r->tool ? exo_tool_shape_of(r->tool)->turn_tokens : 0;
    return limit && limit - turn < left ? limit - turn : left;
}

void
exo_draft_add(exo_draft *d, const exo_generated *g, uint64_t version)
{
    size_t at = d->length - d->prompt, have = d->length - d->known;
    size_t count = g->length - g->prompt - have;
    memcpy(d->tokens + d->length, g->tokens + d->length, count * sizeof *d->tokens);
    memcpy(d->log_probs + at, g->log_probs + have, count * sizeof *d->log_probs);
    memcpy(d->plain + at, g->plain_log_probs + have, count * sizeof *d->plain);
    memset(d->mask + at, 1, count);
    memset(d->rewards + at, 0, count * sizeof *d->rewards);
    for (size_t i = at; i < at + count; i++) {
        d->versions[i] = (int64_t)version;
        d->caches[i] = d->cache;
    }
    d->length += count;
    d->drawn += count;
    d->waits = d->waits && count == 0;
}

/* --- Turns ------------------------------------------------------------------------------------ */

/* Whether the last token ends a turn. */
static bool
is_stopped(const exo_draft *d, const exo_tool_shape *s)
{
    for (size_t i = 0; i < s->num_stop; i++)
        if (d->tokens[d->length - 1] == s->stop[i])
            return true;
    return false;
}

/* Asks the tool, and appends its reply. */
static exo_status
take_reply(exo_draft *d, const exo_draft_rules *r, uint64_t id, bool stopped, exo_tool_reply *reply,
           exo_err *err)
{
    exo_rng rng;
    size_t at = d->length - d->prompt;
    const exo_tool_turn turn = {.prompt = d->tokens,
                                .prompt_length = d->prompt,
                                .tokens = d->tokens + d->prompt,
                                .mask = d->mask,
                                .length = at,
                                .first = d->first,
                                .number = d->turn,
                                .stopped = stopped,
                                .rng = &rng,
                                .tokenizer = r->tokenizer};
    exo_rng_init(&rng, r->seed, EXO_RNG_TOOL, (uint32_t)d->turn, id);
    reply->tokens = d->tokens + d->length;
    exo_status st = exo_tool_answer(r->tool, d->state, &turn, reply, err);
    for (size_t i = 0; st == EXO_OK && i < reply->length; i++)
        if (reply->tokens[i] < 0 || (size_t)reply->tokens[i] >= r->vocabulary)
            st = exo_fail(err, EXO_INVAL,
                          "the tool replied with token %d; the model's vocabulary is %zu",
                          reply->tokens[i], r->vocabulary);
    if (st != EXO_OK)
        return st;
    memset(d->log_probs + at, 0, reply->length * sizeof *d->log_probs);
    memset(d->plain + at, 0, reply->length * sizeof *d->plain);
    memset(d->rewards + at, 0, reply->length * sizeof *d->rewards);
    memset(d->mask + at, 0, reply->length);
    for (size_t i = at; i < at + reply->length; i++)
        d->versions[i] = d->caches[i] = -1;
    d->rewards[at - 1] = (float)reply->reward;
    d->earned += (double)d->rewards[at - 1];
    d->length += reply->length;
    d->first = at + reply->length;
    d->turn++;
    return EXO_OK;
}

exo_status
exo_draft_end_turn(exo_draft *d, const exo_draft_rules *r, uint64_t id, exo_finish finish,
                   size_t *added, exo_err *err)
{
    exo_tool_reply reply = {0};
    const exo_tool_shape *s = r->tool ? exo_tool_shape_of(r->tool) : NULL;
    bool stopped = s && finish == EXO_FINISH_STOP && is_stopped(d, s);
    bool limit = s && finish == EXO_FINISH_LENGTH && d->drawn < r->max_new_tokens;
    *added = 0;
    if (!stopped && !limit) {
        d->finish = finish;
        return EXO_OK;
    }
    exo_status st = take_reply(d, r, id, stopped, &reply, err);
    if (st != EXO_OK)
        return st;
    *added = reply.length;
    if (reply.ends)
        d->finish = EXO_FINISH_STOP;
    else if (d->turn == s->turns || d->drawn == r->max_new_tokens)
        d->finish = EXO_FINISH_LENGTH;
    else
        d->known = d->length;
    return EXO_OK;
}
