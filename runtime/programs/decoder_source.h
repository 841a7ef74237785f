/* A decoder that a command is given: a run's folder, one of its checkpoints, a Hugging Face
 * directory, or an adapter of PEFT, whose base is the directory that it names. No state. */
#ifndef EXO_PROGRAMS_DECODER_SOURCE_H
#define EXO_PROGRAMS_DECODER_SOURCE_H

#include <jansson.h>

#include <exogym/decoder.h>

enum {
    EXO_SOURCE_PATH = 4096
};

/* The model, and the files with its parameters. */
typedef struct exo_decoder_source {
    const char *path;
    char config[EXO_SOURCE_PATH]; /* the run's config.json */
    /* the run's model.safetensors, or the folder of the nodes' checkpoints */
    char values[EXO_SOURCE_PATH];
    bool checkpoint;
    json_t *json;    /* the source's config.json */
    bool pretrained; /* the source is a Hugging Face directory */
    exo_model *model;
    exo_params *params;
} exo_decoder_source;

/* Opens a decoder. The parameters of a finished run are the averaged model; those of an unfinished
 * run or of a checkpoint are the mean of the nodes. `path` must live as long as the source. Errors:
 * NOT_FOUND, IO; DAMAGED names file and entry; INVAL (the model is not a decoder). The caller
 * releases the source, also after an error. */
exo_status exo_decoder_source_open(exo_decoder_source *out, const char *path, exo_err *err);
void exo_decoder_source_release(exo_decoder_source *source);

#endif
