/* Prints the memory plan of a job: see dry_run.h. */
#include "programs/dry_run.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <exogym/memory.h>

#include "actors/autocast.h"
#include "actors/fit_memory.h"
#include "base/memory_limits.h"
#include "nn/device/cuda_plugin.h"
#include "programs/commands.h"
#include "programs/text.h"

static void
print_row(const char *what, uint64_t all, unsigned nodes, const char *note)
{
    char total[EXO_FIGURE], each[EXO_FIGURE];
    exo_text_bytes((double)all, total);
    if (nodes > 0)
        exo_text_bytes((double)all / nodes, each);
    printf("  %-14s %12s", what, total);
    if (nodes > 0 || *note)
        printf(" %12s", nodes > 0 ? each : "");
    printf("%s%s\n", *note ? "  " : "", note);
}

/* `room`: the bytes that this process can still get; 0: unknown, or the job computes elsewhere. */
static void
print_table(const exo_job *job, const exo_job_run *run, const exo_fit_memory *m, uint64_t room)
{
    char note[96], parameters[EXO_FIGURE];
    exo_text_count(exo_model_numel(job->model), parameters);
    printf("%s: %s with %s parameters, %u node%s, batch %zu in passes of %zu\n", run->group,
           job->model_name, parameters, m->nodes, m->nodes == 1 ? "" : "s", job->opts.batch_size,
           m->minibatch_size);
    printf("  %-14s %12s %12s\n", "", "all", "a node");
    size_t units = exo_model_num_units(job->model);
    snprintf(note, sizeof note, "in %zu unit%s", units, units == 1 ? "" : "s");
    print_row("parameters", m->parameters, m->nodes, note);
    print_row("gradients", m->gradients, m->nodes, "");
    print_row("optimizer", m->optimizer, m->nodes, "and what the strategy keeps");
    print_row("average", m->average, m->nodes, "copies that are averaged to be evaluated");
    snprintf(note, sizeof note, "of %u pass%s at a time", m->passes, m->passes == 1 ? "" : "es");
    print_row("activations", m->activations, 0, note);
    print_row("evaluation", m->evaluation, 0, "");
    print_row("batches", m->batches, 0, "read ahead, and the order of the samples");
    print_row("result", m->result, 0, "the model at the end");
    print_row("process", m->process, 0, "the program and the data");
    print_row("peak", m->peak, m->nodes, "");
    if (room > 0)
        print_row("free here", room, 0,
                  m->peak - m->process > room ? "too little: the kernel may kill the run" : "");
}

/* Compares what `share` nodes need at the least with the memory of their GPU, and with what the process may
 * have of it. */
static exo_status
check_gpu(const exo_cuda_machine *machine, uint32_t g, const exo_fit_memory *m, uint32_t share,
          bool prints, exo_err *err)
{
    const exo_cuda_gpu *gpu = &machine->gpus[g];
    const bool bounded = gpu->limit < gpu->memory;
    const uint64_t most = bounded ? gpu->limit : gpu->memory;
    const uint64_t bytes =
        ((m->parameters + m->gradients + m->optimizer) / m->nodes + machine->own) * share;
    const char *bound = bounded ? " (EXOGYM_CUDA_MEMORY)" : "";
    char name[32], note[128], least[EXO_FIGURE], all[EXO_FIGURE];
    snprintf(name, sizeof name, "cuda:%u", g);
    exo_text_bytes((double)bytes, least);
    exo_text_bytes((double)most, all);
    snprintf(note, sizeof note, "at the least for %u node%s, of %s%s", share, share == 1 ? "" : "s",
             all, bound);
    if (prints)
        print_row(name, bytes, 0, note);
    if (bytes <= most)
        return EXO_OK;
    return exo_fail(err, EXO_NOMEM,
                    "%s has %s%s, and its %u node%s need at least %s for parameters, "
                    "gradients, optimizer and workspaces: %stake more GPUs, fewer nodes, or the "
                    "strategy fsdp with cpu_offload",
                    name, all, bound, share, share == 1 ? "" : "s", least,
                    bounded ? "raise the bound, " : "");
}

