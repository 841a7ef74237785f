/* The weights of a maker: see maker_weights.h. */
#include "experience/maker_weights.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include <exogym/memory.h>

enum {
    MAX_TRAINERS = 1 << 16 /* that are apart */
};

/* What a version of a trainer says about draws. */
struct position {
    int64_t life; /* of the trainers; -1: none has said anything */
    uint64_t round, quota, learned;
    uint32_t trainers;
    uint64_t update, under_way; /* those of exo_parameters, with `learns` */
    exo_time learns;
};

/* What a trainer that is apart from the others says about its own draws. */
struct word {
    int64_t life;
    uint64_t version, quota, learned;
};

/* The same: `now` holds for the version in use, `next` is the newest word, and holds from its version
 * on, or a later one of any trainer. */
struct allowance {
    struct word now, next;
};

/* A draw that was dealt, with the version that it may be made with. */
struct deal {
    int64_t life;
    uint64_t round, version, draw;
};

struct exo_maker_weights {
    exo_experience_source *source;
    exo_uptake *uptake;
    uint64_t version;
    struct position now, next;    /* of the version in use, and of that of the uptake */
    bool again;                   /* exo_maker_weights_begins_again */
    struct allowance *allowances; /* (trainers) NULL: the trainers are not apart */
    uint32_t trainers;
    uint32_t owner; /* the trainer whose version the uptake has taken last */
    /* (2 num_finished) ranges of draws of the last position that came (exo_parameters), and their step */
    uint64_t *finished, step;
    size_t num_finished, finished_room;
    exo_maker_start start;
    exo_dealing dealing;
    uint32_t dealer;    /* the trainer that deals */
    struct deal *deals; /* (num_deals) not begun */
    size_t num_deals, deals_room;
    struct deal last; /* life and round of the last update */
    exo_item *held;   /* an update that waits for the uptake */
    uint32_t from;    /* the sender of the update that the uptake has */
    bool is_virtual;  /* the clock */
    exo_maker_weights_figures figures;
};

exo_status
exo_maker_weights_new(exo_maker_weights **out, exo_experience_source *source,
                      const exo_maker_start *start, exo_graph_actor *actor, exo_err *err)
{
    exo_maker_weights *w = exo_calloc(1, sizeof *w);
    if (!w)
        return exo_fail(err, EXO_NOMEM, "no memory for the weights of a maker");
    w->source = source;
    w->start = *start;
    w->now = w->next = (struct position){
        .life = -1, .quota = exo_graph_input(actor, "parameters") ? 0 : UINT64_MAX};
    if (start->draws > 0 && w->now.quota == 0 && !exo_graph_resumes(actor))
        w->now = w->next = (struct position){.quota = start->draws, .trainers = start->trainers};
    w->is_virtual = exo_graph_is_virtual(actor);
    exo_status st = exo_uptake_new(
        &w->uptake, exo_experience_source_model(source), exo_experience_source_params(source),
        exo_experience_source_generator(source), exo_experience_source_part(source), err);
    if (st == EXO_OK)
        *out = w;
    else
        exo_maker_weights_free(&w);
    return st;
}

void
exo_maker_weights_free(exo_maker_weights **weights)
{
    exo_maker_weights *w = *weights;
    *weights = NULL;
    if (!w)
        return;
    exo_item_drop(&w->held);
    exo_uptake_free(&w->uptake);
    exo_free(w->allowances);
    exo_free(w->finished);
    exo_free(w->deals);
    exo_free(w);
}

/* What the trainer of a draw says in the present life; trainers are apart. */
static struct word
word_about(const exo_maker_weights *w, uint64_t draw)
{
    struct word word = w->allowances[draw % w->trainers].now;
    return word.life == w->now.life ? word : (struct word){.life = w->now.life};
}

bool
exo_maker_weights_allows(const exo_maker_weights *w, uint64_t draw)
{
    return draw < (w->allowances ? word_about(w, draw).quota : w->now.quota);
}

uint64_t
exo_maker_weights_aim(const exo_maker_weights *w, uint64_t draw, uint64_t batch, exo_time takes)
{
    const struct position *p = &w->now;
    uint64_t learned = w->version * p->update;
    if (w->allowances || exo_maker_weights_is_dealt(w) || p->update == 0 ||
        draw < learned + p->update || p->quota < learned + p->under_way)
        return 0;
    uint64_t share = p->under_way / (2 * p->update) * p->update / w->start.makers;
    double learns = (double)p->learns * (double)p->under_way / (double)p->update;
    return (double)takes > learns || batch < share ? batch : share;
}

