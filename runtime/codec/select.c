/* Selectors: the coordinates that a round exchanges.
 *
 * A round is a pure function of (kind, p, numel, seed, round). So nodes agree on it without
 * messages, and no checkpoint contains it; the memory between rounds is a cache. Owner: its
 * creator, such as a node's compute lane.
 *
 * Nodes may run on different machines, so nothing here uses the C library's logarithm, which may
 * differ in its last bit. */
#include <exogym/select.h>

#include <math.h>
#include <stdbool.h>

#include <exogym/memory.h>
#include <exogym/rng.h>

struct exo_selector {
    exo_select_kind kind;
    double p;
    uint32_t numel;
    uint64_t seed;
    /* key of `coordinates`: the round (random) or the cycle (partitioned) */
    uint64_t drawn;
    /* whether `coordinates` is filled */
    bool valid;
    /* (room) random: the round's; otherwise part after part, each ascending */
    uint32_t *coordinates;
    /* random: bound for one round; otherwise numel */
    size_t room;
    /* random: number of the round's coordinates */
    size_t length;

    /* The rest is for all kinds but random. */
    uint32_t num_parts; /* rounds until every coordinate had its turn */
    uint32_t *part_of;  /* (numel) the part of each coordinate; scratch */
    uint32_t *next;     /* (num_parts) the next place of each part; scratch */
};

uint32_t
exo_selector_parts(double p, size_t numel)
{
    double parts = ceil(1.0 / p * (1.0 - 1e-12)); /* 1 / (1 / k) may round to just above k */
    if (numel == 0)
        return 1; /* no coordinates: one empty part */
    return parts < (double)numel ? (uint32_t)parts : (uint32_t)numel;
}

/* A bound for random rounds, twenty standard deviations above the mean. One round in e^200 would
 * exceed it (Bernstein); such a round ends there. */
static size_t
random_room(double p, size_t numel)
{
    double mean = p * (double)numel, room = ceil(mean + 20.0 * sqrt(mean * (1.0 - p)) + 100.0);
    return room < (double)numel ? (size_t)room : numel;
}

exo_status
exo_selector_new(exo_selector **out, exo_select_kind kind, double p, size_t numel, uint64_t seed,
                 exo_err *err)
{
    if (!(p > 0 && p <= 1))
        return exo_fail(err, EXO_INVAL, "p must be greater than 0 and at most 1, got %g", p);
    if (numel > UINT32_MAX)
        return exo_fail(err, EXO_INVAL, "selection: %zu coordinates are more than %u", numel,
                        UINT32_MAX);
    exo_status st = EXO_NOMEM;
    exo_selector *s = exo_calloc(1, sizeof *s);
    if (!s)
        goto done;
    s->kind = kind;
    s->p = p;
    s->numel = (uint32_t)numel;
    s->seed = seed;
    s->room = kind == EXO_SELECT_RANDOM ? random_room(p, numel) : numel;
    s->coordinates = exo_calloc(s->room, sizeof *s->coordinates);
    if (!s->coordinates)
        goto done;
    if (kind != EXO_SELECT_RANDOM) {
        s->num_parts = exo_selector_parts(p, numel);
        s->part_of = exo_calloc(numel, sizeof *s->part_of);
        s->next = exo_calloc(s->num_parts, sizeof *s->next);
        if (!s->part_of || !s->next)
            goto done;
    }
    *out = s;
    s = NULL; /* moved to the caller */
    st = EXO_OK;
done:
    if (st == EXO_NOMEM)
        exo_fail(err, st, "no memory to select among %zu coordinates", numel);
    exo_selector_free(&s);
    return st;
}

void
exo_selector_free(exo_selector **selector)
{
    if (!selector || !*selector)
        return;
    exo_free((*selector)->coordinates);
    exo_free((*selector)->part_of);
    exo_free((*selector)->next);
    exo_free(*selector);
    *selector = NULL;
}

/* --- Random ----------------------------------------------------------------------------------- */

/* ln((1 + z) / (1 - z)) = 2 (z + z^3/3 + z^5/5 + ...), to double precision for |z| <= 0.172. */
static double
log_ratio(double z)
{
    double square = z * z, sum = 0;
    for (int k = 21; k >= 1; k -= 2)
        sum = sum * square + 1.0 / k;
    return 2.0 * z * sum;
}

