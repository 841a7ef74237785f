/* What integers and floats have in common: sums, products, the lesser of two, comparisons, choices. */
#ifndef EXO_TEST_PTX_NUMBERS_H
#define EXO_TEST_PTX_NUMBERS_H

#include <math.h>

#include <cmath>

#include "ptx/lift.h"

namespace ptx {

/* Integers wrap around, so they are computed as unsigned ones. */
template <typename T>
using raw = typename std::conditional<std::is_floating_point<T>::value, std::common_type<T>,
                                      std::make_unsigned<T>>::type::type;

struct add {
    template <typename T> static T of(T a, T b)
    {
        return canonical(static_cast<T>(static_cast<raw<T>>(a) + static_cast<raw<T>>(b)));
    }
};

struct sub {
    template <typename T> static T of(T a, T b)
    {
        return canonical(static_cast<T>(static_cast<raw<T>>(a) - static_cast<raw<T>>(b)));
    }
};

struct mul {
    template <typename T> static T of(T a, T b)
    {
        if constexpr (std::is_floating_point<T>::value)
            return canonical(a * b);
        else
            return static_cast<T>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
    }
};

/* PTX leaves a division by zero open. */
struct div {
    template <typename T> static T of(T a, T b)
    {
        if constexpr (std::is_floating_point<T>::value)
            return canonical(a / b);
        else if constexpr (std::is_signed<T>::value)
            return b == 0    ? static_cast<T>(-1)
                   : b == -1 ? sub::of(static_cast<T>(0), a)
                             : static_cast<T>(a / b);
        else
            return b == 0 ? static_cast<T>(~static_cast<T>(0)) : static_cast<T>(a / b);
    }
};

/* Of a NaN and a number, the number. -0 is less than 0. */
struct least {
    template <typename T> static T of(T a, T b)
    {
        if constexpr (std::is_floating_point<T>::value)
            return canonical(a != a   ? b
                             : b != b ? a
                             : a == b ? (std::signbit(a) ? a : b)
                             : a < b  ? a
                                      : b);
        else
            return a < b ? a : b;
    }
};

struct most {
    template <typename T> static T of(T a, T b)
    {
        if constexpr (std::is_floating_point<T>::value)
            return canonical(a != a   ? b
                             : b != b ? a
                             : a == b ? (std::signbit(a) ? b : a)
                             : a > b  ? a
                                      : b);
        else
            return a > b ? a : b;
    }
};

struct negate {
    template <typename T> static T of(T a)
    {
        if constexpr (std::is_floating_point<T>::value)
            return canonical(-a);
        else
            return sub::of(static_cast<T>(0), a);
    }
};

struct absolute {
    template <typename T> static T of(T a)
    {
        if constexpr (std::is_floating_point<T>::value)
            return canonical(std::fabs(a));
        else
            return a < 0 ? negate::of(a) : a;
    }
};

/* --- Comparisons -------------------------------------------------------------------------------- */

template <typename T>
static bool
is_nan(T a)
{
    return a != a;
}

#define COMPARISON(name, expression)                                                               \
    struct name {                                                                                  \
        template <typename T> static truth of(T a, T b)                                            \
        {                                                                                          \
            return expression;                                                                     \
        }                                                                                          \
    };
COMPARISON(is_equal, a == b)
COMPARISON(is_other, a<b || a> b)
COMPARISON(is_less, a < b)
COMPARISON(is_up_to, a <= b)
COMPARISON(is_more, a > b)
COMPARISON(is_from, a >= b)
COMPARISON(is_equal_or_nan, !(a < b || a > b))
COMPARISON(is_other_or_nan, !(a == b))
COMPARISON(is_less_or_nan, !(a >= b))
COMPARISON(is_up_to_or_nan, !(a > b))
COMPARISON(is_more_or_nan, !(a <= b))
COMPARISON(is_from_or_nan, !(a < b))
COMPARISON(are_numbers, !is_nan(a) && !is_nan(b))
COMPARISON(are_no_numbers, is_nan(a) || is_nan(b))
#undef COMPARISON

struct select {
    template <typename T> static T of(T a, T b, truth which)
    {
        return which ? a : b;
    }
};

struct same {
    template <typename T> static T of(T a)
    {
        return a;
    }
};

/* mov, selp and the comparisons that all types have. */
template <typename T>
static void
add_choices(operations *all, const std::string &type)
{
    (*all)["mov." + type] = lenient(one<same, T, T>());
    (*all)["selp." + type] = lenient(three<select, T, T, T, truth>());
    (*all)["setp.eq." + type] = two<is_equal, truth, T, T>();
    (*all)["setp.ne." + type] = two<is_other, truth, T, T>();
    (*all)["setp.lt." + type] = two<is_less, truth, T, T>();
    (*all)["setp.le." + type] = two<is_up_to, truth, T, T>();
    (*all)["setp.gt." + type] = two<is_more, truth, T, T>();
    (*all)["setp.ge." + type] = two<is_from, truth, T, T>();
}

} // namespace ptx

#endif
