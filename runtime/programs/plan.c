/* `exogym plan`: the compositions of a job that fit into the memory of a node, best first. Reads the
 * command line and prints; planner.h makes the plan. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#include <exogym/memory.h>

#include "base/config_edit.h"
#include "graph/spec.h"
#include "programs/commands.h"
#include "programs/planner.h"
#include "programs/text.h"

enum {
    MAX_NODES = 1024 /* of a job */
};

struct plan_args {
    const char *job_path, *nodes, *memory, *step_time, *preset;
    exo_words sets;
    bool json;
};

/* --- The command line ------------------------------------------------------------------------- */

static exo_status
read_memory(const char *text, uint64_t *out, exo_err *err)
{
    exo_config_doc *doc = NULL;
    exo_status st = exo_config_parse(&doc, "--memory", "{}", err);
    if (st == EXO_OK)
        st = exo_config_graft_text(exo_config_root(doc), "memory", text, err);
    if (st == EXO_OK &&
        exo_config_bytes(exo_config_root(doc), "memory", 0, 1, UINT64_MAX, out, NULL) != EXO_OK)
        st = exo_fail(err, EXO_INVAL, "--memory %s: expected a size, such as 16GiB", text);
    exo_config_free(&doc);
    return st;
}

static exo_status
read_args(const struct plan_args *args, exo_job_plan_opts *out, exo_err *err)
{
    char *end = NULL;
    *out = (exo_job_plan_opts){.step_time = -1, .subject = "plan"};
    unsigned long nodes = args->nodes ? strtoul(args->nodes, &end, 10) : 0;
    if (args->nodes && (*end || !*args->nodes || nodes < 1 || nodes > MAX_NODES))
        return exo_fail(err, EXO_INVAL, "--nodes %s: expected a number from 1 to %d", args->nodes,
                        MAX_NODES);
    out->nodes = (uint32_t)nodes;
    exo_status st = args->memory ? read_memory(args->memory, &out->memory, err) : EXO_OK;
    return st == EXO_OK && args->step_time
               ? exo_text_read_time(args->step_time, "--step-time", &out->step_time, err)
               : st;
}

static exo_status
read_job(const struct plan_args *args, exo_config_doc **doc, exo_err *err)
{
    exo_status st = exo_config_load(doc, args->job_path, err);
    if (st == EXO_OK && exo_graph_is(exo_config_root(*doc)))
        return exo_fail(err, EXO_INVAL,
                        "'%s' is a graph: a plan is of a training job (see `exogym graph plan`)",
                        args->job_path);
    if (st == EXO_OK)
        st = exo_config_apply_preset(exo_config_root(*doc), args->preset, "job", err);
    for (size_t i = 0; st == EXO_OK && i < args->sets.length; i++)
        st = exo_config_set(*doc, args->sets.items[i], err);
    return st;
}

/* --- The table -------------------------------------------------------------------------------- */

static const char *const costs[] = {
    [EXO_JOB_PLAN_DECLARED] = "declared",
    [EXO_JOB_PLAN_GIVEN] = "given",
    [EXO_JOB_PLAN_MEASURED] = "measured",
};

static void
print_head(const exo_job_plan *plan)
{
    static const char *const notes[] = {
        [EXO_JOB_PLAN_DECLARED] = "as the job's compute declares",
        [EXO_JOB_PLAN_GIVEN] = "as given",
        [EXO_JOB_PLAN_MEASURED] =
            "as measured with one node on this machine; --step-time TIME is that of another",
    };
    char parameters[EXO_FIGURE], limit[EXO_UNIT_TEXT], cost[EXO_UNIT_TEXT];
    printf("%s with %s parameters, %u node%s, batch %zu per node", plan->model,
           exo_text_count(plan->numel, parameters), plan->nodes, plan->nodes == 1 ? "" : "s",
           plan->batch_size);
    if (plan->memory_limit > 0)
        printf(", at most %s a node", exo_unit_bytes((double)plan->memory_limit, limit));
    printf("\na step computes %s, %s\n", exo_job_plan_seconds((double)plan->step_cost * 1e-9, cost),
           notes[plan->cost]);
    if (!plan->linked && plan->nodes > 1)
        printf("the job declares no links: messages take no time\n");
}

