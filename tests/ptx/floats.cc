/* Floats. Approximate instructions (.approx) have the host's functions in fp32: their last bits are not those
 * of a GPU. No state. Read next: convert.cc. */
#include <fenv.h>

#include "ptx/numbers.h"

namespace ptx {

namespace {

struct fused {
    static float of(float a, float b, float c)
    {
        return canonical(fmaf(a, b, c));
    }
    static double of(double a, double b, double c)
    {
        return fma(a, b, c);
    }
};

struct root {
    template <typename T> static T of(T a)
    {
        return canonical(std::sqrt(a));
    }
};

struct reciprocal {
    template <typename T> static T of(T a)
    {
        return canonical(1 / a);
    }
};

struct inverse_root {
    template <typename T> static T of(T a)
    {
        return canonical(1 / std::sqrt(a));
    }
};

/* The high half of a double, as rcp.approx.ftz.f64 has it: 20 bits. */
struct rough_reciprocal {
    static double of(double a)
    {
        double out =
            std::fabs(a) < std::numeric_limits<double>::min() ? std::copysign(HUGE_VAL, a) : 1 / a;
        uint64_t bits;
        memcpy(&bits, &out, sizeof bits);
        bits &= UINT64_C(0xFFFFFFFF00000000);
        memcpy(&out, &bits, sizeof out);
        return out;
    }
};

/* A function of the host's library, whose last bits are not a GPU's. */
template <float (*FUNCTION)(float)> struct by_library {
    static float of(float a)
    {
        return canonical(FUNCTION(a));
    }
};

/* .ftz: what is below the normal numbers is 0, before and behind. */
static float
flush(float x)
{
    return std::fabs(x) < std::numeric_limits<float>::min() ? std::copysign(0.0f, x) : x;
}

template <typename F> struct flushed {
    static float of(float a)
    {
        return flush(F::of(flush(a)));
    }
    static float of(float a, float b)
    {
        return flush(F::of(flush(a), flush(b)));
    }
    static float of(float a, float b, float c)
    {
        return flush(F::of(flush(a), flush(b), flush(c)));
    }
};

/* The sign of the first, the rest of the second. */
struct copy_sign {
    template <typename T> static T of(T a, T b)
    {
        return std::copysign(b, a);
    }
};

} // namespace

/* fma with rounding towards less, which the host has as a mode. */
__attribute__((noinline)) static void
run_fma_down(warp &w, const instruction &i, uint32_t on)
{
    volatile float out[LANES];
    const volatile float *const a = w.row<float>(i.row[1]), *const b = w.row<float>(i.row[2]),
                                *const c = w.row<float>(i.row[3]);
    fesetround(FE_DOWNWARD);
    for (size_t l = 0; l < LANES; l++)
        out[l] = fmaf(a[l], b[l], c[l]);
    fesetround(FE_TONEAREST);
    float values[LANES];
    for (size_t l = 0; l < LANES; l++)
        values[l] = canonical(out[l]);
    put_lanes(w, i.row[0], values, on);
}

template <typename T>
static void
add_floats(operations *all, const std::string &type)
{
    for (const char *rounding : {".rn.", "."}) {
        (*all)["add" + (rounding + type)] = two<add, T, T, T>();
        (*all)["sub" + (rounding + type)] = two<sub, T, T, T>();
        (*all)["mul" + (rounding + type)] = two<mul, T, T, T>();
    }
    (*all)["fma.rn." + type] = three<fused, T, T, T, T>();
    (*all)["div.rn." + type] = two<div, T, T, T>();
    (*all)["sqrt.rn." + type] = one<root, T, T>();
    (*all)["rcp.rn." + type] = one<reciprocal, T, T>();
    (*all)["min." + type] = two<least, T, T, T>();
    (*all)["max." + type] = two<most, T, T, T>();
    (*all)["neg." + type] = one<negate, T, T>();
    (*all)["abs." + type] = one<absolute, T, T>();
    (*all)["copysign." + type] = two<copy_sign, T, T, T>();
    (*all)["setp.equ." + type] = two<is_equal_or_nan, truth, T, T>();
    (*all)["setp.neu." + type] = two<is_other_or_nan, truth, T, T>();
    (*all)["setp.ltu." + type] = two<is_less_or_nan, truth, T, T>();
    (*all)["setp.leu." + type] = two<is_up_to_or_nan, truth, T, T>();
    (*all)["setp.gtu." + type] = two<is_more_or_nan, truth, T, T>();
    (*all)["setp.geu." + type] = two<is_from_or_nan, truth, T, T>();
    (*all)["setp.num." + type] = two<are_numbers, truth, T, T>();
    (*all)["setp.nan." + type] = two<are_no_numbers, truth, T, T>();
    add_choices<T>(all, type);
}

template <typename F>
static void
add_rough(operations *all, const std::string &name)
{
    (*all)[name + ".approx.f32"] = one<F, float, float>();
    (*all)[name + ".approx.ftz.f32"] = one<flushed<F>, float, float>();
}

void
add_floats(operations *all)
{
    add_floats<float>(all, "f32");
    add_floats<double>(all, "f64");
    add_rough<by_library<exp2f>>(all, "ex2");
    add_rough<by_library<log2f>>(all, "lg2");
    add_rough<reciprocal>(all, "rcp");
    add_rough<inverse_root>(all, "rsqrt");
    add_rough<root>(all, "sqrt");
    add_rough<by_library<sinf>>(all, "sin");
    add_rough<by_library<cosf>>(all, "cos");
    (*all)["tanh.approx.f32"] = one<by_library<tanhf>, float, float>();
    (*all)["fma.rm.f32"] = {run_fma_down, kind::plain, 1, {4, 4, 4, 4}, false};
    (*all)["rcp.approx.ftz.f64"] = one<rough_reciprocal, double, double>();
}

} // namespace ptx
