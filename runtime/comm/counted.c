/* The traffic of a member in a collective: see counted.h. No state. */
#include "comm/counted.h"

#include "comm/timing.h"
#include "comm/ways.h"

/* Adds `messages` messages of `count` elements each. */
static void
add_messages(exo_traffic *t, const exo_collective_args *args, size_t count, uint64_t messages)
{
    uint64_t encoded = exo_comm_shard_bytes(args, count);
    t->messages += messages;
    t->payload_bytes += messages * count * exo_dtype_size(args->dtype);
    t->encoded_bytes += messages * encoded;
    t->wire_bytes += messages * (encoded + EXO_COMM_HEADER + EXO_COMM_ENVELOPE);
}

struct counting {
    exo_traffic *traffic;
    const exo_collective_args *args;
};

static void
count_move(void *context, const exo_comm_move *m)
{
    const struct counting *c = context;
    if (m->from == c->args->place)
        add_messages(c->traffic, c->args, m->length, 1);
}

void
exo_comm_count(exo_traffic *traffic, const exo_collective_args *args)
{
    uint32_t size = args->size;
    size_t first, own;
    traffic->items++;
    if (size == 1)
        return;
    if (args->way != EXO_WAY_DIRECT) {
        exo_comm_moves(args, count_move, &(struct counting){traffic, args});
        return;
    }
    exo_shard(args->count, size, args->place, &first, &own);
    if (args->operation == EXO_SWAP || args->operation == EXO_SHIFT) {
        add_messages(traffic, args, args->count, args->operation == EXO_SWAP || args->root > 0);
        return;
    }
    if (args->operation == EXO_BROADCAST) {
        bool root = args->place == args->root;
        exo_collective_args plain = *args;
        plain.codec = NULL;
        add_messages(traffic, &plain, root ? args->count : 0, root ? size - 1 : 1);
        return;
    }
    if (args->operation == EXO_ALL_REDUCE || args->operation == EXO_REDUCE_SCATTER) {
        /* Shards have one of two lengths; the longer shards come first. */
        size_t longer = args->count % size, length = args->count / size;
        bool own_is_longer = args->place < longer;
        add_messages(traffic, args, length + 1, longer - own_is_longer);
        add_messages(traffic, args, length, size - longer - !own_is_longer);
    }
    if (args->operation != EXO_REDUCE_SCATTER)
        add_messages(traffic, args, own, size - 1);
}
