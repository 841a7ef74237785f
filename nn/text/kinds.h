/* Which kind of character one is, by Unicode's tables. No state. */
#ifndef EXO_TEXT_KINDS_H
#define EXO_TEXT_KINDS_H

#include <stdbool.h>
#include <stdint.h>

/* White_Space; what \w is: letters, marks, decimal digits, connectors, joiners. */
bool exo_utf8_is_space(uint32_t code);
bool exo_utf8_is_word(uint32_t code);

#endif
