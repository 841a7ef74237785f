/* What kernels would cost a GPU: see counts.cc. */
#ifndef EXO_TEST_PTX_COUNTS_H
#define EXO_TEST_PTX_COUNTS_H

#include "ptx/run.h"

namespace ptx {

extern bool counting; /* EXO_PTX=counts */

void count_launch(const grid &g);
/* An instruction that lanes are about to do. */
void count(warp &w, const instruction &i, uint32_t on);

} // namespace ptx

#endif
