/* A plugin with the strategy `uneven`, whose nodes do not call the same collectives, for tests of
 * stalls. From step 3 on, {how: HOW} means
 *
 *     some      only node 0 calls
 *     orders    node 0 broadcasts first, the others reduce first
 *     ring      each of three nodes first calls with the next node, then with the previous one
 *     late      all call; node 1 is a second late, which is no stall
 *     stops     all call; node 1 stops its process (SIGSTOP)
 *
 * A node's thread owns its state. Read next: docs/collectives.md. */
#include <signal.h>
#include <string.h>
#include <time.h>

#include <exogym/plugin.h>
#include <exogym/strategy.h>

struct uneven {
    char how[16];
};

static exo_status
init(void *self, exo_config *config, exo_err *err)
{
    struct uneven *s = self;
    const char *how = NULL;
    exo_status st = exo_config_string(config, "how", "late", &how, err);
    for (size_t i = 0; st == EXO_OK && i + 1 < sizeof s->how && how[i]; i++)
        s->how[i] = how[i];
    return st;
}

static exo_status
reduce(exo_group *group, exo_err *err)
{
    float value = 1;
    return exo_all_reduce(group, exo_host_array(EXO_F32, &value, 1), EXO_SUM, err);
}

/* Reduces with one other node. */
static exo_status
reduce_with(exo_node *node, uint32_t other, exo_err *err)
{
    const uint32_t low = node->rank < other ? node->rank : other,
                   high = node->rank < other ? other : node->rank;
    exo_group *two = NULL;
    exo_status st = exo_group_among(&two, node->group, (const uint32_t[]){low, high}, 2, err);
    if (st == EXO_OK)
        st = reduce(two, err);
    exo_group_close(&two);
    return st;
}

static exo_status
step(void *self, exo_node *node, exo_err *err)
{
    const struct uneven *s = self;
    float value = 1;
    exo_status st = exo_node_inner_step(node, err);
    if (st != EXO_OK || node->step < 3)
        return st == EXO_OK ? reduce(node->group, err) : st;
    if (strcmp(s->how, "some") == 0)
        return node->rank == 0 ? reduce(node->group, err) : EXO_OK;
    if (strcmp(s->how, "orders") == 0) {
        if (node->rank > 0)
            st = reduce(node->group, err);
        if (st == EXO_OK)
            st = exo_broadcast(node->group, exo_host_array(EXO_F32, &value, 1), 0, err);
        return st == EXO_OK && node->rank == 0 ? reduce(node->group, err) : st;
    }
    if (strcmp(s->how, "ring") == 0) {
        st = reduce_with(node, (node->rank + 1) % node->num_nodes, err);
        return st == EXO_OK
                   ? reduce_with(node, (node->rank + node->num_nodes - 1) % node->num_nodes, err)
                   : st;
    }
    if (node->rank == 1 && node->step == 4) {
        if (strcmp(s->how, "stops") == 0)
            raise(SIGSTOP);
        nanosleep(&(struct timespec){.tv_nsec = 500000000}, NULL);
        nanosleep(&(struct timespec){.tv_nsec = 500000000}, NULL);
    }
    return reduce(node->group, err);
}

static const exo_strategy_class uneven = {.name = "uneven",
                                          .help = "for tests of stalls",
                                          .state_size = sizeof(struct uneven),
                                          .init = init,
                                          .step = step};

EXO_PLUGIN
{
    return exo_strategy_register(&uneven, err);
}
