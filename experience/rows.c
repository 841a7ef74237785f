/* Rows: see rows.h. */
#include "experience/rows.h"

#include <string.h>

#include <exogym/memory.h>

enum {
    STEP = 16 /* lengths are multiples of it, so that few different shapes occur */
};

void
exo_rows_release(exo_rows *r)
{
    exo_free(r->tokens);
    exo_free(r->targets);
    exo_free(r->mask);
    exo_free(r->behaviour);
    *r = (exo_rows){0};
}

static exo_status
make_room(exo_rows *r, size_t count, exo_err *err)
{
    if (count <= r->room)
        return EXO_OK;
    exo_rows_release(r);
    r->tokens = exo_calloc(count, sizeof *r->tokens);
    r->targets = exo_calloc(count, sizeof *r->targets);
    r->mask = exo_calloc(count, sizeof *r->mask);
    r->behaviour = exo_calloc(count, sizeof *r->behaviour);
    if (!r->tokens || !r->targets || !r->mask || !r->behaviour) {
        exo_rows_release(r);
        return exo_fail(err, EXO_NOMEM, "no memory for %zu rows", count);
    }
    r->room = count;
    return EXO_OK;
}

bool
exo_pick_is_action(const exo_pick *p, size_t token)
{
    return !p->from->mask || p->from->mask[p->first + token];
}

const float *
exo_pick_behaviour(const exo_pick *p)
{
    return (exo_experience_is_plain(p->from) ? p->from->plain_log_probs : p->from->log_probs) +
           p->first;
}

static size_t
length_of(const exo_pick *p)
{
    return p->from->prompt_length + (size_t)p->from->lengths[p->answer];
}

static void
fill_answer(exo_rows *r, size_t n, const exo_pick *p)
{
    const exo_experience *e = p->from;
    size_t count = (size_t)e->lengths[p->answer], first = n * r->length;
    memcpy(r->tokens + first, e->prompt_tokens, e->prompt_length * sizeof *r->tokens);
    memcpy(r->tokens + first + e->prompt_length, e->tokens + p->first,
           (count - 1) * sizeof *r->tokens); /* nothing follows the last token */
    first += e->prompt_length - 1;
    memcpy(r->behaviour + first, exo_pick_behaviour(p), count * sizeof *r->behaviour);
    for (size_t i = 0; i < count; i++) {
        if (!exo_pick_is_action(p, i))
            continue;
        r->targets[first + i] = e->tokens[p->first + i];
        r->mask[first + i] = 1;
        r->actions++;
    }
}

exo_status
exo_rows_fill(exo_rows *r, const exo_pick *picks, size_t count, size_t context, exo_err *err)
{
    size_t longest = 0, at = 0;
    for (size_t i = 0; i < count; i++)
        if (length_of(&picks[i]) - 1 > longest) {
            longest = length_of(&picks[i]) - 1;
            at = i;
        }
    if (longest > context)
        return exo_fail(err, EXO_INVAL,
                        "item %llu has an answer that needs a context of %zu; the model's is %zu",
                        (unsigned long long)picks[at].from->id, longest, context);
    size_t length = (longest + STEP - 1) / STEP * STEP;
    length = length < context ? length : context;
    exo_status st = make_room(r, count * length, err);
    if (st != EXO_OK)
        return st;
    r->answers = count;
    r->length = length;
    r->actions = 0;
    memset(r->tokens, 0, count * length * sizeof *r->tokens);
    memset(r->targets, 0xff, count * length * sizeof *r->targets);
    memset(r->mask, 0, count * length * sizeof *r->mask);
    memset(r->behaviour, 0, count * length * sizeof *r->behaviour);
    for (size_t i = 0; i < count; i++)
        fill_answer(r, i, &picks[i]);
    return EXO_OK;
}

size_t
exo_rows_first(const exo_rows *r, const exo_pick *picks, size_t answer)
{
    return answer * r->length + picks[answer].from->prompt_length - 1;
}

exo_batch
exo_rows_batch(const exo_rows *r)
{
    exo_batch batch = {.size = r->answers, .num_fields = 1};
    batch.fields[0] =
        (exo_field){.name = "tokens", .dtype = EXO_I32, .num_dims = 1, .dims = {r->length}};
    batch.data[0] = r->tokens;
    return batch;
}
