/* `exogym sweep`: runs a job once for each cell of a grid of values. Each cell is the job with these
 * values set; its runs lie in the job's folder under labels that name the values. All cells are
 * checked before the first step. A cell is opened again for its runs, so that one model and one data
 * set are in memory at a time. Read next: sweep_grid.h, sweep_table.h, run_job.h. */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include <exogym/decoder.h>
#include <exogym/memory.h>

#include "base/config_edit.h"
#include "base/input.h"
#include "nn/text/map64.h"
#include "programs/commands.h"
#include "programs/dry_run.h"
#include "programs/run_job.h"
#include "programs/stopping.h"
#include "programs/sweep_grid.h"
#include "programs/sweep_table.h"
#include "programs/text.h"
#include "report/json_text.h"

struct sweep_args {
    const char *job_path, *seeds;
    exo_job_opts job;
    exo_words grid;
    bool overwrite, json, no_plot, dry_run;
};

struct sweep {
    const struct sweep_args *args;
    exo_grid grid;
    char *folder; /* of the job */
    bool validates;
    char **runs; /* (num_runs) their folders */
    size_t num_runs, finished;
    exo_config_doc **configs; /* (num_runs) their configs, owned */
    size_t *first;            /* (num_cells) each cell's first run; owned */
    size_t num_first;
    exo_map64 cells; /* by the hash of a cell's configs: one more than the latest such cell */
    size_t *same;    /* (num_cells) one more than the cell before with this hash; owned */
    int label_width;
    json_t *rows; /* sweep_table.h */
};

/* A cell's job, with the texts that it was made from. */
struct cell {
    exo_job job;
    char *suffix;
    char **sets; /* (num_own), of the cell alone */
    size_t num_own;
};

/* --- Cells ------------------------------------------------------------------------------------ */

static void
close_cell(struct cell *cell)
{
    exo_job_release(&cell->job);
    for (size_t i = 0; i < cell->num_own; i++)
        exo_free(cell->sets[i]);
    exo_free(cell->sets);
    exo_free(cell->suffix);
    *cell = (struct cell){0};
}

/* Writes the cell's values, and the seeds, as assignments. */
static exo_status
make_sets(const struct sweep *s, size_t index, struct cell *cell, exo_err *err)
{
    cell->sets = exo_calloc(s->grid.num_axes + 1, sizeof *cell->sets);
    if (!cell->sets)
        return exo_fail(err, EXO_NOMEM, "out of memory");
    for (size_t a = 0; a < s->grid.num_axes; a++) {
        cell->sets[a] =
            exo_text_make(err, "%s=%s", s->grid.axes[a].key, exo_grid_value(&s->grid, index, a));
        if (!cell->sets[a])
            return EXO_NOMEM;
        cell->num_own++;
    }
    if (!s->args->seeds)
        return EXO_OK;
    cell->sets[cell->num_own] = exo_text_make(err, "seeds=%s", s->args->seeds);
    return cell->sets[cell->num_own] && ++cell->num_own ? EXO_OK : EXO_NOMEM;
}

/* Errors name the argument of an assignment, --grid or --seeds, and not --set. */
static void
name_argument(const struct sweep *s, exo_err *err)
{
    static const char before[] = "--set ";
    exo_err was = *err;
    const char *key = was.text + strlen(before);
    if (strncmp(was.text, before, strlen(before)) != 0)
        return;
    for (size_t a = 0; a < s->grid.num_axes; a++) {
        size_t length = strlen(s->grid.axes[a].key);
        if (strncmp(key, s->grid.axes[a].key, length) == 0 && key[length] == ':')
            snprintf(err->text, sizeof err->text, "--grid %s", key);
    }
    if (s->args->seeds && strncmp(key, "seeds:", 6) == 0)
        snprintf(err->text, sizeof err->text, "--%s", key);
}

