/* `exogym keygen`: writes a key pair for a node to two files. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <exogym/memory.h>
#include <jansson.h>

#include "net/auth.h"
#include "programs/commands.h"
#include "programs/text.h"

/* $XDG_CONFIG_HOME/exogym, else ~/.config/exogym. The caller frees it. NULL: an error. */
static char *
default_folder(exo_err *err)
{
    const char *config = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");
    /* the XDG specification: a relative path is ignored */
    if (config && config[0] == '/')
        return exo_text_make(err, "%s/exogym", config);
    if (home && home[0])
        return exo_text_make(err, "%s/.config/exogym", home);
    exo_fail(err, EXO_NOT_FOUND, "there is no home folder for keys: say where with -o FOLDER");
    return NULL;
}

static exo_status
keygen(const char *name, const exo_grant *grant, const char *folder, bool as_json, exo_err *err)
{
    exo_keys keys = {0};
    char *public_path = exo_text_make(NULL, "%s/%s.key", folder, name),
         *secret_path = exo_text_make(NULL, "%s/%s.secret", folder, name);
    json_t *json = NULL;
    exo_status st = public_path && secret_path ? exo_keys_generate(&keys, err)
                                               : exo_fail(err, EXO_NOMEM, "no memory for a path");
    if (st == EXO_OK && as_json) {
        /* built before any file is written: an error here leaves no files behind */
        json = json_pack("{s:s, s:[s, s]}", "public", keys.public_key, "files", public_path,
                         secret_path);
        if (!json)
            st =
                exo_fail(err, EXO_INVAL, "the folder's name is not UTF-8, and JSON cannot hold it");
    }
    if (st == EXO_OK)
        st = exo_keys_save(&keys, grant, folder, name, err);
    if (st == EXO_OK && as_json) {
        /* exo_program_main checks that the output reached its file */
        json_dumpf(json, stdout, JSON_INDENT(2));
        putchar('\n');
    } else if (st == EXO_OK) {
        exo_print_path(stdout, "public key  ", public_path, "\n");
        exo_print_path(stdout, "secret key  ", secret_path, "\n");
        printf("Copy %s.key into the authorized folder of each node that should accept this one.\n"
               "Keep %s.secret on this machine: whoever has it can pretend to be this node.\n",
               name, name);
    }
    json_decref(json);
    exo_keys_release(&keys);
    exo_free(public_path);
    exo_free(secret_path);
    return st;
}

struct keygen_args {
    const char *name, *output, *role, *expires, *space;
    bool json;
};

/* Reads a date, or a time from now: 90d, 12h. */
static exo_status
read_expiry(const char *text, int64_t *out, exo_err *err)
{
    char *end = NULL;
    double count = strtod(text, &end);
    double unit = strcmp(end, "d") == 0   ? 86400
                  : strcmp(end, "h") == 0 ? 3600
                  : strcmp(end, "m") == 0 ? 60
                                          : 0;
    if (exo_grant_read_date(text, out))
        return EXO_OK;
    if (end == text || unit == 0 || !(count > 0) || count * unit > 1e10)
        return exo_fail(err, EXO_INVAL,
                        "--expires: expected a time from now such as 90d, 12h or 30m, or a date "
                        "such as 2030-01-31, got '%.40s'",
                        text);
    *out = (int64_t)time(NULL) + (int64_t)(count * unit);
    return EXO_OK;
}

static exo_status
read_grant(const struct keygen_args *args, exo_grant *grant, exo_err *err)
{
    *grant = (exo_grant){0};
    if (!args->role)
        return exo_fail(err, EXO_INVAL,
                        "say with --role what the key's holder may do: " EXO_ACCESS_NAMES);
    grant->role = exo_access_of_name(args->role);
    if (!grant->role)
        return exo_fail(err, EXO_INVAL, "--role: expected " EXO_ACCESS_NAMES ", got '%.40s'",
                        args->role);
    if (args->space && grant->role != EXO_ACCESS_DRIVER)
        return exo_fail(err, EXO_INVAL, "--namespace is for drivers");
    exo_status st = args->space
                        ? exo_grant_read_line(grant, "--namespace", "namespace", args->space, err)
                        : EXO_OK;
    return st == EXO_OK && args->expires ? read_expiry(args->expires, &grant->expires, err) : st;
}

static int
keygen_command(const exo_command_line *line)
{
    exo_err err = {0};
    const struct keygen_args *args = line->args;
    exo_grant grant;
    exo_status st = EXO_OK;
    if (!exo_key_name_is_valid(args->name))
        st = exo_fail(&err, EXO_INVAL,
                      "'%s' cannot name a key: 1 to 64 letters, digits, '.', '_' or '-', the first "
                      "a letter or digit",
                      args->name);
    else if (args->output && !args->output[0])
        st = exo_fail(&err, EXO_INVAL, "-o needs a folder");
    if (st == EXO_OK)
        st = read_grant(args, &grant, &err);
    if (st != EXO_OK)
        return exo_report_usage(line->command, &err);
    char *made = args->output ? NULL : default_folder(&err);
    const char *folder = made ? made : args->output;
    st = folder ? keygen(args->name, &grant, folder, args->json, &err) : err.code;
    exo_free(made);
    return st == EXO_OK ? EXO_EXIT_OK : exo_report(&err);
}

static const exo_arg table[] = {
    {NULL, "NAME", "What the key is called: 1 to 64 letters, digits, '.', '_' or '-'.",
     EXO_INTO(struct keygen_args, name), .required = true},
    {"--output", "DIR", "Where the files go; $XDG_CONFIG_HOME/exogym, else ~/.config/exogym.",
     EXO_INTO(struct keygen_args, output), .brief = "-o", .word = EXO_WORD_FOLDER},
    {"--role", "ROLE",
     "What its holder may do: observer (look), driver (run jobs and actors of its own), worker "
     "(host actors) or admin (everything).",
     EXO_INTO(struct keygen_args, role)},
    {"--expires", "TIME",
     "When it ends to be of use: a time from now such as 90d or 12h, or a date such as 2030-01-31; "
     "never unless given.",
     EXO_INTO(struct keygen_args, expires)},
    {"--namespace", "NAME", "Of a driver: the namespace of all its actors; default unless given.",
     EXO_INTO(struct keygen_args, space)},
    {"--json", NULL, "Prints {\"public\": KEY, \"files\": [PUBLIC, SECRET]} instead of text.",
     EXO_INTO(struct keygen_args, json)},
    {0},
};

const exo_command exo_command_keygen = {
    .name = "keygen",
    .summary = "Makes a key pair, by which other nodes know this one",
    .description = "Writes NAME.key, which others get, and NAME.secret, which nobody gets. A key "
                   "that is there is never "
                   "overwritten. docs/security.md says what the keys protect.",
    .args = table,
    .args_size = sizeof(struct keygen_args),
    .run = keygen_command,
};
