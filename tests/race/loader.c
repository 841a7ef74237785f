/* The loader under the thread sanitizer: several reader threads give batches in order, and the
 * loader is closed in the middle. The main thread owns the loader. Read next:
 * include/exogym/data.h. */
#include <stdio.h>
#include <stdlib.h>

#include <exogym/exogym.h>

#include "support/check.h"
#include "support/points.h"

enum {
    BATCH = 8,
    BATCHES = 100
};

int
main(void)
{
    exo_dataset *data = points_new(100, 1, SIZE_MAX);
    float first[BATCHES];
    for (unsigned threads = 1; threads <= 4; threads++) {
        for (unsigned depth = 1; depth <= 4; depth++) {
            const exo_loader_opts opts = {.num_nodes = 1,
                                          .shuffle = true,
                                          .seed = 3,
                                          .batch_size = BATCH,
                                          .depth = depth,
                                          .threads = threads};
            exo_loader *loader = NULL;
            CHECK(exo_loader_open(&loader, data, &opts, NULL) == EXO_OK);
            /* a loader of depth 4 is closed while it reads ahead */
            int stop = depth == 4 ? 5 : BATCHES;
            for (int i = 0; i < stop; i++) {
                const exo_batch *batch = NULL;
                CHECK(exo_loader_next(loader, 60 * EXO_SECOND, &batch, NULL) == EXO_OK);
                float sum = 0;
                for (size_t k = 0; k < BATCH * POINTS_DIM; k++)
                    sum += ((const float *)batch->data[0])[k];
                if (threads == 1 && depth == 1)
                    first[i] = sum;
                CHECK(sum == first[i]);
            }
            exo_loader_close(&loader);
        }
    }
    exo_dataset_drop(&data);
    puts("1 passed, 0 failed");
    return 0;
}
