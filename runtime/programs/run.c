/* `exogym run`: a job's strategies one after the other, with live progress, results, table and picture.
 *
 * Everything that can be wrong is found by exo_job_load before the first step. The first ctrl-C (or SIGTERM) lets the node
 * actors finish their step and save; the second ends the process. Read next: job.c, progress.c, results.c, plot.c.
 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <exogym/decoder.h>
#include <exogym/log.h>
#include <exogym/memory.h>

#include "actors/fit_run.h"
#include "base/config_edit.h"
#include "base/file.h"
#include "base/input.h"
#include "programs/apply.h"
#include "programs/commands.h"
#include "programs/dry_run.h"
#include "programs/job.h"
#include "programs/local_cluster.h"
#include "programs/past.h"
#include "programs/plot.h"
#include "programs/progress.h"
#include "programs/results.h"
#include "programs/run_graph.h"
#include "programs/run_report.h"
#include "programs/stopping.h"
#include "programs/text.h"

#define EXPLAIN_TIMEOUT (2 * EXO_SECOND)

struct run_args {
    const char *job_path;
    exo_job_opts job;
    const char *resume; /* NULL: not given; "" or "older" */
    bool overwrite, json, no_plot, dry_run, insecure;
    const char *workers, *transport, *head, *head_key, *keys, *cluster;
};

/* To whom a run tells how it goes. */
struct audience {
    const exo_job *job;
    const exo_job_run *run;
    exo_display *display;
    exo_run_report report;
    bool virtual_clock;
    exo_apply_box box; /* graphs that it is to go over to */
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
next_graph(void *context, uint64_t step, const exo_graph_spec *now, const exo_graph_spec **graph, const char **text)
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
    exo_apply_answer(&audience->box, &(exo_change_time){.time = at, .step = (int64_t)step}, status, reason);
    const char *again = audience->box.again ? " again, as it was before the stop" : "";
    exo_display_note(audience->display, "the graph was %schanged%s%s%s", status == EXO_OK ? "" : "not ", again,
                     status == EXO_OK ? "" : ": ", status == EXO_OK ? "" : reason);
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
    char parameters[EXO_FIGURE], samples[EXO_FIGURE], length[EXO_FIGURE * 2], seeds[EXO_FIGURE] = "";
    const exo_fit_opts *o = &job->opts;
    if (o->max_steps)
        snprintf(length, sizeof length, "%llu steps", (unsigned long long)o->max_steps);
    else
        snprintf(length, sizeof length, "%llu epoch%s", (unsigned long long)o->num_epochs,
                 o->num_epochs == 1 ? "" : "s");
    if (job->num_seeds > 1)
        snprintf(seeds, sizeof seeds, ", %zu seeds", job->num_seeds);
    exo_display_note(display, "%s: %s (%s parameters) on %s (%s samples), %u node%s, batch %zu per node, %s%s -> %s",
                     job->name, job->model_name, exo_text_count(exo_model_numel(job->model), parameters),
                     job->data_name, exo_text_count(exo_dataset_length(job->train), samples), o->num_nodes,
                     o->num_nodes == 1 ? "" : "s", o->batch_size, length, seeds, job->folder);
    size_t there = job->val ? exo_dataset_length(job->val) : 0;
    if (job->val && o->val_size > there)
        exo_display_note(display, "val_size %zu is more than the validation set has: all %s samples of it are used",
                         o->val_size, exo_text_count(there, samples));
}

/* What was read from a pipe is not there a second time: a copy in the job's folder is. The path is the caller's to free; NULL: it was a file,
 * or there is no copy. */
static char *
keep_job(const exo_job *job, const char *text)
{
    exo_err err = {0};
    exo_text path = {0};
    if (!text)
        return NULL;
    exo_text_add(&path, "%s/job.json", job->folder);
    if (!path.failed && exo_file_write_atomic(path.data, text, strlen(text), &err) == EXO_OK)
        return path.data;
    fprintf(stderr, "exogym: no copy of the job: %s\n", path.failed ? "out of memory" : err.text);
    exo_free(path.data);
    return NULL;
}

