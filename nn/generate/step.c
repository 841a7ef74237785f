/* A generator's step: it plans the tokens to compute, runs them, appends the chosen tokens, and
 * notes which sequences have finished. The state and its owner are in generator.h. Read next:
 * forward.c, sampling.c. */
#include "nn/generate/generator.h"

static double
draw(const exo_sequence *s)
{
    return s->sampling.temperature > 0 ? exo_sampling_draw(s->sampling.seed, s->id, s->length) : 0;
}

static void
choose(void *context, size_t place, float *logits, const exo_logits_scratch *scratch)
{
    exo_generator *g = context;
    exo_sequence *s = &g->sequences[place];
    s->finite = exo_sampling_choose(&s->sampling, logits, exo_generator_decoder(g)->vocabulary,
                                    s->seen, draw(s), scratch, &s->choice);
}

static exo_choice_rule
rule_of(void *context, size_t place, const uint64_t **seen)
{
    exo_generator *g = context;
    const exo_sequence *s = &g->sequences[place];
    const exo_choice_rule rule = exo_sampling_rule(&s->sampling, draw(s));
    *seen = rule.penalty == 1.0f ? NULL : s->seen;
    return rule;
}

static void
chosen(void *context, size_t place, const exo_choice *choice)
{
    exo_generator *g = context;
    exo_sequence *s = &g->sequences[place];
    s->finite = choice->token >= 0;
    s->choice = *choice;
}

static const exo_pass_choice by_device = {.rule = rule_of, .chosen = chosen};

static exo_finish
finish_of(const exo_generator *g, const exo_sequence *s)
{
    for (size_t i = 0; i < s->sampling.num_stop_tokens; i++)
        if (s->tokens[s->length - 1] == s->stop_tokens[i])
            return EXO_FINISH_STOP;
    if (s->length - s->prompt == s->sampling.max_new_tokens)
        return EXO_FINISH_LENGTH;
    return s->length == g->opts.context ? EXO_FINISH_CONTEXT : EXO_FINISH_NONE;
}

static void
append(const exo_generator *g, exo_sequence *s)
{
    if (!s->finite) {
        s->finish = EXO_FINISH_NOT_FINITE;
        return;
    }
    size_t token = (size_t)s->choice.token;
    s->log_probs[s->length - s->prompt] = s->choice.log_prob;
    s->plain_log_probs[s->length - s->prompt] = s->choice.plain_log_prob;
    s->tokens[s->length++] = s->choice.token;
    s->seen[token / 64] |= UINT64_C(1) << token % 64;
    s->finish = finish_of(g, s);
}

/* Plans the tokens to compute. First the sequences with one token to compute: step_tokens has room
 * for all of them. Then the prompts. */
static void
plan(exo_generator *g)
{
    exo_forward *f = &g->forward;
    for (size_t i = 0; i < g->used; i++)
        g->sequences[g->order[i]].computed = 0;
    for (int prompts = 0; prompts < 2; prompts++)
        for (size_t i = 0; i < g->used && f->rows < f->shape.rows; i++) {
            exo_sequence *s = &g->sequences[g->order[i]];
            if (s->finish != EXO_FINISH_NONE || (s->cached + 1 == s->length) == (prompts == 1))
                continue;
            size_t left = s->length - s->cached, room = f->shape.rows - f->rows,
                   count = left < room ? left : room;
            exo_pass_add(f, g->order[i], s->tokens + s->cached, count, s->cached, count == left,
                         g->order[i], exo_sampling_scale(&s->sampling));
            s->computed = count;
        }
}

exo_status
exo_generator_step(exo_generator *generator, exo_err *err)
{
    exo_generator *g = generator;
    exo_forward *f = &g->forward;
    if (exo_forward_chooses(f))
        exo_pass_begin_choice(f, &by_device, g);
    else
        exo_pass_begin(f, choose, g);
    plan(g);
    exo_status st = exo_pass_run(f, err);
    if (st != EXO_OK)
        return st; /* the sequences are as they were */
    for (size_t i = 0; i < g->used; i++)
        g->sequences[g->order[i]].cached += g->sequences[g->order[i]].computed;
    for (size_t i = 0; i < f->outputs; i++)
        append(g, &g->sequences[f->tag[i]]);
    return EXO_OK;
}
