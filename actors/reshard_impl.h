/* What the files of a conversion of checkpoints share: see reshard.h. */
#ifndef EXO_RESHARD_IMPL_H
#define EXO_RESHARD_IMPL_H

#include <jansson.h>

#include <exogym/state.h>
#include <exogym/strategy.h>

#include "actors/reshard.h"

/* One of the two forms, with the models of its nodes. */
struct form {
    exo_reshard_form is;
    exo_model *model; /* the whole one; not owned */
    /* (num_parts) owned; node r has the part r % num_parts. NULL: every node has the whole model. */
    exo_model **parts;
    uint32_t num_parts;
    exo_config_doc *options; /* owns is.options */
};

typedef enum exo_entry_kind {
    COUNT, /* neither of the others: equal on all nodes of a copy */
    EACH,  /* (numel) */
    SHARD, /* (the node's shard of numel) */
} exo_entry_kind;

/* An entry of the strategy's state. */
struct entry {
    exo_entry_kind kind;
    size_t bytes;
    /* (bytes) owned. Of EACH and SHARD: floats in the order of the whole model's parameters */
    void *data;
};

/* The copies of the model, if each is converted by itself (reshard_copies.c). */
struct copies {
    struct conversion *c;
    uint32_t count, old_sharing, new_sharing;
    struct entry *entries; /* (num_entries) owned */
    size_t num_entries;
    exo_whole whole; /* the present copy */
};

struct conversion {
    const char *from, *run_folder;
    json_t *settings; /* run.json of `from` */
    struct form old, new;
    bool by_copies; /* through `copies`; false: through `whole` */
    exo_whole whole;
    /* (numel of the whole model) owned: 1 where an earlier node has given the present whole, or copy, its
     * values. */
    float *given;
    bool some_differ; /* nodes may differ in what they do not count (exo_reshard_open_join) */
    struct copies copies;
    uint64_t step, elapsed, bytes; /* bytes: the sum over the old nodes */
};

/* A node of either form, without its run. */
struct node {
    exo_strategy *strategy;
    exo_params *params;
    exo_node view;
    exo_state *state;
    uint64_t elapsed, bytes;
};

/* reshard_nodes.c: the nodes of a conversion, and the parts of the model that they have. */

/* The nodes that share a copy of the model. */
uint32_t exo_reshard_sharing(const struct form *form);

/* Makes a node with the initial values of its model. The caller closes it, also after an error. */
exo_status exo_reshard_open(struct node *n, const struct form *form, uint32_t rank, exo_err *err);
/* Makes a node of the old form with the state of its file, likewise. */
exo_status exo_reshard_load(const struct conversion *c, struct node *n, uint32_t rank,
                            exo_err *err);
void exo_reshard_close(struct node *n);
/* Adds up the figures of an old node, the first one before the others. INVAL: it is at another step. */
exo_status exo_reshard_count(struct conversion *c, const struct node *n, uint32_t rank,
                             exo_err *err);
/* Writes the file of a new node, whose parameters and states are set, into the folder. */
exo_status exo_reshard_save(const struct conversion *c, struct node *n, uint32_t rank,
                            const char *folder, char sha256[65], exo_err *err);
/* UNSUPPORTED: an old node is not what the others say of it, in the tensor of this name. */
exo_status exo_reshard_fail_other(const struct conversion *c, uint32_t rank, const char *tensor,
                                  exo_err *err);
/* Likewise; names the first entry of the state that differs. `was` and `is`: different bytes of all entries
 * (exo_state_store). */
exo_status exo_reshard_fail_state(const struct conversion *c, uint32_t rank, const exo_state *state,
                                  const char *was, const char *is, exo_err *err);

/* The values of an old node on their way into the model's. Of elements that several nodes have, the first
 * node gives the values, as in a run (exo_replica_agree), and the others must have the same ones. They may
 * have other ones of a tied embedding; and, under strategies whose messages are of parts or with sums in
 * any order, of all parameters that the parts of layers have whole. */
struct join {
    const struct conversion *c;
    uint32_t rank;
    const exo_model *part;
    float *given; /* (numel of the part) owned: see enum given */
};

/* Finds what earlier nodes have given of the part of the node `rank`. The caller closes it. NOMEM. */
exo_status exo_reshard_open_join(struct join *out, const struct conversion *c, uint32_t rank,
                                 exo_err *err);
/* Puts the elements [first, first + count) of the part's values into those of the model; the others of the
 * part are those of the model then. `what`: the name of the values, for the error. UNSUPPORTED: the node
 * contradicts one before it. */
exo_status exo_reshard_join_values(const struct join *join, const char *what, size_t first,
                                   size_t count, float *model, float *part, exo_err *err);
/* Likewise the whole of a node's part. INVAL, UNSUPPORTED, NOMEM. */
exo_status exo_reshard_join_whole(const struct join *join, exo_whole *from, exo_whole *to,
                                  exo_err *err);
/* Marks the elements as given, once all values of the node are put. */
void exo_reshard_close_join(struct join *join, size_t first, size_t count);
/* Cuts the whole of a new node's part out of the whole of the model, into the empty *to. NOMEM. */
exo_status exo_reshard_cut(const struct conversion *c, const exo_model *part, const exo_whole *from,
                           exo_whole *to, exo_err *err);

/* reshard_copies.c: conversions that leave each copy of the model as it is. */

/* Checks that the two forms have the same copies, trained by this strategy. UNSUPPORTED: they do not;
 * `reason` says why the way through one whole is closed. */
exo_status exo_reshard_check_copies(const struct conversion *c, const exo_strategy *strategy,
                                    const exo_err *reason, exo_err *err);
/* Reads what is needed of all nodes at once, and checks them. Errors: those of reshard.h. */
exo_status exo_reshard_read_copies(struct conversion *c, exo_err *err);
/* Writes the files of all new nodes into the folder, and their SHA-256. */
exo_status exo_reshard_write_copies(struct conversion *c, const char *folder, char (*sums)[65],
                                    exo_err *err);
void exo_reshard_release_copies(struct conversion *c);

#endif