/* The command that goes on with what was stopped; to be pasted. text: of a job that was read from a pipe, else NULL. */
static void
print_how_to_resume(const exo_job *job, const exo_job_run *run, const char *text, const exo_command_line *line)
{
    const struct run_args *args = line->args;
    const char *program = program_invocation_name;
    char *copy = keep_job(job, text);
    exo_text command = {0};
    exo_text_add_quoted(&command, strchr(program, '/') ? program : "exogym");
    exo_text_add(&command, " run");
    for (int i = 0; i < line->argc; i++) {
        if (strcmp(line->argv[i], "--overwrite") == 0) /* not twice: it has been started over */
            continue;
        exo_text_add(&command, " ");
        exo_text_add_quoted(&command, copy && line->argv[i] == args->job_path ? "-" : line->argv[i]);
    }
    if (!args->resume)
        exo_text_add(&command, " --resume");
    if (copy) {
        exo_text_add(&command, " < ");
        exo_text_add_quoted(&command, copy);
    }
    fprintf(stderr, "exogym: stopped in %s, its state is saved; to go on: %s\n", run->label,
            command.data ? command.data : "the same with --resume");
    exo_free(command.data);
    exo_free(copy);
}

/* The head's cause of a node's death. It hears of a process's end before it hears how it ended. */
static void
explain(void *context, const char *space, const char *name, char *out, size_t size)
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

/* Nodes on the cluster's workers: what they are started with is what the job says, word for word. */
static exo_status
fit_far(const exo_job *job, const exo_job_run *run, const exo_fit_opts *opts, const exo_local_cluster *cluster,
        const exo_fit_live *live, exo_fit_result *result, exo_err *err)
{
    char *model = NULL, *data = NULL;
    exo_text space = {0};
    exo_text_add(&space, "%s/%s/%d", job->name, run->label, (int)getpid());
    exo_status st = exo_config_text(job->model_config, &model, err);
    if (st == EXO_OK)
        st = exo_config_text(job->data_config, &data, err);
    if (st == EXO_OK && space.failed)
        st = exo_fail(err, EXO_NOMEM, "out of memory");
    const exo_fit_far far = {.runtime = cluster->runtime,
                             .explain = explain,
                             .context = cluster->cluster,
                             .run = space.data,
                             .model = model,
                             .data = data,
                             .plugins = job->plugins,
                             .num_plugins = job->num_plugins};
    if (st == EXO_OK)
        st = exo_fit_run(job->model, job->train, job->val, run->strategy, run->options, opts, &far, run->graph, live,
                         result, err);
    exo_free(model);
    exo_free(data);
    exo_free(space.data);
    return st;
}

