/* Optimizers over flat arrays: state on the parameters' device, the constants of a step, and one
 * kernel for each range of elements with one rule. Muon's matrices are ranges of their own
 * (optim_muon.c).
 *
 * An exo_optim belongs to one thread at a time. Within a step, other threads help and write
 * disjoint parts of its buffers. Read next: nn/device/device_impl.h for formulas, nn/optim_spec.c
 * for names and constants. */
#include <exogym/optim.h>

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <exogym/memory.h>
#include <exogym/parallel.h>

#include "nn/device/device_impl.h"
#include "nn/optim_groups.h"
#include "nn/optim_muon.h"

enum {
    MAX_BUFFERS = EXO_OPTIM_MOMENTS
};

/* The arguments of a step's kernel, without its arrays. Constants are rounded to fp32 only here. */
union constants {
    exo_adam_args adam;
    exo_sgd_args sgd;
    exo_rmsprop_args rmsprop;
    exo_adagrad_args adagrad;
    double muon_lr;
};

/* A rule: the spec with its own constants, or with those of a group. */
struct rule {
    exo_optim_spec spec; /* without groups */
    union constants now; /* of the current step */
};

/* The elements [begin, end) follow one rule. */
struct range {
    size_t begin, end, rule;
    size_t rows, cols;      /* of the matrix that Muon steps; 0: each element by itself */
    int slice;              /* the parameter that is a slice of the matrix, or EXO_MUON_WHOLE */
    size_t offset, count;   /* of the matrix, or the slice, in the flat values; its elements */
    size_t at[MAX_BUFFERS]; /* where the elements begin in the buffers that the rule needs */
};

struct exo_optim {
    exo_device *device;
    size_t numel;
    uint64_t steps; /* taken so far */
    double momentum_factor;
    /* Each has the elements of the ranges whose rule needs it. buffer_name() says what they
     * hold. */
    exo_array buffers[MAX_BUFFERS];
    /* (num_rules): rule 0 is the spec's own, then the groups'; then, for muon, the rule of AdamW
     * that belongs to each of them */
    struct rule *rules;
    size_t num_rules;
    struct range *ranges; /* (num_ranges), ascending, without gaps; the last one ends at numel */
    size_t num_ranges;
    exo_muon *muon;          /* NULL: no range is a matrix */
    exo_optim_slices slices; /* count 0: parameters are whole */
    exo_optim_unit unit;     /* count 0: no matrix is cut by shards */
    size_t first;            /* the first element in the flat values */
    float *params;           /* of the current step, on the device */
};

/* The name of a rule's buffer in torch.optim. NULL: the rule has no such buffer. */
static const char *
buffer_name(const exo_optim_spec *spec, size_t index)
{
    static const char *const names[][MAX_BUFFERS] = {
        [EXO_ADAM] = {"exp_avg", "exp_avg_sq", "max_exp_avg_sq"},
        [EXO_ADAMW] = {"exp_avg", "exp_avg_sq", "max_exp_avg_sq"},
        [EXO_SGD] = {"momentum_buffer"},
        [EXO_RMSPROP] = {"square_avg", "grad_avg", "momentum_buffer"},
        [EXO_ADAGRAD] = {"sum"},
        [EXO_MUON] = {NULL, NULL, NULL, "momentum_buffer"},
    };
    if ((spec->kind == EXO_ADAM || spec->kind == EXO_ADAMW) && index == 2 && !spec->amsgrad)
        return NULL;
    if (spec->kind == EXO_SGD && spec->momentum == 0)
        return NULL;
    if (spec->kind == EXO_RMSPROP &&
        ((index == 1 && !spec->centered) || (index == 2 && spec->momentum == 0)))
        return NULL;
    return names[spec->kind][index];
}

/* --- Which rule for which elements ------------------------------------------------------------ */

/* Adds the elements up to `end` of the optimizer, which follow the rule. A matrix (rows, cols), or the
 * member's slice of it, is a range of its own; rows 0: no matrix. */
