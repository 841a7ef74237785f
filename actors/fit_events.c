/* Training in segments, and the events between them: see fit_impl.h. The state belongs to the
 * trainer's thread. Read next: train_node.c, the nodes' side. */
#include "actors/fit_elastic.h"
#include "actors/fit_failures.h"
#include "actors/fit_save.h"

#include <math.h>

#include <exogym/log.h>

/* --- Events ----------------------------------------------------------------------------------- */

/* Asks one node to evaluate, or all nodes if they gather units from each other. */
static exo_status
ask_to_evaluate(struct run *run, uint32_t rank, Exo__Train__Copy copy, exo_err *err)
{
    Exo__Train__Evaluate m = EXO__TRAIN__EVALUATE__INIT;
    m.copy = copy;
    return run->together ? exo_fit_have_all(run, "evaluate", &m.base, err)
                         : exo_fit_ask(run, rank, "evaluate", &m.base, err);
}

static exo_status
read_figures(struct run *run, uint32_t rank, exo_fit_copy copy, double *loss, double *accuracy,
             exo_err *err)
{
    ProtobufCMessage *reply = NULL;
    exo_status st = exo_fit_reply(run, rank, &exo__train__figures__descriptor, &reply, err);
    if (st == EXO_OK) {
        *loss = ((const Exo__Train__Figures *)reply)->loss;
        *accuracy = ((const Exo__Train__Figures *)reply)->accuracy;
        st = exo_fit_take_figures(run, copy, (const Exo__Train__Figures *)reply, err);
    }
    exo_args_free(&reply);
    return st;
}

/* Waits for the evaluations and reads the figures of the nodes with these ranks; -1: none. `asked`
 * is the status of the requests. */
static exo_status
end_evaluation(struct run *run, exo_status asked, int local, int global, exo_err *err)
{
    exo_progress *e = &run->eval;
    exo_status st = exo_fit_await_all(run, asked, err);
    if (st == EXO_OK && local >= 0)
        st = read_figures(run, (uint32_t)local, EXO_FIT_LOCAL, &e->local_loss, &e->local_accuracy,
                          err);
    if (st == EXO_OK && global >= 0)
        st = read_figures(run, (uint32_t)global, EXO_FIT_GLOBAL, &e->global_loss,
                          &e->global_accuracy, err);
    return st;
}

/* Evaluates the first copy (local), and the average (global) on the second one if there is
 * one. Both run at the same time, unless each of them needs all nodes. */
static exo_status
evaluate_copies(struct run *run, exo_err *err)
{
    const bool stages = run->fit->stages > 1;
    const uint32_t with_loss = exo_fit_first_with_loss(run->fit);
    const uint32_t first = stages ? with_loss : exo_fit_member_at(run, 0),
                   second = stages ? with_loss : exo_fit_member_at(run, 1);
    exo_status st = ask_to_evaluate(run, first, EXO__TRAIN__COPY__OWN, err);
    if (exo_fit_num_members(run) == 1)
        return end_evaluation(run, st, (int)first, (int)first, err);
    if (run->together)
        st = end_evaluation(run, st, (int)first, -1, err);
    if (st == EXO_OK)
        st = ask_to_evaluate(run, second, EXO__TRAIN__COPY__AVERAGE, err);
    return end_evaluation(run, st, run->together ? -1 : (int)first, (int)second, err);
}

static exo_status
evaluate(struct run *run, exo_err *err)
{
    run->evaluated = true;
    run->eval.local_loss = run->eval.global_loss = (double)NAN;
    run->eval.local_accuracy = run->eval.global_accuracy = (double)NAN;
    if (run->fit->val_count == 0)
        return EXO_OK;

    exo_status st =
        exo_fit_num_members(run) > 1 ? exo_fit_have_all(run, "average", NULL, err) : EXO_OK;
    if (st == EXO_OK)
        st = evaluate_copies(run, err);
    if (st != EXO_OK || !run->metrics)
        return st;
    const exo_eval_row row = {
        .step = run->step,
        .seconds = (double)exo_fit_elapsed(run) * 1e-9,
        .bytes_sent = run->bytes_sent,
        .local_loss = run->eval.local_loss,
        .global_loss = run->eval.global_loss,
        .local_accuracy = run->eval.local_accuracy,
        .global_accuracy = run->eval.global_accuracy,
    };
    return exo_metrics_validation(run->metrics, &row, err);
}

/* Evaluates and writes the run's meters. Meters are written at these steps also without validation
 * data. */
