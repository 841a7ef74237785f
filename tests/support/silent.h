/* A net's handler that says nothing: it takes what comes, and lets go of it. */
#ifndef EXO_TEST_SILENT_H
#define EXO_TEST_SILENT_H

#include "net/net.h"

extern const exo_net_handler silent_handler;

#endif
