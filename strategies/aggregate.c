/* Robust aggregation: see aggregate.h. State: exo_aggregation, owned by the node's compute lane. */
#include "strategies/aggregate.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include <exogym/memory.h>

#include "base/config_edit.h"
#include "base/config_units.h"

/* --- Options ---------------------------------------------------------------------------------- */

static const char *const rules[] = {
    [EXO_AGGREGATE_MEAN] = "mean",           [EXO_AGGREGATE_TRIMMED_MEAN] = "trimmed_mean",
    [EXO_AGGREGATE_MEDIAN] = "median",       [EXO_AGGREGATE_KRUM] = "krum",
    [EXO_AGGREGATE_NORM_CLIP] = "norm_clip", NULL,
};

exo_status
exo_aggregation_read(exo_aggregation *out, exo_config *config, exo_err *err)
{
    char place[EXO_ERR_TEXT];
    exo_config *options = NULL;
    size_t rule = EXO_AGGREGATE_MEAN;
    exo_status st = exo_config_stand_in(config, "aggregate", &options, err);
    if (st == EXO_OK)
        st = exo_config_choice(options, "name", rule, rules, &rule, err);
    out->rule = (exo_aggregate)rule;
    if (st == EXO_OK && out->rule == EXO_AGGREGATE_TRIMMED_MEAN)
        st = exo_config_u64(options, "trim", 1, 0, UINT16_MAX, &out->trim, err);
    if (st == EXO_OK && out->rule == EXO_AGGREGATE_KRUM)
        st = exo_config_u64(options, "f", 1, 0, UINT16_MAX, &out->f, err);
    if (st == EXO_OK && out->rule == EXO_AGGREGATE_KRUM)
        st = exo_config_u64(options, "m", 0, 0, UINT16_MAX, &out->m, err);
    if (st == EXO_OK && out->rule == EXO_AGGREGATE_NORM_CLIP)
        st = exo_config_double(options, "max_norm", 0, 0, 1e30, &out->max_norm, err);
    if (st != EXO_OK || out->rule == EXO_AGGREGATE_MEAN)
        return st == EXO_OK ? exo_config_finish(options, err) : st;
    exo_config_where(exo_config_get(config, "aggregate"), place, sizeof place);
    out->place = exo_strdup(place);
    return out->place ? exo_config_finish(options, err)
                      : exo_fail(err, EXO_NOMEM, "no memory for the option 'aggregate'");
}

void
exo_aggregation_write(const exo_aggregation *a, exo_text *out)
{
    char number[EXO_UNIT_TEXT];
    if (a->rule == EXO_AGGREGATE_MEAN)
        return;
    exo_text_add(out, ", aggregate: {name: %s", rules[a->rule]);
    if (a->rule == EXO_AGGREGATE_TRIMMED_MEAN)
        exo_text_add(out, ", trim: %" PRIu64, a->trim);
    if (a->rule == EXO_AGGREGATE_KRUM)
        exo_text_add(out, ", f: %" PRIu64 ", m: %" PRIu64, a->f, a->m);
    if (a->rule == EXO_AGGREGATE_NORM_CLIP)
        exo_text_add(out, ", max_norm: %s", exo_unit_number(a->max_norm, number));
    exo_text_add(out, "}");
}

/* Checks the rule among `members`. */
static exo_status
check_members(const exo_aggregation *a, uint64_t members, exo_err *err)
{
    if (a->rule == EXO_AGGREGATE_TRIMMED_MEAN && 2 * a->trim >= members)
        return exo_fail(err, EXO_INVAL,
                        "%.300s: with trim %" PRIu64 " at each end nothing is left of the values "
                        "of %" PRIu64 " nodes: trim must be less than half of them",
                        a->place, a->trim, members);
    if (a->rule == EXO_AGGREGATE_KRUM && members < 2 * a->f + 3)
        return exo_fail(err, EXO_INVAL,
                        "%.300s: krum with f %" PRIu64 " needs at least %" PRIu64
                        " nodes that meet, not %" PRIu64,
                        a->place, a->f, 2 * a->f + 3, members);
    if (a->rule == EXO_AGGREGATE_KRUM && a->m > members - a->f)
        return exo_fail(err, EXO_INVAL,
                        "%.300s: m must be at most %" PRIu64 ", the nodes that meet without f, "
                        "got %" PRIu64,
                        a->place, members - a->f, a->m);
    return EXO_OK;
}

