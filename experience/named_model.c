/* Models that a config names: see named_model.h. */
#include "experience/named_model.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <exogym/decoder.h>
#include <exogym/log.h>
#include <exogym/tokenizer.h>

#include "base/config_edit.h"
#include "experience/given.h"
#include "nn/pretrained/pretrained.h"

/* Notes the folder of a model, which all hosts of a run must have. */
static exo_status
note_folder(exo_config *map, exo_err *err)
{
    const char *path = NULL;
    exo_status st =
        exo_config_has(map, "path") ? exo_config_string(map, "path", NULL, &path, err) : EXO_OK;
    return st == EXO_OK && path ? exo_config_note_file(map, path, err) : st;
}

exo_status
exo_named_model_read(exo_model **out, exo_config *config, const char *key, exo_err *err)
{
    const char *name = NULL;
    exo_config *node = exo_config_get(config, key), *map = NULL;
    *out = NULL;
    if (!node)
        return EXO_OK;
    if (exo_config_is_map(node))
        map = node;
    if (map && exo_config_has(map, "given")) {
        exo_status given = exo_given_model(out, map, err);
        return given == EXO_OK ? exo_config_finish(map, err) : given;
    }
    exo_status st = exo_config_string(map ? map : config, map ? "name" : key, NULL, &name, err);
    if (st == EXO_OK && !name)
        st = exo_config_fail(node, err, "%s: the key 'name' is missing", key);
    if (st == EXO_OK)
        st = exo_model_new_named(out, name, map, err);
    if (st == EXO_OK && map)
        st = exo_config_finish(map, err);
    if (st == EXO_OK)
        st = note_folder(map, err);
    if (st != EXO_OK)
        exo_model_drop(out);
    if (st == EXO_NOT_FOUND && err)
        err->code = EXO_INVAL; /* the name is wrong */
    return st == EXO_NOT_FOUND ? EXO_INVAL : st;
}

exo_status
exo_named_model_check_saved(const exo_model *model, exo_config *config, const char *key,
                            exo_err *err)
{
    const exo_decoder_spec *spec = exo_decoder_spec_of(model);
    exo_config *at = exo_config_get(config, key);
    exo_err reason = {0};
    if (!spec)
        return exo_config_fail(at, err, "%s: '%s' is no language model; use gpt", key,
                               exo_model_name(model));
    return exo_pretrained_can_write(spec, &reason) == EXO_OK
               ? EXO_OK
               : exo_config_fail(at, err,
                                 "%s: the trainer could not write it as a Hugging Face directory "
                                 "when it ends: %s",
                                 key, reason.text);
}

bool
exo_named_model_gives_values(const exo_model *model)
{
    const exo_param_info *infos = exo_model_infos(model);
    for (size_t i = 0; i < exo_model_num_infos(model); i++)
        if (strcmp(infos[i].name, "value.weight") == 0)
            return true;
    return false;
}

exo_status
exo_named_model_folder(char **out, exo_config *config, const char *key, exo_err *err)
{
    exo_config *map = exo_config_get(config, key);
    const char *path = NULL;
    *out = NULL;
    if (!map || !exo_config_is_map(map))
        return EXO_OK;
    exo_status st = exo_config_string(map, "path", NULL, &path, err);
    if (st != EXO_OK || !path)
        return st;
    *out = realpath(path, NULL);
    return *out ? EXO_OK : exo_fail(err, EXO_IO, "%s: %s", path, strerror(errno));
}

bool
exo_named_model_has_lora(const exo_model *model)
{
    const exo_decoder_spec *spec = exo_decoder_spec_of(model);
    return spec && spec->lora_scale != 0.0f;
}

exo_status
exo_named_model_save_tokenizer(const char *from, const char *folder, exo_err *err)
{
    exo_tokenizer *tokenizer = NULL;
    exo_err why = {0};
    exo_status st = from ? exo_tokenizer_load(&tokenizer, from, &why) : EXO_NOT_FOUND;
    if (st == EXO_NOMEM)
        return exo_fail(err, st, "%s", why.text);
    if (st != EXO_OK && st != EXO_NOT_FOUND)
        EXO_LOG(WARN, GRAPH, "event=no_tokenizer folder=%s why=\"%s\"", folder, why.text);
    st = tokenizer ? exo_tokenizer_save(tokenizer, folder, err) : EXO_OK;
    exo_tokenizer_drop(&tokenizer);
    return st;
}
