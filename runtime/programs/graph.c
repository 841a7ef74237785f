/* `exogym graph`: checks, expands, draws and plans a graph, or the graphs of a training job,
 * without running them; and changes a running graph. Read next: plan.h, schema.c, apply.h. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <exogym/memory.h>
#include <jansson.h>

#include "base/config_edit.h"
#include "base/file.h"
#include "base/registry.h"
#include "graph/plan.h"
#include "graph/prove.h"
#include "programs/apply.h"
#include "programs/child.h"
#include "programs/commands.h"
#include "programs/job.h"
#include "programs/schema.h"
#include "programs/stopping.h"
#include "programs/text.h"
#include "programs/warnings.h"
#include "programs/where.h"
#include "strategies/builtin.h"

struct graph_args {
    const char *action, *path, *to, *out, *preset, *run;
    exo_words sets;
    bool json, load_plugins;
};

/* The graphs of one file: of a graph, the graph itself; of a job, one for each selected run. */
struct graphs {
    exo_graph_spec *own;
    exo_job job; /* used if `own` is NULL */
    const exo_graph_spec **each;
    const char **labels; /* labels of the runs; NULL for a graph */
    size_t count;
    bool without_plugins; /* the file names plugins, which were not loaded */
    size_t unknown;       /* names that were not found before the file was read */
};

static void
close_graphs(struct graphs *graphs)
{
    exo_graph_spec_free(&graphs->own);
    exo_job_release(&graphs->job);
    exo_free(graphs->each);
    exo_free(graphs->labels);
}

static exo_status
choose_runs(struct graphs *graphs, const char *wanted, exo_err *err)
{
    exo_text known = {0};
    exo_status st = EXO_OK;
    for (size_t i = 0; i < graphs->job.num_runs; i++) {
        const exo_job_run *run = &graphs->job.runs[i];
        /* the first run of a group; the graphs of its other runs differ only in the seed */
        bool first = i % graphs->job.num_seeds == 0;
        exo_text_add(&known, "%s%s", i ? ", " : "", run->label);
        if (wanted ? strcmp(run->label, wanted) != 0 && !(first && strcmp(run->group, wanted) == 0)
                   : !first)
            continue;
        graphs->labels[graphs->count] = run->label;
        graphs->each[graphs->count++] = run->graph;
    }
    if (graphs->count == 0)
        st = exo_fail(err, EXO_INVAL, "--run %s: the job has no such run; it has: %s",
                      wanted ? wanted : "", known.data ? known.data : "none");
    exo_free(known.data);
    return st;
}

/* INVAL, with the place of `parallel`: a graph has no nodes that share a copy of the model. */
static exo_status
refuse_sharing(const exo_job *job, const char *action, exo_err *err)
{
    static const char *const shown[] = {"expand", "plan", "dot"};
    exo_config *place = exo_config_get(exo_config_root(job->doc), "parallel");
    const exo_fit_opts *o = &job->opts;
    if (o->tensor <= 1 && o->pipeline <= 1 && o->context_parallel <= 1)
        return EXO_OK;
    for (size_t i = 0; i < sizeof shown / sizeof *shown; i++)
        if (strcmp(action, shown[i]) == 0)
            return exo_config_fail(place, err,
                                   "graph %s: graphs do not have nodes that share a copy of the "
                                   "model yet: leave parallel out, or use exogym plan",
                                   action);
    return EXO_OK;
}

