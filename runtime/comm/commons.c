/* Memory in common: see exogym/comm.h and commons.h. The k-th sheet that a member takes among some
 * members is the k-th of each other one, as with calls. A sheet that all members have left is free for
 * another round of the same shape. One that a member never took, because it died, stays until the
 * pool is freed with its communicator.
 *
 * The members call exo_all_gather with the same address; runtime/comm/local_call.c copies nothing
 * then. State: struct exo_commons_pool, guarded by its lock; the elements of a sheet as comm.h says. */
#include "comm/commons.h"

#include <pthread.h>
#include <stdbool.h>
#include <string.h>

#include <exogym/memory.h>

#include "base/parallel.h"
#include "base/waiting.h"
#include "comm/group.h"

/* What a sheet's result is. */
enum progress {
    MISSING,
    BEGUN, /* a member computes it */
    THERE, /* or its error */
};

struct sheet {
    struct sheet *next; /* of the same circle */
    const struct circle *circle;
    uint64_t number; /* of the round, from 1; 0: the sheet is free */
    uint32_t left;   /* members that have left it */
    exo_array parts, result;
    enum progress progress;
    exo_err failure; /* of the result; code OK: none */
};

/* The members of a group, each of which has its own handle of it. */
struct circle {
    struct circle *next;
    uint32_t size;
    uint32_t *ranks; /* (size) NULL: all members */
    uint64_t *taken; /* (size) sheets that each of them has taken */
    struct sheet *sheets;
};

struct exo_commons_pool {
    _Atomic uint32_t references;
    pthread_mutex_t lock;
    pthread_cond_t computed;
    struct circle *circles;
};

struct exo_commons {
    exo_device *device;
    exo_dtype dtype;
    size_t count, results;
    exo_array own; /* the parts, where nothing is shared; no array before the first take */
    struct exo_commons_pool *pool; /* held while the member has a sheet; else NULL */
    struct sheet *sheet;
};

/* --- The pool --------------------------------------------------------------------------------- */

static void
free_sheet(struct sheet *s)
{
    exo_array_release(&s->parts);
    exo_array_release(&s->result);
    exo_free(s);
}

static void
free_circle(struct circle *c)
{
    for (struct sheet *s = c->sheets, *next; s; s = next) {
        next = s->next;
        free_sheet(s);
    }
    exo_free(c->ranks);
    exo_free(c->taken);
    exo_free(c);
}

exo_status
exo_commons_pool_new(struct exo_commons_pool **out, exo_err *err)
{
    struct exo_commons_pool *p = *out = exo_calloc(1, sizeof *p);
    if (!p)
        return exo_fail(err, EXO_NOMEM, "no memory for a communicator");
    p->references = 1;
    pthread_mutex_init(&p->lock, NULL);
    exo_condition_init(&p->computed);
    return EXO_OK;
}

void
exo_commons_pool_drop(struct exo_commons_pool **pool)
{
    struct exo_commons_pool *p = *pool;
    *pool = NULL;
    if (!p || --p->references > 0)
        return;
    for (struct circle *c = p->circles, *next; c; c = next) {
        next = c->next;
        free_circle(c);
    }
    pthread_cond_destroy(&p->computed);
    pthread_mutex_destroy(&p->lock);
    exo_free(p);
}

/* The pool from which a member takes its sheets. NULL: it has memory of its own. */
static struct exo_commons_pool *
pool_of(const exo_commons *c, const exo_group *group)
{
    return group && c->device == exo_device_cpu() ? group->comm->commons : NULL;
}

static bool
is_of(const struct circle *c, const exo_group *group)
{
    if (c->size != group->size || (c->ranks == NULL) != (group->ranks == NULL))
        return false;
    return !c->ranks || memcmp(c->ranks, group->ranks, c->size * sizeof *c->ranks) == 0;
}

/* The circle of a group. NULL: no memory. */
static struct circle *
find_circle_locked(struct exo_commons_pool *p, const exo_group *group)
{
    for (struct circle *c = p->circles; c; c = c->next)
        if (is_of(c, group))
            return c;
    struct circle *c = exo_calloc(1, sizeof *c);
    if (!c)
        return NULL;
    c->size = group->size;
    c->taken = exo_calloc(c->size, sizeof *c->taken);
    c->ranks = group->ranks ? exo_calloc(c->size, sizeof *c->ranks) : NULL;
    if (!c->taken || (group->ranks && !c->ranks)) {
        free_circle(c);
        return NULL;
    }
    if (c->ranks)
        memcpy(c->ranks, group->ranks, c->size * sizeof *c->ranks);
    c->next = p->circles;
    p->circles = c;
    return c;
}

static bool
has_shape(const struct sheet *s, const exo_commons *c)
{
    return s->parts.count == c->count && s->parts.dtype == c->dtype &&
           s->result.count == c->results;
}

static exo_status
add_sheet_locked(struct circle *among, const exo_commons *c, struct sheet **out, exo_err *err)
{
    struct sheet *s = exo_calloc(1, sizeof *s);
    if (!s)
        return exo_fail(err, EXO_NOMEM, "no memory for what %u members share", among->size);
    exo_status st = exo_array_init(&s->parts, c->device, c->dtype, c->count, err);
    if (st == EXO_OK)
        st = exo_array_init(&s->result, c->device, EXO_F32, c->results, err);
    if (st != EXO_OK) {
        free_sheet(s);
        return st;
    }
    s->circle = among;
    s->next = among->sheets;
    among->sheets = s;
    *out = s;
    return EXO_OK;
}

