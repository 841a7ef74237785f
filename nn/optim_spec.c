/* The constants of the optimizers: PyTorch's defaults, their ranges, and their names in a config.
 * No state. Read next: optim_groups.c. */
#include <exogym/optim.h>

#include <float.h>
#include <math.h>

#include "base/config_edit.h"
#include "base/config_tree.h"
#include "nn/optim_groups.h"

static const char *const kind_names[] = {
    [EXO_ADAM] = "adam",
    [EXO_ADAMW] = "adamw",
    [EXO_SGD] = "sgd",
    [EXO_RMSPROP] = "rmsprop",
    [EXO_ADAGRAD] = "adagrad",
    [EXO_MUON] = "muon",
    NULL,
};

static const char *const rate_names[] = {
    [EXO_MUON_ORIGINAL] = "original", [EXO_MUON_MATCH_RMS_ADAMW] = "match_rms_adamw", NULL};

static const char *const matrices_names[] = {
    [EXO_MUON_HIDDEN] = "hidden", [EXO_MUON_ALL] = "all", [EXO_MUON_NONE] = "none", NULL};

const char *
exo_optim_kind_name(exo_optim_kind kind)
{
    return kind_names[kind];
}

exo_optim_spec
exo_optim_spec_init(exo_optim_kind kind)
{
    switch (kind) {
    case EXO_ADAM:
        return (exo_optim_spec){
            .kind = kind, .lr = 1e-3f, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8};
    case EXO_ADAMW:
        return (exo_optim_spec){.kind = kind,
                                .lr = 1e-3f,
                                .beta1 = 0.9,
                                .beta2 = 0.999,
                                .eps = 1e-8,
                                .weight_decay = 1e-2};
    case EXO_SGD:
        return (exo_optim_spec){.kind = kind, .lr = 1e-3f};
    case EXO_RMSPROP:
        return (exo_optim_spec){.kind = kind, .lr = 1e-2f, .alpha = 0.99, .eps = 1e-8};
    case EXO_ADAGRAD:
        return (exo_optim_spec){.kind = kind, .lr = 1e-2f, .eps = 1e-10};
    case EXO_MUON:
        return (exo_optim_spec){
            .kind = kind,
            .lr = 1e-3f,
            .eps = 1e-7,
            .weight_decay = 0.1,
            .momentum = 0.95,
            .nesterov = true,
            .ns_coefficients = {3.4445, -4.775, 2.0315},
            .ns_steps = 5,
            .adamw = {
                .lr = 1e-3f, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 1e-2}};
    }
    return (exo_optim_spec){.kind = kind}; /* exo_optim_spec_check refuses this kind */
}

exo_optim_spec
exo_optim_muon_adamw(const exo_optim_spec *muon)
{
    const exo_muon_adamw *k = &muon->adamw;
    return (exo_optim_spec){.kind = EXO_ADAMW,
                            .lr = k->lr,
                            .beta1 = k->beta1,
                            .beta2 = k->beta2,
                            .eps = k->eps,
                            .weight_decay = k->weight_decay,
                            .amsgrad = k->amsgrad};
}

static exo_status
check_muon(const exo_optim_spec *spec, exo_err *err)
{
    const exo_optim_spec adamw = exo_optim_muon_adamw(spec);
    exo_err reason = {0};
    if (!(spec->momentum < 1.0))
        return exo_fail(err, EXO_INVAL, "muon: momentum must be less than 1, got %g",
                        spec->momentum);
    if (!((float)spec->eps > 0.0f))
        return exo_fail(err, EXO_INVAL, "muon: eps must be above 0, got %g", spec->eps);
    if (spec->ns_steps < 1 || spec->ns_steps >= EXO_MUON_MAX_STEPS)
        return exo_fail(err, EXO_INVAL, "muon: ns_steps must be from 1 to %d, got %llu",
                        EXO_MUON_MAX_STEPS - 1, (unsigned long long)spec->ns_steps);
    for (size_t i = 0; i < 3; i++)
        if (!isfinite(spec->ns_coefficients[i]))
            return exo_fail(err, EXO_INVAL, "muon: ns_coefficients must be finite, got %g",
                            spec->ns_coefficients[i]);
    if ((unsigned)spec->adjust_lr > EXO_MUON_MATCH_RMS_ADAMW ||
        (unsigned)spec->matrices > EXO_MUON_NONE)
        return exo_fail(err, EXO_INVAL, "muon: unknown adjust_lr %d or matrices %d",
                        (int)spec->adjust_lr, (int)spec->matrices);
    if (exo_optim_spec_check(&adamw, &reason) != EXO_OK)
        return exo_fail(err, EXO_INVAL, "muon: %s", reason.text);
    if (spec->lr == 0 && adamw.lr != 0)
        return exo_fail(err, EXO_INVAL,
                        "muon: the lr of adamw follows the lr of muon, which is 0; set both to 0, "
                        "or neither");
    return EXO_OK;
}