static exo_status
open_graphs(struct graphs *graphs, const struct graph_args *args, exo_err *err)
{
    exo_config_doc *doc = NULL;
    exo_status st = exo_config_load(&doc, args->path, err);
    bool is_job = st == EXO_OK && !exo_graph_is(exo_config_root(doc)) &&
                  exo_config_has(exo_config_root(doc), "model");
    if (st != EXO_OK)
        return st;
    if (!args->load_plugins && strcmp(args->action, "apply") != 0) {
        exo_config_keep_plugins_out(doc);
        graphs->without_plugins = exo_config_has(exo_config_root(doc), "plugins");
    }
    if (is_job) {
        st = exo_job_from(&graphs->job, &doc,
                          &(exo_job_opts){.preset = args->preset, .sets = args->sets}, err);
    } else {
        const exo_graph_opts opts = {.preset = args->preset,
                                     .sets = args->sets.items,
                                     .num_sets = args->sets.length,
                                     .runs = strcmp(args->action, "check") == 0};
        st = exo_graph_from(&graphs->own, &doc, &opts, err);
    }
    if (st != EXO_OK)
        return st;
    size_t room = is_job ? graphs->job.num_runs : 1;
    graphs->each = exo_calloc(room, sizeof *graphs->each);
    graphs->labels = exo_calloc(room, sizeof *graphs->labels);
    if (!graphs->each || !graphs->labels)
        return exo_fail(err, EXO_NOMEM, "out of memory");
    if (is_job) {
        st = refuse_sharing(&graphs->job, args->action, err);
        if (st == EXO_OK && strcmp(args->action, "check") == 0)
            st = exo_job_check_edges(&graphs->job, err);
        return st == EXO_OK ? choose_runs(graphs, args->run, err) : st;
    }
    if (args->run)
        return exo_fail(err, EXO_INVAL, "--run %s: this is a graph, not a job with runs",
                        args->run);
    graphs->each[graphs->count++] = graphs->own;
    return EXO_OK;
}

/* --- check, expand ---------------------------------------------------------------------------- */

/* Prints warnings about stalls that cannot be excluded, on standard error. They are not errors. */
static exo_status
warn_of_stalls(const exo_graph_spec *spec, exo_err *err)
{
    char where[256] = "";
    exo_proof proof;
    exo_status st = exo_graph_prove(spec, 0, &proof, err);
    if (st != EXO_OK || proof.verdict == EXO_SOUND)
        return st;
    if (proof.at)
        exo_config_where(proof.at, where, sizeof where);
    fprintf(stderr, "exogym: warning: %s%s%s: %s\n", where, where[0] ? ": " : "",
            proof.verdict == EXO_NOT_PROVEN ? "cannot prove that this does not stall"
                                            : "this can stall",
            proof.text);
    return EXO_OK;
}

static exo_status
check(const struct graphs *graphs, const struct graph_args *args, exo_err *err)
{
    exo_status st = exo_warn_of_idle(graphs->each, graphs->count, err);
    (void)args;
    for (size_t g = 0; g < graphs->count; g++) {
        const exo_graph_spec *s = graphs->each[g];
        size_t actors = 0;
        for (size_t i = 0; i < s->num_actors; i++)
            actors += s->actors[i].count;
        printf("%s%s%s: %zu actor%s, %zu edge%s", s->name, graphs->labels[g] ? "/" : "",
               graphs->labels[g] ? graphs->labels[g] : "", actors, actors == 1 ? "" : "s",
               s->num_edges, s->num_edges == 1 ? "" : "s");
        if (s->has_hosts)
            printf(", %zu host%s", s->num_hosts, s->num_hosts == 1 ? "" : "s");
        printf(", %s clock\n", s->virtual_clock ? "virtual" : "real");
        st = st == EXO_OK ? warn_of_stalls(s, err) : st;
    }
    return st;
}

/* Prints the strategies of a graph's nodes as lists of exchanges, as comments. */
static exo_status
print_compositions(const exo_graph_spec *spec, exo_err *err)
{
    exo_status st = EXO_OK;
    for (size_t i = 0; st == EXO_OK && i < spec->num_actors; i++) {
        exo_config *strategy = exo_config_get(spec->actors[i].config, "strategy");
        bool is_map = exo_config_is_map(strategy);
        const char *name = exo_config_scalar(is_map ? exo_config_get(strategy, "name") : strategy);
        char *yaml = NULL;
        if (!name || strcmp(spec->actors[i].class->name, "train_node") != 0)
            continue;
        st = exo_strategy_composition(&yaml, name, is_map ? strategy : NULL, err);
        if (yaml)
            printf("# %s as a list of exchanges:\n# strategy: %s\n", name, yaml);
        exo_free(yaml);
    }
    return st;
}

static exo_status
expand(const struct graphs *graphs, const struct graph_args *args, exo_err *err)
{
    (void)args;
    exo_status st = EXO_OK;
    for (size_t g = 0; st == EXO_OK && g < graphs->count; g++) {
        char *text = NULL;
        st = exo_graph_expand(graphs->each[g], &text, err);
        if (st != EXO_OK)
            break;
        if (g > 0)
            puts("---");
        if (graphs->labels[g])
            printf("# %s\n", graphs->labels[g]);
        st = print_compositions(graphs->each[g], err);
        fputs(text, stdout);
        exo_free(text);
    }
    return st;
}