/* The sheet of the member's next round, or else a free one, or a new one. */
static exo_status
find_sheet_locked(struct circle *among, const exo_commons *c, uint32_t place, struct sheet **out,
                  exo_err *err)
{
    const uint64_t number = among->taken[place] + 1;
    struct sheet *found = NULL;
    exo_status st = EXO_OK;
    for (struct sheet *s = among->sheets; s; s = s->next) {
        if (s->number == number && !has_shape(s, c))
            return exo_fail(err, EXO_INVAL,
                            "members disagree: rank %u shares %zu elements of %s, "
                            "others %zu of %s",
                            place, c->count, exo_dtype_name(c->dtype), s->parts.count,
                            exo_dtype_name(s->parts.dtype));
        if (s->number == number || (!found && s->number == 0 && has_shape(s, c)))
            found = s;
        if (s->number == number)
            break;
    }
    if (!found)
        st = add_sheet_locked(among, c, &found, err);
    if (st != EXO_OK)
        return st;
    if (found->number == 0) {
        found->left = 0;
        found->progress = MISSING;
        found->failure = (exo_err){0};
    }
    found->number = number;
    *out = found;
    return EXO_OK;
}

/* --- A member's memory ------------------------------------------------------------------------ */

/* Allocates what take will need. */
static exo_status
reserve(exo_commons *c, const exo_group *group, exo_err *err)
{
    struct exo_commons_pool *p = pool_of(c, group);
    if (!p)
        return exo_array_init(&c->own, c->device, c->dtype, c->count, err);
    pthread_mutex_lock(&p->lock);
    struct circle *among = find_circle_locked(p, group);
    struct sheet *s = among ? among->sheets : NULL;
    while (s && !has_shape(s, c))
        s = s->next;
    exo_status st =
        !among ? exo_fail(err, EXO_NOMEM, "no memory for what %u members share", group->size)
        : s    ? EXO_OK
               : add_sheet_locked(among, c, &s, err);
    pthread_mutex_unlock(&p->lock);
    return st;
}

exo_status
exo_commons_new(exo_commons **out, const exo_group *group, exo_device *device, exo_dtype dtype,
                size_t count, size_t results, exo_err *err)
{
    exo_commons *c = *out = exo_calloc(1, sizeof *c);
    if (!c)
        return exo_fail(err, EXO_NOMEM, "no memory for %zu elements in common", count);
    *c = (exo_commons){.device = device, .dtype = dtype, .count = count, .results = results};
    exo_status st = reserve(c, group, err);
    if (st != EXO_OK)
        exo_commons_free(out);
    return st;
}

void
exo_commons_free(exo_commons **commons)
{
    exo_commons *c = *commons;
    *commons = NULL;
    if (!c)
        return;
    exo_commons_leave(c);
    exo_array_release(&c->own);
    exo_free(c);
}

exo_status
exo_commons_take(exo_commons *c, exo_group *group, exo_err *err)
{
    struct exo_commons_pool *p = pool_of(c, group);
    exo_commons_leave(c);
    if (!p)
        return c->own.device ? EXO_OK : exo_array_init(&c->own, c->device, c->dtype, c->count, err);
    pthread_mutex_lock(&p->lock);
    struct circle *among = find_circle_locked(p, group);
    exo_status st =
        among ? find_sheet_locked(among, c, group->place, &c->sheet, err)
              : exo_fail(err, EXO_NOMEM, "no memory for what %u members share", group->size);
    if (st == EXO_OK)
        among->taken[group->place]++;
    pthread_mutex_unlock(&p->lock);
    if (st != EXO_OK)
        return st;
    p->references++;
    c->pool = p;
    return EXO_OK;
}

exo_array
exo_commons_parts(const exo_commons *c)
{
    return c->sheet ? c->sheet->parts : c->own;
}

void
exo_commons_leave(exo_commons *c)
{
    struct sheet *s = c->sheet;
    if (!s)
        return;
    pthread_mutex_lock(&c->pool->lock);
    if (++s->left == s->circle->size)
        s->number = 0;
    pthread_mutex_unlock(&c->pool->lock);
    c->sheet = NULL;
    exo_commons_pool_drop(&c->pool);
}

/* --- The result ------------------------------------------------------------------------------- */

/* Waits while another member computes the result. True: it is for this one to compute. */
static bool
claim(struct exo_commons_pool *p, struct sheet *s)
{
    pthread_mutex_lock(&p->lock);
    bool mine = s->progress == MISSING, waits = s->progress == BEGUN;
    if (mine)
        s->progress = BEGUN;
    pthread_mutex_unlock(&p->lock);
    if (!waits)
        return mine;
    exo_compute_pause();
    pthread_mutex_lock(&p->lock);
    while (s->progress != THERE)
        pthread_cond_wait(&p->computed, &p->lock); /* bounded: another member computes */
    pthread_mutex_unlock(&p->lock);
    exo_compute_resume();
    return false;
}

exo_status
exo_commons_compute(exo_commons *c, exo_array to, exo_commons_function *function, void *context,
                    exo_err *err)
{
    struct sheet *s = c->sheet;
    exo_err failure = {0};
    if (!s)
        return function(context, to, err);
    struct exo_commons_pool *p = c->pool;
    if (claim(p, s)) {
        function(context, s->result, &failure);
        pthread_mutex_lock(&p->lock);
        s->failure = failure;
        s->progress = THERE;
        pthread_cond_broadcast(&p->computed);
        pthread_mutex_unlock(&p->lock);
    }
    if (s->failure.code != EXO_OK)
        return exo_fail(err, s->failure.code, "%s", s->failure.text);
    exo_vec_copy(to, s->result);
    return EXO_OK;
}
