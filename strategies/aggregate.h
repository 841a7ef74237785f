/* What a round makes of the values of its members, if not their mean: rules that bound the effect
 * of a few members with wrong values.
 *
 *     trimmed_mean   of each coordinate, without the `trim` smallest and largest values
 *                    (Yin et al., 2018, arXiv:1803.01498)
 *     median         of each coordinate (the same paper)
 *     krum           the mean of the m members whose values are nearest to those of others
 *                    (Multi-Krum; Blanchard et al., 2017, arXiv:1703.02757, for m = 1 Krum)
 *     norm_clip      the mean of changes, each of which is shortened to a norm
 *                    (Sun et al., 2019, arXiv:1911.07963)
 *
 * Each member computes the result for its own shard, for which the others send it their values of
 * that shard. The members' sum of bytes is that of a reduce-scatter of shards of equal length;
 * krum and norm_clip also gather squared distances or norms, whose parts the members compute.
 *
 * Owner of the state: the node's compute lane. Read next: aggregate.c, exchange.c. */
#ifndef EXO_STRATEGIES_AGGREGATE_H
#define EXO_STRATEGIES_AGGREGATE_H

#include "strategies/builtin.h"

#include "base/grow_text.h"

typedef enum exo_aggregate {
    EXO_AGGREGATE_MEAN, /* not computed here */
    EXO_AGGREGATE_TRIMMED_MEAN,
    EXO_AGGREGATE_MEDIAN,
    EXO_AGGREGATE_KRUM,
    EXO_AGGREGATE_NORM_CLIP,
} exo_aggregate;

typedef struct exo_aggregation {
    /* --- Options; zeroed: the mean ------------------------------------------------------------ */
    exo_aggregate rule;
    uint64_t trim; /* trimmed_mean: values that are left out at each end */
    /* krum: wrong members that it bears; members whose mean it takes, 0: all but f + 2 */
    uint64_t f, m;
    double max_norm; /* norm_clip; 0: the median of the norms of a round */
    char *place;     /* place of the rule in the config; owned */
    /* --- State, from start -------------------------------------------------------------------- */
    exo_array rows;       /* room for each member's values of a shard, twice */
    exo_array difference; /* krum: room for a shard */
    exo_meter *clipped;
} exo_aggregation;

/* Reads the option `aggregate`. Errors: INVAL with the place. */
exo_status exo_aggregation_read(exo_aggregation *out, exo_config *config, exo_err *err);
/* Appends ", aggregate: {...}", except for the mean. */
void exo_aggregation_write(const exo_aggregation *aggregation, exo_text *out);
/* Checks the numbers of members that meet: islands of `island_size` (0: all nodes) and the
 * remainder. A single node has nothing to aggregate. INVAL, with the place. */
exo_status exo_aggregation_check(const exo_aggregation *aggregation, uint32_t num_nodes,
                                 uint64_t island_size, exo_err *err);
/* Allocates memory for rounds of at most `count` values. */
exo_status exo_aggregation_start(exo_aggregation *aggregation, exo_device *device, size_t count,
                                 uint32_t num_nodes, exo_meters *meters, exo_err *err);
/* Replaces this member's shard of `values` by the result; the rest is as before. `reference`: the
 * shard of the values from which norm_clip measures changes. Collective. */
exo_status exo_aggregation_run(exo_aggregation *aggregation, exo_group *group, exo_array values,
                               exo_array reference, exo_err *err);
/* The elements of an all-reduce among `members` that sends as many bytes as a round of `count`
 * values does, including the gather of the new shards. */
double exo_aggregation_elements(const exo_aggregation *aggregation, double count, uint32_t members);
void exo_aggregation_release(exo_aggregation *aggregation);

#endif
