/* SPDX-License-Identifier: MIT */
#include "coll/model.h"

#include <math.h>
#include <stddef.h>

#include "ops/names.h"

/* ------------------------------------------------------------------ what algorithms move */

/* In whole rows; in parts of one, of which there are as many as ranks; and in shares, as many as other ranks. */
struct amount {
    uint8_t rows, parts, shares;
};

enum movers { ALL_MOVE, ROOT_MOVES };

/* Of the busiest rank. */
struct moves {
    enum weft__coll_way way;
    enum movers movers;
    int8_t steps;                 /* behind the first, */
    int8_t peer_steps;            /* so many more for each other rank, */
    int8_t level_steps;           /* and for each time that the ranks can be halved */
    struct amount pushed, pulled; /* for each other rank */
    struct amount copied;
};

/* Packets. */
static const struct moves sends_row = {
    .way = WEFT__COLL_PACKETS, .pushed = {.rows = 1}, .copied = {.rows = 1}};
static const struct moves root_sends_row = {
    .way = WEFT__COLL_PACKETS, .movers = ROOT_MOVES, .pushed = {.rows = 1}, .copied = {.rows = 1}};
static const struct moves sends_parts_twice = {
    .way = WEFT__COLL_PACKETS, .steps = 1, .pushed = {.parts = 2}};

/* Direct access. */
static const struct moves pulls_row = {
    .way = WEFT__COLL_DIRECT, .pulled = {.rows = 1}, .copied = {.rows = 1}};
static const struct moves root_pulls_row = {
    .way = WEFT__COLL_DIRECT, .movers = ROOT_MOVES, .pulled = {.rows = 1}, .copied = {.rows = 1}};
static const struct moves pulls_and_pushes_parts = {.way = WEFT__COLL_DIRECT,
                                                    .pushed = {.parts = 1},
                                                    .pulled = {.parts = 1},
                                                    .copied = {.parts = 1}};
static const struct moves pushes_row = {
    .way = WEFT__COLL_DIRECT, .pushed = {.rows = 1}, .copied = {.rows = 1}};
static const struct moves root_pushes_row = {
    .way = WEFT__COLL_DIRECT, .movers = ROOT_MOVES, .pushed = {.rows = 1}, .copied = {.rows = 1}};

/* Pieces. Around a ring as many steps as there are other ranks, the last of which sends nothing. */
static const struct moves pushes_parts_twice = {
    .way = WEFT__COLL_PIECES, .steps = 1, .pushed = {.parts = 2}, .copied = {.rows = 1}};
static const struct moves pushes_to_owners = {
    .way = WEFT__COLL_PIECES, .pushed = {.rows = 1}, .copied = {.rows = 1}};
static const struct moves relays = {.way = WEFT__COLL_PIECES, .steps = 1, .pushed = {.shares = 1}};
static const struct moves rings_parts_twice = {.way = WEFT__COLL_PIECES,
                                               .steps = -1,
                                               .peer_steps = 2,
                                               .pushed = {.parts = 2},
                                               .copied = {.rows = 1}};
static const struct moves rings_rows = {.way = WEFT__COLL_PIECES,
                                        .steps = -1,
                                        .peer_steps = 1,
                                        .pushed = {.rows = 1},
                                        .copied = {.rows = 1}};
static const struct moves passes_row_on = {
    .way = WEFT__COLL_PIECES, .steps = -1, .peer_steps = 1, .pushed = {.shares = 1}};
/* Up and down trees, halves of a row in each: twice as many steps as they are deep. */
static const struct moves reduces_up_and_down = {.way = WEFT__COLL_PIECES,
                                                 .steps = -1,
                                                 .level_steps = 2,
                                                 .pushed = {.shares = 2},
                                                 .copied = {.rows = 1}};
static const struct moves reduces_up = {
    .way = WEFT__COLL_PIECES, .level_steps = 1, .pushed = {.shares = 1}, .copied = {.rows = 1}};
static const struct moves passes_row_down = {
    .way = WEFT__COLL_PIECES, .level_steps = 1, .pushed = {.shares = 1}};
static const struct moves passes_sum_on = {.way = WEFT__COLL_PIECES,
                                           .steps = -1,
                                           .peer_steps = 1,
                                           .pushed = {.shares = 1},
                                           .copied = {.rows = 1}};