static exo_status
add_range(exo_optim *optim, size_t end, size_t rule, size_t rows, size_t cols, int slice,
          exo_err *err)
{
    struct range *last = optim->num_ranges ? &optim->ranges[optim->num_ranges - 1] : NULL;
    size_t begin = last ? last->end : 0;
    if (last && last->rule == rule && rows == 0 && last->rows == 0) {
        last->end = end;
        return EXO_OK;
    }
    struct range *more = exo_realloc(optim->ranges, optim->num_ranges + 1, sizeof *more);
    if (!more)
        return exo_fail(err, EXO_NOMEM, "no memory for an optimizer of %zu parameters",
                        optim->numel);
    more[optim->num_ranges++] = (struct range){
        .begin = begin, .end = end, .rule = rule, .rows = rows, .cols = cols, .slice = slice};
    optim->ranges = more;
    return EXO_OK;
}

/* The matrix that is, or has a slice that is, the parameter. cut: that of the slice, or NULL. */
static void
whole_matrix(const exo_param_info *info, const exo_param_cut *cut, size_t *rows, size_t *cols)
{
    *rows = info->dims[0];
    *cols = info->numel / *rows;
    if (cut && cut->dim == 0)
        *rows = cut->whole;
    else if (cut)
        *cols = *cols / info->dims[cut->dim] * cut->whole;
}

/* Adds the matrix that is, or has a slice that is, the index-th parameter. */
static exo_status
add_matrix(exo_optim *optim, const exo_param_info *info, size_t index, size_t end, size_t rule,
           exo_err *err)
{
    const exo_optim_slices *s = &optim->slices;
    const exo_param_cut *cut = s->count > 1 ? exo_model_cut(s->models[s->rank], index) : NULL;
    size_t rows, cols;
    whole_matrix(info, cut, &rows, &cols);
    exo_status st = add_range(optim, end, rule, rows, cols, cut ? (int)index : EXO_MUON_WHOLE, err);
    if (st == EXO_OK) {
        optim->ranges[optim->num_ranges - 1].offset = info->offset;
        optim->ranges[optim->num_ranges - 1].count = info->numel;
    }
    return st;
}

/* Whether a parameter is in the unit of which the optimizer has a shard. */
static bool
is_in_unit(const exo_optim_unit *unit, const exo_param_info *info)
{
    return info->offset >= unit->first && info->offset - unit->first < unit->count;
}

/* Adds the part of a parameter that lies in [first, first + numel) of the flat values. Every matrix of the
 * unit becomes a range, also one of which the shard has nothing: its members step them together. */
static exo_status
add_param(exo_optim *optim, const exo_optim_spec *spec, const exo_param_info *info, size_t index,
          exo_err *err)
{
    const size_t first = optim->first, last = first + optim->numel;
    const size_t begin = info->offset, end = begin + info->numel;
    const bool outside = optim->numel == 0 || end <= first || begin >= last;
    size_t number = 0;
    if (info->is_buffer || info->numel == 0 || (outside && !is_in_unit(&optim->unit, info)))
        return EXO_OK;
    bool matrix = exo_optim_is_matrix(exo_optim_spec_of(spec, info, &number), info);
    size_t rule = spec->kind == EXO_MUON && !matrix ? spec->num_groups + 1 + number : number;
    if (outside && !matrix)
        return EXO_OK;
    if (matrix && optim->unit.count == 0 && (begin < first || end > last))
        return exo_fail(err, EXO_INVAL,
                        "muon: the matrix %.60s is divided between shards, and muon steps whole "
                        "matrices; choose another optimizer, or a strategy without shards",
                        info->name);
    const size_t until = end <= first ? 0 : (end < last ? end : last) - first;
    return matrix ? add_matrix(optim, info, index, until, rule, err)
                  : add_range(optim, until, rule, 0, 0, EXO_MUON_WHOLE, err);
}

/* Finds the ranges of elements [first, first + numel) of the flat values, in which parameters lie
 * in the order of their infos. */
