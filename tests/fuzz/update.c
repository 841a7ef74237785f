/* Chunks of weight updates, as a peer may send them. The first byte chooses one of these:
 * - the rest is one chunk, or a reply, as it is;
 * - the rest is the content of chunk 0, then of a chunk of tensors, each behind a right header, so
 *   that the code behind the checksums is reached, too;
 * - the rest changes bytes of a good update, which is sealed anew.
 * Whatever comes, the copy in use does not change before a swap, each error has a text, and a good
 * update is accepted afterwards.
 *
 * One thread; the receiver lives as long as the process. Read next: nn/updates/receiver.h. */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <exogym/exogym.h>

#include "nn/updates/body.h"

enum {
    MOST_CHUNKS = 8,
    MOST_BYTES = 1 << 13
};

struct chunk {
    uint8_t bytes[MOST_BYTES];
    size_t size;
};

static exo_model *model;
static exo_params *params;
static exo_update_sender *sender;
static exo_update_receiver *receiver;
static struct chunk good[MOST_CHUNKS], made[MOST_CHUNKS];
static size_t num_good;

static void
expect(bool right)
{
    if (!right)
        abort();
}

/* A delta from version 1, which the receiver has, to version 2. */
static void
set_up(void)
{
    exo_config_doc *doc = NULL;
    const char *const name = "maker";
    expect(exo_config_parse(&doc, "m.yaml", "{in: 40, out: 10, hidden: [60]}", NULL) == EXO_OK);
    expect(exo_model_new_named(&model, "mlp", exo_config_root(doc), NULL) == EXO_OK);
    exo_config_free(&doc);
    expect(exo_model_params(model, 1, &params, NULL) == EXO_OK);
    const exo_update_sender_opts opts = {.form = EXO_UPDATE_DELTA, .chunk_bytes = 4096};
    expect(exo_update_sender_new(&sender, model, &opts, NULL) == EXO_OK);
    expect(exo_update_receiver_new(&receiver, model, NULL, NULL, NULL) == EXO_OK);
    for (uint64_t version = 1; version < 3; version++) {
        exo_update *update = NULL;
        exo_update_reply reply = {0};
        const void *bytes = NULL;
        size_t size = 0;
        exo_vec_scale(exo_params_values_array(params), 1.001f);
        exo_params_values(params)[3] = (float)version;
        expect(exo_update_sender_stage(sender, params, version, NULL) == EXO_OK);
        expect(exo_update_begin(&update, sender, &name, 1, NULL) == EXO_OK);
        for (num_good = 0; exo_update_next(update, &bytes, &size, NULL) == EXO_OK; num_good++) {
            expect(num_good < MOST_CHUNKS && size <= MOST_BYTES);
            memcpy(good[num_good].bytes, bytes, size);
            good[num_good].size = size;
            if (version == 1)
                expect(exo_update_receive(receiver, bytes, size, &reply, NULL) == EXO_OK);
        }
        exo_update_free(&update);
        if (version == 1)
            expect(exo_update_swap(receiver) &&
                   exo_update_sender_reply(sender, name, &reply, NULL) == EXO_OK);
    }
}

static void
tear_down(void)
{
    exo_update_sender_free(&sender);
    exo_update_receiver_free(&receiver);
    exo_params_free(&params);
    exo_model_drop(&model);
}

/* Gives memory of exactly `size` bytes. */
static exo_update_answer
give(const uint8_t *bytes, size_t size)
{
    exo_update_reply reply = {0};
    exo_err err = {0};
    uint8_t *exact = malloc(size ? size : 1);
    expect(exact != NULL);
    if (size > 0)
        memcpy(exact, bytes, size);
    exo_status st = exo_update_receive(receiver, exact, size, &reply, &err);
    expect(st == EXO_OK || err.text[0] != '\0');
    expect(st == EXO_OK || reply.answer != EXO_UPDATE_ACCEPTED);
    free(exact);
    return reply.answer;
}

/* Copies the good update and seals it after a change. */
static void
seal(size_t count)
{
    uint8_t id[EXO_SHA];
    expect(exo_hash_two(made[0].bytes + EXO_CHUNK_HEADER, made[0].size - EXO_CHUNK_HEADER, NULL, 0,
                        id, NULL) == EXO_OK);
    for (size_t i = 0; i < count; i++) {
        exo_chunk_header h = {.number = (uint32_t)i,
                              .count = (uint32_t)num_good,
                              .version = 2,
                              .bytes = made[i].size - EXO_CHUNK_HEADER};
        memcpy(h.update, id, EXO_SHA);
        expect(exo_chunk_seal(&h, made[i].bytes, NULL) == EXO_OK);
    }
}

/* Each 4 bytes: chunk, place, and what it is combined with. */
static void
change(const uint8_t *data, size_t size)
{
    for (; size >= 4; data += 4, size -= 4) {
        struct chunk *c = &made[data[0] % num_good];
        size_t length = c->size - EXO_CHUNK_HEADER, at = data[1] | (size_t)data[2] << 8;
        if (length > 0)
            c->bytes[EXO_CHUNK_HEADER + at % length] ^= data[3];
    }
    seal(num_good);
}

/* The rest as the content of one chunk, after good ones. */
static size_t
replace(const uint8_t *data, size_t size, size_t chunk)
{
    size = size < MOST_BYTES - EXO_CHUNK_HEADER ? size : MOST_BYTES - EXO_CHUNK_HEADER;
    memcpy(made[chunk].bytes + EXO_CHUNK_HEADER, data, size);
    made[chunk].size = EXO_CHUNK_HEADER + size;
    seal(chunk + 1);
    return chunk + 1;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    exo_update_reply reply;
    exo_update_chunk chunk;
    exo_update_answer answer = EXO_UPDATE_NONE;
    if (!receiver)
        set_up();
    if (size < 1)
        return 0;
    unsigned kind = data[0] % 4;
    data++;
    size--;
    char state[65];
    memcpy(state, exo_update_state(receiver), sizeof state);
    memcpy(made, good, sizeof made);
    size_t count = num_good;
    if (kind == 0) {
        (void)exo_update_reply_read(data, size, &reply, NULL);
        (void)exo_update_chunk_read(data, size, &chunk);
        answer = give(data, size);
        count = 0;
    } else if (kind == 3) {
        change(data, size);
    } else {
        count = replace(data, size, kind - 1);
    }
    for (size_t i = 0; i < count; i++)
        answer = give(made[i].bytes, made[i].size);
    expect(memcmp(state, exo_update_state(receiver), sizeof state) == 0);
    if (answer == EXO_UPDATE_ACCEPTED) { /* no value was changed */
        expect(exo_update_swap(receiver));
        expect(strcmp(exo_update_state(receiver), exo_update_sender_state(sender)) == 0);
        tear_down();
    } else {
        exo_update_abandon(receiver, &reply);
    }
    return 0;
}
