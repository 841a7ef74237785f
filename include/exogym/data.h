/* Data sets, samplers and loaders.
 *
 * A data set has a length and fields; a sample is one element of each field. A data set is
 * read-only after creation. All nodes of a process share one copy of it, and many threads read it
 * at once. A sampler defines the samples that a node reads, and their order. It is a pure function
 * of (seed, epoch, node), so a position in training is one number, and a restart loses nothing. A
 * loader reads batches ahead on threads of its own.
 */
#ifndef EXOGYM_DATA_H
#define EXOGYM_DATA_H

#include <exogym/clock.h>
#include <exogym/config.h>
#include <exogym/rng.h>
#include <exogym/tensor.h>
#include <exogym/tokenizer.h>

EXO_DECLS_BEGIN

/* The most fields of a sample. */
enum {
    EXO_MAX_FIELDS = 4
};

/* One field of a sample: its type, and its shape without the batch dimension; (1, 28, 28) for an
 * image, () for a label. */
typedef struct exo_field {
    const char *name;              /* "image", "tokens"; lives as long as the data set */
    exo_dtype dtype;               /* EXO_F32 or EXO_I32 */
    size_t num_dims;               /* at most EXO_MAX_DIMS - 1 */
    size_t dims[EXO_MAX_DIMS - 1]; /* (num_dims) */
} exo_field;

/* The key of random augmentation. A sample depends on the key and its index only, not on the reader
 * or the order of reads. */
typedef struct exo_sample_key {
    uint64_t seed;  /* the run's */
    uint64_t epoch; /* the epoch of the read */
} exo_sample_key;

/* A data set; counted references, any thread. */
typedef struct exo_dataset exo_dataset;

/* A class of data sets. Its functions get the `self` of exo_dataset_new. */
typedef struct exo_dataset_class {
    const char *name; /* for error messages */
    /* The number of samples, which never changes. Any thread. */
    size_t (*length)(const void *self);
    /* Describes the fields in `out` and returns their number, at most EXO_MAX_FIELDS. */
    size_t (*fields)(const void *self, exo_field *out);
    /* Writes sample `index`, field i to out[i]. Any thread, several at once. */
    exo_status (*get)(const void *self, size_t index, const exo_sample_key *key, void *const *out,
                      exo_err *err);
    /* Frees self, after the last reference was dropped. May be NULL. */
    void (*free)(void *self);

    /* The functions below may be NULL. They serve exo_dataset_tokenizer, exo_dataset_vocabulary and
     * exo_dataset_split. */
    exo_tokenizer *(*tokenizer)(const void *self);
    size_t (*vocabulary)(const void *self);
    exo_status (*split)(const void *self, uint32_t rank, uint32_t num_parts, exo_dataset **out,
                        exo_err *err);
} exo_dataset_class;

/* Makes a data set of a class. `self` is handed over: the class's `free` frees it, also if this
 * call fails. The caller drops the data set. */
EXO_API exo_status exo_dataset_new(exo_dataset **out, const exo_dataset_class *dataset_class,
                                   void *self, exo_err *err);
/* Counts one more reference and returns `dataset`. */
EXO_API exo_dataset *exo_dataset_hold(exo_dataset *dataset);
/* Drops a reference and sets *dataset to NULL; accepts NULL in it. */
EXO_API void exo_dataset_drop(exo_dataset **dataset);
/* The number of samples. */
EXO_API size_t exo_dataset_length(const exo_dataset *dataset);
/* Describes the fields in `out` (EXO_MAX_FIELDS) and returns their number. */
EXO_API size_t exo_dataset_fields(const exo_dataset *dataset, exo_field *out);
/* Writes sample `index`, below the length, field i to out[i], which has room for it. Errors: the
 * class's. */
EXO_API exo_status exo_dataset_get(const exo_dataset *dataset, size_t index,
                                   const exo_sample_key *key, void *const *out, exo_err *err);
/* Makes a data set of the samples [first, first + count) of another one, which it holds. INVAL: out
 * of range. */
EXO_API exo_status exo_dataset_slice(exo_dataset **out, exo_dataset *dataset, size_t first,
                                     size_t count, exo_err *err);
/* Makes a data set of part `rank` of `num_parts` consecutive parts, whose lengths differ by at most
 * one. Windows over tokens are split by tokens, so that no token is in two parts; other data sets
 * are split by samples. INVAL: a wrong rank, or a part is too short for a sample. */