/* Compares what the nodes of each GPU need at the least with the memory of the GPU. */
static exo_status
check_gpus(const exo_job *job, const exo_job_run *run, const exo_fit_memory *m, bool prints,
           exo_err *err)
{
    static exo_cuda_machine machine;
    const exo_cuda_calls *calls = NULL;
    exo_device *none = NULL;
    const char *device = job->opts.device ? job->opts.device : "cpu";
    const bool one = strncmp(device, "cuda:", 5) == 0;
    bool offloads = false;
    exo_status st = EXO_OK;
    if (strcmp(device, "mps") == 0)
        return exo_device_open(&none, device, err);
    if ((!one && strcmp(device, "cuda") != 0 && strcmp(device, "auto") != 0) ||
        exo_cuda_load(&calls, NULL) != EXO_OK)
        return EXO_OK; /* the run itself says what is missing */
    (void)exo_config_bool(run->options, "cpu_offload", false, &offloads, NULL);
    calls->look(&machine);
    if (one && machine.num_gpus > 0 &&
        strtoul(device + 5, NULL, 10) >= (unsigned long)machine.num_gpus)
        return exo_fail(err, EXO_UNSUPPORTED,
                        "there is no GPU %s: this process sees %d, numbered from 0 "
                        "(CUDA_VISIBLE_DEVICES says which)",
                        device + 5, machine.num_gpus);
    for (uint32_t g = 0; g < (uint32_t)machine.num_gpus && !offloads && st == EXO_OK; g++) {
        const uint32_t gpus = (uint32_t)machine.num_gpus;
        const uint32_t share = one ? m->nodes : m->nodes / gpus + (g < m->nodes % gpus);
        if (share > 0 && (!one || (uint32_t)atoi(device + 5) == g))
            st = check_gpu(&machine, g, m, share, prints, err);
    }
    return st;
}

static json_t *
plan_json(const exo_job *job, const exo_job_run *run, const exo_fit_memory *m, uint64_t room)
{
    json_t *free_here = room > 0 ? json_integer((json_int_t)room) : json_null();
    return json_pack("{s:s, s:I, s:i, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o}",
                     "run", run->group, "parameter_count", (json_int_t)exo_model_numel(job->model),
                     "nodes", (int)m->nodes, "minibatch_size", (json_int_t)m->minibatch_size,
                     "parameters", (json_int_t)m->parameters, "gradients", (json_int_t)m->gradients,
                     "optimizer", (json_int_t)m->optimizer, "average", (json_int_t)m->average,
                     "activations", (json_int_t)m->activations, "evaluation",
                     (json_int_t)m->evaluation, "batches", (json_int_t)m->batches, "result",
                     (json_int_t)m->result, "process", (json_int_t)m->process, "peak",
                     (json_int_t)m->peak, "free", free_here);
}

static int
print_json(json_t *plans)
{
    json_t *all = json_pack("{s:s, s:o}", "unit", "bytes", "runs", plans);
    int failed = all ? json_dumpf(all, stdout, JSON_INDENT(2)) : -1;
    putchar('\n');
    json_decref(all);
    if (failed == 0)
        return EXO_EXIT_OK;
    exo_err err = {0};
    exo_fail(&err, EXO_NOMEM, "no memory for the plan");
    return exo_report(&err);
}

/* Whether the job computes on the CPU: `cpu` does, and `auto` where the process sees no GPU. */
static bool
on_cpu(const exo_job *job)
{
    const exo_cuda_calls *calls = NULL;
    const char *device = job->opts.device ? job->opts.device : "cpu";
    if (strcmp(device, "auto") != 0)
        return strcmp(device, "cpu") == 0;
    return exo_cuda_load(&calls, NULL) != EXO_OK || calls->count() == 0;
}

/* The plan of a run. Passes are rehearsed on this processor, which may have no bf16 when the GPUs
 * have: the plan is that of fp32 then, which takes no less. */
