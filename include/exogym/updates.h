/* Weight updates: a trainer's parameters, sent to the makers that sample with them.
 *
 * A sender keeps a copy of the parameters of each version that a receiver has acknowledged. An
 * update takes a receiver from that version to the newest one, in chunks of bytes. The receiver
 * decodes them to its second copy, checks the SHA-256 of every tensor, and exchanges the two copies
 * when the caller wants it. Each update ends with a reply, which goes back to the sender.
 *
 *     trainer                                      maker
 *     exo_update_sender_stage(s, params, 7)
 *     exo_update_begin(&u, s, names, count)
 *     while (exo_update_next(u, &bytes, &size)
 *            == EXO_OK)  send bytes  ----------->  exo_update_receive(r, bytes, size, &reply)
 *     exo_update_free(&u)
 *     exo_update_sender_reply(s, name, &reply) <-  send the reply, unless it is NONE
 *                                                  exo_update_swap(r), between two steps
 *
 * The base of the next update moves only with an ACCEPTED reply. After a lost or refused update the
 * next one has the old base; a receiver without a base gets a whole one. Whatever does not fit is
 * an error on the receiver's side that names the chunk and the tensor, and a reply with the same
 * text: nothing is left out silently, and the copy in use does not change.
 *
 * A version is proved in two ways. The hashes prove the parameters. A canary proves their use: some
 * tokens, generated from fixed prompts by the receiver's own generator with its format of weights,
 * must have the bits of the sender's generator (docs/updates.md).
 *
 * Threads: a sender, an update and a receiver belong to one thread at a time each. An update does
 * not outlive its sender. Other threads may use the copy and the generator in use while
 * exo_update_receive runs, but not during exo_update_swap. */
#ifndef EXOGYM_UPDATES_H
#define EXOGYM_UPDATES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <exogym/generate.h>
#include <exogym/model.h>

EXO_DECLS_BEGIN

/* The form of updates. It decides which values a receiver has: in a lossy form those of the codec,
 * and hashes are those of these values. */
typedef enum exo_update_form {
    EXO_UPDATE_WHOLE, /* fp32 */
    EXO_UPDATE_BF16,  /* all values rounded to bf16 */
    /* matrices by the codec int8, in blocks of 256; fp32 for parameters of one dimension */
    EXO_UPDATE_INT8,
    EXO_UPDATE_DELTA,      /* fp32: the changes since the base, lossless */
    EXO_UPDATE_BF16_DELTA, /* values rounded to bf16, and of these the changes, lossless */
} exo_update_form;

/* The form of a name: "whole", "bf16", "int8", "delta" or "bf16_delta". INVAL lists the names. */
EXO_API exo_status exo_update_form_named(const char *name, exo_update_form *out, exo_err *err);
/* The name of a form: a literal. */
EXO_API const char *exo_update_form_name(exo_update_form form);

/* --- Replies ---------------------------------------------------------------------------------- */

/* The answer to an update. */
typedef enum exo_update_answer {
    EXO_UPDATE_NONE,       /* nothing to send: the update goes on, or was answered before */
    EXO_UPDATE_ACCEPTED,   /* complete and verified */
    EXO_UPDATE_REFUSED,    /* not used, for the reason in `text` */
    EXO_UPDATE_NEED_WHOLE, /* not used, because the receiver does not have its base */
} exo_update_answer;

/* Bytes of a reply's reason, its NUL included, and of an encoded reply. */
enum {
    EXO_UPDATE_REASON = 320,
    EXO_UPDATE_REPLY_BYTES = 480
};

/* A receiver's reply. Plain data. */
typedef struct exo_update_reply {
    exo_update_answer answer;     /* NONE: do not send it */
    uint64_t sender, life;        /* of the update's sender */
    uint64_t version;             /* of the update; 0: no update whose header could be read */
    uint64_t have;                /* the version that the receiver has; 0: none */
    char state[65];               /* SHA-256 of the state that it has; "": none */
    uint64_t place;               /* of its device's memory (exo_ipc_place); 0: it takes bytes */
    exo_status code;              /* of the reason */
    char text[EXO_UPDATE_REASON]; /* the reason; "": none */
} exo_update_reply;

