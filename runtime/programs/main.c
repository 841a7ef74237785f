/* main() of the exogym command: its table, with the list of commands. Read next: program.c,
 * commands.h, run.c. */
#include "programs/commands.h"

static const exo_command *const commands[] = {
    &exo_command_run,      &exo_command_sweep,  &exo_command_plan,       &exo_command_graph,
    &exo_command_plot,     &exo_command_ckpt,   &exo_command_explain,    &exo_command_export,
    &exo_command_generate, &exo_command_data,   &exo_command_list,       &exo_command_doctor,
    &exo_command_keygen,   &exo_command_status, &exo_command_spawn,      &exo_command_call,
    &exo_command_kill,     &exo_command_why,    &exo_command_dump,       &exo_command_logs,
    &exo_command_stop,     &exo_command_help,   &exo_command_completion, NULL,
};

static const exo_note examples[] = {
    {"exogym run examples/01_compare/compare.yaml --preset quick",
     "Compares three strategies, in a few minutes."},
    {"exogym help run", "Shows what `run` takes."},
    {0},
};

static const exo_note environment[] = {
    {"EXOGYM_THREADS",
     "Threads that compute at once; all usable cores unless set. Changes speed, never numbers."},
    {"EXOGYM_DATA", "Where data sets lie; else $XDG_DATA_HOME/exogym, else ~/.local/share/exogym."},
    {"EXOGYM_HEAD",
     "The address of a cluster's head for commands that look at one, unless --head says "
     "it. `run` needs --head."},
    {"EXOGYM_HEAD_KEY", "Its public key, or the path of its NAME.key, unless --head-key says it."},
    {"EXOGYM_CUDNN",
     "What computes convolutions, and attention in bf16, on a GPU: off (the default: exogym's "
     "kernels), on (cuDNN) or tf32 (cuDNN, which may compute fp32 as tf32)."},
    {"EXOGYM_CUDA_EPILOGUES", "Whether cuBLASLt adds biases and computes GELU with the products of "
                              "a GPU in bf16 and fp8: on (the default) or off."},
    {"EXOGYM_CUDA_GRAPHS", "Whether steps of training on a GPU are started as CUDA graphs: off "
                           "(the default) or on. Changes "
                           "speed, never numbers."},
    {"EXOGYM_CUDA_MEMORY",
     "What this process may have of each GPU's memory: a part up to 1, as 0.5, "
     "or a size, as 20GiB; all of it unless set."},
    {"EXOGYM_CUDA_TF32", "Whether products of fp32 on a GPU may be computed as tf32: off (the "
                         "default) or on."},
    {"EXOGYM_STORE",
     "Most bytes that this process's shared objects take, as 2GiB; half of the memory "
     "unless set."},
    {"EXOGYM_LOG", "How much is logged: error, warn (the default), info or debug."},
    {0},
};

static const exo_command exogym = {
    .name = "exogym",
    .summary = "Trains one model on several nodes under a strategy and compares strategies",
    .description = "exogym trains one model on several nodes under a strategy (DDP, DiLoCo, "
                   "SPARTA, ...) and shows what each strategy costs and gives.\n\n"
                   "Options may stand anywhere; --name VALUE and --name=VALUE are the same; after "
                   "-- no word is an option. An error is one line on standard error that begins "
                   "with the program's name and names the argument, or the file with line and "
                   "column.",
    .examples = examples,
    .environment = environment,
    .exits = exo_run_exits,
    .commands = commands,
};

int
main(int argc, char **argv)
{
    return exo_program_main(&exogym, argc, argv);
}