exo_status
exo_optim_spec_check(const exo_optim_spec *spec, exo_err *err)
{
    if ((unsigned)spec->kind > EXO_MUON)
        return exo_fail(err, EXO_INVAL, "optimizer: unknown rule %d", (int)spec->kind);
    const struct {
        const char *name;
        double value, below;
    } constants[] = {
        {"lr", (double)spec->lr, HUGE_VAL},
        {"beta1", spec->beta1, 1.0},
        {"beta2", spec->beta2, 1.0},
        {"eps", spec->eps, HUGE_VAL},
        {"weight_decay", spec->weight_decay, HUGE_VAL},
        {"momentum", spec->momentum, HUGE_VAL},
        {"dampening", spec->dampening, HUGE_VAL},
        {"alpha", spec->alpha, HUGE_VAL},
        {"lr_decay", spec->lr_decay, HUGE_VAL},
        {"initial_accumulator_value", spec->initial_accumulator, HUGE_VAL},
    };
    for (size_t i = 0; i < sizeof constants / sizeof *constants; i++)
        if (!(constants[i].value >= 0.0 && constants[i].value < constants[i].below))
            return exo_fail(err, EXO_INVAL, "%s: %s must be at least 0%s, got %g",
                            kind_names[spec->kind], constants[i].name,
                            constants[i].below == 1.0 ? " and less than 1" : " and finite",
                            constants[i].value);
    if (spec->kind == EXO_MUON)
        return check_muon(spec, err);
    if (spec->nesterov && !(spec->momentum > 0 && spec->dampening == 0))
        return exo_fail(
            err, EXO_INVAL,
            "%s: nesterov needs momentum > 0 and dampening 0, got momentum %g, dampening %g",
            kind_names[spec->kind], spec->momentum, spec->dampening);
    return EXO_OK;
}

/* Reads a list of `count` numbers, such as betas: [0.9, 0.999]. numbers (count) has the
 * fallback. */
static exo_status
read_numbers(exo_config *map, const char *key, double *numbers, size_t count, exo_err *err)
{
    exo_config *list = NULL;
    exo_status st = exo_config_note_numbers(map, key, numbers, count, err);
    if (st == EXO_OK)
        st = exo_config_list(map, key, &list, err);
    if (st != EXO_OK || !list)
        return st;
    if (exo_config_length(list) != count)
        return exo_config_fail(list, err, "%s: expected %s numbers, got %zu values", key,
                               count == 2 ? "two" : "three", exo_config_length(list));
    for (size_t i = 0; i < count; i++) {
        exo_config *item = exo_config_item(list, i);
        const char *text = exo_config_plain(item);
        bool integer = false;
        if (!text || !exo_config_is_number(text, &integer))
            return exo_config_fail(item, err, "%s: expected a number", key);
        numbers[i] = exo_config_to_double(text);
        if (exo_config_vanishes(text, numbers[i]))
            return exo_config_fail(item, err, "%s: %.40s is too small for a number", key, text);
    }
    return EXO_OK;
}

