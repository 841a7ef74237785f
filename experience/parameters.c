/* Items with weight updates and with replies: see parameters.h. No state. */
#include "experience/parameters.h"

#include <string.h>

#include <exogym/memory.h>

enum {
    FORMAT = 8,
    LENGTH_BYTES = 8
};

/* The parts of an update, and the words of the first. */
enum {
    HEADER,
    BYTES,
    NUM_PARTS
};
enum {
    FORMAT_WORD,
    VERSION,
    QUOTA,
    CANARY,
    TRAINER,
    TRAINERS,
    LEARNED,
    BASE,
    LIFE,
    ROUND,
    DEALS, /* exo_dealing */
    NUM_DEALS,
    APART,
    UPDATE,
    UNDER_WAY,
    LEARNS,
    HEADER_WORDS /* pairs of finished draws follow, then pairs of deals */
};

/* The parts of a reply, and the words of the first. */
enum {
    REPLY_HEADER,
    REPLY_MAKER,
    REPLY_BYTES,
    NUM_REPLY_PARTS
};
enum {
    REPLY_FORMAT_WORD,
    REPLY_WEIGHTS,
    REPLY_TRAINER,
    REPLY_LIFE,
    REPLY_ROOM,
    REPLY_PORTION,
    REPLY_TOTAL,
    REPLY_SENT,
    REPLY_PASSED,
    REPLY_WORDS
};

/* --- Updates ---------------------------------------------------------------------------------- */

/* Chunks, one after the other. */
struct chunks {
    uint8_t *bytes;
    size_t size, room;
};

static exo_status
add_chunk(struct chunks *c, const void *bytes, size_t size, exo_err *err)
{
    size_t needs = c->size + LENGTH_BYTES + size;
    if (needs > c->room) {
        size_t room = needs > 2 * c->room ? needs : 2 * c->room;
        uint8_t *more = exo_realloc(c->bytes, room, 1);
        if (!more)
            return exo_fail(err, EXO_NOMEM, "no memory for an update of %zu bytes", room);
        c->bytes = more;
        c->room = room;
    }
    for (size_t i = 0; i < LENGTH_BYTES; i++)
        c->bytes[c->size + i] = (uint8_t)((uint64_t)size >> 8 * i);
    memcpy(c->bytes + c->size + LENGTH_BYTES, bytes, size);
    c->size = needs;
    return EXO_OK;
}

static exo_status
make_item(exo_item **out, const exo_parameters *p, const struct chunks *c, exo_err *err)
{
    const exo_item_part parts[NUM_PARTS] = {
        [HEADER] = {.dtype = EXO_I64, .count = HEADER_WORDS + 2 * (p->num_finished + p->num_deals)},
        [BYTES] = {.dtype = EXO_U8, .count = c->size},
    };
    exo_status st = exo_item_new(out, parts, NUM_PARTS, err);
    if (st != EXO_OK)
        return st;
    int64_t *header = (*out)->parts[HEADER].data;
    header[FORMAT_WORD] = FORMAT;
    header[VERSION] = (int64_t)p->version;
    header[QUOTA] = (int64_t)p->quota;
    header[CANARY] = p->canary;
    header[TRAINER] = p->trainer;
    header[TRAINERS] = p->trainers;
    header[LEARNED] = (int64_t)p->learned;
    header[BASE] = (int64_t)p->base;
    header[LIFE] = p->life;
    header[ROUND] = (int64_t)p->round;
    header[APART] = p->apart;
    header[UPDATE] = (int64_t)p->update;
    header[UNDER_WAY] = (int64_t)p->under_way;
    header[LEARNS] = p->learns;
    for (size_t i = 0; i < 2 * p->num_finished; i++)
        header[HEADER_WORDS + i] = (int64_t)p->finished[i];
    header[DEALS] = p->dealing;
    header[NUM_DEALS] = (int64_t)p->num_deals;
    if (p->num_deals > 0)
        memcpy(header + HEADER_WORDS + 2 * p->num_finished, p->deals,
               2 * p->num_deals * sizeof *p->deals);
    if (c->size > 0)
        memcpy((*out)->parts[BYTES].data, c->bytes, c->size);
    (*out)->version = p->version;
    return EXO_OK;
}

