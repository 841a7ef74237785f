/* Reads a decoder's parameters: see decoder_source.h. Read next: checkpoint.h,
 * nn/pretrained/safetensors.h. */
#include "programs/decoder_source.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <exogym/memory.h>
#include <exogym/state.h>

#include "actors/checkpoint.h"
#include "base/file.h"
#include "nn/hash.h"
#include "nn/pretrained/safetensors.h"
#include "programs/lenient_json.h"
#include "report/json_text.h"

enum {
    MAX_CONFIG = 1 << 24,
    MAX_PATH = EXO_SOURCE_PATH,
};

static exo_status
join(char out[MAX_PATH], exo_err *err, const char *folder, const char *file)
{
    int length = snprintf(out, MAX_PATH, "%s/%s", folder, file);
    return length >= 0 && length < MAX_PATH
               ? EXO_OK
               : exo_fail(err, EXO_INVAL, "the path '%.200s...' is too long", folder);
}

static bool
exists(const char *folder, const char *file)
{
    char path[MAX_PATH];
    return join(path, NULL, folder, file) == EXO_OK && access(path, R_OK) == 0;
}

/* --- The source's files ----------------------------------------------------------------------- */

static exo_status
read_json(const char *path, json_t **out, exo_err *err)
{
    char *text = NULL;
    size_t size = 0;
    json_error_t reason;
    exo_status st = exo_file_read(path, MAX_CONFIG, &text, &size, err);
    if (st != EXO_OK)
        return st;
    *out = exo_json_load(text, size, &reason);
    exo_free(text);
    if (!*out)
        return exo_fail(err, EXO_DAMAGED, "%s:%d:%d: %s", path, reason.line, reason.column,
                        reason.text);
    if (json_is_object(*out))
        return EXO_OK;
    json_decref(*out);
    *out = NULL;
    return exo_fail(err, EXO_DAMAGED, "%s: is no JSON object", path);
}

/* Makes the model that the run's config.json names, with its options. */
static exo_status
build_model(exo_decoder_source *s, const json_t *config, exo_err *err)
{
    json_t *model = json_object_get(config, "model");
    const char *name = json_string_value(json_object_get(model, "name"));
    char *text = name ? exo_json_dump(model, JSON_COMPACT) : NULL;
    exo_config_doc *doc = NULL;
    if (!text)
        return exo_fail(err, EXO_DAMAGED, "%s: names no model", s->config);
    exo_status st = exo_config_parse(&doc, s->config, text, err);
    if (st == EXO_OK) {
        const char *ignored = NULL;
        exo_config *root = exo_config_root(doc);
        exo_config_string(root, "name", NULL, &ignored, NULL);
        st = exo_model_new_named(&s->model, name, root, err);
    }
    if (st == EXO_OK && !exo_decoder_spec_of(s->model))
        st = exo_fail(err, EXO_INVAL, "%s: the model '%s' is no decoder: only 'gpt' is one",
                      s->config, name);
    exo_config_free(&doc);
    exo_free(text);
    return st;
}

static int
is_of_trainer(const struct dirent *entry)
{
    return strncmp(entry->d_name, "model_", 6) == 0 || strncmp(entry->d_name, "adapter_", 8) == 0;
}

/* A folder without a model: that of a graph's run has those of its trainers, each in a folder. */
static exo_status
no_model(const char *folder, exo_err *err)
{
    char names[256] = "";
    size_t length = 0;
    struct dirent **entries = NULL;
    int count = scandir(folder, &entries, is_of_trainer, alphasort);
    for (int i = 0; i < count; i++) {
        if (length < sizeof names)
            length += (size_t)snprintf(names + length, sizeof names - length, "%s%s",
                                       i > 0 ? ", " : "", entries[i]->d_name);
        (free)(entries[i]); /* scandir allocates with malloc */
    }
    (free)(entries);
    return count > 0 ? exo_fail(err, EXO_NOT_FOUND,
                                "%s: is the folder of a graph's run, whose trainers have folders "
                                "of their own: name one of %s in it",
                                folder, names)
                     : exo_fail(err, EXO_NOT_FOUND,
                                "%s: is no run with a model.safetensors or checkpoints, no "
                                "checkpoint, and no Hugging Face directory",
                                folder);
}

/* Finds the newest checkpoint of a run without a final model. A damaged checkpoint is an error, and
 * not passed over silently. */
static exo_status
find_checkpoint(exo_decoder_source *s, exo_err *err)
{
    exo_checkpoint_choice choice;
    exo_status st = exo_checkpoint_choose(s->path, &choice, err);
    if (st != EXO_OK)
        return st;
    s->checkpoint = choice.found;
    if (!choice.found)
        return no_model(s->path, err);
    if (choice.damage.code != EXO_OK && choice.intact[0])
        return exo_fail(err, EXO_FAILED, "%s; %s is older and intact", choice.damage.text,
                        choice.intact);
    if (choice.damage.code != EXO_OK)
        return exo_fail(err, EXO_FAILED, "%s", choice.damage.text);
    snprintf(s->values, sizeof s->values, "%s", choice.newest);
    return EXO_OK;
}

