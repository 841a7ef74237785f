/* Checkpoints of a trainer: see checkpoint.h. No state. */
#include "experience/checkpoint.h"

/* Lists figures, each as the bytes of a double under its own name. */
static void
list_figures(exo_state *state, exo_learner_figures *f)
{
    const struct {
        const char *name;
        double *value;
    } all[] = {{"items", &f->items},
               {"answers", &f->answers},
               {"tokens", &f->tokens},
               {"score", &f->score},
               {"kl", &f->kl},
               {"kl_coef", &f->kl_coef},
               {"loss", &f->loss},
               {"value_loss", &f->value_loss},
               {"ptx_loss", &f->ptx_loss},
               {"norm", &f->norm},
               {"clipped", &f->clipped},
               {"ratio_off", &f->ratio_off},
               {"kl_makers", &f->kl_makers},
               {"chi_squared", &f->chi_squared},
               {"effective", &f->effective},
               {"last_kl", &f->last_kl}};
    exo_state_prefix(state, "figures");
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        exo_state_add(state, all[i].name, EXO_U8, all[i].value, sizeof *all[i].value);
    exo_state_add_u64(state, "steps", &f->steps);
    exo_state_prefix(state, NULL);
}

/* Lists the entries. `mark`: the caller's memory. */
static exo_status
list(const exo_trainer_state *s, exo_learned_mark *mark, exo_state **out, exo_err *err)
{
    exo_status st = exo_state_new(out, err);
    if (st != EXO_OK)
        return st;
    exo_learner_state(s->learner, *out);
    exo_state_add_u64(*out, "position", s->position);
    if (s->ahead_bytes > 0)
        exo_state_add(*out, "ahead", EXO_U8, s->ahead, s->ahead_bytes);
    exo_state_add_u64(*out, "used", s->used);
    exo_state_add_u64(*out, "repeated", s->repeated);
    list_figures(*out, s->figures);
    exo_state_add_u64(*out, "items_bytes", &mark->items);
    exo_state_add_u64(*out, "versions_bytes", &mark->versions);
    return EXO_OK;
}

exo_status
exo_trainer_save(const exo_trainer_state *s, exo_err *err)
{
    exo_state *state = NULL;
    exo_learned_mark mark = {0};
    exo_status st = exo_learned_flush(*s->learned, &mark, err);
    if (st == EXO_OK)
        st = list(s, &mark, &state, err);
    if (st == EXO_OK)
        st = exo_checkpoints_save(&s->files, exo_learned_table(*s->learned),
                                  exo_learner_version(s->learner), state, err);
    exo_state_free(&state);
    return st;
}

static exo_status
read_file(const exo_trainer_state *s, uint64_t version, exo_learned_mark *mark, exo_err *err)
{
    exo_state *state = NULL;
    exo_status st = list(s, mark, &state, err);
    if (st == EXO_OK)
        st = exo_checkpoints_load(&s->files, version, state, err);
    exo_state_free(&state);
    return st == EXO_OK ? exo_learned_check(s->files.folder, s->files.actor, mark, s->learner, err)
                        : st;
}

exo_status
exo_trainer_load(const exo_trainer_state *s, uint64_t version, exo_err *err)
{
    exo_learned_mark mark = {0};
    exo_status st = version > 0 ? read_file(s, version, &mark, err) : EXO_OK;
    if (st == EXO_OK)
        st = exo_learned_open(s->learned, s->files.folder, s->files.actor,
                              version > 0 ? &mark : NULL, err);
    return st == EXO_OK ? exo_checkpoints_remove_after(&s->files, version, err) : st;
}

exo_status
exo_trainer_resume(const exo_trainer_state *s, exo_err *err)
{
    uint64_t version = 0;
    exo_status st = exo_checkpoints_agree(&s->files, &version, err);
    return st == EXO_OK ? exo_trainer_load(s, version, err) : st;
}
