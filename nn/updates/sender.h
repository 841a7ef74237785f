/* The state of a sender, for sender.c, receivers.c and update.c. Owner: the thread that calls the
 * sender. Read next: sender.c. */
#ifndef EXO_UPDATES_SENDER_H
#define EXO_UPDATES_SENDER_H

#include "nn/updates/snapshot.h"

/* What the sender knows of a receiver. */
typedef struct exo_known_receiver {
    char *name;
    exo_snapshot *base; /* the version that it acknowledged; NULL: none */
    exo_snapshot *sent; /* the version of the update that it has not answered; NULL: none */
    uint64_t place;     /* of its device's memory, by its last reply; 0: it takes bytes */
} exo_known_receiver;

struct exo_update_sender {
    exo_model *model;
    exo_update_form form;
    uint64_t sender, life;
    bool partial;
    bool *chosen; /* (exo_model_num_infos) */
    exo_rounding rounding;
    uint8_t fingerprint[EXO_SHA];
    exo_snapshot *newest; /* NULL: none */
    exo_known_receiver *receivers;
    size_t num_receivers;
    size_t num_canaries;
    exo_weight_format formats[EXO_CANARY_MAX];
    exo_generator *generators[EXO_CANARY_MAX]; /* for canaries; NULL before the first version */
};

/* The receiver of a name; NULL: it is not known. */
exo_known_receiver *exo_sender_find(const exo_update_sender *sender, const char *name);
/* The same, which makes it known. NULL: no memory. */
exo_known_receiver *exo_sender_meet(exo_update_sender *sender, const char *name);
/* Drops memory of the device that no update needs any more. */
void exo_sender_trim(exo_update_sender *sender);
/* Drops all receivers. */
void exo_sender_forget_all(exo_update_sender *sender);

#endif