#define APPLY_TIMEOUT (60 * EXO_SECOND)

static exo_status
apply(const struct graphs *graphs, const struct graph_args *args, exo_err *err)
{
    if (graphs->count > 1)
        return exo_fail(err, EXO_INVAL, "the job has %zu runs: choose one with --run",
                        graphs->count);
    exo_stop_on_signals("");
    exo_status st = exo_apply_ask(args->to, graphs->each[0], graphs->own == NULL,
                                  exo_deadline(exo_clock_real(), APPLY_TIMEOUT), err);
    if (st == EXO_OK)
        exo_print_path(stdout, "", args->to, ": changed\n");
    else if (exo_stop_reason > 0) /* the command ends with the signal's status and says no more */
        exo_report(err);
    return st;
}

/* --- dot -------------------------------------------------------------------------------------- */

extern char **environ;

/* Runs graphviz on the text and writes its output to the file `out`. */
static exo_status
run_graphviz(const char *text, const char *format, const char *out, exo_err *err)
{
    char option[16];
    char *const argv[] = {"dot", option, NULL};
    pid_t child = 0;
    int status = 0, ends[2] = {-1, -1};
    exo_file file = {0};
    posix_spawn_file_actions_t actions;
    snprintf(option, sizeof option, "-T%s", format);
    exo_status st = exo_file_create(&file, out, err);
    if (st != EXO_OK)
        return st;
    /* unlike a pipe, it can be written to without SIGPIPE */
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
        st = exo_fail(err, EXO_IO, "cannot make a socket for dot: %s", strerror(errno));
        exo_file_abort(&file);
        return st;
    }
    const struct timeval patience = {.tv_sec = EXO_CHILD_PATIENCE / EXO_SECOND};
    setsockopt(ends[1], SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[0], STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, fileno(file.stream), STDOUT_FILENO);
    int failure = posix_spawnp(&child, argv[0], &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[0]);
    if (failure == ENOENT) {
        st = exo_fail(err, EXO_NOT_FOUND,
                      "a picture needs graphviz's program dot, which is not installed (Debian: apt "
                      "install graphviz); without it, write to a file that ends with .dot");
    } else if (failure) {
        st = exo_fail(err, EXO_FAILED, "cannot start dot: %s", strerror(failure));
    }
    size_t left = st == EXO_OK ? strlen(text) : 0;
    while (left > 0) { /* bytes are left over if dot ends early */
        ssize_t wrote = send(ends[1], text, left, MSG_NOSIGNAL);
        if (wrote < 0 && errno == EINTR)
            continue;
        if (wrote < 0)
            break;
        text += wrote;
        left -= (size_t)wrote;
    }
    close(ends[1]);
    if (st == EXO_OK)
        st = exo_child_await(child, "graphviz's dot", EXO_CHILD_PATIENCE, &exo_stop_reason, &status,
                             err);
    if (st == EXO_OK && (left > 0 || !WIFEXITED(status) || WEXITSTATUS(status) != 0))
        st = exo_fail(err, EXO_FAILED, "graphviz's dot could not draw the graph");
    if (st == EXO_OK)
        return exo_file_commit(&file, err);
    exo_file_abort(&file);
    return st;
}

static exo_status
dot(const struct graphs *graphs, const struct graph_args *args, exo_err *err)
{
    char *text = NULL;
    const char *ending = args->out ? strrchr(args->out, '.') : NULL;
    if (graphs->count > 1)
        return exo_fail(err, EXO_INVAL, "the job has %zu runs: choose one with --run",
                        graphs->count);
    if (args->out && (!ending || (strcmp(ending, ".dot") != 0 && strcmp(ending, ".svg") != 0 &&
                                  strcmp(ending, ".png") != 0)))
        return exo_fail(err, EXO_INVAL, "'%s': the file's name ends with .svg, .png or .dot",
                        args->out);
    exo_status st = exo_graph_dot(graphs->each[0], &text, err);
    if (st != EXO_OK)
        return st;
    if (!args->out)
        fputs(text, stdout);
    else if (strcmp(ending, ".dot") == 0)
        st = exo_file_write_atomic(args->out, text, strlen(text), err);
    else {
        exo_stop_on_signals("");
        st = run_graphviz(text, ending + 1, args->out, err);
    }
    if (st == EXO_OK && args->out)
        exo_print_path(stdout, "", args->out, "\n");
    exo_free(text);
    return st;
}

