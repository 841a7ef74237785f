/* Parameters: items with a weight update (updates.h), from a trainer to a maker, and items with its
 * reply, which go back among the maker's experience.
 *
 * An item has all chunks of an update, so an edge that drops or replaces items does so with whole
 * updates, and the sender's base moves with an acknowledgement only. It also says how far makers may
 * go: draws below the quota are theirs. So the trainer paces them, and no experience is older than
 * it allows.
 *
 * Pure functions over the caller's memory, any thread. Read next: publisher.h, uptake.h. */
#ifndef EXO_PARAMETERS_H
#define EXO_PARAMETERS_H

#include <exogym/graph.h>
#include <exogym/updates.h>

/* --- Updates ---------------------------------------------------------------------------------- */

/* How draws come to makers. */
typedef enum exo_dealing {
    EXO_DEALT_BEFOREHAND, /* maker i of M makes the draws i, i + M, ... */
    EXO_DEALING,          /* it makes those that it is dealt */
    EXO_ALL_DEALT         /* the same, and no further ones come */
} exo_dealing;

typedef struct exo_parameters {
    uint64_t version;
    uint64_t quota;             /* makers may make the draws below it */
    uint64_t learned;           /* all trainers have learned from the draws below it */
    uint64_t base;              /* of the update; 0: a whole one */
    uint32_t trainer, trainers; /* the sender's index, for the reply, and their number */
    uint32_t life;              /* of the trainers (exo_graph_life) */
    /* Grows when items on their way to the trainers may have been lost: makers then begin again with
     * the first draw that is not learned from. */
    uint64_t round;
    bool canary; /* the trainer proves the makers' generators */
    /* The trainers have weights and versions of their own, so quota and learned are about the draws of
     * this one: the draws d with d mod trainers = trainer. */
    bool apart;
    /* (2 num_finished) of the draws from `learned` on those that the trainer has, ascending: nobody
     * needs to make them again. A pair is a draw d and a count n: the draws d, d + trainers, ..., n of
     * them */
    const uint64_t *finished;
    size_t num_finished;
    exo_dealing dealing;
    /* (num_deals) pairs of a maker's index and a draw that it is to make, with this version or a later
     * one; of all makers */
    const int64_t *deals;
    size_t num_deals;
    /* By these a maker sees whether the next version comes without its next draw, and how soon: draws of
     * an update, and those that makers may have begun and no update has learned from, of all trainers;
     * and the time of the last update. 0: unknown */
    uint64_t update, under_way;
    exo_time learns;
    const uint8_t
        *bytes; /* (size) the chunks: for each its bytes as a number of 8 bytes, and these */
    size_t size;
} exo_parameters;

/* Makes all chunks of an update (NULL: there is none), and an item with them; bytes and size of `parameters` are ignored.
 * The caller drops it. NOMEM; those of exo_update_next. */
exo_status exo_parameters_new(exo_item **out, const exo_parameters *parameters, exo_update *update,
                              exo_err *err);
/* Views an item without a copy. INVAL: it is no such item. */
exo_status exo_parameters_view(exo_parameters *out, const exo_item *item, exo_err *err);
/* The next chunk from *at, which begins at 0. False: no more, or (*damaged) a length is wrong. */
bool exo_parameters_chunk(const exo_parameters *parameters, size_t *at, const uint8_t **bytes,
                          size_t *size, bool *damaged);

/* --- Replies ---------------------------------------------------------------------------------- */

enum {
    EXO_ALL_TRAINERS = 0x7fffffff /* as `trainer` of a reply */
};

/* A maker's reply to an update. In a further life a maker begins with one to all trainers,
 * NEED_WHOLE without a version. So does a replay_buffer, without a name, as the items and replies
 * that were in it are lost. */
typedef struct exo_parameters_reply {
    char maker[96];           /* its name; "": a replay_buffer begins another life */
    uint32_t life;            /* of the maker */
    uint32_t trainer;         /* index of the trainer that it answers, or EXO_ALL_TRAINERS */
    exo_weight_format format; /* of its generator */
    /* For a trainer that deals: draws that it can hold, and that it makes at once. */
    uint64_t room, portion;
    uint64_t total; /* draws of the run, of all makers; UINT64_MAX: no end */
    /* It answers nothing, but says that the maker has sent all its draws. Its port stays open, as the
     * maker makes some again if a trainer or a replay_buffer begins another life. */
    bool sent;
    /* With NEED_WHOLE: the maker did not take the update, as it has this version, or a later one, of
     * another trainer. It takes a later one. */
    bool passed;
    exo_update_reply reply;
} exo_parameters_reply;

/* Makes an item, which the caller drops. NOMEM. */
exo_status exo_parameters_reply_new(exo_item **out, const exo_parameters_reply *reply,
                                    exo_err *err);
/* Whether an item is a reply, and not experience. */
bool exo_parameters_is_reply(const exo_item *item);
/* Whether a reply says that a maker has sent all its draws, for those who pass it on. */
bool exo_parameters_reply_is_last(const exo_item *item);
/* The index of the trainer that a reply answers, or EXO_ALL_TRAINERS, for those who pass it on; 0 if
 * it is damaged. */
uint32_t exo_parameters_reply_trainer(const exo_item *item);
/* Reads a reply. DAMAGED: it is none. */
exo_status exo_parameters_reply_read(exo_parameters_reply *out, const exo_item *item, exo_err *err);

#endif