static exo_status
read_betas(exo_config *map, exo_optim_spec *spec, exo_err *err)
{
    double betas[2] = {spec->beta1, spec->beta2};
    exo_config *list = exo_config_get(map, "betas");
    exo_status st = read_numbers(map, "betas", betas, 2, err);
    for (size_t i = 0; st == EXO_OK && i < 2; i++)
        if (!(betas[i] >= 0 && betas[i] < 1))
            return exo_config_fail(list ? exo_config_item(list, i) : map, err,
                                   "betas: must be at least 0 and less than 1, got %g", betas[i]);
    spec->beta1 = betas[0];
    spec->beta2 = betas[1];
    return st;
}

static exo_status
read_number(exo_config *map, const char *key, double *value, exo_err *err)
{
    return exo_config_double(map, key, *value, 0, DBL_MAX, value, err);
}

/* adamw: {lr: 1e-3, betas: [0.9, 0.999], ...} */
static exo_status
read_muon_adamw(exo_config *map, exo_optim_spec *spec, exo_err *err)
{
    exo_optim_spec adamw = exo_optim_muon_adamw(spec);
    exo_config *options = NULL;
    exo_status st = exo_config_map(map, "adamw", &options, err);
    if (st == EXO_OK)
        st = exo_config_stand_in(map, "adamw", &options, err);
    if (st != EXO_OK || !options)
        return st;
    st = exo_optim_constants_read(options, &adamw, err);
    if (st == EXO_OK)
        st = exo_config_finish(options, err);
    spec->adamw = (exo_muon_adamw){.lr = adamw.lr,
                                   .beta1 = adamw.beta1,
                                   .beta2 = adamw.beta2,
                                   .eps = adamw.eps,
                                   .weight_decay = adamw.weight_decay,
                                   .amsgrad = adamw.amsgrad};
    return st;
}

static exo_status
read_muon(exo_config *map, exo_optim_spec *spec, exo_err *err)
{
    size_t rate = (size_t)spec->adjust_lr, matrices = (size_t)spec->matrices;
    exo_status st = read_number(map, "momentum", &spec->momentum, err);
    if (st == EXO_OK)
        st = exo_config_bool(map, "nesterov", spec->nesterov, &spec->nesterov, err);
    if (st == EXO_OK)
        st = read_numbers(map, "ns_coefficients", spec->ns_coefficients, 3, err);
    if (st == EXO_OK)
        st = exo_config_u64(map, "ns_steps", spec->ns_steps, 1, EXO_MUON_MAX_STEPS - 1,
                            &spec->ns_steps, err);
    if (st == EXO_OK)
        st = exo_config_choice(map, "adjust_lr_fn", rate, rate_names, &rate, err);
    if (st == EXO_OK)
        st = exo_config_choice(map, "matrices", matrices, matrices_names, &matrices, err);
    spec->adjust_lr = (exo_muon_rate)rate;
    spec->matrices = (exo_muon_matrices)matrices;
    return st == EXO_OK ? read_muon_adamw(map, spec, err) : st;
}

/* Reads only the keys of the rule. A momentum for adam stays unread, and exo_config_finish reports
 * it. */
exo_status
exo_optim_constants_read(exo_config *map, exo_optim_spec *spec, exo_err *err)
{
    exo_status st = exo_config_float(map, "lr", spec->lr, 0, (double)FLT_MAX, &spec->lr, err);
    if (st == EXO_OK)
        st = read_number(map, "weight_decay", &spec->weight_decay, err);
    if (st == EXO_OK && spec->kind != EXO_SGD)
        st = read_number(map, "eps", &spec->eps, err);

    switch (spec->kind) {
    case EXO_ADAM:
    case EXO_ADAMW:
        if (st == EXO_OK)
            st = read_betas(map, spec, err);
        if (st == EXO_OK)
            st = exo_config_bool(map, "amsgrad", spec->amsgrad, &spec->amsgrad, err);
        return st;
    case EXO_SGD:
        if (st == EXO_OK)
            st = read_number(map, "momentum", &spec->momentum, err);
        if (st == EXO_OK)
            st = read_number(map, "dampening", &spec->dampening, err);
        if (st == EXO_OK)
            st = exo_config_bool(map, "nesterov", spec->nesterov, &spec->nesterov, err);
        return st;
    case EXO_RMSPROP:
        if (st == EXO_OK)
            st = read_number(map, "alpha", &spec->alpha, err);
        if (st == EXO_OK)
            st = read_number(map, "momentum", &spec->momentum, err);
        if (st == EXO_OK)
            st = exo_config_bool(map, "centered", spec->centered, &spec->centered, err);
        return st;
    case EXO_ADAGRAD:
        if (st == EXO_OK)
            st = read_number(map, "lr_decay", &spec->lr_decay, err);
        if (st == EXO_OK)
            st = read_number(map, "initial_accumulator_value", &spec->initial_accumulator, err);
        return st;
    case EXO_MUON:
        return st == EXO_OK ? read_muon(map, spec, err) : st;
    }
    return st;
}

