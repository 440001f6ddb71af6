/* SPDX-License-Identifier: MIT */
#include "coll/model.h"

#include <math.h>

#include "ops/names.h"

/* ------------------------------------------------------------------ what algorithms move */

/* In whole rows, and in parts of one, of which there are as many as ranks. */
struct amount {
    uint8_t rows, parts;
};

enum movers { ALL_MOVE, ROOT_MOVES };

/* Of the busiest rank. */
struct moves {
    enum weft__coll_way way;
    enum movers movers;
    int32_t num_steps;
    struct amount pushed, pulled; /* for each other rank */
    struct amount copied;
};

#define NOTHING                                                                                    \
    {                                                                                              \
        0, 0                                                                                       \
    }
#define A_ROW                                                                                      \
    {                                                                                              \
        1, 0                                                                                       \
    }
#define A_PART                                                                                     \
    {                                                                                              \
        0, 1                                                                                       \
    }

static const struct moves moves_of[WEFT__NUM_COLLECTIVES][WEFT__NUM_ALGORITHMS] = {
    [WEFT_ALL_REDUCE] =
        {
            [WEFT_ALGORITHM_ONESHOT] = {WEFT__COLL_PACKETS, ALL_MOVE, 1, A_ROW, NOTHING, A_ROW},
            [WEFT_ALGORITHM_TWOSHOT_PACKETS] =
                {WEFT__COLL_PACKETS, ALL_MOVE, 2, {0, 2}, NOTHING, NOTHING},
            [WEFT_ALGORITHM_ONESHOT_PULL] = {WEFT__COLL_DIRECT, ALL_MOVE, 1, NOTHING, A_ROW, A_ROW},
            [WEFT_ALGORITHM_TWOSHOT] = {WEFT__COLL_DIRECT, ALL_MOVE, 1, A_PART, A_PART, A_PART},
        },
    [WEFT_REDUCE_SCATTER] =
        {
            [WEFT_ALGORITHM_ONESHOT] = {WEFT__COLL_PACKETS, ALL_MOVE, 1, A_ROW, NOTHING, A_ROW},
            [WEFT_ALGORITHM_ONESHOT_PULL] = {WEFT__COLL_DIRECT, ALL_MOVE, 1, NOTHING, A_ROW, A_ROW},
        },
    [WEFT_ALL_GATHER] =
        {
            [WEFT_ALGORITHM_ONESHOT] = {WEFT__COLL_PACKETS, ALL_MOVE, 1, A_ROW, NOTHING, A_ROW},
            [WEFT_ALGORITHM_PUSH] = {WEFT__COLL_DIRECT, ALL_MOVE, 1, A_ROW, NOTHING, A_ROW},
        },
    [WEFT_ALL_TO_ALL] =
        {
            [WEFT_ALGORITHM_ONESHOT] = {WEFT__COLL_PACKETS, ALL_MOVE, 1, A_ROW, NOTHING, A_ROW},
            [WEFT_ALGORITHM_PUSH] = {WEFT__COLL_DIRECT, ALL_MOVE, 1, A_ROW, NOTHING, A_ROW},
        },
    [WEFT_BROADCAST] =
        {
            [WEFT_ALGORITHM_ONESHOT] = {WEFT__COLL_PACKETS, ROOT_MOVES, 1, A_ROW, NOTHING, A_ROW},
            [WEFT_ALGORITHM_PUSH] = {WEFT__COLL_DIRECT, ROOT_MOVES, 1, A_ROW, NOTHING, A_ROW},
        },
    /* The busiest links are the root's; what others send comes over them one rank after the other. */
    [WEFT_REDUCE] =
        {
            [WEFT_ALGORITHM_ONESHOT] = {WEFT__COLL_PACKETS, ROOT_MOVES, 1, A_ROW, NOTHING, A_ROW},
            [WEFT_ALGORITHM_ONESHOT_PULL] = {WEFT__COLL_DIRECT, ROOT_MOVES, 1, NOTHING, A_ROW,
                                             A_ROW},
            [WEFT_ALGORITHM_TWOSHOT] = {WEFT__COLL_DIRECT, ALL_MOVE, 1, A_PART, A_PART, A_PART},
        },
    [WEFT_GATHER] =
        {
            [WEFT_ALGORITHM_ONESHOT] = {WEFT__COLL_PACKETS, ROOT_MOVES, 1, A_ROW, NOTHING, A_ROW},
            [WEFT_ALGORITHM_PUSH] = {WEFT__COLL_DIRECT, ROOT_MOVES, 1, A_ROW, NOTHING, A_ROW},
        },
    [WEFT_SCATTER] =
        {
            [WEFT_ALGORITHM_ONESHOT] = {WEFT__COLL_PACKETS, ROOT_MOVES, 1, A_ROW, NOTHING, A_ROW},
            [WEFT_ALGORITHM_PUSH] = {WEFT__COLL_DIRECT, ROOT_MOVES, 1, A_ROW, NOTHING, A_ROW},
        },
};

