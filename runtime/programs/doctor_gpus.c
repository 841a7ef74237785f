/* What `exogym doctor` says of GPUs: those that the plugin finds, its versions, and the links on
 * which they are. No state. Read next: nn/device/cuda_plugin.h. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/environment.h"
#include "base/own_plugin.h"
#include "nn/device/cuda_plugin.h"
#include "programs/doctor.h"

/* A file of a PCI device, such as "current_link_speed"; "": it does not say. */
static void
read_pci(const exo_cuda_gpu *gpu, const char *name, char line[EXO_DOCTOR_LINE])
{
    char path[256];
    snprintf(path, sizeof path, "/sys/bus/pci/devices/%s/%s", gpu->pci, name);
    for (char *c = path; *c; c++) /* CUDA writes the address in upper case */
        if (*c >= 'A' && *c <= 'F')
            *c = (char)(*c - 'A' + 'a');
    exo_doctor_read_line(path, line);
}

/* Whether the plugin was compiled for the GPU: for its architecture, or for an older one of the same
 * major version. */
static bool
is_compiled_for(const exo_cuda_machine *machine, const exo_cuda_gpu *gpu)
{
    for (const char *a = machine->architectures; *a; a += strcspn(a, ";"), a += *a == ';') {
        int number = 0;
        if (sscanf(a, "%d", &number) == 1 && number / 10 == gpu->major && number % 10 <= gpu->minor)
            return true;
    }
    return false;
}

/* What EXOGYM_CUDA_MEMORY lets each process have of the GPU. */
static void
add_bound(json_t *findings, const exo_cuda_machine *machine, int index)
{
    const exo_cuda_gpu *gpu = &machine->gpus[index];
    const double mib = 1 << 20;
    const bool none = gpu->limit < machine->own;
    char name[48], value[EXO_DOCTOR_LINE];
    if (gpu->limit == UINT64_MAX)
        return;
    snprintf(name, sizeof name, "cuda:%d bound", index);
    snprintf(value, sizeof value, "a process may have %.1f of %.1f MiB (EXOGYM_CUDA_MEMORY)",
             (double)gpu->limit / mib, (double)gpu->memory / mib);
    exo_finding_add(findings, name, value,
                    none ? "no device fits within it: raise the bound" : NULL);
}

static void
add_gpu(json_t *findings, const exo_cuda_machine *machine, int index)
{
    const exo_cuda_gpu *gpu = &machine->gpus[index];
    char name[32], value[2 * EXO_DOCTOR_LINE], speed[EXO_DOCTOR_LINE], width[EXO_DOCTOR_LINE],
        mend[EXO_DOCTOR_LINE];
    const double gib = 1 << 30;
    read_pci(gpu, "current_link_speed", speed);
    read_pci(gpu, "current_link_width", width);
    snprintf(name, sizeof name, "cuda:%d", index);
    const bool fp8 = gpu->major * 10 + gpu->minor >= EXO_CUDA_FP8_CAPABILITY;
    snprintf(value, sizeof value, "%s, %d.%d, %s fp8, %.1f GiB, %.1f GiB are free%s%s%s%s",
             gpu->name, gpu->major, gpu->minor, fp8 ? "with" : "without", (double)gpu->memory / gib,
             (double)gpu->free / gib, speed[0] ? ", PCIe " : "", speed,
             speed[0] && width[0] ? " x" : "", width);
    snprintf(mend, sizeof mend,
             "exogym-cuda.so is compiled for %s: build it with -DEXO_CUDA_ARCHITECTURES=%d%d",
             machine->architectures, gpu->major, gpu->minor);
    exo_finding_add(findings, name, value, is_compiled_for(machine, gpu) ? NULL : mend);
}

