/* `exogym export`: writes a run's decoder, or that of a checkpoint, as a Hugging Face directory, or
 * its LoRA as an adapter of PEFT.
 * One thread. Read next: exogym/decoder.h, export_files.c. */
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <exogym/decoder.h>

#include "base/size_unit.h"
#include "nn/pretrained/pretrained.h"
#include "programs/commands.h"
#include "programs/decoder_source.h"
#include "programs/decoder_tokenizer.h"
#include "programs/export_files.h"
#include "programs/export_tokenizer.h"
#include "programs/generation_config.h"
#include "programs/show.h"
#include "programs/stopping.h"
#include "programs/text.h"

struct export_args {
    const char *source, *folder, *dtype, *shard_size, *tokenizer;
    bool merge;
};

/* Writes generation_config.json for a directory that has its settings in config.json, because the
 * new config.json does not repeat them. */
static exo_status
write_generation(const char *from, const char *folder, bool *written, exo_err *err)
{
    json_t *json = NULL;
    bool own = false;
    exo_status st = exo_generation_config_read(from, &json, &own, err);
    *written = st == EXO_OK && json && !own;
    if (*written)
        st = exo_export_generation(folder, json, err);
    json_decref(json);
    return st;
}

/* Prints "exogym: left out: a, b". */
static void
say(const char *what, const exo_text *names)
{
    if (names->length == 0)
        return;
    fprintf(stderr, "exogym: %s: ", what);
    exo_show(stderr, names->data, names->length, EXO_SHOWN_LINE);
    fputc('\n', stderr);
}

/* Carries the files, except the weights, of the directory that the model is or began with. */
static exo_status
carry_files(const struct export_args *args, const exo_decoder_tokenizer *t, exo_carried *carried,
            exo_err *err)
{
    const exo_carry what = {.tokenizer = t->of_folder, .generation = t->numbers};
    exo_status st = exo_carry_files(t->folder, args->folder, what, carried, err);
    if (st == EXO_OK && !carried->generation && t->numbers) {
        st = write_generation(t->folder, args->folder, &carried->generation, err);
        if (carried->generation)
            exo_carried_keep(carried, "generation_config.json");
    }
    if (st == EXO_OK)
        say("left out", &carried->left);
    return st;
}

/* Writes the tokenizer that is named, or the run's. */
static exo_status
write_tokenizer(const exo_tokenizer *tokenizer, const struct export_args *args,
                exo_carried *carried, exo_err *err)
{
    /* none of these is stale: exo_export_tokenizer wrote those that the tokenizer has, and removed
     * the others */
    static const char *const written[] = {"tokenizer.json",          "tokenizer_config.json",
                                          "special_tokens_map.json", "chat_template.jinja",
                                          "chat_template.json",      "generation_config.json"};
    exo_status st = exo_export_tokenizer(tokenizer, args->folder, !carried->generation, err);
    for (size_t i = 0; i < sizeof written / sizeof *written; i++)
        exo_carried_keep(carried, written[i]);
    carried->tokenizer = st == EXO_OK;
    return st;
}

/* Finds the tokenizer. If none can be read, the export goes on without one, unless it was named
 * explicitly. */
static exo_status
find_tokenizer(exo_decoder_tokenizer *t, const exo_decoder_source *s,
               const struct export_args *args, exo_err *err)
{
    exo_err missing = {0};
    exo_status st = exo_decoder_tokenizer_find(t, s, args->tokenizer, &missing);
    if (st != EXO_OK && args->tokenizer)
        return exo_fail(err, st, "%s", missing.text);
    if (st != EXO_OK)
        fprintf(stderr, "exogym: no tokenizer was written: %s\n", missing.text);
    return EXO_OK;
}

/* Writes the files beside the model. */
static exo_status
write_rest(const exo_decoder_tokenizer *t, const struct export_args *args, bool *found,
           exo_err *err)
{
    exo_carried carried = {0};
    exo_status st = t->folder ? carry_files(args, t, &carried, err) : EXO_OK;
    if (st == EXO_OK && t->own && !t->of_folder)
        st = write_tokenizer(t->own, args, &carried, err);
    if (st == EXO_OK)
        st = exo_remove_stale(args->folder, &carried, err);
    if (st == EXO_OK)
        say("removed what another export left", &carried.removed);
    *found = carried.tokenizer;
    exo_carried_release(&carried);
    return st;
}