/* ------------------------------------------------------------------ what that takes */

/*
 * Machine cuda: rates are shares of what the links carry (machine/cuda/link_rate.h), which were 350 GB/s where these
 * were fitted, by least squares of logarithms, to all algorithms in graphs on 4x and 2x H200
 * (bench/results/2026-11-22-h200x4-collectives.json and 2026-11-21-h200x2.json). The ratio of expected to measured is
 * 1.06 in the median and 1.23 at worst (docs/performance.md). To and from a root other than that of a broadcast, they
 * are not measured.
 */
static const struct weft__coll_costs gpu_costs = {{[WEFT__COLL_PACKETS] = {.start_us = 2.4,
                                                                           .peer_us = 0.23,
                                                                           .step_us = 0.78,
                                                                           .push_gbps = 1.04,
                                                                           .pull_gbps = 1.04,
                                                                           .copy_gbps = 1.71,
                                                                           .alone = 1.44},
                                                   [WEFT__COLL_DIRECT] = {.start_us = 9.1,
                                                                          .push_gbps = 1.03,
                                                                          .pull_gbps = 0.86,
                                                                          .copy_gbps = INFINITY,
                                                                          .alone = 1.05}}};

/*
 * Machine cpu: rates are those of a core, and all ranks share the cores and their memory. Fitted in the same way to 2
 * and 4 ranks on 2 cores that had other work too (bench/results/2026-11-23-epyc-2cores-collectives.json): off by 1.09
 * and 1.25 in the median.
 */
static const struct weft__coll_costs core_costs = {
    {[WEFT__COLL_PACKETS] =
         {.start_us = 14.4, .step_us = 1.6, .push_gbps = 2.06, .pull_gbps = 2.06, .copy_gbps = 15},
     [WEFT__COLL_DIRECT] = {
         .start_us = 16.3, .push_gbps = 15.6, .pull_gbps = 10.3, .copy_gbps = 16}}};

static void scale_rates(struct weft__coll_way_costs *way, double factor)
{
    way->push_gbps *= factor;
    way->pull_gbps *= factor;
    way->copy_gbps *= factor;
}

static void scale_times(struct weft__coll_way_costs *way, double factor)
{
    way->start_us *= factor;
    way->peer_us *= factor;
    way->step_us *= factor;
}

struct weft__coll_costs weft__coll_costs_at(const struct weft__coll_site *site)
{
    struct weft__coll_costs costs = site->machine == WEFT_MACHINE_CUDA ? gpu_costs : core_costs;
    const double num_ranks = site->num_ranks;
    const double num_cores = fmax(site->num_cores, 1);
    for (int i = WEFT__COLL_UNKNOWN_WAY + 1; i < WEFT__COLL_NUM_WAYS; i++) {
        struct weft__coll_way_costs *way = &costs.ways[i];
        if (site->machine == WEFT_MACHINE_CUDA) {
            scale_rates(way, site->link_gbps);
            continue;
        }
        scale_rates(way, fmin(num_cores, num_ranks) / num_ranks);
        scale_times(way, fmax(num_ranks / num_cores, 1));
        way->alone = num_ranks;
    }
    return costs;
}

static double amount_bytes(struct amount amount, const struct weft__coll_work *work)
{
    const double row_bytes = (double)work->row_bytes;
    return row_bytes * amount.rows + row_bytes * amount.parts / work->num_ranks;
}

int weft__coll_expect(const struct weft__coll_costs *costs, const struct weft__coll_work *work,
                      struct weft__coll_expectation *expectation)
{
    enum { BYTES_PER_US = 1000 }; /* at 1 GB/s */
    const struct moves *moves = &moves_of[work->collective][work->algorithm];
    const struct weft__coll_way_costs *way = &costs->ways[moves->way];
    const double num_peers = work->num_ranks - 1;
    const double pushed_bytes = num_peers * amount_bytes(moves->pushed, work);
    const double pulled_bytes = num_peers * amount_bytes(moves->pulled, work);
    if (moves->way == WEFT__COLL_UNKNOWN_WAY)
        return 0;
    const double together_us = (pushed_bytes / way->push_gbps + pulled_bytes / way->pull_gbps +
                                amount_bytes(moves->copied, work) / way->copy_gbps) /
                               BYTES_PER_US;
    *expectation = (struct weft__coll_expectation){
        .latency_us = way->start_us + num_peers * way->peer_us +
                      (moves->num_steps - 1) * work->num_ranks * way->step_us,
        .transfer_us = together_us / (moves->movers == ROOT_MOVES ? way->alone : 1),
        .link_bytes = (uint64_t)(pushed_bytes + pulled_bytes)};
    return 1;
}
