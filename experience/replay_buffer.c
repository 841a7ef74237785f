/* The graph class `replay_buffer`: it stands between makers and trainers, collects items of
 * experience into batches, and keeps them until trainers take them.
 *
 *     receive item -> [open batch] -> batch is full, or nothing came for `linger`, or a maker has
 *     sent all its draws -> [queue of its trainer] -> send
 *
 * Item i goes to trainer i mod N, as trainers expect. Each has a queue of its own, so one that does
 * not take anything for a while keeps nothing from the others. When `capacity` batches wait, the
 * buffer receives nothing, and its makers wait; unless a trainer's queue is empty, because all
 * trainers may wait for that one. It passes each item on once, by its number. Replies of makers to
 * weight updates join no batch.
 *
 * Makers make items again when the trainers have begun another life, or the buffer itself: it then
 * asks the trainers to tell them so. Items of weights of an earlier life are dropped.
 *
 * Owner of the state: the thread that runs the actor. Read next: experience.h, stock.h. */
#include <string.h>

#include <exogym/clock.h>
#include <exogym/memory.h>

#include "experience/builtin.h"
#include "experience/claims.h"
#include "experience/experience.h"
#include "experience/parameters.h"

enum {
    MAX_BATCH = 1 << 16,
    SHORTEST_WAIT = 500000, /* ns, while both ends may go on; doubles up to the longest */
    LONGEST_WAIT = 16000000
};

enum {
    LENGTH,
    BATCHES,
    ITEMS,
    REPEATED,
    NUM_METERS
};

static const exo_meter_class meter_classes[NUM_METERS] = {
    [LENGTH] = {.name = "length",
                .unit = "items",
                .help = "items in the buffer",
                .kind = EXO_GAUGE},
    [BATCHES] = {.name = "batches",
                 .unit = "batches",
                 .help = "batches that wait in the buffer",
                 .kind = EXO_GAUGE},
    [ITEMS] = {.name = "passed",
               .unit = "items",
               .help = "items that the buffer has passed on to trainers"},
    [REPEATED] = {.name = "repeated",
                  .unit = "items",
                  .help = "items that came again and were dropped"},
};

/* A queue of items: a ring. */
struct queue {
    exo_item **items; /* (room) item i is at (first + i) mod room */
    size_t first, count, room;
};

struct buffer {
    uint64_t capacity, batch; /* 0 batches: no limit */
    exo_time linger;
    exo_claims seen; /* the numbers of the items that came */
    int64_t life;    /* of the trainers whose weights drew them */
    exo_meter *meters[NUM_METERS];
    struct queue open;    /* the batch that is being collected */
    struct queue *queues; /* (num_queues) of each trainer: items of complete batches */
    uint32_t num_queues, turn;
    size_t waiting; /* items in the queues */
    exo_time wait;  /* the present wait, while both ends may go on */
    exo_time last;  /* when the last item came */
    bool closed;    /* no more items come */
    uint64_t passed, repeated;
};

static exo_status
buffer_init(void *self, exo_config *config, exo_err *err)
{
    struct buffer *b = self;
    exo_status st = exo_config_u64(config, "capacity", 0, 0, UINT32_MAX, &b->capacity, err);
    if (st == EXO_OK)
        st = exo_config_u64(config, "batch", 8, 1, MAX_BATCH, &b->batch, err);
    return st == EXO_OK ? exo_config_time(config, "linger", EXO_SECOND, 1000000, 3600 * EXO_SECOND,
                                          &b->linger, err)
                        : st;
}

/* --- Queues ----------------------------------------------------------------------------------- */

static void
queue_release(struct queue *q)
{
    for (size_t i = 0; i < q->count; i++)
        exo_item_drop(&q->items[(q->first + i) % q->room]);
    exo_free(q->items);
    *q = (struct queue){0};
}

/* The item moves to the queue, also after an error. */
static exo_status
push(struct queue *q, exo_item *item, exo_err *err)
{
    if (q->count == q->room) {
        size_t room = q->room ? 2 * q->room : 64;
        exo_item **more = exo_calloc(room, sizeof(exo_item *));
        if (!more) {
            exo_item_drop(&item);
            return exo_fail(err, EXO_NOMEM, "no memory for %zu items", room);
        }
        for (size_t i = 0; i < q->count; i++)
            more[i] = q->items[(q->first + i) % q->room];
        exo_free(q->items);
        *q = (struct queue){.items = more, .count = q->count, .room = room};
    }
    q->items[(q->first + q->count++) % q->room] = item;
    return EXO_OK;
}

static exo_item *
pop(struct queue *q)
{
    exo_item *item = q->items[q->first];
    q->first = (q->first + 1) % q->room;
    q->count--;
    return item;
}

static void
buffer_release(void *self)
{
    struct buffer *b = self;
    queue_release(&b->open);
    for (uint32_t i = 0; i < b->num_queues; i++)
        queue_release(&b->queues[i]);
    exo_free(b->queues);
    exo_claims_release(&b->seen);
}

/* --- Collecting ------------------------------------------------------------------------------- */

