/* The data sets of text that a job can name. No state. Read next: named.c. */
#ifndef EXO_NAMED_H
#define EXO_NAMED_H

#include "nn/dataset_impl.h"

enum {
    EXO_NUM_TEXT_SETS = 3
};

extern const exo_named_data exo_text_sets[EXO_NUM_TEXT_SETS];

#endif