/* Reads and checks the job of a cell. The caller closes the cell, also after an error. */
static exo_status
open_cell(const struct sweep *s, size_t index, struct cell *cell, exo_err *err)
{
    const struct sweep_args *args = s->args;
    exo_config_doc *doc = NULL;
    exo_job_opts opts = args->job;
    *cell = (struct cell){.suffix = exo_grid_suffix(&s->grid, index, err)};
    exo_status st = cell->suffix ? make_sets(s, index, cell, err) : EXO_NOMEM;
    const char **sets = exo_calloc(args->job.sets.length + cell->num_own + 1, sizeof *sets);
    if (st == EXO_OK && !sets)
        st = exo_fail(err, EXO_NOMEM, "out of memory");
    if (st == EXO_OK)
        st = exo_config_load(&doc, args->job_path, err);
    if (st == EXO_OK && exo_graph_is(exo_config_root(doc)))
        st =
            exo_fail(err, EXO_INVAL, "'%s' is a graph: a sweep runs training jobs", args->job_path);
    if (st == EXO_OK) {
        for (size_t i = 0; i < args->job.sets.length; i++)
            sets[i] = args->job.sets.items[i];
        memcpy(sets + args->job.sets.length, cell->sets, cell->num_own * sizeof *sets);
        opts.sets = (exo_words){.items = sets, .length = args->job.sets.length + cell->num_own};
        opts.suffix = cell->suffix;
        st = exo_job_from(&cell->job, &doc, &opts, err);
        if (st != EXO_OK)
            name_argument(s, err);
    }
    exo_config_free(&doc);
    exo_free(sets);
    return st;
}

/* --- Checks ----------------------------------------------------------------------------------- */

static const char *const named[] = {"strategy.label", NULL}; /* a cell's name is in it */

/* Whether the runs of the cell that is remembered last are those of an earlier one. */
static bool
repeats(const struct sweep *s, size_t earlier)
{
    const size_t last = s->first[s->num_first - 1], begin = s->first[earlier];
    const size_t count = s->num_runs - last;
    if (s->first[earlier + 1] - begin != count)
        return false;
    for (size_t i = 0; i < count; i++) {
        exo_text difference = {0};
        const bool differs =
            exo_config_differs(exo_config_root(s->configs[begin + i]),
                               exo_config_root(s->configs[last + i]), named, &difference);
        exo_free(difference.data);
        if (differs)
            return false;
    }
    return true;
}

/* A hash of the runs of the cell that is remembered last, for a key of the table. */
static exo_status
hash_last(const struct sweep *s, uint64_t *key, exo_err *err)
{
    exo_status st = EXO_OK;
    *key = 0;
    for (size_t i = s->first[s->num_first - 1]; st == EXO_OK && i < s->num_runs; i++) {
        uint64_t hash;
        st = exo_config_hash(exo_config_root(s->configs[i]), named, &hash, err);
        *key = exo_hash64(*key ^ hash);
    }
    *key -= *key == EXO_MAP64_NONE;
    return st;
}

/* Finds the first cell whose runs are those of the one that is remembered last, among the cells with
 * the same hash, and enters that one. *earlier is num_first: none. */
static exo_status
find_repetition(struct sweep *s, size_t *earlier, exo_err *err)
{
    uint64_t key;
    const size_t last = s->num_first - 1;
    *earlier = s->num_first;
    exo_status st = hash_last(s, &key, err);
    if (st != EXO_OK)
        return st;
    const uint64_t latest = exo_map64_get(&s->cells, key);
    s->same[last] = latest == EXO_MAP64_NONE ? 0 : (size_t)latest;
    exo_map64_set(&s->cells, key, last + 1);
    for (size_t next = s->same[last]; next > 0; next = s->same[next - 1])
        if (repeats(s, next - 1))
            *earlier = next - 1;
    return EXO_OK;
}

/* Two notations of a value give the same job, and so does a key that another --grid sets again, such as
 * `strategy` after `strategy.H`. */
static exo_status
check_repetition(struct sweep *s, exo_err *err)
{
    size_t cell;
    exo_status st = find_repetition(s, &cell, err);
    if (st != EXO_OK || cell == s->num_first)
        return st;
    char *one = exo_grid_suffix(&s->grid, cell, err),
         *other = exo_grid_suffix(&s->grid, s->num_first - 1, err);
    st = one && other ? exo_fail(err, EXO_INVAL,
                                 "--grid: the cells '%.80s' and '%.80s' are the same job: leave "
                                 "one out, or give a key that another one contains last",
                                 one + 1, other + 1)
                      : EXO_NOMEM;
    exo_free(one);
    exo_free(other);
    return st;
}

static exo_status
make_room(struct sweep *s, const exo_job *job, exo_err *err)
{
    const size_t room = s->num_runs + job->num_runs;
    char **runs = exo_realloc(s->runs, room, sizeof *runs);
    s->runs = runs ? runs : s->runs;
    exo_config_doc **configs = exo_realloc(s->configs, room, sizeof *configs);
    s->configs = configs ? configs : s->configs;
    if (!s->first)
        s->first = exo_calloc(s->grid.num_cells, sizeof *s->first);
    if (!s->same)
        s->same = exo_calloc(s->grid.num_cells, sizeof *s->same);
    const bool table = s->cells.slots || exo_map64_init(&s->cells, s->grid.num_cells);
    return runs && configs && s->first && s->same && table
               ? EXO_OK
               : exo_fail(err, EXO_NOMEM, "out of memory");
}