/* The busiest links of operations with a root are the root's: what others send comes over them one after the
 * other. MULTICAST is not modelled: what a switch does is not measured; RAILS is in model_nodes.c. */
static const struct moves *const moves_of[WEFT__NUM_COLLECTIVES][WEFT__NUM_ALGORITHMS] = {
    [WEFT_ALL_REDUCE] = {[WEFT_ALGORITHM_ONESHOT] = &sends_row,
                         [WEFT_ALGORITHM_TWOSHOT_PACKETS] = &sends_parts_twice,
                         [WEFT_ALGORITHM_ONESHOT_PULL] = &pulls_row,
                         [WEFT_ALGORITHM_TWOSHOT] = &pulls_and_pushes_parts,
                         [WEFT_ALGORITHM_TWOSHOT_PUSH] = &pushes_parts_twice,
                         [WEFT_ALGORITHM_RING] = &rings_parts_twice,
                         [WEFT_ALGORITHM_TREE] = &reduces_up_and_down},
    [WEFT_REDUCE_SCATTER] = {[WEFT_ALGORITHM_ONESHOT] = &sends_row,
                             [WEFT_ALGORITHM_ONESHOT_PULL] = &pulls_row,
                             [WEFT_ALGORITHM_TWOSHOT_PUSH] = &pushes_to_owners,
                             [WEFT_ALGORITHM_RING] = &rings_rows},
    [WEFT_ALL_GATHER] = {[WEFT_ALGORITHM_ONESHOT] = &sends_row,
                         [WEFT_ALGORITHM_PUSH] = &pushes_row,
                         [WEFT_ALGORITHM_RING] = &rings_rows},
    [WEFT_ALL_TO_ALL] =
        {[WEFT_ALGORITHM_ONESHOT] = &sends_row, [WEFT_ALGORITHM_PUSH] = &pushes_row},
    [WEFT_BROADCAST] = {[WEFT_ALGORITHM_ONESHOT] = &root_sends_row,
                        [WEFT_ALGORITHM_PUSH] = &root_pushes_row,
                        [WEFT_ALGORITHM_RELAY] = &relays,
                        [WEFT_ALGORITHM_RING] = &passes_row_on,
                        [WEFT_ALGORITHM_TREE] = &passes_row_down},
    [WEFT_REDUCE] = {[WEFT_ALGORITHM_ONESHOT] = &root_sends_row,
                     [WEFT_ALGORITHM_ONESHOT_PULL] = &root_pulls_row,
                     [WEFT_ALGORITHM_TWOSHOT] = &pulls_and_pushes_parts,
                     [WEFT_ALGORITHM_RING] = &passes_sum_on,
                     [WEFT_ALGORITHM_TREE] = &reduces_up},
    [WEFT_GATHER] =
        {[WEFT_ALGORITHM_ONESHOT] = &root_sends_row, [WEFT_ALGORITHM_PUSH] = &root_pushes_row},
    [WEFT_SCATTER] =
        {[WEFT_ALGORITHM_ONESHOT] = &root_sends_row, [WEFT_ALGORITHM_PUSH] = &root_pushes_row},
};

/* ------------------------------------------------------------------ what that takes */

/*
 * Machine cuda: rates are shares of what the links carry (machine/cuda/link_rate.h), which were 350 GB/s where these
 * were fitted, by least squares of logarithms, to all algorithms in graphs on 4x and 2x H200
 * (bench/results/2026-11-22-h200x4-collectives.json and 2026-11-21-h200x2.json). The ratio of expected to measured is
 * 1.06 in the median and 1.23 at worst (docs/performance.md). Reduce, gather, scatter and pieces are not measured:
 * these have the rates of direct access, and a step of them is what 64 KiB, a fence and a flag took.
 */
static const struct weft__coll_costs gpu_costs = {{
    [WEFT__COLL_PACKETS] = {.start_us = 2.4,
                            .peer_us = 0.23,
                            .step_rank_us = 0.78,
                            .push_gbps = 1.04,
                            .pull_gbps = 1.04,
                            .copy_gbps = 1.71,
                            .alone = 1.44},
    [WEFT__COLL_DIRECT] = {.start_us = 9.1,
                           .push_gbps = 1.03,
                           .pull_gbps = 0.86,
                           .copy_gbps = INFINITY,
                           .alone = 1.05},
    [WEFT__COLL_PIECES] = {.start_us = 9.1,
                           .step_us = 3.1,
                           .push_gbps = 1.03,
                           .pull_gbps = 0.86,
                           .copy_gbps = INFINITY,
                           .alone = 1.05},
}};