static void
print_entry(const exo_job_plan *plan, size_t index)
{
    const exo_job_plan_entry *e = &plan->entries[index];
    char seconds[EXO_UNIT_TEXT], memory[EXO_FIGURE], sent[EXO_FIGURE], text[EXO_PARALLELISM_TEXT];
    printf("%3zu %10s %12s %12s %10zu  %s\n", index + 1, exo_job_plan_seconds(e->seconds, seconds),
           exo_text_bytes((double)e->memory, memory), exo_text_bytes((double)e->traffic, sent),
           e->minibatch_size, exo_parallelism_text(&e->composition, text));
}

static exo_status
print_command(const exo_job_plan *plan, const struct plan_args *args, exo_err *err)
{
    char *sets[EXO_JOB_PLAN_SETS] = {NULL};
    size_t count = 0;
    exo_text command = {0};
    exo_status st = exo_job_plan_assignments(plan, &plan->entries[0], sets, &count, err);
    if (st != EXO_OK)
        return st;
    exo_text_add(&command, "exogym run ");
    exo_text_add_quoted(&command, args->job_path);
    if (args->preset) {
        exo_text_add(&command, " --preset ");
        exo_text_add_quoted(&command, args->preset);
    }
    for (size_t i = 0; i < args->sets.length; i++) {
        exo_text_add(&command, " --set ");
        exo_text_add_quoted(&command, args->sets.items[i]);
    }
    if (args->nodes)
        exo_text_add(&command, " --set nodes=%u", plan->nodes);
    for (size_t i = 0; i < count; i++) {
        exo_text_add(&command, " --set ");
        exo_text_add_quoted(&command, sets[i]);
        exo_free(sets[i]);
    }
    if (command.failed)
        st = exo_fail(err, EXO_NOMEM, "out of memory");
    else
        printf("\nthe first: %s\n", command.data);
    exo_free(command.data);
    return st;
}

static exo_status
print_table(const exo_job_plan *plan, const struct plan_args *args, exo_err *err)
{
    print_head(plan);
    printf("\n%3s %10s %12s %12s %10s  %s\n", "", "step", "memory", "sent", "minibatch",
           "composition");
    for (size_t i = 0; i < plan->num_fitting; i++)
        print_entry(plan, i);
    if (plan->num_fitting < plan->count) {
        char least[EXO_FIGURE], text[EXO_PARALLELISM_TEXT];
        const exo_job_plan_entry *e = &plan->entries[plan->num_fitting];
        printf("\n%zu more do not fit; the smallest of them, %s, takes %s a node\n",
               plan->count - plan->num_fitting, exo_parallelism_text(&e->composition, text),
               exo_text_bytes((double)e->memory, least));
    }
    if (plan->num_refused > 0)
        printf("\n%zu more are impossible: %s\n", plan->num_refused, plan->refusal);
    return print_command(plan, args, err);
}

/* --- JSON ------------------------------------------------------------------------------------- */

static json_t *
sets_json(const exo_job_plan *plan, const exo_job_plan_entry *e)
{
    char *sets[EXO_JOB_PLAN_SETS] = {NULL};
    size_t count = 0;
    json_t *list = json_array();
    if (exo_job_plan_assignments(plan, e, sets, &count, NULL) != EXO_OK) {
        json_decref(list);
        return NULL;
    }
    for (size_t i = 0; i < count; i++) {
        json_array_append_new(list, json_string(sets[i]));
        exo_free(sets[i]);
    }
    return list;
}

static json_t *
entry_json(const exo_job_plan *plan, const exo_job_plan_entry *e)
{
    const exo_parallelism *c = &e->composition;
    return json_pack(
        "{s:s, s:s?, s:I, s:I, s:I, s:b, s:I, s:b, s:b, s:I, s:I, s:b, s:o, s:o, s:o}", "strategy",
        exo_parallelism_strategy(c), "sharding_strategy", c->sharding, "group_size",
        (json_int_t)c->group_size, "pipeline", (json_int_t)c->stages, "tensor",
        (json_int_t)c->tensor, "sequence", c->sequence, "context", (json_int_t)c->context,
        "overlap", c->overlap, "checkpoint", c->checkpoint, "minibatch_size",
        (json_int_t)e->minibatch_size, "memory", (json_int_t)e->memory, "fits", e->fits,
        "step_seconds", e->fits ? json_real(e->seconds) : json_null(), "sent",
        e->fits ? json_integer((json_int_t)e->traffic) : json_null(), "set", sets_json(plan, e));
}