bool
exo_maker_weights_is_unknown(const exo_maker_weights *w)
{
    return w->now.life < 0 && w->now.quota == 0;
}

bool
exo_maker_weights_begins_again(exo_maker_weights *w, uint64_t *learned)
{
    bool again = w->again;
    w->again = false;
    *learned = w->now.learned;
    for (uint32_t i = 0; w->allowances && i < w->trainers; i++) {
        uint64_t own = word_about(w, i).learned;
        *learned = i == 0 || own < *learned ? own : *learned;
    }
    return again;
}

bool
exo_maker_weights_has_finished(const exo_maker_weights *w, uint64_t draw)
{
    size_t low = 0, high = w->num_finished; /* those before `low` begin at the draw, or before it */
    if (w->allowances && draw < word_about(w, draw).learned)
        return true;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (w->finished[2 * middle] <= draw)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == 0)
        return false;
    uint64_t after = draw - w->finished[2 * low - 2];
    return after % w->step == 0 && after / w->step < w->finished[2 * low - 1];
}

int64_t
exo_maker_weights_life(const exo_maker_weights *w)
{
    return w->now.life;
}

uint32_t
exo_maker_weights_trainers(const exo_maker_weights *w)
{
    return w->now.trainers;
}

uint64_t
exo_maker_weights_version(const exo_maker_weights *w)
{
    return w->version;
}

const exo_maker_weights_figures *
exo_maker_weights_figures_of(const exo_maker_weights *w)
{
    return &w->figures;
}

/* --- Replies ---------------------------------------------------------------------------------- */

/* Sends a reply that is for trainer `to` to a target. reply NULL: the maker has sent all its draws. */
static exo_status
send_to(const exo_maker_weights *w, exo_graph_actor *actor, uint32_t target, uint32_t to,
        const exo_update_reply *reply, bool passed, exo_err *err)
{
    const exo_update_reply none = {.answer = EXO_UPDATE_NEED_WHOLE};
    exo_parameters_reply r = {.life = exo_graph_life(actor),
                              .trainer = to,
                              .room = w->start.room,
                              .portion = w->start.portion,
                              .total = w->start.total,
                              .sent = !reply,
                              .passed = passed,
                              .format = exo_experience_source_format(w->source),
                              .reply = reply ? *reply : none};
    exo_item *item = NULL;
    snprintf(r.maker, sizeof r.maker, "%s", exo_graph_name(actor));
    exo_status st = exo_parameters_reply_new(&item, &r, err);
    if (st == EXO_OK)
        st = exo_port_send_to(exo_graph_output(actor, "experience"), target, &item,
                              EXO_PORT_TIMEOUT, err);
    return st == EXO_CLOSED ? EXO_OK : st; /* the trainer has ended: the next send says so */
}

/* Sends a reply to trainer `to`, or to the only target, such as a replay_buffer, which may pass it on.
 * A trainer that the maker's experience cannot reach gets none, and sends no further update; another
 * one does. */
static exo_status
send_reply(const exo_maker_weights *w, exo_graph_actor *actor, uint32_t to,
           const exo_update_reply *reply, bool passed, exo_err *err)
{
    exo_port *port = exo_graph_output(actor, "experience");
    uint32_t targets = exo_port_targets(port), index = 0, target = targets;
    char name[96];
    for (uint32_t i = 0; i < targets; i++)
        if (exo_port_target(port, i, name, sizeof name, &index) && index == to)
            target = i;
    if (target == targets && targets == 1)
        target = 0;
    return target == targets ? EXO_OK : send_to(w, actor, target, to, reply, passed, err);
}

static exo_status
send_to_all(const exo_maker_weights *w, exo_graph_actor *actor, const exo_update_reply *reply,
            exo_err *err)
{
    uint32_t targets = exo_port_targets(exo_graph_output(actor, "experience"));
    exo_status st = EXO_OK;
    for (uint32_t i = 0; st == EXO_OK && i < targets; i++)
        st = send_to(w, actor, i, EXO_ALL_TRAINERS, reply, false, err);
    return st;
}

