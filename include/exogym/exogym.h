/* All public headers. Start with trainer.h and strategy.h to train, with actor.h for the
 * runtime.
 *
 * What holds for all of them: an `exo_err *` may be NULL. Functions that end a handle (free, drop,
 * close) take its address, set it to NULL and accept NULL in it. Any other pointer is not NULL unless
 * the declaration says so, which is not checked. */
#ifndef EXOGYM_EXOGYM_H
#define EXOGYM_EXOGYM_H

#include <exogym/actor.h>
#include <exogym/array_object.h>
#include <exogym/clock.h>
#include <exogym/cluster.h>
#include <exogym/codec.h>
#include <exogym/comm.h>
#include <exogym/compress.h>
#include <exogym/config.h>
#include <exogym/data.h>
#include <exogym/data_parallel.h>
#include <exogym/decoder.h>
#include <exogym/device.h>
#include <exogym/dtype.h>
#include <exogym/engine.h>
#include <exogym/environment.h>
#include <exogym/exact.h>
#include <exogym/experience.h>
#include <exogym/generate.h>
#include <exogym/graph.h>
#include <exogym/ipc.h>
#include <exogym/learning.h>
#include <exogym/log.h>
#include <exogym/loss.h>
#include <exogym/memory.h>
#include <exogym/meter.h>
#include <exogym/model.h>
#include <exogym/object.h>
#include <exogym/optim.h>
#include <exogym/parallel.h>
#include <exogym/payload.h>
#include <exogym/plugin.h>
#include <exogym/reward.h>
#include <exogym/rng.h>
#include <exogym/schedule.h>
#include <exogym/select.h>
#include <exogym/sequence.h>
#include <exogym/server.h>
#include <exogym/shards.h>
#include <exogym/state.h>
#include <exogym/status.h>
#include <exogym/strategy.h>
#include <exogym/tensor.h>
#include <exogym/tokenizer.h>
#include <exogym/traffic.h>
#include <exogym/trainer.h>
#include <exogym/units.h>
#include <exogym/updates.h>
#include <exogym/whole.h>

#endif
