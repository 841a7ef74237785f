/* The name of this start of the machine. No state; any thread. */
#ifndef EXO_BASE_BOOT_H
#define EXO_BASE_BOOT_H

enum {
    EXO_BOOT_ID = 64
};

/* The identity of the running kernel and of the namespace of process numbers; equal for processes
 * that can see each other. Tests set EXOGYM_HOST_ID, so that processes behave as if they were on
 * different hosts. */
void exo_boot_id(char out[EXO_BOOT_ID]);

#endif