static exo_status
run_one(const exo_job *job, const exo_job_run *run, const exo_local_cluster *cluster, bool resume, bool older,
        exo_display *display, exo_fit_result *result, exo_err *err)
{
    exo_text folder = {0};
    exo_text_add(&folder, "%s/%s", job->folder, run->label);
    struct audience audience = {.job = job,
                                .run = run,
                                .display = display,
                                .report = {.folder = folder.failed ? NULL : folder.data, .cluster = cluster->cluster},
                                .virtual_clock = run->graph && run->graph->virtual_clock,
                                .box = {.lock = -1}};
    exo_fit_opts opts = job->opts;
    opts.save_dir = job->folder;
    opts.run_name = run->label;
    opts.seed = run->seed;
    opts.resume = resume;
    opts.resume_older = older;
    opts.config_json = run->config_json;
    opts.progress = on_progress;
    opts.context = &audience;
    opts.stop = &exo_stop_reason;
    const exo_fit_live live = {
        .context = &audience, .next = next_graph, .due = next_due, .changed = graph_changed, .finished = write_result};
    exo_status st = folder.failed ? exo_fail(err, EXO_NOMEM, "out of memory") : exo_folder_make(folder.data, err);
    if (st == EXO_OK)
        st = exo_apply_open(&audience.box, folder.data, true, run->graph, err);
    if (st == EXO_OK && resume)
        st = exo_apply_replay(&audience.box, err);
    if (st != EXO_OK)
        audience.report.folder = NULL; /* it may be another run's */
    if (st == EXO_OK && !resume)       /* nothing is left of a run before */
        exo_run_report_say(&audience.report, exo_run_report_new(0, audience.virtual_clock));
    if (st == EXO_OK)
        st = cluster->runtime ? fit_far(job, run, &opts, cluster, &live, result, err)
                              : exo_fit_run(job->model, job->train, job->val, run->strategy, run->options, &opts, NULL,
                                            run->graph, &live, result, err);
    exo_params_free(&result->params);
    bool stopped = st == EXO_CANCELLED && exo_stop_reason > 0;
    const char *lost = st == EXO_OK ? NULL : exo_local_cluster_lost(cluster);
    if (st == EXO_INVAL)
        err->code = st = EXO_FAILED; /* the job was checked: what is invalid now is a file or the model's own doing */
    exo_run_report_end(&audience.report,
                       stopped        ? EXO_RUN_STOPPED
                       : st == EXO_OK ? EXO_RUN_FINISHED
                                      : EXO_RUN_FAILED,
                       stopped || st == EXO_OK ? NULL
                       : lost                  ? lost
                                               : err->text);
    exo_run_report_close(&audience.report);
    exo_apply_release(&audience.box); /* who finds the folder without a lock finds that the run has ended */
    exo_free(folder.data);
    if (st == EXO_OK || st == EXO_CANCELLED)
        return st;
    if (lost) /* what else went wrong, went wrong for that */
        return exo_fail(err, EXO_PEER_LOST, "%s: %s", run->label, lost);
    return exo_fail_in(err, st, "%s", run->label);
}

/* Every run of the job in turn; *at is the one that it ended in. */
static exo_status
run_all(const exo_job *job, const struct run_args *args, const exo_local_cluster *cluster, exo_display *display,
        exo_fit_result *results, size_t *at, exo_err *err)
{
    exo_status st = EXO_NOMEM;
    const exo_past_opts opts = {
        .resume = args->resume != NULL, .older = args->resume && *args->resume, .overwrite = args->overwrite};
    exo_past *past = exo_calloc(job->num_runs, sizeof *past);
    if (!past) {
        exo_fail(err, EXO_NOMEM, "out of memory");
        goto done;
    }
    st = exo_past_look(job, &opts, past, results, err);
    for (size_t i = 0; st == EXO_OK && i < job->num_runs; i++) {
        *at = i;
        exo_display_begin(display, i, job->runs[i].label,
                          past[i].finished ? NULL
                          : past[i].begun  ? "goes on"
                                           : "starts");
        if (!past[i].finished)
            st = run_one(job, &job->runs[i], cluster, past[i].begun, args->resume && *args->resume, display,
                         &results[i], err);
        if (st == EXO_OK)
            exo_display_end(display, &results[i], past[i].finished);
    }
done:
    exo_free(past);
    exo_display_clear(display);
    return st;
}

/* The picture of all runs; gives its path (the caller frees it), or NULL and a line that says why there is none. */
static char *
draw_picture(const exo_job *job)
{
    exo_err err = {0};
    exo_text path = {0}, title = {0};
    exo_text *folders = exo_calloc(job->num_runs, sizeof *folders);
    const char **names = exo_calloc(job->num_runs, sizeof *names);
    exo_text_add(&path, "%s/compare.png", job->folder);
    exo_text_add(&title, "%s: %s on %s, %u node%s, batch %zu per node", job->name, job->model_name, job->data_name,
                 job->opts.num_nodes, job->opts.num_nodes == 1 ? "" : "s", job->opts.batch_size);
    bool failed = !folders || !names || path.failed || title.failed;
    for (size_t i = 0; !failed && i < job->num_runs; i++) {
        exo_text_add(&folders[i], "%s/%s", job->folder, job->runs[i].label);
        names[i] = folders[i].data;
        failed = folders[i].failed;
    }
    exo_status st = failed ? exo_fail(&err, EXO_NOMEM, "out of memory")
                           : exo_plot(names, job->num_runs, title.data, path.data, &err);
    if (st != EXO_OK) {
        fflush(stdout);
        fprintf(stderr, "exogym: no picture: %s\n", err.text);
        if (st == EXO_NOT_FOUND)
            fprintf(stderr, "exogym: with gnuplot: exogym plot %s -o %s\n", job->folder, path.data);
        exo_free(path.data);
        path.data = NULL;
    }
    for (size_t i = 0; folders && i < job->num_runs; i++)
        exo_free(folders[i].data);
    exo_free(folders);
    exo_free(names);
    exo_free(title.data);
    return path.data;
}

