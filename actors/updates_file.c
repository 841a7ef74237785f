/* The list of a policy_trainer's updates: see updates_file.h. */
#include "actors/updates_file.h"

#include <math.h>
#include <stdio.h>

#include <exogym/memory.h>

#include "base/c_locale.h"
#include "base/table.h"

enum {
    MAX_PATH = 4096
};

struct exo_updates_file {
    exo_table table;
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
    exo_status st = exo_table_open(&u->table, path,
                                   has_game ? "update,samples,return_mean,loss,game_value,"
                                              "exploitability"
                                            : "update,samples,return_mean,loss",
                                   0, err);
    if (st != EXO_OK)
        exo_updates_file_close(out);
    return st;
}

void
exo_updates_file_close(exo_updates_file **file)
{
    if (!*file)
        return;
    exo_table_close(&(*file)->table);
    exo_free(*file);
    *file = NULL;
}

exo_status
exo_updates_file_write(exo_updates_file *u, uint64_t update, uint64_t samples, double return_mean,
                       double loss, const exo_game_value *game, exo_err *err)
{
    FILE *lines = u->table.stream;
    if (!lines)
        return EXO_OK;
    fprintf(lines, "%llu,%llu,", (unsigned long long)update, (unsigned long long)samples);
    if (!isnan(return_mean))
        exo_c_fprintf(lines, "%.9g", return_mean);
    exo_c_fprintf(lines, ",%.9g", loss);
    if (u->has_game)
        exo_c_fprintf(lines, ",%.9g,%.9g", game->value, game->exploitability);
    fprintf(lines, "\n");
    return exo_table_push(&u->table, err);
}

exo_status
exo_updates_file_check(const exo_updates_file *u, exo_err *err)
{
    return exo_table_check(&u->table, err);
}