static exo_status
make_plan(const exo_job *job, const exo_job_run *run, uint64_t now, exo_fit_memory *out,
          exo_err *err)
{
    exo_fit_opts opts = job->opts;
    exo_status st = exo_fit_memory_plan(job->model, job->train, job->val, run->strategy,
                                        run->options, &opts, now, out, err);
    if (st != EXO_UNSUPPORTED || opts.autocast == EXO_AUTOCAST_NONE || on_cpu(job))
        return st;
    *err = (exo_err){0};
    opts.autocast = EXO_AUTOCAST_NONE;
    return exo_fit_memory_plan(job->model, job->train, job->val, run->strategy, run->options, &opts,
                               now, out, err);
}

/* Whether what the job computes on multiplies fp8: the GPUs of this machine that its nodes take. */
static exo_status
check_fp8(const exo_job *job, exo_err *err)
{
    static exo_cuda_machine machine;
    const exo_cuda_calls *calls = NULL;
    const char *device = job->opts.device ? job->opts.device : "cpu";
    const bool one = strncmp(device, "cuda:", 5) == 0;
    if (job->opts.autocast != EXO_AUTOCAST_FP8)
        return EXO_OK;
    if (on_cpu(job))
        return exo_fit_check_autocast(EXO_AUTOCAST_FP8, "cpu", err);
    if (exo_cuda_load(&calls, NULL) != EXO_OK)
        return EXO_OK; /* the run itself says what is missing */
    calls->look(&machine);
    for (int g = 0; g < machine.num_gpus; g++) {
        const exo_cuda_gpu *gpu = &machine.gpus[g];
        if ((one ? atoi(device + 5) == g : (uint32_t)g < job->opts.num_nodes) &&
            gpu->major * 10 + gpu->minor < EXO_CUDA_FP8_CAPABILITY)
            return exo_fail(err, EXO_UNSUPPORTED,
                            "train.autocast: fp8 needs GPUs of compute capability %d.%d or later, "
                            "and cuda:%d, %s, has %d.%d: take bf16, or another GPU",
                            EXO_CUDA_FP8_CAPABILITY / 10, EXO_CUDA_FP8_CAPABILITY % 10, g,
                            gpu->name, gpu->major, gpu->minor);
    }
    return EXO_OK;
}

int
exo_dry_run(const exo_job *job, bool json)
{
    exo_err err = {0};
    json_t *plans = json_array();
    const uint64_t now = exo_fit_memory_now();
    const uint64_t room = on_cpu(job) ? exo_free_memory() : 0;
    if (check_fp8(job, &err) != EXO_OK) {
        json_decref(plans);
        return exo_report(&err);
    }
    for (size_t i = 0; i < job->num_runs; i++) {
        const exo_job_run *run = &job->runs[i];
        if (i % job->num_seeds > 0)
            continue; /* all seeds of a strategy need the same */
        exo_fit_memory m;
        exo_status st = make_plan(job, run, now, &m, &err);
        if (st != EXO_OK) {
            exo_fail_in(&err, st, "%s", run->label);
            json_decref(plans);
            return exo_report(&err);
        }
        if (json)
            json_array_append_new(plans, plan_json(job, run, &m, room));
        else
            print_table(job, run, &m, room);
        st = check_gpus(job, run, &m, !json, &err);
        if (st != EXO_OK) {
            exo_fail_in(&err, st, "%s", run->label);
            json_decref(plans);
            return exo_report(&err);
        }
    }
    if (json)
        return print_json(plans);
    json_decref(plans);
    return EXO_EXIT_OK;
}

exo_status
exo_dry_run_check(const exo_job *job, exo_err *err)
{
    const exo_pass pass = {.train = true, .grad = true, .autocast = job->opts.autocast};
    exo_pass_memory memory;
    const exo_status st = check_fp8(job, err);
    if (st != EXO_OK || job->opts.autocast == EXO_AUTOCAST_NONE || !on_cpu(job))
        return st; /* what this processor has does not matter to a GPU */
    return exo_model_pass_memory(job->model, &pass, job->train, 1, &memory, err);
}