static int
show_results(const exo_job *job, const exo_fit_result *results, const struct run_args *args)
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
        fflush(stdout);
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

/* Links delay in the workers, too; what they and the nodes did stays there. */
static void
note_what_is_not_gathered(exo_display *display, const exo_job *job, const exo_local_cluster *cluster)
{
    for (size_t i = 0; cluster->runtime && i < job->num_runs; i++)
        if (job->runs[i].graph->emulated) {
            exo_display_note(display,
                             "on workers there is no network.json: where the nodes' time goes stays with them; "
                             "ledger.csv says what they sent");
            return;
        }
}

static int
run_job(const exo_job *job, const char *text, const exo_local_cluster *cluster, const exo_command_line *line)
{
    const struct run_args *args = line->args;
    exo_err err = {0};
    exo_display display;
    size_t at = 0;
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
    note_what_is_not_gathered(&display, job, cluster);

    exo_status st = run_all(job, args, cluster, &display, results, &at, &err);
    if (st == EXO_CANCELLED && exo_stop_reason != 0) {
        const char *lost = exo_local_cluster_lost(cluster);
        if (lost)
            fprintf(stderr, "exogym: %s\n", lost);
        print_how_to_resume(job, &job->runs[at], text, line);
        status = lost ? EXO_EXIT_FAILURE : EXO_EXIT_SIGNAL + exo_stop_reason;
    } else {
        status = st == EXO_OK ? show_results(job, results, args) : exo_report(&err);
    }
    exo_free(results);
    return status;
}

static bool
wants_cluster(const struct run_args *args)
{
    return args->workers || args->head || args->cluster;
}

static exo_status
read_cluster_args(const struct run_args *args, exo_local_cluster_opts *opts, exo_err *err)
{
    char *end = NULL;
    *opts = (exo_local_cluster_opts){.transport = args->transport ? args->transport : "ipc",
                                     .head = args->head,
                                     .head_key = args->head_key,
                                     .keys = args->keys,
                                     .cluster = args->cluster};
    unsigned long workers = args->workers ? strtoul(args->workers, &end, 10) : 0;
    if (args->workers && (*end || !*args->workers || workers < 1 || workers > EXO_MAX_WORKERS))
        return exo_fail(err, EXO_INVAL, "--workers %s: expected a number from 1 to %d", args->workers, EXO_MAX_WORKERS);
    if (args->workers && (args->head || args->cluster))
        return exo_fail(err, EXO_INVAL,
                        "--workers starts a cluster of its own: it does not go with --head or --cluster");
    if (args->dry_run && wants_cluster(args))
        return exo_fail(err, EXO_INVAL,
                        "--dry-run plans all nodes in one process: it does not go with --workers, --head or --cluster");
    if (args->resume && args->overwrite)
        return exo_fail(err, EXO_INVAL,
                        "--resume goes on with what is there, --overwrite starts it over: give one of them");
    if (args->transport && !args->workers)
        return exo_fail(err, EXO_INVAL, "--transport is for --workers");
    bool tcp = args->transport && strcmp(args->transport, "tcp") == 0;
    if (tcp && !args->insecure)
        return exo_fail(
            err, EXO_INVAL,
            "--transport tcp: every user of this host could run code as this user meanwhile: take curve, or "
            "say --insecure");
    if (args->insecure && !tcp)
        return exo_fail(err, EXO_INVAL, "--insecure is for --transport tcp");
    opts->workers = (unsigned)workers;
    return EXO_OK;
}

