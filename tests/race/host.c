/* A program of several threads that uses the library at once, under the thread sanitizer: fits of one
 * model and data set, generation with one decoder, shared data sets, tokenizers, meters and registries,
 * configurations, objects, and a log whose level and sink change. Signals interrupt all threads.
 *
 * Results are those of one thread. `host` is read-only while threads run, except for what the library
 * allows them to share. Read next: docs/concurrency.md, "Programs with threads". */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <exogym/exogym.h>

#include "support/check.h"
#include "support/points.h"

enum {
    THREADS = 4,
    ROUNDS = 3,
    SEQUENCES = 2,
    CONTEXT = 16
};

static const exo_meter_class meters[] = {
    {.name = "rounds", .unit = "1", .help = "rounds"},
    {.name = "level", .unit = "1", .help = "the latest", .kind = EXO_GAUGE}};

struct host {
    exo_model *model, *decoder;
    exo_decoder_spec spec;
    exo_params *weights;
    exo_dataset *train, *val;
    exo_tokenizer *tokenizer;
    exo_meters *meters;
    exo_object *object;
    char hash[65];                      /* of a fit */
    int32_t tokens[SEQUENCES][CONTEXT]; /* of a generation */
    atomic_uint lines;                  /* of the log */
    atomic_bool over;
    pthread_t threads[THREADS];
};

static exo_err err; /* of the main thread */

static void
must(exo_status st, const exo_err *e)
{
    if (st != EXO_OK)
        fprintf(stderr, "host: %s\n", e->text);
    CHECK(st == EXO_OK);
}

/* --- Work ------------------------------------------------------------------------------------- */

static void
fit(const struct host *h, uint32_t nodes, char hash[65])
{
    exo_err e = {0};
    exo_trainer *trainer = NULL;
    exo_fit_result result;
    exo_fit_opts opts = exo_fit_opts_init();
    opts.num_nodes = nodes;
    opts.max_steps = 2;
    opts.batch_size = 2;
    opts.val_size = 4;
    opts.save_dir = NULL;
    must(exo_trainer_new(&trainer, h->model, h->train, h->val, &e), &e);
    must(exo_trainer_fit_text(trainer, "diloco", "{H: 1}", &opts, &result, &e), &e);
    memcpy(hash, result.sha256, 65);
    exo_params_free(&result.params);
    exo_trainer_free(&trainer);
}

static void
generate(const struct host *h, int32_t tokens[SEQUENCES][CONTEXT])
{
    exo_err e = {0};
    exo_generator *g = NULL;
    exo_generated done;
    const int32_t prompt[] = {1, 2, 3};
    const exo_sampling sampling = {.temperature = 1, .max_new_tokens = 5, .seed = 4};
    must(exo_generator_new(&g, &h->spec, h->weights, &(exo_generator_opts){.sequences = SEQUENCES},
                           &e),
         &e);
    for (uint64_t i = 0; i < SEQUENCES; i++)
        must(exo_generator_submit(g, i, prompt, 3, &sampling, &e), &e);
    for (int taken = 0; taken < SEQUENCES;) {
        must(exo_generator_step(g, &e), &e);
        for (; exo_generator_take(g, &done); taken++)
            memcpy(tokens[done.id], done.tokens, done.length * sizeof *done.tokens);
    }
    exo_generator_free(&g);
}

static void
count_meter(void *count, const exo_meter_sample *sample)
{
    *(uint64_t *)count += sample->count;
}

static void
use_meters(const struct host *h, int index)
{
    exo_err e = {0};
    char name[16];
    uint64_t count = 0;
    exo_meters *scope = NULL;
    exo_meter *each[2];
    snprintf(name, sizeof name, "thread_%d", index % 2);
    must(exo_meters_scope(&scope, h->meters, name, &e), &e);
    must(exo_meter_declare_all(each, scope, meters, 2, &e), &e);
    exo_meter_add(each[0], 1);
    exo_meter_set(each[1], index);
    must(exo_meters_walk(h->meters, count_meter, &count, &e), &e);
    CHECK(count > 0);
}

static void
use_texts(const struct host *h)
{
    exo_err e = {0};
    int32_t *tokens = NULL;
    size_t count = 0, size = 0;
    char *text = NULL, *json = NULL;
    exo_config_doc *doc = NULL;
    exo_tokenizer *tokenizer = exo_tokenizer_hold(h->tokenizer);
    must(exo_tokenizer_encode(tokenizer, "a text", 6, false, &tokens, &count, &e), &e);
    must(exo_tokenizer_decode(tokenizer, tokens, count, false, &text, &size, &e), &e);
    CHECK(strcmp(text, "a text") == 0);
    exo_tokenizer_drop(&tokenizer);
    must(exo_config_parse(&doc, "host", "{rate: 1.5}", &e), &e);
    must(exo_config_set(doc, "part.time=20 ms", &e), &e);
    must(exo_config_json(exo_config_root(doc), &json, &e), &e);
    CHECK(strstr(json, "1.5"));
    exo_config_free(&doc);
    exo_free(tokens);
    exo_free(text);
    exo_free(json);
}

static exo_status
no_method(exo_call_context *call, void *self, const exo_payload *args, exo_payload *reply,
          exo_err *e)
{
    (void)call;
    (void)self;
    (void)args;
    (void)reply;
    (void)e;
    return EXO_OK;
}

