/* Observers: see observer.h. */
#include "experience/observer.h"

enum {
    RATE,
    FLOP,
    WORK,
    TRANSFER
};

static const exo_meter_class maker_meters[EXO_OBSERVER_METERS] = {
    [RATE] = {.name = "samples_per_second",
              .unit = "samples/s",
              .help = "answers that the maker has made, over the time of its run",
              .kind = EXO_GAUGE},
    [FLOP] = {.name = "flop",
              .unit = "FLOP",
              .help = "operations of the generation: 2 for each parameter and token"},
    [WORK] = {.name = "make_share",
              .unit = "1",
              .help = "share of the time in which the maker generates and scores",
              .kind = EXO_GAUGE},
    [TRANSFER] = {.name = "send_share",
                  .unit = "1",
                  .help = "share of the time in which the maker sends, or waits for room",
                  .kind = EXO_GAUGE},
};
static const exo_meter_class trainer_meters[EXO_OBSERVER_METERS] = {
    [RATE] = {.name = "samples_per_second",
              .unit = "samples/s",
              .help = "answers that the trainer has learned from, over the time of its run",
              .kind = EXO_GAUGE},
    [FLOP] = {.name = "flop",
              .unit = "FLOP",
              .help = "operations of learning: 6 for each parameter, token and epoch"},
    [WORK] = {.name = "learn_share",
              .unit = "1",
              .help = "share of the time in which the trainer learns",
              .kind = EXO_GAUGE},
    [TRANSFER] = {.name = "update_share",
                  .unit = "1",
                  .help = "share of the time in which the trainer sends versions",
                  .kind = EXO_GAUGE},
};
static const exo_meter_class text_meters[EXO_OBSERVER_METERS] = {
    [RATE] = {.name = "samples_per_second",
              .unit = "samples/s",
              .help = "answers that the trainer has learned from, over the time of its run",
              .kind = EXO_GAUGE},
    [FLOP] = {.name = "flop",
              .unit = "FLOP",
              .help = "operations of learning: 6 for each parameter and token, of dpo_trainer 8, "
                      "as two models pass over it"},
    [WORK] = {.name = "learn_share",
              .unit = "1",
              .help = "share of the time in which the trainer learns",
              .kind = EXO_GAUGE},
    [TRANSFER] = {.name = "evaluate_share",
                  .unit = "1",
                  .help = "share of the time in which the trainer evaluates held-out samples",
                  .kind = EXO_GAUGE},
};
/* By kind: the meters, the stage that is the whole run, and the one of the last meter. */
static const struct {
    const exo_meter_class *meters;
    exo_experience_stage whole, transfer;
} kinds[] = {
    [EXO_OBSERVES_MAKER] = {maker_meters, EXO_MAKER_LOOP, EXO_MAKER_SEND},
    [EXO_OBSERVES_PPO] = {trainer_meters, EXO_TRAINER_FIT, EXO_TRAINER_UPDATE},
    [EXO_OBSERVES_TEXTS] = {text_meters, EXO_TRAINER_FIT, EXO_TRAINER_EVALUATE},
};

exo_status
exo_observer_read(exo_observer *o, exo_config *config, exo_err *err)
{
    const exo_given *given = NULL;
    exo_status st = exo_given_read(&given, config, err);
    o->callbacks = given ? &given->callbacks : NULL;
    return st;
}

static void
report(exo_observer *o)
{
    double time = (double)(exo_graph_now(o->actor) - o->began);
    exo_meter_count(o->meters[FLOP], (uint64_t)(o->flop_a_token * (double)o->tokens));
    if (time <= 0)
        return;
    exo_meter_set(o->meters[RATE], (double)o->samples / time * 1e9);
    exo_meter_set(o->meters[WORK],
                  (double)(o->kind == EXO_OBSERVES_MAKER ? o->spent[EXO_MAKER_MAKE] : o->learned) /
                      time);
    exo_meter_set(o->meters[TRANSFER], (double)o->spent[kinds[o->kind].transfer] / time);
}

void
exo_observer_tell(exo_observer *o, exo_experience_stage stage, uint64_t number, bool end)
{
    exo_time now = exo_graph_now(o->actor);
    const exo_experience_event event = {.actor = exo_graph_name(o->actor),
                                        .stage = stage,
                                        .number = number,
                                        .version = o->version,
                                        .time = now,
                                        .samples = o->samples};
    if (end) {
        o->spent[stage] += now - o->at[stage];
        o->counts[stage]++;
        report(o);
    } else {
        o->at[stage] = now;
    }
    if (o->callbacks && end && o->callbacks->end[stage])
        o->callbacks->end[stage](o->callbacks->context, &event);
    if (o->callbacks && !end && o->callbacks->start[stage])
        o->callbacks->start[stage](o->callbacks->context, &event);
}

void
exo_observer_start(exo_observer *o, exo_experience_stage stage)
{
    exo_observer_tell(o, stage, o->counts[stage], false);
}

void
exo_observer_end(exo_observer *o, exo_experience_stage stage)
{
    exo_observer_tell(o, stage, o->counts[stage], true);
}

exo_status
exo_observer_open(exo_observer *o, exo_graph_actor *actor, exo_observer_kind kind,
                  double flop_a_token, exo_err *err)
{
    o->actor = actor;
    o->kind = kind;
    o->flop_a_token = flop_a_token;
    o->began = exo_graph_now(actor);
    exo_status st = exo_meter_declare_all(o->meters, exo_graph_meters(actor), kinds[kind].meters,
                                          EXO_OBSERVER_METERS, err);
    if (st == EXO_OK)
        exo_observer_start(o, kinds[kind].whole);
    return st;
}

void
exo_observer_close(exo_observer *o)
{
    if (o->actor)
        exo_observer_end(o, kinds[o->kind].whole);
    o->actor = NULL;
}