/* Hands the open batch to the trainers' queues. */
static exo_status
close_batch(struct buffer *b, exo_err *err)
{
    exo_status st = EXO_OK;
    while (st == EXO_OK && b->open.count > 0) {
        exo_item *item = pop(&b->open);
        st = push(&b->queues[item->key % b->num_queues], item, err);
        b->waiting += st == EXO_OK;
    }
    return st;
}

/* Hands a maker's reply to its trainer, or to all. */
static exo_status
take_reply(struct buffer *b, exo_item *item, exo_err *err)
{
    uint32_t to = exo_parameters_reply_trainer(item);
    exo_status st = exo_parameters_reply_is_last(item) ? close_batch(b, err) : EXO_OK;
    for (uint32_t i = 0; st == EXO_OK && i < b->num_queues; i++)
        if (to == EXO_ALL_TRAINERS || i == to % b->num_queues) {
            st = push(&b->queues[i], exo_item_hold(item), err);
            b->waiting += st == EXO_OK;
        }
    exo_item_drop(&item);
    return st;
}

/* Drops the items of a queue, but for replies. Returns their number. */
static size_t
drop_experience(struct queue *q)
{
    size_t before = q->count;
    for (size_t i = 0; i < before; i++) {
        exo_item *item = pop(q);
        if (exo_parameters_is_reply(item))
            q->items[(q->first + q->count++) % q->room] = item;
        else
            exo_item_drop(&item);
    }
    return before - q->count;
}

/* The trainers have begun another life. */
static void
begin_life(struct buffer *b, int64_t life)
{
    b->life = life;
    exo_claims_release(&b->seen);
    drop_experience(&b->open);
    for (uint32_t i = 0; i < b->num_queues; i++)
        b->waiting -= drop_experience(&b->queues[i]);
}

/* Adds an item to the open batch, unless it came before. */
static exo_status
take(struct buffer *b, exo_item *item, exo_err *err)
{
    exo_experience e;
    bool is_new = false;
    exo_status st = exo_experience_view(&e, item, err);
    if (st == EXO_OK && e.life > b->life)
        begin_life(b, e.life);
    if (st == EXO_OK && e.life == b->life)
        st = exo_claims_claim(&b->seen, e.id, &is_new, err);
    if (st == EXO_OK && is_new) {
        item->key = e.id;
        st = push(&b->open, item, err);
        return st == EXO_OK && b->open.count >= b->batch ? close_batch(b, err) : st;
    }
    return exo_experience_drop(&item, e.id, st, &b->repeated, err);
}

/* Receives an item within `timeout`. *got: one came. */
static exo_status
receive(struct buffer *b, exo_graph_actor *actor, exo_time timeout, bool *got, exo_err *err)
{
    exo_item *item = NULL;
    exo_status st = exo_port_receive(exo_graph_input(actor, "experience"), timeout, &item, err);
    *got = st == EXO_OK;
    b->closed = st == EXO_CLOSED;
    if (b->closed)
        return close_batch(b, err);
    if (st == EXO_TIMEOUT && timeout != EXO_PORT_TIMEOUT)
        return EXO_OK;
    if (st != EXO_OK)
        return st;
    b->last = exo_graph_now(actor);
    return exo_parameters_is_reply(item) ? take_reply(b, item, err) : take(b, item, err);
}

/* --- Passing on ------------------------------------------------------------------------------- */

/* Sends the first item of a trainer's queue within `timeout`. *sent: it was taken. */
static exo_status
send_first(struct buffer *b, exo_port *port, uint32_t trainer, exo_time timeout, bool *sent,
           exo_err *err)
{
    struct queue *q = &b->queues[trainer];
    exo_item *item = exo_item_hold(q->items[q->first]);
    exo_status st = exo_port_send_to(port, trainer, &item, timeout, err);
    *sent = st == EXO_OK;
    if (st == EXO_TIMEOUT && timeout != EXO_PORT_TIMEOUT)
        return EXO_OK;
    if (st != EXO_OK)
        return st;
    item = pop(q);
    b->waiting--;
    b->passed += !exo_parameters_is_reply(item);
    exo_item_drop(&item);
    return EXO_OK;
}

/* Sends what the trainers take at once. */
static exo_status
send_some(struct buffer *b, exo_port *port, bool *sent, exo_err *err)
{
    exo_status st = EXO_OK;
    *sent = false;
    for (uint32_t i = 0; st == EXO_OK && i < b->num_queues; i++) {
        bool more = true;
        while (st == EXO_OK && more && b->queues[i].count > 0) {
            st = send_first(b, port, i, 0, &more, err);
            *sent = *sent || more;
        }
    }
    return st;
}

/* Waits for a trainer, one after the other if several have items. */
static exo_status
wait_for_trainers(struct buffer *b, exo_port *port, exo_err *err)
{
    uint32_t with_items = 0;
    bool sent = false;
    for (uint32_t i = 0; i < b->num_queues; i++)
        with_items += b->queues[i].count > 0;
    do
        b->turn = (b->turn + 1) % b->num_queues;
    while (b->queues[b->turn].count == 0);
    return send_first(b, port, b->turn, with_items == 1 ? EXO_PORT_TIMEOUT : LONGEST_WAIT, &sent,
                      err);
}

