/* `exogym keygen`: a key pair for a node, in two files. */
#include <stdio.h>
#include <stdlib.h>

#include <exogym/memory.h>
#include <jansson.h>

#include "auth.h"
#include "commands.h"
#include "text.h"

/* $XDG_CONFIG_HOME/exogym, else ~/.config/exogym. */
static exo_status
default_folder(exo_text *folder, exo_err *err)
{
    const char *config = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");
    if (config && config[0] == '/') /* a relative one is to be ignored, says the XDG specification */
        exo_text_add(folder, "%s/exogym", config);
    else if (home && home[0])
        exo_text_add(folder, "%s/.config/exogym", home);
    else
        return exo_fail(err, EXO_NOT_FOUND, "there is no home folder for keys: say where with -o FOLDER");
    return EXO_OK;
}

static exo_status
keygen(const char *name, const char *folder, bool as_json, exo_err *err)
{
    exo_keys keys = {0};
    exo_text public_path = {0}, secret_path = {0};
    exo_text_add(&public_path, "%s/%s.key", folder, name);
    exo_text_add(&secret_path, "%s/%s.secret", folder, name);
    json_t *json = NULL;
    exo_status st = EXO_OK;
    if (public_path.failed || secret_path.failed)
        st = exo_fail(err, EXO_NOMEM, "no memory for a path");
    if (st == EXO_OK)
        st = exo_keys_generate(&keys, err);
    if (st == EXO_OK && as_json) {
        /* Before there are files: what fails here has made none. */
        json = json_pack("{s:s, s:[s, s]}", "public", keys.public_key, "files", public_path.data, secret_path.data);
        if (!json)
            st = exo_fail(err, EXO_INVAL, "the folder's name is not UTF-8, and JSON cannot hold it");
    }
    if (st == EXO_OK)
        st = exo_keys_save(&keys, folder, name, err);
    if (st == EXO_OK && as_json) {
        json_dumpf(json, stdout, JSON_INDENT(2)); /* main() sees whether it reached its file */
        putchar('\n');
    } else if (st == EXO_OK) {
        printf("public key  %s\n"
               "secret key  %s\n"
               "Copy %s.key into the authorized folder of each node that shall accept this one.\n"
               "Keep %s.secret on this machine: whoever has it can pretend to be this node.\n",
               public_path.data, secret_path.data, name, name);
    }
    json_decref(json);
    exo_keys_release(&keys);
    exo_free(public_path.data);
    exo_free(secret_path.data);
    return st;
}

struct keygen_args {
    const char *name, *output;
    bool json;
};

static int
keygen_command(const exo_command_line *line)
{
    exo_err err = {0};
    exo_text folder = {0};
    const struct keygen_args *args = line->args;
    exo_status st = EXO_OK;
    if (!exo_key_name_is_valid(args->name))
        st = exo_fail(&err, EXO_INVAL,
                      "'%s' cannot name a key: 1 to 64 letters, digits, '.', '_' or '-', the first a letter or digit",
                      args->name);
    else if (args->output && !args->output[0])
        st = exo_fail(&err, EXO_INVAL, "-o needs a folder");
    if (st != EXO_OK)
        return exo_report_usage(line->command, &err);
    if (args->output)
        exo_text_add(&folder, "%s", args->output);
    else
        st = default_folder(&folder, &err);
    if (st == EXO_OK && folder.failed)
        st = exo_fail(&err, EXO_NOMEM, "no memory for a path");
    if (st == EXO_OK)
        st = keygen(args->name, folder.data, args->json, &err);
    exo_free(folder.data);
    return st == EXO_OK ? EXO_EXIT_OK : exo_report(&err);
}

static const exo_arg table[] = {
    {.value = "NAME",
     .help = "What the key is called: 1 to 64 letters, digits, '.', '_' or '-'.",
     .required = true,
     EXO_INTO(struct keygen_args, name)},
    {.name = "--output",
     .brief = "-o",
     .value = "DIR",
     .help = "Where the files go; $XDG_CONFIG_HOME/exogym, else ~/.config/exogym.",
     .word = EXO_WORD_FOLDER,
     EXO_INTO(struct keygen_args, output)},
    {.name = "--json",
     .help = "Prints {\"public\": KEY, \"files\": [PUBLIC, SECRET]} instead of text.",
     EXO_INTO(struct keygen_args, json)},
    {0},
};

const exo_command exo_command_keygen = {
    .name = "keygen",
    .summary = "Makes a key pair, by which other nodes know this one",
    .description =
        "Writes NAME.key, which others get, and NAME.secret, which nobody gets. A key that is there is never "
        "overwritten. docs/security.md says what the keys protect.",
    .args = table,
    .args_size = sizeof(struct keygen_args),
    .run = keygen_command,
};