/* Writes the configs of the job's runs, and keeps them. A minibatch that is not chosen yet is the same
 * for all. */
static exo_status
remember_runs(struct sweep *s, exo_job *job, exo_err *err)
{
    exo_status st = make_room(s, job, err);
    if (st == EXO_OK)
        st = exo_job_write_configs(job, err);
    if (st != EXO_OK)
        return st;
    if (s->folder && strcmp(s->folder, job->folder) != 0)
        return exo_fail(err, EXO_INVAL,
                        "--grid: all runs of a sweep are in one folder, and these values give '%s' "
                        "and '%s': leave 'name' and 'train.save_dir' out",
                        s->folder, job->folder);
    s->first[s->num_first++] = s->num_runs;
    for (size_t i = 0; i < job->num_runs; i++) {
        int width = (int)strlen(job->runs[i].label);
        s->label_width = width > s->label_width ? width : s->label_width;
        s->configs[s->num_runs] = job->runs[i].config;
        job->runs[i].config = NULL;
        s->runs[s->num_runs] = exo_text_make(err, "%s/%s", job->folder, job->runs[i].label);
        if (!s->runs[s->num_runs++])
            return EXO_NOMEM;
    }
    s->validates = s->validates || job->val;
    if (!s->folder)
        s->folder = exo_text_make(err, "%s", job->folder);
    return s->folder ? EXO_OK : EXO_NOMEM;
}

/* Looks at what the folders of a cell hold. Removes it with --overwrite. */
static exo_status
look_at_past(struct sweep *s, exo_job *job, exo_err *err)
{
    static const char option[] = "--resume: ";
    const exo_past_opts opts = {.resume = !s->args->overwrite, .overwrite = s->args->overwrite};
    exo_past *past = exo_calloc(job->num_runs, sizeof *past);
    exo_fit_result *results = exo_calloc(job->num_runs, sizeof *results);
    exo_status st = past && results ? exo_past_settle(job, opts.resume, err)
                                    : exo_fail(err, EXO_NOMEM, "out of memory");
    if (st == EXO_OK)
        st = exo_past_look(job, &opts, past, results, err);
    if (st != EXO_OK && strncmp(err->text, option, strlen(option)) == 0) /* it is none of sweep's */
        memmove(err->text, err->text + strlen(option), strlen(err->text + strlen(option)) + 1);
    for (size_t i = 0; st == EXO_OK && i < job->num_runs; i++)
        s->finished += past[i].finished;
    exo_free(past);
    exo_free(results);
    return st;
}

/* Prints a cell for --dry-run: the labels of its runs without seeds, and its values. */
static void
print_cell(const struct sweep *s, const struct cell *cell)
{
    for (size_t i = 0; i < cell->job.num_runs; i += cell->job.num_seeds) {
        printf("%s:", cell->job.runs[i].group);
        for (size_t a = 0; a < s->grid.num_axes; a++)
            printf(" %s", cell->sets[a]);
        printf(cell->job.num_seeds > 1 ? ", %zu seeds\n" : "\n", cell->job.num_seeds);
    }
}

static exo_status
check_all(struct sweep *s, exo_err *err)
{
    exo_status st = EXO_OK;
    /* with --overwrite, nothing is removed before all cells are right */
    for (int pass = 0; pass < 2; pass++) {
        for (size_t i = 0; st == EXO_OK && i < s->grid.num_cells; i++) {
            struct cell cell;
            st = open_cell(s, i, &cell, err);
            if (st == EXO_OK && pass == 0)
                st = exo_job_check_edges(&cell.job, err);
            if (st == EXO_OK && pass == 0)
                st = exo_dry_run_check(&cell.job, err);
            if (st == EXO_OK && pass == 0)
                st = remember_runs(s, &cell.job, err);
            if (st == EXO_OK && pass == 0)
                st = check_repetition(s, err);
            if (st == EXO_OK && pass == 0 && s->args->dry_run)
                print_cell(s, &cell);
            if (st == EXO_OK && pass == 1)
                st = look_at_past(s, &cell.job, err);
            close_cell(&cell);
        }
        if (s->args->dry_run)
            return st;
    }
    return st;
}

/* --- Runs ------------------------------------------------------------------------------------- */

