/* The order in which a class uses its ports, as it declares it (exogym/graph.h), read into a list
 * of steps.
 *
 * Owner: whoever read it; read-only afterwards. Read next: prove.h, which runs such lists without a
 * graph. */
#ifndef EXO_GRAPH_ORDER_H
#define EXO_GRAPH_ORDER_H

#include <exogym/graph.h>

enum {
    EXO_ORDER_STEPS = 128,
    EXO_ORDER_DEPTH = 8 /* of loops in loops */
};

#define EXO_ORDER_ENDLESS UINT64_MAX

typedef enum exo_order_kind {
    EXO_ORDER_SEND,
    EXO_ORDER_RECEIVE,
    EXO_ORDER_REDUCE,
    EXO_ORDER_POLL,
    EXO_ORDER_LOOP, /* what follows up to its END, `count` times */
    EXO_ORDER_END,
} exo_order_kind;

typedef struct exo_order_step {
    exo_order_kind kind;
    uint32_t port;  /* index into the class's ports */
    uint32_t other; /* LOOP, END: where the other one is */
    uint32_t level; /* LOOP, END: how many loops are around it */
    uint64_t count; /* LOOP */
    bool or_next;   /* the next step is another one that may be done instead */
} exo_order_step;

typedef struct exo_order {
    exo_order_step steps[EXO_ORDER_STEPS];
    uint32_t length;
} exo_order;

/* Reads `text`, about the ports of `graph_class`. INVAL says where it is wrong and what would be
 * right. */
exo_status exo_order_read(exo_order *out, const char *text, const exo_graph_class *graph_class,
                          exo_err *err);

#endif
