/* The head's state file: see durable.h. */
#include "cluster/durable.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <exogym/memory.h>

enum {
    ACTORS,
    JOBS,
    TABLES
};

static const char *const table_names[TABLES] = {"actors", "jobs"};

#define TEXT_OF_(x) #x
#define TEXT_OF(x)  TEXT_OF_(x)
#define APPLICATION 0x65786f67 /* "exog", the application id in the SQLite file's header */
#define COLUMNS                                                                                    \
    "(key INTEGER PRIMARY KEY, name TEXT, state TEXT, detail TEXT, info BLOB, spec BLOB)"

struct exo_durable {
    sqlite3 *db;
    sqlite3_stmt *put[TABLES], *remove[TABLES];
    unsigned depth; /* nesting of exo_durable_begin */
};

/* The advice for a file that SQLite cannot read. */
static const char move_away[] =
    ": move it away, with its -wal and -shm, or give another --state; the head then begins without "
    "records of jobs, deaths and actors that wait for another life; workers tell it their actors";

static exo_status
fail(exo_durable *d, const char *what, exo_err *err)
{
    int code = sqlite3_errcode(d->db);
    return exo_fail(err, EXO_IO, "%s: %s: %s%s", sqlite3_db_filename(d->db, "main"), what,
                    sqlite3_errmsg(d->db),
                    code == SQLITE_CORRUPT || code == SQLITE_NOTADB ? move_away : "");
}

/* Ends a transaction that failed, unless SQLite has ended it already. */
static void
roll_back(exo_durable *d)
{
    if (!sqlite3_get_autocommit(d->db))
        sqlite3_exec(d->db, "ROLLBACK", NULL, NULL, NULL);
}

static int
table_index(const char *table)
{
    return strcmp(table, table_names[JOBS]) == 0 ? JOBS : ACTORS;
}

static int
first_integer(exo_durable *d, const char *sql)
{
    sqlite3_stmt *s = NULL;
    int value = -1;
    if (sqlite3_prepare_v2(d->db, sql, -1, &s, NULL) == SQLITE_OK && sqlite3_step(s) == SQLITE_ROW)
        value = sqlite3_column_int(s, 0);
    sqlite3_finalize(s);
    return value;
}

/* A file that has contents must be a head's state, else it is not touched. Earlier versions made
 * the tables and set the application id one after the other, so a head that was killed in between
 * left tables without the id. */
static exo_status
check_owner(exo_durable *d, exo_err *err)
{
    int others = first_integer(d, "SELECT count(*) FROM sqlite_master"
                                  " WHERE sql NOT IN ('CREATE TABLE actors " COLUMNS
                                  "', 'CREATE TABLE jobs " COLUMNS "')");
    if (others < 0)
        return fail(d, "cannot be read", err);
    if (others == 0 || first_integer(d, "PRAGMA application_id") == APPLICATION)
        return EXO_OK;
    return exo_fail(err, EXO_IO, "%s: is an SQLite file of another program",
                    sqlite3_db_filename(d->db, "main"));
}

/* With a write-ahead log no change waits for the disk. */
static exo_status
choose_log(exo_durable *d, exo_err *err)
{
    return sqlite3_exec(d->db, "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL;", NULL,
                        NULL, NULL) == SQLITE_OK
               ? EXO_OK
               : fail(d, "cannot be written", err);
}

/* Makes the tables and sets the application id in one transaction: a kill at any moment leaves both
 * or nothing. If the id is there, nothing is written: a head begins on a full disk, too. */
static exo_status
make_tables(exo_durable *d, exo_err *err)
{
    static const char sql[] =
        "BEGIN IMMEDIATE;"
        "CREATE TABLE IF NOT EXISTS actors " COLUMNS "; CREATE TABLE IF NOT EXISTS jobs " COLUMNS
        ";"
        "PRAGMA application_id = " TEXT_OF(APPLICATION) "; PRAGMA user_version = 1; COMMIT;";
    if (first_integer(d, "PRAGMA application_id") == APPLICATION &&
        first_integer(d, "PRAGMA user_version") == 1)
        return EXO_OK;
    if (sqlite3_exec(d->db, sql, NULL, NULL, NULL) == SQLITE_OK)
        return EXO_OK;
    exo_status st = fail(d, "cannot be written", err);
    roll_back(d);
    return st;
}

exo_status
exo_durable_open(exo_durable **out, const char *path, exo_err *err)
{
    char sql[160];
    exo_status st = EXO_OK;
    exo_durable *d = exo_calloc(1, sizeof *d);
    if (!d)
        return exo_fail(err, EXO_NOMEM, "no memory for the head's state");
    /* Made here, because then no other user can ever read it. SQLite gives its journals the file's
     * mode. */
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0)
        st = exo_fail(err, EXO_IO, "%s: %s", path, strerror(errno));
    else
        close(fd);
    if (st == EXO_OK &&
        sqlite3_open_v2(path, &d->db,
                        SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX,
                        NULL) != SQLITE_OK)
        st = exo_fail(err, EXO_IO, "%s: %s", path, d->db ? sqlite3_errmsg(d->db) : "no memory");
    if (st == EXO_OK) {
        sqlite3_busy_timeout(d->db, 1000);
        /* The lock is kept until the file is closed, so there is one head at a time. Before the first
         * access, because SQLite then needs no -shm file, which a full disk has no room for. */
        sqlite3_exec(d->db, "PRAGMA locking_mode = EXCLUSIVE", NULL, NULL, NULL);
        st = check_owner(d, err);
    }
    if (st == EXO_OK)
        st = choose_log(d, err);
    if (st == EXO_OK)
        st = make_tables(d, err);
    for (int t = 0; st == EXO_OK && t < TABLES; t++) {
        snprintf(
            sql, sizeof sql,
            "INSERT OR REPLACE INTO %s (key, name, state, detail, info, spec) VALUES (?,?,?,?,?,?)",
            table_names[t]);
        if (sqlite3_prepare_v2(d->db, sql, -1, &d->put[t], NULL) != SQLITE_OK)
            st = fail(d, path, err);
        snprintf(sql, sizeof sql, "DELETE FROM %s WHERE key = ?", table_names[t]);
        if (st == EXO_OK && sqlite3_prepare_v2(d->db, sql, -1, &d->remove[t], NULL) != SQLITE_OK)
            st = fail(d, path, err);
    }
    if (st != EXO_OK)
        exo_durable_close(&d);
    *out = d;
    return st;
}