/* The logs of workers go to the run's folder, folder/name: what a message says of them is still there when the cluster is not. */
static exo_status
open_cluster(exo_local_cluster *cluster, exo_local_cluster_opts *opts, const char *folder, const char *name,
             exo_err *err)
{
    char *logs = NULL;
    exo_text path = {0};
    exo_text_add(&path, "%s%s%s", folder, name ? "/" : "", name ? name : "");
    exo_status st = path.failed ? exo_fail(err, EXO_NOMEM, "out of memory") : EXO_OK;
    if (st == EXO_OK && opts->workers > 0)
        st = exo_folder_make(path.data, err);
    if (st == EXO_OK && opts->workers > 0)
        opts->logs = logs = realpath(path.data, NULL);
    if (st == EXO_OK)
        st = exo_local_cluster_open(cluster, opts, err);
    (free)(logs); /* realpath's */
    opts->logs = NULL;
    exo_free(path.data);
    return st;
}

/* A graph of actors and edges rather than a training job. */
static int
run_graph_file(const struct run_args *args, exo_config_doc **doc, exo_local_cluster_opts *cluster_opts)
{
    exo_err err = {0};
    exo_graph_spec *spec = NULL;
    exo_local_cluster cluster = {0};
    const exo_graph_opts opts = {.preset = args->job.preset,
                                 .sets = args->job.sets.items,
                                 .num_sets = args->job.sets.length,
                                 .name = args->job.name};
    exo_status st = exo_graph_from(&spec, doc, &opts, &err);
    if (st == EXO_OK && args->resume)
        st = exo_fail(&err, EXO_INVAL, "--resume is for training jobs: '%s' is a graph", args->job_path);
    if (st == EXO_OK && args->dry_run)
        st = exo_fail(&err, EXO_INVAL, "--dry-run is for training jobs: '%s' is a graph (see `exogym graph plan`)",
                      args->job_path);
    if (st == EXO_OK)
        st = exo_run_graph_check(args->job.save_dir, spec, args->overwrite, &err);
    if (st == EXO_OK && wants_cluster(args)) {
        cluster_opts->job = spec->name;
        cluster_opts->lost = &exo_stop_reason;
        cluster_opts->plugins = spec->plugins;
        cluster_opts->num_plugins = spec->num_plugins;
        st = open_cluster(&cluster, cluster_opts, args->job.save_dir ? args->job.save_dir : "runs", spec->name, &err);
    }
    int status = 0;
    if (st == EXO_OK) {
        exo_stop_on_signals("\nexogym: ending; again ends at once\n");
        const exo_run_graph_opts run = {.spec = spec,
                                        .save_dir = args->job.save_dir,
                                        .overwrite = args->overwrite,
                                        .json = args->json,
                                        .cluster = &cluster,
                                        .stop = &exo_stop_reason,
                                        .explain = explain};
        status = exo_run_graph(&run);
    } else {
        status = exo_report(&err);
    }
    exo_forgive_readers();
    exo_local_cluster_close(&cluster);
    exo_graph_spec_free(&spec);
    return status;
}

/* Is it gone once it was read? */
static bool
is_pipe(const char *path)
{
    struct stat info;
    return exo_input_is_unnamed(path) || (stat(path, &info) == 0 && !S_ISREG(info.st_mode));
}

