/* Strategies under the thread sanitizer: nodes train under some of them with helper threads in the
 * optimizer, and threads register classes while other threads read the list. Each test owns its
 * nodes and threads. Read next: tests/support/nodes.h. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/nodes.h"

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                        \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

enum {
    THREADS = 6,
    CLASSES = 50,
    NUMEL = 100000 /* several pieces of an optimizer's step */
};

static exo_status
no_step(void *self, exo_node *node, exo_err *err)
{
    (void)self;
    (void)node;
    (void)err;
    return EXO_OK;
}

static char names[CLASSES][16];
static exo_strategy_class classes[THREADS][CLASSES];
static int accepted[THREADS][CLASSES];

static size_t
count_classes(void)
{
    size_t n = 0;
    while (exo_strategy_class_at(n))
        n++;
    return n;
}

/* Registers all names, as every other thread does; `*argument` is the thread's number. */
static void *
register_all(void *argument)
{
    int thread = *(int *)argument;
    size_t before = 0;
    for (int i = 0; i < CLASSES; i++) {
        exo_status st = exo_strategy_register(&classes[thread][i], NULL);
        CHECK(st == EXO_OK || st == EXO_EXISTS);
        accepted[thread][i] = st == EXO_OK;
        size_t now = count_classes();
        CHECK(now >= before && strlen(exo_strategy_class_at(now - 1)->name) > 0);
        before = now;
    }
    return NULL;
}

static void
registry_gives_a_name_to_one(void)
{
    pthread_t threads[THREADS];
    int numbers[THREADS];
    size_t built_in = count_classes();
    for (int i = 0; i < CLASSES; i++)
        snprintf(names[i], sizeof names[i], "class_%d", i);
    for (int t = 0; t < THREADS; t++) {
        for (int i = 0; i < CLASSES; i++)
            classes[t][i] = (exo_strategy_class){.name = names[i], .step = no_step};
        numbers[t] = t;
        CHECK(pthread_create(&threads[t], NULL, register_all, &numbers[t]) == 0);
    }
    for (int t = 0; t < THREADS; t++)
        pthread_join(threads[t], NULL);
    CHECK(count_classes() == built_in + CLASSES);
    for (int i = 0; i < CLASSES; i++) {
        int owners = 0;
        for (int t = 0; t < THREADS; t++)
            owners += accepted[t][i];
        CHECK(owners == 1);
    }
}

static void
nodes_train_under(const char *name, const char *options)
{
    nodes n;
    nodes_init(&n, 3, NUMEL, 1, 4, name, options);
    nodes_train(&n, 4);
    nodes_release(&n);
}

int
main(void)
{
    exo_set_num_threads(4);
    registry_gives_a_name_to_one();
    nodes_train_under("ddp", "max_norm: 1");
    nodes_train_under("diloco", "{H: 2, max_norm: 1}");
    nodes_train_under("sparta", "{p: 0.1, delay: 1}");
    nodes_train_under("powersgd", "{rank: 2}");
    nodes_train_under("quantized", "{error_feedback: true}");
    nodes_train_under("demo", "{k: 3, chunk: 9}");
    nodes_train_under("onebit_adam", "{freeze_step: 1}");
    nodes_train_under("noloco", "{H: 2}");
    nodes_train_under("sparta_diloco", "{p: 0.1, H: 2}");
    nodes_train_under("streaming_diloco", "{H: 2, fragments: 2, delay: 1}");
    nodes_train_under("sparseloco", "{H: 2}");
    nodes_train_under("eager_diloco", "{H: 2}");
    nodes_train_under("local_sgd", "{H: 2, aggregate: median}");
    return 0;
}