static const exo_method methods[] = {{.name = "none", .run = no_method}};
static const exo_actor_class classes[THREADS] = {
    {.name = "host_0", .state_size = 1, .methods = methods, .num_methods = 1},
    {.name = "host_1", .state_size = 1, .methods = methods, .num_methods = 1},
    {.name = "host_2", .state_size = 1, .methods = methods, .num_methods = 1},
    {.name = "host_3", .state_size = 1, .methods = methods, .num_methods = 1}};

static void
use_registries(int index)
{
    exo_err e = {0};
    size_t count = 0;
    must(exo_actor_class_register(&classes[index], &e), &e);
    CHECK(exo_actor_class_find(classes[index].name) == &classes[index]);
    while (exo_actor_class_at(count))
        count++;
    CHECK(count > 0);
}

static void
use_objects(const struct host *h)
{
    exo_err e = {0};
    exo_object *own = NULL, *shared = exo_object_hold(h->object);
    must(exo_object_put(&own, "mine", 5, &e), &e);
    CHECK(strcmp(exo_object_data(own), "mine") == 0);
    CHECK(strcmp(exo_object_data(shared), "shared") == 0);
    exo_object_drop(&own);
    exo_object_drop(&shared);
}

/* --- Threads ---------------------------------------------------------------------------------- */

static void
count_line(void *context, exo_log_level level, const char *line)
{
    (void)level;
    (void)line;
    atomic_fetch_add(&((struct host *)context)->lines, 1);
}

/* What one of the threads needs. */
struct task {
    struct host *host;
    int index;
};

static void *
thread_main(void *argument)
{
    const struct task *t = argument;
    struct host *h = t->host;
    for (int round = 0; round < ROUNDS; round++) {
        char hash[65];
        int32_t tokens[SEQUENCES][CONTEXT] = {{0}};
        if ((t->index + round) % 2 == 0) {
            fit(h, 2, hash);
            CHECK(strcmp(hash, h->hash) == 0);
        } else {
            generate(h, tokens);
            CHECK(memcmp(tokens, h->tokens, sizeof tokens) == 0);
        }
        use_meters(h, t->index);
        use_texts(h);
        use_registries(t->index);
        use_objects(h);
        exo_log_set_sink(count_line, h);
        exo_log_set_level(EXO_LOG_WARN);
        EXO_LOG(WARN, TEST, "round=%d", round);
        exo_set_num_threads(1 + (unsigned)(t->index + round) % 3);
    }
    return NULL;
}

static void
ignore(int number)
{
    (void)number;
}

/* Interrupts what all threads wait for. */
static void *
pelt_main(void *argument)
{
    struct host *h = argument;
    const struct timespec moment = {.tv_nsec = 2000000};
    while (!atomic_load(&h->over)) {
        for (int i = 0; i < THREADS; i++)
            pthread_kill(h->threads[i], SIGUSR1);
        nanosleep(&moment, NULL);
    }
    return NULL;
}

static void
run(struct host *h)
{
    pthread_t pelter;
    struct task tasks[THREADS];
    const struct sigaction action = {.sa_handler = ignore}; /* without SA_RESTART */
    sigaction(SIGUSR1, &action, NULL);
    for (int i = 0; i < THREADS; i++) {
        tasks[i] = (struct task){.host = h, .index = i};
        CHECK(pthread_create(&h->threads[i], NULL, thread_main, &tasks[i]) == 0);
    }
    CHECK(pthread_create(&pelter, NULL, pelt_main, h) == 0);
    /* the pelter ends first: pthread_kill needs threads that were not joined */
    for (int rounds = 0; rounds < 200 && !atomic_load(&h->lines); rounds++)
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    atomic_store(&h->over, true);
    pthread_join(pelter, NULL);
    for (int i = 0; i < THREADS; i++)
        pthread_join(h->threads[i], NULL);
}

/* --- The program ------------------------------------------------------------------------------ */

static void
open_host(struct host *h)
{
    h->model = points_mlp();
    h->train = points_new(64, 1, SIZE_MAX);
    h->val = points_new(16, 2, SIZE_MAX);
    must(exo_decoder_size(&h->spec, "small", &err), &err);
    h->spec.vocabulary = 300;
    h->spec.context = CONTEXT;
    h->spec.layers = 1;
    must(exo_decoder_new(&h->decoder, &h->spec, &err), &err);
    must(exo_model_params(h->decoder, 1, &h->weights, &err), &err);
    must(exo_tokenizer_bytes(&h->tokenizer, &err), &err);
    must(exo_meters_new(&h->meters, &err), &err);
    must(exo_object_put(&h->object, "shared", 7, &err), &err);
    fit(h, 1, h->hash); /* oneDNN, whose code has no sanitizer, makes its cache in one thread */
    fit(h, 2, h->hash);
    generate(h, h->tokens);
}

static void
close_host(struct host *h)
{
    exo_log_set_sink(NULL, NULL);
    exo_object_drop(&h->object);
    exo_meters_free(&h->meters);
    exo_tokenizer_drop(&h->tokenizer);
    exo_params_free(&h->weights);
    exo_model_drop(&h->decoder);
    exo_dataset_drop(&h->train);
    exo_dataset_drop(&h->val);
    exo_model_drop(&h->model);
}

int
main(void)
{
    static struct host host;
    open_host(&host);
    run(&host);
    CHECK(atomic_load(&host.lines) >= THREADS * ROUNDS);
    close_host(&host);
    return EXIT_SUCCESS;
}
