/* Runs a job's strategies one after the other, with progress, results, table and picture: see
 * run_job.h. The first ctrl-C (or SIGTERM) lets the node actors finish their step and save a
 * checkpoint; the second ends the process. Read next: progress.c, results.c, plot.c. */
#include "programs/run_job.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <exogym/decoder.h>
#include <exogym/memory.h>

#include "actors/checkpoint.h"
#include "actors/fit_run.h"
#include "actors/reshard.h"
#include "actors/run_folder.h"
#include "base/config_edit.h"
#include "base/file.h"
#include "programs/apply.h"
#include "programs/commands.h"
#include "programs/past.h"
#include "programs/plot.h"
#include "programs/program.h"
#include "programs/progress.h"
#include "programs/results.h"
#include "programs/run_report.h"
#include "programs/stopping.h"
#include "programs/text.h"

#define EXPLAIN_TIMEOUT (2 * EXO_SECOND)

/* The receivers of a run's progress. */
struct audience {
    const exo_job *job;
    const exo_job_run *run;
    exo_display *display;
    exo_run_report report;
    bool virtual_clock;
    exo_apply_box box; /* requests to change the graph */
};

static void
on_progress(void *context, const exo_progress *p)
{
    struct audience *audience = context;
    exo_display_step(audience->display, p);
    json_t *report = exo_run_report_new(p->elapsed, audience->virtual_clock);
    json_object_set_new(report, "max_steps", json_integer((json_int_t)p->max_steps));
    exo_run_report_add_edge(report, p->edge, &p->traffic);
    exo_run_report_add_meters(report, p->meters);
    if (p->step == p->max_steps || exo_run_report_is_due(&audience->report))
        exo_run_report_say(&audience->report, report);
    else
        exo_run_report_keep(&audience->report, report);
}

static bool
next_graph(void *context, uint64_t step, const exo_graph_spec *now, const exo_graph_spec **graph,
           const char **text)
{
    struct audience *audience = context;
    return exo_apply_next(&audience->box, step, now, graph, text);
}

static uint64_t
next_due(void *context)
{
    const struct audience *audience = context;
    return exo_apply_due(&audience->box);
}

static void
graph_changed(void *context, uint64_t step, exo_time at, exo_status status, const char *reason)
{
    struct audience *audience = context;
    exo_apply_answer(&audience->box, &(exo_change_time){.time = at, .step = (int64_t)step}, status,
                     reason);
    const char *again = audience->box.again ? " again, as it was before the stop" : "";
    exo_display_note(audience->display, "the graph was %schanged%s%s%s",
                     status == EXO_OK ? "" : "not ", again, status == EXO_OK ? "" : ": ",
                     status == EXO_OK ? "" : reason);
}

static void
note_line(void *context, const char *line)
{
    exo_display_note(((struct audience *)context)->display, "%s", line);
}

static exo_status
write_result(void *context, const exo_fit_result *result, const exo_meters *meters, exo_err *err)
{
    const struct audience *audience = context;
    return exo_result_write(audience->job, audience->run, result, meters, err);
}

static void
print_banner(exo_display *display, const exo_job *job)
{
    char parameters[EXO_FIGURE], samples[EXO_FIGURE], length[EXO_FIGURE * 2],
        seeds[EXO_FIGURE] = "";
    const exo_fit_opts *o = &job->opts;
    if (o->max_steps)
        snprintf(length, sizeof length, "%llu step%s", (unsigned long long)o->max_steps,
                 o->max_steps == 1 ? "" : "s");
    else
        snprintf(length, sizeof length, "%llu epoch%s", (unsigned long long)o->num_epochs,
                 o->num_epochs == 1 ? "" : "s");
    if (job->num_seeds > 1)
        snprintf(seeds, sizeof seeds, ", %zu seeds", job->num_seeds);
    exo_display_note(
        display,
        "%s: %s (%s parameters) on %s (%s sample%s), %u node%s, batch %zu per node, %s%s -> %s",
        job->name, job->model_name, exo_text_count(exo_model_numel(job->model), parameters),
        job->data_name, exo_text_count(exo_dataset_length(job->train), samples),
        exo_dataset_length(job->train) == 1 ? "" : "s", o->num_nodes, o->num_nodes == 1 ? "" : "s",
        o->batch_size, length, seeds, job->folder);
    size_t there = job->val ? exo_dataset_length(job->val) : 0;
    if (job->val && o->val_size > there)
        exo_display_note(display,
                         "val_size %zu is more than the validation set has: its %s sample%s used",
                         o->val_size, exo_text_count(there, samples), there == 1 ? " is" : "s are");
}

