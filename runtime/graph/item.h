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

#include "nn/device/joint.h"

/* The messages of a channel; docs/channels.md has their rules. */
typedef enum exo_channel_kind {
    EXO_CHANNEL_DATA = 1, /* an item */
    EXO_CHANNEL_CREDIT,   /* to the sender: `number` more items may be sent */
    EXO_CHANNEL_END,      /* to the receiver: no item follows item `number` - 1 */
    EXO_CHANNEL_GONE,     /* to the sender: the receiver takes no more items */
    /* to the sender, of the item that had names to try: whether the receiver can open them, and, times 2,
     * the item's exo_item_units */
    EXO_CHANNEL_REACH,
} exo_channel_kind;

/* The largest `passing` that a message may have, and that of one that an outage without an end holds;
 * no emulated link takes longer. */
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

/* --- Arrays on devices ------------------------------------------------------------------------ */

/* How arrays that are on a device go to the receiver. */
typedef enum exo_item_way {
    EXO_WAY_BYTES,  /* over the host, through the codec; arrays in host memory always do */
    EXO_WAY_ITSELF, /* within the process: the message holds the item */
    EXO_WAY_NAME,   /* to another process of the host: the receiver opens the memory */
    EXO_WAY_TRY,    /* as bytes, with the name of one array for the receiver to try */
} exo_item_way;

/* Bytes of an item's arrays: all of them, or those in host memory. */
uint64_t exo_item_bytes(const exo_item *item);
uint64_t exo_item_host_bytes(const exo_item *item);
/* Whether an array is on a device that is not the host. */
bool exo_item_is_far(const exo_item *item);
/* On which GPUs its arrays are, as far as they have names: another number means others. The same for an item
 * that is sent and for the one that comes. */
uint64_t exo_item_units(const exo_item *item);
/* The arrays are complete when their devices have done what they were asked so far. On the sender's
 * thread, before the item is given to others. */
exo_status exo_item_mark(exo_item *item, exo_err *err);
/* Brings the arrays of a received item to where the receiver wants them: a device (NULL or the CPU: host
 * memory). *reach: whether the array that the sender let it try can be opened, for an
 * EXO_CHANNEL_REACH; untouched if there was none. Errors: those of exo_joint_open and exo_joint_read.
 * On the receiver's thread. */
exo_status exo_item_land(exo_item *item, exo_device *device, exo_joint_reader *reader, int *reach,
                         exo_err *err);

/* Writes a message without an item. The caller owns *out. Errors: NOMEM. */
exo_status exo_channel_write(exo_payload *out, const exo_channel_header *header, const void *data,
                             size_t size, exo_err *err);
/* How an item is written. */
typedef struct exo_item_form {
    exo_codec *codec;
    uint64_t seed;
    exo_item_way way;
    exo_joint_reader *reader; /* for bytes of arrays on devices */
} exo_item_form;

/* The sizes of a message, as if all arrays went as bytes: whichever way they go, an edge counts the
 * same, and a link takes the same time. */
typedef struct exo_item_sizes {
    uint64_t encoded;   /* of the arrays */
    uint64_t message;   /* of the whole message */
    uint64_t on_device; /* bytes of the arrays that stay on their device */
} exo_item_sizes;

/* Writes an item as a DATA message. The caller owns *out. EXO_WAY_NAME and BYTES wait for devices.
 * Errors: NOMEM, those of the codec and of devices. */
exo_status exo_item_write(exo_payload *out, const exo_channel_header *header, const exo_item *item,
                          const exo_item_form *form, exo_item_sizes *sizes, exo_err *err);
/* Reads the header of a message. INVAL: the message is too short, or its lengths do not match its
 * size. */
exo_status exo_channel_read(const exo_payload *message, exo_channel_header *out, exo_err *err);
/* Reads the item of a DATA message, whose header was read before. INVAL: the bytes are no item, or
 * not of this codec. Arrays on devices need exo_item_land afterwards; PEER_LOST or NOT_FOUND: their
 * memory is gone with the life of their sender. */
exo_status exo_item_read(exo_item **out, const exo_payload *message,
                         const exo_channel_header *header, exo_codec *codec, uint64_t seed,
                         exo_err *err);

#endif
