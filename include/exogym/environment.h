/* Environments: tasks in which a policy acts and gets rewards, such as balancing a pole or a game of
 * cards; and vectors of them, which makers of rollouts play.
 *
 * A class of environments is a table of functions over an instance's state, which is bytes.
 * This one has a state of one number, which an action moves to the left or the right:
 *
 *     static void begin(const void *self, void *state, exo_rng *rng) {
 *         *(float *)state = exo_rng_uniform(rng);
 *     }
 *     static exo_episode step(const void *self, void *state, exo_action action, float *rewards) {
 *         *(float *)state += action.choice == 1 ? 0.1f : -0.1f;
 *         rewards[0] = -fabsf(*(float *)state);
 *         return EXO_EPISODE_GOES_ON;
 *     }
 *     static void observe(const void *self, const void *state, float *observation) {
 *         observation[0] = *(const float *)state;
 *     }
 *     static const exo_environment_class line = {
 *         .name = "line", .begin = begin, .step = step, .observe = observe,
 *         .shape = {.observation = 1, .actions = 2, .state = sizeof(float), .max_steps = 100}};
 *     EXO_PLUGIN { return exo_environment_register(&line, err); }
 *
 * A graph names it in the config of its makers and trainers: `environment: line`, or with options
 * `environment: {name: line, max_steps: 50}`. docs/environments.md has the built-in ones. */
#ifndef EXOGYM_ENVIRONMENT_H
#define EXOGYM_ENVIRONMENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <exogym/config.h>
#include <exogym/rng.h>
#include <exogym/status.h>

EXO_DECLS_BEGIN

/* --- Classes ---------------------------------------------------------------------------------- */

/* Limits of a shape. */
enum {
    EXO_ENVIRONMENT_MAX_OBSERVATION = 4096,
    EXO_ENVIRONMENT_MAX_ACTIONS = 64, /* the most choices, or numbers of a continuous action */
    EXO_ENVIRONMENT_MAX_PLAYERS = 8,
    EXO_ENVIRONMENT_MAX_STATE = 1 << 20 /* bytes */
};

/* The state of an episode after a step. The values are those of the items' `dones`. */
typedef enum exo_episode {
    EXO_EPISODE_GOES_ON = 0,
    EXO_EPISODE_TERMINATED = 1, /* it ended; also if that was step max_steps */
    EXO_EPISODE_TRUNCATED = 2,  /* it was cut off, and would have gone on */
} exo_episode;

/* The sizes of an environment. */
typedef struct exo_environment_shape {
    size_t observation; /* numbers of an observation */
    /* Discrete actions are 0 to actions - 1. 0: an action is continuous, `box` numbers, which a
     * vector clips to [low, high] (box) before the environment sees them. */
    uint32_t actions;
    size_t box;
    float low[EXO_ENVIRONMENT_MAX_ACTIONS], high[EXO_ENVIRONMENT_MAX_ACTIONS];
    uint32_t players; /* 0 or 1: one. Of a game: more, who take turns; each step has one player */
    /* An episode is truncated after so many steps; 0: never. The default of the option
     * `max_steps`. */
    uint64_t max_steps;
    size_t state; /* bytes of an instance's state, which is aligned to 64 bytes and begins zeroed */
} exo_environment_shape;

/* An action. */
typedef union exo_action {
    int32_t choice;   /* a discrete one */
    const float *box; /* a continuous one, (box) */
} exo_action;

/* A policy of discrete actions, for exact values of games. */
typedef struct exo_environment_policy {
    /* Writes the probabilities (actions) of the actions at an observation (observation). */
    void (*probabilities)(const void *context, const float *observation, double *probabilities);
    const void *context;
} exo_environment_policy;

/* The exact value of a policy that plays all players of a game, by enumeration. */
typedef struct exo_game_value {
    double value; /* what the first player wins a game in the mean */
    /* What a best response to the policy wins a game, mean over the players: NashConv / players of
     * a zero-sum game (Lanctot et al., 2017, arXiv:1711.00832). 0 only in a Nash equilibrium. */
    double exploitability;
} exo_game_value;

/* A class of environments: read-only, and valid as long as the process. Its functions are called
 * from any thread, for one state by one thread at a time, and must not keep data elsewhere. The same
 * state, action and numbers of the stream must give the same results. */