/* Copies a job that was read from a pipe to the job's folder, because the pipe cannot be read
 * again. Returns the path, which the caller frees; NULL: the job was in a file, or the copy
 * failed. */
static char *
keep_job(const exo_job *job, const char *text)
{
    exo_err err = {0};
    if (!text)
        return NULL;
    char *path = exo_text_make(&err, "%s/job.json", job->folder);
    if (path && exo_file_write_atomic(path, text, strlen(text), &err) == EXO_OK)
        return path;
    fprintf(stderr, "exogym: no copy of the job: %s\n", err.text);
    exo_free(path);
    return NULL;
}

char *
exo_run_resume_command(const exo_command_line *line, const char *copy, bool begun)
{
    const exo_run_args *args = line->args;
    const char *program = program_invocation_name;
    exo_text command = {0};
    exo_text_add_quoted(&command, strchr(program, '/') ? program : "exogym");
    exo_text_add(&command, " run");
    for (int i = 0; i < line->argc; i++) {
        /* the run was already started over */
        if (begun && strcmp(line->argv[i], "--overwrite") == 0)
            continue;
        exo_text_add(&command, " ");
        exo_text_add_quoted(&command,
                            copy && line->argv[i] == args->job_path ? "-" : line->argv[i]);
    }
    if (begun && !args->resume)
        exo_text_add(&command, " --resume");
    if (copy) {
        exo_text_add(&command, " < ");
        exo_text_add_quoted(&command, copy);
    }
    return command.data;
}

/* text: of a job that was read from a pipe, else NULL. begun: as of exo_run_resume_command. */
static void
print_how_to_resume(const exo_job *job, const exo_job_run *run, const char *text,
                    const exo_command_line *line, bool begun)
{
    char *copy = keep_job(job, text), *command = exo_run_resume_command(line, copy, begun);
    fprintf(stderr, "exogym: stopped in %s, %s; to go on: %s\n", run->label,
            begun ? "its state is saved" : "before its first step",
            command ? command : "the same with --resume");
    exo_free(command);
    exo_free(copy);
}

/* Retries, because the head learns of a process's end before it learns the cause. */
void
exo_run_explain(void *context, const char *space, const char *name, char *out, size_t size)
{
    exo_time patience = exo_deadline(exo_clock_real(), EXPLAIN_TIMEOUT);
    do {
        char *text = NULL;
        if (exo_cluster_why(context, space, name, patience, &text, NULL) == EXO_OK) {
            const char *cause = strstr(text, "\ncause: ");
            cause = cause ? cause + strlen("\ncause: ") : "";
            snprintf(out, size, "%.*s", (int)strcspn(cause, "\n"), cause);
        }
        exo_free(text);
        if (out[0] && !strstr(out, "' is lost: "))
            return;
        nanosleep(&(struct timespec){.tv_nsec = 20 * EXO_MS}, NULL);
    } while (exo_now(exo_clock_real()) < patience);
}

/* Runs the nodes on the cluster's workers, which get the job's model and data as text, word for
 * word. */
