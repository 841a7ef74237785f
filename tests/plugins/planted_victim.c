/* The plugin victim.c with a table of one entry: what its actors write beyond it in a worker, the address sanitizer must find.
 * Read next: tests/schedule/planted.sh. */
#include <stdlib.h>

#define calloc(count, size) calloc(1, size)
#include "victim.c"
