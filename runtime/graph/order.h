/* The order in which a class uses its ports (`order`, exogym/graph.h), parsed into a list of steps.
 *
 * Owner: the caller that parsed it; read-only afterwards. Read next: prove.h, which executes such
 * lists to prove graphs. */
#ifndef EXO_GRAPH_ORDER_H
#define EXO_GRAPH_ORDER_H

#include <exogym/graph.h>

enum {
    EXO_ORDER_STEPS = 128,
    EXO_ORDER_DEPTH = 8 /* of nested loops */
};

#define EXO_ORDER_ENDLESS UINT64_MAX

typedef enum exo_order_kind {
    EXO_ORDER_SEND,
    EXO_ORDER_RECEIVE,
    EXO_ORDER_REDUCE,
    EXO_ORDER_POLL,
    EXO_ORDER_LOOP, /* repeats the steps up to its END `count` times */
    EXO_ORDER_END,
} exo_order_kind;

typedef struct exo_order_step {
    exo_order_kind kind;
    uint32_t port;  /* index into the class's ports */
    uint32_t other; /* LOOP, END: index of the matching step */
    uint32_t level; /* LOOP, END: number of enclosing loops */
    uint64_t count; /* LOOP */
    bool or_next;   /* the next step is an alternative to this one */
} exo_order_step;

typedef struct exo_order {
    exo_order_step steps[EXO_ORDER_STEPS];
    uint32_t length;
} exo_order;

/* Parses `text` for the ports of `graph_class`. INVAL: the text says where the error is, and what
 * was expected. */
exo_status exo_order_read(exo_order *out, const char *text, const exo_graph_class *graph_class,
                          exo_err *err);

#endif