static exo_status
look(struct run *run, exo_err *err)
{
    exo_status st = evaluate(run, err);
    return st == EXO_OK && run->metrics
               ? exo_metrics_meters(run->metrics, run->step, exo_fit_meters(run), err)
               : st;
}

static exo_status
correlate(struct run *run, exo_err *err)
{
    exo_status st = exo_fit_have_all(run, "correlate", NULL, err);
    ProtobufCMessage *reply = NULL;
    if (st == EXO_OK)
        st = exo_fit_reply(run, exo_fit_member_at(run, 0), &exo__train__correlation__descriptor,
                           &reply, err);
    if (st == EXO_OK && run->metrics)
        st = exo_metrics_correlation(run->metrics, run->step,
                                     ((const Exo__Train__Correlation *)reply)->mean, err);
    exo_args_free(&reply);
    return st;
}

/* Does something that needs the present nodes. If one of them dies, it is done again with the
 * others. */
static exo_status
persist(struct run *run, exo_status (*event)(struct run *, exo_err *), exo_err *err)
{
    exo_status st = event(run, err), lost = st;
    while (lost == EXO_PEER_LOST && (st = exo_fit_recover(run, lost, err)) == EXO_OK)
        lost = st = event(run, err);
    return st;
}

static bool
is_due(uint64_t step, uint64_t interval)
{
    return interval != 0 && step % interval == 0;
}

static exo_status
run_events(struct run *run, exo_err *err)
{
    const exo_fit_opts *opts = run->opts;
    bool last = run->step == run->fit->max_steps;
    exo_status st = EXO_OK;
    if (is_due(run->step, opts->val_interval) || last) {
        st = persist(run, look, err);
        if (st == EXO_OK)
            exo_fit_report(run, run->fit->val_count > 0);
    }
    if (st == EXO_OK && is_due(run->step, opts->correlation_interval))
        st = persist(run, correlate, err);
    if (st == EXO_OK && opts->stop && *opts->stop && !last)
        run->stopped = true;
    bool due = run->step > 0 && is_due(run->step, opts->checkpoint_interval);
    /* The final checkpoint lets a finished run continue with more steps. */
    bool ends = run->stopped || (last && opts->final_checkpoint);
    if (st != EXO_OK || !opts->save_dir || (!due && !ends))
        return st;
    st = persist(run, exo_fit_checkpoint, err);
    return st != EXO_OK && run->stopped
               ? exo_fail_in(err, st, "the run was stopped, and its state is not saved%s",
                             run->far ? ", for which all hosts must share its folder" : "")
               : st;
}

/* Changes the network to a new graph. Nodes on workers change their own links and codec. Those of
 * nodes in this process are shared and are changed here, while the nodes are idle. */
static exo_status
change_graph(struct run *run, const exo_graph_spec *next, const char *text, exo_err *err)
{
    if (!run->far)
        return exo_fit_change(run->fit, run->fit->comm, next, err);
    Exo__Train__NodeChange m = EXO__TRAIN__NODE_CHANGE__INIT;
    m.graph = exo_args_text(text);
    return exo_fit_have_all(run, "change", &m.base, err);
}

/* Applies the requested changes of the graph; all nodes are idle. If a change fails, `changed` is
 * told and the run continues with the old graph. */
static void
look_for_change(struct run *run)
{
    const exo_graph_spec *next = NULL;
    const char *text = NULL;
    if (!run->live || !run->fit->graph)
        return;
    while (run->live->next(run->live->context, run->step, run->fit->graph, &next, &text)) {
        exo_err err = {0};
        exo_status st = change_graph(run, next, text, &err);
        if (st == EXO_OK)
            run->fit->graph = next;
        run->live->changed(run->live->context, run->step, (exo_time)exo_fit_elapsed(run), st,
                           err.text);
    }
}

/* --- Training --------------------------------------------------------------------------------- */

/* The step at which the next segment ends: that of the next event, or the step after about SEGMENT
 * or FAR_SEGMENT, unless the nodes are apart. */
static uint64_t
segment_end(const struct run *run)
{
    const exo_fit_opts *opts = run->opts;
    uint64_t end = run->fit->max_steps;
    if (!run->apart || run->fit->val_count > 0) /* nodes that are apart do not meet for nothing */
        end = exo_fit_next_due(run->step, opts->val_interval, end);
    end = exo_fit_next_due(run->step, opts->correlation_interval, end);
    if (!run->apart)
        end = exo_fit_next_due(run->step, opts->checkpoint_interval, end);
    uint64_t change = run->live && run->live->due ? run->live->due(run->live->context) : UINT64_MAX;
    end = change > run->step && change < end ? change : end;
    if (run->apart)
        return end;
    if (run->failures && run->elastic)
        return run->step + 1; /* nodes may fail in any step */
    const uint64_t steps = exo_fit_stretch(run);
    return end - run->step > steps ? run->step + steps : end;
}

