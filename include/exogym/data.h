/* Data sets, samplers and loaders.
 *
 * A data set has a length and fields; a sample is one element of each field. It is read-only after
 * creation, shared by all nodes (one copy in memory), and read from many threads at once. A sampler
 * says which samples a node sees in which order; it is a pure function of (seed, epoch, node), so a
 * position is a number and nothing is lost over a restart. A loader reads ahead on threads of its
 * own.
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

/* One field of a sample: type and shape without the batch dimension; (1, 28, 28) for an image, ()
 * for a label. */
typedef struct exo_field {
    const char *name;              /* "image", "tokens"; lives as long as the data set */
    exo_dtype dtype;               /* EXO_F32 or EXO_I32 */
    size_t num_dims;               /* at most EXO_MAX_DIMS - 1 */
    size_t dims[EXO_MAX_DIMS - 1]; /* (num_dims) */
} exo_field;

/* The key of what is random in reading a sample (augmentation): the same whoever reads it, in
 * whatever order. */
typedef struct exo_sample_key {
    uint64_t seed;  /* the run's */
    uint64_t epoch; /* that the sample is read in */
} exo_sample_key;

/* Counted references; any thread. */
typedef struct exo_dataset exo_dataset;

/* A kind of data set. Functions get the `self` that exo_dataset_new was given. */
typedef struct exo_dataset_class {
    const char *name; /* for messages */
    /* How many samples there are: always the same. Any thread. */
    size_t (*length)(const void *self);
    /* Describes the fields; gives their number, at most EXO_MAX_FIELDS. */
    size_t (*fields)(const void *self, exo_field *out);
    /* Writes sample `index`, field i to out[i]. Any thread, many at once. */
    exo_status (*get)(const void *self, size_t index, const exo_sample_key *key, void *const *out,
                      exo_err *err);
    /* Frees self, with the last reference. May be NULL. */
    void (*free)(void *self);

    /* What follows may be NULL. See exo_dataset_tokenizer, exo_dataset_vocabulary,
     * exo_dataset_split. */
    exo_tokenizer *(*tokenizer)(const void *self);
    size_t (*vocabulary)(const void *self);
    exo_status (*split)(const void *self, uint32_t rank, uint32_t num_parts, exo_dataset **out,
                        exo_err *err);
} exo_dataset_class;

/* Makes a data set of a class of your own; `self` is handed over and freed by the class's free,
 * also on failure. */
EXO_API exo_status exo_dataset_new(exo_dataset **out, const exo_dataset_class *dataset_class,
                                   void *self, exo_err *err);
/* Counts one more reference and returns `dataset`. */
EXO_API exo_dataset *exo_dataset_hold(exo_dataset *dataset);
/* Gives a reference back and sets *dataset to NULL; accepts NULL in it. */
EXO_API void exo_dataset_drop(exo_dataset **dataset);
/* How many samples it has. */
EXO_API size_t exo_dataset_length(const exo_dataset *dataset);
/* Describes its fields in `out` (EXO_MAX_FIELDS) and gives their number. */
EXO_API size_t exo_dataset_fields(const exo_dataset *dataset, exo_field *out);
/* Writes sample `index` (below the length), field i to out[i], which has room for it. Errors:
 * the class's. */
EXO_API exo_status exo_dataset_get(const exo_dataset *dataset, size_t index,
                                   const exo_sample_key *key, void *const *out, exo_err *err);
/* Samples [first, first + count) of another data set, which is held. INVAL if out of range. */
EXO_API exo_status exo_dataset_slice(exo_dataset **out, exo_dataset *dataset, size_t first,
                                     size_t count, exo_err *err);
/* Part `rank` of `num_parts` parts, one after the other and as long as each other but for one. Of
 * windows over tokens it is the tokens that are parted, so that no token is in two parts; of others
 * the samples. INVAL: rank, or a part is too short to hold a sample. */