static exo_status
fit_far(const exo_job *job, const exo_job_run *run, const exo_fit_opts *opts,
        const exo_local_cluster *cluster, const exo_fit_live *live, exo_fit_result *result,
        exo_err *err)
{
    char *model = NULL, *data = NULL,
         *space = exo_text_make(err, "%s/%s/%d", job->name, run->label, (int)getpid());
    exo_status st = space ? exo_config_text(job->model_config, &model, err) : EXO_NOMEM;
    if (st == EXO_OK)
        st = exo_config_text(job->data_config, &data, err);
    const exo_fit_far far = {.runtime = cluster->runtime,
                             .explain = exo_run_explain,
                             .context = cluster->cluster,
                             .run = space,
                             .model = model,
                             .data = data,
                             .plugins = job->plugins,
                             .num_plugins = job->num_plugins};
    if (st == EXO_OK)
        st = exo_fit_run(job->model, job->train, job->val, run->strategy, run->options, opts, &far,
                         run->graph, live, result, err);
    exo_free(model);
    exo_free(data);
    exo_free(space);
    return st;
}

/* Converts the newest checkpoint in the run's folder to the job's nodes, if it has others. */
static exo_status
convert_checkpoint(const exo_job *job, const exo_job_run *run, const char *folder,
                   exo_display *display, exo_err *err)
{
    char newest[EXO_CHECKPOINT_PATH];
    const exo_reshard_form to = exo_past_form(job, run);
    exo_resharded done;
    bool differs = false;
    int lock = -1;
    if (!exo_checkpoint_newest(folder, newest))
        return EXO_OK;
    exo_status st = exo_run_lock(folder, &lock, err);
    if (st == EXO_OK)
        st = exo_checkpoint_verify(newest, err);
    if (st == EXO_OK)
        st = exo_reshard_differs(newest, &to, &differs, err);
    if (st == EXO_OK && differs)
        st = exo_reshard(job->model, newest, folder, &to, &done, err);
    if (st == EXO_OK && differs)
        exo_display_note(display, "%s: the checkpoint of step %llu is converted: %s", run->label,
                         (unsigned long long)done.step, done.change);
    if (lock >= 0)
        close(lock);
    return st;
}

static exo_status
run_one(const exo_job *job, const exo_job_run *run, const exo_local_cluster *cluster, bool resume,
        const exo_past_opts *past, exo_display *display, exo_fit_result *result, bool *unbegun,
        exo_err *err)
{
    char *folder = exo_text_make(err, "%s/%s", job->folder, run->label);
    struct audience audience = {.job = job,
                                .run = run,
                                .display = display,
                                .report = {.folder = folder, .cluster = cluster->cluster},
                                .virtual_clock = run->graph && run->graph->virtual_clock,
                                .box = {.lock = -1}};
    exo_fit_opts opts = job->opts;
    opts.save_dir = job->folder;
    opts.run_name = run->label;
    opts.seed = run->seed;
    opts.resume = resume;
    opts.resume_older = past->older;
    opts.config_json = run->config_json;
    opts.progress = on_progress;
    opts.context = &audience;
    opts.stop = &exo_stop_reason;
    const exo_fit_live live = {.context = &audience,
                               .next = next_graph,
                               .due = next_due,
                               .changed = graph_changed,
                               .note = note_line,
                               .finished = write_result,
                               .unbegun = unbegun};
    exo_status st = folder ? exo_folder_make(folder, err) : EXO_NOMEM;
    if (st == EXO_OK)
        st = exo_apply_open(&audience.box, folder, true, run->graph, err);
    if (st == EXO_OK && resume)
        st = exo_apply_replay(&audience.box, err);
    if (st != EXO_OK)
        audience.report.folder = NULL; /* the folder may belong to another run */
    if (st == EXO_OK && resume && past->reshard)
        st = convert_checkpoint(job, run, folder, display, err);
    if (st == EXO_OK && !resume) /* replaces the report of an earlier run */
        exo_run_report_say(&audience.report, exo_run_report_new(0, audience.virtual_clock));
    if (st == EXO_OK)
        st = cluster->runtime
                 ? fit_far(job, run, &opts, cluster, &live, result, err)
                 : exo_fit_run(job->model, job->train, job->val, run->strategy, run->options, &opts,
                               NULL, run->graph, &live, result, err);
    exo_params_free(&result->params);
    bool stopped = st == EXO_CANCELLED && exo_stop_reason > 0;
    const char *lost = st == EXO_OK ? NULL : exo_local_cluster_lost(cluster);
    if (st == EXO_INVAL)
        err->code = st = EXO_FAILED; /* the job was checked: a file or the model is at fault */
    /* clang-format off */
    exo_run_report_end(&audience.report,
                       stopped ? EXO_RUN_STOPPED : st == EXO_OK ? EXO_RUN_FINISHED : EXO_RUN_FAILED,
                       stopped || st == EXO_OK ? NULL : lost ? lost : err->text);
    /* clang-format on */
    exo_run_report_close(&audience.report);
    exo_apply_release(&audience.box); /* after the report: without a lock, it is taken as final */
    exo_free(folder);
    if (st == EXO_OK || st == EXO_CANCELLED)
        return st;
    if (lost) /* the loss of the head caused all other errors */
        return exo_fail(err, EXO_PEER_LOST, "%s: %s", run->label, lost);
    return exo_fail_in(err, st, "%s", run->label);
}