/* --- plan ------------------------------------------------------------------------------------- */

static const char *
bytes_text(double bytes, bool at_most, char out[EXO_FIGURE])
{
    char figure[EXO_FIGURE];
    snprintf(out, EXO_FIGURE, "%s%.24s",
             isnan(bytes) ? ""
             : at_most    ? "<="
                          : "",
             isnan(bytes) ? "?" : exo_text_bytes(bytes, figure));
    return out;
}

static const char *
time_text(double seconds, bool at_most, char out[EXO_FIGURE])
{
    static const struct {
        const char *name;
        double factor;
    } units[] = {{"s", 1}, {"ms", 1e3}, {"us", 1e6}};
    size_t unit = 0;
    if (isnan(seconds)) {
        snprintf(out, EXO_FIGURE, "?");
        return out;
    }
    while (unit < 2 && seconds * units[unit].factor < 1 && seconds > 0)
        unit++;
    snprintf(out, EXO_FIGURE, "%s%.3g %s", at_most ? "<=" : "", seconds * units[unit].factor,
             units[unit].name);
    return out;
}

static void
print_plan(const exo_graph_spec *s, const char *label, const exo_plan_edge *plan)
{
    char item[EXO_FIGURE], encoded[EXO_FIGURE], step[EXO_FIGURE], time[EXO_FIGURE],
        step_time[EXO_FIGURE];
    int width = (int)strlen("edge");
    for (size_t i = 0; i < s->num_edges; i++)
        width = (int)strlen(s->edges[i].name) > width ? (int)strlen(s->edges[i].name) : width;
    if (label)
        printf("%s\n", label);
    printf("%-*s  %-12s %11s %10s %10s %12s %10s %10s\n", width, "edge", "route", "ends", "item",
           "encoded", "per step", "time", "per step");
    for (size_t i = 0; i < s->num_edges; i++) {
        const exo_plan_edge *p = &plan[i];
        char ends[EXO_FIGURE];
        snprintf(ends, sizeof ends, "%" PRIu32 " -> %" PRIu32, p->senders,
                 p->edge->route == EXO_ROUTE_ALL_REDUCE ? p->senders
                                                        : s->actors[p->edge->to].count);
        printf("%-*s  %-12s %11s %10s %10s %12s %10s %10s\n", width, p->edge->name,
               exo_route_names[p->edge->route], ends, bytes_text(p->item, false, item),
               bytes_text(p->encoded, p->at_most, encoded),
               bytes_text(p->per_step, p->at_most, step), time_text(p->seconds, p->at_most, time),
               time_text(p->seconds_per_step, p->at_most, step_time));
    }
}

/* Prints, for actors with declared phase costs, the cost of a step with its collectives. */
static void
print_steps(const exo_graph_spec *s, const exo_plan_edge *plan)
{
    for (uint32_t a = 0; a < s->num_actors; a++) {
        double compute = exo_plan_compute(s, &s->actors[a]), exchange = 0;
        char one[EXO_FIGURE], two[EXO_FIGURE], sum[EXO_FIGURE];
        for (size_t i = 0; i < s->num_edges; i++)
            if (s->edges[i].from == a && s->edges[i].route == EXO_ROUTE_ALL_REDUCE)
                exchange += plan[i].seconds_per_step;
        if (!isnan(compute))
            printf("a step of %s: %s of compute, %s of exchange: %s\n", s->actors[a].name,
                   time_text(compute, false, one), time_text(exchange, false, two),
                   time_text(compute + exchange, false, sum));
    }
}

static json_t *
number_or_null(double value)
{
    return isnan(value) ? json_null() : json_real(value);
}

