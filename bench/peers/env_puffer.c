/* Steps of PufferLib's CartPole in C: `cartpole steps_per_second=...`, for bench/rl.py. It includes
 * the environment's own header, pufferlib/ocean/cartpole/cartpole.h of the release, and makes the
 * loop of its vec_step; setup.sh builds it. The figure is the best of five parts of SECONDS of the
 * thread's time.
 *
 *     env_puffer [N] [SECONDS]
 */
#include "cartpole.h"

enum {
    PARTS = 5,
    ROUNDS = 64
};

static double
seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int
main(int argc, char **argv)
{
    const size_t n = argc > 1 ? strtoul(argv[1], NULL, 10) : 1024;
    const double duration = argc > 2 ? strtod(argv[2], NULL) : 1;
    Cartpole *envs = calloc(n, sizeof *envs);
    float *observations = calloc(4 * n, sizeof *observations),
          *actions = calloc(n, sizeof *actions);
    float *rewards = calloc(n, sizeof *rewards), *drawn = calloc(ROUNDS * n, sizeof *drawn);
    unsigned char *terminals = calloc(n, 1), *truncations = calloc(n, 1);
    if (!envs || !observations || !actions || !rewards || !drawn || !terminals || !truncations)
        return 1;
    for (size_t i = 0; i < ROUNDS * n; i++)
        drawn[i] = (float)(rand() % 2);
    for (size_t i = 0; i < n; i++) {
        envs[i].observations = observations + 4 * i;
        envs[i].actions = actions + i;
        envs[i].rewards = rewards + i;
        envs[i].terminals = terminals + i;
        envs[i].truncations = truncations + i;
        c_reset(&envs[i]);
    }
    double best = 0;
    for (int part = 0; part < PARTS; part++) {
        double start = seconds(), now;
        size_t steps = 0;
        do {
            for (size_t round = 0; round < ROUNDS; round++) {
                memcpy(actions, drawn + round * n, n * sizeof *actions);
                for (size_t i = 0; i < n; i++)
                    c_step(&envs[i]);
            }
            steps += ROUNDS * n;
            now = seconds();
        } while (now - start < duration / PARTS);
        if ((double)steps / (now - start) > best)
            best = (double)steps / (now - start);
    }
    printf("cartpole steps_per_second=%.0f\n", best);
    return 0;
}