EXO_API exo_status exo_dataset_split(exo_dataset **out, exo_dataset *dataset, uint32_t rank,
                                     uint32_t num_parts, exo_err *err);
/* The tokenizer that made its tokens; NULL: none, or not known. Lives as long as the data set; hold
 * it to keep it longer. */
EXO_API exo_tokenizer *exo_dataset_tokenizer(const exo_dataset *dataset);
/* What all its tokens are less than; 0: it has none, or it is not known. */
EXO_API size_t exo_dataset_vocabulary(const exo_dataset *dataset);
/* Are all its tokens less than `vocabulary`? Of windows over files of bare numbers, and over tokens
 * of a larger vocabulary, all are looked through, which takes as long as to read them once; others
 * are asked for their vocabulary, and taken if they say none. INVAL names the file, the byte and
 * the first token that is not, or both vocabularies. */
EXO_API exo_status exo_dataset_check_tokens(const exo_dataset *dataset, size_t vocabulary,
                                            exo_err *err);

/* How images are read: (pixel / 255 - mean) / deviation, after what augments them. */
typedef struct exo_image_opts {
    float mean, deviation; /* deviation 0 counts as 1 */
    float rotate;          /* augmentation: uniform in +-rotate degrees */
    /* uniform in +-translate * size, each axis; nearest-neighbour sampling, filled with the
     * pixel 0, as torchvision's RandomAffine with its defaults */
    float translate;
} exo_image_opts;

/* Images and labels from arrays, fields "image" (1, rows, columns) fp32 and "label" int32;
 * pixels are kept as bytes and normalized when read. Arrays are copied: pixels (count, rows,
 * columns), labels (count). */
EXO_API exo_status exo_dataset_images(exo_dataset **out, size_t count, size_t rows, size_t columns,
                                      const uint8_t *pixels, const uint8_t *labels,
                                      const exo_image_opts *opts, exo_err *err);
/* The same pixels, read with other options (for a validation set without augmentation); shares
 * memory. */
EXO_API exo_status exo_dataset_images_view(exo_dataset **out, exo_dataset *images,
                                           const exo_image_opts *opts, exo_err *err);

/* IDX files (LeCun's MNIST format), gzipped or not. Errors name the file and what is wrong:
 * NOT_FOUND, IO, DAMAGED (magic, truncated, counts of images and labels that differ, label >= 10 is
 * allowed up to 255). */
EXO_API exo_status exo_dataset_idx(exo_dataset **out, const char *images_path,
                                   const char *labels_path, const exo_image_opts *opts,
                                   exo_err *err);

/* --- Text ------------------------------------------------------------------------------------- */

/* What becomes of the place where a document ends and the next one begins. */
typedef enum exo_documents {
    EXO_DOCUMENTS_AUTO,   /* END if the tokenizer has an end token, else IGNORE */
    EXO_DOCUMENTS_IGNORE, /* one follows the other */
    EXO_DOCUMENTS_END,    /* the tokenizer's end token stands between them */
    /* so it does, if there is one; and targets never begin another document: -1 */
    EXO_DOCUMENTS_SEPARATE,
} exo_documents;

/* Windows over a stream of tokens. A sample is `block` tokens and the `block` tokens that follow
 * each of them, and begins `stride` tokens after the one before. The parts are fractions of the
 * stream: of `count` tokens, [(size_t)(start * count), (size_t)(end * count)), and no window leaves
 * its part. A part of n tokens has (n - block - 1) / stride + 1 samples; with stride 1 that is n -
 * block. */
typedef struct exo_window_opts {
    size_t block;              /* at least 1 */
    size_t stride;             /* at least 1 */
    double start, end;         /* what is trained on, 0 <= start < end <= 1 */
    double val_start, val_end; /* what is validated on, likewise, if anything is */
    exo_documents documents;   /* AUTO where it is zeroed */
} exo_window_opts;