/* --- A run ------------------------------------------------------------------------------------ */

static bool
is_full(const struct buffer *b)
{
    if (b->capacity == 0 || b->waiting < b->capacity * b->batch)
        return false;
    for (uint32_t i = 0; i < b->num_queues; i++)
        if (b->queues[i].count == 0)
            return false;
    return true;
}

/* Closes a batch that is not full, if nothing came for `linger`. *left: the time until then. */
static exo_status
close_late(struct buffer *b, const exo_graph_actor *actor, exo_time *left, exo_err *err)
{
    *left = b->last + b->linger - exo_graph_now(actor);
    return b->open.count > 0 && *left <= 0 ? close_batch(b, err) : EXO_OK;
}

/* Waits for an item; if some can be sent, looks at both ends in turn. */
static exo_status
wait_for_makers(struct buffer *b, exo_graph_actor *actor, exo_time left, exo_err *err)
{
    bool got = false;
    if (b->waiting == 0)
        return receive(b, actor, b->open.count > 0 ? left : EXO_PORT_TIMEOUT, &got, err);
    exo_status st = receive(b, actor, b->wait, &got, err);
    b->wait = got ? SHORTEST_WAIT : b->wait < LONGEST_WAIT ? 2 * b->wait : LONGEST_WAIT;
    return st;
}

static void
report(const struct buffer *b)
{
    exo_meter_set(b->meters[LENGTH], (double)(b->waiting + b->open.count));
    exo_meter_set(b->meters[BATCHES], (double)((b->waiting + b->batch - 1) / b->batch));
    exo_meter_count(b->meters[ITEMS], b->passed);
    exo_meter_count(b->meters[REPEATED], b->repeated);
}

/* Tells the trainers that what was in the buffer is lost. */
static exo_status
ask_again(struct buffer *b, exo_err *err)
{
    exo_item *item = NULL;
    const exo_parameters_reply r = {.trainer = EXO_ALL_TRAINERS,
                                    .reply = {.answer = EXO_UPDATE_NEED_WHOLE}};
    exo_status st = exo_parameters_reply_new(&item, &r, err);
    return st == EXO_OK ? take_reply(b, item, err) : st;
}

static exo_status
start(struct buffer *b, exo_graph_actor *actor, exo_err *err)
{
    exo_status st =
        exo_meter_declare_all(b->meters, exo_graph_meters(actor), meter_classes, NUM_METERS, err);
    b->life = -1;
    b->wait = SHORTEST_WAIT;
    b->num_queues = exo_port_targets(exo_graph_output(actor, "experience"));
    b->queues = exo_calloc(b->num_queues, sizeof *b->queues);
    if (st == EXO_OK && exo_graph_count(actor) > 1)
        st = exo_fail(err, EXO_INVAL, "one replay_buffer serves all makers and trainers: count 1");
    if (st == EXO_OK && !b->queues)
        st = exo_fail(err, EXO_NOMEM, "no memory for queues");
    return st == EXO_OK && exo_graph_life(actor) > 0 ? ask_again(b, err) : st;
}

/* One round: sends what can be sent, then waits for whichever end is due. */
static exo_status
go_on(struct buffer *b, exo_graph_actor *actor, exo_err *err)
{
    bool moved = false;
    exo_time left = 0;
    exo_port *output = exo_graph_output(actor, "experience");
    exo_status st = send_some(b, output, &moved, err);
    size_t before = b->waiting;
    if (moved)
        b->wait = SHORTEST_WAIT;
    report(b);
    if (st == EXO_OK)
        st = close_late(b, actor, &left, err);
    if (st != EXO_OK || b->waiting > before || (b->closed && b->waiting == 0))
        return st;
    return b->closed || is_full(b) ? wait_for_trainers(b, output, err)
                                   : wait_for_makers(b, actor, left, err);
}

static exo_status
buffer_run(void *self, exo_graph_actor *actor, exo_err *err)
{
    struct buffer *b = self;
    exo_status st = start(b, actor, err);
    while (st == EXO_OK && !exo_graph_cancelled(actor) && (!b->closed || b->waiting > 0))
        st = go_on(b, actor, err);
    report(b);
    return st == EXO_CLOSED ? EXO_OK : st; /* the trainers have left */
}

static const exo_graph_port buffer_ports[] = {
    {.name = "experience",
     .type = "experience",
     .direction = EXO_PORT_INPUT,
     .required = true,
     .blocking = true},
    {.name = "experience", .type = "experience", .direction = EXO_PORT_OUTPUT, .required = true},
};

const exo_graph_class exo_replay_buffer_class = {
    .name = "replay_buffer",
    .help = "keeps batches of experience between makers and trainers; options capacity, batch, "
            "linger",
    .ports = buffer_ports,
    .num_ports = sizeof buffer_ports / sizeof *buffer_ports,
    .state_size = sizeof(struct buffer),
    .init = buffer_init,
    .run = buffer_run,
    .release = buffer_release,
};
