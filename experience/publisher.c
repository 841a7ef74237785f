/* Publishers: see publisher.h. */
#include "experience/publisher.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <exogym/decoder.h>
#include <exogym/log.h>
#include <exogym/memory.h>

#include "base/config_edit.h"

enum {
    REFUSALS = 3, /* in a row, of one maker */
    FORMATS = EXO_WEIGHTS_INT4 + 1,
    NAME = 96
};

/* A target of the port. */
struct target {
    char name[NAME];
    bool owes;                 /* an update, or deals, to it are unanswered */
    bool heard, sent;          /* it has replied; it has said that it has sent all its draws */
    bool granted;              /* of the two it is deals */
    uint64_t version;          /* of the newest update that was sent to it; 0: none */
    unsigned refusals;         /* in a row */
    uint32_t life;             /* of the target */
    uint32_t maker_life;       /* of the maker, which may stand behind the target */
    uint32_t index;            /* among the actors of its name */
    uint32_t place;            /* its number at the port, in the present call */
    bool here, open, selected; /* in the present call; here: at the port */
};

struct exo_publisher {
    exo_update_form form;
    bool canary;
    uint64_t chunk;
    exo_publisher_place at;
    uint64_t round;        /* exo_parameters.round */
    bool formats[FORMATS]; /* of the makers' generators, as far as they are known */
    bool known;            /* a maker has said its format */
    uint64_t draws;        /* exo_publisher_draws */
    exo_update_sender *sender;
    struct target *targets; /* (count) */
    size_t count;
    exo_publisher_figures figures;
};

/* --- Options ---------------------------------------------------------------------------------- */

static const char *const form_names[] = {"whole", "bf16", "int8", "delta", "bf16_delta", NULL};

static exo_status
read_map(exo_publisher *p, exo_config *map, exo_err *err)
{
    size_t form = EXO_UPDATE_DELTA;
    exo_status st = exo_config_choice(map, "form", form, form_names, &form, err);
    if (st == EXO_OK)
        st = exo_config_bool(map, "canary", true, &p->canary, err);
    if (st == EXO_OK)
        st = exo_config_bytes(map, "chunk", UINT64_C(4) << 20, UINT64_C(4) << 10,
                              UINT64_C(64) << 20, &p->chunk, err);
    p->form = (exo_update_form)form;
    return st == EXO_OK ? exo_config_finish(map, err) : st;
}

exo_status
exo_publisher_read(exo_publisher **out, exo_config *config, exo_err *err)
{
    exo_config *map = NULL;
    exo_config_doc *empty = NULL;
    exo_publisher *p = exo_calloc(1, sizeof *p);
    *out = NULL;
    if (!p)
        return exo_fail(err, EXO_NOMEM, "no memory for a publisher of weights");
    exo_status st = exo_config_map(config, "update", &map, err);
    if (st == EXO_OK && !map && (st = exo_config_parse(&empty, "update", "{}", err)) == EXO_OK)
        map = exo_config_root(empty);
    if (st == EXO_OK)
        st = read_map(p, map, err);
    exo_config_free(&empty);
    if (st == EXO_OK)
        *out = p;
    else
        exo_publisher_free(&p);
    return st;
}

void
exo_publisher_free(exo_publisher **publisher)
{
    exo_publisher *p = *publisher;
    *publisher = NULL;
    if (!p)
        return;
    exo_update_sender_free(&p->sender);
    exo_free(p->targets);
    exo_free(p);
}

static bool
has_frozen(const exo_model *model)
{
    for (size_t i = 0; i < exo_model_num_infos(model); i++)
        if (exo_model_infos(model)[i].frozen)
            return true;
    return false;
}

exo_status
exo_publisher_start(exo_publisher *p, exo_model *model, const exo_publisher_place *place,
                    exo_err *err)
{
    const exo_update_sender_opts opts = {.form = p->form,
                                         .life = place->life,
                                         .chunk_bytes = (size_t)p->chunk,
                                         .learned = has_frozen(model)};
    p->at = *place;
    p->draws = UINT64_MAX;
    return exo_update_sender_new(&p->sender, model, &opts, err);
}

uint64_t
exo_publisher_draws(const exo_publisher *p)
{
    return p->draws;
}