EXO_API exo_status exo_dataset_split(exo_dataset **out, exo_dataset *dataset, uint32_t rank,
                                     uint32_t num_parts, exo_err *err);
/* The tokenizer of the tokens; NULL: none, or unknown. Lives as long as the data set; hold it to
 * keep it longer. */
EXO_API exo_tokenizer *exo_dataset_tokenizer(const exo_dataset *dataset);
/* The vocabulary: all tokens are less than this number. 0: no tokens, or unknown. */
EXO_API size_t exo_dataset_vocabulary(const exo_dataset *dataset);
/* Checks that all tokens are less than `vocabulary`. Windows over files of bare numbers, and over
 * tokens of a larger vocabulary, are searched, which takes as long as reading them once. Other data
 * sets are asked for their vocabulary, and accepted if it is unknown. INVAL: the text names the
 * file, the byte and the first wrong token, or both vocabularies. */
EXO_API exo_status exo_dataset_check_tokens(const exo_dataset *dataset, size_t vocabulary,
                                            exo_err *err);

/* Options for reading images: (pixel / 255 - mean) / deviation, after augmentation. */
typedef struct exo_image_opts {
    float mean, deviation; /* deviation 0 counts as 1 */
    float rotate;          /* augmentation: an angle uniform in +-rotate degrees */
    /* Augmentation: a shift uniform in +-translate * size on each axis. Nearest-neighbour sampling,
     * filled with pixel 0, like torchvision's RandomAffine with its defaults. */
    float translate;
} exo_image_opts;

/* Makes a data set of images and labels from arrays: pixels (count, rows, columns), labels (count),
 * both copied. Fields: "image" (1, rows, columns) fp32 and "label" int32. Pixels are kept as bytes
 * and normalized when they are read. */
EXO_API exo_status exo_dataset_images(exo_dataset **out, size_t count, size_t rows, size_t columns,
                                      const uint8_t *pixels, const uint8_t *labels,
                                      const exo_image_opts *opts, exo_err *err);
/* The same images read with other options, such as a validation set without augmentation; shares
 * memory. */
EXO_API exo_status exo_dataset_images_view(exo_dataset **out, exo_dataset *images,
                                           const exo_image_opts *opts, exo_err *err);

/* Reads IDX files (LeCun's MNIST format), gzipped or not. Labels may be up to 255. Errors name the
 * file and the reason: NOT_FOUND, IO, DAMAGED (wrong magic number, truncated, or different counts
 * of images and labels). */
EXO_API exo_status exo_dataset_idx(exo_dataset **out, const char *images_path,
                                   const char *labels_path, const exo_image_opts *opts,
                                   exo_err *err);

/* --- Text ------------------------------------------------------------------------------------- */

/* The treatment of the boundary between two documents. */
typedef enum exo_documents {
    EXO_DOCUMENTS_AUTO,   /* END if the tokenizer has an end token, else IGNORE */
    EXO_DOCUMENTS_IGNORE, /* documents follow one another directly */
    EXO_DOCUMENTS_END,    /* the tokenizer's end token stands between documents */
    /* As END, if the tokenizer has an end token; and a target that begins another document is
     * -1. */
    EXO_DOCUMENTS_SEPARATE,
} exo_documents;

/* Windows over a stream of tokens. A sample is `block` tokens, and for each of them the next token
 * as its target. A sample begins `stride` tokens after the one before. The parts are fractions of
 * the stream: of `count` tokens, [(size_t)(start * count), (size_t)(end * count)); no window leaves
 * its part. A part of n tokens has (n - block - 1) / stride + 1 samples; with stride 1 that is n -
 * block. */
typedef struct exo_window_opts {
    size_t block;              /* at least 1 */
    size_t stride;             /* at least 1 */
    double start, end;         /* the part for training, 0 <= start < end <= 1 */
    double val_start, val_end; /* the part for validation, likewise, if there is any */
    exo_documents documents;   /* zeroed: AUTO */
} exo_window_opts;

/* The defaults: block 256, stride 1, training on [0, 0.9), validation on [0.9, 1),
 * EXO_DOCUMENTS_AUTO. */
EXO_API exo_window_opts exo_window_opts_init(void);

