/* Meters: see meter.h. A scope's children are a list in the order of declaration, which only grows; one lock of the tree guards all lists. */
#include "base/meter.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include <exogym/memory.h>

enum {
    MAX_PATH = 1024
};

struct exo_meter {
    const exo_meter_class *meter_class;
    _Atomic uint64_t count;
    _Atomic uint64_t bits; /* of the value, a double: a loop of compare-and-swap adds to it */
    _Atomic uint64_t buckets[];
};

/* A scope, or a leaf that is a meter. */
struct exo_meters {
    struct tree *tree;
    exo_meters *next;         /* of the same scope; guarded by tree->lock, as are the two below */
    exo_meters *first, *last; /* in it */
    exo_meter *meter;         /* NULL: a scope */
    char name[EXO_METER_NAME];
};

struct tree {
    exo_meters root; /* first: the tree is its outermost scope */
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

/* --- The tree ----------------------------------------------------------------------------------------------------------- */

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

/* The nodes below one, each after what is in it. Depth is the depth of scopes. */
static void
free_below(exo_meters *scope)
{
    for (exo_meters *node = scope->first, *next; node; node = next) {
        next = node->next;
        free_below(node);
        exo_free(node->meter);
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
           strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") == length;
}

/* Under the lock: the child of that name, or NULL. */
static exo_meters *
find(const exo_meters *scope, const char *name)
{
    exo_meters *node = scope->first;
    while (node && strcmp(node->name, name) != 0)
        node = node->next;
    return node;
}

/* Under the lock: adds a node, which belongs to the tree then. */
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
        return exo_fail(err, st, "the meter '%s' is one too many: there are %d", name, EXO_METERS_MAX);
    return exo_fail(err, st, "there is already another meter or scope '%s'", name);
}

exo_status
exo_meters_scope(exo_meters **out, exo_meters *parent, const char *name, exo_err *err)
{
    if (!is_name(name))
        return exo_fail(err, EXO_INVAL, "'%.80s' is no name of a scope of meters", name);
    exo_status st = EXO_OK;
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

static exo_status
check_class(const exo_meter_class *c, exo_err *err)
{
    if (!c->name || !is_name(c->name) || !c->unit || !*c->unit || !c->help || !*c->help)
        return exo_fail(err, EXO_INVAL, "a meter needs a name, a unit and a text that says what it means");
    if ((unsigned)c->kind > EXO_HISTOGRAM || c->num_bounds > EXO_METER_BOUNDS ||
        (c->kind == EXO_HISTOGRAM) != (c->num_bounds > 0))
        return exo_fail(err, EXO_INVAL, "the meter '%s': a histogram has 1 to %d bounds, others none", c->name,
                        EXO_METER_BOUNDS);
    for (size_t i = 0; i < c->num_bounds; i++)
        if (!(isfinite(c->bounds[i]) && (i == 0 || c->bounds[i - 1] < c->bounds[i])))
            return exo_fail(err, EXO_INVAL, "the meter '%s': its bounds are not finite and ascending", c->name);
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

exo_status
exo_meter_declare(exo_meter **out, exo_meters *scope, const exo_meter_class *meter_class, exo_err *err)
{
    exo_status st = check_class(meter_class, err);
    if (st != EXO_OK)
        return st;
    exo_meter *meter = new_meter(meter_class);
    exo_meters *node = meter ? new_node(scope, meter_class->name, meter) : NULL;
    if (!node) {
        exo_free(meter);
        return fail(EXO_NOMEM, meter_class->name, err);
    }
    pthread_mutex_lock(&scope->tree->lock);
    const exo_meters *there = find(scope, meter_class->name);
    if (!there)
        st = append(scope, node);
    else if (!there->meter || there->meter->meter_class != meter_class)
        st = EXO_EXISTS;
    pthread_mutex_unlock(&scope->tree->lock);
    if (there || st != EXO_OK) {
        exo_free(meter);
        exo_free(node);
    }
    if (st != EXO_OK)
        return fail(st, meter_class->name, err);
    *out = there ? there->meter : meter;
    return EXO_OK;
}

/* --- Counting -------------------------------------------------------------------------------------------------------------- */

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
    while (!atomic_compare_exchange_weak_explicit(&meter->bits, &before, bits_of(value_of(before) + value),
                                                  memory_order_relaxed, memory_order_relaxed))
        ;
}

/* --- Walking --------------------------------------------------------------------------------------------------------------- */

struct walk {
    void (*each)(void *context, const exo_meter_sample *sample);
    void *context;
    char path[MAX_PATH];
};

static void
sample(struct walk *w, const exo_meter *m)
{
    exo_meter_sample s = {.path = w->path,
                          .meter_class = m->meter_class,
                          .count = atomic_load_explicit(&m->count, memory_order_relaxed),
                          .value = value_of(atomic_load_explicit(&m->bits, memory_order_relaxed))};
    for (size_t i = 0; m->meter_class->kind == EXO_HISTOGRAM && i <= m->meter_class->num_bounds; i++)
        s.buckets[i] = atomic_load_explicit(&m->buckets[i], memory_order_relaxed);
    w->each(w->context, &s);
}

/* Nodes are never taken away, so the lock is needed for the links only, not while a meter is shown. */
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
        if (node->meter)
            sample(w, node->meter);
        else if (!walk(w, node, length + (size_t)added))
            return false;
    }
    return true;
}

exo_status
exo_meters_walk(const exo_meters *scope, void (*each)(void *context, const exo_meter_sample *sample), void *context,
                exo_err *err)
{
    struct walk w = {.each = each, .context = context};
    return walk(&w, scope, 0) ? EXO_OK
                              : exo_fail(err, EXO_FULL, "scopes of meters are nested too deep: '%.80s...'", w.path);
}