bool
exo_publisher_has_all(const exo_publisher *p)
{
    bool heard = false;
    for (size_t i = 0; i < p->count; i++) {
        if (p->targets[i].heard && !p->targets[i].sent)
            return false;
        heard = heard || p->targets[i].heard;
    }
    return heard;
}

const exo_publisher_figures *
exo_publisher_figures_of(const exo_publisher *p)
{
    return &p->figures;
}

/* --- Targets ---------------------------------------------------------------------------------- */

static struct target *
find(exo_publisher *p, const char *name)
{
    for (size_t i = 0; i < p->count; i++)
        if (strcmp(p->targets[i].name, name) == 0)
            return &p->targets[i];
    return NULL;
}

static struct target *
meet(exo_publisher *p, const char *name)
{
    struct target *found = find(p, name);
    if (found)
        return found;
    struct target *more = exo_realloc(p->targets, p->count + 1, sizeof *more);
    if (!more)
        return NULL;
    p->targets = more;
    more[p->count] = (struct target){0};
    snprintf(more[p->count].name, NAME, "%s", name);
    return &more[p->count++];
}

/* The target has nothing, and owes nothing: it has begun another life, or its replies were lost. */
static void
renew(exo_publisher *p, struct target *t)
{
    exo_update_sender_forget(p->sender, t->name);
    if (p->at.dealer)
        exo_dealer_lost(p->at.dealer, t->index);
    t->owes = t->granted = t->sent = false;
    t->version = 0;
    t->refusals = 0;
}

/* Deals name makers by their index, so no two targets may have the same one. */
static exo_status
check_index(const exo_publisher *p, const struct target *t, exo_err *err)
{
    for (size_t i = 0; p->at.dealer && i < p->count; i++)
        if (&p->targets[i] != t && p->targets[i].here && p->targets[i].index == t->index)
            return exo_fail(
                err, EXO_INVAL,
                "balance: %s and %s have the same index: let all makers of a trainer be "
                "of one name, with a count",
                p->targets[i].name, t->name);
    return EXO_OK;
}

/* Finds the targets of the port that wait for this version, and their number. */
static exo_status
look_around(exo_publisher *p, exo_port *port, uint64_t version, size_t *waiting, exo_err *err)
{
    char name[NAME];
    uint32_t index = 0;
    *waiting = 0;
    for (size_t i = 0; i < p->count; i++)
        p->targets[i].here = p->targets[i].open = false;
    for (uint32_t i = 0; i < exo_port_targets(port); i++) {
        if (!exo_port_target(port, i, name, sizeof name, &index))
            continue;
        struct target *t = meet(p, name);
        if (!t)
            return exo_fail(err, EXO_NOMEM, "no memory for a list of makers");
        uint32_t life = exo_port_target_life(port, i);
        exo_status st = p->at.dealer ? exo_dealer_meet(p->at.dealer, index, err) : EXO_OK;
        t->index = index;
        if (st == EXO_OK)
            st = check_index(p, t, err);
        if (st != EXO_OK)
            return st;
        if (life > t->life)
            renew(p, t);
        t->life = life;
        t->place = i;
        t->here = true;
        t->open = !t->owes && t->version < version;
        *waiting += t->open;
    }
    return EXO_OK;
}

/* --- Sending ---------------------------------------------------------------------------------- */

/* Makes canaries for the formats of the makers that are known, or for all before one is. */
static exo_status
choose_canaries(exo_publisher *p, exo_err *err)
{
    exo_weight_format formats[FORMATS];
    size_t count = 0;
    for (size_t i = 0; i < FORMATS; i++)
        if (p->canary && (!p->known || p->formats[i]))
            formats[count++] = (exo_weight_format)i;
    return exo_update_sender_canaries(p->sender, formats, count, err);
}

static exo_status
stage(exo_publisher *p, exo_params *params, uint64_t version, exo_err *err)
{
    if (exo_update_sender_version(p->sender) >= version)
        return EXO_OK;
    exo_status st = choose_canaries(p, err);
    return st == EXO_OK ? exo_update_sender_stage(p->sender, params, version, err) : st;
}

