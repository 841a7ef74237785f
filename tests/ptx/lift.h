/* Operations of one lane as handlers of 32. */
#ifndef EXO_TEST_PTX_LIFT_H
#define EXO_TEST_PTX_LIFT_H

#include <limits>
#include <type_traits>

#include "ptx/decode.h"
#include "ptx/run.h"

namespace ptx {

/* A predicate. */
using truth = uint32_t;

/* The one NaN of a GPU's arithmetic in fp32. */
static inline float
canonical(float x)
{
    const uint32_t nan = 0x7FFFFFFF;
    float out;
    memcpy(&out, &nan, sizeof out);
    return x == x ? x : out;
}

template <typename T>
static inline T
canonical(T x)
{
    return x;
}

template <typename F, typename R, typename A>
static void
run_one(warp &w, const instruction &i, uint32_t on)
{
    R out[LANES];
    const void *const a = w.row<void *>(i.row[1]);
    for (size_t l = 0; l < LANES; l++)
        out[l] = F::of(get<A>(a, l));
    put_lanes(w, i.row[0], out, on);
}

template <typename F, typename R, typename A, typename B>
static void
run_two(warp &w, const instruction &i, uint32_t on)
{
    R out[LANES];
    const void *const a = w.row<void *>(i.row[1]), *const b = w.row<void *>(i.row[2]);
    for (size_t l = 0; l < LANES; l++)
        out[l] = F::of(get<A>(a, l), get<B>(b, l));
    put_lanes(w, i.row[0], out, on);
}

template <typename F, typename R, typename A, typename B, typename C>
static void
run_three(warp &w, const instruction &i, uint32_t on)
{
    R out[LANES];
    const void *const a = w.row<void *>(i.row[1]), *const b = w.row<void *>(i.row[2]),
                      *const c = w.row<void *>(i.row[3]);
    for (size_t l = 0; l < LANES; l++)
        out[l] = F::of(get<A>(a, l), get<B>(b, l), get<C>(c, l));
    put_lanes(w, i.row[0], out, on);
}

template <typename T>
static inline constexpr uint8_t
lane_size(void)
{
    return static_cast<uint8_t>(lane_bytes<T>());
}

template <typename F, typename R, typename A>
static operation
one(void)
{
    return {run_one<F, R, A>, kind::plain, 1, {lane_size<R>(), lane_size<A>()}, false};
}

template <typename F, typename R, typename A, typename B>
static operation
two(void)
{
    return {run_two<F, R, A, B>,
            kind::plain,
            1,
            {lane_size<R>(), lane_size<A>(), lane_size<B>()},
            false};
}

template <typename F, typename R, typename A, typename B, typename C>
static operation
three(void)
{
    return {run_three<F, R, A, B, C>,
            kind::plain,
            1,
            {lane_size<R>(), lane_size<A>(), lane_size<B>(), lane_size<C>()},
            false};
}

/* The same of an operation that hands on what is undefined. */
static inline operation
lenient(operation o)
{
    o.lenient = true;
    return o;
}

} // namespace ptx

#endif