static void
add_nccl(json_t *findings, const exo_cuda_machine *machine)
{
    char value[192];
    snprintf(value, sizeof value, "%d.%d.%d%s%s", machine->nccl / 10000, machine->nccl / 100 % 100,
             machine->nccl % 100, machine->nccl_lacks[0] ? ", without " : "", machine->nccl_lacks);
    exo_finding_add(findings, "NCCL", machine->nccl ? value : "cannot be used",
                    machine->nccl ? NULL : machine->nccl_problem);
}

/* What computes convolutions, and attention in bf16. */
static void
add_cudnn(json_t *findings, const exo_cuda_machine *machine)
{
    const size_t version = machine->cudnn;
    const bool broken = machine->cudnn_problem[0];
    const char *asked = exo_environment("EXOGYM_CUDNN");
    const bool on = asked && strcmp(asked, "off") != 0;
    char value[EXO_DOCTOR_LINE];
    if (version)
        snprintf(value, sizeof value, "%zu.%zu.%zu, %s", version / 10000, version / 100 % 100,
                 version % 100,
                 on ? "computes convolutions and attention"
                    : "not used: EXOGYM_CUDNN=on lets it compute convolutions and attention");
    else
        snprintf(value, sizeof value, "%s%s", broken ? "cannot be used" : "is not there",
                 on ? "" : "; exogym's own kernels compute convolutions and attention");
    exo_finding_add(findings, "cuDNN", value,
                    broken ? machine->cudnn_problem
                    : on && !version
                        ? "EXOGYM_CUDNN needs it: install cuDNN 9 for CUDA 13, or name "
                          "its folder in LD_LIBRARY_PATH; or unset EXOGYM_CUDNN"
                        : NULL);
}

/* How kernels are started. */
static void
add_graphs(json_t *findings)
{
    const char *asked = exo_environment("EXOGYM_CUDA_GRAPHS");
    exo_finding_add(findings, "CUDA graphs",
                    asked && strcmp(asked, "on") == 0
                        ? "start steps of generation and of training"
                        : "start steps of generation; EXOGYM_CUDA_GRAPHS=on lets them start those "
                          "of training, too",
                    NULL);
}

void
exo_doctor_look_at_gpus(json_t *findings)
{
    static exo_cuda_machine machine;
    const exo_cuda_calls *calls = NULL;
    exo_err err = {0};
    char value[EXO_DOCTOR_LINE];
    const bool card = access("/dev/nvidia0", F_OK) == 0;
    const bool built = exo_own_plugin_load("exogym-cuda.so", NULL, NULL, NULL) != EXO_NOT_FOUND;
    if (exo_cuda_load(&calls, &err) != EXO_OK && built) {
        exo_finding_add(findings, "CUDA", "exogym-cuda.so is there, and cannot be loaded",
                        err.text);
        return;
    }
    if (!calls) {
        exo_finding_add(
            findings, "CUDA", card ? "there is a GPU, and exogym cannot use it" : "is not there",
            card ? err.text : "for NVIDIA's GPUs: install CUDA 13, then build exogym again");
        return;
    }
    calls->look(&machine);
    char driver[32] = "none";
    if (machine.driver)
        snprintf(driver, sizeof driver, "%d.%d", machine.driver / 1000, machine.driver % 1000 / 10);
    snprintf(value, sizeof value, "runtime %d.%d, driver %s, cuBLASLt %zu, compiled for %s",
             machine.runtime / 1000, machine.runtime % 1000 / 10, driver, machine.cublaslt,
             machine.architectures);
    exo_finding_add(findings, "CUDA", value,
                    machine.num_gpus == 0
                        ? "no GPU can be used: install NVIDIA's driver; in a container pass the "
                          "GPUs through (docker run --gpus all)"
                        : NULL);
    add_cudnn(findings, &machine);
    add_graphs(findings);
    for (int g = 0; g < machine.num_gpus; g++) {
        add_gpu(findings, &machine, g);
        add_bound(findings, &machine, g);
    }
    if (machine.num_gpus == 0 && machine.problem[0])
        exo_finding_add(findings, "GPUs", machine.problem, NULL);
    add_nccl(findings, &machine);
}
