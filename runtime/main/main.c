/* main() of the exogym command. */
#include <stdio.h>

int
main(void)
{
    puts("exogym " EXO_VERSION);
    return 0;
}
