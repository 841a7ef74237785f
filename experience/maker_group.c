/* Makers that share each generation: see maker_group.h. */
#include "experience/maker_group.h"

#include <exogym/memory.h>

#define ENDED INT64_MAX /* as a version: the trainers have ended */

struct exo_maker_group {
    exo_group *group;
    int64_t *versions; /* (members) */
    int64_t *words;    /* (words_room) a command and draws */
    size_t words_room;
};

exo_status
exo_maker_group_open(exo_maker_group **out, exo_graph_actor *actor, uint32_t tensor, exo_err *err)
{
    exo_group *all = exo_graph_group(actor, "activations");
    uint32_t first = exo_graph_index(actor) / tensor * tensor;
    exo_status st = EXO_OK;
    exo_maker_group *g = exo_calloc(1, sizeof *g);
    uint32_t *ranks = exo_calloc(tensor, sizeof *ranks);
    if (g)
        g->versions = exo_calloc(tensor, sizeof *g->versions);
    if (!g || !ranks || !g->versions)
        st = exo_fail(err, EXO_NOMEM, "no memory for a group of %u makers", tensor);
    for (uint32_t i = 0; st == EXO_OK && i < tensor; i++)
        ranks[i] = first + i;
    if (st == EXO_OK)
        st = exo_group_among(&g->group, all, ranks, tensor, err);
    exo_free(ranks);
    if (st == EXO_OK)
        *out = g;
    else
        exo_maker_group_close(&g);
    return st;
}

void
exo_maker_group_close(exo_maker_group **group)
{
    exo_maker_group *g = *group;
    *group = NULL;
    if (!g)
        return;
    exo_group_close(&g->group);
    exo_free(g->versions);
    exo_free(g->words);
    exo_free(g);
}

exo_group *
exo_maker_group_of(exo_maker_group *g)
{
    return g->group;
}

bool
exo_maker_group_leads(const exo_maker_group *g)
{
    return exo_group_rank(g->group) == 0;
}

/* --- Versions --------------------------------------------------------------------------------- */

static exo_status
look(exo_maker_weights *weights, exo_graph_actor *actor, bool wait, int64_t *newest, exo_err *err)
{
    exo_status st = exo_maker_weights_look(weights, actor, wait, newest, err);
    if (st == EXO_CLOSED)
        *newest = ENDED;
    return st == EXO_CLOSED ? EXO_OK : st;
}

/* The largest version of all members; *same: all have it. */
static exo_status
compare(exo_maker_group *g, int64_t mine, int64_t *largest, bool *same, exo_err *err)
{
    uint32_t size = exo_group_size(g->group);
    g->versions[exo_group_rank(g->group)] = mine;
    exo_status st = exo_all_gather(g->group, exo_host_array(EXO_I64, g->versions, size), err);
    *largest = mine;
    *same = true;
    for (uint32_t i = 0; st == EXO_OK && i < size; i++) {
        *same = *same && g->versions[i] == mine;
        *largest = g->versions[i] > *largest ? g->versions[i] : *largest;
    }
    return st;
}

exo_status
exo_maker_group_take(exo_maker_group *g, exo_maker_weights *weights, exo_graph_actor *actor,
                     bool wait, exo_err *err)
{
    int64_t mine = -1, largest = -1;
    bool same = false;
    exo_status st = look(weights, actor, wait, &mine, err);
    while (st == EXO_OK && !same) {
        st = compare(g, mine, &largest, &same, err);
        if (st == EXO_OK && largest == ENDED)
            return exo_fail(err, EXO_CLOSED, "the trainers have ended");
        if (st != EXO_OK || same || mine == largest)
            continue;
        st = exo_maker_weights_pass(weights, actor, err);
        if (st == EXO_OK)
            st = look(weights, actor, true, &mine, err);
    }
    return st == EXO_OK && mine > exo_maker_weights_newest(weights)
               ? exo_maker_weights_take(weights, actor, err)
               : st;
}

/* --- Draws ------------------------------------------------------------------------------------ */

exo_status
exo_maker_group_share(exo_maker_group *g, exo_maker_command *command, uint64_t *draws,
                      size_t *count, size_t room, exo_err *err)
{
    enum {
        COMMAND,
        COUNT,
        DRAWS
    };
    if (g->words_room < DRAWS + room) {
        int64_t *more = exo_realloc(g->words, DRAWS + room, sizeof *more);
        if (!more)
            return exo_fail(err, EXO_NOMEM, "no memory for %zu draws", room);
        g->words = more;
        g->words_room = DRAWS + room;
    }
    g->words[COMMAND] = (int64_t)*command;
    g->words[COUNT] = (int64_t)*count;
    for (size_t i = 0; i < room; i++)
        g->words[DRAWS + i] = i < *count ? (int64_t)draws[i] : 0;
    exo_status st =
        exo_broadcast(g->group, exo_host_array(EXO_I64, g->words, DRAWS + room), 0, err);
    if (st != EXO_OK)
        return st;
    if (g->words[COUNT] < 0 || (size_t)g->words[COUNT] > room || g->words[COMMAND] < 0 ||
        g->words[COMMAND] > EXO_MAKER_ENDS)
        return exo_fail(err, EXO_DAMAGED, "the command of the first maker of the group is damaged");
    *command = (exo_maker_command)g->words[COMMAND];
    *count = (size_t)g->words[COUNT];
    for (size_t i = 0; i < *count; i++)
        draws[i] = (uint64_t)g->words[DRAWS + i];
    return EXO_OK;
}
