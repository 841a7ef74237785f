/* `exogym export`: a decoder that a run trained, or a checkpoint of it, as a Hugging Face directory. One thread. Read next:
 * exogym/decoder.h. */
#include <dirent.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <exogym/decoder.h>
#include <exogym/memory.h>

#include "commands.h"
#include "export_tokenizer.h"
#include "file.h"
#include "safetensors.h"
#include "text.h"

enum {
    MAX_CONFIG = 1 << 24,
    MAX_PATH = 4096,
};

struct export_args {
    const char *source, *folder, *dtype, *shard_size, *tokenizer;
};

/* What is exported: the model, and the files that its numbers are the mean of. */
struct source {
    const char *path;
    char config[MAX_PATH]; /* the run's config.json */
    char values[MAX_PATH]; /* the run's model.safetensors, or the folder of nodes' checkpoints */
    bool checkpoint;
    json_t *json;    /* the source's config.json */
    bool pretrained; /* it is a Hugging Face directory */
    exo_model *model;
    exo_params *params;
};

static exo_status
join(char out[MAX_PATH], exo_err *err, const char *folder, const char *file)
{
    int length = snprintf(out, MAX_PATH, "%s/%s", folder, file);
    return length >= 0 && length < MAX_PATH ? EXO_OK
                                            : exo_fail(err, EXO_INVAL, "the path '%.200s...' is too long", folder);
}

static bool
exists(const char *folder, const char *file)
{
    char path[MAX_PATH];
    return join(path, NULL, folder, file) == EXO_OK && access(path, R_OK) == 0;
}

/* --- What a folder is ------------------------------------------------------------------------------------------------------------ */

static exo_status
read_json(const char *path, json_t **out, exo_err *err)
{
    char *text = NULL;
    size_t size = 0;
    json_error_t reason;
    exo_status st = exo_file_read(path, MAX_CONFIG, &text, &size, err);
    if (st != EXO_OK)
        return st;
    *out = json_loadb(text, size, 0, &reason);
    exo_free(text);
    if (!json_is_object(*out)) {
        json_decref(*out);
        *out = NULL;
        return exo_fail(err, EXO_INVAL, "%s: is no JSON object: %s", path, reason.text);
    }
    return EXO_OK;
}

/* The model that the run's config.json names, with its options. */
static exo_status
build_model(struct source *s, const json_t *config, exo_err *err)
{
    json_t *model = json_object_get(config, "model");
    const char *name = json_string_value(json_object_get(model, "name"));
    char *text = name ? json_dumps(model, JSON_COMPACT) : NULL;
    exo_config_doc *doc = NULL;
    if (!text)
        return exo_fail(err, EXO_INVAL, "%s: names no model", s->config);
    exo_status st = exo_config_parse(&doc, s->config, text, err);
    if (st == EXO_OK) {
        const char *ignored = NULL;
        exo_config *root = exo_config_root(doc);
        exo_config_string(root, "name", NULL, &ignored, NULL);
        st = exo_model_new_named(&s->model, name, root, err);
    }
    if (st == EXO_OK && !exo_decoder_spec_of(s->model))
        st = exo_fail(err, EXO_INVAL, "%s: the model '%s' is no decoder: only 'gpt' is exported", s->config, name);
    exo_config_free(&doc);
    json_free_t release;
    json_get_alloc_funcs(NULL, &release);
    release(text);
    return st;
}

/* The newest of RUN/checkpoints/step_N. */
static bool
newest_checkpoint(const char *run, char out[MAX_PATH])
{
    char folder[MAX_PATH];
    uint64_t newest = 0;
    bool found = false;
    DIR *dir = join(folder, NULL, run, "checkpoints") == EXO_OK ? opendir(folder) : NULL;
    if (!dir)
        return false;
    for (struct dirent *entry; (entry = readdir(dir));) {
        uint64_t step = 0;
        int end = 0;
        if (sscanf(entry->d_name, "step_%" SCNu64 "%n", &step, &end) != 1 || entry->d_name[end] != '\0' ||
            (found && step < newest))
            continue;
        newest = step;
        found = join(out, NULL, folder, entry->d_name) == EXO_OK;
    }
    closedir(dir);
    return found;
}

/* A run's folder, finished or not, or one of its checkpoints. */
static exo_status
find_values(struct source *s, exo_err *err)
{
    if (exists(s->path, "node_0.safetensors")) {
        s->checkpoint = true;
        exo_status st = join(s->values, err, s->path, ".");
        return st == EXO_OK ? join(s->config, err, s->path, "../../config.json") : st;
    }
    exo_status st = join(s->config, err, s->path, "config.json");
    if (st != EXO_OK)
        return st;
    if (exists(s->path, "model.safetensors"))
        return join(s->values, err, s->path, "model.safetensors");
    s->checkpoint = newest_checkpoint(s->path, s->values);
    if (!s->checkpoint)
        return exo_fail(
            err, EXO_NOT_FOUND,
            "%s: is no run with a model.safetensors or checkpoints, no checkpoint, and no Hugging Face directory",
            s->path);
    return EXO_OK;
}