/* Finds the files of a run's folder, finished or not, or of one of its checkpoints. */
static exo_status
find_values(exo_decoder_source *s, exo_err *err)
{
    if (exists(s->path, "node_0.safetensors") || exists(s->path, "manifest.sha256")) {
        s->checkpoint = true;
        exo_status st = join(s->values, err, s->path, ".");
        if (st == EXO_OK)
            st = join(s->config, err, s->path, "../../config.json");
        if (st == EXO_OK)
            st = exo_checkpoint_verify(s->path, err);
        if (st == EXO_INVAL) /* the file is wrong, not the command */
            st = err->code = EXO_FAILED;
        return st;
    }
    exo_status st = join(s->config, err, s->path, "config.json");
    if (st != EXO_OK)
        return st;
    if (exists(s->path, "model.safetensors"))
        return join(s->values, err, s->path, "model.safetensors");
    return find_checkpoint(s, err);
}

/* --- Parameters ------------------------------------------------------------------------------- */

static const exo_safetensor *
find_tensor(const exo_safetensors *file, const char *prefix, const char *name)
{
    size_t length = strlen(prefix);
    for (size_t i = 0; i < exo_safetensors_count(file); i++) {
        const exo_safetensor *t = exo_safetensors_at(file, i);
        if (strncmp(t->name, prefix, length) == 0 && strcmp(t->name + length, name) == 0)
            return t;
    }
    return NULL;
}

static exo_status
check_tensor(const exo_safetensor *t, const exo_param_info *info, const char *path,
             const char *prefix, exo_err *err)
{
    if (t && strcmp(t->dtype, "F32") == 0 && t->num_dims == info->num_dims &&
        memcmp(t->dims, info->dims, info->num_dims * sizeof *t->dims) == 0)
        return EXO_OK;
    return exo_fail(err, EXO_DAMAGED, "%s: %s '%s%s' as the run's config.json describes it", path,
                    t ? "does not have" : "has no", prefix, info->name);
}

/* Checks that the files have the tensors that config.json describes. This happens before their
 * memory is allocated, because a short file can claim large sizes. */
static exo_status
check_claims(const exo_decoder_source *s, exo_err *err)
{
    char path[MAX_PATH];
    const char *prefix = s->checkpoint ? "model." : "";
    const exo_param_info *infos = exo_model_infos(s->model);
    exo_safetensors *file = NULL;
    exo_status st = s->checkpoint ? join(path, err, s->values, "node_0.safetensors") : EXO_OK;
    if (st == EXO_OK)
        st = exo_safetensors_open(&file, s->checkpoint ? path : s->values, err);
    for (size_t i = 0; st == EXO_OK && i < exo_model_num_infos(s->model); i++)
        st = check_tensor(find_tensor(file, prefix, infos[i].name), &infos[i],
                          s->checkpoint ? path : s->values, prefix, err);
    exo_safetensors_close(&file);
    return st;
}

/* Adds `weight` times a file's values to the parameters. With weight 1, and for frozen parameters,
 * it copies the values. */
static exo_status
add_values(exo_params *params, const char *path, const char *prefix, float weight, exo_err *err)
{
    exo_safetensors *file = NULL;
    exo_status st = exo_safetensors_open(&file, path, err);
    for (size_t i = 0; st == EXO_OK && i < exo_params_count(params); i++) {
        const exo_param_info *info = exo_params_info(params, i);
        const exo_safetensor *t = find_tensor(file, prefix, info->name);
        st = check_tensor(t, info, path, prefix, err);
        if (st != EXO_OK)
            break;
        float *out = exo_params_at(params, i);
        const unsigned char *in = t->data;
        for (size_t k = 0; k < info->numel; k++) {
            float value;
            memcpy(&value, in + 4 * k, sizeof value);
            out[k] = weight == 1.0f || info->frozen ? value : out[k] + weight * value;
        }
    }
    exo_safetensors_close(&file);
    return st;
}

/* Computes the mean over the nodes, as at the end of a run. */
static exo_status
read_checkpoint(exo_decoder_source *s, exo_err *err)
{
    char path[MAX_PATH], name[64];
    uint32_t nodes = 0;
    exo_status st = EXO_OK;
    for (;; nodes++) {
        snprintf(name, sizeof name, "node_%" PRIu32 ".safetensors", nodes);
        if (!exists(s->values, name))
            break;
    }
    memset(exo_params_values(s->params), 0, exo_params_numel(s->params) * sizeof(float));
    for (uint32_t i = 0; st == EXO_OK && i < nodes; i++) {
        snprintf(name, sizeof name, "node_%" PRIu32 ".safetensors", i);
        st = join(path, err, s->values, name);
        if (st == EXO_OK)
            st = add_values(s->params, path, "model.", 1.0f / (float)nodes, err);
    }
    return st;
}