/* Makes data sets of a text file, or of all *.txt of a folder in the order of their names; each
 * file is a document, and of a file "*.jsonl" the text under the key "text" of each line. The text is
 * tokenized at once. The tokens are in memory once, 2 or 4 bytes each, for both data sets and all
 * nodes of the process. Fields "tokens" (block) and "targets" (block), int32. The tokenizer is held;
 * NULL: the characters of this text. `opts` may be NULL; `val` may be NULL if there is no validation.
 * Errors: NOT_FOUND, IO, INVAL (the tokenizer refuses the text: names file and place; or a part has
 * no sample: names the part). */
EXO_API exo_status exo_dataset_text(exo_dataset **train, exo_dataset **val, const char *path,
                                    exo_tokenizer *tokenizer, const exo_window_opts *opts,
                                    exo_err *err);

/* The format of token files: shards, or bare little-endian numbers without a header (nanoGPT's
 * train.bin is EXO_TOKEN_FILES_U16). */
typedef enum exo_token_files {
    EXO_TOKEN_FILES_SHARDS,
    EXO_TOKEN_FILES_U16,
    EXO_TOKEN_FILES_U32,
} exo_token_files;

/* Makes data sets of token files: one file, or all *.tokens of a folder (bare numbers: *.bin) in
 * the order of their names, as one stream. docs/data.md has the format of the shards that
 * exo_data_tokenize writes. The files are mapped, not read: all processes of a host share one copy,
 * which may be larger than memory. The tokenizer is held; NULL: tokenizer.json beside the files, if
 * it exists. Fields as exo_dataset_text. Of opts->documents only SEPARATE has an effect: a boundary
 * is at each end token. Errors: NOT_FOUND, IO, DAMAGED (cut or altered: names file and place; or
 * shards or a tokenizer that do not belong together). A token outside the vocabulary is an error of
 * exo_dataset_get. */
EXO_API exo_status exo_dataset_tokens(exo_dataset **train, exo_dataset **val, const char *path,
                                      exo_token_files files, exo_tokenizer *tokenizer,
                                      const exo_window_opts *opts, exo_err *err);

/* Options of exo_data_tokenize. */
typedef struct exo_tokenize_opts {
    exo_tokenizer *tokenizer; /* NULL: the characters of the inputs */
    exo_documents documents;  /* AUTO, IGNORE or END */
    uint64_t shard_tokens;    /* tokens of a shard; 0: 100,000,000 */
    /* Reports the bytes of the inputs that are done; may be NULL. */
    void (*progress)(void *context, uint64_t bytes, uint64_t total);
    void *context; /* the first argument of progress */
} exo_tokenize_opts;

/* The result of exo_data_tokenize. */
typedef struct exo_tokenize_result {
    /* counts of the inputs; tokens includes those between documents */
    uint64_t documents, bytes, tokens;
    /* The number of shards; one more than the largest possible token. */
    size_t shards, vocabulary;
} exo_tokenize_result;

/* Tokenizes files of text or of lines of JSON (as exo_dataset_text), and the *.txt of folders, to
 * shards and a tokenizer.json in a new folder, which appears complete or not at all. Memory does not
 * grow with the inputs: a text longer than 16 MiB is cut at the end of a line, if there is one; a
 * line of JSON that is longer is refused. Errors: those of exo_dataset_text, EXISTS (the folder
 * exists and is not empty). */
EXO_API exo_status exo_data_tokenize(const char *const *inputs, size_t num_inputs,
                                     const char *folder, const exo_tokenize_opts *opts,
                                     exo_tokenize_result *result, exo_err *err);

/* --- By name ---------------------------------------------------------------------------------- */

/* Makes the training and the validation data set of a name. `val` may be NULL; the validation data
 * is then neither read nor needed. Options are keys of `config`, which may be NULL (docs/jobs.md
 * lists them). Errors: INVAL (an unknown name: the text has the nearest name, or all names; an
 * option; or validation data without a sample), NOT_FOUND (the text has the places searched, and
 * how to get the files). */
EXO_API exo_status exo_dataset_named(const char *name, exo_config *config, exo_dataset **train,
                                     exo_dataset **val, exo_err *err);
/* A data set with a name, for jobs: read-only, and valid as long as the process. A plugin registers
 * one with
 *
 *     EXO_PLUGIN { return exo_dataset_register(&my_data, err); }
 *
 * examples/27_own_data reads a CSV file. */
