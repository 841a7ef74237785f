/* Conversions between types. No state. Read next: memory.cc. */
#include <math.h>

#include "ptx/lift.h"

namespace ptx {

namespace {

/* To an integer, by a rounding: what does not fit is the nearest that does, a NaN 0. */
template <typename R>
static R
clamped(double x)
{
    if (x != x)
        return 0;
    const double least = static_cast<double>(std::numeric_limits<R>::min()),
                 beyond = ldexp(1, std::numeric_limits<R>::digits);
    return x <= least    ? std::numeric_limits<R>::min()
           : x >= beyond ? std::numeric_limits<R>::max()
                         : static_cast<R>(x);
}

template <char ROUNDING, typename T>
static T
rounded(T x)
{
    return ROUNDING == 'n'   ? std::nearbyint(x)
           : ROUNDING == 'z' ? std::trunc(x)
           : ROUNDING == 'm' ? std::floor(x)
                             : std::ceil(x);
}

/* Between integers: bits that are cut off, or the sign that goes on. */
template <typename R> struct to_integer {
    template <typename A> static R of(A a)
    {
        return static_cast<R>(a);
    }
};

template <typename R, char ROUNDING> struct float_to_integer {
    template <typename A> static R of(A a)
    {
        return clamped<R>(static_cast<double>(rounded<ROUNDING>(a)));
    }
};

template <typename R> struct to_float {
    template <typename A> static R of(A a)
    {
        return canonical(static_cast<R>(a));
    }
};

template <char ROUNDING> struct to_whole {
    template <typename A> static A of(A a)
    {
        return canonical(rounded<ROUNDING>(a));
    }
};

template <uint64_t BY> struct moved {
    static uint64_t of(uint64_t a)
    {
        return a + BY;
    }
};

/* Into [0, 1]; a NaN is 0. */
struct saturated {
    static float of(float a)
    {
        return a > 0 ? (a < 1 ? a : 1.0f) : 0.0f;
    }
};

static uint16_t
bf16_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    if (x != x)
        return 0x7FFF;
    const uint32_t half = 0x8000, below = bits & 0xFFFF, up = bits >> 16;
    return static_cast<uint16_t>(up + (below > half || (below == half && (up & 1))));
}

struct to_bf16 {
    static uint16_t of(float a)
    {
        return bf16_of(a);
    }
};

/* The first operand is the upper half. */
struct to_two_bf16 {
    static uint32_t of(float high, float low)
    {
        return static_cast<uint32_t>(bf16_of(high)) << 16 | bf16_of(low);
    }
};

struct from_bf16 {
    static float of(uint16_t a)
    {
        const uint32_t bits = static_cast<uint32_t>(a) << 16;
        float x;
        memcpy(&x, &bits, sizeof x);
        return canonical(x);
    }
};

} // namespace

template <typename R, typename A>
static void
add_between(operations *all, const std::string &to, const std::string &from)
{
    if constexpr (std::is_integral<R>::value && std::is_integral<A>::value) {
        (*all)["cvt." + to + "." + from] = one<to_integer<R>, R, A>();
    } else if constexpr (std::is_integral<R>::value) {
        (*all)["cvt.rni." + to + "." + from] = one<float_to_integer<R, 'n'>, R, A>();
        (*all)["cvt.rzi." + to + "." + from] = one<float_to_integer<R, 'z'>, R, A>();
        (*all)["cvt.rmi." + to + "." + from] = one<float_to_integer<R, 'm'>, R, A>();
        (*all)["cvt.rpi." + to + "." + from] = one<float_to_integer<R, 'p'>, R, A>();
    } else {
        const bool exact = sizeof(R) > sizeof(A) && !std::is_integral<A>::value;
        (*all)[(exact ? "cvt." : "cvt.rn.") + to + "." + from] = one<to_float<R>, R, A>();
    }
}

template <typename R>
static void
add_to(operations *all, const std::string &to)
{
    add_between<R, uint8_t>(all, to, "u8");
    add_between<R, int8_t>(all, to, "s8");
    add_between<R, uint16_t>(all, to, "u16");
    add_between<R, int16_t>(all, to, "s16");
    add_between<R, uint32_t>(all, to, "u32");
    add_between<R, int32_t>(all, to, "s32");
    add_between<R, uint64_t>(all, to, "u64");
    add_between<R, int64_t>(all, to, "s64");
    add_between<R, float>(all, to, "f32");
    add_between<R, double>(all, to, "f64");
}

void
add_conversions(operations *all)
{
    add_to<uint8_t>(all, "u8");
    add_to<int8_t>(all, "s8");
    add_to<uint16_t>(all, "u16");
    add_to<int16_t>(all, "s16");
    add_to<uint32_t>(all, "u32");
    add_to<int32_t>(all, "s32");
    add_to<uint64_t>(all, "u64");
    add_to<int64_t>(all, "s64");
    add_to<float>(all, "f32");
    add_to<double>(all, "f64");
    (*all)["cvt.rni.f32.f32"] = one<to_whole<'n'>, float, float>();
    (*all)["cvt.rzi.f32.f32"] = one<to_whole<'z'>, float, float>();
    (*all)["cvt.rmi.f32.f32"] = one<to_whole<'m'>, float, float>();
    (*all)["cvt.rpi.f32.f32"] = one<to_whole<'p'>, float, float>();
    (*all)["cvt.rni.f64.f64"] = one<to_whole<'n'>, double, double>();
    (*all)["cvt.rzi.f64.f64"] = one<to_whole<'z'>, double, double>();
    (*all)["cvt.rmi.f64.f64"] = one<to_whole<'m'>, double, double>();
    (*all)["cvt.rpi.f64.f64"] = one<to_whole<'p'>, double, double>();
    (*all)["cvt.sat.f32.f32"] = one<saturated, float, float>();
    (*all)["cvt.rn.bf16.f32"] = one<to_bf16, uint16_t, float>();
    (*all)["cvt.rn.bf16x2.f32"] = two<to_two_bf16, uint32_t, float, float>();
    (*all)["cvt.f32.bf16"] = one<from_bf16, float, uint16_t>();
    /* addresses of the host are generic and global ones */
    (*all)["cvta.shared.u64"] = one<moved<SHARED_WINDOW>, uint64_t, uint64_t>();
    (*all)["cvta.to.shared.u64"] = one<moved<-SHARED_WINDOW>, uint64_t, uint64_t>();
    (*all)["cvta.local.u64"] = one<moved<LOCAL_WINDOW>, uint64_t, uint64_t>();
    (*all)["cvta.to.local.u64"] = one<moved<-LOCAL_WINDOW>, uint64_t, uint64_t>();
    (*all)["cvta.to.global.u64"] = one<to_integer<uint64_t>, uint64_t, uint64_t>();
    (*all)["cvta.global.u64"] = one<to_integer<uint64_t>, uint64_t, uint64_t>();
}

} // namespace ptx
