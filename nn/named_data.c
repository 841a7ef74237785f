/* Data sets by name. State: the registry, which builtins/ fills before main. Read next:
 * dataset_impl.h. */
#include "nn/dataset_impl.h"

exo_registry exo_dataset_registry = EXO_REGISTRY("data set");

exo_status
exo_dataset_register(const exo_named_data *data, exo_err *err)
{
    if (!data || !data->load)
        return exo_fail(err, EXO_INVAL, "a data set with a name needs the function load");
    return exo_registry_add(&exo_dataset_registry, data, err);
}

const char *
exo_dataset_name_at(size_t index, const char **help)
{
    const exo_named_data *named = exo_registry_at(&exo_dataset_registry, index);
    if (!named)
        return NULL;
    *help = named->help;
    return named->name;
}

exo_status
exo_dataset_named(const char *name, exo_config *config, exo_dataset **train, exo_dataset **val,
                  exo_err *err)
{
    *train = NULL;
    if (val)
        *val = NULL;
    const exo_named_data *named = exo_registry_find(&exo_dataset_registry, name);
    if (!named) {
        exo_registry_unknown(&exo_dataset_registry, name, err);
        if (err)
            err->code = EXO_INVAL; /* NOT_FOUND is for missing files */
        return EXO_INVAL;
    }
    exo_status st = named->load(config, train, val, err);
    if (st == EXO_OK && (!*train || (val && !*val)))
        st = exo_fail(err, EXO_INVAL, "the data set '%s' has made no data for %s", name,
                      *train ? "validation" : "training");
    if (st == EXO_OK && val && exo_dataset_length(*val) == 0)
        st = exo_fail(err, EXO_INVAL,
                      "the validation set of '%s' is empty; a job with val_size: none needs none",
                      name);
    if (st == EXO_OK && config)
        st = exo_config_finish(config, err);
    if (st != EXO_OK) {
        exo_dataset_drop(train);
        if (val)
            exo_dataset_drop(val);
    }
    return st;
}