typedef struct exo_named_data {
    const char *name; /* the name under `data` in a job */
    const char *help; /* one line, for `exogym list data` */
    /* Makes the training data set and, unless `val` is NULL, the one for validation. Reads the
     * options from `config`, which may be NULL, as exo_config_... accept it; the caller refuses keys
     * that were not read. Called in each process that has nodes, and to check a job before it
     * starts; the data must be the same each time. After an error the caller drops what was made. A
     * path that does not exist is NOT_FOUND, as workers may have files that are not here. */
    exo_status (*load)(exo_config *config, exo_dataset **train, exo_dataset **val, exo_err *err);
} exo_named_data;

/* Registers a data set under its name, which must be new. Any thread. Errors: EXISTS, INVAL (no
 * name, or no `load`), FULL (1024 names). */
EXO_API exo_status exo_dataset_register(const exo_named_data *data, exo_err *err);
/* The name of an index in order, and one line about it; NULL after the last. Any thread. */
EXO_API const char *exo_dataset_name_at(size_t index, const char **help);

/* Makes the data of each node separately, so that a node loads only the data that it needs. The
 * caller owns *out. */
typedef struct exo_dataset_factory {
    /* Makes the training data of node `rank`, below num_nodes; with `train` false the validation
     * data, which is requested once, with rank 0. Called on the thread of the fit, one call at a
     * time. */
    exo_status (*make)(void *context, uint32_t rank, uint32_t num_nodes, bool train,
                       exo_dataset **out, exo_err *err);
    void *context; /* the first argument of make; must live as long as the fit */
} exo_dataset_factory;

/* --- Samplers --------------------------------------------------------------------------------- */

/* Constants of samplers. */
enum {
    EXO_SAMPLER_ROUNDS = 6,     /* rounds of a computed permutation */
    EXO_SAMPLER_TABLE = 1 << 24 /* most samples whose order is kept in a table */
};

/* A sampler shares a data set of `length` samples among `num_nodes` nodes. In each epoch every node
 * gets length / num_nodes samples; no sample occurs twice. The remainder of up to num_nodes - 1
 * samples is left out; with `shuffle` it differs from epoch to epoch. Up to 2^24 samples the
 * sampler takes 4 to 8 bytes for each, and beyond that no memory (nn/sampler.c). */
typedef struct exo_sampler {
    size_t length;
    uint32_t num_nodes, rank; /* number of nodes; the node of this sampler */
    /* A new permutation each epoch: from (seed, SHUFFLE, 0, epoch), or computed by `rounds`. */
    bool shuffle;
    uint64_t seed;
    uint64_t epoch; /* epoch of `order` or `rounds` */
    /* (length / num_nodes) this node's samples of the epoch; owned. NULL: not needed. */
    uint32_t *order;
    uint32_t *scratch;                  /* memory for making `order`; owned */
    exo_rng rounds[EXO_SAMPLER_ROUNDS]; /* of the permutation of a long data set */
    unsigned half_bits;                 /* half the bits of the numbers that `rounds` permute */
} exo_sampler;

/* Places the sampler before the first epoch. One thread at a time. The caller releases it. Errors:
 * INVAL (rank, or more nodes than samples), NOMEM. */
EXO_API exo_status exo_sampler_init(exo_sampler *sampler, size_t length, uint32_t num_nodes,
                                    uint32_t rank, bool shuffle, uint64_t seed, exo_err *err);
/* Frees the sampler's memory and zeroes it; accepts a zeroed one. */
EXO_API void exo_sampler_release(exo_sampler *sampler);
/* The samples of a node in an epoch. */
EXO_API size_t exo_sampler_share(const exo_sampler *sampler);
/* The index of the node's `position`-th sample since the start of training (epoch = position /
 * share). */
EXO_API size_t exo_sampler_at(exo_sampler *sampler, uint64_t position);

/* Gives the samples of evaluations: the first `count` of a permutation of `length`, which is a
 * function of (seed, EVAL). The caller frees *out (count) with exo_free. */
EXO_API exo_status exo_eval_order(size_t length, size_t count, uint64_t seed, size_t **out,
                                  exo_err *err);

/* --- Batches and loaders ---------------------------------------------------------------------- */

/* A batch of `size` samples, row-major by field: field i is (size, dims of the field). */
typedef struct exo_batch {
    size_t size;
    size_t num_fields;                /* fields of the data set */
    exo_field fields[EXO_MAX_FIELDS]; /* (num_fields), as the data set describes them */
    /* (num_fields), each (size, dims...); owned after exo_batch_init, or borrowed. */
    void *data[EXO_MAX_FIELDS];
} exo_batch;

