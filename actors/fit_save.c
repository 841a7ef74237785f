/* Checkpoints of a run: see fit_save.h. */
#include "actors/fit_save.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <exogym/memory.h>

#include "actors/fit_members.h"

exo_status
exo_fit_save_begin(struct run *run, uint64_t step, exo_fit_save **out, exo_err *err)
{
    const uint32_t nodes = run->fit->num_nodes;
    exo_fit_save *save = exo_calloc(1, sizeof *save);
    *out = NULL;
    if (!save)
        return exo_fail(err, EXO_NOMEM, "no memory for a checkpoint");
    save->step = step;
    save->left = nodes;
    save->elapsed = exo_fit_elapsed(run);
    save->sums = exo_calloc(nodes, sizeof *save->sums);
    save->figures = exo_fit_begin_figures(run, save->elapsed);
    exo_status st = save->sums && save->figures
                        ? exo_checkpoint_begin(run->folder, step, save->folder, err)
                        : exo_fail(err, EXO_NOMEM, "no memory for a checkpoint");
    snprintf(save->there, sizeof save->there, "%s", save->folder);
    if (st == EXO_OK && run->far && !realpath(save->folder, save->there))
        st = exo_fail(err, EXO_IO, "%s: %s", save->folder, strerror(errno));
    if (st == EXO_OK)
        *out = save;
    else
        exo_fit_save_abort(run, &save);
    return st;
}

static void
free_save(exo_fit_save **save)
{
    json_decref((*save)->figures);
    exo_free((*save)->sums);
    exo_free(*save);
    *save = NULL;
}

void
exo_fit_save_abort(struct run *run, exo_fit_save **save)
{
    if (!*save)
        return;
    exo_checkpoint_abort(run->folder, (*save)->step);
    free_save(save);
}

static ProtobufCBinaryData
bytes_of(const char *path)
{
    return (ProtobufCBinaryData){.data = (uint8_t *)(uintptr_t)path, .len = strlen(path)};
}

exo_status
exo_fit_save_ask(struct run *run, const exo_fit_save *save, uint32_t from, uint32_t rank,
                 exo_err *err)
{
    Exo__Train__Save m = EXO__TRAIN__SAVE__INIT;
    m.elapsed = save->elapsed;
    m.folder = bytes_of(save->there);
    m.has_rank = rank != from;
    m.rank = rank;
    return exo_fit_ask(run, from, "save", &m.base, err);
}

exo_status
exo_fit_save_take(struct run *run, exo_fit_save *save, uint32_t from, uint32_t rank, exo_err *err)
{
    ProtobufCMessage *reply = NULL;
    exo_status st = exo_fit_reply(run, from, &exo__train__saved__descriptor, &reply, err);
    if (st == EXO_OK) {
        snprintf(save->sums[rank], sizeof save->sums[rank], "%.64s",
                 ((const Exo__Train__Saved *)reply)->sha256);
        exo_fit_add_figures(run, rank, save->step, save->figures);
        save->left--;
    }
    exo_args_free(&reply);
    return st;
}

/* Has the node with the server write its part, while it may be training. */
static exo_status
save_server(struct run *run, const exo_fit_save *save, exo_err *err)
{
    exo_cast_round round;
    exo_payload args = {0};
    Exo__Train__SaveServer m = EXO__TRAIN__SAVE_SERVER__INIT;
    m.folder = bytes_of(save->there);
    exo_status st = exo_cast_round_open(&round, &run->cast, run->fit->timeout, err);
    if (st != EXO_OK)
        return st;
    st = exo_protocol_pack(&args, &m.base, err);
    if (st == EXO_OK)
        st = exo_cast_round_ask(&round, exo_fit_home(run), "save_server", args, err);
    while (st == EXO_OK && exo_cast_round_next(&round))
        if (round.status != EXO_OK)
            st = exo_cast_blame(&run->cast, round.actor, round.status, round.reason.text, err);
    exo_cast_round_close(&round);
    return st;
}

exo_status
exo_fit_save_end(struct run *run, exo_fit_save **save, exo_err *err)
{
    const exo_fit_save *s = *save;
    exo_status st = run->metrics ? exo_metrics_flush(run->metrics, err) : EXO_OK;
    if (st == EXO_OK)
        st = save_server(run, s, err);
    if (st == EXO_OK)
        st = exo_fit_write_figures(s->figures, s->folder, err);
    if (st == EXO_OK)
        st = exo_checkpoint_commit(run->folder, s->step, run->settings, (const char(*)[65])s->sums,
                                   run->fit->num_nodes, err);
    if (st == EXO_OK)
        free_save(save);
    else
        exo_fit_save_abort(run, save);
    return st;
}

/* Has all nodes write their parts. The first node writes those of absent nodes, with its own state:
 * a resumed run begins with all nodes. */
static exo_status
save_nodes(struct run *run, exo_fit_save *save, exo_err *err)
{
    const uint32_t first = exo_fit_member_at(run, 0);
    exo_status st = EXO_OK;
    for (uint32_t r = 0; st == EXO_OK && r < run->fit->num_nodes; r++)
        if (exo_fit_is_member(run, r) &&
            (st = exo_fit_save_ask(run, save, r, r, err)) != EXO_OK) /* others may wait for it */
            exo_fit_end_collectives(run, r, err->text);
    st = exo_fit_await_all(run, st, err);
    for (uint32_t r = 0; st == EXO_OK && r < run->fit->num_nodes; r++)
        if (exo_fit_is_member(run, r))
            st = exo_fit_save_take(run, save, r, r, err);
    for (uint32_t r = 0; st == EXO_OK && r < run->fit->num_nodes; r++) {
        if (exo_fit_is_member(run, r))
            continue;
        st = exo_fit_await_all(run, exo_fit_save_ask(run, save, first, r, err), err);
        if (st == EXO_OK)
            st = exo_fit_save_take(run, save, first, r, err);
    }
    if (st != EXO_OK)
        exo_cast_drop(&run->cast);
    return st;
}

exo_status
exo_fit_checkpoint(struct run *run, exo_err *err)
{
    exo_fit_save *save = NULL;
    exo_status st = exo_fit_save_begin(run, run->step, &save, err);
    if (st == EXO_OK)
        st = save_nodes(run, save, err);
    if (st == EXO_OK)
        return exo_fit_save_end(run, &save, err);
    exo_fit_save_abort(run, &save);
    return st;
}
