/* The list of a policy_trainer's updates: updates_ACTOR.csv in the run's folder, a line for each,
 * from which learning curves are drawn.
 *
 *   update        number of the update, from 1
 *   samples       steps of environments that the trainer has learned from
 *   return_mean   the meter; empty before the first episode has ended
 *   loss          the meter
 *   game_value, exploitability   the meters; only if the environment has an exact value
 *
 * Owner: the caller, one thread at a time. */
#ifndef EXO_UPDATES_FILE_H
#define EXO_UPDATES_FILE_H

#include <exogym/environment.h>

typedef struct exo_updates_file exo_updates_file;

/* Opens the list of an actor in `folder`; NULL: there is no file. has_game: with the two columns of
 * games. The caller closes it. IO, NOMEM. */
exo_status exo_updates_file_open(exo_updates_file **out, const char *folder, const char *actor,
                                 bool has_game, exo_err *err);
/* Closes *file and sets it to NULL; accepts NULL in it. */
void exo_updates_file_close(exo_updates_file **file);
/* Writes the line of an update. `game` is not read without has_game. IO. */
exo_status exo_updates_file_write(exo_updates_file *file, uint64_t update, uint64_t samples,
                                  double return_mean, double loss, const exo_game_value *game,
                                  exo_err *err);
/* FAILED: another life of the actor has begun its list (base/table.h). */
exo_status exo_updates_file_check(const exo_updates_file *file, exo_err *err);

#endif