static exo_status
find_ranges(exo_optim *optim, const exo_optim_spec *spec, const exo_param_info *infos,
            size_t num_infos, exo_err *err)
{
    exo_status st = EXO_OK;
    if (spec->num_groups > 0 || spec->kind == EXO_MUON)
        for (size_t i = 0; st == EXO_OK && i < num_infos; i++)
            st = add_param(optim, spec, &infos[i], i, err);
    if (st == EXO_OK &&
        (optim->num_ranges == 0 || optim->ranges[optim->num_ranges - 1].end < optim->numel))
        st = add_range(optim, optim->numel, spec->kind == EXO_MUON ? spec->num_groups + 1 : 0, 0, 0,
                       EXO_MUON_WHOLE, err);
    return st;
}

static exo_status
copy_rules(exo_optim *optim, const exo_optim_spec *spec, exo_err *err)
{
    const size_t own = spec->num_groups + 1;
    optim->num_rules = spec->kind == EXO_MUON ? 2 * own : own;
    optim->rules = exo_calloc(optim->num_rules, sizeof *optim->rules);
    if (!optim->rules)
        return exo_fail(err, EXO_NOMEM, "no memory for an optimizer of %zu parameters",
                        optim->numel);
    for (size_t r = 0; r < own; r++) {
        exo_optim_spec *to = &optim->rules[r].spec;
        *to = r ? spec->groups[r - 1].spec : *spec;
        to->groups = NULL;
        to->num_groups = 0;
        if (spec->kind == EXO_MUON)
            optim->rules[own + r].spec = exo_optim_muon_adamw(to);
    }
    return EXO_OK;
}

static exo_status
prepare_matrices(exo_optim *optim, exo_err *err)
{
    exo_status st = EXO_OK;
    for (size_t r = 0; st == EXO_OK && r < optim->num_ranges; r++) {
        const struct range *range = &optim->ranges[r];
        if (range->rows == 0)
            continue;
        if (!optim->muon && (st = exo_muon_new(&optim->muon, optim->device, err)) == EXO_OK) {
            exo_muon_share(optim->muon, &optim->slices);
            exo_muon_shard(optim->muon, &optim->unit);
        }
        if (st == EXO_OK && (range->end > range->begin || range->slice != EXO_MUON_WHOLE))
            st = exo_muon_add(optim->muon, range->rows, range->cols, range->slice, err);
    }
    return st == EXO_OK && optim->muon ? exo_muon_reserve(optim->muon, err) : st;
}

/* --- Life ------------------------------------------------------------------------------------- */

/* The name of a buffer, which exists if any rule needs it. NULL: no rule needs it. */
static const char *
buffer_of(const exo_optim *optim, size_t index)
{
    const char *name = NULL;
    for (size_t r = 0; r < optim->num_rules && !name; r++)
        name = buffer_name(&optim->rules[r].spec, index);
    return name;
}

static exo_status
make_buffers(exo_optim *optim, exo_err *err)
{
    exo_status st = EXO_OK;
    for (size_t b = 0; st == EXO_OK && b < MAX_BUFFERS; b++) {
        size_t count = 0;
        for (size_t r = 0; r < optim->num_ranges; r++) {
            struct range *range = &optim->ranges[r];
            range->at[b] = count;
            if (buffer_name(&optim->rules[range->rule].spec, b))
                count += range->end - range->begin;
        }
        if (buffer_of(optim, b))
            st = exo_array_init(&optim->buffers[b], optim->device, EXO_F32, count, err);
    }
    if (st == EXO_OK)
        st = prepare_matrices(optim, err);
    return st == EXO_OK
               ? EXO_OK
               : exo_fail_in(err, st, "the optimizer's state of %zu parameters", optim->numel);
}

/* Sets the initial values of Adagrad's sums; other buffers start at 0. */
static void
fill_buffers(exo_optim *optim)
{
    for (size_t r = 0; r < optim->num_ranges; r++) {
        const struct range *range = &optim->ranges[r];
        const exo_optim_spec *spec = &optim->rules[range->rule].spec;
        if (spec->kind == EXO_ADAGRAD && spec->initial_accumulator != 0)
            exo_vec_fill(exo_array_part(optim->buffers[0], range->at[0], range->end - range->begin),
                         (float)spec->initial_accumulator);
    }
}