exo_status
exo_parameters_new(exo_item **out, const exo_parameters *p, exo_update *update, exo_err *err)
{
    struct chunks c = {0};
    const void *bytes = NULL;
    size_t size = 0;
    exo_status st = update ? EXO_OK : EXO_CLOSED;
    while (st == EXO_OK && (st = exo_update_next(update, &bytes, &size, err)) == EXO_OK)
        st = add_chunk(&c, bytes, size, err);
    if (st == EXO_CLOSED)
        st = make_item(out, p, &c, err);
    exo_free(c.bytes);
    return st;
}

/* Whether a header says that it is one, and its numbers are in their ranges. *finished: the number of
 * pairs of finished draws. */
static bool
is_header(const exo_item_part *p, size_t *finished)
{
    const int64_t *h = p->data;
    size_t rest = p->count - HEADER_WORDS;
    bool good = h[FORMAT_WORD] == FORMAT && rest % 2 == 0 && h[NUM_DEALS] >= 0 &&
                (uint64_t)h[NUM_DEALS] <= rest / 2 && h[DEALS] >= 0 && h[DEALS] <= EXO_ALL_DEALT &&
                h[VERSION] >= 0 && h[QUOTA] >= 0 && h[LEARNED] >= 0 && h[BASE] >= 0 &&
                h[ROUND] >= 0 && h[LIFE] >= 0 && h[LIFE] <= UINT32_MAX && h[TRAINERS] >= 1 &&
                h[TRAINERS] <= UINT32_MAX && h[TRAINER] >= 0 && h[TRAINER] < h[TRAINERS] &&
                (h[APART] == 0 || h[APART] == 1) && h[UPDATE] >= 0 && h[UNDER_WAY] >= 0 &&
                h[LEARNS] >= 0;
    *finished = good ? rest / 2 - (size_t)h[NUM_DEALS] : 0;
    return good;
}

/* Draws that are dealt: from the one on that is not learned from, below the quota. */
static exo_status
check_deals(const int64_t *header, const int64_t *pairs, exo_err *err)
{
    for (int64_t i = 0; i < header[NUM_DEALS]; i++) {
        int64_t maker = pairs[2 * i], draw = pairs[2 * i + 1];
        if (maker < 0 || maker > UINT32_MAX || draw < header[LEARNED] || draw >= header[QUOTA])
            return exo_fail(err, EXO_INVAL,
                            "draw %lld is dealt to maker %lld, but makers make the draws from %lld "
                            "on below the quota %lld",
                            (long long)draw, (long long)maker, (long long)header[LEARNED],
                            (long long)header[QUOTA]);
    }
    return EXO_OK;
}

/* Finished draws: ascending ranges from the one on that is not learned from, below the quota. */
static exo_status
check_finished(const int64_t *header, size_t count, exo_err *err)
{
    const int64_t *pairs = header + HEADER_WORDS, step = header[TRAINERS];
    int64_t least = header[LEARNED], quota = header[QUOTA];
    if (least > quota)
        return exo_fail(err, EXO_INVAL, "%lld draws are learned from, but the quota is %lld",
                        (long long)least, (long long)quota);
    for (size_t i = 0; i < count; i++) {
        int64_t first = pairs[2 * i], draws = pairs[2 * i + 1];
        if (first < least || first >= quota || draws < 1 || draws - 1 > (quota - 1 - first) / step)
            return exo_fail(err, EXO_INVAL,
                            "the finished draws (%lld of them in steps of %lld from %lld on) are "
                            "not all from %lld on below the quota %lld",
                            (long long)draws, (long long)step, (long long)first, (long long)least,
                            (long long)quota);
        int64_t last = first + (draws - 1) * step;
        least = last > INT64_MAX - step ? INT64_MAX : last + step;
    }
    return EXO_OK;
}

