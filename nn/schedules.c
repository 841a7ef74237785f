/* The curves of learning-rate schedules after the warm-up, one class each. Factors are pure
 * functions of the step. Read next: schedule.c. */
#include "nn/schedules.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include <exogym/memory.h>

static const double pi = 3.14159265358979323846;

/* The share of [from, end) that has passed at t. 1 at the end and beyond, and for an empty
 * interval. */
static double
progress(uint64_t t, uint64_t from, uint64_t end)
{
    return t < end ? (double)(t - from) / (double)(end - from) : 1.0;
}

/* Reads end_factor, the factor of the rate at the end of the curve. */
static exo_status
read_end(exo_config *config, double *end, exo_err *err)
{
    return exo_config_double(config, "end_factor", 0, 0, 1, end, err);
}

/* --- constant --------------------------------------------------------------------------------- */

static double
constant_factor(const void *self, uint64_t t, uint64_t warmup, uint64_t end)
{
    (void)self;
    (void)t;
    (void)warmup;
    (void)end;
    return 1.0;
}

static const exo_schedule_class constant = {
    .name = "constant", .help = "the rate as it is, after the warm-up", .factor = constant_factor};

/* --- lambda_cosine: EXO Gym's ----------------------------------------------------------------- */

struct lambda_cosine {
    bool anneal;
};

static exo_status
lambda_cosine_init(void *self, exo_config *config, exo_err *err)
{
    struct lambda_cosine *s = self;
    return exo_config_bool(config, "cosine_anneal", false, &s->anneal, err);
}

static double
lambda_cosine_factor(const void *self, uint64_t t, uint64_t warmup, uint64_t end)
{
    const struct lambda_cosine *s = self;
    return s->anneal ? 0.9 * 0.5 * (1.0 + cos(pi * progress(t, warmup, end))) + 0.1 : 1.0;
}

static const exo_schedule_class lambda_cosine = {
    .name = "lambda_cosine",
    .help = "EXO Gym's: constant, or with cosine_anneal a cosine to a tenth",
    .state_size = sizeof(struct lambda_cosine),
    .init = lambda_cosine_init,
    .factor = lambda_cosine_factor};

/* --- cosine, linear, polynomial: from 1 to end_factor ----------------------------------------- */

struct decay {
    double end, power;
};

static exo_status
decay_init(void *self, exo_config *config, exo_err *err)
{
    struct decay *s = self;
    s->power = 1;
    return read_end(config, &s->end, err);
}

static exo_status
polynomial_init(void *self, exo_config *config, exo_err *err)
{
    struct decay *s = self;
    exo_status st = decay_init(s, config, err);
    return st == EXO_OK ? exo_config_double(config, "power", 1, 0, 1e3, &s->power, err) : st;
}

/* Loshchilov & Hutter, 2017 (arXiv:1608.03983, eq. 5), one period. */
static double
cosine_factor(const void *self, uint64_t t, uint64_t warmup, uint64_t end)
{
    const struct decay *s = self;
    return s->end + (1.0 - s->end) * 0.5 * (1.0 + cos(pi * progress(t, warmup, end)));
}

static double
polynomial_factor(const void *self, uint64_t t, uint64_t warmup, uint64_t end)
{
    const struct decay *s = self;
    double left = 1.0 - progress(t, warmup, end);
    return s->end + (1.0 - s->end) * (s->power == 1 ? left : pow(left, s->power));
}

static const exo_schedule_class cosine = {.name = "cosine",
                                          .help = "half a cosine down to end_factor",
                                          .state_size = sizeof(struct decay),
                                          .init = decay_init,
                                          .factor = cosine_factor};
static const exo_schedule_class linear = {.name = "linear",
                                          .help = "a straight line down to end_factor",
                                          .state_size = sizeof(struct decay),
                                          .init = decay_init,
                                          .factor = polynomial_factor};
static const exo_schedule_class polynomial = {
    .name = "polynomial",
    .help = "what is left of the steps to the power of `power`, down to end_factor",
    .state_size = sizeof(struct decay),
    .init = polynomial_init,
    .factor = polynomial_factor};

/* --- step: PyTorch's StepLR and MultiStepLR --------------------------------------------------- */

struct steps {
    double gamma;
    uint64_t size;
    uint64_t *milestones; /* (count), ascending; NULL: every `size` steps */
    size_t count;
};