/* Writes a reply as EXO_UPDATE_REPLY_BYTES bytes. */
EXO_API void exo_update_reply_write(const exo_update_reply *reply,
                                    uint8_t out[EXO_UPDATE_REPLY_BYTES]);
/* Reads a reply. DAMAGED: these bytes are no reply. */
EXO_API exo_status exo_update_reply_read(const void *bytes, size_t size, exo_update_reply *out,
                                         exo_err *err);

/* --- Sender ----------------------------------------------------------------------------------- */

/* The side of a trainer. It holds a copy of the parameters for each version that is some receiver's
 * base or under way. */
typedef struct exo_update_sender exo_update_sender;

/* Options of a sender. Zeroed: all defaults. */
typedef struct exo_update_sender_opts {
    exo_update_form form; /* of all of its updates */
    uint64_t sender;      /* any number, different for each sender of one receiver */
    /* Larger after each restart of the sender, so that versions may begin at a lower number. */
    uint64_t life;
    /* Bytes of the values in a chunk, as fp32; 4 KiB to 64 MiB; 0: 4 MiB. Headers and 24 bytes for
     * each tensor of the chunk come on top. */
    size_t chunk_bytes;
    /* Partial updates: parameters that are not chosen must not change. `learned`: those that are
     * not frozen. `names`: those that match one of these shell patterns (glob(7)); copied. */
    bool learned;
    const char *const *names; /* (num_names) */
    size_t num_names;         /* 0: none */
    /* The formats of the receivers' generators: each version has a canary for each of them. The
     * model is then a decoder. Copied. */
    const exo_weight_format *canaries;
    size_t num_canaries; /* at most 3 */
} exo_update_sender_opts;

/* Makes a sender of a model's parameters. `opts` may be NULL. The caller frees it. Holds the model.
 * Errors: INVAL (options; a pattern that matches nothing; canaries, but the model is no decoder),
 * NOMEM. */
EXO_API exo_status exo_update_sender_new(exo_update_sender **out, exo_model *model,
                                         const exo_update_sender_opts *opts, exo_err *err);
/* Replaces the formats of the canaries, from the next version that is staged on; copied. Errors: INVAL
 * (the formats, as for exo_update_sender_new); they are then as before. */
EXO_API exo_status exo_update_sender_canaries(exo_update_sender *sender,
                                              const exo_weight_format *formats, size_t count,
                                              exo_err *err);
/* Frees *sender and sets it to NULL; accepts NULL in it. */
EXO_API void exo_update_sender_free(exo_update_sender **sender);

/* Copies `params`, of any device, as the newest version, rounded as the form says; `version` is
 * larger than the one before. If they are on a device that shares memory, and a known receiver is
 * in its place, the version gets a copy on the device, too, for updates that name it. Computes hashes
 * and canaries, so it blocks for the copy and the canaries. Errors: INVAL (the parameters are not the model's; the version is not larger; a
 * parameter has changed that was not chosen; each named; int8: a value that is not finite),
 * UNSUPPORTED (a copy by units), NOMEM, or the device's. After an error the newest version is the
 * one before. */
EXO_API exo_status exo_update_sender_stage(exo_update_sender *sender, exo_params *params,
                                           uint64_t version, exo_err *err);
/* The newest version; 0: none. */
EXO_API uint64_t exo_update_sender_version(const exo_update_sender *sender);
/* The SHA-256 of the newest version's state: of names, shapes, life, version and the hashes of all
 * tensors. "": none. Lives as long as the version is the newest. */
EXO_API const char *exo_update_sender_state(const exo_update_sender *sender);
/* The version that a receiver has acknowledged; 0: none, the next update is a whole one. */
EXO_API uint64_t exo_update_sender_base(const exo_update_sender *sender, const char *receiver);
/* Forgets a receiver that has ended, and releases the copies that it alone needs. */
EXO_API void exo_update_sender_forget(exo_update_sender *sender, const char *receiver);
/* The number of copies of the parameters that the sender holds now. */
EXO_API size_t exo_update_sender_copies(const exo_update_sender *sender);

