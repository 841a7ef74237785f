/* The width of this build's vector registers. A compiler cuts a longer vector into words on the
 * stack, several times as slow. */
#ifndef EXO_VECTOR_WIDTH_H
#define EXO_VECTOR_WIDTH_H

#if defined(__AVX512F__)
#define EXO_VECTOR_BYTES 64
#elif defined(__AVX2__)
#define EXO_VECTOR_BYTES 32
#else
#define EXO_VECTOR_BYTES 16
#endif

#endif
