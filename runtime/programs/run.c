/* `exogym run`: reads the command line and the file that it names, opens the cluster if there is
 * one, and runs the file's training job (run_job.c) or graph (run_graph.c). exo_job_from finds
 * mistakes in a job before the first step. Read next: job.c. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <exogym/memory.h>

#include "base/file.h"
#include "base/input.h"
#include "programs/commands.h"
#include "programs/dry_run.h"
#include "programs/graph_folder.h"
#include "programs/mpi_job.h"
#include "programs/past.h"
#include "programs/run_graph.h"
#include "programs/run_job.h"
#include "programs/stopping.h"
#include "programs/text.h"
#include "programs/warnings.h"

static bool
wants_cluster(const exo_run_args *args)
{
    return args->workers || args->head || args->cluster;
}

/* NCCL accepts its own connections from any network, and proves nothing of them: between processes of one host it
 * listens on the loopback interface alone, unless the user has named another. They inherit it. */
static void
keep_nccl_here(const exo_run_args *args, const exo_mpi_job *mpi)
{
    if (!args->head && !args->cluster && mpi->size <= 1)
        setenv("NCCL_SOCKET_IFNAME", "=lo", 0);
}

/* The nodes of this process compute on a device that is there, before anything is written. */
static exo_status
check_device(const exo_job *job, exo_err *err)
{
    exo_device *device = NULL;
    exo_status st = exo_device_open(&device, job->opts.device, err);
    exo_device_close(&device);
    return st;
}

/* mpi: its ranks are the workers if there are several. */
static exo_status
read_cluster_args(const exo_run_args *args, exo_mpi_job *mpi, exo_local_cluster_opts *opts,
                  exo_err *err)
{
    char *end = NULL;
    if (mpi->size > 1 && wants_cluster(args))
        return exo_fail(err, EXO_INVAL,
                        "the ranks of MPI are the workers: mpirun does not go with --workers, "
                        "--head or --cluster");
    *opts = (exo_local_cluster_opts){.transport = args->transport ? args->transport : "ipc",
                                     .head = args->head,
                                     .head_key = args->head_key,
                                     .keys = args->keys,
                                     .cluster = args->cluster};
    unsigned long workers = args->workers ? strtoul(args->workers, &end, 10) : 0;
    if (args->workers && (*end || !*args->workers || workers < 1 || workers > EXO_MAX_WORKERS))
        return exo_fail(err, EXO_INVAL, "--workers %s: expected a number from 1 to %d",
                        args->workers, EXO_MAX_WORKERS);
    if (args->workers && (args->head || args->cluster))
        return exo_fail(
            err, EXO_INVAL,
            "--workers starts a cluster of its own: it does not go with --head or --cluster");
    if ((args->keys || args->head_key) && !args->head && !args->cluster)
        return exo_fail(err, EXO_INVAL,
                        "%s is for a cluster that runs already: name it by --head or --cluster",
                        args->keys ? "--keys" : "--head-key");
    if (args->dry_run && wants_cluster(args))
        return exo_fail(err, EXO_INVAL,
                        "--dry-run plans all nodes in one process: it does not go with --workers, "
                        "--head or --cluster");
    if (args->resume && args->overwrite)
        return exo_fail(
            err, EXO_INVAL,
            "--resume goes on with what is there, --overwrite starts it over: give one of them");
    if (args->transport && !args->workers)
        return exo_fail(err, EXO_INVAL, "--transport is for --workers");
    bool tcp = args->transport && strcmp(args->transport, "tcp") == 0;
    if (tcp && !args->insecure)
        return exo_fail(err, EXO_INVAL,
                        "--transport tcp: every user of this host could run code as this user "
                        "meanwhile: take curve, or say --insecure");
    if (args->insecure && !tcp)
        return exo_fail(err, EXO_INVAL, "--insecure is for --transport tcp");
    opts->workers = (unsigned)workers;
    opts->mpi = mpi->size > 1 && !args->dry_run ? mpi : NULL;
    return EXO_OK;
}

