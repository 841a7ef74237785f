/* Policies in safetensors files. The tensors are the members of exo_policy, with the names
 * actor.weight1, actor.bias1, ..., critic.bias2, action.weight, action.bias, value.weight, value.bias
 * and log_deviation, which only policies with continuous actions have.
 *
 * No state; any thread. Read next: policy.h (shapes), exogym/state.h (the format). */
#ifndef EXO_POLICY_FILE_H
#define EXO_POLICY_FILE_H

#include <exogym/status.h>

#include "actors/policy.h"

/* Writes a policy, atomically, to FOLDER/KIND_ACTOR.safetensors. The metadata of the file gets the
 * environment's name, the number of updates that made the policy, and the SHA-256 of the file.
 * Errors: INVAL: the path is too long; as exo_state_save. */
exo_status exo_policy_save(const exo_policy *policy, const char *environment, uint64_t update,
                           const char *folder, const char *kind, const char *actor, exo_err *err);
/* Reads such a file into a policy of the same shape for an environment. Errors: NOT_FOUND, IO; INVAL:
 * it is of another environment, or a tensor is missing or has another shape, the error names them;
 * DAMAGED: the file is not what was written; NOMEM. */
exo_status exo_policy_load(const exo_policy *policy, const char *environment, const char *path,
                           exo_err *err);

#endif