static json_t *
plan_json(const exo_graph_spec *s, const char *label, const exo_plan_edge *plan)
{
    json_t *edges = json_array(), *actors = json_array();
    for (size_t i = 0; i < s->num_edges; i++) {
        const exo_plan_edge *p = &plan[i];
        json_array_append_new(
            edges,
            json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:I, s:I, s:o, s:o, s:b, s:o, s:o, s:o, s:o}",
                      "name", p->edge->name, "from", s->actors[p->edge->from].name, "to",
                      s->actors[p->edge->to].name, "carries", p->edge->carries, "route",
                      exo_route_names[p->edge->route], "codec", p->edge->codec_text, "senders",
                      (json_int_t)p->senders, "targets", (json_int_t)p->targets, "item_bytes",
                      number_or_null(p->item), "encoded_bytes", number_or_null(p->encoded),
                      "at_most", p->at_most, "sent_bytes", number_or_null(p->sent),
                      "bytes_per_step", number_or_null(p->per_step), "seconds",
                      number_or_null(p->seconds), "seconds_per_step",
                      number_or_null(p->seconds_per_step)));
    }
    for (size_t i = 0; i < s->num_actors; i++)
        json_array_append_new(actors,
                              json_pack("{s:s, s:I, s:o}", "name", s->actors[i].name, "count",
                                        (json_int_t)s->actors[i].count, "compute_seconds",
                                        number_or_null(exo_plan_compute(s, &s->actors[i]))));
    return json_pack("{s:s, s:s?, s:o, s:o}", "name", s->name, "run", label, "actors", actors,
                     "edges", edges);
}

static exo_status
plan(const struct graphs *graphs, const struct graph_args *args, exo_err *err)
{
    exo_status st = EXO_OK;
    json_t *all = json_array();
    for (size_t g = 0; st == EXO_OK && g < graphs->count; g++) {
        const exo_graph_spec *s = graphs->each[g];
        exo_plan_edge *edges = exo_calloc(s->num_edges + 1, sizeof *edges);
        st = edges ? exo_graph_plan(s, edges, err) : exo_fail(err, EXO_NOMEM, "out of memory");
        if (st == EXO_OK && args->json) {
            json_array_append_new(all, plan_json(s, graphs->labels[g], edges));
        } else if (st == EXO_OK) {
            printf("%s", g > 0 ? "\n" : "");
            print_plan(s, graphs->labels[g], edges);
            print_steps(s, edges);
        }
        exo_free(edges);
    }
    if (st == EXO_OK && args->json)
        return exo_print_json(all, err);
    json_decref(all);
    return st;
}

/* --- The command ------------------------------------------------------------------------------ */

static const struct action {
    const char *name;
    exo_status (*run)(const struct graphs *graphs, const struct graph_args *args, exo_err *err);
} actions[] = {
    {"check", check}, {"expand", expand}, {"dot", dot}, {"plan", plan}, {"apply", apply}};

static exo_status
check_args(const struct graph_args *args, exo_err *err)
{
    bool schema = strcmp(args->action, "schema") == 0;
    if (!schema && !args->path)
        return exo_fail(err, EXO_INVAL, "%s which graph or job? FILE is missing", args->action);
    if (schema && args->path)
        return exo_fail(err, EXO_INVAL, "'%s' is one word too many", args->path);
    bool is_apply = strcmp(args->action, "apply") == 0;
    if (is_apply && !args->to)
        return exo_fail(err, EXO_INVAL, "apply it to which run? --to runs/NAME is missing");
    if (args->to && !is_apply)
        return exo_fail(err, EXO_INVAL, "--to is for apply");
    if (args->out && strcmp(args->action, "dot") != 0)
        return exo_fail(err, EXO_INVAL, "--output is for dot");
    if (args->json && strcmp(args->action, "plan") != 0)
        return exo_fail(err, EXO_INVAL, "--json is for plan");
    return EXO_OK;
}

static int
graph_command(const exo_command_line *line)
{
    exo_err err = {0};
    struct graphs graphs = {0};
    const struct graph_args *args = line->args;
    if (check_args(args, &err) != EXO_OK)
        return exo_report_usage(line->command, &err);
    if (strcmp(args->action, "schema") == 0) {
        exo_status st = exo_print_json(exo_schema(), &err);
        return st == EXO_OK ? EXO_EXIT_OK : exo_report(&err);
    }
    graphs.unknown = exo_registry_num_unknown();
    exo_status st = open_graphs(&graphs, args, &err);
    if (st != EXO_OK && graphs.without_plugins && exo_registry_num_unknown() > graphs.unknown) {
        exo_err reason = err;
        exo_fail(&err, st, "%.400s (its plugins were not loaded: --load-plugins runs their code)",
                 reason.text);
    }
    for (size_t i = 0; st == EXO_OK && i < sizeof actions / sizeof *actions; i++)
        if (strcmp(actions[i].name, args->action) == 0)
            st = actions[i].run(&graphs, args, &err);
    close_graphs(&graphs);
    if (st != EXO_OK && exo_stop_reason > 0)
        return EXO_EXIT_SIGNAL + exo_stop_reason;
    return st == EXO_OK ? EXO_EXIT_OK : exo_report(&err);
}

