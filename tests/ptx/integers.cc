/* Integers, bits and predicates. No state. Read next: floats.cc. */
#include "ptx/numbers.h"

namespace ptx {

namespace {

template <typename T> struct wider;
template <> struct wider<uint16_t> {
    using type = uint32_t;
};
template <> struct wider<int16_t> {
    using type = int32_t;
};
template <> struct wider<uint32_t> {
    using type = uint64_t;
};
template <> struct wider<int32_t> {
    using type = int64_t;
};
template <> struct wider<uint64_t> {
    using type = unsigned __int128;
};
template <> struct wider<int64_t> {
    using type = __int128;
};

struct mul_hi {
    template <typename T> static T of(T a, T b)
    {
        using W = typename wider<T>::type;
        return static_cast<T>((static_cast<W>(a) * static_cast<W>(b)) >> (8 * sizeof(T)));
    }
};

struct mul_wide {
    template <typename T> static typename wider<T>::type of(T a, T b)
    {
        using W = typename wider<T>::type;
        return static_cast<W>(static_cast<W>(a) * static_cast<W>(b));
    }
};

struct mad {
    template <typename T> static T of(T a, T b, T c)
    {
        return add::of(mul::of(a, b), c);
    }
};

struct mad_hi {
    template <typename T> static T of(T a, T b, T c)
    {
        return add::of(mul_hi::of(a, b), c);
    }
};

struct mad_wide {
    template <typename T> static typename wider<T>::type of(T a, T b, typename wider<T>::type c)
    {
        return add::of(mul_wide::of(a, b), c);
    }
};

struct rem {
    template <typename T> static T of(T a, T b)
    {
        return b == 0 || b == static_cast<T>(-1)
                   ? (b == 0 || !std::is_signed<T>::value ? a : static_cast<T>(0))
                   : static_cast<T>(a % b);
    }
};

template <>
uint32_t
rem::of(uint32_t a, uint32_t b)
{
    return b == 0 ? a : a % b;
}

template <>
uint64_t
rem::of(uint64_t a, uint64_t b)
{
    return b == 0 ? a : a % b;
}

template <>
uint16_t
rem::of(uint16_t a, uint16_t b)
{
    return b == 0 ? a : static_cast<uint16_t>(a % b);
}

struct bit_and {
    template <typename T> static T of(T a, T b)
    {
        return static_cast<T>(a & b);
    }
};

struct bit_or {
    template <typename T> static T of(T a, T b)
    {
        return static_cast<T>(a | b);
    }
};

struct bit_xor {
    template <typename T> static T of(T a, T b)
    {
        return static_cast<T>(a ^ b);
    }
};

struct bit_not {
    template <typename T> static T of(T a)
    {
        return static_cast<T>(~a);
    }
};

/* A number that is a predicate, as -1. */
struct lowest_bit {
    static truth of(truth a)
    {
        return a & 1;
    }
};

struct not_truth {
    static truth of(truth a)
    {
        return a ^ 1;
    }
};

/* Shifts by more than the width leave nothing. */
struct shift_left {
    template <typename T> static T of(T a, uint32_t by)
    {
        return by >= 8 * sizeof(T) ? static_cast<T>(0) : static_cast<T>(a << by);
    }
};

struct shift_right {
    template <typename T> static T of(T a, uint32_t by)
    {
        const uint32_t last = 8 * sizeof(T) - 1;
        if (by > last)
            return std::is_signed<T>::value ? static_cast<T>(a >> last) : static_cast<T>(0);
        return static_cast<T>(a >> by);
    }
};

/* shf: a pair (b above a) that is shifted. */
template <bool LEFT, bool WRAPS> struct funnel {
    static uint32_t of(uint32_t a, uint32_t b, uint32_t c)
    {
        const uint32_t by = WRAPS ? c & 31 : c < 32 ? c : 32;
        const uint64_t pair = static_cast<uint64_t>(b) << 32 | a;
        return static_cast<uint32_t>(LEFT ? (pair << by) >> 32 : pair >> by);
    }
};

struct population {
    template <typename T> static uint32_t of(T a)
    {
        return static_cast<uint32_t>(__builtin_popcountll(a));
    }
};

struct leading_zeros {
    template <typename T> static uint32_t of(T a)
    {
        const uint32_t beyond = 64 - 8 * sizeof(T);
        return a == 0 ? 64 - beyond : static_cast<uint32_t>(__builtin_clzll(a)) - beyond;
    }
};

struct reverse {
    static uint32_t of(uint32_t a)
    {
        uint32_t out = 0;
        for (unsigned bit = 0; bit < 32; bit++)
            out |= (a >> bit & 1) << (31 - bit);
        return out;
    }
};

/* The number of the highest bit (of a negative number, of the highest 0). */
struct highest {
    static uint32_t of(int32_t a)
    {
        const uint32_t bits = static_cast<uint32_t>(a < 0 ? ~a : a);
        return bits == 0 ? 0xFFFFFFFFu : 31 - static_cast<uint32_t>(__builtin_clz(bits));
    }
    static uint32_t of(uint32_t a)
    {
        return a == 0 ? 0xFFFFFFFFu : 31 - static_cast<uint32_t>(__builtin_clz(a));
    }
};

struct permute {
    static uint32_t of(uint32_t a, uint32_t b, uint32_t choice)
    {
        const uint64_t bytes = static_cast<uint64_t>(b) << 32 | a;
        uint32_t out = 0;
        for (unsigned n = 0; n < 4; n++) {
            const uint32_t c = choice >> (4 * n);
            const uint32_t byte = static_cast<uint32_t>(bytes >> (8 * (c & 7))) & 0xFF;
            out |= (c & 8 ? (byte & 0x80 ? 0xFFu : 0u) : byte) << (8 * n);
        }
        return out;
    }
};

struct extract {
    template <typename T> static T of(T a, uint32_t at, uint32_t count)
    {
        const uint32_t bits = 8 * sizeof(T), first = at & 0xFF, many = count & 0xFF;
        using U = typename std::make_unsigned<T>::type;
        if (many == 0)
            return 0;
        const U low = shift_right::of(static_cast<U>(a), first);
        const uint32_t last = first + many - 1 < bits ? first + many - 1 : bits - 1;
        const bool fill = std::is_signed<T>::value && (static_cast<U>(a) >> last & 1);
        const U mask = many >= bits ? static_cast<U>(~U(0)) : static_cast<U>((U(1) << many) - 1);
        const U there =
            last >= first ? static_cast<U>(shift_left::of(static_cast<U>(2), last - first) - 1) : 0;
        return static_cast<T>((low & mask & there) | (fill ? static_cast<U>(~there) : 0));
    }
};

struct low_and_high {
    static uint32_t of(uint16_t low, uint16_t high)
    {
        return low | static_cast<uint32_t>(high) << 16;
    }
    static uint64_t of(uint32_t low, uint32_t high)
    {
        return low | static_cast<uint64_t>(high) << 32;
    }
};

} // namespace

/* A word as its halves. */
template <typename WORD, typename HALF>
static void
run_halves(warp &w, const instruction &i, uint32_t on)
{
    HALF low[LANES], high[LANES];
    const void *const a = w.row<void *>(i.row[2]);
    for (size_t l = 0; l < LANES; l++) {
        low[l] = static_cast<HALF>(get<WORD>(a, l));
        high[l] = static_cast<HALF>(get<WORD>(a, l) >> (8 * sizeof(HALF)));
    }
    put_lanes(w, i.row[0], low, on);
    put_lanes(w, i.row[1], high, on);
}

/* (a op b) + c + carry, of 32 bits. what: 'l' and 'h' the halves of a product, '+' a sum, '-' a difference. */
template <char WHAT, bool TAKES, bool GIVES>
static void
run_carry(warp &w, const instruction &i, uint32_t on)
{
    uint32_t out[LANES], carry = 0;
    for (unsigned l = 0; l < LANES; l++) {
        const uint64_t a = w.row<uint32_t>(i.row[1])[l], b = w.row<uint32_t>(i.row[2])[l];
        const uint64_t in = TAKES ? w.carry >> l & 1 : 0;
        uint64_t sum;
        if (WHAT == '+')
            sum = a + b + in;
        else if (WHAT == '-')
            sum = a - b - in;
        else
            sum = (WHAT == 'l' ? (a * b) & 0xFFFFFFFFu : (a * b) >> 32) +
                  w.row<uint32_t>(i.row[3])[l] + in;
        out[l] = static_cast<uint32_t>(sum);
        carry |= static_cast<uint32_t>(sum >> 32 & 1) << l;
    }
    put_lanes(w, i.row[0], out, on);
    if (GIVES)
        w.carry = (w.carry & ~on) | (carry & on);
}

/* d = the low bits of a, in b from bit c on. */
template <typename T>
static void
run_insert(warp &w, const instruction &i, uint32_t on)
{
    T out[LANES];
    for (size_t l = 0; l < LANES; l++) {
        const uint32_t at = w.row<uint32_t>(i.row[3])[l] & 0xFF,
                       many = w.row<uint32_t>(i.row[4])[l] & 0xFF;
        const T ones =
            many >= 8 * sizeof(T) ? static_cast<T>(~T(0)) : static_cast<T>((T(1) << many) - 1);
        const T mask = shift_left::of(ones, at);
        out[l] = static_cast<T>((shift_left::of(w.row<T>(i.row[1])[l], at) & mask) |
                                (w.row<T>(i.row[2])[l] & ~mask));
    }
    put_lanes(w, i.row[0], out, on);
}

/* lop3: each bit of a table by three bits. */
static void
run_lookup(warp &w, const instruction &i, uint32_t on)
{
    uint32_t out[LANES];
    for (size_t l = 0; l < LANES; l++) {
        const uint32_t table = w.row<uint32_t>(i.row[4])[l];
        out[l] = 0;
        for (unsigned bit = 0; bit < 32; bit++) {
            const uint32_t which = (w.row<uint32_t>(i.row[1])[l] >> bit & 1) << 2 |
                                   (w.row<uint32_t>(i.row[2])[l] >> bit & 1) << 1 |
                                   (w.row<uint32_t>(i.row[3])[l] >> bit & 1);
            out[l] |= (table >> which & 1) << bit;
        }
    }
    put_lanes(w, i.row[0], out, on);
}

/* --- Tables ------------------------------------------------------------------------------------- */

template <typename T>
static void
add_integers(operations *all, const std::string &type)
{
    using W = typename wider<T>::type;
    (*all)["add." + type] = two<add, T, T, T>();
    (*all)["sub." + type] = two<sub, T, T, T>();
    (*all)["mul.lo." + type] = two<mul, T, T, T>();
    (*all)["mul.hi." + type] = two<mul_hi, T, T, T>();
    (*all)["mad.lo." + type] = three<mad, T, T, T, T>();
    (*all)["mad.hi." + type] = three<mad_hi, T, T, T, T>();
    (*all)["div." + type] = two<div, T, T, T>();
    (*all)["rem." + type] = two<rem, T, T, T>();
    (*all)["min." + type] = two<least, T, T, T>();
    (*all)["max." + type] = two<most, T, T, T>();
    (*all)["shr." + type] = two<shift_right, T, T, uint32_t>();
    if constexpr (sizeof(T) < 8) {
        (*all)["mul.wide." + type] = two<mul_wide, W, T, T>();
        (*all)["mad.wide." + type] = three<mad_wide, W, T, T, W>();
    }
    if constexpr (std::is_signed<T>::value) {
        (*all)["neg." + type] = one<negate, T, T>();
        (*all)["abs." + type] = one<absolute, T, T>();
    }
    if constexpr (sizeof(T) > 2)
        (*all)["bfe." + type] = three<extract, T, T, uint32_t, uint32_t>();
}

template <typename T>
static void
add_bits(operations *all, const std::string &type)
{
    (*all)["and." + type] = two<bit_and, T, T, T>();
    (*all)["or." + type] = two<bit_or, T, T, T>();
    (*all)["xor." + type] = two<bit_xor, T, T, T>();
    (*all)["not." + type] = one<bit_not, T, T>();
    (*all)["shl." + type] = two<shift_left, T, T, uint32_t>();
    (*all)["shr." + type] = two<shift_right, T, T, uint32_t>();
    if constexpr (sizeof(T) > 2) {
        (*all)["popc." + type] = one<population, uint32_t, T>();
        (*all)["clz." + type] = one<leading_zeros, uint32_t, T>();
        (*all)["bfi." + type] = {run_insert<T>,
                                 kind::plain,
                                 1,
                                 {lane_size<T>(), lane_size<T>(), lane_size<T>(), 4, 4},
                                 false};
    }
}

static void
add_carries(operations *all)
{
#define CARRIES(name, what, ...)                                                                   \
    (*all)[name ".cc.u32"] = {run_carry<what, false, true>, kind::plain, 1, {__VA_ARGS__}, false};
#define TAKERS(name, what, ...)                                                                    \
    (*all)[name ".u32"] = {run_carry<what, true, false>, kind::plain, 1, {__VA_ARGS__}, false};    \
    (*all)[name ".cc.u32"] = {run_carry<what, true, true>, kind::plain, 1, {__VA_ARGS__}, false};
    CARRIES("add", '+', 4, 4, 4)
    CARRIES("sub", '-', 4, 4, 4)
    CARRIES("mad.lo", 'l', 4, 4, 4, 4)
    CARRIES("mad.hi", 'h', 4, 4, 4, 4)
    TAKERS("addc", '+', 4, 4, 4)
    TAKERS("subc", '-', 4, 4, 4)
    TAKERS("madc.lo", 'l', 4, 4, 4, 4)
    TAKERS("madc.hi", 'h', 4, 4, 4, 4)
#undef CARRIES
#undef TAKERS
}

/* What has one type only. */
static void
add_single(operations *all)
{
    (*all)["shf.l.wrap.b32"] = three<funnel<true, true>, uint32_t, uint32_t, uint32_t, uint32_t>();
    (*all)["shf.r.wrap.b32"] = three<funnel<false, true>, uint32_t, uint32_t, uint32_t, uint32_t>();
    (*all)["shf.l.clamp.b32"] =
        three<funnel<true, false>, uint32_t, uint32_t, uint32_t, uint32_t>();
    (*all)["shf.r.clamp.b32"] =
        three<funnel<false, false>, uint32_t, uint32_t, uint32_t, uint32_t>();
    (*all)["brev.b32"] = one<reverse, uint32_t, uint32_t>();
    (*all)["bfind.u32"] = one<highest, uint32_t, uint32_t>();
    (*all)["bfind.s32"] = one<highest, uint32_t, int32_t>();
    (*all)["prmt.b32"] = three<permute, uint32_t, uint32_t, uint32_t, uint32_t>();
    (*all)["lop3.b32"] = {run_lookup, kind::plain, 1, {4, 4, 4, 4, 4}, false};
    (*all)["mov.b64<"] = {run_halves<uint64_t, uint32_t>, kind::plain, 2, {4, 4, 8}, false};
    (*all)["mov.b32<"] = {run_halves<uint32_t, uint16_t>, kind::plain, 2, {4, 4, 4}, false};
    (*all)["mov.b64>"] = two<low_and_high, uint64_t, uint32_t, uint32_t>();
    (*all)["mov.b32>"] = two<low_and_high, uint32_t, uint16_t, uint16_t>();
    (*all)["and.pred"] = two<bit_and, truth, truth, truth>();
    (*all)["or.pred"] = two<bit_or, truth, truth, truth>();
    (*all)["xor.pred"] = two<bit_xor, truth, truth, truth>();
    (*all)["not.pred"] = one<not_truth, truth, truth>();
    (*all)["mov.pred"] = lenient(one<lowest_bit, truth, truth>());
}

void
add_integers(operations *all)
{
    add_integers<uint16_t>(all, "u16");
    add_integers<int16_t>(all, "s16");
    add_integers<uint32_t>(all, "u32");
    add_integers<int32_t>(all, "s32");
    add_integers<uint64_t>(all, "u64");
    add_integers<int64_t>(all, "s64");
    add_bits<uint16_t>(all, "b16");
    add_bits<uint32_t>(all, "b32");
    add_bits<uint64_t>(all, "b64");
    add_choices<uint16_t>(all, "u16");
    add_choices<int16_t>(all, "s16");
    add_choices<uint16_t>(all, "b16");
    add_choices<uint32_t>(all, "u32");
    add_choices<int32_t>(all, "s32");
    add_choices<uint32_t>(all, "b32");
    add_choices<uint64_t>(all, "u64");
    add_choices<int64_t>(all, "s64");
    add_choices<uint64_t>(all, "b64");
    add_carries(all);
    add_single(all);
}

} // namespace ptx
