/* `exogym explain`: what became of an item of experience, from the files that the trainers of a run
 * write (experience/learned.h). No state. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <exogym/memory.h>

#include "base/dir.h"
#include "base/file.h"
#include "programs/commands.h"
#include "programs/explain_ledger.h"
#include "programs/where.h"

enum {
    MAX_PATH = 4096,
    MAX_FILE = 1 << 30,
    MAX_ACTOR = 256,
    MAX_COLUMNS = 16
};

/* The columns of learned_ACTOR.csv and versions_ACTOR.csv. */
enum {
    ITEM,
    PROMPT,
    EPOCH,
    MAKER,
    ANSWERS,
    TOKENS,
    SCORE,
    VERSIONS,
    CACHES,
    SENT,
    RECEIVED,
    LEARNED,
    VERSION,
    TURNS,
    NUM_ITEM_COLUMNS
};
enum {
    SHA256 = 2,
    NUM_VERSION_COLUMNS = 8
};

/* A line of a file, cut into its columns. */
struct row {
    char *text; /* of the file; owned */
    char *columns[MAX_COLUMNS];
};

struct explain_args {
    const char *folder, *item;
    bool json;
};

/* Finds the line whose first column is `key`; NOT_FOUND: there is none. */
static exo_status
find_row(struct row *out, const char *path, const char *key, size_t num_columns, exo_err *err)
{
    size_t size = 0;
    char *rest = NULL;
    *out = (struct row){0};
    exo_status st = exo_file_read(path, MAX_FILE, &out->text, &size, err);
    if (st != EXO_OK)
        return st;
    for (char *line = strtok_r(out->text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        size_t n = 0;
        if (strncmp(line, key, strlen(key)) != 0 || line[strlen(key)] != ',')
            continue;
        for (char *at = line; at && n < num_columns; n++) {
            out->columns[n] = at;
            at = strchr(at, ',');
            if (at)
                *at++ = '\0';
        }
        if (n == num_columns)
            return EXO_OK;
    }
    exo_free(out->text);
    out->text = NULL;
    return exo_fail(err, EXO_NOT_FOUND, "%s has no line of %s", path, key);
}

static bool
path_of(char out[MAX_PATH], const char *folder, const char *kind, const char *actor)
{
    int length = snprintf(out, MAX_PATH, "%s/%s_%s.csv", folder, kind, actor);
    return length > 0 && length < MAX_PATH;
}

/* The hash of a version's weights, or "?" if the file does not have it. */
static void
hash_of(const char *folder, const char *actor, const char *version, char out[80])
{
    char path[MAX_PATH];
    struct row row;
    snprintf(out, 80, "?");
    if (!path_of(path, folder, "versions", actor) ||
        find_row(&row, path, version, NUM_VERSION_COLUMNS, NULL) != EXO_OK)
        return;
    snprintf(out, 80, "%s", row.columns[SHA256]);
    exo_free(row.text);
}

/* --- Finding ---------------------------------------------------------------------------------- */

/* The trainer's name of a file learned_ACTOR.csv; false: it is another file. */
static bool
actor_of(const char *file, char out[MAX_ACTOR])
{
    const char *head = "learned_", *tail = ".csv";
    size_t length = strlen(file), around = strlen(head) + strlen(tail);
    if (length <= around || length - around >= MAX_ACTOR ||
        strncmp(file, head, strlen(head)) != 0 || strcmp(file + length - strlen(tail), tail) != 0)
        return false;
    snprintf(out, MAX_ACTOR, "%.*s", (int)(length - around), file + strlen(head));
    return true;
}

/* Finds the line of an item in the files of all trainers. */
static exo_status
find_item(const struct explain_args *args, struct row *row, char actor[MAX_ACTOR], exo_err *err)
{
    char path[MAX_PATH];
    size_t files = 0;
    exo_status st = EXO_NOT_FOUND;
    DIR *folder = exo_dir_list(args->folder);
    if (!folder)
        return exo_fail(err, EXO_NOT_FOUND, "%s: %s", args->folder, strerror(errno));
    for (struct dirent *e; st == EXO_NOT_FOUND && (e = readdir(folder));) {
        if (!actor_of(e->d_name, actor) || !path_of(path, args->folder, "learned", actor))
            continue;
        files++;
        st = find_row(row, path, args->item, NUM_ITEM_COLUMNS, err);
    }
    closedir(folder);
    if (st == EXO_NOT_FOUND && files == 0)
        return exo_ledger_of_items_none(args->folder, err);
    if (st == EXO_NOT_FOUND)
        return exo_fail(err, st, "no trainer of %s has learned from item %s", args->folder,
                        args->item);
    return st;
}

/* --- Output ----------------------------------------------------------------------------------- */

/* Appends an object for each run of versions: VERSION:TOKENS, with spaces between. */
static json_t *
runs_of(const char *folder, const char *actor, char *text)
{
    char *rest = NULL, hash[80];
    json_t *out = json_array();
    for (char *run = strtok_r(text, " ", &rest); run; run = strtok_r(NULL, " ", &rest)) {
        char *colon = strchr(run, ':');
        if (!colon)
            continue;
        *colon = '\0';
        hash_of(folder, actor, run, hash);
        json_array_append_new(
            out, json_pack("{s:I, s:I, s:s}", "version", (json_int_t)strtoll(run, NULL, 10),
                           "tokens", (json_int_t)strtoll(colon + 1, NULL, 10), "sha256", hash));
    }
    return out;
}

/* The tokens of each answer's turns and replies: TOKENS+TOKENS+... with spaces between answers. */
static json_t *
turns_of(char *text)
{
    char *rest = NULL;
    json_t *out = json_array();
    for (char *answer = strtok_r(text, " ", &rest); answer; answer = strtok_r(NULL, " ", &rest)) {
        json_t *turns = json_array();
        for (char *at = answer; at; at = strchr(at, '+') ? strchr(at, '+') + 1 : NULL)
            json_array_append_new(turns, json_integer(strtoll(at, NULL, 10)));
        json_array_append_new(out, turns);
    }
    return out;
}

static json_t *
describe(const struct explain_args *args, const char *actor, const struct row *row)
{
    char hash[80];
    char *const *c = row->columns;
    hash_of(args->folder, actor, c[VERSION], hash);
    json_t *out = json_pack(
        "{s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:f, s:f, s:s, s:I, s:s}", "item",
        (json_int_t)strtoll(c[ITEM], NULL, 10), "prompt", (json_int_t)strtoll(c[PROMPT], NULL, 10),
        "epoch", (json_int_t)strtoll(c[EPOCH], NULL, 10), "maker",
        (json_int_t)strtoll(c[MAKER], NULL, 10), "answers",
        (json_int_t)strtoll(c[ANSWERS], NULL, 10), "tokens",
        (json_int_t)strtoll(c[TOKENS], NULL, 10), "score", strtod(c[SCORE], NULL), "sent",
        strtod(c[SENT], NULL), "received", strtod(c[RECEIVED], NULL), "learned",
        strtod(c[LEARNED], NULL), "trainer", actor, "version",
        (json_int_t)strtoll(c[VERSION], NULL, 10), "sha256", hash);
    if (out) {
        json_object_set_new(out, "weights", runs_of(args->folder, actor, c[VERSIONS]));
        json_object_set_new(out, "caches", runs_of(args->folder, actor, c[CACHES]));
        json_object_set_new(out, "turns", turns_of(c[TURNS]));
    }
    return out;
}

static double
number(const json_t *of, const char *key)
{
    return json_number_value(json_object_get(of, key));
}

static void
print_runs(const json_t *of, const char *key, const char *what)
{
    size_t i;
    const json_t *run;
    json_array_foreach (json_object_get(of, key), i, run)
        printf("%-10s %.0f tokens: version %.0f, SHA-256 %s\n", i == 0 ? what : "",
               number(run, "tokens"), number(run, "version"),
               json_string_value(json_object_get(run, "sha256")));
}

static void
print_turns(const json_t *answers)
{
    size_t a, i;
    const json_t *turns, *tokens;
    json_array_foreach (answers, a, turns) {
        printf("%-10s answer %zu:", a == 0 ? "turns" : "", a);
        json_array_foreach (turns, i, tokens)
            printf("%s %s %lld", i > 0 ? "," : "", i % 2 == 0 ? "policy" : "tool",
                   (long long)json_integer_value(tokens));
        printf("\n");
    }
}

static void
print_text(const json_t *d)
{
    double sent = number(d, "sent"), received = number(d, "received"),
           learned = number(d, "learned");
    printf("item       %.0f: prompt %.0f in epoch %.0f, from maker %.0f\n", number(d, "item"),
           number(d, "prompt"), number(d, "epoch"), number(d, "maker"));
    printf("answers    %.0f, mean score %.6g\n", number(d, "answers"), number(d, "score"));
    print_turns(json_object_get(d, "turns"));
    print_runs(d, "weights", "weights");
    print_runs(d, "caches", "caches");
    printf("times      sent at %.6f s, received %.6f s later, learned from %.6f s after that\n",
           sent, received - sent, learned - received);
    printf("learned    by %s, for version %.0f, SHA-256 %s\n",
           json_string_value(json_object_get(d, "trainer")), number(d, "version"),
           json_string_value(json_object_get(d, "sha256")));
}

/* Checks the whole ledger. */
static int
explain_all(const struct explain_args *args)
{
    exo_err err = {0};
    exo_ledger_of_items all;
    if (exo_ledger_of_items_check(&all, args->folder, &err) != EXO_OK)
        return exo_report(&err);
    if (args->json) {
        json_t *out = json_pack("{s:I, s:I, s:I, s:I}", "items", (json_int_t)all.items, "trainers",
                                (json_int_t)all.trainers, "versions", (json_int_t)all.versions,
                                "missing", (json_int_t)all.missing);
        if (!out)
            exo_fail(&err, EXO_NOMEM, "no memory to explain a run");
        return out && exo_print_json(out, &err) == EXO_OK ? EXO_EXIT_OK : exo_report(&err);
    }
    printf("%llu items, each learned from once, in %llu versions by %llu trainer%s\n",
           (unsigned long long)all.items, (unsigned long long)all.versions,
           (unsigned long long)all.trainers, all.trainers == 1 ? "" : "s");
    if (all.missing > 0)
        printf("%llu items before the last one were not learned from, or by trainers whose tables "
               "are on other hosts\n",
               (unsigned long long)all.missing);
    return EXO_EXIT_OK;
}

static int
explain_command(const exo_command_line *line)
{
    const struct explain_args *args = line->args;
    char actor[MAX_ACTOR];
    exo_err err = {0};
    struct row row = {0};
    if (!args->item)
        return explain_all(args);
    exo_status st = args->item[strspn(args->item, "0123456789")] == '\0' && *args->item
                        ? find_item(args, &row, actor, &err)
                        : exo_fail(&err, EXO_INVAL, "'%s' is no number of an item", args->item);
    if (st != EXO_OK)
        return exo_report(&err);
    json_t *description = describe(args, actor, &row);
    exo_free(row.text);
    if (!description) {
        exo_fail(&err, EXO_NOMEM, "no memory to explain an item");
        return exo_report(&err);
    }
    if (args->json)
        return exo_print_json(description, &err) == EXO_OK ? EXO_EXIT_OK : exo_report(&err);
    print_text(description);
    json_decref(description);
    return EXO_EXIT_OK;
}

static const exo_arg table[] = {
    {NULL, "RUN", "The folder of a run with trainers (runs/mine).",
     EXO_INTO(struct explain_args, folder), .word = EXO_WORD_FOLDER, .required = true},
    {NULL, "ITEM", "The number of an item of experience. Without it, the whole ledger is checked.",
     EXO_INTO(struct explain_args, item)},
    {"--json", NULL, "Prints an object instead of text.", EXO_INTO(struct explain_args, json)},
    {0},
};

static const exo_note examples[] = {
    {"exogym explain runs/ppo_text_1m1t 17", "Tells who made item 17, and with which weights."},
    {"exogym explain runs/ppo_text_1m1t", "Checks that each item was learned from once."},
    {0},
};

static const exo_note files[] = {
    {"RUN/learned_TRAINER.csv", "The items that a trainer has learned from."},
    {"RUN/versions_TRAINER.csv", "The versions of the weights that it has made."},
    {0},
};

const exo_command exo_command_explain = {
    .name = "explain",
    .summary = "Tells what became of an item of experience",
    .description =
        "Prints the maker of the item, the version of the weights that drew each token, "
        "with the SHA-256 of the trainer's weights in that version, the oldest version in the "
        "caches of keys and values, when the "
        "item was sent and received, and which version was made from it. Without an item, "
        "checks that no item was learned from twice, and that no version is missing. Works on "
        "a run that is still going.",
    .args = table,
    .examples = examples,
    .files = files,
    .args_size = sizeof(struct explain_args),
    .run = explain_command,
};
