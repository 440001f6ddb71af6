/* SPDX-License-Identifier: MIT */
/*
 * Copies of experts for one step. As long as it helps, the busiest rank gives granules of one of
 * its experts to a lighter rank: to one that has the expert, or to the lightest rank with a spare
 * replica, which becomes a copy. It takes the granules that bring both ranks nearest to the mean.
 * Each move lightens the busiest rank, and leaves the other rank lighter than that was.
 */
#include <string.h>

#include "ep/balance_internal.h"

enum { NUM_GRANULES = WEFT_BALANCE_GRANULES };

struct filling {
    const struct weft__balance *balance;
    const float *loads;
    int32_t *replicas, *granules; /* the answer so far */
    double mean;
    double *rank_loads;
    int32_t *num_granules; /* of each replica */
    int32_t *is_spare;     /* each replica, at first */
};

struct granule_move {
    int32_t from, to; /* replicas; from -1: no move helps */
    int32_t count;
    double gain; /* load that goes from above the mean to below it, less what goes too far */
};

static int32_t count_replicas_of_rank(const struct filling *filling)
{
    return filling->balance->num_replicas / filling->balance->num_ranks;
}

static double granule_of(const struct filling *filling, int32_t expert)
{
    return (double)filling->loads[expert] / NUM_GRANULES;
}

/* ---------------------------------------------------------------- where they begin */

/* The replicas of an expert have equal parts of its granules. */
static void deal_granules(struct weft__balance_work *work, struct filling *filling)
{
    const struct weft__balance *balance = filling->balance;
    int32_t *num_replicas = work->num_there, *num_dealt = work->num_sent;
    memset(num_replicas, 0, (size_t)balance->num_experts * sizeof *num_replicas);
    memset(num_dealt, 0, (size_t)balance->num_experts * sizeof *num_dealt);
    for (int32_t i = 0; i < balance->num_replicas; i++) {
        filling->is_spare[i] = filling->replicas[i] < 0;
        if (!filling->is_spare[i])
            num_replicas[filling->replicas[i]]++;
    }
    for (int32_t i = 0; i < balance->num_replicas; i++) {
        const int32_t expert = filling->replicas[i];
        filling->num_granules[i] = 0;
        if (filling->is_spare[i])
            continue;
        const int32_t number = num_dealt[expert]++;
        const int32_t begin = NUM_GRANULES * number / num_replicas[expert],
                      end = NUM_GRANULES * (number + 1) / num_replicas[expert];
        for (int32_t k = begin; k < end; k++)
            filling->granules[expert * NUM_GRANULES + k] = i;
        filling->num_granules[i] = end - begin;
    }
}

static void sum_loads(struct filling *filling)
{
    const struct weft__balance *balance = filling->balance;
    const int32_t count = count_replicas_of_rank(filling);
    double sum = 0;
    memset(filling->rank_loads, 0, (size_t)balance->num_ranks * sizeof *filling->rank_loads);
    for (int32_t i = 0; i < balance->num_replicas; i++)
        if (filling->num_granules[i] > 0)
            filling->rank_loads[i / count] +=
                filling->num_granules[i] * granule_of(filling, filling->replicas[i]);
    for (int32_t rank = 0; rank < balance->num_ranks; rank++)
        sum += filling->rank_loads[rank];
    filling->mean = sum / balance->num_ranks;
}

/* ---------------------------------------------------------------- a move */

static int32_t find_busiest(const struct filling *filling)
{
    int32_t busiest = 0;
    for (int32_t rank = 1; rank < filling->balance->num_ranks; rank++)
        if (filling->rank_loads[rank] > filling->rank_loads[busiest])
            busiest = rank;
    return busiest;
}

/* The first spare replica of the lightest rank that has one; -1: no rank has. */
static int32_t find_spare(const struct filling *filling)
{
    const int32_t count = count_replicas_of_rank(filling);
    int32_t spare = -1;
    for (int32_t i = 0; i < filling->balance->num_replicas; i++)
        if (filling->replicas[i] < 0 &&
            (spare < 0 || filling->rank_loads[i / count] < filling->rank_loads[spare / count]))
            spare = i;
    return spare;
}