exo_status
exo_maker_weights_greet(const exo_maker_weights *w, exo_graph_actor *actor, exo_err *err)
{
    const exo_update_reply reply = {.answer = EXO_UPDATE_NEED_WHOLE};
    return send_to_all(w, actor, &reply, err);
}

exo_status
exo_maker_weights_say_sent(const exo_maker_weights *w, exo_graph_actor *actor, exo_err *err)
{
    return send_to_all(w, actor, NULL, err);
}

/* --- Updates ---------------------------------------------------------------------------------- */

/* Holds an item. Messages that only deal draws do not count as transfers of weights. */
static void
hold(exo_maker_weights *w, exo_item *item)
{
    exo_parameters p;
    assert(!w->held); /* it would get no answer */
    w->held = item;
    if (exo_parameters_view(&p, item, NULL) != EXO_OK || p.size > 0)
        w->figures.transfer = (double)(item->received - item->sent) * 1e-9;
}

/* Takes the next update from the port, if there is one and none is held. */
static exo_status
fetch(exo_maker_weights *w, exo_graph_actor *actor, exo_err *err)
{
    exo_port *port = exo_graph_input(actor, "parameters");
    exo_item *item = NULL;
    if (w->held || exo_port_pending(port) == 0)
        return EXO_OK;
    exo_status st = exo_port_receive(port, 0, &item, err);
    if (st == EXO_OK)
        hold(w, item);
    return st == EXO_TIMEOUT || st == EXO_CLOSED ? EXO_OK : st;
}

static struct position
position_of(const exo_parameters *p)
{
    return (struct position){.life = p->life,
                             .round = p->round,
                             .quota = p->quota,
                             .learned = p->learned,
                             .trainers = p->trainers,
                             .update = p->update,
                             .under_way = p->under_way,
                             .learns = p->learns};
}

/* Copies which draws are finished. */
static exo_status
note_finished(exo_maker_weights *w, const exo_parameters *p, exo_err *err)
{
    if (p->num_finished > w->finished_room) {
        uint64_t *more = exo_realloc(w->finished, p->num_finished, 2 * sizeof *more);
        if (!more)
            return exo_fail(err, EXO_NOMEM, "no memory for a list of %zu ranges of draws",
                            p->num_finished);
        w->finished = more;
        w->finished_room = p->num_finished;
    }
    w->num_finished = p->num_finished;
    w->step = p->trainers;
    if (p->num_finished > 0)
        memcpy(w->finished, p->finished, 2 * p->num_finished * sizeof *w->finished);
    return EXO_OK;
}

/* --- Deals ------------------------------------------------------------------------------------ */

bool
exo_maker_weights_is_dealt(const exo_maker_weights *w)
{
    return w->dealing != EXO_DEALT_BEFOREHAND;
}

bool
exo_maker_weights_expects(const exo_maker_weights *w)
{
    return w->dealing == EXO_DEALING || w->num_deals > 0;
}

bool
exo_maker_weights_next_draw(exo_maker_weights *w, bool take, uint64_t *draw)
{
    size_t best = w->num_deals;
    for (size_t i = 0; i < w->num_deals; i++) {
        const struct deal *d = &w->deals[i];
        if (d->life == w->now.life && d->round == w->now.round && d->version <= w->version &&
            (best == w->num_deals || d->draw < w->deals[best].draw))
            best = i;
    }
    if (best == w->num_deals)
        return false;
    *draw = w->deals[best].draw;
    if (take)
        w->deals[best] = w->deals[--w->num_deals];
    return true;
}

static exo_status
add_deal(exo_maker_weights *w, const struct deal *deal, exo_err *err)
{
    for (size_t i = 0; i < w->num_deals; i++)
        if (w->deals[i].draw == deal->draw)
            return EXO_OK;
    if (w->num_deals == w->deals_room) {
        size_t room = 2 * w->deals_room + 16;
        struct deal *more = exo_realloc(w->deals, room, sizeof *more);
        if (!more)
            return exo_fail(err, EXO_NOMEM, "no memory for a list of %zu draws", room);
        w->deals = more;
        w->deals_room = room;
    }
    w->deals[w->num_deals++] = *deal;
    return EXO_OK;
}

/* Notes what an update deals to this maker. Draws that were dealt before another life or round of the
 * trainers are dealt anew. */
