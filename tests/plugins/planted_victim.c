/* The plugin victim.c with a table of one entry: its actors write beyond the table in a worker, and
 * the address sanitizer must report it. Read next: tests/schedule/planted.sh. */
#include <stdlib.h>

#define calloc(count, size) calloc(1, size)
#include "victim.c"