/* The replica of the expert on the rank of the spare one, or else the spare one: a rank has no use
 * for two of an expert. */
static int32_t find_on_rank(const struct filling *filling, int32_t expert, int32_t spare)
{
    const int32_t count = count_replicas_of_rank(filling), first = spare / count * count;
    for (int32_t i = first; i < first + count; i++)
        if (filling->replicas[i] == expert)
            return i;
    return spare;
}

static void try_move(const struct filling *filling, int32_t from, int32_t to,
                     struct granule_move *best)
{
    const int32_t num_replicas = count_replicas_of_rank(filling);
    const double least_gain = filling->mean * 1e-6; /* less is rounding */
    const double granule = granule_of(filling, filling->replicas[from]);
    const double busiest = filling->rank_loads[from / num_replicas],
                 lighter = filling->rank_loads[to / num_replicas];
    const double above = busiest - filling->mean, below = filling->mean - lighter;
    const double wanted = above < below ? above : below;
    if (wanted <= 0 || granule < least_gain)
        return;
    const double most = filling->num_granules[from], nearest = wanted / granule + 0.5;
    const int32_t count = nearest < 1 ? 1 : (int32_t)(nearest < most ? nearest : most);
    const double moved = count * granule;
    const double gain = moved <= wanted ? moved : 2 * wanted - moved;
    if (lighter + moved <= busiest - least_gain && (best->from < 0 || gain > best->gain))
        *best = (struct granule_move){from, to, count, gain};
}

/* A copy must be better than a replica that is there, which moves no bytes. */
static struct granule_move find_move(const struct filling *filling, int32_t busiest)
{
    const int32_t count = count_replicas_of_rank(filling), spare = find_spare(filling);
    const int32_t begin = busiest * count, end = begin + count;
    struct granule_move best = {.from = -1};
    for (int32_t i = begin; i < end; i++)
        for (int32_t k = 0; filling->num_granules[i] > 0 && k < NUM_GRANULES; k++)
            try_move(filling, i, filling->granules[filling->replicas[i] * NUM_GRANULES + k], &best);
    for (int32_t i = begin; spare >= 0 && i < end; i++)
        if (filling->num_granules[i] > 0)
            try_move(filling, i, find_on_rank(filling, filling->replicas[i], spare), &best);
    return best;
}

static void make_move(struct filling *filling, struct granule_move move)
{
    const int32_t count = count_replicas_of_rank(filling), expert = filling->replicas[move.from];
    const double moved = move.count * granule_of(filling, expert);
    int32_t *granules = filling->granules + (int64_t)expert * NUM_GRANULES;
    int32_t num_left = move.count;
    for (int32_t k = 0; num_left > 0; k++)
        if (granules[k] == move.from) {
            granules[k] = move.to;
            num_left--;
        }
    filling->replicas[move.to] = expert;
    filling->num_granules[move.from] -= move.count;
    filling->num_granules[move.to] += move.count;
    filling->rank_loads[move.from / count] -= moved;
    filling->rank_loads[move.to / count] += moved;
    if (filling->num_granules[move.from] == 0 && filling->is_spare[move.from])
        filling->replicas[move.from] = -1;
}

float weft__balance_fill(struct weft__balance_work *work, const float *loads, float target,
                         int32_t *replicas, int32_t *granules)
{
    struct filling filling = {.balance = &work->balance,
                              .loads = loads,
                              .replicas = replicas,
                              .granules = granules,
                              .rank_loads = work->rank_loads,
                              .num_granules = work->order,
                              .is_spare = work->scratch};
    deal_granules(work, &filling);
    sum_loads(&filling);
    if (filling.mean == 0)
        return 1;
    for (;;) {
        const int32_t busiest = find_busiest(&filling);
        const double imbalance = filling.rank_loads[busiest] / filling.mean;
        const struct granule_move move = imbalance > (double)target
                                             ? find_move(&filling, busiest)
                                             : (struct granule_move){.from = -1};
        if (move.from < 0)
            return (float)imbalance;
        make_move(&filling, move);
    }
}