exo_status
exo_aggregation_check(const exo_aggregation *a, uint32_t num_nodes, uint64_t island_size,
                      exo_err *err)
{
    uint64_t size = island_size > 0 && island_size < num_nodes ? island_size : num_nodes;
    uint64_t rest = num_nodes % size;
    exo_status st = size > 1 ? check_members(a, size, err) : EXO_OK;
    return st == EXO_OK && rest > 1 ? check_members(a, rest, err) : st;
}

exo_status
exo_aggregation_start(exo_aggregation *a, exo_device *device, size_t count, uint32_t num_nodes,
                      exo_meters *meters, exo_err *err)
{
    static const exo_meter_class clipped = {
        .name = "clipped", .unit = "values", .help = "changes of nodes that norm_clip shortened"};
    exo_status st = EXO_OK;
    if (a->rule == EXO_AGGREGATE_MEAN || num_nodes < 2)
        return EXO_OK;
    if (a->rule == EXO_AGGREGATE_NORM_CLIP)
        st = exo_meter_declare(&a->clipped, meters, &clipped, err);
    /* a shard has at most (count + n - 1) / n values of each of n members */
    if (st == EXO_OK)
        st = exo_array_init(&a->rows, device, EXO_F32, 2 * (count + num_nodes), err);
    if (st == EXO_OK && a->rule == EXO_AGGREGATE_KRUM) /* among at least three */
        st = exo_array_init(&a->difference, device, EXO_F32, count / 3 + 1, err);
    return st == EXO_OK ? EXO_OK
                        : exo_fail_in(err, st, "aggregate: %u nodes' shards of %zu values",
                                      num_nodes, count);
}

void
exo_aggregation_release(exo_aggregation *a)
{
    exo_free(a->place);
    exo_array_release(&a->rows);
    exo_array_release(&a->difference);
}

/* --- Every member's values of a shard --------------------------------------------------------- */

/* The exchange with one other member, in a group of two. */
struct pair {
    exo_group *group;
    exo_request *request;
};

/* A round: member r's values of this member's shard are row r. */
struct round {
    exo_group *group;
    uint32_t size, rank;
    size_t first, length; /* of this member's shard */
    size_t longest;       /* the length of the longest shard */
    exo_array rows;       /* (size, 2 longest), the values in the first `length` of each */
};

static exo_array
row_of(const struct round *r, uint32_t member)
{
    return exo_array_part(r->rows, 2 * r->longest * member, r->length);
}

/* Begins the exchange with another member: both fill their half of a buffer, the lower rank the
 * first, with their values of the other's shard. */
static exo_status
begin_pair(const struct round *r, exo_array values, uint32_t other, struct pair *out, exo_err *err)
{
    const uint32_t ranks[] = {other < r->rank ? other : r->rank, other < r->rank ? r->rank : other};
    size_t first, length;
    exo_shard(values.count, r->size, other, &first, &length);
    const exo_array both = exo_array_part(r->rows, 2 * r->longest * other, 2 * r->longest);
    exo_vec_copy(exo_array_part(both, r->rank < other ? 0 : r->longest, length),
                 exo_array_part(values, first, length));
    exo_status st = exo_group_among(&out->group, r->group, ranks, 2, err);
    return st == EXO_OK ? exo_comm_begin_all_gather(&out->request, out->group, both, err) : st;
}

/* Sends each member its shard of `values` and receives theirs of this member's. */
static exo_status
swap_shards(const struct round *r, exo_array values, exo_err *err)
{
    struct pair *pairs = exo_calloc(r->size, sizeof *pairs);
    exo_status st = EXO_OK;
    if (!pairs)
        return exo_fail(err, EXO_NOMEM, "no memory for the shards of %u nodes", r->size);
    for (uint32_t other = 0; st == EXO_OK && other < r->size; other++)
        if (other != r->rank)
            st = begin_pair(r, values, other, &pairs[other], err);
    for (uint32_t other = 0; other < r->size; other++) {
        /* after an error, too: a cancelled call would hide its cause from the other members */
        exo_status one = exo_request_wait(&pairs[other].request, st == EXO_OK ? err : NULL);
        st = st == EXO_OK ? one : st;
        exo_group_close(&pairs[other].group);
    }
    exo_free(pairs);
    if (st != EXO_OK)
        return st;
    exo_vec_copy(row_of(r, r->rank), exo_array_part(values, r->first, r->length));
    for (uint32_t other = r->rank + 1; other < r->size; other++)
        exo_vec_copy(row_of(r, other),
                     exo_array_part(r->rows, (2 * other + 1) * r->longest, r->length));
    return EXO_OK;
}

/* Adds up what the members have computed of their shards: numbers (count) of this member become
 * their sums, in the order of ranks. They pass as integers, which no codec changes. */