typedef struct exo_environment_class {
    const char *name;            /* the name for `environment` in a graph */
    const char *help;            /* one line, for `exogym list environments` */
    exo_environment_shape shape; /* `init` may change it */
    size_t self_size;            /* bytes of the options `self`, which begin zeroed */
    /* Reads the options of the environment, and may change the shape by them. NULL: it has none. */
    exo_status (*init)(void *self, exo_environment_shape *shape, exo_config *config, exo_err *err);
    /* Frees what init allocated; also called after its failure. May be NULL. */
    void (*release)(void *self);
    /* Begins an episode, with all chance of the beginning from `rng`. `state` holds the end of the
     * last episode, or zeros. */
    void (*begin)(const void *self, void *state, exo_rng *rng);
    /* Makes one step with the action of the player whose turn it is, and writes the rewards
     * (players). Not called after the end of an episode. */
    exo_episode (*step)(const void *self, void *state, exo_action action, float *rewards);
    /* Writes the observation of the player whose turn it is. Also called after the end. */
    void (*observe)(const void *self, const void *state, float *observation);
    /* The player whose turn it is, from 0. NULL: always 0. */
    uint32_t (*player)(const void *self, const void *state);
    /* Frees what a state holds beside its bytes, such as the world of a simulator, before the vector
     * frees the state. NULL: nothing. */
    void (*end)(const void *self, void *state);
    /* Of a game that is small enough: computes the exact value of a policy, of episodes that are not
     * truncated. Of the results of `policy` it needs those of at most some thousands of
     * observations. NULL: there is no exact value. */
    void (*evaluate_game)(const void *self, const exo_environment_policy *policy,
                          exo_game_value *out);
    /* Faster form of `step`, for the instances of a vector: makes one step of `count` states, which
     * are `stride` bytes apart, with the discrete actions choices (count), and writes rewards (count,
     * players) and ends (count), of exo_episode. It must give, to the bit, what `step` gives of each
     * state. NULL: the vector calls `step`. */
    void (*step_many)(const void *self, void *states, size_t stride, size_t count,
                      const int32_t *choices, float *rewards, uint8_t *ends);
    /* Faster form of `observe`, likewise: writes observations (count, observation). May be NULL. */
    void (*observe_many)(const void *self, const void *states, size_t stride, size_t count,
                         float *observations);
} exo_environment_class;

/* Registers a class under its name, which must be new. The class must live as long as the process.
 * Any thread. Errors: EXISTS, INVAL (a missing function, or a shape beyond the limits), FULL. */
EXO_API exo_status exo_environment_register(const exo_environment_class *environment_class,
                                            exo_err *err);
/* The class of an index in the order of names; NULL after the last. */
EXO_API const exo_environment_class *exo_environment_class_at(size_t index);

/* --- An environment with its options ---------------------------------------------------------- */

/* A class with its options. Read-only after it was made; any thread. */
typedef struct exo_environment_spec exo_environment_spec;

/* Reads the environment under `key` of `map`: a name, or a mapping with `name`, `max_steps` and the
 * options of the class. `fallback` is the name where the key is missing; NULL: the key is required.
 * Keeps nothing of the config. The caller frees it. Errors: NOT_FOUND (names the nearest
 * environment, or all), UNSUPPORTED (the environment needs a library that exogym was built without),
 * INVAL (with the place in the config), NOMEM. */
EXO_API exo_status exo_environment_spec_read(exo_environment_spec **out, exo_config *map,
                                             const char *key, const char *fallback, exo_err *err);
/* Frees *spec and sets it to NULL; accepts NULL in it. */
EXO_API void exo_environment_spec_free(exo_environment_spec **spec);
/* The name of the class. */
EXO_API const char *exo_environment_spec_name(const exo_environment_spec *spec);
/* Whether both are one class with the same options. Options are compared byte by byte, so those that a class
 * keeps behind pointers count as others. Any thread; never blocks. */
EXO_API bool exo_environment_spec_same(const exo_environment_spec *spec,
                                       const exo_environment_spec *other);
/* The shape, in which players is at least 1. Valid as long as the spec. */
EXO_API const exo_environment_shape *exo_environment_spec_shape(const exo_environment_spec *spec);
/* Computes the exact value of a policy that plays all players of a game. False: there is none,
 * because the class has no `evaluate_game` or max_steps truncates episodes. If `policy` is NULL, it
 * only tells whether there is one. */
EXO_API bool exo_environment_spec_evaluate_game(const exo_environment_spec *spec,
                                                const exo_environment_policy *policy,
                                                exo_game_value *out);

/* --- Vectors ---------------------------------------------------------------------------------- */

/* N instances of an environment, whose states are one array. After the end of an episode an instance
 * begins its next one. Episode k of instance e begins from the stream (seed, RESET, e, k), so the
 * episodes are determined by the seed and the actions. One thread at a time. */
typedef struct exo_environments exo_environments;

/* The most instances of a vector. */
enum {
    EXO_ENVIRONMENTS_MAX = 4096
};

/* Makes a vector, each of whose instances is at the beginning of its first episode. The spec must
 * outlive it. The caller frees it. Errors: INVAL (`count` is 0 or above EXO_ENVIRONMENTS_MAX),
 * NOMEM. */
EXO_API exo_status exo_environments_new(exo_environments **out, const exo_environment_spec *spec,
                                        size_t count, uint64_t seed, exo_err *err);
/* Frees *environments and sets it to NULL; accepts NULL in it. */
EXO_API void exo_environments_free(exo_environments **environments);
/* Writes the observations (N, observation), each of the player whose turn it is in the instance. */
EXO_API void exo_environments_observe(const exo_environments *environments, float *observations);
/* Writes the players whose turn it is (N). */
EXO_API void exo_environments_players(const exo_environments *environments, uint8_t *players);
/* Makes one step in each instance. `actions` is int32 (N), or fp32 (N, box). `rewards` (N, players)
 * and `ends` (N), of exo_episode, are written. `finals` (N, observation) gets the last observation of
 * each episode that ended, and is not written elsewhere; it may be NULL. */
EXO_API void exo_environments_step(exo_environments *environments, const void *actions,
                                   float *rewards, uint8_t *ends, float *finals);

EXO_DECLS_END

#endif