static exo_status
send_to(exo_publisher *p, exo_port *port, struct target *t, const exo_item *item, uint64_t base,
        exo_err *err)
{
    exo_item *one = exo_item_hold((exo_item *)item);
    exo_err reason = {0};
    exo_status st = exo_port_send_to(port, t->place, &one, EXO_PORT_TIMEOUT, &reason);
    t->version = exo_update_sender_version(p->sender);
    t->owes = st == EXO_OK;
    if (st == EXO_CLOSED) { /* the maker has left */
        exo_update_sender_forget(p->sender, t->name);
        return EXO_OK;
    }
    if (st != EXO_OK)
        return exo_fail(err, st, "%s", reason.text);
    p->figures.updates++;
    p->figures.wholes += base == 0;
    for (size_t i = 0; i < item->num_parts; i++)
        p->figures.bytes += item->parts[i].count * exo_dtype_size(item->parts[i].dtype);
    return EXO_OK;
}

/* The deals for the targets that are selected, into the caller's list, which is freed with exo_free. */
static exo_status
add_deals(exo_publisher *p, exo_parameters *about, int64_t **list, exo_err *err)
{
    size_t span = p->at.dealer ? exo_dealer_span(p->at.dealer) : 0;
    *list = NULL;
    if (!p->at.dealer)
        return EXO_OK;
    *list = exo_calloc(2 * span + 1, sizeof **list);
    if (!*list)
        return exo_fail(err, EXO_NOMEM, "no memory for a list of %zu draws", span);
    for (size_t i = 0; i < p->count; i++)
        if (p->targets[i].selected)
            exo_dealer_offer(p->at.dealer, p->targets[i].index, *list, &about->num_deals);
    about->deals = *list;
    about->dealing = exo_dealer_has_ended(p->at.dealer) ? EXO_ALL_DEALT : EXO_DEALING;
    return EXO_OK;
}

/* The head of a message about update `version`, without its deals. */
static exo_parameters
head_of(const exo_publisher *p, uint64_t version, uint64_t base, exo_draw_bounds bounds)
{
    return (exo_parameters){.version = version - 1,
                            .quota = bounds.quota,
                            .update = bounds.update,
                            .under_way = bounds.under_way,
                            .learns = bounds.learns,
                            .learned = bounds.learned,
                            .base = base,
                            .trainer = p->at.index,
                            .trainers = p->at.count,
                            .life = p->at.life,
                            .round = p->round,
                            .apart = p->at.apart,
                            .canary = p->canary};
}

/* Sends the newest version to all open targets with the base of the first one. */
static exo_status
send_to_some(exo_publisher *p, exo_port *port, exo_draw_bounds bounds, const char **names,
             exo_err *err)
{
    size_t count = 0;
    uint64_t base = 0;
    exo_update *update = NULL;
    exo_item *item = NULL;
    for (size_t i = 0; i < p->count; i++) {
        struct target *t = &p->targets[i];
        uint64_t own = exo_update_sender_base(p->sender, t->name);
        t->selected = t->open && (count == 0 || own == base);
        base = t->selected ? own : base;
        if (t->selected)
            names[count++] = t->name;
    }
    exo_status st = exo_update_begin(&update, p->sender, names, count, err);
    base = st == EXO_OK ? exo_update_facts_of(update).base : 0;
    int64_t *deals = NULL;
    exo_parameters about = head_of(p, exo_update_sender_version(p->sender), base, bounds);
    about.finished = bounds.finished;
    about.num_finished = bounds.num_finished;
    if (st == EXO_OK)
        st = add_deals(p, &about, &deals, err);
    if (st == EXO_OK)
        st = exo_parameters_new(&item, &about, update, err);
    for (size_t i = 0; st == EXO_OK && i < p->count; i++)
        if (p->targets[i].selected) {
            p->targets[i].open = false;
            st = send_to(p, port, &p->targets[i], item, base, err);
        }
    exo_item_drop(&item);
    exo_update_free(&update);
    exo_free(deals);
    return st;
}

/* Sends a maker that has the newest version what it was dealt since. */
static exo_status
grant(exo_publisher *p, exo_port *port, struct target *t, exo_draw_bounds bounds, exo_err *err)
{
    exo_item *item = NULL;
    int64_t *deals = NULL;
    exo_err reason = {0};
    /* With that base another life of the maker drops it. The maker knows what is finished. */
    exo_parameters about = head_of(p, t->version, t->version, bounds);
    for (size_t i = 0; i < p->count; i++)
        p->targets[i].selected = &p->targets[i] == t;
    exo_status st = add_deals(p, &about, &deals, err);
    if (st == EXO_OK)
        st = exo_parameters_new(&item, &about, NULL, err);
    if (st == EXO_OK) {
        st = exo_port_send_to(port, t->place, &item, EXO_PORT_TIMEOUT, &reason);
        t->owes = t->granted = st == EXO_OK;
        st = st == EXO_CLOSED ? EXO_OK : st; /* the maker has left */
        if (st != EXO_OK)
            exo_fail(err, st, "%s", reason.text);
    }
    exo_item_drop(&item);
    exo_free(deals);
    return st;
}