/* Takes the reply of a receiver. ACCEPTED: the version becomes its base. NEED_WHOLE: it has no base
 * any more, and the caller begins another update. REFUSED: the base stays, if it is still the state
 * that the receiver says it has. Errors: FAILED (it was REFUSED: the text has the receiver and its
 * reason), INVAL (a reply to an update that is not under way to this receiver; nothing changes). */
EXO_API exo_status exo_update_sender_reply(exo_update_sender *sender, const char *receiver,
                                           const exo_update_reply *reply, exo_err *err);

/* --- Updates ---------------------------------------------------------------------------------- */

/* One update to the newest version, of which the chunks are made one by one. */
typedef struct exo_update exo_update;

/* Facts of an update. */
typedef struct exo_update_facts {
    uint64_t version, base; /* base 0: a whole update, for a receiver in any state */
    bool delta;             /* tensors are changes since the base */
    size_t tensors;         /* the tensors that it carries; the others are as in the base */
    size_t elements;        /* of these tensors */
    uint32_t chunks;
    uint64_t bytes; /* of the chunks that were made so far */
    /* Bytes of the values that receivers read from the device's memory; then chunks have none. */
    uint64_t handed;
} exo_update_facts;

/* Whether the next update to a receiver can name memory of the device (exo_update_facts.handed): the
 * newest version has it, and the receiver's last reply came from its place. */
EXO_API bool exo_update_sender_hands(const exo_update_sender *sender, const char *receiver);
/* Begins an update to the newest version for one or more receivers, which all get the same chunks:
 * if exo_update_sender_hands them all, a manifest that names the device's memory; else from their
 * base if all have the same one, else a whole update. Names that are new are new
 * receivers. An earlier update to one of them that is still unanswered is given up. The caller
 * frees it. Errors: INVAL (no version is staged; no receiver), NOMEM. */
EXO_API exo_status exo_update_begin(exo_update **out, exo_update_sender *sender,
                                    const char *const *receivers, size_t num_receivers,
                                    exo_err *err);
/* Makes the next chunk; *bytes (*size) belongs to the update and is valid until the next call. An
 * item of a graph holds it as one array of EXO_U8. Errors: CLOSED (that was the last one), NOMEM,
 * FAILED (compression). */
EXO_API exo_status exo_update_next(exo_update *update, const void **bytes, size_t *size,
                                   exo_err *err);
/* The facts of an update, at any time of its life. */
EXO_API exo_update_facts exo_update_facts_of(const exo_update *update);
/* Frees *update and sets it to NULL; accepts NULL in it. */
EXO_API void exo_update_free(exo_update **update);

/* What the header of a chunk says, for logs and routes. The chunk is not verified. */
typedef struct exo_update_chunk {
    uint64_t sender, life, version; /* of the update */
    uint32_t number, count;         /* chunk `number` of `count`, from 0 */
} exo_update_chunk;

/* Reads a chunk's header. False: these bytes are no chunk of this format version. */
EXO_API bool exo_update_chunk_read(const void *bytes, size_t size, exo_update_chunk *out);

/* --- Receiver --------------------------------------------------------------------------------- */

/* The side of a maker: two copies of the parameters, one in use and one for the next version. */
typedef struct exo_update_receiver exo_update_receiver;

/* Options of a receiver. Zeroed: all defaults. */
typedef struct exo_update_receiver_opts {
    /* A generator of the model, whose weights each swap replaces. The receiver makes another one of
     * its format, which packs the next weights and computes the canary, while this one generates; the
     * receiver's copies are on its device, and unless that is the host's, the receiver belongs to the
     * thread of the device. NULL: parameters only. The caller frees it after the receiver. */
    exo_generator *generator;
    /* Without a generator, the device of the copies; NULL: the CPU. The caller closes it after the
     * receiver. */
    exo_device *device;
    /* Accept updates without a canary for the generator's format. */
    bool without_canary;
    /* The largest difference of a log-probability of the canary if the sender's processor has
     * another arithmetic (exo_generator_arithmetic); 0: 1e-3. Equal arithmetic has equal bits. */
    double tolerance;
    /* The part of the model that the receiver keeps (exo_model_output_part); held. NULL: all. It decodes
     * and verifies every tensor whole, piece after piece, and keeps its rows. So an update that has
     * changes only (EXO_UPDATE_DELTA, EXO_UPDATE_BF16_DELTA) is refused as UNSUPPORTED: their base is
     * not whole here. If the generator is one of a group (exo_generator_opts.group), every member calls
     * exo_update_agree after each update. */
    exo_model *part;
} exo_update_receiver_opts;