/* Reads the final model of a run and checks its values against the hash in the file. */
static exo_status
read_model(exo_decoder_source *s, exo_err *err)
{
    exo_hash hash = {0};
    char *expected = NULL, sha256[65] = "";
    exo_status st = add_values(s->params, s->values, "", 1.0f, err);
    if (st == EXO_OK)
        st = exo_state_read_metadata(s->values, EXO_MODEL_SHA256, &expected, err);
    if (st == EXO_NOT_FOUND) /* an earlier version wrote no hash */
        return EXO_OK;
    if (st == EXO_OK)
        st = exo_hash_init(&hash, err);
    if (st == EXO_OK) {
        exo_hash_add(&hash, exo_params_values(s->params),
                     exo_params_numel(s->params) * sizeof(float));
        exo_hash_add(&hash, exo_params_buffers(s->params),
                     exo_params_buffer_numel(s->params) * sizeof(float));
        if (!exo_hash_end(&hash, sha256) || strcmp(sha256, expected) != 0)
            st = exo_fail(err, EXO_FAILED,
                          "%s: is damaged: the SHA-256 of its numbers is not the one that it names",
                          s->values);
    }
    exo_free(expected);
    return st;
}

/* Adds advice to an error about a run's damaged final model. */
static exo_status
advise(const exo_decoder_source *s, exo_status st, exo_err *err)
{
    char newest[EXO_CHECKPOINT_PATH];
    const exo_err why = *err;
    if ((st != EXO_DAMAGED && st != EXO_FAILED) || s->checkpoint ||
        strncmp(why.text, s->values, strlen(s->values)) != 0)
        return st;
    return exo_fail(err, st, "%s; %s", why.text,
                    exo_checkpoint_newest(s->path, newest)
                        ? "once it is removed, the newest checkpoint is taken"
                        : "run the job again, with --overwrite");
}

static exo_status
open_run(exo_decoder_source *s, exo_err *err)
{
    exo_status st = find_values(s, err);
    if (st == EXO_OK && !s->json)
        st = read_json(s->config, &s->json, err);
    if (st == EXO_OK)
        st = build_model(s, s->json, err);
    if (st == EXO_OK)
        st = check_claims(s, err);
    if (st == EXO_OK)
        st = exo_model_params(s->model, 0, &s->params, err);
    if (st == EXO_OK)
        st = s->checkpoint ? read_checkpoint(s, err) : read_model(s, err);
    return advise(s, st, err);
}

/* --- Adapters --------------------------------------------------------------------------------- */

/* The config.json of a run with this base and adapter: {"model": {"name": "gpt", ...}}. */
static exo_status
describe_adapter(exo_decoder_source *s, exo_err *err)
{
    json_t *adapter = NULL;
    exo_status st = join(s->config, err, s->path, "adapter_config.json");
    if (st == EXO_OK)
        st = read_json(s->config, &adapter, err);
    const char *base = json_string_value(json_object_get(adapter, "base_model_name_or_path"));
    if (st == EXO_OK && (!base || !exists(base, "config.json")))
        st = exo_fail(err, EXO_NOT_FOUND,
                      "%s: is of an adapter (LoRA), and its base '%.200s' is no Hugging Face "
                      "directory here: write the base's directory as base_model_name_or_path",
                      s->config, base ? base : "");
    if (st == EXO_OK)
        s->json = json_pack("{s:{s:s, s:s, s:{s:s}}}", "model", "name", "gpt", "path", base, "lora",
                            "path", s->path);
    if (st == EXO_OK && !s->json)
        st = exo_fail(err, EXO_NOMEM, "%s: no memory", s->path);
    json_decref(adapter);
    return st;
}

static exo_status
open_adapter(exo_decoder_source *s, exo_err *err)
{
    exo_status st = describe_adapter(s, err);
    if (st == EXO_OK)
        st = build_model(s, s->json, err);
    return st == EXO_OK ? exo_model_params(s->model, 0, &s->params, err) : st;
}

exo_status
exo_decoder_source_open(exo_decoder_source *s, const char *path, exo_err *err)
{
    exo_status st = EXO_OK;
    *s = (exo_decoder_source){.path = path};
    if (exists(s->path, "adapter_config.json") && !exists(s->path, "config.json"))
        return open_adapter(s, err);
    if (exists(s->path, "config.json")) {
        st = join(s->config, err, s->path, "config.json");
        if (st == EXO_OK)
            st = read_json(s->config, &s->json, err);
        s->pretrained = st == EXO_OK && json_object_get(s->json, "model_type");
    }
    /* a model with an adapter in one folder: exo_decoder_load refuses it */
    if (exists(s->path, "adapter_config.json"))
        s->pretrained = true;
    if (st != EXO_OK)
        return st;
    return s->pretrained ? exo_decoder_load(s->path, &s->model, &s->params, err) : open_run(s, err);
}

void
exo_decoder_source_release(exo_decoder_source *s)
{
    json_decref(s->json);
    exo_params_free(&s->params);
    exo_model_drop(&s->model);
}