/* Field `index` as a tensor (size, dims...), not copied. */
EXO_API exo_tensor *exo_batch_tensor(exo_tape *tape, const exo_batch *batch, size_t index);
/* The field of a name as a tensor. NULL, with INVAL in the tape: there is none. */
EXO_API exo_tensor *exo_batch_field(exo_tape *tape, const exo_batch *batch, const char *name);
/* Allocates memory for `size` samples of the data set. */
EXO_API exo_status exo_batch_init(exo_batch *batch, const exo_dataset *dataset, size_t size,
                                  exo_err *err);
/* Frees the memory of exo_batch_init and zeroes the batch; accepts a zeroed one. */
EXO_API void exo_batch_release(exo_batch *batch);
/* Reads the samples indices[0..count) into the rows from 0 and sets the batch's size. count is at
 * most the `size` of exo_batch_init. */
EXO_API exo_status exo_batch_read(exo_batch *batch, const exo_dataset *dataset,
                                  const size_t *indices, size_t count, const exo_sample_key *key,
                                  exo_err *err);

/* Options of a loader. */
typedef struct exo_loader_opts {
    uint32_t num_nodes, rank; /* the sampler's */
    bool shuffle;             /* the sampler's */
    uint64_t seed;            /* the sampler's, also for augmentation */
    /* Samples of a batch; the last samples of an epoch that do not fill a batch are left out. */
    size_t batch_size;
    uint64_t first;   /* first batch to return, counted from the start of training */
    size_t depth;     /* batches read ahead; 0 counts as 2 */
    unsigned threads; /* 0 counts as 1 */
} exo_loader_opts;

/* A loader, which reads batches ahead on threads of its own. */
typedef struct exo_loader exo_loader;

/* Holds the data set and starts to read. The caller closes the loader. INVAL: a node's share of an
 * epoch is smaller than a batch; the text has batch_size, the share and the length. */
EXO_API exo_status exo_loader_open(exo_loader **out, exo_dataset *dataset,
                                   const exo_loader_opts *opts, exo_err *err);
/* Ends the threads, each after its current batch, frees the loader and sets *loader to NULL;
 * accepts NULL in it. */
EXO_API void exo_loader_close(exo_loader **loader);
/* The number of batches in an epoch. */
EXO_API size_t exo_loader_epoch_batches(const exo_loader *loader);
/* Gives the next batch in order, which belongs to the loader until the next call. Waits up to
 * `timeout` (real time). One thread. Errors: TIMEOUT, or that of the data set, which stays. */
EXO_API exo_status exo_loader_next(exo_loader *loader, exo_time timeout, const exo_batch **out,
                                   exo_err *err);

/* --- Public files ----------------------------------------------------------------------------- */

/* A public data set, for `exogym data list` and `exogym data get`. */
typedef struct exo_data_source {
    const char *name; /* the name for exo_data_fetch */
    const char *help; /* one line about it */
    size_t num_files; /* entries of `files` */
    const struct exo_data_file {
        const char *name;    /* name in the folder */
        const char *urls[3]; /* tried in order; fewer than 3 end with NULL */
        const char *sha256;  /* 64 hexadecimal digits */
        uint64_t bytes;      /* length of the file */
    } * files;               /* (num_files) */
} exo_data_source;

/* The public data set of an index, from 0; NULL after the last. Static. */
EXO_API const exo_data_source *exo_data_source_at(size_t index);
/* The folder of a public data set: $EXOGYM_DATA/<name>, else $XDG_DATA_HOME/exogym/<name>, else
 * ~/.local/share/exogym/<name>. The caller frees *out with exo_free. */
EXO_API exo_status exo_data_folder(const char *name, char **out, exo_err *err);
/* Downloads the files of a public data set that are missing, and resumes partial ones. A file gets
 * its name only after its SHA-256 was checked. Blocks. `progress` may be NULL. Errors: NOT_FOUND
 * (no such set), IO (network or disk; the text has the address and a remedy), INVAL (checksum). */
EXO_API exo_status exo_data_fetch(const char *name,
                                  void (*progress)(void *context, const char *file, uint64_t got,
                                                   uint64_t total),
                                  void *context, exo_err *err);

EXO_DECLS_END

#endif
