/* A net's handler that never replies: it releases every message that it receives. */
#ifndef EXO_TEST_SILENT_H
#define EXO_TEST_SILENT_H

#include "net/net.h"

extern const exo_net_handler silent_handler;

#endif
