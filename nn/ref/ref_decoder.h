/* The reference of a decoder's inference: sizes of its arrays. Private to nn/ref. */
#ifndef EXO_REF_DECODER_H
#define EXO_REF_DECODER_H

#include "nn/device/device_impl.h"

/* The bytes of an array of the kernels; 0 for uses that they lack. */
size_t exo_ref_decoder_scratch(const exo_decoder_shape *shape, exo_scratch_use use);

#endif