/* ln(x), x > 0, with IEEE operations in a fixed order only: the same on every machine, to the
 * bit. */
static double
log_portable(double x)
{
    const double ln2 = 0.69314718055994530942, sqrt_half = 0.70710678118654752440;
    int exponent = 0;
    double f = frexp(x, &exponent); /* [0.5, 1) */
    if (f < sqrt_half) {
        f *= 2.0;
        exponent--;
    }
    return log_ratio((f - 1.0) / (f + 1.0)) + exponent * ln2;
}

/* ln(1 - p), also if p is so small that 1 - p rounds to 1. p < 1. */
static double
log_one_minus(double p)
{
    return p < 0.25 ? log_ratio(-p / (2.0 - p)) : log_portable(1.0 - p);
}

/* Uniform in (0, 1], 53 bits. */
static double
uniform_above_zero(exo_rng *rng)
{
    uint64_t high = exo_rng_u32(rng) >> 5, low = exo_rng_u32(rng) >> 6;
    return (double)(high << 26 | low) * 0x1p-53 + 0x1p-53;
}

/* Flips an independent coin of probability p for every coordinate by drawing the gaps between
 * successes. A gap is geometric, P(gap >= k) = (1 - p)^k, so gap = floor(ln(u) / ln(1 - p)). This
 * needs about p numel draws instead of numel. */
static void
draw_random(exo_selector *s, uint64_t round)
{
    s->length = 0;
    if (s->p >= 1.0) {
        for (uint32_t c = 0; c < s->numel; c++)
            s->coordinates[s->length++] = c;
        return;
    }
    const double scale = 1.0 / log_one_minus(s->p);
    exo_rng rng;
    exo_rng_init(&rng, s->seed, EXO_RNG_SELECT, (uint32_t)s->kind, round);
    for (uint32_t c = 0; c < s->numel && s->length < s->room; c++) {
        double gap = log_portable(uniform_above_zero(&rng)) * scale;
        if (!(gap < (double)(s->numel - c)))
            return;
        c += (uint32_t)gap;
        s->coordinates[s->length++] = c;
    }
}

/* --- Parts ------------------------------------------------------------------------------------ */

/* The bounds of one of num_parts parts of `numel` coordinates. If the division leaves a rest, the
 * first parts have one more. */
static size_t
part_bounds(const exo_selector *s, uint32_t part, size_t *first)
{
    size_t base = s->numel / s->num_parts, rest = s->numel % s->num_parts;
    *first = part * base + (part < rest ? part : rest);
    return base + (part < rest);
}

/* Cuts a random permutation into parts and sorts each part's coordinates by a counting sort. */
static void
draw_parts(exo_selector *s, uint64_t cycle)
{
    /* in use until the sort overwrites it */
    uint32_t *permutation = s->coordinates;
    exo_rng rng;
    exo_rng_init(&rng, s->seed, EXO_RNG_SELECT, (uint32_t)s->kind, cycle);
    exo_rng_permutation(&rng, permutation, s->numel);
    for (uint32_t part = 0; part < s->num_parts; part++) {
        size_t first = 0, length = part_bounds(s, part, &first);
        for (size_t i = first; i < first + length; i++)
            s->part_of[permutation[i]] = part;
        s->next[part] = (uint32_t)first;
    }
    for (uint32_t c = 0; c < s->numel; c++)
        s->coordinates[s->next[s->part_of[c]]++] = c;
}

size_t
exo_selector_round(exo_selector *s, uint64_t round, const uint32_t **out)
{
    /* shuffled_sequential has one permutation for all rounds */
    uint64_t wanted = 0;
    if (s->kind == EXO_SELECT_RANDOM)
        wanted = round;
    else if (s->kind == EXO_SELECT_PARTITIONED)
        wanted = round / s->num_parts;

    if (!s->valid || s->drawn != wanted) {
        if (s->kind == EXO_SELECT_RANDOM)
            draw_random(s, wanted);
        else
            draw_parts(s, wanted);
        s->drawn = wanted;
        s->valid = true;
    }
    if (s->kind == EXO_SELECT_RANDOM) {
        *out = s->coordinates;
        return s->length;
    }
    size_t first = 0, length = part_bounds(s, (uint32_t)(round % s->num_parts), &first);
    *out = s->coordinates + first;
    return length;
}