/*
 * Machine cpu: rates are those of a core, and all ranks share the cores and their memory. Fitted in the same way to 2
 * and 4 ranks on 2 cores that had other work too (bench/results/2026-11-23-epyc-2cores-collectives.json).
 */
static const struct weft__coll_costs core_costs = {{
    [WEFT__COLL_PACKETS] = {.start_us = 14.4,
                            .step_rank_us = 1.6,
                            .push_gbps = 2.06,
                            .pull_gbps = 2.06,
                            .copy_gbps = 15},
    [WEFT__COLL_DIRECT] = {.start_us = 16.3, .push_gbps = 15.6, .pull_gbps = 10.3, .copy_gbps = 16},
    [WEFT__COLL_PIECES] =
        {.start_us = 24, .step_us = 1.3, .push_gbps = 11.3, .pull_gbps = 11.3, .copy_gbps = 5},
}};

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
    way->step_rank_us *= factor;
}

struct weft__coll_costs weft__coll_costs_at(const struct weft__coll_site *site)
{
    struct weft__coll_costs costs = site->machine == WEFT_MACHINE_CUDA ? gpu_costs : core_costs;
    const double num_ranks = site->num_ranks;
    const double num_cores = fmax(site->num_cores, 1);
    for (int i = 0; i < WEFT__COLL_NUM_WAYS; i++) {
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

uint64_t weft__coll_max_row_bytes(weft_algorithm algorithm, uint64_t packet_bytes,
                                  int32_t num_ranks)
{
    if (algorithm == WEFT_ALGORITHM_ONESHOT)
        return packet_bytes;
    if (algorithm == WEFT_ALGORITHM_TWOSHOT_PACKETS)
        return packet_bytes / 2 * (uint64_t)num_ranks;
    return UINT64_MAX;
}

static double amount_bytes(struct amount amount, const struct weft__coll_work *work)
{
    const double num_ranks = work->num_ranks;
    return (double)work->row_bytes *
           (amount.rows + amount.parts / num_ranks + amount.shares / fmax(num_ranks - 1, 1));
}

static double latency_us(const struct weft__coll_way_costs *way, const struct moves *moves,
                         double num_ranks)
{
    const double num_peers = num_ranks - 1;
    const double num_steps = fmax(moves->steps + moves->peer_steps * num_peers +
                                      moves->level_steps * ceil(log2(num_ranks)),
                                  0);
    return way->start_us + num_peers * way->peer_us +
           num_steps * (way->step_us + num_ranks * way->step_rank_us);
}

int weft__coll_is_modelled(weft_collective collective, weft_algorithm algorithm)
{
    return moves_of[collective][algorithm] != NULL;
}

int weft__coll_expect(const struct weft__coll_costs *costs, const struct weft__coll_work *work,
                      struct weft__coll_expectation *expectation)
{
    enum { BYTES_PER_US = 1000 }; /* at 1 GB/s */
    const struct moves *moves = moves_of[work->collective][work->algorithm];
    if (moves == NULL)
        return 0;
    const struct weft__coll_way_costs *way = &costs->ways[moves->way];
    const double num_peers = work->num_ranks - 1;
    const double pushed_bytes = num_peers * amount_bytes(moves->pushed, work);
    const double pulled_bytes = num_peers * amount_bytes(moves->pulled, work);
    const double together_us = (pushed_bytes / way->push_gbps + pulled_bytes / way->pull_gbps +
                                amount_bytes(moves->copied, work) / way->copy_gbps) /
                               BYTES_PER_US;
    *expectation = (struct weft__coll_expectation){
        .latency_us = latency_us(way, moves, work->num_ranks),
        .transfer_us = together_us / (moves->movers == ROOT_MOVES ? way->alone : 1),
        .link_bytes = (uint64_t)(pushed_bytes + pulled_bytes)};
    return 1;
}
