/* What the files of this folder know of a cluster. */
#ifndef EXO_CLUSTER_IMPL_H
#define EXO_CLUSTER_IMPL_H

#include <exogym/cluster.h>

#include "future.h"
#include "messages.h"

/* Calls a method of the head that may be called twice, and waits. The reply is the future's, which the caller drops. */
exo_status exo_cluster_call_head(exo_cluster *cluster, const char *method, const ProtobufCMessage *args,
                                 exo_time deadline, exo_future **future, const exo_payload **reply, exo_err *err);

exo_runtime *exo_cluster_runtime(const exo_cluster *cluster);

#endif
