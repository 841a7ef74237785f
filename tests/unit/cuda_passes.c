/* Passes that meet others, on the CUDA runtime of the tests: what CUDA refuses of their graphs. Read next:
 * nn/cuda/graphs.h. */
#include <criterion/criterion.h>

#include "cuda/emulator.h"
#include "cuda/passes.h"
#include "nn/cuda/open.h"
#include "nn/cuda/side.h"

/* Runs the pass, which meets others twice, also if it fails. */
static void
expect(cuda_passes *passes, bool fails)
{
    exo_err err = {0};
    unsigned met = 0;
    cr_assert_eq(cuda_passes_run(passes, fails, &met, &err), fails ? EXO_FAILED : EXO_OK, "%s",
                 err.text);
    cr_assert_eq(met, 2, "%u", met);
}

/* A graph is refused behind others, and what is started instead fails, too: nobody goes on recording. */
Test(cuda_passes, a_pass_may_fail_where_its_graph_was_refused)
{
    exo_device *gpu = NULL;
    exo_err err = {0};
    cr_assert_eq(exo_cuda_open(&gpu, 0, &err), EXO_OK, "%s", err.text);
    for (uint64_t piece = 2; piece <= 3; piece++) {
        cuda_passes *passes = cuda_passes_open(gpu);
        cr_assert_not_null(passes);
        for (int i = 0; i < 3; i++)
            expect(passes, false);
        cuda_emulator_fail_graph(CUDA_LAUNCH_GRAPH, piece, 1);
        expect(passes, true);
        for (int i = 0; i < 3; i++)
            expect(passes, false);
        cuda_emulator_fail_graph(CUDA_LAUNCH_GRAPH, piece, 1);
        expect(passes, false);
        cuda_passes_close(passes);
    }
    exo_cuda_forbid_recordings(0); /* waits for those that record */
    exo_cuda_allow_recordings(0);
    exo_cuda_close(gpu);
    cr_expect_eq(cuda_emulator_memory() + cuda_emulator_things(), 0);
}