static exo_status
print_json(const exo_job_plan *plan, exo_err *err)
{
    json_t *list = json_array();
    for (size_t i = 0; i < plan->count; i++)
        json_array_append_new(list, entry_json(plan, &plan->entries[i]));
    json_t *all = json_pack(
        "{s:s, s:s, s:I, s:I, s:I, s:o, s:f, s:s, s:b, s:o}", "unit", "bytes", "model", plan->model,
        "parameter_count", (json_int_t)plan->numel, "nodes", (json_int_t)plan->nodes, "batch_size",
        (json_int_t)plan->batch_size, "memory_limit",
        plan->memory_limit ? json_integer((json_int_t)plan->memory_limit) : json_null(),
        "compute_seconds", (double)plan->step_cost * 1e-9, "compute", costs[plan->cost], "links",
        plan->linked, "compositions", list);
    int failed = all ? json_dumpf(all, stdout, JSON_INDENT(2)) : -1;
    putchar('\n');
    json_decref(all);
    return failed == 0 ? EXO_OK : exo_fail(err, EXO_NOMEM, "no memory for the plan");
}

/* --- The command ------------------------------------------------------------------------------ */

static int
plan_command(const exo_command_line *line)
{
    const struct plan_args *args = line->args;
    exo_err err = {0};
    exo_job_plan_opts opts;
    exo_job_plan plan = {0};
    exo_config_doc *doc = NULL;
    if (read_args(args, &opts, &err) != EXO_OK)
        return exo_report_usage(line->command, &err);
    exo_status st = read_job(args, &doc, &err);
    if (st == EXO_OK)
        st = exo_job_plan_make(&plan, &doc, &opts, &err);
    if (st == EXO_OK && plan.num_fitting == 0)
        st = exo_job_plan_fail_none(&plan, "plan", &err);
    if (st == EXO_OK)
        st = args->json ? print_json(&plan, &err) : print_table(&plan, args, &err);
    exo_job_plan_release(&plan);
    exo_config_free(&doc);
    return st == EXO_OK ? EXO_EXIT_OK : exo_report(&err);
}

static const exo_arg table[] = {
    {NULL, "JOB.yaml",
     "The job file; its `strategy` is ddp or fsdp, and it has no `compare`. docs/jobs.md describes "
     "it.",
     EXO_INTO(struct plan_args, job_path), .word = EXO_WORD_FILE, .required = true},
    {"--nodes", "N", "The number of nodes, instead of the job's.",
     EXO_INTO(struct plan_args, nodes)},
    {"--memory", "SIZE",
     "What a node has: 16GiB. Only compositions that fit are listed. Without it all fit.",
     EXO_INTO(struct plan_args, memory)},
    {"--step-time", "TIME",
     "What a node computes in a step, 60ms, instead of the job's compute. Without both, a few "
     "steps "
     "of one node are measured.",
     EXO_INTO(struct plan_args, step_time)},
    {"--set", "KEY=VALUE", "Overrides a value of the job; can be given again and again.",
     EXO_INTO(struct plan_args, sets)},
    {"--preset", "NAME", "Applies the job's preset NAME, before --set.",
     EXO_INTO(struct plan_args, preset)},
    {"--json", NULL, "Prints one JSON object, also with the compositions that do not fit.",
     EXO_INTO(struct plan_args, json)},
    {0},
};

static const exo_note examples[] = {
    {"exogym plan job.yaml --nodes 8 --memory 16GiB",
     "What eight nodes with 16 GiB each can do, the fastest first."},
    {"exogym plan job.yaml --step-time 300ms --set 'links={default: {bandwidth: 1 Gbit/s}}'",
     "The same job over another network and on other processors."},
    {0},
};

const exo_command exo_command_plan = {
    .name = "plan",
    .summary = "Lists the compositions of a job that fit, with memory and time of a step",
    .description =
        "A composition is ddp or a form of fsdp, with or without overlap of messages and "
        "computation, and of language models with or without recomputing blocks. It trains on the "
        "largest minibatches that fit. Memory is that of a node in a process of its own. The time "
        "of "
        "a step is that of the virtual clock over the job's links: the nodes rehearse a few steps, "
        "computing nothing. The first composition is the fastest, and of equally fast ones the "
        "smallest; the command that runs it stands below the table.\n\n"
        "`parallel: auto` in a job takes the first.",
    .args = table,
    .examples = examples,
    .args_size = sizeof(struct plan_args),
    .run = plan_command,
};