static exo_status
read_milestones(struct steps *s, exo_config *list, exo_err *err)
{
    s->count = exo_config_length(list);
    s->milestones = exo_calloc(s->count ? s->count : 1, sizeof *s->milestones);
    if (!s->milestones)
        return exo_fail(err, EXO_NOMEM, "no memory for %zu milestones", s->count);
    for (size_t i = 0; i < s->count; i++) {
        exo_config *item = exo_config_item(list, i);
        const char *text = exo_config_plain(item);
        char *rest = NULL;
        errno = 0;
        s->milestones[i] = text && text[0] >= '0' && text[0] <= '9' ? strtoull(text, &rest, 10) : 0;
        if (!rest || *rest || errno || s->milestones[i] <= (i ? s->milestones[i - 1] : 0))
            return exo_config_fail(
                item, err, "milestones must be steps, each greater than the one before and than 0");
    }
    return EXO_OK;
}

static exo_status
steps_init(void *self, exo_config *config, exo_err *err)
{
    struct steps *s = self;
    exo_config *milestones = NULL;
    exo_status st = exo_config_double(config, "gamma", 0.1, 0, 1, &s->gamma, err);
    if (st == EXO_OK)
        st = exo_config_list(config, "milestones", &milestones, err);
    if (st == EXO_OK && milestones && exo_config_has(config, "step_size"))
        return exo_config_fail(config, err, "step takes step_size or milestones, not both");
    if (st == EXO_OK && milestones)
        return read_milestones(s, milestones, err);
    if (st == EXO_OK && !exo_config_has(config, "step_size"))
        return exo_config_fail(config, err, "step needs step_size, or milestones: a list of steps");
    return st == EXO_OK ? exo_config_u64(config, "step_size", 1, 1, UINT64_MAX, &s->size, err) : st;
}

static double
steps_factor(const void *self, uint64_t t, uint64_t warmup, uint64_t end)
{
    (void)warmup;
    (void)end;
    const struct steps *s = self;
    uint64_t passed = s->size ? t / s->size : 0;
    for (size_t i = 0; i < s->count && s->milestones[i] <= t; i++)
        passed++;
    return pow(s->gamma, (double)passed);
}

static void
steps_release(void *self)
{
    struct steps *s = self;
    exo_free(s->milestones);
}

static const exo_schedule_class steps = {.name = "step",
                                         .help =
                                             "times gamma every step_size steps, or at milestones",
                                         .state_size = sizeof(struct steps),
                                         .init = steps_init,
                                         .factor = steps_factor,
                                         .release = steps_release};

/* --- wsd: warm-up, stable, decay (Hu et al., 2024, arXiv:2404.06395) -------------------------- */

enum wsd_shape {
    WSD_LINEAR,
    WSD_COSINE,
    WSD_SQRT
};

struct wsd {
    double end;
    uint64_t decay_steps; /* 0: a tenth of all steps */
    size_t shape;
};

static exo_status
wsd_init(void *self, exo_config *config, exo_err *err)
{
    static const char *const shapes[] = {
        [WSD_LINEAR] = "linear", [WSD_COSINE] = "cosine", [WSD_SQRT] = "sqrt", NULL};
    struct wsd *s = self;
    exo_status st = read_end(config, &s->end, err);
    if (st == EXO_OK)
        st = exo_config_u64(config, "decay_steps", 0, 0, UINT64_MAX, &s->decay_steps, err);
    return st == EXO_OK ? exo_config_choice(config, "decay", WSD_LINEAR, shapes, &s->shape, err)
                        : st;
}

static double
wsd_factor(const void *self, uint64_t t, uint64_t warmup, uint64_t end)
{
    const struct wsd *s = self;
    uint64_t decay = s->decay_steps ? s->decay_steps : end / 10;
    uint64_t from = end > decay && end - decay > warmup ? end - decay : warmup;
    if (t < from)
        return 1.0;
    double x = progress(t, from, end), left = 1.0 - x;
    if (s->shape == WSD_COSINE)
        left = 0.5 * (1.0 + cos(pi * x));
    else if (s->shape == WSD_SQRT) /* 1 - sqrt: Haegele et al., 2024, arXiv:2405.18392 */
        left = 1.0 - sqrt(x);
    return s->end + (1.0 - s->end) * left;
}

static const exo_schedule_class wsd = {
    .name = "wsd",
    .help = "stable, then down to end_factor in the last decay_steps",
    .state_size = sizeof(struct wsd),
    .init = wsd_init,
    .factor = wsd_factor};

const void *const exo_builtin_schedules[EXO_NUM_SCHEDULES] = {
    &constant, &lambda_cosine, &cosine, &linear, &polynomial, &steps, &wsd};