/* block 256, stride 1, trains on [0, 0.9), validates on [0.9, 1), EXO_DOCUMENTS_AUTO. */
EXO_API exo_window_opts exo_window_opts_init(void);

/* A text file, or all *.txt in a folder, in the order of their names, each a document. It is made
 * into tokens here and now; they are in memory once, 2 or 4 bytes each, for both halves and all
 * nodes of the process. Fields "tokens" (block) and "targets" (block), int32. The tokenizer is
 * held; NULL: the characters of this text. `opts` may be NULL; `val` may be NULL where nobody
 * validates. Errors: NOT_FOUND, IO; INVAL: the tokenizer refuses the text (names file and place), a
 * part has no sample (names it). */
EXO_API exo_status exo_dataset_text(exo_dataset **train, exo_dataset **val, const char *path,
                                    exo_tokenizer *tokenizer, const exo_window_opts *opts,
                                    exo_err *err);

/* How tokens lie in a file: in shards, or as bare little-endian numbers without a header (nanoGPT's
 * train.bin is EXO_TOKEN_FILES_U16). */
typedef enum exo_token_files {
    EXO_TOKEN_FILES_SHARDS,
    EXO_TOKEN_FILES_U16,
    EXO_TOKEN_FILES_U32,
} exo_token_files;

/* Shards as exo_data_tokenize writes them (docs/data.md has the format): a file, or all *.tokens in
 * a folder (bare numbers: *.bin), in the order of their names, as one stream. They are mapped, not
 * read: all processes of a host share one copy, and it may be larger than memory. The tokenizer is
 * held; NULL: tokenizer.json beside them, if it is there. Fields as above. Of opts->documents only
 * SEPARATE makes a difference: boundaries are where the end token is. Errors: NOT_FOUND, IO;
 * DAMAGED: cut or altered (names file and place), shards or a tokenizer that do not belong
 * together. A token out of the vocabulary is an error of exo_dataset_get. */
EXO_API exo_status exo_dataset_tokens(exo_dataset **train, exo_dataset **val, const char *path,
                                      exo_token_files files, exo_tokenizer *tokenizer,
                                      const exo_window_opts *opts, exo_err *err);

/* How texts become shards. */
typedef struct exo_tokenize_opts {
    exo_tokenizer *tokenizer; /* NULL: the characters of the inputs */
    exo_documents documents;  /* AUTO, IGNORE or END */
    uint64_t shard_tokens;    /* in a file; 0: 100,000,000 */
    /* Bytes of the inputs that are done; may be NULL. */
    void (*progress)(void *context, uint64_t bytes, uint64_t total);
    void *context; /* what progress gets */
} exo_tokenize_opts;

/* What exo_data_tokenize has written. */
typedef struct exo_tokenize_result {
    uint64_t documents, bytes, tokens; /* of the inputs; tokens with those between documents */
    /* files of tokens; one more than the largest token that there can be */
    size_t shards, vocabulary;
} exo_tokenize_result;

/* Makes text files, and the *.txt of folders, into shards and tokenizer.json in a new folder, which
 * appears whole or not at all. Memory does not grow with the inputs: what is longer than 16 MiB is
 * cut at the end of a line, if it has any. Errors: as exo_dataset_text; EXISTS: the folder is there
 * and not empty. */
EXO_API exo_status exo_data_tokenize(const char *const *inputs, size_t num_inputs,
                                     const char *folder, const exo_tokenize_opts *opts,
                                     exo_tokenize_result *result, exo_err *err);

/* --- By name ---------------------------------------------------------------------------------- */

/* A data set by name, both halves; `val` may be NULL where nobody validates: that half is neither
 * read nor needed. Options are keys of `config`, which may be NULL: docs/jobs.md has them. Errors:
 * INVAL (no such name: names the nearest one, or all; an option), NOT_FOUND (says where was looked
 * and how to get the files). */