static int
run_command(const exo_command_line *line)
{
    exo_err err = {0};
    exo_job job = {0};
    exo_config_doc *doc = NULL;
    char *text = NULL;
    const struct run_args *args = line->args;
    int status;
    exo_local_cluster cluster = {0};
    exo_local_cluster_opts cluster_opts = {0};
    exo_outlive_readers();
    if (read_cluster_args(args, &cluster_opts, &err) != EXO_OK)
        return exo_report_usage(line->command, &err);
    exo_status st = exo_config_load(&doc, args->job_path, &err); /* once: it may be a pipe */
    if (st == EXO_OK && exo_graph_is(exo_config_root(doc)))
        return run_graph_file(args, &doc, &cluster_opts);
    if (st == EXO_OK && is_pipe(args->job_path))
        st = exo_config_json(exo_config_root(doc), &text, &err);
    if (st == EXO_OK)
        st = exo_job_from(&job, &doc, &args->job, &err);
    if (args->dry_run) {
        status = st == EXO_OK ? exo_dry_run(&job, args->json) : exo_report(&err);
        exo_job_release(&job);
        exo_config_free(&doc);
        exo_free(text);
        return status;
    }
    if (st == EXO_OK && !args->resume && !wants_cluster(args))
        st = exo_dry_run_check(&job, &err);
    if (st == EXO_OK)
        st = exo_past_settle(&job, args->resume != NULL, &err);
    if (st == EXO_OK && wants_cluster(args)) {
        cluster_opts.job = job.name;
        cluster_opts.lost = &exo_stop_reason;
        cluster_opts.plugins = job.plugins;
        cluster_opts.num_plugins = job.num_plugins;
        st = open_cluster(&cluster, &cluster_opts, job.folder, NULL, &err);
    }
    if (st == EXO_OK) {
        exo_stop_on_signals("\nexogym: saving a checkpoint; again ends at once\n");
        status = run_job(&job, text, &cluster, line);
    } else {
        status = exo_report(&err);
    }
    exo_forgive_readers();
    exo_local_cluster_close(&cluster);
    exo_job_release(&job);
    exo_config_free(&doc);
    exo_free(text);
    return status;
}

static const exo_arg table[] = {
    {.value = "JOB.yaml",
     .help = "The job file; docs/jobs.md describes it. It may be a pipe; - is standard input.",
     .word = EXO_WORD_FILE,
     .required = true,
     EXO_INTO(struct run_args, job_path)},
    {.name = "--set",
     .value = "KEY=VALUE",
     .help = "Overrides a value of the job; can be given again and again.",
     EXO_INTO(struct run_args, job.sets)},
    {.name = "--preset",
     .value = "NAME",
     .help = "Applies the job's preset NAME, before --set.",
     EXO_INTO(struct run_args, job.preset)},
    {.name = "--resume",
     .words = "older",
     .help = "Goes on with what was stopped, or with more steps; runs that are finished are kept. older: where the "
             "newest checkpoint is "
             "damaged, from the "
             "newest that is not.",
     EXO_INTO(struct run_args, resume)},
    {.name = "--overwrite",
     .help = "Starts finished runs over. Without it, a folder that holds one is an error.",
     EXO_INTO(struct run_args, overwrite)},
    {.name = "--dry-run",
     .help = "Prints what the job would take of memory, and runs nothing.",
     EXO_INTO(struct run_args, dry_run)},
    {.name = "--save-dir",
     .value = "DIR",
     .help = "Where run folders go, instead of the job's train.save_dir (runs).",
     .word = EXO_WORD_FOLDER,
     EXO_INTO(struct run_args, job.save_dir)},
    {.name = "--name",
     .value = "NAME",
     .help = "The run's name, instead of the job's.",
     EXO_INTO(struct run_args, job.name)},
    {.name = "--json",
     .help = "Prints the results as JSON, with bytes to the last one.",
     EXO_INTO(struct run_args, json)},
    {.name = "--workers",
     .value = "N",
     .help = "Starts a head and N workers on this machine for the nodes to run in, and stops them after.",
     EXO_INTO(struct run_args, workers)},
    {.name = "--transport",
     .value = "ipc|tcp|curve",
     .help = "How those processes talk: local sockets (the default), TCP on loopback, or TCP encrypted with CURVE.",
     .word = EXO_WORD_FIXED,
     EXO_INTO(struct run_args, transport)},
    {.name = "--insecure",
     .help = "With --transport tcp: every user of this host can run code as this user while the run goes on.",
     EXO_INTO(struct run_args, insecure)},
    {.name = "--head",
     .value = "ADDRESS",
     .help = "Runs the nodes on the workers of the cluster with this head: tcp://HOST:PORT or ipc://PATH.",
     EXO_INTO(struct run_args, head)},
    {.name = "--cluster",
     .value = "NAME",
     .help = "The same with the cluster of that name on this machine.",
     EXO_INTO(struct run_args, cluster)},
    {.name = "--head-key",
     .value = "KEY|FILE",
     .help = "The head's public key, where it has one.",
     .word = EXO_WORD_FILE,
     EXO_INTO(struct run_args, head_key)},
    {.name = "--keys",
     .value = "FILE.secret",
     .help = "This machine's keys, as exogym keygen made them.",
     .word = EXO_WORD_FILE,
     EXO_INTO(struct run_args, keys)},
    {.name = "--no-plot", .help = "Draws no picture at the end.", EXO_INTO(struct run_args, no_plot)},
    {0},
};

