/* Meters: a tree of counters, gauges and histograms, each declared once, with its unit and what it means, where it is counted.
 *
 *     run                              a scope for each part of a run
 *       node_0
 *         strategy
 *           rounds        counter, "1", "rounds in which parameters were exchanged"
 *
 * Whoever counts declares its meters in a scope that it is given, and then counts; whoever shows figures (a CSV file, TensorBoard, JSON, a
 * status page) walks the tree, and needs to know none of them by name. docs/decisions/0021-meters.md has the reasons.
 *
 * Threads: any. Counting takes no lock and never blocks; declaring and walking take the tree's. A scope and a meter live as long as the tree.
 * All functions that count accept NULL and do nothing, so that whoever could not declare a meter counts on without it. */
#ifndef EXO_METER_H
#define EXO_METER_H

#include <stddef.h>
#include <stdint.h>

#include <exogym/status.h>

typedef enum exo_meter_kind {
    EXO_COUNTER,   /* a whole number that only grows                                   */
    EXO_GAUGE,     /* a number, the latest; NaN until it is set                         */
    EXO_HISTOGRAM, /* how many observations are at most each bound, their sum and number */
} exo_meter_kind;

enum {
    EXO_METER_BOUNDS = 16, /* of a histogram, at most                           */
    EXO_METER_NAME = 64,   /* of a scope, with its NUL; longer ones are refused */
    EXO_METERS_MAX = 16384 /* scopes and meters of one tree together            */
};

/* What a meter is: static, and the same for every scope that has it. */
typedef struct exo_meter_class {
    const char *name; /* unique in its scope: lower case, digits, '_' */
    const char *unit; /* "bytes", "ns", "tokens"; "1": a plain number */
    const char *help; /* what it says, in a few words                 */
    exo_meter_kind kind;
    const double *bounds; /* of a histogram: (num_bounds), ascending */
    size_t num_bounds;    /* at most EXO_METER_BOUNDS                */
} exo_meter_class;

typedef struct exo_meter exo_meter;
typedef struct exo_meters exo_meters; /* a scope; the first one is the tree */

/* A tree without meters; the caller frees it when nobody counts any more. NOMEM. */
exo_status exo_meters_new(exo_meters **out, exo_err *err);
/* Frees the whole tree and sets *tree to NULL; accepts NULL in it. */
void exo_meters_free(exo_meters **tree);
/* The scope of that name in another one, made if it is new. Errors: INVAL (the name), EXISTS (a meter has it), FULL, NOMEM. */
exo_status exo_meters_scope(exo_meters **out, exo_meters *parent, const char *name, exo_err *err);
/* The meter of that class in a scope: the same again if it was declared before. Errors: INVAL (the class), EXISTS (another has the name),
 * FULL, NOMEM. */
exo_status exo_meter_declare(exo_meter **out, exo_meters *scope, const exo_meter_class *meter_class, exo_err *err);

/* Of a counter: adds; wraps around after 2^64. */
void exo_meter_add(exo_meter *meter, uint64_t amount);
/* Of a counter that is counted elsewhere: makes it what it is there. */
void exo_meter_count(exo_meter *meter, uint64_t total);
/* Of a gauge. */
void exo_meter_set(exo_meter *meter, double value);
/* Of a histogram. A value that is no number counts beyond the last bound and not in the sum. */
void exo_meter_observe(exo_meter *meter, double value);

/* A meter as it was when the walk came to it. Of a histogram the parts are read one by one: one that is observed meanwhile may be in some. */
typedef struct exo_meter_sample {
    const char *
        path; /* "node_0.strategy.rounds": scopes below the one that was walked, and the name; until the call returns */
    const exo_meter_class *meter_class;
    uint64_t count;                         /* of a counter its value, of a histogram the observations */
    double value;                           /* of a gauge its value, of a histogram the sum            */
    uint64_t buckets[EXO_METER_BOUNDS + 1]; /* (num_bounds + 1): not more than each bound, and all others */
} exo_meter_sample;

/* Calls for every meter of a scope and of those in it, in the order of declaration, a scope where it was made. `each` runs under no lock.
 * FULL: a path is longer than 1023 bytes. */
exo_status exo_meters_walk(const exo_meters *scope, void (*each)(void *context, const exo_meter_sample *sample),
                           void *context, exo_err *err);

#endif