EXO_API exo_status exo_dataset_named(const char *name, exo_config *config, exo_dataset **train,
                                     exo_dataset **val, exo_err *err);
/* The index-th name in order, and one line about it; NULL after the last. Any thread. */
EXO_API const char *exo_dataset_name_at(size_t index, const char **help);

/* Builds the data of one node, the seed's second form: each node loads only what it needs. `*out`
 * is the caller's. */
typedef struct exo_dataset_factory {
    /* The training data of node `rank`, below num_nodes; `train` false: what is validated on, which
     * is asked for once, as node 0. Called on the thread of the fit, one call at a time. */
    exo_status (*make)(void *context, uint32_t rank, uint32_t num_nodes, bool train,
                       exo_dataset **out, exo_err *err);
    void *context; /* what make gets; must live as long as the fit */
} exo_dataset_factory;

/* --- Samplers --------------------------------------------------------------------------------- */

/* Limits of samplers. */
enum {
    EXO_SAMPLER_ROUNDS = 6,     /* of the permutation that is computed */
    EXO_SAMPLER_TABLE = 1 << 24 /* samples; of more the order is computed, not kept */
};

/* Shares a data set of `length` out to `num_nodes` nodes: in each epoch every node gets length /
 * num_nodes samples, none of them twice and none that another node gets; a remainder of up to
 * num_nodes - 1 samples, others in each epoch if shuffled, sits out. Up to 2^24 samples it takes 4
 * to 8 bytes for each, beyond that none: nn/sampler.c. */
typedef struct exo_sampler {
    size_t length;
    uint32_t num_nodes, rank; /* among how many it is shared out; whose part this is */
    /* a new permutation each epoch from (seed, SHUFFLE, 0, epoch), or from the rounds' */
    bool shuffle;
    uint64_t seed;
    uint64_t epoch; /* of `order` or `rounds` */
    /* (length / num_nodes): this node's samples of the epoch; owned. NULL: none is needed */
    uint32_t *order;
    uint32_t *scratch;                  /* room to make `order`; owned */
    exo_rng rounds[EXO_SAMPLER_ROUNDS]; /* of the permutation of a long data set */
    unsigned half_bits;                 /* of the numbers that `rounds` permute */
} exo_sampler;

/* Begins before the first epoch. Errors: INVAL (rank, or more nodes than samples), NOMEM. The
 * caller releases it, and uses it from one thread at a time. */
EXO_API exo_status exo_sampler_init(exo_sampler *sampler, size_t length, uint32_t num_nodes,
                                    uint32_t rank, bool shuffle, uint64_t seed, exo_err *err);
/* Frees what it owns and zeroes it; a zeroed one is fine. */
EXO_API void exo_sampler_release(exo_sampler *sampler);
/* Samples a node gets each epoch. */
EXO_API size_t exo_sampler_share(const exo_sampler *sampler);
/* The node's `position`-th sample since the start of training (epoch = position / share). */
EXO_API size_t exo_sampler_at(exo_sampler *sampler, uint64_t position);

/* Which samples evaluations look at: the first `count` of an order of all `length` that is a
 * function of (seed, EVAL). *out (count) is freed with exo_free. */
EXO_API exo_status exo_eval_order(size_t length, size_t count, uint64_t seed, size_t **out,
                                  exo_err *err);

/* --- Batches and loaders ---------------------------------------------------------------------- */

/* `size` samples, field by field, row-major: field i is (size, dims of the field). */
typedef struct exo_batch {
    size_t size;
    size_t num_fields;                /* the data set's */
    exo_field fields[EXO_MAX_FIELDS]; /* (num_fields), as the data set describes them */
    /* (num_fields), each (size, dims...); exo_batch_init's, or borrowed */
    void *data[EXO_MAX_FIELDS];
} exo_batch;

