/* Functions of C programs: see given.h. */
#include "experience/given.h"

#include <pthread.h>
#include <string.h>

#include <exogym/memory.h>

#include "experience/builtin.h"

enum {
    MAX_GIVEN = 4096
};

/* Guarded by the lock. The number of an entry is its index and one. */
static struct {
    pthread_mutex_t lock;
    const exo_given *entries[MAX_GIVEN];
} given_list = {.lock = PTHREAD_MUTEX_INITIALIZER};

exo_status
exo_given_add(const exo_given *given, uint64_t *number, exo_err *err)
{
    *number = 0;
    pthread_mutex_lock(&given_list.lock);
    for (size_t i = 0; i < MAX_GIVEN && *number == 0; i++)
        if (!given_list.entries[i]) {
            given_list.entries[i] = given;
            *number = i + 1;
        }
    pthread_mutex_unlock(&given_list.lock);
    return *number ? EXO_OK : exo_fail(err, EXO_FULL, "more than %d groups of actors", MAX_GIVEN);
}

void
exo_given_withdraw(uint64_t number)
{
    if (number == 0 || number > MAX_GIVEN)
        return;
    pthread_mutex_lock(&given_list.lock);
    given_list.entries[number - 1] = NULL;
    pthread_mutex_unlock(&given_list.lock);
}

exo_status
exo_given_read(const exo_given **out, exo_config *map, exo_err *err)
{
    uint64_t number = 0;
    *out = NULL;
    exo_status st = exo_config_u64(map, "given", 0, 0, MAX_GIVEN, &number, err);
    if (st != EXO_OK || number == 0)
        return st;
    pthread_mutex_lock(&given_list.lock);
    *out = given_list.entries[number - 1];
    pthread_mutex_unlock(&given_list.lock);
    return *out ? EXO_OK
                : exo_config_fail(map, err,
                                  "given: only a C program that runs makers and trainers gives "
                                  "functions (exogym/experience.h), and number %llu is not of this "
                                  "process",
                                  (unsigned long long)number);
}

void
exo_experience_models_drop(exo_experience_models *m)
{
    exo_model_drop(&m->actor);
    exo_model_drop(&m->critic);
    exo_model_drop(&m->reward_model);
    exo_model_drop(&m->initial_model);
}

exo_status
exo_given_model(exo_model **out, exo_config *map, exo_err *err)
{
    static const char *const roles[] = {"actor", "critic", "reward", "initial", NULL};
    const exo_given *given = NULL;
    exo_experience_models models = {0};
    size_t role = 0;
    exo_status st = exo_given_read(&given, map, err);
    if (st == EXO_OK)
        st = exo_config_choice(map, "role", 0, roles, &role, err);
    if (st == EXO_OK && (!given || !given->model))
        st = exo_config_fail(map, err, "given: it has no function for models");
    if (st == EXO_OK)
        st = given->model(given->context, &models, err);
    exo_model **all[] = {&models.actor, &models.critic, &models.reward_model,
                         &models.initial_model};
    exo_model **chosen = all[role];
    if (st == EXO_OK && !*chosen)
        st = exo_config_fail(map, err, "the function for models gives no %s", roles[role]);
    if (st == EXO_OK) {
        *out = *chosen;
        *chosen = NULL;
    }
    exo_experience_models_drop(&models);
    return st;
}

/* --- The reward "function" -------------------------------------------------------------------- */

struct function {
    const exo_given *given;
};

static exo_status
function_init(void *self, exo_config *config, exo_err *err)
{
    struct function *f = self;
    exo_status st = exo_given_read(&f->given, config, err);
    if (st == EXO_OK && (!f->given || !f->given->reward))
        st = exo_config_fail(config, err,
                             "function: the key 'given' is missing, which C programs write "
                             "(exogym/experience.h)");
    return st;
}

static exo_status
function_score(void *self, const exo_answer *answer, double *out, exo_err *err)
{
    const struct function *f = self;
    return f->given->reward(f->given->context, answer, out, err);
}

const exo_reward_class exo_function_reward = {
    .name = "function",
    .help = "a function of the C program that runs the makers",
    .state_size = sizeof(struct function),
    .init = function_init,
    .score = function_score,
};
