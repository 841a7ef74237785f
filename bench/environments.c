/* Steps of environments: how many a second one thread makes, with their observations, rewards, ends
 * and new episodes. bench/rl.py runs it beside other libraries.
 *
 *     bench_environments [N] [SECONDS]
 *
 * N instances (by default 1,024) get random actions that were drawn before. Prints a line
 * `NAME steps_per_second=...` for each environment; the figure is the best of five parts of SECONDS
 * (by default 1) of the thread's time. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <exogym/environment.h>
#include <exogym/rng.h>

enum {
    PARTS = 5,
    ROUNDS = 64 /* of actions, which are repeated */
};

struct arrays {
    int32_t *choices;    /* (ROUNDS, N) */
    float *boxes;        /* (ROUNDS, N, box) */
    float *observations; /* (N, observation) */
    float *rewards;      /* (N, players) */
    uint8_t *ends;       /* (N) */
};

static void
fail(const char *text)
{
    fprintf(stderr, "bench_environments: %s\n", text);
    exit(1);
}

static double
seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void
draw_actions(struct arrays *a, const exo_environment_shape *shape, size_t n)
{
    exo_rng rng;
    exo_rng_init(&rng, 1, EXO_RNG_ACTION, 0, 0);
    for (size_t i = 0; i < ROUNDS * n && shape->actions > 0; i++)
        a->choices[i] = (int32_t)exo_rng_below(&rng, shape->actions);
    for (size_t i = 0; i < ROUNDS * n * shape->box; i++) {
        float low = shape->low[i % shape->box], high = shape->high[i % shape->box];
        a->boxes[i] = low + (high - low) * exo_rng_uniform(&rng);
    }
}

/* Steps per second of the thread's time in one part. */
static double
measure(exo_environments *vector, const exo_environment_shape *shape, const struct arrays *a,
        size_t n, double duration)
{
    double start = seconds(), now;
    size_t steps = 0;
    do {
        for (size_t round = 0; round < ROUNDS; round++) {
            const void *actions = shape->box ? (const void *)(a->boxes + round * n * shape->box)
                                             : (const void *)(a->choices + round * n);
            exo_environments_step(vector, actions, a->rewards, a->ends, NULL);
            exo_environments_observe(vector, a->observations);
        }
        steps += ROUNDS * n;
        now = seconds();
    } while (now - start < duration);
    return (double)steps / (now - start);
}

static void
bench(const char *name, size_t n, double duration)
{
    char text[128];
    exo_config_doc *doc = NULL;
    exo_environment_spec *spec = NULL;
    exo_environments *vector = NULL;
    exo_err err = {0};
    snprintf(text, sizeof text, "environment: %s", name);
    if (exo_config_parse(&doc, "bench", text, &err) != EXO_OK ||
        exo_environment_spec_read(&spec, exo_config_root(doc), "environment", NULL, &err) !=
            EXO_OK ||
        exo_environments_new(&vector, spec, n, 1, &err) != EXO_OK)
        fail(err.text);
    const exo_environment_shape *shape = exo_environment_spec_shape(spec);
    struct arrays a = {.choices = calloc(ROUNDS * n, sizeof *a.choices),
                       .boxes = calloc(ROUNDS * n * (shape->box + 1), sizeof *a.boxes),
                       .observations = calloc(n * shape->observation, sizeof *a.observations),
                       .rewards = calloc(n * shape->players, sizeof *a.rewards),
                       .ends = calloc(n, sizeof *a.ends)};
    if (!a.choices || !a.boxes || !a.observations || !a.rewards || !a.ends)
        fail("no memory");
    draw_actions(&a, shape, n);
    double best = 0;
    for (int part = 0; part < PARTS; part++) {
        double rate = measure(vector, shape, &a, n, duration / PARTS);
        best = rate > best ? rate : best;
    }
    printf("%s steps_per_second=%.0f\n", name, best);
    fflush(stdout);
    free(a.choices);
    free(a.boxes);
    free(a.observations);
    free(a.rewards);
    free(a.ends);
    exo_environments_free(&vector);
    exo_environment_spec_free(&spec);
    exo_config_free(&doc);
}

int
main(int argc, char **argv)
{
    static const char *const names[] = {"cartpole", "acrobot", "mountain_car", "pendulum"};
    const size_t n = argc > 1 ? strtoul(argv[1], NULL, 10) : 1024;
    const double duration = argc > 2 ? strtod(argv[2], NULL) : 1;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        bench(names[i], n, duration);
    return 0;
}