/* --- Numbers -------------------------------------------------------------------------------------------------------------------------- */

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

/* Adds `weight` times a file's values to the parameters. */
static exo_status
add_values(exo_params *params, const char *path, const char *prefix, float weight, exo_err *err)
{
    exo_safetensors *file = NULL;
    exo_status st = exo_safetensors_open(&file, path, err);
    for (size_t i = 0; st == EXO_OK && i < exo_params_count(params); i++) {
        const exo_param_info *info = exo_params_info(params, i);
        const exo_safetensor *t = find_tensor(file, prefix, info->name);
        if (!t || strcmp(t->dtype, "F32") != 0 || t->num_dims != info->num_dims ||
            memcmp(t->dims, info->dims, info->num_dims * sizeof *t->dims) != 0) {
            st = exo_fail(err, EXO_INVAL, "%s: %s '%s%s' as the run's config.json describes it", path,
                          t ? "does not have" : "has no", prefix, info->name);
            break;
        }
        float *out = exo_params_values(params) + info->offset;
        const unsigned char *in = t->data;
        for (size_t k = 0; k < info->numel; k++) {
            float value;
            memcpy(&value, in + 4 * k, sizeof value);
            out[k] = weight == 1.0f ? value : out[k] + weight * value;
        }
    }
    exo_safetensors_close(&file);
    return st;
}

/* The mean over the nodes, as the result of a run is. */
static exo_status
read_checkpoint(struct source *s, exo_err *err)
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

static exo_status
open_run(struct source *s, exo_err *err)
{
    exo_status st = find_values(s, err);
    if (st == EXO_OK && !s->json)
        st = read_json(s->config, &s->json, err);
    if (st == EXO_OK)
        st = build_model(s, s->json, err);
    if (st == EXO_OK)
        st = exo_model_params(s->model, 0, &s->params, err);
    if (st == EXO_OK)
        st = s->checkpoint ? read_checkpoint(s, err) : add_values(s->params, s->values, "", 1.0f, err);
    return st;
}

static exo_status
open_source(struct source *s, exo_err *err)
{
    exo_status st = EXO_OK;
    if (exists(s->path, "config.json")) {
        st = join(s->config, err, s->path, "config.json");
        if (st == EXO_OK)
            st = read_json(s->config, &s->json, err);
        s->pretrained = st == EXO_OK && json_object_get(s->json, "model_type");
    }
    if (st != EXO_OK)
        return st;
    return s->pretrained ? exo_decoder_load(s->path, &s->model, &s->params, err) : open_run(s, err);
}

static void
close_source(struct source *s)
{
    json_decref(s->json);
    exo_params_free(&s->params);
    exo_model_drop(&s->model);
}

/* The tokenizer that is named; else that of the directory that the model comes from; else that of the run's data. */
static exo_status
write_tokenizer(const struct source *s, const struct export_args *args, bool *found, exo_err *err)
{
    const char *path = json_string_value(json_object_get(json_object_get(s->json, "model"), "path"));
    exo_tokenizer *tokenizer = NULL;
    exo_status st = EXO_OK;
    *found = false;
    if (args->tokenizer) {
        st = exo_tokenizer_load(&tokenizer, args->tokenizer, err);
    } else if (s->pretrained || path) {
        st = exo_export_copy_tokenizer(s->pretrained ? s->path : path, args->folder, found, err);
    }
    if (st == EXO_OK && !args->tokenizer && !s->pretrained && !*found)
        st = exo_export_find_tokenizer(s->json, &tokenizer, err);
    if (st == EXO_OK && tokenizer) {
        st = exo_export_tokenizer(tokenizer, args->folder, err);
        *found = st == EXO_OK;
    }
    exo_tokenizer_drop(&tokenizer);
    return st;
}

/* --- The command -------------------------------------------------------------------------------------------------------------------------- */