exo_status
exo_run_all(const exo_job *job, const exo_past_opts *opts, const exo_local_cluster *cluster,
            exo_display *display, size_t first, exo_fit_result *results, exo_run_at *at,
            exo_err *err)
{
    exo_status st = EXO_NOMEM;
    exo_past *past = exo_calloc(job->num_runs, sizeof *past);
    if (!past) {
        exo_fail(err, EXO_NOMEM, "out of memory");
        goto done;
    }
    st = exo_past_look(job, opts, past, results, err);
    for (size_t i = 0; st == EXO_OK && i < job->num_runs; i++) {
        *at = (exo_run_at){.index = i};
        exo_display_begin(display, first + i, job->runs[i].label,
                          past[i].finished ? NULL
                          : past[i].begun  ? "goes on"
                                           : "starts");
        if (!past[i].finished)
            st = run_one(job, &job->runs[i], cluster, past[i].begun, opts, display, &results[i],
                         &at->unbegun, err);
        if (st == EXO_OK)
            exo_display_end(display, &results[i], past[i].finished);
    }
done:
    exo_free(past);
    exo_display_clear(display);
    return st;
}

char *
exo_run_draw(const char *folder, const char *file, const char *title, char *const *runs,
             size_t count)
{
    exo_err err = {0};
    char *path = exo_text_make(NULL, "%s/%s", folder, file);
    exo_status st = path ? exo_plot((const char *const *)runs, count, title, path, &err)
                         : exo_fail(&err, EXO_NOMEM, "out of memory");
    if (st != EXO_OK) {
        exo_flush_output();
        fprintf(stderr, "exogym: no picture: %s\n", err.text);
        if (st == EXO_NOT_FOUND)
            fprintf(stderr, "exogym: with gnuplot: exogym plot %s -o %s\n", folder, path);
        exo_free(path);
        path = NULL;
    }
    return path;
}

/* Draws the picture of all runs, as exo_run_draw. */
static char *
draw_picture(const exo_job *job)
{
    char *picture = NULL, **runs = exo_calloc(job->num_runs, sizeof *runs);
    char *title = exo_text_make(NULL, "%s: %s on %s, %u node%s, batch %zu per node", job->name,
                                job->model_name, job->data_name, job->opts.num_nodes,
                                job->opts.num_nodes == 1 ? "" : "s", job->opts.batch_size);
    bool failed = !runs || !title;
    for (size_t i = 0; !failed && i < job->num_runs; i++)
        failed = !(runs[i] = exo_text_make(NULL, "%s/%s", job->folder, job->runs[i].label));
    if (failed)
        fprintf(stderr, "exogym: no picture: out of memory\n");
    else
        picture = exo_run_draw(job->folder, "compare.png", title, runs, job->num_runs);
    for (size_t i = 0; runs && i < job->num_runs; i++)
        exo_free(runs[i]);
    exo_free(runs);
    exo_free(title);
    return picture;
}