/* Makes a receiver. `initial`: values to begin with, of the model and on any device, which are
 * copied; NULL: zeros, and always NULL with `part`. They are no version, so the first update must be
 * a whole one. `opts` may be NULL. The caller frees the receiver. Holds the model. With a generator
 * of a group it blocks for the other members' receivers. Errors: INVAL (`initial`, `part` or the
 * generator are not the model's), NOMEM, the device's, those of exo_generator_new. */
EXO_API exo_status exo_update_receiver_new(exo_update_receiver **out, exo_model *model,
                                           exo_params *initial,
                                           const exo_update_receiver_opts *opts, exo_err *err);
/* Frees *receiver and sets it to NULL; accepts NULL in it. */
EXO_API void exo_update_receiver_free(exo_update_receiver **receiver);

/* Takes the next chunk, in the order in which they were made. *reply is written in every case; send
 * it unless its answer is NONE. With the last chunk of a good update the answer is ACCEPTED, and
 * the version is ready for exo_update_swap; in a group, for exo_update_agree.
 *
 * After an error the copy in use is unchanged, and the update is over: its later chunks are errors,
 * too, answered NONE. A chunk of another update does not disturb the one under way. Errors, whose
 * texts name version, chunk and tensor: FULL (a version is ready: swap, then give the same chunk
 * again), DAMAGED (bytes or values are not what was sent; a chunk is missing or repeated), INVAL
 * (another model, a stale version, another base), UNSUPPORTED (changes, with a part), FAILED (the canary),
 * NOMEM, and if the update names memory, NOT_FOUND (the sender has dropped it), or UNSUPPORTED or
 * PEER_LOST: this process cannot open it, and later updates come as bytes. Blocks for decoding, and
 * with the last chunk for packing and the canary. */
EXO_API exo_status exo_update_receive(exo_update_receiver *receiver, const void *bytes, size_t size,
                                      exo_update_reply *reply, exo_err *err);
/* For the members of a generator's group, each with a receiver that was given the same update: they
 * accept it together or not at all. `reply`: the answer of the update, ACCEPTED or not. If all have
 * accepted the same version, the group computes the canary, and the version is ready if it is right on
 * all. Otherwise *reply refuses it. Errors, with which *reply is a refusal, too: those of the
 * collective, FAILED (the canary), INVAL (the receiver has no group). Blocks for the other members;
 * call it where the group's calls may be made. */
EXO_API exo_status exo_update_agree(exo_update_receiver *receiver, exo_update_reply *reply,
                                    exo_err *err);
/* Gives up an update that is under way, for instance because its sender is lost. *reply: REFUSED,
 * with the chunks that are missing; NONE: there was none. */
EXO_API void exo_update_abandon(exo_update_receiver *receiver, exo_update_reply *reply);
/* Writes the reply of a receiver that has just started: NEED_WHOLE, or NONE if it has a version. */
EXO_API void exo_update_greet(const exo_update_receiver *receiver, exo_update_reply *reply);

/* Whether a version is verified and waits for exo_update_swap. */
EXO_API bool exo_update_is_ready(const exo_update_receiver *receiver);
/* Uses the version that is ready: exchanges pointers. Sequences under way in the generator keep
 * their caches, which the old weights computed. False: no version is ready. */
EXO_API bool exo_update_swap(exo_update_receiver *receiver);

/* The copy in use. It is valid until the next swap, and belongs to the receiver: only read it. */
EXO_API exo_params *exo_update_params(exo_update_receiver *receiver);
/* The version in use; 0: none yet. */
EXO_API uint64_t exo_update_version(const exo_update_receiver *receiver);
/* The SHA-256 of its state, as the sender's exo_update_sender_state; "": none yet. Valid until the
 * next swap. */
EXO_API const char *exo_update_state(const exo_update_receiver *receiver);

EXO_DECLS_END

#endif
