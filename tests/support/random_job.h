/* Jobs of training drawn at random: a small model, a number of nodes, and how they share the work
 * (copies, shards, parts, stages, minibatches, recomputed blocks, a strategy between groups).
 *
 * Each job knows what documentation says of it: whether it is refused, and why; which plainer job has
 * its bits; and which job of fewer nodes has its numbers. No state. Read next:
 * tests/equiv/random_jobs.c, which runs them. */
#ifndef EXO_TEST_RANDOM_JOB_H
#define EXO_TEST_RANDOM_JOB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    RANDOM_JOB_TEXT = 512,
    RANDOM_JOB_NODES = 33, /* the most of a job */
    RANDOM_JOB_REASONS = 24,
    RANDOM_JOB_STEPS = 3,
    RANDOM_JOB_STOP = 2, /* the step after which a job that `stops` does so */
    RANDOM_JOB_LENGTH = 12,
    RANDOM_JOB_VOCABULARY = 19
};

/* How the copies of the model work together. */
typedef enum random_job_kind {
    RANDOM_JOB_DDP,
    RANDOM_JOB_FSDP,
    RANDOM_JOB_ALONE /* each node by itself, under the strategy `across` */
} random_job_kind;

typedef struct random_job {
    /* The model. */
    bool gpt, checkpoint, tied, dropout, alibi;
    const char *lora, *frozen; /* options; NULL: none */
    uint32_t layers, heads, inner;
    const char *hidden; /* of an mlp */
    const char *kinds;  /* of layers, more options of a gpt */
    /* The nodes: copies x tensor x pipeline x context + odd. */
    uint32_t copies, tensor, pipeline, context, odd;
    bool sequence; /* parallelism of the parts */
    /* The strategy. */
    random_job_kind kind;
    const char *bucket;   /* of ddp; NULL: none */
    const char *sharding; /* of fsdp; NULL: the default */
    uint32_t group;       /* of fsdp; 0: all copies */
    bool prefetch;
    const char *across, *across_options; /* NULL: groups take the mean of their gradients */
    bool across_is_mean;  /* in each step `across` takes the mean of the parameters, no more */
    bool across_by_place; /* what it sends depends on the places of elements, and so on shards */
    bool across_by_shape; /* or on the shapes of the parameters, which shards do not have */
    const char *optimizer, *scheduler, *max_norm;
    bool muon, plain_sgd;
    /* The batches. */
    size_t batch, minibatch;
    bool shuffled; /* all copies draw from one set in random order */
    /* The rest. */
    const char *collectives; /* NULL: the default */
    bool any_bits;
    bool stops;         /* and goes on from its checkpoint */
    bool virtual_clock; /* over emulated links */
    bool elastic;
    bool correlates;
} random_job;

/* Draws the job of a number. */
void random_job_draw(random_job *job, uint64_t seed, uint32_t number);

uint32_t random_job_nodes(const random_job *job);
/* The copies of the model that learn as one, and the number of those groups. */
uint32_t random_job_group(const random_job *job);
uint32_t random_job_groups(const random_job *job);

/* Writes the model's options, the strategy's name and its options, and all of the job for people. */
void random_job_model(const random_job *job, char out[RANDOM_JOB_TEXT]);
const char *random_job_strategy(const random_job *job);
void random_job_options(const random_job *job, char out[RANDOM_JOB_TEXT]);
void random_job_print(const random_job *job, char out[2 * RANDOM_JOB_TEXT]);

/* The parts of messages with which the job may be refused; returns their number. 0: it trains. */
size_t random_job_reasons(const random_job *job, const char *out[RANDOM_JOB_REASONS]);
/* Makes the plainest job that has the same bits. False: it is this job. */
bool random_job_twin(const random_job *job, random_job *twin);
/* Whether a job sends as many bytes as its twin. */
bool random_job_sends_same(const random_job *job, const random_job *twin);
/* Makes the job with one node for each group, whose numbers are equal but for the order of sums; one
 * node for all, if groups take the mean after each step. False: there is none. */
bool random_job_reference(const random_job *job, random_job *reference);

#endif