/* Field `index` as a tensor (size, dims...), not copied. */
EXO_API exo_tensor *exo_batch_tensor(exo_tape *tape, const exo_batch *batch, size_t index);
/* The same of the field of that name. NULL, with INVAL in the tape: there is none. */
EXO_API exo_tensor *exo_batch_field(exo_tape *tape, const exo_batch *batch, const char *name);
/* Allocates room for `size` samples of the data set. */
EXO_API exo_status exo_batch_init(exo_batch *batch, const exo_dataset *dataset, size_t size,
                                  exo_err *err);
/* Frees what exo_batch_init allocated and zeroes it; a zeroed one is fine. */
EXO_API void exo_batch_release(exo_batch *batch);
/* Reads samples indices[0..count) into rows 0.. of the batch and sets its size; count at most what
 * it was made for. */
EXO_API exo_status exo_batch_read(exo_batch *batch, const exo_dataset *dataset,
                                  const size_t *indices, size_t count, const exo_sample_key *key,
                                  exo_err *err);

/* What a loader reads. */
typedef struct exo_loader_opts {
    uint32_t num_nodes, rank; /* the sampler's */
    bool shuffle;             /* the sampler's */
    uint64_t seed;            /* the sampler's, and that of what is random in reading */
    /* samples a batch; the last samples of an epoch that fill no batch are left out */
    size_t batch_size;
    uint64_t first;   /* the first batch to give, counted from the start of training */
    size_t depth;     /* batches read ahead; 0 counts as 2 */
    unsigned threads; /* 0 counts as 1 */
} exo_loader_opts;

/* Reads batches ahead on threads of its own. */
typedef struct exo_loader exo_loader;

/* Holds the data set and starts reading. INVAL if a node's share of an epoch is smaller than one
 * batch; the message names batch_size, the share and the length. */
EXO_API exo_status exo_loader_open(exo_loader **out, exo_dataset *dataset,
                                   const exo_loader_opts *opts, exo_err *err);
/* Ends its threads, each after the batch that it reads, frees it and sets *loader to NULL;
 * accepts NULL in it. */
EXO_API void exo_loader_close(exo_loader **loader);
/* Batches in an epoch. */
EXO_API size_t exo_loader_epoch_batches(const exo_loader *loader);
/* The next batch, in order, the loader's until the next call. Waits at most `timeout` (real time):
 * TIMEOUT; or the data set's error, which stays. One thread. */
EXO_API exo_status exo_loader_next(exo_loader *loader, exo_time timeout, const exo_batch **out,
                                   exo_err *err);

/* --- Public files ----------------------------------------------------------------------------- */

/* What `exogym data list` shows and `exogym data get` fetches. */
typedef struct exo_data_source {
    const char *name; /* for exo_data_fetch */
    const char *help; /* one line: what it is */
    size_t num_files; /* of `files` */
    const struct exo_data_file {
        const char *name;    /* in the folder */
        const char *urls[3]; /* tried in order, NULL-terminated if fewer */
        const char *sha256;  /* 64 hexadecimal digits */
        uint64_t bytes;      /* its length */
    } * files;               /* (num_files) */
} exo_data_source;

/* The index-th of them, from 0; NULL after the last. Static. */
EXO_API const exo_data_source *exo_data_source_at(size_t index);
/* The folder of a public data set: $EXOGYM_DATA/<name>, else $XDG_DATA_HOME/exogym/<name>, else
 * ~/.local/share/exogym/<name>. The caller frees *out with exo_free. */
EXO_API exo_status exo_data_folder(const char *name, char **out, exo_err *err);
/* Fetches what is missing, resumes what is cut, checks SHA-256 before a file gets its name.
 * `progress` may be NULL. Errors: NOT_FOUND (no such set), IO (no network, disk; the message says
 * which address and what to do), INVAL (checksum). */
EXO_API exo_status exo_data_fetch(const char *name,
                                  void (*progress)(void *context, const char *file, uint64_t got,
                                                   uint64_t total),
                                  void *context, exo_err *err);

EXO_DECLS_END

#endif