/* Opens the cluster. The workers' logs go to the run's folder, folder/name, because messages refer
 * to them after the cluster has ended. */
static exo_status
open_cluster(exo_local_cluster *cluster, exo_local_cluster_opts *opts, const char *folder,
             const char *name, exo_err *err)
{
    char *logs = NULL,
         *path = exo_text_make(err, "%s%s%s", folder, name ? "/" : "", name ? name : "");
    exo_status st = path ? EXO_OK : EXO_NOMEM;
    if (st == EXO_OK && (opts->workers > 0 || opts->mpi))
        st = exo_folder_make(path, err);
    if (st == EXO_OK && opts->workers > 0)
        opts->logs = logs = realpath(path, NULL);
    if (st == EXO_OK)
        st = exo_local_cluster_open(cluster, opts, err);
    (free)(logs); /* realpath allocates with malloc */
    opts->logs = NULL;
    exo_free(path);
    return st;
}

/* root: of a file whose actors or nodes would run on workers. */
static exo_status
refuse_virtual(exo_config *root, exo_err *err)
{
    return exo_config_fail(exo_config_get(root, "clock"), err,
                           "the virtual clock is for one process: run without --workers, "
                           "--head, --cluster and mpirun, or set clock: real");
}

/* Can the path be read only once? */
static bool
is_pipe(const char *path)
{
    struct stat info;
    return exo_input_is_unnamed(path) || (stat(path, &info) == 0 && !S_ISREG(info.st_mode));
}

/* Prints the command that resumes the graph's stopped run, if a class of the graph resumes. */
static void
print_how_to_resume(const exo_graph_spec *spec, const exo_command_line *line)
{
    const exo_run_args *args = line->args;
    if (!exo_graph_folder_can_resume(spec))
        return;
    char *command = is_pipe(args->job_path) ? NULL : exo_run_resume_command(line, NULL, true);
    fprintf(stderr, "exogym: stopped in %s; to go on from its newest checkpoints: %s\n", spec->name,
            command ? command : "the same with --resume");
    exo_free(command);
}

/* Runs a file that has a graph of actors and edges instead of a training job. */
static int
run_graph_file(const exo_command_line *line, exo_config_doc **doc,
               exo_local_cluster_opts *cluster_opts)
{
    const exo_run_args *args = line->args;
    exo_err err = {0};
    exo_graph_spec *spec = NULL;
    exo_local_cluster cluster = {0};
    const exo_graph_opts opts = {.preset = args->job.preset,
                                 .sets = args->job.sets.items,
                                 .num_sets = args->job.sets.length,
                                 .name = args->job.name,
                                 .runs = true};
    exo_status st = exo_graph_from(&spec, doc, &opts, &err);
    if (st == EXO_OK && args->dry_run)
        st = exo_fail(&err, EXO_INVAL,
                      "--dry-run is for training jobs: '%s' is a graph (see `exogym graph plan`)",
                      args->job_path);
    const bool far = wants_cluster(args) || cluster_opts->mpi;
    if (st == EXO_OK)
        st = exo_warn_of_idle((const exo_graph_spec *const *)&spec, 1, &err);
    if (st == EXO_OK)
        st = exo_run_graph_check(args->job.save_dir, spec, args->overwrite, args->resume != NULL,
                                 &err);
    if (st == EXO_OK && far && spec->virtual_clock)
        st = refuse_virtual(spec->root, &err);
    if (st == EXO_OK && far) {
        cluster_opts->job = spec->name;
        cluster_opts->lost = &exo_stop_reason;
        cluster_opts->plugins = spec->plugins;
        cluster_opts->num_plugins = spec->num_plugins;
        st = open_cluster(&cluster, cluster_opts, args->job.save_dir ? args->job.save_dir : "runs",
                          spec->name, &err);
    }
    int status = 0;
    if (st == EXO_OK) {
        exo_stop_on_signals("\nexogym: ending; again ends at once\n");
        const exo_run_graph_opts run = {.spec = spec,
                                        .save_dir = args->job.save_dir,
                                        .overwrite = args->overwrite,
                                        .resume = args->resume != NULL,
                                        .json = args->json,
                                        .cluster = &cluster,
                                        .stop = &exo_stop_reason,
                                        .explain = exo_run_explain};
        status = exo_run_graph(&run);
        if (status > EXO_EXIT_SIGNAL)
            print_how_to_resume(spec, line);
    } else {
        status = exo_report(&err);
    }
    exo_forgive_readers();
    exo_local_cluster_close(&cluster);
    exo_graph_spec_free(&spec);
    return status;
}

