/* The makers that share each generation (`parallel: {tensor: T}`): T actors that follow each other by
 * their index, each with a part of the weights. They take the same versions at the same places and
 * begin the same draws, which the first of them, the leader, chooses.
 *
 *     every batch:   exo_maker_group_take    all have the same newest version, and take it
 *                    exo_maker_group_share   the leader's draws, or its command
 *                    generation, whose steps have the collectives of forward.h
 *
 * The collectives are counted on the edge that carries `activations`. Owner: the maker's thread. Read
 * next: maker.c, maker_weights.h. */
#ifndef EXO_MAKER_GROUP_H
#define EXO_MAKER_GROUP_H

#include "experience/maker_weights.h"

typedef struct exo_maker_group exo_maker_group;

/* Finds the group of an actor whose source has the tensor ranks `tensor`, at least 2. The caller
 * closes it, after the generator. The check of the graph has seen that the edge is there and that `tensor`
 * divides the makers (options.c). NOMEM; those of exo_group_among. */
exo_status exo_maker_group_open(exo_maker_group **out, exo_graph_actor *actor, uint32_t tensor,
                                exo_err *err);
void exo_maker_group_close(exo_maker_group **group);
/* The collectives of the group. */
exo_group *exo_maker_group_of(exo_maker_group *group);
bool exo_maker_group_leads(const exo_maker_group *group);

/* Takes the newest version that has come, on all members; it is then ready, unless all refuse it.
 * wait: until one comes. Errors: CLOSED (the trainers of a member have ended, and no version is new to
 * all), those of exo_maker_weights_look and exo_maker_weights_take. */
exo_status exo_maker_group_take(exo_maker_group *group, exo_maker_weights *weights,
                                exo_graph_actor *actor, bool wait, exo_err *err);

/* What the members do next. */
typedef enum exo_maker_command {
    EXO_MAKER_DRAWS, /* begin the draws */
    EXO_MAKER_AWAIT, /* wait for the next version */
    EXO_MAKER_ENDS,  /* all draws were made */
} exo_maker_command;

/* Copies the leader's command and draws (room), of which there are *count, to all members. */
exo_status exo_maker_group_share(exo_maker_group *group, exo_maker_command *command,
                                 uint64_t *draws, size_t *count, size_t room, exo_err *err);

#endif