static const exo_arg table[] = {
    {NULL, "check|expand|dot|plan|apply|schema",
     "check: says whether it is right. expand: prints it with every default; of a job, the actors "
     "and edges that it stands for, and its strategy as a list of exchanges. dot: prints it for "
     "graphviz, or draws it. plan: bytes and times of each edge. apply: changes a run's graph to "
     "it, between two items, without losing one. schema: a JSON schema of graphs and jobs, for "
     "editors.",
     EXO_INTO(struct graph_args, action), .word = EXO_WORD_FIXED, .required = true},
    {NULL, "FILE",
     "A graph (docs/graph.md), or a training job (docs/jobs.md). It may be a pipe; - is standard "
     "input.",
     EXO_INTO(struct graph_args, path), .word = EXO_WORD_FILE},
    {"--set", "KEY=VALUE", "Overrides a value of the file; can be given again and again.",
     EXO_INTO(struct graph_args, sets)},
    {"--preset", "NAME", "Applies the file's preset NAME, before --set.",
     EXO_INTO(struct graph_args, preset)},
    {"--run", "LABEL", "Of a job with several strategies, this one only.",
     EXO_INTO(struct graph_args, run)},
    {"--output", "FILE",
     "Where dot writes; the ending says what: .svg, .png or .dot. Standard output unless given.",
     EXO_INTO(struct graph_args, out), .brief = "-o", .word = EXO_WORD_FILE},
    {"--to", "RUN",
     "The folder of the run that apply changes: runs/NAME of a graph, runs/NAME/LABEL of a job.",
     EXO_INTO(struct graph_args, to), .word = EXO_WORD_FOLDER},
    {"--load-plugins", NULL,
     "Loads the file's plugins, which runs their code. Else what they add is unknown; apply loads "
     "them as run does.",
     EXO_INTO(struct graph_args, load_plugins)},
    {"--json", NULL, "Prints the plan as JSON.", EXO_INTO(struct graph_args, json)},
    {0},
};

static const exo_note examples[] = {
    {"exogym graph check graph.yaml --set variables.makers=100",
     "Says whether the graph is right with a hundred makers."},
    {"exogym graph expand examples/01_compare/compare.yaml --run diloco",
     "Shows what a short job stands for."},
    {"exogym graph dot graph.yaml -o graph.svg", "Draws it."},
    {"exogym graph plan job.yaml --set 'links={default: {bandwidth: 100 Mbit/s, latency: 20 ms}}'",
     "Predicts what each strategy of a job would cost over such links."},
    {"exogym graph apply graph.yaml --to runs/graph --set 'edges.0.codec=bf16'",
     "Changes the codec of an edge while the graph runs."},
    {0},
};

static const exo_note exits[] = {
    {"0", "Done: the graph is right."},
    {"1", "Something else failed: a missing file, plugin or data set, no graphviz."},
    {"2", "The command line or the file is wrong."},
    {0},
};

const exo_command exo_command_graph = {
    .name = "graph",
    .summary = "Checks, expands, draws and plans a transmission graph, or a job as one",
    .description = "Reads the file as a run would, and starts nothing; a stranger's file runs no "
                   "code, as its plugins are loaded only with --load-plugins. A mistake is one "
                   "line with file, line and column.\n\n"
                   "apply adds, removes and re-routes edges of a graph that runs, and changes "
                   "their codecs, buffers and links and the hosts' rates; of a training job, the "
                   "codec of its edge, links and rates. Actors stay as they are.\n\n"
                   "A plan's bytes are exact where the codec's size is. An edge whose items are "
                   "not known shows ?; declare them in the graph (item: 1 MiB). Times are closed "
                   "forms: rates, latencies, headers and counts, without schedules.",
    .args = table,
    .examples = examples,
    .exits = exits,
    .args_size = sizeof(struct graph_args),
    .run = graph_command,
};