/* --- Model or adapter ------------------------------------------------------------------------- */

static bool
has_lora(const exo_decoder_source *s)
{
    return exo_decoder_spec_of(s->model)->lora_scale != 0.0f;
}

/* Refuses options that do not fit the model. */
static exo_status
check_options(const exo_decoder_source *s, const struct export_args *args, exo_err *err)
{
    if (args->merge && !has_lora(s))
        return exo_fail(err, EXO_INVAL, "--merge: the model of %s has no LoRA", args->source);
    if (!args->merge && has_lora(s) && (args->dtype || args->shard_size))
        return exo_fail(err, EXO_INVAL,
                        "%s: an adapter is one file of fp32; %s is for the whole model: add "
                        "--merge",
                        args->source, args->dtype ? "--dtype" : "--shard-size");
    return EXO_OK;
}

/* Writes A and B. peft finds the base by its path. */
static exo_status
write_adapter(const exo_decoder_source *s, const struct export_args *args, exo_err *err)
{
    const char *path =
        json_string_value(json_object_get(json_object_get(s->json, "model"), "path"));
    if (!path)
        return exo_fail(err, EXO_INVAL,
                        "%s: the base of this LoRA was drawn from a seed, so peft has no directory "
                        "to load it from: add --merge",
                        args->source);
    char *base = realpath(path, NULL);
    exo_status st = base ? exo_decoder_save_adapter(args->folder, s->model, s->params, base, err)
                         : exo_fail(err, EXO_IO, "%s: %s", path, strerror(errno));
    (free)(base); /* realpath allocates with malloc */
    return st;
}

static exo_status
write_weights(const exo_decoder_source *s, const struct export_args *args, size_t shard_bytes,
              exo_err *err)
{
    exo_dtype dtype = args->dtype && strcmp(args->dtype, "bf16") == 0 ? EXO_BF16 : EXO_F32;
    if (has_lora(s) && !args->merge)
        return write_adapter(s, args, err);
    return exo_decoder_save_until(args->folder, s->model, s->params, dtype, shard_bytes,
                                  &exo_stop_reason, err);
}

/* Prints what was written. */
static void
report(const exo_decoder_source *s, const struct export_args *args, bool tokenizer)
{
    char count[EXO_FIGURE];
    const exo_decoder_spec *spec = exo_decoder_spec_of(s->model);
    bool adapter = has_lora(s) && !args->merge;
    size_t numel = exo_params_numel(s->params) + exo_params_frozen_numel(s->params);
    if (adapter)
        numel = exo_params_numel(s->params);
    else if (has_lora(s))
        numel = exo_params_frozen_numel(s->params);
    exo_print_path(stdout, "", args->folder, "");
    printf(": %s, %s parameters, %s, %s\n", spec->family, exo_text_count(numel, count),
           adapter                                           ? "LoRA in fp32"
           : args->dtype && strcmp(args->dtype, "bf16") == 0 ? "bf16"
                                                             : "fp32",
           tokenizer ? "with its tokenizer" : "without a tokenizer");
}

/* --- The command ------------------------------------------------------------------------------ */

/* Reads bytes with a unit: "5GB", "500 MiB". */
static exo_status
read_size(const char *text, size_t *out, exo_err *err)
{
    char *end = NULL;
    const double number = text[0] >= '0' && text[0] <= '9' ? strtod(text, &end) : -1;
    const double bytes = end ? floor(number * exo_size_unit(end + strspn(end, " "))) : 0;
    if (bytes >= 1 && bytes <= 1e15) {
        *out = (size_t)bytes;
        return EXO_OK;
    }
    return exo_fail(err, EXO_INVAL,
                    "--shard-size '%.60s': expected a number of " EXO_SIZE_UNITS
                    ", such as 5GB or 500MiB",
                    text);
}