/* Warns of what has no effect under any strategy. The graphs of a group's runs differ in the seed. */
static exo_status
warn_of_job(const exo_job *job, exo_err *err)
{
    size_t count = 0;
    const exo_graph_spec **graphs = exo_calloc(job->num_runs, sizeof *graphs);
    if (!graphs)
        return exo_fail(err, EXO_NOMEM, "out of memory");
    for (size_t i = 0; i < job->num_runs; i += job->num_seeds)
        graphs[count++] = job->runs[i].graph;
    exo_status st = exo_warn_of_idle(graphs, count, err);
    exo_free(graphs);
    return st;
}

/* Checks a job against where it runs. */
static exo_status
check_job(const exo_run_args *args, const exo_job *job, bool far, exo_err *err)
{
    exo_config *root = exo_config_root(job->doc);
    exo_status st = exo_job_check_edges(job, err);
    if (st == EXO_OK && job->opts.engine && strcmp(job->opts.engine, "mpi") == 0 &&
        wants_cluster(args))
        return exo_config_fail(exo_config_get(root, "engine"), err,
                               "engine mpi is for processes that MPI starts: mpirun -n N exogym "
                               "run ..., without --workers, --head and --cluster");
    if (st == EXO_OK && far && job->runs[0].graph->virtual_clock)
        return refuse_virtual(root, err);
    return st == EXO_OK && !far && !args->dry_run ? check_device(job, err) : st;
}