static exo_status
run_cell(struct sweep *s, size_t index, exo_display *display, size_t *done, exo_err *err)
{
    static const exo_local_cluster here = {0};
    static const exo_past_opts past = {.resume = true};
    struct cell cell;
    exo_run_at at = {0};
    exo_status st = open_cell(s, index, &cell, err);
    exo_fit_result *results = exo_calloc(cell.job.num_runs + 1, sizeof *results);
    if (st == EXO_OK && !results)
        st = exo_fail(err, EXO_NOMEM, "out of memory");
    if (st == EXO_OK)
        st = exo_past_settle(&cell.job, true, err);
    if (st == EXO_OK) {
        display->perplexity = exo_decoder_spec_of(cell.job.model) != NULL;
        st = exo_run_all(&cell.job, &past, &here, display, *done, results, &at, err);
        *done += cell.job.num_runs;
    }
    if (st == EXO_OK)
        exo_sweep_add(s->rows, &s->grid, index, &cell.job, results);
    if (st == EXO_CANCELLED)
        fprintf(
            stderr,
            at.unbegun
                ? "exogym: stopped before the first step of %s; the same command goes on with it\n"
                : "exogym: stopped in %s, its state is saved; the same command goes on with it\n",
            cell.job.runs[at.index].label);
    exo_free(results);
    close_cell(&cell);
    return st;
}

static exo_status
run_cells(struct sweep *s, exo_err *err)
{
    exo_display display;
    size_t done = 0;
    exo_status st = EXO_OK;
    exo_display_init(&display, stderr, exo_clock_real(), s->num_runs, s->label_width);
    exo_display_note(&display, "%zu cells, %zu runs, %zu of them finished before -> %s",
                     s->grid.num_cells, s->num_runs, s->finished, s->folder);
    for (size_t i = 0; st == EXO_OK && i < s->grid.num_cells; i++)
        st = run_cell(s, i, &display, &done, err);
    return st;
}

/* "NAME: KEY, KEY": above the picture. The caller frees it. */
static char *
make_title(const struct sweep *s)
{
    exo_text title = {0};
    const char *slash = strrchr(s->folder, '/');
    exo_text_add(&title, "%s: ", slash ? slash + 1 : s->folder);
    for (size_t a = 0; a < s->grid.num_axes; a++)
        exo_text_add(&title, "%s%s", a ? ", " : "", s->grid.axes[a].key);
    return title.data;
}

static int
show(const struct sweep *s)
{
    exo_err err = {0};
    char *title = make_title(s), *picture = NULL, *text = NULL;
    if (!s->args->no_plot && s->validates && title)
        picture = exo_run_draw(s->folder, "sweep.png", title, s->runs, s->num_runs);
    json_t *all = json_pack("{s:s, s:O, s:o}", "folder", s->folder, "rows", s->rows, "picture",
                            picture ? json_string(picture) : json_null());
    exo_status st = all ? exo_sweep_write(s->folder, &s->grid, all, &err)
                        : exo_fail(&err, EXO_NOMEM, "no memory for the table");
    if (s->args->json) {
        text = exo_json_dump(all, JSON_INDENT(2) | JSON_REAL_PRECISION(15));
        printf("%s\n", text ? text : "null");
    } else {
        putchar('\n');
        exo_sweep_print(s->rows);
        exo_print_path(stdout, "\ntable:   ", s->folder, "/sweep.csv\n");
        if (picture)
            exo_print_path(stdout, "picture: ", picture, "\n");
    }
    json_decref(all);
    exo_free(text);
    exo_free(picture);
    exo_free(title);
    return st == EXO_OK ? EXO_EXIT_OK : exo_report(&err);
}

/* --- The command ------------------------------------------------------------------------------ */

static exo_status
check_args(const struct sweep_args *args, exo_err *err)
{
    struct stat info;
    if (args->grid.length == 0)
        return exo_fail(err, EXO_INVAL, "--grid KEY=VALUE,VALUE,... is missing");
    if (exo_input_is_unnamed(args->job_path) ||
        (stat(args->job_path, &info) == 0 && !S_ISREG(info.st_mode)))
        return exo_fail(err, EXO_INVAL, "'%s' is no file: a sweep reads the job for each cell",
                        args->job_path);
    return EXO_OK;
}