static exo_status
check_spec(const exo_optim_spec *spec, const exo_param_info *infos, exo_err *err)
{
    exo_status st = exo_optim_spec_check(spec, err);
    if (st == EXO_OK && spec->num_groups && !infos)
        st = exo_fail(err, EXO_INVAL,
                      "an optimizer with parameter groups needs the names of the parameters");
    if (st == EXO_OK && spec->kind == EXO_MUON && !infos)
        st =
            exo_fail(err, EXO_INVAL,
                     "muon needs the shapes of the parameters, and these have none; choose another "
                     "optimizer");
    return st;
}

/* Makes the optimizer of elements [first, first + numel) of the flat values; slices: NULL, or whose
 * parts they are; unit: NULL, or of which they are a shard. */
static exo_status
make(exo_optim **out, const exo_optim_spec *spec, const exo_param_info *infos, size_t num_infos,
     const exo_optim_slices *slices, const exo_optim_unit *unit, exo_device *device, size_t first,
     size_t numel, exo_err *err)
{
    exo_status st = check_spec(spec, infos, err);
    if (st != EXO_OK)
        return st;
    exo_optim *optim = exo_calloc(1, sizeof *optim);
    if (!optim)
        return exo_fail(err, EXO_NOMEM, "no memory for an optimizer of %zu parameters", numel);
    optim->device = device;
    optim->numel = numel;
    optim->momentum_factor = 1;
    optim->first = first;
    if (slices)
        optim->slices = *slices;
    if (unit)
        optim->unit = *unit;
    st = copy_rules(optim, spec, err);
    if (st == EXO_OK)
        st = find_ranges(optim, spec, infos, num_infos, err);
    if (st == EXO_OK)
        st = make_buffers(optim, err);
    if (st == EXO_OK) {
        fill_buffers(optim);
        *out = optim;
        optim = NULL; /* moved to the caller */
    }
    exo_optim_free(&optim);
    return st;
}

exo_status
exo_optim_new_grouped(exo_optim **out, const exo_optim_spec *spec, const exo_param_info *infos,
                      size_t num_infos, exo_device *device, size_t first, size_t numel,
                      exo_err *err)
{
    return make(out, spec, infos, num_infos, NULL, NULL, device, first, numel, err);
}

exo_status
exo_optim_new_sliced(exo_optim **out, const exo_optim_spec *spec, const exo_optim_slices *slices,
                     exo_device *device, exo_err *err)
{
    const exo_model *own = slices->models[slices->rank];
    return make(out, spec, exo_model_infos(own), exo_model_num_infos(own), slices, NULL, device, 0,
                exo_model_numel(own), err);
}

exo_status
exo_optim_new_sharded(exo_optim **out, const exo_optim_spec *spec, const exo_param_info *infos,
                      size_t num_infos, const exo_optim_slices *slices, const exo_optim_unit *unit,
                      exo_device *device, size_t first, size_t numel, exo_err *err)
{
    return make(out, spec, infos, num_infos, slices, unit, device, first, numel, err);
}

exo_status
exo_optim_new(exo_optim **out, const exo_optim_spec *spec, exo_device *device, size_t numel,
              exo_err *err)
{
    return exo_optim_new_grouped(out, spec, NULL, 0, device, 0, numel, err);
}

void
exo_optim_free(exo_optim **optim)
{
    if (!optim || !*optim)
        return;
    for (size_t b = 0; b < MAX_BUFFERS; b++)
        exo_array_release(&(*optim)->buffers[b]);
    exo_muon_free(&(*optim)->muon);
    exo_free((*optim)->rules);
    exo_free((*optim)->ranges);
    exo_free(*optim);
    *optim = NULL;
}

/* --- A step ----------------------------------------------------------------------------------- */