/* The refusal of muon where parameters have no shapes; its place is the name in the config. */
static exo_status
refuse_muon(exo_config *map, const char *key, exo_config *options, exo_err *err)
{
    const exo_config *name = exo_config_get(options, "name");
    return exo_config_fail(name ? name : exo_config_get(map, key), err,
                           "%s: muon needs the shapes of the parameters, and this optimizer has "
                           "shards of them without shapes; choose another optimizer here",
                           key);
}

static exo_status
read_spec(exo_config *map, const char *key, const exo_optim_spec *fallback, bool grouped,
          exo_optim_spec *out, exo_err *err)
{
    exo_optim_spec spec = *fallback;
    exo_config *options = NULL;
    size_t kind = (size_t)fallback->kind;
    exo_status st = exo_config_map(map, key, &options, NULL);
    if (st == EXO_NOMEM)
        return exo_fail(err, st, "%s: out of memory", key);
    if (st != EXO_OK) /* not a mapping: a name, or an error that this call reports */
        st = exo_config_choice(map, key, kind, kind_names, &kind, err);
    if (st == EXO_OK)
        st = exo_config_stand_in(map, key, &options, err);
    if (st != EXO_OK)
        return st;
    if (!options) {
        *out = spec;
        return EXO_OK;
    }

    bool named = exo_config_has(options, "name");
    st = exo_config_choice(options, "name", kind, kind_names, &kind, err);
    if (st == EXO_OK && named)
        spec = exo_optim_spec_init((exo_optim_kind)kind);
    if (st == EXO_OK && !grouped && spec.kind == EXO_MUON)
        st = refuse_muon(map, key, options, err);
    if (st == EXO_OK)
        st = exo_optim_constants_read(options, &spec, err);
    if (st == EXO_OK && grouped)
        st = exo_optim_groups_read(options, &spec, err);
    if (st == EXO_OK)
        st = exo_config_finish(options, err);
    exo_err reason = {0};
    if (st == EXO_OK && exo_optim_spec_check(&spec, &reason) != EXO_OK)
        st = exo_config_fail(options, err, "%s", reason.text);
    if (st == EXO_OK)
        *out = spec;
    else if (spec.groups != fallback->groups)
        exo_optim_spec_release(&spec);
    return st;
}

exo_status
exo_optim_spec_read(exo_config *map, const char *key, const exo_optim_spec *fallback,
                    exo_optim_spec *out, exo_err *err)
{
    return read_spec(map, key, fallback, false, out, err);
}

exo_status
exo_optim_spec_read_groups(exo_config *map, const char *key, const exo_optim_spec *fallback,
                           exo_optim_spec *out, exo_err *err)
{
    return read_spec(map, key, fallback, true, out, err);
}

exo_status
exo_optim_check_misplaced(exo_config *map, const char *place, exo_err *err)
{
    static const char *const keys[] = {"lr",       "weight_decay", "betas",    "eps",
                                       "momentum", "amsgrad",      "groups",   "ns_coefficients",
                                       "ns_steps", "adjust_lr_fn", "matrices", "adamw",
                                       NULL};
    return exo_config_check_misplaced(map, keys, place, err);
}
