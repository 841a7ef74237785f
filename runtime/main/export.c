/* `exogym export`: a decoder that a run trained, or a checkpoint of it, as a Hugging Face directory. One thread. Read next:
 * exogym/decoder.h. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <exogym/decoder.h>
#include <exogym/memory.h>

#include "commands.h"
#include "decoder_source.h"
#include "export_files.h"
#include "export_tokenizer.h"
#include "generation_config.h"
#include "show.h"
#include "text.h"

struct export_args {
    const char *source, *folder, *dtype, *shard_size, *tokenizer;
};

/* How texts are generated, of a directory whose config.json says it: the new one says nothing of it. */
static exo_status
write_generation(const char *from, const char *folder, exo_err *err)
{
    json_t *json = NULL;
    bool own = false;
    exo_status st = exo_generation_config_read(from, &json, &own, err);
    if (st == EXO_OK && json && !own)
        st = exo_export_generation(folder, json, err);
    json_decref(json);
    return st;
}

/* All but the weights of the directory that the model is, or began with. */
static exo_status
carry_files(const struct export_args *args, const char *from, exo_carried *carried, exo_err *err)
{
    exo_status st = exo_carry_files(from, args->folder, args->tokenizer == NULL, carried, err);
    if (st == EXO_OK && !carried->generation && !args->tokenizer)
        st = write_generation(from, args->folder, err);
    if (st != EXO_OK)
        return st;
    if (carried->left.length > 0) {
        fputs("exogym: left out: ", stderr);
        exo_show(stderr, carried->left.data, carried->left.length, EXO_SHOWN_LINE);
        fputc('\n', stderr);
    }
    return EXO_OK;
}

/* The tokenizer that is named, or that of the run's data. */
static exo_status
write_tokenizer(const exo_decoder_source *s, const struct export_args *args, const exo_carried *carried, bool *found,
                exo_err *err)
{
    exo_tokenizer *tokenizer = NULL;
    exo_status st = args->tokenizer ? exo_tokenizer_load(&tokenizer, args->tokenizer, err) : EXO_OK;
    if (!args->tokenizer && !s->pretrained)
        st = exo_export_find_tokenizer(s->config, s->json, &tokenizer, err);
    if (st == EXO_OK && tokenizer) {
        st = exo_export_tokenizer(tokenizer, args->folder, !carried->generation, err);
        *found = st == EXO_OK;
    }
    exo_tokenizer_drop(&tokenizer);
    return st;
}

/* What goes with the model. A tokenizer that cannot be had is none: the model is there, and its tokenizer can be named. */
static exo_status
write_rest(const exo_decoder_source *s, const struct export_args *args, bool *found, exo_err *err)
{
    const char *began = json_string_value(json_object_get(json_object_get(s->json, "model"), "path"));
    const char *from = s->pretrained ? s->path : began;
    exo_carried carried = {0};
    exo_status st = from ? carry_files(args, from, &carried, err) : EXO_OK;
    *found = carried.tokenizer;
    if (st == EXO_OK && !*found) {
        exo_status written = write_tokenizer(s, args, &carried, found, err);
        if (written != EXO_OK && args->tokenizer)
            st = written;
        else if (written != EXO_OK)
            fprintf(stderr, "exogym: no tokenizer was written: %s\n", err->text);
    }
    exo_free(carried.left.data);
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
    exo_decoder_source source = {0};
    exo_dtype dtype = args->dtype && strcmp(args->dtype, "bf16") == 0 ? EXO_BF16 : EXO_F32;
    size_t shard_bytes = 0;
    if (args->shard_size && read_size(args->shard_size, &shard_bytes, &err) != EXO_OK)
        return exo_report_usage(line->command, &err);
    exo_status st = exo_decoder_source_open(&source, args->source, &err);
    bool tokenizer = false;
    if (st == EXO_OK)
        st = exo_decoder_save(args->folder, source.model, source.params, dtype, shard_bytes, &err);
    if (st == EXO_OK)
        st = write_rest(&source, args, &tokenizer, &err);
    if (st == EXO_OK) {
        char count[EXO_FIGURE];
        const exo_decoder_spec *spec = exo_decoder_spec_of(source.model);
        printf("%s: %s, %s parameters, %s, %s\n", args->folder, spec->family,
               exo_text_count(exo_params_numel(source.params) + exo_params_frozen_numel(source.params), count),
               dtype == EXO_BF16 ? "bf16" : "fp32", tokenizer ? "with its tokenizer" : "without a tokenizer");
    }
    exo_decoder_source_release(&source);
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
    {"FOLDER/tokenizer.json", "The tokenizer of the run's data, if they have one, with what was beside it."},
    {"FOLDER/generation_config.json", "How texts begin, end and are sampled."},
    {"FOLDER/model.safetensors", "The weights; with --shard-size model-00001-of-0000N.safetensors and their index."},
    {0},
};

const exo_command exo_command_export = {
    .name = "export",
    .summary = "Writes a trained decoder as a Hugging Face directory",
    .description =
        "Of a run that has ended it is the averaged model; of one that has not, or of a checkpoint, the mean of the "
        "nodes' parameters. Only the model 'gpt' is exported: as GPT-2, OPT, BLOOM or LLaMA, whichever it is. The "
        "tokenizer goes with it: that of the directory that the run began with, else that of its data. So does "
        "whatever "
        "else lies in that directory and is no weight, chat templates and generation_config.json among it; what is "
        "left "
        "out is named on standard error.\n\n"
        "transformers' AutoModelForCausalLM.from_pretrained opens the folder, and so does a job's model: {name: gpt, "
        "path: FOLDER}.",
    .args = table,
    .examples = examples,
    .files = files,
    .args_size = sizeof(struct export_args),
    .run = export_command,
};