static const exo_note examples[] = {
    {"exogym run job.yaml --set data=mnist --set train.max_steps=10 --set compare.1.H=50",
     "Overrides the data set, the number of steps, and a value of the second strategy that is compared."},
    {"exogym run job.yaml --resume", "Goes on after ctrl-C, a lost power supply or a full disk."},
    {"exogym run job.yaml --json --no-plot >result.json", "For programs."},
    {0},
};

/* DIR and NAME as in the options. STRATEGY is the label, with `seeds` STRATEGY-seedN. */
static const exo_note files[] = {
    {"DIR/NAME/STRATEGY/config.json", "The run's settings: a job that can be run again."},
    {"DIR/NAME/STRATEGY/train.csv", "Loss and learning rate by step."},
    {"DIR/NAME/STRATEGY/validation.csv", "Local and global loss by step."},
    {"DIR/NAME/STRATEGY/metrics.csv", "Losses and accuracies by step, seconds and bytes sent."},
    {"DIR/NAME/STRATEGY/meters.csv", "All meters by step, those of strategies, models and plugins too."},
    {"DIR/NAME/STRATEGY/events.out.tfevents.*", "The same for TensorBoard."},
    {"DIR/NAME/STRATEGY/checkpoints/", "What --resume goes on from."},
    {"DIR/NAME/STRATEGY/model.safetensors", "The averaged model."},
    {"DIR/NAME/STRATEGY/tokenizer.json", "Of a language model: how its text becomes tokens."},
    {"DIR/NAME/STRATEGY/progress.json", "How the run goes, once a second; `exogym status --run` shows it."},
    {"DIR/NAME/STRATEGY/result.json", "The run's results; there only when it is finished."},
    {"DIR/NAME/result.json", "Of a job with `seeds`: all results, with means, least and largest."},
    {"DIR/NAME/job.json", "Of a job that came from a pipe and was stopped: what it was."},
    {"DIR/NAME/compare.png", "Validation loss of all runs by step, by bytes sent and by time."},
    {0},
};

const exo_note exo_run_exits[] = {
    {"0", "Done."},
    {"1", "The job was right and something failed: a missing file, a full disk, no network, a node that died."},
    {"2", "The command line or the job file is wrong."},
    {"129, 130, 143", "Stopped by SIGHUP, ctrl-C or SIGTERM; the state is saved."},
    {0},
};

const exo_command exo_command_run = {
    .name = "run",
    .summary = "Trains what a job file describes and compares its strategies",
    .description =
        "Runs the job's strategy, or those of `compare` one after the other. Everything is checked before the first "
        "step. Progress goes to standard error, the table of results and the picture's path to standard output.\n\n"
        "Ctrl-C, SIGTERM or SIGHUP saves a checkpoint, prints the command that goes on, and stops; a second ctrl-C or "
        "SIGTERM ends the process at once. With --resume the end is the same to the bit as without the stop; with a "
        "larger train.max_steps it goes on with runs that were finished, too. A folder holds one run: a job whose "
        "folders hold finished ones needs --resume, --overwrite or another name, a graph --overwrite or another name.",
    .args = table,
    .examples = examples,
    .files = files,
    .exits = exo_run_exits,
    .args_size = sizeof(struct run_args),
    .run = run_command,
};
