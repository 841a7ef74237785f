/* Learning-rate schedules: warm-up, options and the registry. A schedule is read-only once it is
 * made, for any thread. Read next: schedules.c, the curves. */
#include <exogym/schedule.h>

#include <string.h>

#include <exogym/memory.h>

#include "base/config_tree.h"
#include "nn/schedules.h"

struct exo_schedule {
    const exo_schedule_class *schedule_class;
    uint64_t warmup_steps;
    uint64_t max_steps; /* 0: those of the run */
    void *self;
};

/* --- Registry --------------------------------------------------------------------------------- */

exo_registry exo_schedule_registry = EXO_REGISTRY("schedule");

const exo_schedule_class *
exo_schedule_class_at(size_t index)
{
    return exo_registry_at(&exo_schedule_registry, index);
}

exo_status
exo_schedule_register(const exo_schedule_class *schedule_class, exo_err *err)
{
    if (!schedule_class->name || !*schedule_class->name || !schedule_class->factor)
        return exo_fail(err, EXO_INVAL, "a schedule class needs a name and a factor function");
    return exo_registry_add(&exo_schedule_registry, schedule_class, err);
}

/* --- From a config ---------------------------------------------------------------------------- */

/* `at`: the config node of the name, for errors. */
static exo_status
make(exo_schedule **out, const char *name, const exo_config *at, exo_err *err)
{
    const exo_schedule_class *c = exo_registry_find(&exo_schedule_registry, name);
    exo_err reason = {0};
    if (!c) {
        exo_registry_unknown(&exo_schedule_registry, name, &reason);
        return exo_config_fail(at, err, "%s", reason.text);
    }
    exo_schedule *s = exo_calloc(1, sizeof *s);
    void *self = s ? exo_calloc(1, c->state_size) : NULL;
    if (!self) {
        exo_free(s);
        return exo_fail(err, EXO_NOMEM, "no memory for the schedule '%s'", name);
    }
    *s = (exo_schedule){.schedule_class = c, .self = self};
    *out = s;
    return EXO_OK;
}

static exo_status
read_options(exo_schedule *s, exo_config *options, exo_err *err)
{
    exo_status st =
        exo_config_u64(options, "warmup_steps", 0, 0, UINT64_MAX, &s->warmup_steps, err);
    return st == EXO_OK && s->schedule_class->init ? s->schedule_class->init(s->self, options, err)
                                                   : st;
}

/* The schedule is given by name alone, or not at all: its options stand beside the key. */
static exo_status
read_plain(exo_schedule **out, exo_config *map, const char *key, exo_err *err)
{
    const char *name = NULL;
    exo_config *node = NULL;
    exo_status st = exo_config_string(map, key, "constant", &name, err);
    if (st == EXO_OK)
        st = exo_config_ask(map, key, &node, err);
    if (st == EXO_OK)
        st = make(out, name, node ? node : map, err);
    if (st == EXO_OK && exo_config_has(map, "cosine_anneal") &&
        strcmp(name, "lambda_cosine") != 0) {
        st = exo_config_ask(map, "cosine_anneal", &node, err);
        if (st == EXO_OK)
            st = exo_config_fail(node, err, "cosine_anneal needs %s: lambda_cosine", key);
        exo_config_suggest(map, err);
        return st;
    }
    return st == EXO_OK ? read_options(*out, map, err) : st;
}

static exo_status
read_map(exo_schedule **out, exo_config *options, exo_err *err)
{
    const char *name = NULL;
    exo_status st = exo_config_string(options, "name", "constant", &name, err);
    if (st == EXO_OK)
        st = make(out, name, options, err);
    if (st == EXO_OK)
        st = exo_config_u64(options, "max_steps", 0, 0, UINT64_MAX, &(*out)->max_steps, err);
    if (st == EXO_OK)
        st = read_options(*out, options, err);
    return st == EXO_OK ? exo_config_finish(options, err) : st;
}

exo_status
exo_schedule_read(exo_schedule **out, exo_config *map, const char *key, exo_err *err)
{
    exo_schedule *s = NULL;
    exo_config *options = NULL;
    exo_status st = exo_config_map(map, key, &options, NULL);
    if (st == EXO_NOMEM)
        return exo_fail(err, st, "%s: out of memory", key);
    st = st == EXO_OK && options ? read_map(&s, options, err) : read_plain(&s, map, key, err);
    if (st == EXO_OK) {
        *out = s;
        s = NULL; /* moved to the caller */
    }
    exo_schedule_free(&s);
    return st;
}

void
exo_schedule_free(exo_schedule **schedule)
{
    exo_schedule *s = *schedule;
    if (!s)
        return;
    if (s->schedule_class->release)
        s->schedule_class->release(s->self);
    exo_free(s->self);
    exo_free(s);
    *schedule = NULL;
}

float
exo_schedule_factor(const exo_schedule *schedule, uint64_t t, uint64_t max_steps)
{
    if (!schedule)
        return 1.0f;
    uint64_t warmup = schedule->warmup_steps;
    if (t < warmup)
        return (float)((double)t / (double)warmup);
    uint64_t end = schedule->max_steps ? schedule->max_steps : max_steps;
    return (float)schedule->schedule_class->factor(schedule->self, t, warmup, end);
}
