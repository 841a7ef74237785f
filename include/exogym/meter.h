/* Meters: counters, gauges and histograms, each declared once, where it is counted, with its unit and what it means.
 *
 * A strategy, an actor of a graph or whoever else gets a *scope* declares its meters there and counts. It knows nothing of files: every meter
 * of a run is in its meters.csv, its TensorBoard files, its result.json and progress.json, and `exogym status` (docs/meters.md).
 *
 *     static const exo_meter_class rounds = {.name = "rounds", .unit = "rounds", .help = "outer steps"};
 *
 *     static exo_status start(void *self, exo_node *node, exo_err *err) {
 *         return exo_meter_declare(&((struct mine *)self)->rounds, node->meters, &rounds, err);
 *     }
 *     ...  exo_meter_add(m->rounds, 1);
 *
 * Scopes and meters are the leaves and branches of one tree, and live as long as it. A meter is called by its path, "node_0.strategy.rounds".
 * Nothing that is computed may depend on a meter: nobody is promised that it counts.
 *
 * Threads: any. Counting takes no lock and never blocks; declaring and walking take the tree's. All functions that count accept NULL and do
 * nothing, so that whoever could not declare a meter counts on without it. */
#ifndef EXOGYM_METER_H
#define EXOGYM_METER_H

#include <stddef.h>
#include <stdint.h>

#include <exogym/status.h>

EXO_DECLS_BEGIN

/* How it counts. */
typedef enum exo_meter_kind {
    EXO_COUNTER,   /* a whole number that only grows                                   */
    EXO_GAUGE,     /* a number, the latest; NaN until it is set                         */
    EXO_HISTOGRAM, /* how many observations are at most each bound, their sum and number */
} exo_meter_kind;

/* What there is room for. */
enum {
    EXO_METER_BOUNDS = 16, /* of a histogram, at most                            */
    EXO_METER_NAME = 64,   /* of a meter or scope, with its NUL                   */
    EXO_METER_UNIT = 32,   /* likewise                                           */
    EXO_METER_HELP = 256,  /* likewise                                           */
    EXO_METER_PATH = 1024, /* likewise                                           */
    EXO_METERS_MAX = 16384 /* scopes and meters of one tree together             */
};

/* What a meter is: static, and the same for every scope that has it. */
typedef struct exo_meter_class {
    const char *name; /* unique in its scope: letters, digits, '_' and '-'                   */
    /* "bytes", "ns", "tokens"; "1": a plain number. Printable ASCII without \',\' and \'"\'. */
    const char *unit;
    const char *help;     /* what it says, in a few words: a line of UTF-8                     */
    exo_meter_kind kind;  /* zeroed: a counter                                  */
    const double *bounds; /* of a histogram: (num_bounds), finite and ascending */
    size_t num_bounds;    /* 1 to EXO_METER_BOUNDS; of others 0                 */
} exo_meter_class;

typedef struct exo_meter exo_meter;   /* one that is counted                 */
typedef struct exo_meters exo_meters; /* a scope; the outermost is the tree  */

/* A tree without meters; the caller frees it when nobody counts any more. NOMEM. */
EXO_API exo_status exo_meters_new(exo_meters **out, exo_err *err);
/* Frees the whole tree and sets *tree to NULL; accepts NULL in it. */
EXO_API void exo_meters_free(exo_meters **tree);
/* The scope of that name in another one, made if it is new; in NULL there is none, *out is NULL. Errors (*out is NULL): INVAL (the name),
 * EXISTS (a meter has it), FULL, NOMEM. */
EXO_API exo_status exo_meters_scope(exo_meters **out, exo_meters *parent, const char *name,
                                    exo_err *err);
/* The meter of that class in a scope: the same again if it was declared before. In NULL, nobody's scope, *out is NULL. Classes are compared by
 * their address. Errors (*out is NULL): INVAL (the class), EXISTS (another has the name), FULL, NOMEM. */
EXO_API exo_status exo_meter_declare(exo_meter **out, exo_meters *scope,
                                     const exo_meter_class *meter_class, exo_err *err);

/* The same for several: out (count), in the order of `classes`. An error leaves NULL for the one that failed and those after it. */
EXO_API exo_status exo_meter_declare_all(exo_meter **out, exo_meters *scope,
                                         const exo_meter_class *classes, size_t count,
                                         exo_err *err);

/* Of a counter: adds; wraps around after 2^64. */
EXO_API void exo_meter_add(exo_meter *meter, uint64_t amount);
/* Of a counter that is counted elsewhere: makes it what it is there. */
EXO_API void exo_meter_count(exo_meter *meter, uint64_t total);
/* Of a gauge. */
EXO_API void exo_meter_set(exo_meter *meter, double value);
/* Of a histogram. A value that is no number counts beyond the last bound and not in the sum. */
EXO_API void exo_meter_observe(exo_meter *meter, double value);

/* A meter as it was when the walk came to it. Of a histogram the parts are read one by one: one that is observed meanwhile may be in some. */
typedef struct exo_meter_sample {
    /* "node_0.strategy.rounds": the scopes below the one that is walked, and the name; valid during
     * the call */
    const char *path;
    const exo_meter_class *meter_class; /* what it is */
    uint64_t count; /* of a counter its value, of a histogram the observations */
    double value;   /* of a gauge its value, of a histogram the sum            */
    /* (num_bounds + 1): not more than each bound, and all others */
    uint64_t buckets[EXO_METER_BOUNDS + 1];
} exo_meter_sample;

/* Calls for every meter of a scope and of those in it, in the order of declaration, a scope where it was made. `each` runs under no lock.
 * NULL has none. FULL: a path does not fit into EXO_METER_PATH. */
EXO_API exo_status exo_meters_walk(const exo_meters *scope,
                                   void (*each)(void *context, const exo_meter_sample *sample),
                                   void *context, exo_err *err);

EXO_DECLS_END

#endif
