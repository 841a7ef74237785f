/* A shared object that is not a plugin. */
int nothing_of_exogym(void);

int
nothing_of_exogym(void)
{
    return 1;
}