static exo_status
sum_numbers(const struct round *r, double *numbers, size_t count, exo_err *err)
{
    exo_array array = {0};
    double *all = exo_calloc(r->size * count + 1, sizeof *all);
    if (!all)
        return exo_fail(err, EXO_NOMEM, "no memory for %zu numbers of %u nodes", count, r->size);
    exo_status st = exo_array_init(&array, r->rows.device, EXO_I64, r->size * count, err);
    if (st == EXO_OK)
        st = exo_array_write(exo_array_part(array, r->rank * count, count), numbers, err);
    if (st == EXO_OK)
        st = exo_all_gather(r->group, array, err);
    if (st == EXO_OK)
        st = exo_array_read(array, all, err);
    for (size_t i = 0; i < count; i++) {
        numbers[i] = 0;
        for (uint32_t member = 0; member < r->size; member++)
            numbers[i] += all[member * count + i];
    }
    exo_array_release(&array);
    exo_free(all);
    return st;
}

/* --- Krum ------------------------------------------------------------------------------------- */

/* Numbers that are not finite come last. */
static int
compare_numbers(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    x = isnan(x) ? HUGE_VAL : x;
    y = isnan(y) ? HUGE_VAL : y;
    return (x > y) - (x < y);
}

/* Computes the squared distances between the members' whole values, into out (size, size). */
static exo_status
measure_distances(const exo_aggregation *a, const struct round *r, double *out, exo_err *err)
{
    const exo_array difference = exo_array_part(a->difference, 0, r->length);
    exo_status st = EXO_OK;
    for (uint32_t i = 0, at = 0; i < r->size; i++)
        for (uint32_t j = 0; st == EXO_OK && j < i; j++) {
            exo_vec_sub(difference, row_of(r, i), row_of(r, j));
            st = exo_vec_sum_squares(difference, 0, &out[at++], err);
        }
    if (st == EXO_OK)
        st = sum_numbers(r, out, (size_t)r->size * (r->size - 1) / 2, err);
    return st;
}

/* The sum of a member's size - f - 2 smallest distances. `distances` has the lower triangle, row by
 * row; room (size) is work space. */
static double
score_of(const exo_aggregation *a, const struct round *r, const double *distances, uint32_t member,
         double *room)
{
    double score = 0;
    size_t count = 0;
    for (uint32_t other = 0; other < r->size; other++) {
        uint32_t high = other > member ? other : member, low = other > member ? member : other;
        if (other != member)
            room[count++] = distances[(size_t)high * (high - 1) / 2 + low];
    }
    qsort(room, count, sizeof *room, compare_numbers);
    for (size_t i = 0; i < r->size - (size_t)a->f - 2; i++)
        score += room[i];
    return score;
}

/* The number of members whose mean is taken. Up to n - f - 2 of them it is proven that f others do
 * no harm (El Mhamdi et al., 2019, arXiv:1905.04374). */
static uint64_t
number_of_best(const exo_aggregation *a, uint32_t members)
{
    return a->m > 0 ? a->m : members - a->f - 2;
}

/* The mean, in the order of ranks, of the m members with the lowest scores; of equal scores, lower
 * ranks come first. */
static void
take_best(const exo_aggregation *a, const struct round *r, const double *scores, exo_array out)
{
    const uint64_t m = number_of_best(a, r->size);
    bool any = false;
    for (uint32_t i = 0; i < r->size; i++) {
        uint64_t better = 0;
        for (uint32_t j = 0; j < r->size; j++) {
            int order = compare_numbers(&scores[j], &scores[i]);
            better += order < 0 || (order == 0 && j < i);
        }
        if (better >= m)
            continue;
        if (any)
            exo_vec_add(out, out, row_of(r, i));
        else
            exo_vec_copy(out, row_of(r, i));
        any = true;
    }
    exo_vec_divide(out, (float)m);
}

static exo_status
krum(exo_aggregation *a, const struct round *r, exo_array out, exo_array reference, exo_err *err)
{
    (void)reference;
    /* distances, scores, work space */
    size_t pairs = (size_t)r->size * (r->size - 1) / 2;
    double *numbers = exo_calloc(pairs + 2 * (size_t)r->size, sizeof *numbers);
    if (!numbers)
        return exo_fail(err, EXO_NOMEM, "krum: no memory for %u nodes", r->size);
    double *scores = numbers + pairs;
    exo_status st = measure_distances(a, r, numbers, err);
    if (st == EXO_OK) {
        for (uint32_t i = 0; i < r->size; i++)
            scores[i] = score_of(a, r, numbers, i, scores + r->size);
        take_best(a, r, scores, out);
    }
    exo_free(numbers);
    return st;
}

