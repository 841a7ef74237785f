/* Kinds of characters, by Unicode's tables. No state. */
#ifndef EXO_TEXT_KINDS_H
#define EXO_TEXT_KINDS_H

#include <stdbool.h>
#include <stdint.h>

/* The property White_Space. */
bool exo_utf8_is_space(uint32_t code);
/* \w of Rust's regular expressions: letters, marks, decimal digits, connectors, joiners. */
bool exo_utf8_is_word(uint32_t code);

#endif