exo_status
exo_parameters_view(exo_parameters *out, const exo_item *item, exo_err *err)
{
    const exo_item_part *p = item->parts;
    size_t finished = 0;
    bool good = item->num_parts == NUM_PARTS && p[HEADER].dtype == EXO_I64 &&
                p[HEADER].count >= HEADER_WORDS && p[BYTES].dtype == EXO_U8 &&
                is_header(&p[HEADER], &finished);
    const int64_t *header = p[HEADER].data;
    exo_status st = good ? check_finished(header, finished, err)
                         : exo_fail(err, EXO_INVAL,
                                    "this is no item with a weight update of format %d", FORMAT);
    if (st == EXO_OK)
        st = check_deals(header, header + HEADER_WORDS + 2 * finished, err);
    if (st != EXO_OK)
        return st;
    *out = (exo_parameters){.version = (uint64_t)header[VERSION],
                            .quota = (uint64_t)header[QUOTA],
                            .learned = (uint64_t)header[LEARNED],
                            .base = (uint64_t)header[BASE],
                            .trainer = (uint32_t)header[TRAINER],
                            .trainers = (uint32_t)header[TRAINERS],
                            .life = (uint32_t)header[LIFE],
                            .round = (uint64_t)header[ROUND],
                            .canary = header[CANARY] != 0,
                            .apart = header[APART] != 0,
                            .update = (uint64_t)header[UPDATE],
                            .under_way = (uint64_t)header[UNDER_WAY],
                            .learns = header[LEARNS],
                            .finished = (const uint64_t *)header + HEADER_WORDS,
                            .num_finished = finished,
                            .dealing = (exo_dealing)header[DEALS],
                            .deals = header + HEADER_WORDS + 2 * finished,
                            .num_deals = (size_t)header[NUM_DEALS],
                            .bytes = p[BYTES].data,
                            .size = p[BYTES].count};
    return EXO_OK;
}

bool
exo_parameters_chunk(const exo_parameters *p, size_t *at, const uint8_t **bytes, size_t *size,
                     bool *damaged)
{
    uint64_t length = 0;
    size_t left = p->size - *at;
    *damaged = false;
    if (left == 0)
        return false;
    for (size_t i = 0; i < LENGTH_BYTES && left >= LENGTH_BYTES; i++)
        length |= (uint64_t)p->bytes[*at + i] << 8 * i;
    *damaged = left < LENGTH_BYTES || length > left - LENGTH_BYTES;
    if (*damaged)
        return false;
    *bytes = p->bytes + *at + LENGTH_BYTES;
    *size = (size_t)length;
    *at += LENGTH_BYTES + *size;
    return true;
}

/* --- Replies ---------------------------------------------------------------------------------- */

exo_status
exo_parameters_reply_new(exo_item **out, const exo_parameters_reply *r, exo_err *err)
{
    const exo_item_part parts[NUM_REPLY_PARTS] = {
        [REPLY_HEADER] = {.dtype = EXO_I64, .count = REPLY_WORDS},
        [REPLY_MAKER] = {.dtype = EXO_U8, .count = sizeof r->maker},
        [REPLY_BYTES] = {.dtype = EXO_U8, .count = EXO_UPDATE_REPLY_BYTES},
    };
    exo_status st = exo_item_new(out, parts, NUM_REPLY_PARTS, err);
    if (st != EXO_OK)
        return st;
    int64_t *header = (*out)->parts[REPLY_HEADER].data;
    header[REPLY_FORMAT_WORD] = FORMAT;
    header[REPLY_WEIGHTS] = (int64_t)r->format;
    header[REPLY_TRAINER] = (int64_t)r->trainer;
    header[REPLY_LIFE] = (int64_t)r->life;
    header[REPLY_ROOM] = (int64_t)r->room;
    header[REPLY_PORTION] = (int64_t)r->portion;
    header[REPLY_TOTAL] = r->total > INT64_MAX ? -1 : (int64_t)r->total;
    header[REPLY_SENT] = r->sent;
    header[REPLY_PASSED] = r->passed;
    memcpy((*out)->parts[REPLY_MAKER].data, r->maker, sizeof r->maker);
    exo_update_reply_write(&r->reply, (*out)->parts[REPLY_BYTES].data);
    (*out)->version = r->reply.version;
    return EXO_OK;
}