/* Sends deals to the makers that wait for them. */
static exo_status
grant_all(exo_publisher *p, exo_port *port, uint64_t version, exo_draw_bounds bounds, exo_err *err)
{
    exo_status st = EXO_OK;
    for (size_t i = 0; p->at.dealer && st == EXO_OK && i < p->count; i++) {
        struct target *t = &p->targets[i];
        if (t->here && !t->owes && t->version == version &&
            exo_dealer_has_news(p->at.dealer, t->index))
            st = grant(p, port, t, bounds, err);
    }
    return st;
}

static bool
somebody_waits(const exo_publisher *p)
{
    for (size_t i = 0; i < p->count; i++)
        if (p->targets[i].open)
            return true;
    return false;
}

exo_status
exo_publisher_send(exo_publisher *p, exo_port *port, exo_params *params, uint64_t version,
                   exo_draw_bounds bounds, exo_err *err)
{
    size_t waiting = 0;
    exo_status st = look_around(p, port, version + 1, &waiting, err);
    if (st == EXO_OK && p->at.dealer)
        st = exo_dealer_deal(p->at.dealer, bounds.quota / p->at.count, err);
    /* where parameters change before the next version is made, it is kept at once */
    if (st == EXO_OK && (waiting > 0 || (p->at.in_parts && exo_port_targets(port) > 0)))
        st = stage(p, params, version + 1, err);
    if (st != EXO_OK || waiting == 0)
        return st == EXO_OK ? grant_all(p, port, version + 1, bounds, err) : st;
    const char **names = exo_calloc(p->count, sizeof *names);
    if (!names)
        return exo_fail(err, EXO_NOMEM, "no memory for a list of makers");
    while (st == EXO_OK && somebody_waits(p))
        st = send_to_some(p, port, bounds, names, err);
    exo_free(names);
    return st == EXO_OK ? grant_all(p, port, version + 1, bounds, err) : st;
}

/* --- Replies ---------------------------------------------------------------------------------- */

/* Whether two actors differ in their index alone, as maker_0 and maker_1. */
static bool
are_alike(const char *a, const char *b)
{
    const char *end = strrchr(a, '_');
    size_t length = end ? (size_t)(end - a) + 1 : 0;
    return length > 0 && strncmp(a, b, length) == 0 && !strchr(b + length, '_');
}

/* The target that a reply is of: by the maker's name; or by its index, if other actors stand between
 * the trainer and its makers. NULL: the maker is another trainer's. */
static struct target *
sender_of(exo_publisher *p, const char *name)
{
    const char *end = strrchr(name, '_');
    struct target *found = find(p, name);
    for (size_t i = 0; !found && i < p->count; i++)
        if (are_alike(p->targets[i].name, name))
            return NULL;
    for (size_t i = 0; !found && end && i < p->count; i++)
        if (p->targets[i].index == strtoul(end + 1, NULL, 10))
            found = &p->targets[i];
    return found;
}

/* A maker did not take an update: the next one to it is whole. Ends the run if that does not help. */
static exo_status
refused(exo_publisher *p, struct target *t, const exo_parameters_reply *r, const char *why,
        exo_err *err)
{
    p->figures.refused++;
    t->refusals++;
    exo_update_sender_forget(p->sender, t->name);
    if (t->refusals < REFUSALS) {
        EXO_LOG(WARN, GRAPH, "event=refused maker=%s version=%llu: a whole update follows: %s",
                r->maker, (unsigned long long)t->version - 1, why);
        return EXO_OK;
    }
    return exo_fail(err, r->reply.code == EXO_INVAL ? EXO_INVAL : EXO_FAILED,
                    "%s cannot take version %llu of the weights (update %llu): %s", r->maker,
                    (unsigned long long)t->version - 1, (unsigned long long)t->version, why);
}

