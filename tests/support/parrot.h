/* A tool for tests: `parrot` replies with chance, with what was said, and with what it remembers. */
#ifndef EXO_TEST_PARROT_H
#define EXO_TEST_PARROT_H

#include <exogym/tool.h>

/* Registers the class `parrot`, once in a process. A reply has 0 to 3 tokens below 11: the first
 * token of the turn, the number of turns that it remembers, and one by chance; it has fewer in some
 * turns. Token 9 ends a turn, and 4 tokens do. The reward of a turn is 0.25 for each reply token. An
 * answer ends after the reply to a turn that begins with token 7. */
void parrot_register(void);
/* The class, for tools that do more. */
const exo_tool_class *parrot(void);

#endif