/* "5GB", "500 MiB": bytes. */
static exo_status
read_size(const char *text, size_t *out, exo_err *err)
{
    static const struct {
        const char *name;
        double bytes;
    } units[] = {{"B", 1},        {"kB", 1e3},        {"MB", 1e6},          {"GB", 1e9},
                 {"KiB", 1024.0}, {"MiB", 1048576.0}, {"GiB", 1073741824.0}};
    char *end = NULL;
    double number = text[0] >= '0' && text[0] <= '9' ? strtod(text, &end) : -1;
    while (end && *end == ' ')
        end++;
    for (size_t i = 0; end && i < sizeof units / sizeof *units; i++) {
        double bytes = floor(number * units[i].bytes);
        if (strcmp(end, units[i].name) == 0 && bytes >= 1 && bytes <= 1e15) {
            *out = (size_t)bytes;
            return EXO_OK;
        }
    }
    return exo_fail(err, EXO_INVAL, "--shard-size '%.60s': expected bytes with their unit, such as 5GB or 500MiB",
                    text);
}

static int
export_command(const exo_command_line *line)
{
    exo_err err = {0};
    const struct export_args *args = line->args;
    struct source source = {.path = args->source};
    exo_dtype dtype = args->dtype && strcmp(args->dtype, "bf16") == 0 ? EXO_BF16 : EXO_F32;
    size_t shard_bytes = 0;
    if (args->shard_size && read_size(args->shard_size, &shard_bytes, &err) != EXO_OK)
        return exo_report_usage(line->command, &err);
    exo_status st = open_source(&source, &err);
    bool tokenizer = false;
    if (st == EXO_OK)
        st = exo_decoder_save(args->folder, source.model, source.params, dtype, shard_bytes, &err);
    if (st == EXO_OK && write_tokenizer(&source, args, &tokenizer, &err) != EXO_OK) {
        if (args->tokenizer)
            st = err.code;
        else /* the model is there, and its tokenizer can be named */
            fprintf(stderr, "exogym: no tokenizer was written: %s\n", err.text);
    }
    if (st == EXO_OK) {
        char count[EXO_FIGURE];
        const exo_decoder_spec *spec = exo_decoder_spec_of(source.model);
        printf("%s: %s, %s parameters, %s, %s\n", args->folder, spec->family,
               exo_text_count(exo_params_numel(source.params), count), dtype == EXO_BF16 ? "bf16" : "fp32",
               tokenizer ? "with its tokenizer" : "without a tokenizer");
    }
    close_source(&source);
    return st == EXO_OK ? EXO_EXIT_OK : exo_report(&err);
}

static const exo_arg table[] = {
    {.value = "RUN",
     .help = "A run's folder (runs/texts/ddp), a checkpoint in it (.../checkpoints/step_00000100), or a Hugging Face "
             "directory.",
     .word = EXO_WORD_FOLDER,
     .required = true,
     EXO_INTO(struct export_args, source)},
    {.value = "FOLDER",
     .help = "The Hugging Face directory to write; it is made.",
     .word = EXO_WORD_FOLDER,
     .required = true,
     EXO_INTO(struct export_args, folder)},
    {.name = "--dtype",
     .value = "fp32|bf16",
     .help = "The type of the weights; fp32 unless it is given.",
     .word = EXO_WORD_FIXED,
     EXO_INTO(struct export_args, dtype)},
    {.name = "--shard-size",
     .value = "SIZE",
     .help = "Files of at most so many bytes, 5GB or 500MiB; one file unless it is given.",
     EXO_INTO(struct export_args, shard_size)},
    {.name = "--tokenizer",
     .value = "PATH",
     .help = "A tokenizer.json or the folder it is in, instead of the one that the run's data have.",
     .word = EXO_WORD_FILE,
     EXO_INTO(struct export_args, tokenizer)},
    {0},
};

static const exo_note examples[] = {
    {"exogym export runs/texts/diloco model",
     "The averaged model of a run, for transformers' from_pretrained(\"model\")."},
    {"exogym export runs/texts/diloco/checkpoints/step_00001000 model --dtype bf16",
     "The mean of the nodes at a checkpoint."},
    {0},
};

static const exo_note files[] = {
    {"FOLDER/config.json", "What transformers reads the architecture from."},
    {"FOLDER/tokenizer.json", "The tokenizer of the run's data, if they have one."},
    {"FOLDER/model.safetensors", "The weights; with --shard-size model-00001-of-0000N.safetensors and their index."},
    {0},
};

const exo_command exo_command_export = {
    .name = "export",
    .summary = "Writes a trained decoder as a Hugging Face directory",
    .description =
        "Of a run that has ended it is the averaged model; of one that has not, or of a checkpoint, the mean of the "
        "nodes' parameters. Only the model 'gpt' is exported: as GPT-2, OPT, BLOOM or LLaMA, whichever it is. The "
        "tokenizer goes with it: that of the directory that the run began with, else that of its data.\n\n"
        "transformers' AutoModelForCausalLM.from_pretrained opens the folder, and so does a job's model: {name: gpt, "
        "path: FOLDER}.",
    .args = table,
    .examples = examples,
    .files = files,
    .args_size = sizeof(struct export_args),
    .run = export_command,
};
