/* Meters (exogym/meter.h). The children of a scope are a list in the order of declaration, which
 * only grows. One lock of the tree guards all lists. */
#include "base/meter.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include <exogym/memory.h>

#include "base/utf8.h"

struct exo_meter {
    const exo_meter_class *meter_class;
    void *copy; /* a copy of the class, with its texts and bounds; NULL: the class is static */
    _Atomic uint64_t count;
    _Atomic uint64_t bits; /* the value, a double; a loop of compare-and-swap adds to it */
    _Atomic uint64_t buckets[];
};

/* A scope, or a leaf that is a meter. */
struct exo_meters {
    struct tree *tree;
    exo_meters *next;         /* the next child of the same scope; guarded by tree->lock */
    exo_meters *first, *last; /* the children; guarded by tree->lock */
    exo_meter *meter;         /* NULL: a scope */
    char name[EXO_METER_NAME];
};

struct tree {
    exo_meters root; /* the first member: the tree is its outermost scope */
    pthread_mutex_t lock;
    size_t count; /* guarded by lock */
};

static uint64_t
bits_of(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static double
value_of(uint64_t bits)
{
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* --- The tree --------------------------------------------------------------------------------- */

exo_status
exo_meters_new(exo_meters **out, exo_err *err)
{
    struct tree *tree = exo_calloc(1, sizeof *tree);
    if (!tree)
        return exo_fail(err, EXO_NOMEM, "no memory for a tree of meters");
    pthread_mutex_init(&tree->lock, NULL);
    tree->root.tree = tree;
    *out = &tree->root;
    return EXO_OK;
}

static void
free_meter(exo_meter *meter)
{
    if (meter)
        exo_free(meter->copy);
    exo_free(meter);
}

/* Frees the nodes below a scope, each after its children. The recursion is as deep as the
 * scopes. */
static void
free_below(exo_meters *scope)
{
    for (exo_meters *node = scope->first, *next; node; node = next) {
        next = node->next;
        free_below(node);
        free_meter(node->meter);
        exo_free(node);
    }
}

void
exo_meters_free(exo_meters **tree)
{
    if (!*tree)
        return;
    struct tree *t = (*tree)->tree;
    free_below(&t->root);
    pthread_mutex_destroy(&t->lock);
    exo_free(t);
    *tree = NULL;
}

static bool
is_name(const char *name)
{
    size_t length = strlen(name);
    return length > 0 && length < EXO_METER_NAME &&
           strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") ==
               length;
}

/* Returns the child of a name, or NULL. Needs the lock. */
static exo_meters *
find(const exo_meters *scope, const char *name)
{
    exo_meters *node = scope->first;
    while (node && strcmp(node->name, name) != 0)
        node = node->next;
    return node;
}

/* Adds a node, which then belongs to the tree. Needs the lock. */
static exo_status
append(exo_meters *scope, exo_meters *node)
{
    if (scope->tree->count >= EXO_METERS_MAX)
        return EXO_FULL;
    scope->tree->count++;
    if (scope->last)
        scope->last->next = node;
    else
        scope->first = node;
    scope->last = node;
    return EXO_OK;
}

static exo_meters *
new_node(const exo_meters *scope, const char *name, exo_meter *meter)
{
    exo_meters *node = exo_calloc(1, sizeof *node);
    if (node) {
        node->tree = scope->tree;
        node->meter = meter;
        memcpy(node->name, name, strlen(name) + 1);
    }
    return node;
}

static exo_status
fail(exo_status st, const char *name, exo_err *err)
{
    if (st == EXO_NOMEM)
        return exo_fail(err, st, "no memory for the meter '%s'", name);
    if (st == EXO_FULL)
        return exo_fail(err, st, "the meter '%s' is one too many: there are %d", name,
                        EXO_METERS_MAX);
    return exo_fail(err, st, "there is already another meter or scope '%s'", name);
}

exo_status
exo_meters_scope(exo_meters **out, exo_meters *parent, const char *name, exo_err *err)
{
    exo_status st = EXO_OK;
    *out = NULL;
    if (!parent)
        return EXO_OK;
    if (!is_name(name))
        return exo_fail(err, EXO_INVAL, "'%.80s' is no name of a scope of meters", name);
    pthread_mutex_lock(&parent->tree->lock);
    exo_meters *node = find(parent, name);
    if (node && node->meter) {
        st = EXO_EXISTS;
    } else if (!node) {
        node = new_node(parent, name, NULL);
        st = node ? append(parent, node) : EXO_NOMEM;
        if (st != EXO_OK)
            exo_free(node);
    }
    pthread_mutex_unlock(&parent->tree->lock);
    if (st != EXO_OK)
        return fail(st, name, err);
    *out = node;
    return EXO_OK;
}

/* Whether a CSV file can have the text without quotes. */
static bool
is_unit(const char *unit)
{
    size_t length = unit ? strlen(unit) : 0;
    for (size_t i = 0; i < length; i++)
        if (unit[i] < ' ' || unit[i] > '~' || unit[i] == ',' || unit[i] == '"')
            return false;
    return length > 0 && length < EXO_METER_UNIT;
}

static bool
is_help(const char *help)
{
    size_t length = help ? strlen(help) : 0;
    for (size_t i = 0; i < length; i++)
        if ((unsigned char)help[i] < ' ' || help[i] == 0x7f)
            return false;
    return length > 0 && length < EXO_METER_HELP && exo_utf8_valid(help, length) == length;
}

static exo_status
check_class(const exo_meter_class *c, exo_err *err)
{
    if (!c->name || !is_name(c->name) || !is_unit(c->unit) || !is_help(c->help))
        return exo_fail(err, EXO_INVAL,
                        "a meter needs a name, a unit and a text that says what it means");
    if ((unsigned)c->kind > EXO_HISTOGRAM || c->num_bounds > EXO_METER_BOUNDS ||
        (c->kind == EXO_HISTOGRAM) != (c->num_bounds > 0))
        return exo_fail(err, EXO_INVAL,
                        "the meter '%s': a histogram has 1 to %d bounds, others none", c->name,
                        EXO_METER_BOUNDS);
    for (size_t i = 0; i < c->num_bounds; i++)
        if (!(isfinite(c->bounds[i]) && (i == 0 || c->bounds[i - 1] < c->bounds[i])))
            return exo_fail(err, EXO_INVAL,
                            "the meter '%s': its bounds are not finite and ascending", c->name);
    return EXO_OK;
}

static exo_meter *
new_meter(const exo_meter_class *c)
{
    exo_meter *m = exo_calloc(1, sizeof *m + (c->num_bounds + 1) * sizeof m->buckets[0]);
    if (m) {
        m->meter_class = c;
        atomic_init(&m->bits, bits_of(c->kind == EXO_GAUGE ? (double)NAN : 0.0));
    }
    return m;
}

static bool
is_same(const exo_meter_class *a, const exo_meter_class *b)
{
    return a->kind == b->kind && strcmp(a->unit, b->unit) == 0 && a->num_bounds == b->num_bounds &&
           (a->num_bounds == 0 ||
            memcmp(a->bounds, b->bounds, a->num_bounds * sizeof *a->bounds) == 0);
}

/* A copy of the class, in one piece with its texts and bounds. */
static exo_meter_class *
copy_class(const exo_meter_class *c)
{
    struct {
        exo_meter_class meter_class;
        double bounds[EXO_METER_BOUNDS];
        char name[EXO_METER_NAME], unit[EXO_METER_UNIT], help[EXO_METER_HELP];
    } *copy = exo_calloc(1, sizeof *copy);
    if (!copy)
        return NULL;
    memcpy(copy->name, c->name, strlen(c->name) + 1);
    memcpy(copy->unit, c->unit, strlen(c->unit) + 1);
    memcpy(copy->help, c->help, strlen(c->help) + 1);
    if (c->num_bounds > 0)
        memcpy(copy->bounds, c->bounds, c->num_bounds * sizeof *c->bounds);
    copy->meter_class = (exo_meter_class){.name = copy->name,
                                          .unit = copy->unit,
                                          .help = copy->help,
                                          .kind = c->kind,
                                          .bounds = c->num_bounds > 0 ? copy->bounds : NULL,
                                          .num_bounds = c->num_bounds};
    return &copy->meter_class;
}

/* Makes a node with a new meter, of the class or of a copy of the class. NULL: no memory. */
static exo_meters *
new_leaf(const exo_meters *scope, const exo_meter_class *c, bool copied)
{
    exo_meter_class *copy = copied ? copy_class(c) : NULL;
    exo_meter *meter = copied && !copy ? NULL : new_meter(copied ? copy : c);
    exo_meters *node = meter ? new_node(scope, c->name, meter) : NULL;
    if (meter)
        meter->copy = copy;
    else
        exo_free(copy);
    if (!node)
        free_meter(meter);
    return node;
}

/* Whether a node is the meter of a class. `copied`: its class need only be equal. Needs the
 * lock. */
static bool
is_that(const exo_meters *node, const exo_meter_class *c, bool copied)
{
    return node->meter && (copied ? is_same(node->meter->meter_class, c)
                                  : !node->meter->copy && node->meter->meter_class == c);
}

/* Gives the meter of a checked class, and makes it if it is new. */
static exo_status
declare(exo_meter **out, exo_meters *scope, const exo_meter_class *c, bool copied, exo_err *err)
{
    exo_status st = EXO_OK;
    pthread_mutex_lock(&scope->tree->lock);
    exo_meters *node = find(scope, c->name);
    if (node) {
        st = is_that(node, c, copied) ? EXO_OK : EXO_EXISTS;
    } else {
        node = new_leaf(scope, c, copied);
        st = node ? append(scope, node) : EXO_NOMEM;
        if (st == EXO_FULL) {
            free_meter(node->meter);
            exo_free(node);
        }
    }
    *out = st == EXO_OK ? node->meter : NULL;
    pthread_mutex_unlock(&scope->tree->lock);
    return st == EXO_OK ? st : fail(st, c->name, err);
}

exo_status
exo_meter_declare(exo_meter **out, exo_meters *scope, const exo_meter_class *meter_class,
                  exo_err *err)
{
    *out = NULL;
    exo_status st = check_class(meter_class, err);
    return st == EXO_OK && scope ? declare(out, scope, meter_class, false, err) : st;
}

exo_status
exo_meter_declare_all(exo_meter **out, exo_meters *scope, const exo_meter_class *classes,
                      size_t count, exo_err *err)
{
    exo_status st = EXO_OK;
    for (size_t i = 0; i < count; i++) {
        out[i] = NULL;
        if (st == EXO_OK)
            st = exo_meter_declare(&out[i], scope, &classes[i], err);
    }
    return st;
}

/* --- Counting --------------------------------------------------------------------------------- */

void
exo_meter_add(exo_meter *meter, uint64_t amount)
{
    if (meter)
        atomic_fetch_add_explicit(&meter->count, amount, memory_order_relaxed);
}

void
exo_meter_count(exo_meter *meter, uint64_t total)
{
    if (meter)
        atomic_store_explicit(&meter->count, total, memory_order_relaxed);
}

void
exo_meter_set(exo_meter *meter, double value)
{
    if (meter)
        atomic_store_explicit(&meter->bits, bits_of(value), memory_order_relaxed);
}

void
exo_meter_observe(exo_meter *meter, double value)
{
    if (!meter)
        return;
    const exo_meter_class *c = meter->meter_class;
    size_t bucket = 0;
    while (bucket < c->num_bounds && !(value <= c->bounds[bucket]))
        bucket++;
    atomic_fetch_add_explicit(&meter->buckets[bucket], 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&meter->count, 1, memory_order_relaxed);
    if (isnan(value))
        return;
    uint64_t before = atomic_load_explicit(&meter->bits, memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(&meter->bits, &before,
                                                  bits_of(value_of(before) + value),
                                                  memory_order_relaxed, memory_order_relaxed))
        ;
}

/* --- Walking ---------------------------------------------------------------------------------- */

struct walk {
    void (*each)(void *context, const exo_meter_sample *sample);
    void *context;
    char path[EXO_METER_PATH];
};

static exo_meter_sample
sample_of(const exo_meter *m, const char *path)
{
    exo_meter_sample s = {.path = path,
                          .meter_class = m->meter_class,
                          .count = atomic_load_explicit(&m->count, memory_order_relaxed),
                          .value = value_of(atomic_load_explicit(&m->bits, memory_order_relaxed))};
    for (size_t i = 0; m->meter_class->kind == EXO_HISTOGRAM && i <= m->meter_class->num_bounds;
         i++)
        s.buckets[i] = atomic_load_explicit(&m->buckets[i], memory_order_relaxed);
    return s;
}

/* Nodes are never removed, so the lock is needed to read a link, but not while `each` runs. */
static exo_meters *
next_of(const exo_meters *scope, const exo_meters *node)
{
    pthread_mutex_lock(&scope->tree->lock);
    exo_meters *next = node ? node->next : scope->first;
    pthread_mutex_unlock(&scope->tree->lock);
    return next;
}

static bool
walk(struct walk *w, const exo_meters *scope, size_t length)
{
    for (const exo_meters *node = next_of(scope, NULL); node; node = next_of(scope, node)) {
        size_t room = sizeof w->path - length;
        int added = snprintf(w->path + length, room, "%s%s", length ? "." : "", node->name);
        if (added < 0 || (size_t)added >= room)
            return false;
        if (node->meter) {
            const exo_meter_sample s = sample_of(node->meter, w->path);
            w->each(w->context, &s);
        } else if (!walk(w, node, length + (size_t)added)) {
            return false;
        }
    }
    return true;
}

exo_status
exo_meters_walk(const exo_meters *scope,
                void (*each)(void *context, const exo_meter_sample *sample), void *context,
                exo_err *err)
{
    struct walk w = {.each = each, .context = context};
    return !scope || walk(&w, scope, 0)
               ? EXO_OK
               : exo_fail(err, EXO_FULL, "scopes of meters are nested too deep: '%.80s...'",
                          w.path);
}

/* --- Counts of other processes and of files --------------------------------------------------- */

/* Gives the scope that has the last name of a path, and makes it if it is new; gives that name,
 * too. */
static exo_status
scope_of(exo_meters *scope, const char *path, exo_meters **out, const char **name, exo_err *err)
{
    exo_status st = EXO_OK;
    for (const char *dot; st == EXO_OK && (dot = strchr(path, '.')); path = dot + 1) {
        char part[EXO_METER_NAME];
        size_t length = (size_t)(dot - path);
        if (length >= sizeof part)
            return exo_fail(err, EXO_INVAL, "'%.80s' is no path of a meter", path);
        memcpy(part, path, length);
        part[length] = '\0';
        st = exo_meters_scope(&scope, scope, part, err);
    }
    *out = scope;
    *name = path;
    return st;
}

static void
restore(exo_meter *m, const exo_meter_sample *s)
{
    atomic_store_explicit(&m->count, s->count, memory_order_relaxed);
    atomic_store_explicit(&m->bits, bits_of(s->value), memory_order_relaxed);
    for (size_t i = 0; m->meter_class->kind == EXO_HISTOGRAM && i <= m->meter_class->num_bounds;
         i++)
        atomic_store_explicit(&m->buckets[i], s->buckets[i], memory_order_relaxed);
}

exo_status
exo_meters_put(exo_meters *scope, const exo_meter_sample *sample, exo_err *err)
{
    exo_meters *parent = NULL;
    exo_meter *meter = NULL;
    exo_meter_class c = *sample->meter_class;
    exo_status st = strlen(sample->path) < EXO_METER_PATH
                        ? EXO_OK
                        : exo_fail(err, EXO_INVAL, "'%.80s...' is too long for a path of a meter",
                                   sample->path);
    c.name = strrchr(sample->path, '.') ? strrchr(sample->path, '.') + 1 : sample->path;
    if (st == EXO_OK)
        st = check_class(&c, err);
    if (st == EXO_OK)
        st = scope_of(scope, sample->path, &parent, &c.name, err);
    if (st == EXO_OK)
        st = declare(&meter, parent, &c, true, err);
    if (st == EXO_OK)
        restore(meter, sample);
    return st;
}

bool
exo_meters_get(const exo_meters *scope, const char *path, exo_meter_sample *out)
{
    const exo_meters *node = scope;
    const char *at = path;
    while (node && !node->meter) {
        char part[EXO_METER_NAME];
        size_t length = strcspn(at, ".");
        if (length >= sizeof part)
            return false;
        memcpy(part, at, length);
        part[length] = '\0';
        pthread_mutex_lock(&node->tree->lock);
        const exo_meters *next = find(node, part);
        pthread_mutex_unlock(&node->tree->lock);
        at += length;
        if (next && (*at == '.') == (next->meter != NULL))
            return false; /* a path goes on in a scope, and ends at a meter */
        at += *at == '.';
        node = next;
    }
    if (!node)
        return false;
    *out = sample_of(node->meter, path);
    return true;
}

void
exo_meter_sample_add(exo_meter_sample *since, const exo_meter_sample *before)
{
    const exo_meter_class *c = since->meter_class, *was = before->meter_class;
    if (!is_same(c, was))
        return;
    if (c->kind == EXO_GAUGE) {
        since->value = isnan(since->value) ? before->value : since->value;
        return;
    }
    since->count += before->count;
    since->value += before->value;
    for (size_t i = 0; c->kind == EXO_HISTOGRAM && i <= c->num_bounds; i++)
        since->buckets[i] += before->buckets[i];
}
