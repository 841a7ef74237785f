/* Limits that this machine, container or login sets for a process. No state; any thread. */
#ifndef EXO_STORE_HOST_H
#define EXO_STORE_HOST_H

/* Raises the soft limit of open descriptors to the hard one, if permitted. */
void exo_raise_descriptor_limit(void);

#endif