/* Computes the constants of a step. `steps` counts from 1; `factor` multiplies the momentum. */
static void
set_constants(struct rule *rule, uint64_t steps, double lr, double factor)
{
    const exo_optim_spec *spec = &rule->spec;
    double t = (double)steps;
    float wd = (float)spec->weight_decay;
    switch (spec->kind) {
    case EXO_ADAM:
    case EXO_ADAMW:
        rule->now.adam = (exo_adam_args){
            .l2 = spec->kind == EXO_ADAM ? wd : 0.0f,
            .beta1 = (float)spec->beta1,
            .one_minus_beta1 = (float)(1.0 - spec->beta1),
            .beta2 = (float)spec->beta2,
            .one_minus_beta2 = (float)(1.0 - spec->beta2),
            .eps = (float)spec->eps,
            .now = {.shrink =
                        spec->kind == EXO_ADAMW ? (float)(1.0 - lr * spec->weight_decay) : 1.0f,
                    .sqrt_correction2 = (float)sqrt(1.0 - pow(spec->beta2, t)),
                    .step_size = (float)(lr / (1.0 - pow(spec->beta1, t)))},
        };
        return;
    case EXO_SGD:
        rule->now.sgd = (exo_sgd_args){
            .l2 = wd,
            .nesterov = spec->nesterov,
            .now = {.momentum = (float)(spec->momentum * factor),
                    .one_minus_dampening = steps == 1 ? 1.0f : (float)(1.0 - spec->dampening),
                    .lr = (float)lr},
        };
        return;
    case EXO_RMSPROP:
        rule->now.rmsprop = (exo_rmsprop_args){
            .l2 = wd,
            .alpha = (float)spec->alpha,
            .one_minus_alpha = (float)(1.0 - spec->alpha),
            .eps = (float)spec->eps,
            .now = {.momentum = (float)(spec->momentum * factor), .lr = (float)lr},
        };
        return;
    case EXO_ADAGRAD:
        rule->now.adagrad = (exo_adagrad_args){
            .l2 = wd,
            .eps = (float)spec->eps,
            .now = {.lr = (float)(lr / (1.0 + (t - 1.0) * spec->lr_decay))},
        };
        return;
    case EXO_MUON:
        rule->now.muon_lr = lr;
        return;
    }
}

/* The buffer's values of the elements from `first` on, which lie in the range; NULL if its rule
 * does not use the buffer, although another rule may. */
static float *
buffer_at(const exo_optim *optim, const struct range *range, size_t buffer, size_t first)
{
    return buffer_name(&optim->rules[range->rule].spec, buffer)
               ? (float *)optim->buffers[buffer].data + range->at[buffer] + (first - range->begin)
               : NULL;
}

/* Steps elements [first, first + n) of the range. grads (n) are their gradients. */
static exo_status
step_range(const exo_optim *optim, const struct range *range, size_t first, size_t n,
           const float *grads, exo_err *err)
{
    const struct rule *rule = &optim->rules[range->rule];
    const exo_optim_spec *spec = &rule->spec;
    const exo_kernels *kernels = optim->device->device_class->kernels;
    float *params = optim->params + first;
    float *b0 = buffer_at(optim, range, 0, first), *b1 = buffer_at(optim, range, 1, first),
          *b2 = buffer_at(optim, range, 2, first);
    union constants k = rule->now;

    switch (spec->kind) {
    case EXO_ADAM:
    case EXO_ADAMW:
        k.adam.count = n, k.adam.param = params, k.adam.grad = grads;
        k.adam.exp_avg = b0, k.adam.exp_avg_sq = b1, k.adam.max_exp_avg_sq = b2;
        return kernels->adam(optim->device, &k.adam, err);
    case EXO_SGD:
        k.sgd.count = n, k.sgd.param = params, k.sgd.grad = grads;
        k.sgd.momentum_buffer = b0;
        return kernels->sgd(optim->device, &k.sgd, err);
    case EXO_RMSPROP:
        k.rmsprop.count = n, k.rmsprop.param = params, k.rmsprop.grad = grads;
        k.rmsprop.square_avg = b0, k.rmsprop.grad_avg = b1, k.rmsprop.momentum_buffer = b2;
        return kernels->rmsprop(optim->device, &k.rmsprop, err);
    case EXO_ADAGRAD:
        k.adagrad.count = n, k.adagrad.param = params, k.adagrad.grad = grads;
        k.adagrad.sum = b0;
        return kernels->adagrad(optim->device, &k.adagrad, err);
    case EXO_MUON:
        assert(first == range->begin && n == range->end - range->begin);
        if (optim->unit.count > 0) /* step_pieces does it */
            return EXO_OK;
        exo_muon_step(optim->muon, spec, k.muon_lr, range->rows, range->cols, range->slice, params,
                      grads, buffer_at(optim, range, 3, first));
        return EXO_OK;
    }
    return EXO_OK;
}