bool
exo_parameters_is_reply(const exo_item *item)
{
    return item->num_parts == NUM_REPLY_PARTS;
}

/* The header of a reply; NULL: it has another shape. */
static const int64_t *
header_of_reply(const exo_item *item)
{
    const exo_item_part *p = &item->parts[REPLY_HEADER];
    return exo_parameters_is_reply(item) && p->dtype == EXO_I64 && p->count == REPLY_WORDS ? p->data
                                                                                           : NULL;
}

uint32_t
exo_parameters_reply_trainer(const exo_item *item)
{
    const int64_t *header = header_of_reply(item);
    return header ? (uint32_t)header[REPLY_TRAINER] : 0;
}

bool
exo_parameters_reply_is_last(const exo_item *item)
{
    const int64_t *header = header_of_reply(item);
    return header && header[REPLY_SENT] == 1;
}

/* Whether the numbers of a reply's header are in their ranges. */
static bool
is_reply_header(const int64_t *h)
{
    return h[REPLY_FORMAT_WORD] == FORMAT && h[REPLY_WEIGHTS] >= 0 &&
           h[REPLY_WEIGHTS] <= EXO_WEIGHTS_INT4 && h[REPLY_TRAINER] >= 0 &&
           h[REPLY_TRAINER] <= EXO_ALL_TRAINERS && h[REPLY_LIFE] >= 0 &&
           h[REPLY_LIFE] <= UINT32_MAX && h[REPLY_ROOM] >= 0 && h[REPLY_ROOM] <= INT32_MAX &&
           h[REPLY_PORTION] >= 0 && (h[REPLY_ROOM] == 0 || h[REPLY_PORTION] <= h[REPLY_ROOM]) &&
           h[REPLY_TOTAL] >= -1 && (h[REPLY_SENT] == 0 || h[REPLY_SENT] == 1) &&
           (h[REPLY_PASSED] == 0 || h[REPLY_PASSED] == 1);
}

exo_status
exo_parameters_reply_read(exo_parameters_reply *out, const exo_item *item, exo_err *err)
{
    const exo_item_part *p = item->parts;
    const int64_t *header = header_of_reply(item);
    if (!header || p[REPLY_MAKER].dtype != EXO_U8 || p[REPLY_MAKER].count != sizeof out->maker ||
        p[REPLY_BYTES].dtype != EXO_U8 || !is_reply_header(header))
        return exo_fail(err, EXO_DAMAGED, "this is no reply to a weight update of format %d",
                        FORMAT);
    out->format = (exo_weight_format)header[REPLY_WEIGHTS];
    out->trainer = (uint32_t)header[REPLY_TRAINER];
    out->life = (uint32_t)header[REPLY_LIFE];
    out->room = (uint64_t)header[REPLY_ROOM];
    out->portion = (uint64_t)header[REPLY_PORTION];
    out->total = header[REPLY_TOTAL] < 0 ? UINT64_MAX : (uint64_t)header[REPLY_TOTAL];
    out->sent = header[REPLY_SENT] == 1;
    out->passed = header[REPLY_PASSED] == 1;
    memcpy(out->maker, p[REPLY_MAKER].data, sizeof out->maker);
    out->maker[sizeof out->maker - 1] = '\0';
    return exo_update_reply_read(p[REPLY_BYTES].data, p[REPLY_BYTES].count, &out->reply, err);
}
