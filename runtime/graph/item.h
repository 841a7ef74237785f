/* Items in memory and as messages between the ends of a channel.
 *
 * A message is a header, one entry for each array, and the encoded arrays one after the other;
 * little endian, as all machines that this runs on. Nothing in it is believed before it is checked
 * against its size. */
#ifndef EXO_GRAPH_ITEM_H
#define EXO_GRAPH_ITEM_H

#include <exogym/actor.h>
#include <exogym/codec.h>
#include <exogym/graph.h>

/* What the ends of a channel say to each other; docs/channels.md. */
typedef enum exo_channel_kind {
    EXO_CHANNEL_DATA = 1, /* an item */
    EXO_CHANNEL_CREDIT,   /* to the sender: there is room for `number` more */
    EXO_CHANNEL_END,      /* nothing comes after item `number` - 1 */
    EXO_CHANNEL_GONE,     /* to the sender: the receiver takes nothing any more */
} exo_channel_kind;

/* No link takes longer. */
#define EXO_PASSING_MAX (INT64_MAX / 4)

typedef struct exo_channel_header {
    uint32_t kind;
    uint32_t edge;     /* its number */
    uint32_t from, to; /* indices of the actors at its ends */
    uint32_t reserved;
    uint32_t num_parts;
    uint64_t number, version, key;
    /* by the actor, on the run's clock */
    exo_time sent;
    /* how long the bytes took to leave, on an emulated link: the receiver's side takes it from
     * there */
    exo_time passing;
    uint64_t bytes; /* that follow the header */
} exo_channel_header;

/* Bytes of an item's arrays. */
uint64_t exo_item_bytes(const exo_item *item);
/* A message without an item; *out is the caller's to hand over. */
exo_status exo_channel_write(exo_payload *out, const exo_channel_header *header, const void *data,
                             size_t size, exo_err *err);
/* An item as a DATA message; *encoded is the bytes of its arrays in it. */
exo_status exo_item_write(exo_payload *out, const exo_channel_header *header, const exo_item *item,
                          exo_codec *codec, uint64_t seed, uint64_t *encoded, exo_err *err);
/* INVAL: too short, or it says that it has other lengths than it has. */
exo_status exo_channel_read(const exo_payload *message, exo_channel_header *out, exo_err *err);
/* The item of a DATA message whose header was read. INVAL: what is there is no item, or not of this
 * codec. */
exo_status exo_item_read(exo_item **out, const exo_payload *message,
                         const exo_channel_header *header, exo_codec *codec, uint64_t seed,
                         exo_err *err);

#endif