/* The range of an element. */
static const struct range *
range_of(const exo_optim *optim, size_t at)
{
    size_t low = 0, high = optim->num_ranges - 1;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (optim->ranges[middle].end > at)
            high = middle;
        else
            low = middle + 1;
    }
    return &optim->ranges[low];
}

/* Steps elements [first, first + n), whose gradients are grads (n). */
static void
step_part(const exo_optim *optim, size_t first, size_t n, const float *grads)
{
    exo_err reason;
    const struct range *range = range_of(optim, first);
    for (size_t done = 0; done < n; range++) {
        size_t left = n - done, until = range->end - (first + done),
               count = until < left ? until : left;
        if (count > 0) /* not a matrix of which a shard has nothing */
            exo_device_note(optim->device,
                            step_range(optim, range, first + done, count, grads + done, &reason),
                            &reason);
        done += count;
    }
}

/* The piece of a matrix that is the range; grads: those of all elements. */
static exo_muon_piece
piece_of(const exo_optim *optim, const struct range *range, const float *grads)
{
    const size_t count = range->end - range->begin;
    exo_muon_piece piece = {.rows = range->rows,
                            .cols = range->cols,
                            .slice = range->slice,
                            .at = range->offset - optim->unit.first,
                            .numel = range->count,
                            .count = count};
    if (count > 0) {
        piece.first = optim->first + range->begin - range->offset;
        piece.param = optim->params + range->begin;
        piece.grad = grads + range->begin;
        piece.buffer = buffer_at(optim, range, 3, range->begin);
    }
    return piece;
}

/* Steps the matrices of the unit of which the optimizer has a shard. */
static void
step_pieces(const exo_optim *optim, const float *grads)
{
    const struct range *const end = optim->ranges + optim->num_ranges;
    exo_muon_begin(optim->muon);
    for (const struct range *r = optim->ranges; r < end; r++) {
        const exo_muon_piece piece = piece_of(optim, r, grads);
        if (r->rows > 0)
            exo_muon_put(optim->muon, &optim->rules[r->rule].spec, &piece);
    }
    exo_muon_gather(optim->muon);
    for (const struct range *r = optim->ranges; r < end; r++) {
        const struct rule *rule = &optim->rules[r->rule];
        const exo_muon_piece piece = piece_of(optim, r, grads);
        if (r->rows > 0)
            exo_muon_take(optim->muon, &rule->spec, rule->now.muon_lr, &piece);
    }
    exo_muon_end(optim->muon);
}

/* Prepares step number `steps`. */
static void
begin_step(exo_optim *optim, exo_array params, float lr, uint64_t steps)
{
    float base = optim->rules[0].spec.lr;
    assert(params.count == optim->numel && params.device == optim->device &&
           params.dtype == EXO_F32);
    optim->params = params.data;
    optim->steps++;
    for (size_t r = 0; r < optim->num_rules; r++) {
        float own = optim->rules[r].spec.lr;
        set_constants(&optim->rules[r], steps,
                      own == base ? (double)lr : (double)lr * (double)own / (double)base,
                      optim->momentum_factor);
    }
}

/* Ends the section that a step is. */
static void
end_section(exo_device *device)
{
    exo_err reason = {0};
    exo_device_note(device, exo_device_section_end(device, &reason), &reason);
}

void
exo_optim_set_momentum_factor(exo_optim *optim, double factor)
{
    optim->momentum_factor = factor;
}

