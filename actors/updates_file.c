/* The list of a policy_trainer's updates: see updates_file.h. */
#include "actors/updates_file.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <exogym/memory.h>

#include "base/dir.h"

enum {
    MAX_PATH = 4096
};

struct exo_updates_file {
    FILE *file; /* NULL: none */
    bool has_game;
};

exo_status
exo_updates_file_open(exo_updates_file **out, const char *folder, const char *actor, bool has_game,
                      exo_err *err)
{
    char path[MAX_PATH];
    *out = NULL;
    if (folder &&
        (size_t)snprintf(path, sizeof path, "%s/updates_%s.csv", folder, actor) >= sizeof path)
        return exo_fail(err, EXO_INVAL, "%.200s...: the path is too long", path);
    exo_updates_file *u = exo_calloc(1, sizeof *u);
    if (!u)
        return exo_fail(err, EXO_NOMEM, "no memory for the list of updates");
    *out = u;
    u->has_game = has_game;
    if (!folder)
        return EXO_OK;
    int file = exo_dir_open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    u->file = file >= 0 ? fdopen(file, "w") : NULL;
    if (u->file &&
        fprintf(u->file, "update,samples,return_mean,loss%s\n",
                has_game ? ",game_value,exploitability" : "") > 0 &&
        fflush(u->file) == 0)
        return EXO_OK;
    exo_status st = exo_fail(err, EXO_IO, "%s: %s", path, exo_dir_reason(errno));
    exo_updates_file_close(out);
    return st;
}

void
exo_updates_file_close(exo_updates_file **file)
{
    if (!*file)
        return;
    if ((*file)->file)
        fclose((*file)->file);
    exo_free(*file);
    *file = NULL;
}

exo_status
exo_updates_file_write(exo_updates_file *u, uint64_t update, uint64_t samples, double return_mean,
                       double loss, const exo_game_value *game, exo_err *err)
{
    if (!u->file)
        return EXO_OK;
    fprintf(u->file, "%llu,%llu,", (unsigned long long)update, (unsigned long long)samples);
    if (!isnan(return_mean))
        fprintf(u->file, "%.9g", return_mean);
    fprintf(u->file, ",%.9g", loss);
    if (u->has_game)
        fprintf(u->file, ",%.9g,%.9g", game->value, game->exploitability);
    fprintf(u->file, "\n");
    return fflush(u->file) == 0
               ? EXO_OK
               : exo_fail(err, EXO_IO, "updates_*.csv in the run's folder: %s", strerror(errno));
}
