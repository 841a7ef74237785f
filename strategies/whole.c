/* The state of a model's training as one whole: see exogym/whole.h. No state beyond the struct. Read
 * next: actors/reshard.h. */
#include <exogym/whole.h>

#include <string.h>

#include <exogym/memory.h>

exo_status
exo_whole_init(exo_whole *out, size_t numel, exo_err *err)
{
    *out = (exo_whole){.numel = numel, .params = exo_calloc(numel + 1, sizeof *out->params)};
    return out->params ? EXO_OK : exo_fail(err, EXO_NOMEM, "no memory for %zu parameters", numel);
}

void
exo_whole_release(exo_whole *whole)
{
    exo_free(whole->params);
    for (size_t m = 0; m < EXO_OPTIM_MOMENTS; m++)
        exo_free(whole->moments[m]);
    *whole = (exo_whole){0};
}

static exo_status
check_range(const exo_whole *whole, size_t first, exo_array params, exo_err *err)
{
    if (first <= whole->numel && params.count <= whole->numel - first && params.dtype == EXO_F32)
        return EXO_OK;
    return exo_fail(err, EXO_INVAL, "elements %zu to %zu are not in a whole of %zu", first,
                    first + params.count, whole->numel);
}

static exo_status
put_moments(exo_whole *whole, size_t first, const exo_optim *optim, exo_err *err)
{
    exo_status st = EXO_OK;
    for (size_t m = 0; st == EXO_OK && m < EXO_OPTIM_MOMENTS; m++) {
        const char *name = exo_optim_moment_name(optim, m);
        if (!name)
            continue;
        whole->moment_names[m] = name;
        if (!whole->moments[m])
            whole->moments[m] = exo_calloc(whole->numel + 1, sizeof(float));
        st = whole->moments[m]
                 ? exo_optim_read_moment(optim, m, whole->moments[m] + first, err)
                 : exo_fail(err, EXO_NOMEM, "no memory for the moments of %zu parameters",
                            whole->numel);
    }
    return st;
}

exo_status
exo_whole_put(exo_whole *whole, size_t first, exo_array params, const exo_optim *optim,
              exo_err *err)
{
    const uint64_t steps = exo_optim_steps(optim);
    exo_status st = check_range(whole, first, params, err);
    if (st == EXO_OK && whole->begun && whole->steps != steps)
        st = exo_fail(err, EXO_INVAL, "an optimizer has taken %llu steps, another one %llu",
                      (unsigned long long)steps, (unsigned long long)whole->steps);
    if (st != EXO_OK)
        return st;
    whole->begun = true;
    whole->steps = steps;
    if (params.count > 0)
        st = exo_array_read(params, whole->params + first, err);
    return st == EXO_OK ? put_moments(whole, first, optim, err) : st;
}

exo_status
exo_whole_get(const exo_whole *whole, size_t first, exo_array params, exo_optim *optim,
              exo_err *err)
{
    exo_status st = check_range(whole, first, params, err);
    if (st == EXO_OK && params.count > 0)
        st = exo_array_write(params, whole->params + first, err);
    for (size_t m = 0; st == EXO_OK && m < EXO_OPTIM_MOMENTS; m++) {
        const char *name = exo_optim_moment_name(optim, m), *here = whole->moment_names[m];
        if ((name != NULL) != (here != NULL) || (name && strcmp(name, here) != 0))
            st = exo_fail(err, EXO_INVAL,
                          "the optimizer has other moments than the one of the checkpoint: %s "
                          "instead of %s",
                          name ? name : "none", here ? here : "none");
        else if (whole->moments[m])
            st = exo_optim_write_moment(optim, m, whole->moments[m] + first, err);
    }
    exo_optim_set_steps(optim, whole->steps);
    return st;
}
