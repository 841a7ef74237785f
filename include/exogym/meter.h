/* Meters: counters, gauges and histograms. The code that counts declares each meter once, with its
 * unit and its meaning.
 *
 * A strategy or an actor of a graph gets a *scope*, declares its meters in it, and counts. It needs
 * no code for files: every meter of a run is in the run's meters.csv, TensorBoard files,
 * result.json and progress.json, and in `exogym status` (docs/meters.md).
 *
 *     static const exo_meter_class rounds = {
 *         .name = "rounds", .unit = "rounds", .help = "outer steps"};
 *
 *     static exo_status start(void *self, exo_node *node, exo_err *err) {
 *         return exo_meter_declare(&((struct mine *)self)->rounds, node->meters, &rounds, err);
 *     }
 *     ...  exo_meter_add(m->rounds, 1);
 *
 * Scopes are the branches of a tree and meters its leaves; both live as long as the tree. A meter
 * has a path, such as "node_0.strategy.rounds". No computation may depend on a meter: a host may
 * give no scope, and then nothing is counted.
 *
 * Threads: any. Counting takes no lock and never blocks. Declaring and walking take the lock of the
 * tree. All functions that count accept NULL and do nothing, so code whose meter could not be
 * declared runs without it. */
#ifndef EXOGYM_METER_H
#define EXOGYM_METER_H

#include <stddef.h>
#include <stdint.h>

#include <exogym/status.h>

EXO_DECLS_BEGIN

/* The kinds of meters. */
typedef enum exo_meter_kind {
    EXO_COUNTER, /* a whole number that only grows */
    EXO_GAUGE,   /* the latest value of a number; NaN until it is set */
    /* observations: their number, their sum, and a count for each range between bounds */
    EXO_HISTOGRAM,
} exo_meter_kind;

/* Limits. */
enum {
    EXO_METER_BOUNDS = 16, /* bounds of a histogram */
    EXO_METER_NAME = 64,   /* bytes of a name of a meter or scope, with its NUL */
    EXO_METER_UNIT = 32,   /* likewise of a unit */
    EXO_METER_HELP = 256,  /* likewise of a help text */
    EXO_METER_PATH = 1024, /* likewise of a path */
    EXO_METERS_MAX = 16384 /* scopes and meters of one tree together */
};

/* The description of a meter. It is static, and the same for every scope that declares it. */
typedef struct exo_meter_class {
    const char *name; /* unique in its scope; letters, digits, '_' and '-' */
    /* such as "bytes", "ns", "tokens"; "1" for a plain number. Printable ASCII without commas and
     * double quotes */
    const char *unit;
    const char *help;     /* its meaning in a few words: a line of UTF-8 */
    exo_meter_kind kind;  /* 0: a counter */
    const double *bounds; /* (num_bounds) of a histogram: finite and ascending */
    size_t num_bounds;    /* of a histogram 1 to EXO_METER_BOUNDS, else 0 */
} exo_meter_class;

/* A meter of a scope. */
typedef struct exo_meter exo_meter;
/* A scope. The outermost scope is the tree. */
typedef struct exo_meters exo_meters;

/* Makes a tree without meters. The caller frees it when no thread counts any more. NOMEM. */
EXO_API exo_status exo_meters_new(exo_meters **out, exo_err *err);
/* Frees the whole tree and sets *tree to NULL; accepts NULL in it. */
EXO_API void exo_meters_free(exo_meters **tree);
/* Gives the scope of a name in `parent`, and makes it if it is new. If `parent` is NULL, *out is
 * NULL. Errors (*out is NULL): INVAL (the name), EXISTS (a meter has the name), FULL
 * (EXO_METERS_MAX), NOMEM. */
EXO_API exo_status exo_meters_scope(exo_meters **out, exo_meters *parent, const char *name,
                                    exo_err *err);
/* Gives the meter of a class in a scope: the same one again if the class was declared before.
 * Classes are compared by their address. If `scope` is NULL, *out is NULL. Errors (*out is NULL):
 * INVAL (the class), EXISTS (another meter or scope has the name), FULL (EXO_METERS_MAX), NOMEM. */
EXO_API exo_status exo_meter_declare(exo_meter **out, exo_meters *scope,
                                     const exo_meter_class *meter_class, exo_err *err);

/* Declares several meters: out (count), in the order of `classes` (count). After an error the meter
 * that failed and all after it are NULL. */
EXO_API exo_status exo_meter_declare_all(exo_meter **out, exo_meters *scope,
                                         const exo_meter_class *classes, size_t count,
                                         exo_err *err);

/* Adds to a counter, which wraps around at 2^64. */
EXO_API void exo_meter_add(exo_meter *meter, uint64_t amount);
/* Sets a counter whose total is counted elsewhere. */
EXO_API void exo_meter_count(exo_meter *meter, uint64_t total);
/* Sets a gauge. */
EXO_API void exo_meter_set(exo_meter *meter, double value);
/* Adds an observation to a histogram. NaN counts beyond the last bound and not in the sum. */
EXO_API void exo_meter_observe(exo_meter *meter, double value);

/* A meter at the moment at which the walk comes to it. The parts of a histogram are read one by
 * one, so an observation made meanwhile may be in some of them only. */
typedef struct exo_meter_sample {
    /* such as "node_0.strategy.rounds": the scopes below the walked one, and the name; valid during
     * the call */
    const char *path;
    const exo_meter_class *meter_class; /* its description */
    uint64_t count; /* the value of a counter, or the number of observations of a histogram */
    double value;   /* the value of a gauge, or the sum of a histogram */
    /* (num_bounds + 1) the observations in (bounds[i - 1], bounds[i]]; the last: all others */
    uint64_t buckets[EXO_METER_BOUNDS + 1];
} exo_meter_sample;

/* Calls `each` for every meter of a scope and of the scopes in it, in the order of declaration; a
 * scope has the place at which it was made. `each` runs under no lock. Does nothing if `scope` is
 * NULL. FULL: a path does not fit into EXO_METER_PATH. */
EXO_API exo_status exo_meters_walk(const exo_meters *scope,
                                   void (*each)(void *context, const exo_meter_sample *sample),
                                   void *context, exo_err *err);

EXO_DECLS_END

#endif