static int
run_file(const exo_command_line *line, exo_mpi_job *mpi)
{
    exo_err err = {0};
    exo_job job = {0};
    exo_config_doc *doc = NULL;
    char *text = NULL;
    const exo_run_args *args = line->args;
    int status;
    exo_local_cluster cluster = {0};
    exo_local_cluster_opts cluster_opts = {0};
    if (read_cluster_args(args, mpi, &cluster_opts, &err) != EXO_OK)
        return exo_report_usage(line->command, &err);
    /* the file may be a pipe, which can be read only once */
    exo_status st = exo_config_load(&doc, args->job_path, &err);
    if (st == EXO_OK && exo_graph_is(exo_config_root(doc)))
        return run_graph_file(line, &doc, &cluster_opts);
    if (st == EXO_OK && is_pipe(args->job_path))
        st = exo_config_json(exo_config_root(doc), &text, &err);
    if (st == EXO_OK)
        st = exo_job_from(&job, &doc, &args->job, &err);
    const bool far = wants_cluster(args) || cluster_opts.mpi;
    if (st == EXO_OK)
        st = check_job(args, &job, far, &err);
    if (st == EXO_OK)
        st = warn_of_job(&job, &err);
    if (args->dry_run) {
        status = st == EXO_OK ? exo_dry_run(&job, args->json) : exo_report(&err);
        exo_job_release(&job);
        exo_config_free(&doc);
        exo_free(text);
        return status;
    }
    if (st == EXO_OK && !args->resume && !far)
        st = exo_dry_run_check(&job, &err);
    if (st == EXO_OK)
        st = exo_past_settle(&job, args->resume != NULL, &err);
    if (st == EXO_OK && far) {
        cluster_opts.job = job.name;
        cluster_opts.lost = &exo_stop_reason;
        cluster_opts.plugins = job.plugins;
        cluster_opts.num_plugins = job.num_plugins;
        st = open_cluster(&cluster, &cluster_opts, job.folder, NULL, &err);
    }
    if (st == EXO_OK) {
        exo_stop_on_signals("\nexogym: saving a checkpoint; again ends at once\n");
        status = exo_run_job(&job, text, &cluster, line);
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

static int
run_command(const exo_command_line *line)
{
    exo_err err = {0};
    exo_mpi_job mpi;
    exo_outlive_readers();
    if (exo_mpi_job_begin(&mpi, &err) != EXO_OK)
        return exo_report(&err);
    if (mpi.rank > 0)
        return exo_mpi_job_serve(&mpi);
    keep_nccl_here(line->args, &mpi);
    int status = run_file(line, &mpi);
    exo_mpi_job_end(&mpi);
    return status;
}

static const exo_arg table[] = {
    {NULL, "JOB.yaml",
     "The job file; docs/jobs.md describes it. It may be a pipe; - is standard input.",
     EXO_INTO(exo_run_args, job_path), .word = EXO_WORD_FILE, .required = true},
    {"--set", "KEY=VALUE", "Overrides a value of the job; can be given again and again.",
     EXO_INTO(exo_run_args, job.sets)},
    {"--preset", "NAME", "Applies the job's preset NAME, before --set.",
     EXO_INTO(exo_run_args, job.preset)},
    {"--resume", NULL,
     "Goes on with what was stopped, or with more steps; runs that are finished are kept. older: "
     "where the newest checkpoint is damaged, from the newest that is not. reshard: on other nodes "
     "than before; the newest checkpoint of ddp or fsdp is converted to them.",
     EXO_INTO(exo_run_args, resume), .words = "older|reshard"},
    {"--overwrite", NULL,
     "Starts finished runs over. Without it, a folder that holds one is an error.",
     EXO_INTO(exo_run_args, overwrite)},
    {"--dry-run", NULL, "Prints what the job would take of memory, and runs nothing.",
     EXO_INTO(exo_run_args, dry_run)},
    {"--save-dir", "DIR", "Where run folders go, instead of the job's train.save_dir (runs).",
     EXO_INTO(exo_run_args, job.save_dir), .word = EXO_WORD_FOLDER},
    {"--name", "NAME", "The run's name, instead of the job's.", EXO_INTO(exo_run_args, job.name)},
    {"--json", NULL, "Prints the results as JSON, with bytes to the last one.",
     EXO_INTO(exo_run_args, json)},
    {"--workers", "N",
     "Starts a head and N workers on this machine for the nodes to run in, and stops them after.",
     EXO_INTO(exo_run_args, workers)},
    {"--transport", "ipc|tcp|curve",
     "How those processes talk: local sockets (the default), TCP on loopback, or TCP encrypted "
     "with CURVE.",
     EXO_INTO(exo_run_args, transport), .word = EXO_WORD_FIXED},
    {"--insecure", NULL,
     "With --transport tcp: every user of this host can run code as this user while the run goes "
     "on.",
     EXO_INTO(exo_run_args, insecure)},
    {"--head", "ADDRESS",
     "Runs the nodes on the workers of the cluster with this head: tcp://HOST:PORT or ipc://PATH. "
     "Without it, --cluster or --workers the nodes are in this process, whatever EXOGYM_HEAD says.",
     EXO_INTO(exo_run_args, head)},
    {"--cluster", "NAME", "The same with the cluster of that name on this machine.",
     EXO_INTO(exo_run_args, cluster)},
    {"--head-key", "KEY|FILE", "With --head or --cluster: the head's public key, where it has one.",
     EXO_INTO(exo_run_args, head_key), .word = EXO_WORD_FILE},
    {"--keys", "FILE.secret",
     "With --head or --cluster: this machine's keys, as exogym keygen made them.",
     EXO_INTO(exo_run_args, keys), .word = EXO_WORD_FILE},
    {"--no-plot", NULL, "Draws no picture at the end.", EXO_INTO(exo_run_args, no_plot)},
    {0},
};

static const exo_note examples[] = {
    {"exogym run job.yaml --set data=mnist --set train.max_steps=10 --set compare.1.H=50",
     "Overrides the data set, the number of steps, and a value of the second strategy that is "
     "compared."},
    {"exogym run job.yaml --resume", "Goes on after ctrl-C, a lost power supply or a full disk."},
    {"exogym run job.yaml --json --no-plot >result.json", "For programs."},
    {0},
};

/* DIR and NAME are those of the options. STRATEGY is the label; with `seeds`, STRATEGY-seedN. */
static const exo_note files[] = {
    {"DIR/NAME/STRATEGY/config.json", "The run's settings: a job that can be run again."},
    {"DIR/NAME/STRATEGY/train.csv", "Loss and learning rate by step."},
    {"DIR/NAME/STRATEGY/validation.csv", "Local and global loss by step."},
    {"DIR/NAME/STRATEGY/metrics.csv", "Losses and accuracies by step, seconds and bytes sent."},
    {"DIR/NAME/STRATEGY/meters.csv",
     "All meters by step, those of strategies, models and plugins too."},
    {"DIR/NAME/STRATEGY/events.out.tfevents.*", "The same for TensorBoard."},
    {"DIR/NAME/STRATEGY/links.json", "Measured links, and the ring and islands that follow."},
    {"DIR/NAME/STRATEGY/checkpoints/", "What --resume goes on from."},
    {"DIR/NAME/STRATEGY/model.safetensors", "The averaged model."},
    {"DIR/NAME/STRATEGY/tokenizer.json", "Of a language model: how its text becomes tokens."},
    {"DIR/NAME/STRATEGY/progress.json",
     "How the run goes, once a second; `exogym status --run` shows it."},
    {"DIR/NAME/STRATEGY/result.json", "The run's results; there only when it is finished."},
    {"DIR/NAME/result.json", "Of a job with `seeds`: all results, with means, least and largest."},
    {"DIR/NAME/job.json", "Of a job that came from a pipe and was stopped: what it was."},
    {"DIR/NAME/compare.png", "Validation loss of all runs by step, by bytes sent and by time."},
    {0},
};

const exo_note exo_run_exits[] = {
    {"0", "Done."},
    {"1", "The job was right and something failed: a missing file, a full disk, no network, a node "
          "that died."},
    {"2", "The command line or the job file is wrong."},
    {"129, 130, 143", "Stopped by SIGHUP, ctrl-C or SIGTERM; the state is saved."},
    {0},
};

const exo_command exo_command_run = {
    .name = "run",
    .summary = "Trains what a job file describes and compares its strategies",
    .description = "Runs the job's strategy, or those of `compare` one after the other. Everything "
                   "is checked before the first step. Progress goes to standard error, the table "
                   "of results and the picture's path to standard output.\n\n"
                   "Ctrl-C, SIGTERM or SIGHUP saves a checkpoint, prints the command that goes on, "
                   "and stops; a second ctrl-C or SIGTERM ends the process at once. With --resume "
                   "the end is the same to the bit as without the stop; with a larger "
                   "train.max_steps it goes on with runs that were finished, too. A folder holds "
                   "one run: a job whose folders hold finished ones needs --resume, --overwrite or "
                   "another name, a graph --overwrite or another name. With --resume a graph goes "
                   "on from the checkpoints of its trainers.",
    .args = table,
    .examples = examples,
    .files = files,
    .exits = exo_run_exits,
    .args_size = sizeof(exo_run_args),
    .run = run_command,
};
