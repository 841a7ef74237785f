/* Checkpoints of a trainer: see checkpoint.h. No state. */
#include "experience/checkpoint.h"

/* Lists the entries. `mark`: the caller's memory. */
static exo_status
list(const exo_trainer_state *s, exo_learned_mark *mark, exo_state **out, exo_err *err)
{
    exo_status st = exo_state_new(out, err);
    if (st != EXO_OK)
        return st;
    exo_learner_state(s->learner, *out);
    exo_state_add_u64(*out, "position", s->position);
    exo_state_add_u64(*out, "used", s->used);
    exo_state_add_u64(*out, "repeated", s->repeated);
    exo_state_add(*out, "figures", EXO_U8, s->figures, sizeof *s->figures);
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
        st = exo_checkpoints_save(&s->files, exo_learner_version(s->learner), state, err);
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