/* --- Norms ------------------------------------------------------------------------------------ */

static double
median_of(const double *numbers, uint32_t count, double *room)
{
    for (uint32_t i = 0; i < count; i++)
        room[i] = numbers[i];
    qsort(room, count, sizeof *room, compare_numbers);
    return (room[(count - 1) / 2] + room[count / 2]) / 2;
}

/* Writes the norms of the members' changes, which replace the rows, to norms (size). */
static exo_status
measure_changes(const struct round *r, exo_array reference, double *norms, exo_err *err)
{
    exo_status st = EXO_OK;
    for (uint32_t i = 0; st == EXO_OK && i < r->size; i++) {
        exo_vec_sub(row_of(r, i), row_of(r, i), reference);
        st = exo_vec_sum_squares(row_of(r, i), 0, &norms[i], err);
    }
    if (st == EXO_OK)
        st = sum_numbers(r, norms, r->size, err);
    for (uint32_t i = 0; i < r->size; i++)
        norms[i] = sqrt(norms[i]);
    return st;
}

/* out = reference + the sum of min(1, limit / norm) change / n. A change without a finite norm
 * counts as none. */
static exo_status
norm_clip(exo_aggregation *a, const struct round *r, exo_array out, exo_array reference,
          exo_err *err)
{
    double *norms = exo_calloc(2 * (size_t)r->size, sizeof *norms);
    if (!norms)
        return exo_fail(err, EXO_NOMEM, "norm_clip: no memory for %u nodes", r->size);
    exo_status st = measure_changes(r, reference, norms, err);
    double limit = a->max_norm > 0 ? a->max_norm : median_of(norms, r->size, norms + r->size);
    if (st == EXO_OK)
        exo_vec_fill(out, 0);
    for (uint32_t i = 0; st == EXO_OK && i < r->size; i++) {
        bool clips = !(norms[i] <= limit);
        exo_meter_add(a->clipped, clips);
        if (isfinite(norms[i]))
            exo_vec_axpy(out, clips ? (float)(limit / norms[i]) : 1.0f, row_of(r, i));
    }
    if (st == EXO_OK) {
        exo_vec_divide(out, (float)r->size);
        exo_vec_add(out, out, reference);
    }
    exo_free(norms);
    return st;
}

/* --- A round ---------------------------------------------------------------------------------- */

static exo_status
trimmed_mean(exo_aggregation *a, const struct round *r, exo_array out, exo_array reference,
             exo_err *err)
{
    (void)reference;
    (void)err;
    size_t trim = a->rule == EXO_AGGREGATE_MEDIAN ? (r->size - 1) / 2 : (size_t)a->trim;
    exo_vec_trimmed_mean(out, r->rows, r->size, trim);
    return EXO_OK;
}

static exo_status (*const runs[])(exo_aggregation *, const struct round *, exo_array, exo_array,
                                  exo_err *) = {
    [EXO_AGGREGATE_TRIMMED_MEAN] = trimmed_mean,
    [EXO_AGGREGATE_MEDIAN] = trimmed_mean,
    [EXO_AGGREGATE_KRUM] = krum,
    [EXO_AGGREGATE_NORM_CLIP] = norm_clip,
};

exo_status
exo_aggregation_run(exo_aggregation *a, exo_group *group, exo_array values, exo_array reference,
                    exo_err *err)
{
    struct round r = {.group = group, .size = exo_group_size(group), .rank = exo_group_rank(group)};
    exo_shard(values.count, r.size, r.rank, &r.first, &r.length);
    r.longest = (values.count + r.size - 1) / r.size;
    r.rows = exo_array_part(a->rows, 0, 2 * r.longest * r.size);
    exo_status st = swap_shards(&r, values, err);
    return st == EXO_OK
               ? runs[a->rule](a, &r, exo_array_part(values, r.first, r.length), reference, err)
               : st;
}

double
exo_aggregation_elements(const exo_aggregation *a, double count, uint32_t members)
{
    const double n = members;
    if (a->rule == EXO_AGGREGATE_MEAN || members < 2)
        return count;
    /* n (n - 1) shards of equal length, (n - 1) new shards of `count` together, and n numbers of
     * eight bytes, of each member to n - 1 others */
    double numbers = a->rule == EXO_AGGREGATE_KRUM        ? n * (n - 1) / 2
                     : a->rule == EXO_AGGREGATE_NORM_CLIP ? n
                                                          : 0;
    return (n * ceil(count / n) + count) / 2 + n * numbers;
}