void
exo_durable_close(exo_durable **durable)
{
    exo_durable *d = *durable;
    *durable = NULL;
    if (!d)
        return;
    for (int t = 0; t < TABLES; t++) {
        sqlite3_finalize(d->put[t]);
        sqlite3_finalize(d->remove[t]);
    }
    sqlite3_close(d->db);
    exo_free(d);
}

static exo_status
run(exo_durable *d, sqlite3_stmt *statement, exo_err *err)
{
    int result = sqlite3_step(statement);
    sqlite3_reset(statement);
    sqlite3_clear_bindings(statement);
    return result == SQLITE_DONE ? EXO_OK : fail(d, "a change was not written", err);
}

void
exo_durable_begin(exo_durable *durable)
{
    if (durable && durable->depth++ == 0)
        sqlite3_exec(durable->db, "BEGIN", NULL, NULL, NULL);
}

exo_status
exo_durable_commit(exo_durable *durable, exo_err *err)
{
    if (!durable || --durable->depth > 0 ||
        sqlite3_exec(durable->db, "COMMIT", NULL, NULL, NULL) == SQLITE_OK)
        return EXO_OK;
    exo_status st = fail(durable, "changes were not written", err);
    roll_back(durable);
    return st;
}

void
exo_durable_cancel(exo_durable *durable)
{
    durable->depth--;
    assert(durable->depth == 0);
    roll_back(durable);
}

exo_status
exo_durable_clear(exo_durable *durable, exo_err *err)
{
    char sql[64];
    /* if no transaction has begun, a kill before the rows are written again would lose them */
    if (sqlite3_get_autocommit(durable->db))
        return fail(durable, "no transaction has begun", err);
    for (int t = 0; t < TABLES; t++) {
        snprintf(sql, sizeof sql, "DELETE FROM %s", table_names[t]);
        if (sqlite3_exec(durable->db, sql, NULL, NULL, NULL) != SQLITE_OK)
            return fail(durable, "rows were not removed", err);
    }
    return EXO_OK;
}

exo_status
exo_durable_put(exo_durable *durable, const exo_durable_row *row, exo_err *err)
{
    sqlite3_stmt *s = durable->put[table_index(row->table)];
    sqlite3_bind_int64(s, 1, (sqlite3_int64)row->key);
    sqlite3_bind_text(s, 2, row->name, -1, SQLITE_STATIC);
    sqlite3_bind_text(s, 3, row->state, -1, SQLITE_STATIC);
    sqlite3_bind_text(s, 4, row->detail, -1, SQLITE_STATIC);
    sqlite3_bind_blob64(s, 5, row->info, row->info_size, SQLITE_STATIC);
    sqlite3_bind_blob64(s, 6, row->spec, row->spec_size, SQLITE_STATIC);
    return run(durable, s, err);
}

exo_status
exo_durable_remove(exo_durable *durable, const char *table, uint64_t key, exo_err *err)
{
    sqlite3_stmt *s = durable->remove[table_index(table)];
    sqlite3_bind_int64(s, 1, (sqlite3_int64)key);
    return run(durable, s, err);
}

exo_status
exo_durable_each(exo_durable *durable, const char *table,
                 void (*visit)(void *context, const exo_durable_row *row), void *context,
                 exo_err *err)
{
    char sql[96];
    sqlite3_stmt *s = NULL;
    int result = SQLITE_OK;
    snprintf(sql, sizeof sql, "SELECT key, name, state, detail, info, spec FROM %s ORDER BY key",
             table_names[table_index(table)]);
    if (sqlite3_prepare_v2(durable->db, sql, -1, &s, NULL) != SQLITE_OK)
        return fail(durable, table, err);
    while ((result = sqlite3_step(s)) == SQLITE_ROW) {
        exo_durable_row row = {.table = table,
                               .key = (uint64_t)sqlite3_column_int64(s, 0),
                               .name = (const char *)sqlite3_column_text(s, 1),
                               .state = (const char *)sqlite3_column_text(s, 2),
                               .detail = (const char *)sqlite3_column_text(s, 3),
                               .info = sqlite3_column_blob(s, 4),
                               .info_size = (size_t)sqlite3_column_bytes(s, 4),
                               .spec = sqlite3_column_blob(s, 5),
                               .spec_size = (size_t)sqlite3_column_bytes(s, 5)};
        visit(context, &row);
    }
    sqlite3_finalize(s);
    return result == SQLITE_DONE ? EXO_OK : fail(durable, "cannot be read", err);
}