/* Reads the replies of all nodes. *first: that with the most steps, of the lowest rank with losses. */
static exo_status
read_replies(struct run *run, size_t steps, ProtobufCMessage **first, exo_err *err)
{
    uint64_t bytes = 0;
    exo_status st = EXO_OK;
    for (uint32_t r = 0; st == EXO_OK && r < run->fit->num_nodes; r++) {
        ProtobufCMessage *reply = NULL;
        if (!exo_fit_is_member(run, r))
            continue;
        st = exo_fit_read_trained(run, r, steps, &reply, err);
        const Exo__Train__Trained *now = (const Exo__Train__Trained *)reply;
        if (st == EXO_OK) {
            const uint64_t sent = exo_fit_note_bytes(run, r, now->bytes_sent);
            bytes = run->elastic ? sent : bytes + sent;
        }
        if (st == EXO_OK && exo_fit_has_loss(run->fit, r) &&
            (!*first || now->n_loss > ((const Exo__Train__Trained *)*first)->n_loss)) {
            exo_args_free(first);
            *first = reply;
            reply = NULL;
        }
        exo_args_free(&reply);
    }
    if (st == EXO_OK)
        run->bytes_sent = exo_fit_mean_bytes(run, bytes);
    return st;
}

static exo_status
record_segment(struct run *run, size_t steps, exo_time took, exo_time took_here, exo_err *err)
{
    ProtobufCMessage *first = NULL;
    exo_status st = read_replies(run, steps, &first, err);
    if (st == EXO_OK)
        st = exo_fit_record_steps(run, (const Exo__Train__Trained *)first, steps, took, took_here,
                                  err);
    exo_args_free(&first);
    return st;
}

static exo_status
train_segment(struct run *run, exo_err *err)
{
    uint64_t end = segment_end(run);
    exo_time before = exo_fit_now(run), before_here = exo_now(run->clock);
    Exo__Train__Train args = EXO__TRAIN__TRAIN__INIT;
    args.until = end;
    exo_status st, lost;
    if (run->apart)
        return exo_fit_train_apart(run, end, err);
    do {
        exo_fit_expect_nodes(run, exo_fit_num_members(run));
        lost = st = exo_fit_have_all(run, "train", &args.base, err);
    } while (lost == EXO_PEER_LOST && (st = exo_fit_recover(run, lost, err)) == EXO_OK);
    if (st == EXO_OK)
        st = record_segment(run, (size_t)(end - run->step), exo_fit_now(run) - before,
                            exo_now(run->clock) - before_here, err);
    if (st == EXO_OK)
        exo_fit_report(run, false);
    return st;
}

/* Writes a checkpoint of the nodes that are left, when they are too few to go on. */
static void
save_rest(struct run *run)
{
    exo_err err = {0};
    const exo_fit_opts *o = run->opts;
    if (!run->elastic || !o->save_dir || (!o->checkpoint_interval && !o->final_checkpoint) ||
        exo_fit_num_members(run) == 0)
        return;
    exo_status st = exo_fit_agree_on_step(run, &err);
    if (st == EXO_OK && run->step > 0)
        st = exo_fit_checkpoint(run, &err);
    if (st != EXO_OK)
        EXO_LOG(WARN, TRAIN, "reason='%s' there is no checkpoint of the nodes that are left",
                err.text);
}

exo_status
exo_fit_train(struct run *run, exo_err *err)
{
    exo_status st = EXO_OK;
    exo_fit_report(run, false);
    if (run->step == 0)
        st = run_events(run, err);
    while (st == EXO_OK && !run->stopped && run->step < run->fit->max_steps) {
        look_for_change(run);
        st = exo_fit_admit(run, err);
        if (st == EXO_OK)
            st = exo_fit_before_failures(run, err);
        if (st == EXO_OK)
            st = train_segment(run, err);
        if (st == EXO_OK)
            st = exo_fit_after_failures(run, err);
        if (st == EXO_OK)
            st = run_events(run, err);
    }
    if (st == EXO_OK && !run->stopped && !run->evaluated)
        st = persist(run, look,
                     err); /* resumed after the last step, so no step led to an evaluation */
    if (st == EXO_PEER_LOST)
        save_rest(run);
    return st;
}