void
exo_optim_step(exo_optim *optim, exo_array params, exo_array grads, float lr)
{
    assert(grads.count == optim->numel && grads.device == optim->device && grads.dtype == EXO_F32);
    exo_device_section_begin(optim->device);
    begin_step(optim, params, lr, optim->steps + 1);
    if (optim->numel > 0)
        step_part(optim, 0, optim->numel, grads.data);
    if (optim->muon && optim->unit.count > 0)
        step_pieces(optim, grads.data);
    end_section(optim->device);
}

bool
exo_optim_moments(const exo_optim *optim, exo_array *exp_avg, exo_array *exp_avg_sq)
{
    for (size_t r = 0; r < optim->num_rules; r++) {
        const exo_optim_spec *spec = &optim->rules[r].spec;
        if ((spec->kind != EXO_ADAM && spec->kind != EXO_ADAMW) || spec->amsgrad)
            return false;
    }
    *exp_avg = exo_array_part(optim->buffers[0], 0, optim->numel);
    *exp_avg_sq = exo_array_part(optim->buffers[1], 0, optim->numel);
    return true;
}

void
exo_optim_step_uncorrected(exo_optim *optim, exo_array params, exo_array grads, float lr,
                           bool frozen)
{
    exo_array exp_avg, exp_avg_sq;
    const bool adam = exo_optim_moments(optim, &exp_avg, &exp_avg_sq);
    assert(adam && "only of Adam and AdamW");
    (void)adam;
    begin_step(optim, params, lr, UINT64_MAX); /* by then the corrections are 1 */
    for (size_t r = 0; frozen && r < optim->num_rules; r++) {
        exo_adam_args *now = &optim->rules[r].now.adam;
        now->l2 = now->one_minus_beta1 = now->one_minus_beta2 = 0;
        now->beta1 = now->beta2 = 1;
    }
    if (optim->numel > 0)
        step_part(optim, 0, optim->numel, grads.data);
}

static void
step_taken(void *context, size_t first, size_t count, const float *grad)
{
    step_part(context, first, count, grad);
}

exo_grad_sink
exo_optim_sink(exo_optim *optim, exo_array params, float lr)
{
    assert(!optim->muon && "a pass hands over parts of matrices");
    begin_step(optim, params, lr, optim->steps + 1);
    return (exo_grad_sink){.take = step_taken, .context = optim};
}

exo_status
exo_optim_result(const exo_optim *optim, exo_err *err)
{
    return optim->muon ? exo_muon_result(optim->muon, err) : EXO_OK;
}

/* The temporary numbers of a step of a matrix; `cut`: of which the parameter is a slice, or NULL. */
static uint64_t
temporary_of(const exo_param_info *info, const exo_param_cut *cut)
{
    size_t rows, cols;
    whole_matrix(info, cut, &rows, &cols);
    const uint64_t numel = (uint64_t)rows * cols, side = rows < cols ? rows : cols;
    return (cut ? 3 : 2) * numel + 2 * side * side; /* a slice: the gathered update, too */
}

size_t
exo_optim_matrices(const exo_optim_spec *spec, const exo_param_info *infos, size_t num_infos,
                   size_t first, size_t count)
{
    const exo_optim_unit unit = {.first = first, .count = count};
    size_t numel = 0;
    for (size_t i = 0; i < num_infos; i++)
        if (is_in_unit(&unit, &infos[i]) &&
            exo_optim_is_matrix(exo_optim_spec_of(spec, &infos[i], NULL), &infos[i]))
            numel += infos[i].numel;
    return numel;
}

uint64_t
exo_optim_unit_bytes(const exo_optim_spec *spec, const exo_model *model)
{
    const exo_param_info *infos = exo_model_infos(model);
    uint64_t most = 0;
    for (size_t u = 0; u < exo_model_num_units(model); u++) {
        const exo_unit_info *info = &exo_model_units(model)[u];
        const exo_optim_unit unit = {.first = info->first, .count = info->count};
        uint64_t largest = 0;
        for (size_t i = 0; i < exo_model_num_infos(model); i++) {
            if (!is_in_unit(&unit, &infos[i]) ||
                !exo_optim_is_matrix(exo_optim_spec_of(spec, &infos[i], NULL), &infos[i]))
                continue;
            const uint64_t needed = temporary_of(&infos[i], exo_model_cut(model, i));
            largest = needed > largest ? needed : largest;
        }
        if (largest > 0 && largest + unit.count > most)
            most = largest + unit.count;
    }
    return most * sizeof(float);
}