static int
sweep_command(const exo_command_line *line)
{
    exo_err err = {0};
    struct sweep s = {.args = line->args, .rows = json_array()};
    int status = EXO_EXIT_OK;
    exo_outlive_readers();
    exo_status st = check_args(s.args, &err);
    if (st == EXO_OK)
        st = exo_grid_read(&s.grid, &s.args->grid, &err);
    for (size_t a = 0; st == EXO_OK && s.args->seeds && a < s.grid.num_axes; a++)
        if (strcmp(s.grid.axes[a].key, "seeds") == 0)
            st = exo_fail(&err, EXO_INVAL, "--seeds and --grid seeds: give one of the two");
    if (st != EXO_OK) {
        status = exo_report_usage(line->command, &err);
        goto done;
    }
    st = check_all(&s, &err);
    if (st == EXO_OK && s.args->dry_run)
        goto done;
    if (st == EXO_OK) {
        exo_stop_on_signals("\nexogym: saving a checkpoint; again ends at once\n");
        st = run_cells(&s, &err);
    }
    if (st == EXO_CANCELLED && exo_stop_reason > 0)
        status = EXO_EXIT_SIGNAL + exo_stop_reason;
    else
        status = st == EXO_OK ? show(&s) : exo_report(&err);
done:
    exo_forgive_readers();
    for (size_t i = 0; i < s.num_runs; i++) {
        exo_free(s.runs[i]);
        exo_config_free(&s.configs[i]);
    }
    exo_free(s.runs);
    exo_free(s.configs);
    exo_free(s.first);
    exo_free(s.same);
    exo_map64_release(&s.cells);
    exo_free(s.folder);
    exo_grid_release(&s.grid);
    json_decref(s.rows);
    return status;
}

static const exo_arg table[] = {
    {NULL, "JOB.yaml", "The job file; docs/jobs.md describes it.",
     EXO_INTO(struct sweep_args, job_path), .word = EXO_WORD_FILE, .required = true},
    {"--grid", "KEY=VALUE,...",
     "Values of one key of the job. Given again, every value goes with every value of the others.",
     EXO_INTO(struct sweep_args, grid)},
    {"--seeds", "N", "Runs each cell with N seeds, as the job's key `seeds`.",
     EXO_INTO(struct sweep_args, seeds)},
    {"--set", "KEY=VALUE", "Overrides a value of the job in all cells; can be given repeatedly.",
     EXO_INTO(struct sweep_args, job.sets)},
    {"--preset", "NAME", "Applies the job's preset NAME, before --set and --grid.",
     EXO_INTO(struct sweep_args, job.preset)},
    {"--dry-run", NULL, "Checks all cells, prints them, and runs nothing.",
     EXO_INTO(struct sweep_args, dry_run)},
    {"--overwrite", NULL, "Starts all cells over, finished ones too.",
     EXO_INTO(struct sweep_args, overwrite)},
    {"--save-dir", "DIR", "Where run folders go, instead of the job's train.save_dir (runs).",
     EXO_INTO(struct sweep_args, job.save_dir), .word = EXO_WORD_FOLDER},
    {"--name", "NAME", "The sweep's name, instead of the job's.",
     EXO_INTO(struct sweep_args, job.name)},
    {"--json", NULL, "Prints the results as one JSON object instead of a table.",
     EXO_INTO(struct sweep_args, json)},
    {"--no-plot", NULL, "Draws no picture at the end.", EXO_INTO(struct sweep_args, no_plot)},
    {0},
};

static const exo_note examples[] = {
    {"exogym sweep job.yaml --grid strategy.H=10,30,100 --seeds 3",
     "Nine runs: three values of H with three seeds each."},
    {"exogym sweep job.yaml --grid strategy.H=10,30 --grid strategy.optimizer.lr=1e-3,3e-4",
     "Four cells."},
    {"exogym sweep job.yaml --grid 'strategy={name: diloco, H: 10},ddp'",
     "Values may be mappings and lists."},
    {0},
};

static const exo_note files[] = {
    {"DIR/NAME/STRATEGY-KEY_VALUE/", "A run, as `exogym run` writes it; with seeds, ...-seedN."},
    {"DIR/NAME/sweep.csv", "A row for each cell and strategy: means and standard deviations."},
    {"DIR/NAME/sweep.json", "The same with least and largest."},
    {"DIR/NAME/sweep.png", "Validation loss of all cells by step, by bytes sent and by time."},
    {0},
};

const exo_command exo_command_sweep = {
    .name = "sweep",
    .summary = "Runs a job with every combination of some values",
    .description = "Each cell of the grid is the job with one value of each --grid set. All cells "
                   "are checked before the first step. Then they run one after the other, and a "
                   "table shows mean and standard deviation over the seeds.\n\n"
                   "The same command goes on where a sweep was stopped or killed: finished runs "
                   "are kept, the others go on from their checkpoints. A grid may grow. A job that "
                   "was changed meanwhile is an error, which names the first difference.",
    .args = table,
    .examples = examples,
    .files = files,
    .exits = exo_run_exits,
    .args_size = sizeof(struct sweep_args),
    .run = sweep_command,
};