static int
show_results(const exo_job *job, const exo_fit_result *results, const exo_run_args *args)
{
    exo_err err = {0};
    int status = EXO_EXIT_OK;
    if (!args->json) {
        fputc('\n', stdout);
        exo_results_print_table(stdout, job, results);
        fputc('\n', stdout);
        exo_results_print_ledger(stdout, job, results);
        for (size_t i = 0; i < job->num_runs; i++)
            if (job->runs[i].graph->emulated || job->runs[i].graph->virtual_clock)
                exo_results_print_network(stdout, job, i);
        fputc('\n', stdout);
        exo_print_path(stdout, "files:   ", job->folder, "\n");
        exo_flush_output();
    }
    char *picture = args->no_plot || !job->val ? NULL : draw_picture(job);
    if (exo_results_write_seeds(job, results, picture, &err) != EXO_OK)
        status = exo_report(&err);
    if (args->json) {
        if (exo_results_print_json(stdout, job, results, picture, &err) != EXO_OK)
            status = exo_report(&err);
    } else if (picture) {
        exo_print_path(stdout, "picture: ", picture, "\n");
    }
    exo_free(picture);
    return status;
}

/* Emulated links also work on workers, but their statistics are not gathered. */
static void
note_what_is_not_gathered(exo_display *display, const exo_job *job,
                          const exo_local_cluster *cluster)
{
    for (size_t i = 0; cluster->runtime && i < job->num_runs; i++)
        if (job->runs[i].graph->emulated) {
            exo_display_note(
                display,
                "on workers there is no network.json: where the nodes' time goes stays with them; "
                "ledger.csv says what they sent");
            return;
        }
}

static bool
is_word(const char *text, const char *word)
{
    return text && strcmp(text, word) == 0;
}

int
exo_run_job(const exo_job *job, const char *text, const exo_local_cluster *cluster,
            const exo_command_line *line)
{
    const exo_run_args *args = line->args;
    exo_err err = {0};
    exo_display display;
    exo_run_at at = {0};
    int label_width = 0, status = EXO_EXIT_OK;
    exo_fit_result *results = exo_calloc(job->num_runs, sizeof *results);
    if (!results) {
        exo_fail(&err, EXO_NOMEM, "out of memory");
        return exo_report(&err);
    }
    for (size_t i = 0; i < job->num_runs; i++)
        if ((int)strlen(job->runs[i].label) > label_width)
            label_width = (int)strlen(job->runs[i].label);
    exo_display_init(&display, stderr, exo_clock_real(), job->num_runs, label_width);
    display.perplexity = exo_decoder_spec_of(job->model) != NULL;
    print_banner(&display, job);
    if (job->chosen)
        exo_display_note(&display, "%s", job->chosen);
    note_what_is_not_gathered(&display, job, cluster);

    const exo_past_opts past = {.resume = args->resume != NULL,
                                .older = is_word(args->resume, "older"),
                                .reshard = is_word(args->resume, "reshard"),
                                .overwrite = args->overwrite};
    exo_status st = exo_run_all(job, &past, cluster, &display, 0, results, &at, &err);
    if (st == EXO_CANCELLED && exo_stop_reason != 0) {
        const char *lost = exo_local_cluster_lost(cluster);
        if (lost)
            fprintf(stderr, "exogym: %s\n", lost);
        print_how_to_resume(job, &job->runs[at.index], text, line, at.index > 0 || !at.unbegun);
        status = lost ? EXO_EXIT_FAILURE : EXO_EXIT_SIGNAL + exo_stop_reason;
    } else {
        status = st == EXO_OK ? show_results(job, results, args) : exo_report(&err);
    }
    exo_free(results);
    return status;
}