static int
export_command(const exo_command_line *line)
{
    exo_err err = {0};
    const struct export_args *args = line->args;
    exo_decoder_source source = {0};
    size_t shard_bytes = 0;
    if (args->shard_size && read_size(args->shard_size, &shard_bytes, &err) != EXO_OK)
        return exo_report_usage(line->command, &err);
    exo_status st = exo_decoder_source_open(&source, args->source, &err);
    exo_decoder_tokenizer own = {0};
    bool tokenizer = false;
    if (st == EXO_OK)
        st = check_options(&source, args, &err);
    if (st == EXO_OK)
        st = find_tokenizer(&own, &source, args, &err);
    if (st == EXO_OK) {
        exo_stop_on_signals("");
        st = write_weights(&source, args, shard_bytes, &err);
    }
    if (st == EXO_OK)
        st = write_rest(&own, args, &tokenizer, &err);
    if (st == EXO_OK)
        report(&source, args, tokenizer);
    exo_tokenizer_drop(&own.own);
    exo_decoder_source_release(&source);
    if (st == EXO_CANCELLED && exo_stop_reason > 0)
        return EXO_EXIT_SIGNAL + exo_stop_reason;
    return st == EXO_OK ? EXO_EXIT_OK : exo_report(&err);
}

static const exo_arg table[] = {
    {NULL, "RUN",
     "A run's folder (runs/texts/ddp), a checkpoint in it (.../checkpoints/step_00000100), or a "
     "Hugging Face directory.",
     EXO_INTO(struct export_args, source), .word = EXO_WORD_FOLDER, .required = true},
    {NULL, "FOLDER", "The Hugging Face directory to write; it is made.",
     EXO_INTO(struct export_args, folder), .word = EXO_WORD_FOLDER, .required = true},
    {"--dtype", "fp32|bf16", "The type of the weights; fp32 unless it is given.",
     EXO_INTO(struct export_args, dtype), .word = EXO_WORD_FIXED},
    {"--shard-size", "SIZE",
     "Files of at most so many bytes, 5GB or 500MiB; one file unless it is given.",
     EXO_INTO(struct export_args, shard_size)},
    {"--tokenizer", "PATH",
     "A tokenizer.json or the folder it is in, or the word bytes, instead of the model's.",
     EXO_INTO(struct export_args, tokenizer), .word = EXO_WORD_FILE},
    {"--merge", NULL, "Of a model with LoRA: the whole model, with A and B added to its weights.",
     EXO_INTO(struct export_args, merge)},
    {0},
};

static const exo_note examples[] = {
    {"exogym export runs/texts/diloco model",
     "The averaged model of a run, for transformers' from_pretrained(\"model\")."},
    {"exogym export runs/texts/diloco/checkpoints/step_00001000 model --dtype bf16",
     "The mean of the nodes at a checkpoint."},
    {"exogym export runs/lora/ddp adapter",
     "The LoRA of a run, for peft's AutoPeftModelForCausalLM.from_pretrained(\"adapter\")."},
    {0},
};

static const exo_note files[] = {
    {"FOLDER/config.json", "What transformers reads the architecture from."},
    {"FOLDER/tokenizer.json",
     "The tokenizer of the run's data, if they have one, with what was beside it."},
    {"FOLDER/generation_config.json", "How texts begin, end and are sampled."},
    {"FOLDER/model.safetensors",
     "The weights; with --shard-size model-00001-of-0000N.safetensors and their index."},
    {"FOLDER/adapter_config.json",
     "Of a model with LoRA: what peft reads, beside adapter_model.safetensors with A and B."},
    {0},
};

const exo_command exo_command_export = {
    .name = "export",
    .summary = "Writes a trained decoder as a Hugging Face directory",
    .description =
        "Of a run that has ended it is the averaged model; of one that has not, or of a "
        "checkpoint, the mean of the nodes' parameters. Only the model 'gpt' is "
        "exported: as GPT-2, OPT, BLOOM, LLaMA, Mistral or Qwen2, whichever it is. The tokenizer "
        "goes "
        "with it, in this order: the one that --tokenizer names; a Hugging Face "
        "directory's own; the one that the run trained with, from its folder or its "
        "data; that of the directory that it began with. So does whatever else lies in "
        "the directory that the model is, or began with, and is no weight: with the "
        "same tokenizer also chat templates and generation_config.json. What is left "
        "out is named on standard error, and so is what another export's tokenizer left "
        "in FOLDER and is removed.\n\n"
        "transformers' AutoModelForCausalLM.from_pretrained opens the folder, and so "
        "does a job's model: {name: gpt, path: FOLDER}.\n\n"
        "Of a model with LoRA, A and B are written as an adapter of PEFT, which names the "
        "base's directory; --merge writes the whole model instead. A job reads an "
        "adapter: model: {name: gpt, path: BASE, lora: {path: FOLDER}}.",
    .args = table,
    .examples = examples,
    .files = files,
    .args_size = sizeof(struct export_args),
    .run = export_command,
};