static exo_status
note_deals(exo_maker_weights *w, const exo_graph_actor *actor, const exo_parameters *p,
           exo_err *err)
{
    struct deal deal = {.life = p->life, .round = p->round, .version = p->version};
    exo_status st = EXO_OK;
    if (p->dealing == EXO_DEALT_BEFOREHAND)
        return EXO_OK;
    if (w->start.room == 0)
        return exo_fail(err, EXO_INVAL,
                        "the trainer's balance does not go with makers that share a model "
                        "(parallel): set one of them");
    if (w->start.draws > 0)
        return exo_fail(
            err, EXO_INVAL,
            "start.draws and the trainer's balance exclude each other: set one of them");
    if (exo_maker_weights_is_dealt(w) && w->dealer != p->trainer)
        return exo_fail(err, EXO_INVAL,
                        "with balance each maker gets versions from one trainer: let the edge that "
                        "carries parameters have route: modulo");
    if (deal.life != w->last.life || deal.round != w->last.round)
        w->num_deals = 0;
    w->last = deal;
    w->dealer = p->trainer;
    w->dealing = p->dealing;
    for (size_t i = 0; st == EXO_OK && i < p->num_deals; i++)
        if ((uint64_t)p->deals[2 * i] == exo_graph_index(actor)) {
            deal.draw = (uint64_t)p->deals[2 * i + 1];
            st = add_deal(w, &deal, err);
        }
    return st;
}

/* --- Positions -------------------------------------------------------------------------------- */