/* model: NULL, or whose parameters they are. */
static uint64_t
bytes_of(const exo_optim_spec *spec, const exo_param_info *infos, size_t num_infos,
         const exo_model *model)
{
    uint64_t floats = 0, temporary = 0;
    for (size_t i = 0; i < num_infos; i++) {
        exo_optim_spec rule = *exo_optim_spec_of(spec, &infos[i], NULL);
        if (infos[i].is_buffer || infos[i].numel == 0)
            continue;
        if (exo_optim_is_matrix(&rule, &infos[i])) {
            const uint64_t needed = temporary_of(&infos[i], model ? exo_model_cut(model, i) : NULL);
            temporary = needed > temporary ? needed : temporary;
        } else if (rule.kind == EXO_MUON) {
            rule = exo_optim_muon_adamw(&rule);
        }
        for (size_t b = 0; b < MAX_BUFFERS; b++)
            floats += buffer_name(&rule, b) ? infos[i].numel : 0;
    }
    return (floats + temporary) * sizeof(float);
}

uint64_t
exo_optim_bytes(const exo_optim_spec *spec, const exo_param_info *infos, size_t num_infos)
{
    return bytes_of(spec, infos, num_infos, NULL);
}

uint64_t
exo_optim_model_bytes(const exo_optim_spec *spec, const exo_model *model)
{
    return bytes_of(spec, exo_model_infos(model), exo_model_num_infos(model), model);
}

void
exo_optim_state(exo_optim *optim, const char *name, exo_state *state)
{
    char entry[128];
    snprintf(entry, sizeof entry, "%s.step", name);
    exo_state_add_u64(state, entry, &optim->steps);
    for (size_t b = 0; b < MAX_BUFFERS; b++) {
        if (!optim->buffers[b].owned)
            continue;
        snprintf(entry, sizeof entry, "%s.%s", name, buffer_of(optim, b));
        exo_state_add_array(state, entry, optim->buffers[b]);
    }
}

/* --- Conversions of state --------------------------------------------------------------------- */

/* The elements of a range in a buffer; count 0: its rule does not use the buffer. */
static exo_array
moment_of(const exo_optim *optim, const struct range *range, size_t index)
{
    const bool used = buffer_name(&optim->rules[range->rule].spec, index) != NULL;
    return exo_array_part(optim->buffers[index], range->at[index],
                          used ? range->end - range->begin : 0);
}

const char *
exo_optim_moment_name(const exo_optim *optim, size_t index)
{
    return index < MAX_BUFFERS ? buffer_of(optim, index) : NULL;
}

exo_status
exo_optim_read_moment(const exo_optim *optim, size_t index, float *out, exo_err *err)
{
    exo_status st = EXO_OK;
    memset(out, 0, optim->numel * sizeof *out);
    for (size_t r = 0; st == EXO_OK && r < optim->num_ranges; r++) {
        const exo_array part = moment_of(optim, &optim->ranges[r], index);
        if (part.count > 0)
            st = exo_array_read(part, out + optim->ranges[r].begin, err);
    }
    return st;
}

exo_status
exo_optim_write_moment(exo_optim *optim, size_t index, const float *in, exo_err *err)
{
    exo_status st = EXO_OK;
    for (size_t r = 0; st == EXO_OK && r < optim->num_ranges; r++) {
        const exo_array part = moment_of(optim, &optim->ranges[r], index);
        if (part.count > 0)
            st = exo_array_write(part, in + optim->ranges[r].begin, err);
    }
    return st;
}

uint64_t
exo_optim_steps(const exo_optim *optim)
{
    return optim->steps;
}

void
exo_optim_set_steps(exo_optim *optim, uint64_t steps)
{
    optim->steps = steps;
}
