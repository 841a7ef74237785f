/* Arguments of the head's and the worker's methods for tests/fuzz/roles.c, built field by field
 * from the bytes of an input. One thread. Read next: roles.c. */
#ifndef EXO_FUZZ_ROLES_ARGS_H
#define EXO_FUZZ_ROLES_ARGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <exogym/actor.h>

/* Marks every text that a driver must never see. */
#define SECRET "SECRET"

/* The meaning of numbers: the caller's node, keys of actors of other peers, the head's next key,
 * the worker's reference. */
struct args_world {
    uint64_t self, keys[8], next_key, worker;
    size_t num_keys;
};

/* The rest of the input; after its end, every byte is 0. */
extern const uint8_t *args_input;
extern size_t args_left;

uint8_t args_byte(void);
const char *args_text(const char *const *texts, size_t count);
/* One of the given texts. */
#define ARGS_TEXT(...)                                                                             \
    args_text((const char *const[]){__VA_ARGS__},                                                  \
              sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *))

/* Gives arguments of the method, sometimes corrupted. */
void args_build(const struct args_world *world, const char *method, exo_payload *out);
/* Gives any bytes as arguments. */
void args_build_plain(const struct args_world *world, const char *method, exo_payload *out);

#endif
