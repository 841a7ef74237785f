/* Items in memory, and the messages between the ends of a channel.
 *
 * A message is a header, an entry for each array, and the encoded arrays one after the other, in
 * little endian like all supported machines. The reader checks every length against the size of the
 * message before it uses it. Read next: item.c, docs/channels.md. */
#ifndef EXO_GRAPH_ITEM_H
#define EXO_GRAPH_ITEM_H

#include <exogym/actor.h>
#include <exogym/codec.h>
#include <exogym/graph.h>

/* The messages of a channel; docs/channels.md has their rules. */
typedef enum exo_channel_kind {
    EXO_CHANNEL_DATA = 1, /* an item */
    EXO_CHANNEL_CREDIT,   /* to the sender: `number` more items may be sent */
    EXO_CHANNEL_END,      /* to the receiver: no item follows item `number` - 1 */
    EXO_CHANNEL_GONE,     /* to the sender: the receiver takes no more items */
} exo_channel_kind;

/* The largest `passing` that a message may have; no emulated link takes longer. */
#define EXO_PASSING_MAX (INT64_MAX / 4)

typedef struct exo_channel_header {
    uint32_t kind;
    uint32_t edge;     /* number of the edge in messages */
    uint32_t from, to; /* indices of the sender and the receiver among the actors of their names */
    /* lives of the actor that sends the message, and of the one that it is for (lives.h) */
    uint16_t life, peer_life;
    uint32_t num_parts;
    uint64_t number, version, key;
    /* time of exo_port_send, on the run's clock */
    exo_time sent;
    /* rest of the message's way over an emulated link, when it is sent; on the real clock the
     * receiver waits that long */
    exo_time passing;
    uint64_t bytes; /* bytes after the header */
} exo_channel_header;

/* Bytes of an item's arrays. */
uint64_t exo_item_bytes(const exo_item *item);
/* Writes a message without an item. The caller owns *out. Errors: NOMEM. */
exo_status exo_channel_write(exo_payload *out, const exo_channel_header *header, const void *data,
                             size_t size, exo_err *err);
/* Writes an item as a DATA message; *encoded is the size of its arrays in the message. The caller
 * owns *out. Errors: NOMEM, those of the codec. */
exo_status exo_item_write(exo_payload *out, const exo_channel_header *header, const exo_item *item,
                          exo_codec *codec, uint64_t seed, uint64_t *encoded, exo_err *err);
/* Reads the header of a message. INVAL: the message is too short, or its lengths do not match its
 * size. */
exo_status exo_channel_read(const exo_payload *message, exo_channel_header *out, exo_err *err);
/* Reads the item of a DATA message, whose header was read before. INVAL: the bytes are no item, or
 * not of this codec. */
exo_status exo_item_read(exo_item **out, const exo_payload *message,
                         const exo_channel_header *header, exo_codec *codec, uint64_t seed,
                         exo_err *err);

#endif