/* The greatest common divisor. */
static uint64_t
divisor(uint64_t a, uint64_t b)
{
    while (b > 0) {
        uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* Lets the words of trainers hold whose version is in use, or an earlier one. */
static void
settle(exo_maker_weights *w)
{
    for (uint32_t i = 0; w->allowances && i < w->trainers; i++) {
        struct allowance *a = &w->allowances[i];
        if (a->next.life == w->now.life && a->next.version <= w->version)
            a->now = a->next;
    }
}

/* Notes what a trainer that is apart says about its draws. */
static exo_status
note_word(exo_maker_weights *w, const exo_parameters *p, exo_err *err)
{
    if (!p->apart && !w->allowances)
        return EXO_OK;
    if (!w->allowances && p->trainers <= MAX_TRAINERS) {
        w->allowances = exo_calloc(p->trainers, sizeof *w->allowances);
        if (!w->allowances)
            return exo_fail(err, EXO_NOMEM, "no memory for the quotas of %u trainers", p->trainers);
        w->trainers = p->trainers;
        for (uint32_t i = 0; i < w->trainers; i++)
            w->allowances[i].now.life = w->allowances[i].next.life = -1;
    }
    if (!p->apart || p->trainers != w->trainers)
        return exo_fail(
            err, EXO_INVAL,
            "a version says that it is of %u trainers %s, but the maker follows %u with "
            "a strategy (at most %d)",
            p->trainers, p->apart ? "with a strategy" : "in step", w->trainers, MAX_TRAINERS);
    if (w->start.room == 0 && divisor(w->start.makers, p->trainers) < p->trainers)
        return exo_fail(err, EXO_INVAL,
                        "makers that share a model follow one trainer, but with a strategy %llu "
                        "groups follow several of %u: let the number of groups be a multiple of it",
                        (unsigned long long)w->start.makers, p->trainers);
    w->allowances[p->trainer].next = (struct word){p->life, p->version, p->quota, p->learned};
    settle(w);
    return EXO_OK;
}

/* Takes a position for the one in use. */
static void
advance(exo_maker_weights *w, const struct position *to)
{
    struct position last = w->now;
    bool again = to->life > last.life || (to->life == last.life && to->round > last.round);
    w->again = w->again || again;
    w->now = *to;
    if (!again && last.quota > to->quota)
        w->now.quota = last.quota;
    if (!again && last.round > to->round)
        w->now.round = last.round;
    if (!again && last.learned > to->learned)
        w->now.learned = last.learned;
    settle(w);
}

/* Whether this maker makes draws of a trainer. Trainers that are apart have weights of their own, and
 * a maker does without those of trainers that get nothing from it. */
static bool
follows(const exo_maker_weights *w, const exo_parameters *p)
{
    uint64_t way = p->trainer + p->trainers - w->start.index % p->trainers;
    return !p->apart || p->dealing != EXO_DEALT_BEFOREHAND ||
           way % divisor(w->start.makers, p->trainers) == 0;
}

/* Whether an update is of no use, and gets no reply: it is of an earlier life of its trainer; it was
 * made for an earlier life of this maker, which has said so; or the maker does not follow its trainer. */
static bool
is_useless(const exo_maker_weights *w, const exo_graph_actor *actor, const exo_parameters *p)
{
    return !follows(w, p) || (int64_t)p->life < w->next.life ||
           (p->base > 0 && exo_uptake_version(w->uptake) < 0 && exo_graph_life(actor) > 0);
}

/* An update that the maker has says that items were lost. It begins again at once, or with the
 * version that is under way. */
static exo_status
begin_round(exo_maker_weights *w, const exo_parameters *p, exo_err *err)
{
    const struct position at = position_of(p);
    if (p->round <= w->next.round)
        return EXO_OK;
    w->next.round = p->round;
    if (exo_uptake_is_free(w->uptake)) {
        w->next = at;
        advance(w, &at);
    }
    return note_finished(w, p, err);
}

/* Answers the held update, if the maker has its version or a newer one: another trainer was faster,
 * or it was sent again. */
static exo_status
answer_known(exo_maker_weights *w, exo_graph_actor *actor, bool *known, exo_err *err)
{
    exo_parameters p;
    exo_update_reply reply = *exo_uptake_accepted(w->uptake);
    bool good = exo_parameters_view(&p, w->held, NULL) == EXO_OK;
    if (good && is_useless(w, actor, &p)) {
        *known = true;
        exo_item_drop(&w->held);
        return EXO_OK;
    }
    *known = good && p.life == reply.life && (int64_t)p.version <= exo_uptake_version(w->uptake);
    if (!*known)
        return EXO_OK;
    exo_status st = begin_round(w, &p, err);
    if (st == EXO_OK)
        st = note_word(w, &p, err);
    if (st == EXO_OK)
        st = note_deals(w, actor, &p, err);
    if (st != EXO_OK)
        return st;
    bool passed =
        (int64_t)p.version < exo_uptake_version(w->uptake) || (p.apart && p.trainer != w->owner);
    if (passed)
        reply = (exo_update_reply){
            .answer = EXO_UPDATE_NEED_WHOLE, .life = p.life, .version = p.version + 1};
    exo_item_drop(&w->held);
    return send_reply(w, actor, p.trainer, &reply, passed, err);
}

/* Answers the update that the uptake has taken or refused. */
static exo_status
answer(exo_maker_weights *w, exo_graph_actor *actor, const exo_update_reply *reply, exo_err *err)
{
    if (reply->answer == EXO_UPDATE_ACCEPTED)
        w->owner = w->from;
    return send_reply(w, actor, w->from, reply, false, err);
}

/* The trainer whose update is held, as far as is known if its header is damaged. */
static uint32_t
trainer_of_held(const exo_maker_weights *w)
{
    exo_parameters p;
    if (exo_parameters_view(&p, w->held, NULL) == EXO_OK)
        return p.trainer;
    return exo_uptake_version(w->uptake) >= 0 ? w->from : w->held->from;
}

/* Gives the held update to the uptake, if that is free; *more: something was done. */
static exo_status
begin_held(exo_maker_weights *w, exo_graph_actor *actor, bool *more, exo_err *err)
{
    exo_parameters p;
    bool known = false;
    if (!w->held)
        return EXO_OK;
    exo_status st = answer_known(w, actor, &known, err);
    *more = *more || known;
    if (st != EXO_OK || known || !exo_uptake_is_free(w->uptake))
        return st;
    w->from = trainer_of_held(w);
    if (exo_parameters_view(&p, w->held, NULL) == EXO_OK) {
        w->next = position_of(&p);
        st = note_finished(w, &p, err);
        if (st == EXO_OK)
            st = note_word(w, &p, err);
        if (st == EXO_OK)
            st = note_deals(w, actor, &p, err);
    }
    *more = true;
    return st == EXO_OK ? exo_uptake_begin(w->uptake, &w->held, err) : st;
}

exo_status
exo_maker_weights_pump(exo_maker_weights *w, exo_graph_actor *actor, bool wait, exo_err *err)
{
    exo_update_reply reply;
    exo_status st = EXO_OK;
    for (bool more = true; st == EXO_OK && more;) {
        more = exo_uptake_end(w->uptake, wait || w->is_virtual, &reply, &w->figures.uptake);
        if (more)
            st = answer(w, actor, &reply, err);
        if (st == EXO_OK)
            st = fetch(w, actor, err);
        if (st == EXO_OK)
            st = begin_held(w, actor, &more, err);
    }
    if (w->is_virtual)
        w->figures.uptake = 0;
    return st;
}

exo_status
exo_maker_weights_wait(exo_maker_weights *w, exo_graph_actor *actor, exo_time timeout, exo_err *err)
{
    exo_item *item = NULL;
    exo_status st = exo_port_receive(exo_graph_input(actor, "parameters"), timeout, &item, err);
    if (st == EXO_OK)
        hold(w, item);
    return st;
}

/* --- Members of a group ----------------------------------------------------------------------- */

int64_t
exo_maker_weights_newest(const exo_maker_weights *w)
{
    return exo_uptake_version(w->uptake);
}

/* Refuses the held update, whose header is damaged: the trainer sends a whole one. */
static exo_status
refuse_held(exo_maker_weights *w, exo_graph_actor *actor, const exo_err *reason, exo_err *err)
{
    exo_update_reply reply = {.answer = EXO_UPDATE_REFUSED, .code = reason->code};
    uint32_t to = trainer_of_held(w);
    snprintf(reply.text, sizeof reply.text, "%s", reason->text);
    exo_item_drop(&w->held);
    return send_reply(w, actor, to, &reply, false, err);
}

exo_status
exo_maker_weights_look(exo_maker_weights *w, exo_graph_actor *actor, bool wait, int64_t *newest,
                       exo_err *err)
{
    exo_parameters p;
    exo_err reason = {0};
    bool known = true;
    exo_status st = EXO_OK;
    while (st == EXO_OK && known) {
        st = fetch(w, actor, err);
        if (st == EXO_OK && !w->held && wait)
            st = exo_maker_weights_wait(w, actor, EXO_PORT_TIMEOUT, err);
        if (st != EXO_OK || !w->held)
            break;
        st = exo_parameters_view(&p, w->held, &reason) == EXO_OK
                 ? answer_known(w, actor, &known, err)
                 : refuse_held(w, actor, &reason, err);
    }
    *newest = exo_uptake_version(w->uptake);
    if (st == EXO_OK && w->held && (st = exo_parameters_view(&p, w->held, err)) == EXO_OK)
        *newest = (int64_t)p.version;
    return st;
}

exo_status
exo_maker_weights_take(exo_maker_weights *w, exo_graph_actor *actor, exo_err *err)
{
    exo_update_reply reply;
    bool more = false;
    exo_status st = begin_held(w, actor, &more, err);
    if (st == EXO_OK && exo_uptake_end(w->uptake, true, &reply, &w->figures.uptake))
        st = answer(w, actor, &reply, err);
    if (w->is_virtual)
        w->figures.uptake = 0;
    return st;
}

exo_status
exo_maker_weights_pass(exo_maker_weights *w, exo_graph_actor *actor, exo_err *err)
{
    exo_parameters p;
    if (!w->held || exo_parameters_view(&p, w->held, err) != EXO_OK)
        return EXO_OK;
    const exo_update_reply reply = {
        .answer = EXO_UPDATE_NEED_WHOLE, .life = p.life, .version = p.version + 1};
    uint32_t to = p.trainer;
    exo_item_drop(&w->held);
    return send_reply(w, actor, to, &reply, false, err);
}

/* --- The exchange ----------------------------------------------------------------------------- */

bool
exo_maker_weights_is_ready(const exo_maker_weights *w)
{
    return exo_uptake_is_ready(w->uptake);
}

void
exo_maker_weights_swap(exo_maker_weights *w, exo_graph_actor *actor)
{
    exo_time begin = exo_graph_now(actor);
    exo_uptake_swap(w->uptake);
    double pause = (double)(exo_graph_now(actor) - begin) * 1e-9;
    w->version = (uint64_t)exo_uptake_version(w->uptake);
    advance(w, &w->next);
    w->figures.swaps++;
    w->figures.pause = pause > w->figures.pause ? pause : w->figures.pause;
}
