/* Parts of compressed exchanges, for strategies: whole operations on arrays, as those of device.h.
 *
 * The arrays of a call are on one device, and do not overlap unless that is said. Sums have a fixed
 * order, so the bits depend neither on the number of threads nor on the placement of nodes. Read
 * next: docs/strategies.md, which has the strategies that use them.
 */
#ifndef EXOGYM_COMPRESS_H
#define EXOGYM_COMPRESS_H

#include <stddef.h>

#include <exogym/device.h>
#include <exogym/rng.h>
#include <exogym/status.h>

EXO_DECLS_BEGIN

/* --- Low rank ---------------------------------------------------------------------------------
 *
 * A matrix M (rows, cols) as a product P Q of P (rows, rank) and Q (rank, cols), all row-major
 * fp32: the steps of PowerSGD (Vogels et al., 2019, arXiv:1905.13727), whose Q is this one
 * transposed. */

/* The plans and the scratch memory for matrices of one shape and rank. Owner: its creator; one
 * thread at a time. */
typedef struct exo_low_rank exo_low_rank;

/* Makes it; rows and cols from 1, rank from 1 to the smaller of them. The caller frees it. Errors:
 * NOMEM, or the device's. */
EXO_API exo_status exo_low_rank_new(exo_low_rank **out, exo_device *device, size_t rows,
                                    size_t cols, size_t rank, exo_err *err);
/* Frees *low_rank and sets it to NULL; accepts NULL in it. */
EXO_API void exo_low_rank_free(exo_low_rank **low_rank);
/* Fills Q with standard normal numbers of the stream. Errors: NOMEM, or the device's. */
EXO_API exo_status exo_low_rank_draw(exo_low_rank *low_rank, exo_array q, exo_rng *rng,
                                     exo_err *err);
/* P = M Q^T. Errors, here and below: the device's, which may also come with
 * exo_device_synchronize. */
EXO_API exo_status exo_low_rank_left(exo_low_rank *low_rank, exo_array p, exo_array m, exo_array q,
                                     exo_err *err);
/* Q = P^T M. */
EXO_API exo_status exo_low_rank_right(exo_low_rank *low_rank, exo_array q, exo_array p, exo_array m,
                                      exo_err *err);
/* M = P Q. */
EXO_API exo_status exo_low_rank_product(exo_low_rank *low_rank, exo_array m, exo_array p,
                                        exo_array q, exo_err *err);
/* Replaces the columns of P by orthonormal ones: those of the QR factorization whose R has no
 * negative number on its diagonal, which are Gram-Schmidt's. A column that depends on earlier ones
 * becomes some unit vector orthogonal to the others. Computed in double and rounded once. */
EXO_API void exo_low_rank_orthonormalize_p(exo_low_rank *low_rank, exo_array p);
/* The same for the rows of Q. */
EXO_API void exo_low_rank_orthonormalize_q(exo_low_rank *low_rank, exo_array q);

/* --- int8 with scales -------------------------------------------------------------------------
 *
 * x (count) in chunks of `chunk` elements, from 1, of which the last may be shorter. Nodes agree on
 * scales first: the scale of a chunk is its largest magnitude on any node. */

/* y (chunks) = the largest magnitude of each chunk of x, fp32. A NaN counts as infinite, so that it
 * is not rounded away. */
EXO_API void exo_vec_largest(exo_array y, exo_array x, size_t chunk);
/* y (int8, count) = x / scale * 127, rounded to nearest, ties to even. scales (nodes, chunks) has
 * the largest magnitudes of each node. Where the scale is 0 or infinite, y is 0. */
EXO_API void exo_vec_quantize(exo_array y, exo_array x, exo_array scales, size_t chunk);
/* y (count) = the sum over the senders of x (int8, senders x count), in int32, times scale /
 * divisor, in this order: with divisor 127 the sum of the senders' x, with 127 N the mean of N.
 * Where the scale is infinite, y is not finite. */
EXO_API void exo_vec_dequantize(exo_array y, exo_array x, exo_array scales, size_t chunk,
                                float divisor);

/* --- DCT and the largest coefficients ---------------------------------------------------------
 *
 * DeMo's parts (Peng et al., 2024, arXiv:2411.19870). */

/* A matrix (rows, cols) in equal chunks; a vector has one row. */
typedef struct exo_dct {
    size_t rows, cols;             /* of the matrix */
    size_t chunk_rows, chunk_cols; /* of a chunk; they divide rows and cols */
} exo_dct;

/* Cuts a matrix into chunks whose sides are the largest divisors of its sides that are at most
 * `most`, from 1 to 64. */
EXO_API exo_dct exo_dct_cut(size_t rows, size_t cols, size_t most);
/* y = the orthonormal DCT-II of each chunk of x, in both dimensions: chunk after chunk, row-major
 * inside. x, y: (rows x cols). */
EXO_API void exo_vec_dct(exo_array y, exo_array x, const exo_dct *shape);
/* The inverse: from coefficients x to a matrix y. */
EXO_API void exo_vec_dct_inverse(exo_array y, exo_array x, const exo_dct *shape);

/* Messages of several nodes in one array of bytes (EXO_U8), all of one length: k values of each
 * chunk of an array, and their places. */
typedef struct exo_sent {
    exo_array messages; /* the senders' messages, one after the other */
    size_t bytes;       /* of a message; a multiple of 4 */
    /* where the values (chunks, k), fp32, and their places, uint16, begin in a message: bytes;
     * multiples of 4 and 2 */
    size_t values, places;
    size_t size, k; /* elements of a chunk, up to 4,096; of them in a message, from 1 to size */
} exo_sent;

/* Writes the k of largest magnitude of each chunk of x to the one message of `sent`, in the order
 * of their places. Of equal magnitudes the first is taken; a NaN counts as the largest. */
EXO_API void exo_vec_top_k(const exo_sent *sent, exo_array x);
/* y = for each place the mean of the values that were sent for it, added in the order of the
 * messages; 0 where none was sent. */
EXO_API void exo_vec_sent_mean(exo_array y, const exo_sent *sent);

/* --- Signs with a scale -----------------------------------------------------------------------
 *
 * The parts of 1-bit Adam (Tang et al., 2021, arXiv:2102.02888): x becomes scale * sign(x) with
 * scale = sqrt(mean of x^2) and sign(0) = 1. */

/* Messages in one array of bytes (EXO_U8), all of one length: signs of consecutive elements, and
 * the scale. */
typedef struct exo_signs {
    exo_array messages; /* one after the other */
    size_t bytes;       /* of a message; a multiple of 4 */
    size_t signs;       /* where chunk / 8 bytes of signs begin in a message: bytes */
    size_t scale;       /* where the scale, fp32, begins: bytes, a multiple of 4 */
    size_t chunk;       /* elements in a message, a multiple of 8 */
} exo_signs;

/* Writes the signs of x in chunks, chunk c to message c, and to each message the scale of all of
 * x; 0 for no elements. x has at most as many elements as the messages. */
EXO_API void exo_vec_sign_pack(const exo_signs *to, exo_array x);
/* y = scale * sign, with element i from message i / chunk. */
EXO_API void exo_vec_sign_unpack(exo_array y, const exo_signs *from);
/* y (at most chunk) = the mean over the messages of scale * sign, added in their order. */
EXO_API void exo_vec_sign_mean(exo_array y, const exo_signs *from);

EXO_DECLS_END

#endif
