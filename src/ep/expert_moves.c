/* SPDX-License-Identifier: MIT */
#include <string.h>

#include "ep/balance_internal.h"

/* ---------------------------------------------------------------- the same placement, elsewhere */

static void swap(int32_t *a, int32_t *b)
{
    const int32_t a_before = *a;
    *a = *b;
    *b = a_before;
}

/* Replicas of `a` whose expert is in `b` too, each counted once. */
static int32_t count_common(const int32_t *a, const int32_t *b, int32_t count, int32_t *is_taken)
{
    int32_t num_common = 0;
    memset(is_taken, 0, (size_t)count * sizeof(*is_taken));
    for (int32_t i = 0; i < count; i++)
        for (int32_t k = 0; k < count; k++)
            if (a[i] == b[k] && !is_taken[k]) {
                is_taken[k] = 1;
                num_common++;
                break;
            }
    return num_common;
}

struct part_pair {
    int32_t place, part;
};

static struct part_pair find_most_common(const int32_t *common, const int32_t *is_settled,
                                         int32_t num_parts)
{
    struct part_pair best = {-1, -1};
    for (int32_t place = 0; place < num_parts; place++)
        for (int32_t part = 0; part < num_parts; part++)
            if (!is_settled[place] && !is_settled[part] &&
                (best.place < 0 ||
                 common[place * num_parts + part] > common[best.place * num_parts + best.part]))
                best = (struct part_pair){place, part};
    return best;
}

/* Parts of `count` replicas each go where most of them lies already: the pair with most in common
 * is the first. */
static void align_parts(struct weft__balance_work *work, const int32_t *from, int32_t *to,
                        int32_t num_parts, int32_t count)
{
    int32_t *common = work->common, *is_settled = work->order;
    memset(is_settled, 0, (size_t)num_parts * sizeof(*is_settled));
    for (int32_t place = 0; place < num_parts; place++)
        for (int32_t part = 0; part < num_parts; part++)
            common[place * num_parts + part] = count_common(
                from + (int64_t)place * count, to + (int64_t)part * count, count, work->scratch);
    for (int32_t round = 0; round < num_parts; round++) {
        const struct part_pair pair = find_most_common(common, is_settled, num_parts);
        for (int32_t i = 0; i < count; i++)
            swap(&to[pair.place * count + i], &to[pair.part * count + i]);
        for (int32_t place = 0; place < num_parts; place++)
            swap(&common[place * num_parts + pair.place], &common[place * num_parts + pair.part]);
        is_settled[pair.place] = 1;
    }
}

/* Replicas that stay on their rank keep their places. */
static void align_replicas(const int32_t *from, int32_t *to, int32_t count)
{
    for (int32_t i = 0; i < count; i++)
        for (int32_t k = 0; to[i] != from[i] && k < count; k++)
            if (to[k] == from[i] && to[k] != from[k])
                swap(&to[i], &to[k]);
}

void weft__balance_align(struct weft__balance_work *work, const int32_t *from, int32_t *to)
{
    const struct weft__balance *balance = &work->balance;
    const int32_t node_replicas = balance->num_replicas / balance->num_nodes,
                  rank_replicas = balance->num_replicas / balance->num_ranks;
    align_parts(work, from, to, balance->num_nodes, node_replicas);
    for (int32_t at = 0; at < balance->num_replicas; at += node_replicas)
        align_parts(work, from + at, to + at, balance->num_ranks / balance->num_nodes,
                    rank_replicas);
    for (int32_t at = 0; at < balance->num_replicas; at += rank_replicas)
        align_replicas(from + at, to + at, rank_replicas);
}

/* ---------------------------------------------------------------- moves */

static weft_move_distance distance_of(const struct weft__balance *balance, int32_t from, int32_t to)
{
    const int32_t node_replicas = balance->num_replicas / balance->num_nodes,
                  rank_replicas = balance->num_replicas / balance->num_ranks;
    if (from / rank_replicas == to / rank_replicas)
        return WEFT_MOVE_IN_RANK;
    return from / node_replicas == to / node_replicas ? WEFT_MOVE_IN_NODE : WEFT_MOVE_BETWEEN_NODES;
}

/* The nearest replica; of equally near ones that from which the fewest have moved. */
static weft_expert_move find_source(const struct weft__balance_work *work, const int32_t *from,
                                    int32_t expert, int32_t replica)
{
    weft_expert_move best = {.size = sizeof(best), .from_replica = -1};
    for (int32_t source = 0; source < work->balance.num_replicas; source++) {
        if (from[source] != expert)
            continue;
        const weft_move_distance distance = distance_of(&work->balance, source, replica);
        if (best.from_replica < 0 || distance < best.distance ||
            (distance == best.distance &&
             work->num_sent[source] < work->num_sent[best.from_replica])) {
            best.from_replica = source;
            best.distance = distance;
        }
    }
    best.expert = expert;
    best.to_replica = replica;
    return best;
}

int32_t weft__balance_find_moves(struct weft__balance_work *work, const int32_t *from,
                                 const int32_t *to, weft_expert_move *moves)
{
    int32_t num_moves = 0;
    memset(work->num_sent, 0, (size_t)work->balance.num_replicas * sizeof(*work->num_sent));
    for (int32_t i = 0; i < work->balance.num_replicas; i++) {
        if (to[i] == from[i])
            continue;
        moves[num_moves] = find_source(work, from, to[i], i);
        work->num_sent[moves[num_moves].from_replica]++;
        num_moves++;
    }
    return num_moves;
}