/* Whether a reply says that a maker begins a further life. */
static bool
is_greeting(const exo_update_reply *reply)
{
    return reply->answer == EXO_UPDATE_NEED_WHOLE && reply->version == 0;
}

/* Whether a reply has no consequence for updates: it answers none, or is of an earlier life of the
 * maker or of this trainer, or to an update that was sent again since. */
static bool
is_late(const exo_publisher *p, const struct target *t, const exo_parameters_reply *r)
{
    return r->sent || r->life < t->maker_life || is_greeting(&r->reply) ||
           (r->reply.version > 0 && r->reply.life != p->at.life) ||
           ((r->passed || r->reply.answer == EXO_UPDATE_ACCEPTED) &&
            (!t->owes || r->reply.version != t->version));
}

/* A maker says how many draws the run has: all makers say the same. */
static exo_status
note_draws(exo_publisher *p, const exo_parameters_reply *r, exo_err *err)
{
    if (p->known && r->total != p->draws)
        return exo_fail(
            err, EXO_INVAL,
            "%s makes the draws below %lld of the run, but others those below %lld (-1: "
            "without end): let all makers have the same prompts, epochs and steps",
            r->maker, (long long)r->total, (long long)p->draws);
    p->draws = r->total;
    return EXO_OK;
}

/* A replay_buffer has begun another life: items and replies that were in it are lost. */
static void
begin_round(exo_publisher *p)
{
    p->round++;
    for (size_t i = 0; i < p->count; i++)
        renew(p, &p->targets[i]);
}

/* No maker is in a later life than the one that this actor was told of. */
static exo_status
check_life(const exo_port *port, const exo_parameters_reply *r, exo_err *err)
{
    char name[NAME];
    uint32_t index = 0;
    for (uint32_t i = 0; i < exo_port_targets(port); i++)
        if (exo_port_target(port, i, name, sizeof name, &index) && strcmp(name, r->maker) == 0 &&
            r->life > exo_port_target_life(port, i))
            return exo_fail(err, EXO_INVAL, "a reply of life %u of %s, which is in life %u",
                            r->life, r->maker, exo_port_target_life(port, i));
    return EXO_OK;
}

exo_status
exo_publisher_take(exo_publisher *p, const exo_port *port, const exo_item *item, exo_err *err)
{
    exo_parameters_reply r;
    exo_err reason = {0};
    exo_status st = exo_parameters_reply_read(&r, item, err);
    if (st != EXO_OK)
        return st;
    if (!r.maker[0]) {
        begin_round(p);
        return EXO_OK;
    }
    st = note_draws(p, &r, err);
    if (st == EXO_OK)
        st = check_life(port, &r, err);
    if (st != EXO_OK)
        return st;
    struct target *t = sender_of(p, r.maker);
    p->formats[r.format] = p->known = true;
    if (!t) {
        if (!r.sent && !is_greeting(&r.reply))
            EXO_LOG(WARN, GRAPH, "event=stray_reply maker=%s: no update was sent to it", r.maker);
        return EXO_OK;
    }
    if (r.life > t->maker_life) {
        if (r.life > t->life) /* else look_around has seen this life */
            renew(p, t);
        t->maker_life = r.life;
    }
    t->heard = true;
    t->sent = t->sent || (r.sent && r.life == t->maker_life);
    if (p->at.dealer)
        exo_dealer_hear(p->at.dealer, t->index, r.room, r.portion, r.total);
    if (is_late(p, t, &r))
        return EXO_OK;
    if (t->granted && r.reply.answer == EXO_UPDATE_ACCEPTED) {
        t->owes = t->granted = false;
        exo_dealer_taken(p->at.dealer, t->index);
        return EXO_OK;
    }
    t->granted = false;
    st = exo_update_sender_reply(p->sender, t->name, &r.reply, &reason);
    t->owes = false;
    if (r.reply.answer == EXO_UPDATE_NEED_WHOLE && st == EXO_OK) {
        t->version = r.passed ? t->version : 0;
        return EXO_OK;
    }
    if (st != EXO_OK) {
        st = refused(p, t, &r, r.reply.text[0] ? r.reply.text : reason.text, err);
        t->version = 0;
        return st;
    }
    t->refusals = 0;
    if (p->at.dealer)
        exo_dealer_taken(p->at.dealer, t->index);
    return EXO_OK;
}
