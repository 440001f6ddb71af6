/* SPDX-License-Identifier: MIT */
/* Placing experts by their loads, and the moves from one placement to the next: a part of weft.h,
 * which includes it and has the rules that hold for all of it. */
#include "weft.h" /* before the guard: it includes its parts in their order */

#ifndef WEFT_BALANCE_H
#define WEFT_BALANCE_H

#ifdef __cplusplus
extern "C" {
#endif

typedef enum weft_balance_mode {
    WEFT_BALANCE_BEST = 0, /* better than EPLB's, or the same */
    WEFT_BALANCE_EPLB =
        1 /* the answer of deepseek-ai/EPLB; experts of equal load by their number */
} weft_balance_mode;

/* Busy experts get several replicas, so that all ranks have nearly the same load. Rank r has the
 * replicas num_replicas / num_ranks * r and so on, node n the ranks num_ranks / num_nodes * n and
 * so on. Groups of experts, which lie one behind the other, stay together on a node, for gates
 * that choose among few groups. Nodes with the same number of groups each are wanted for that: if
 * num_nodes does not divide num_groups, groups and nodes do not count, as in EPLB. */
typedef struct weft_balance_config {
    size_t size;
    int32_t num_layers;
    int32_t num_experts;  /* 1..65536, a multiple of num_groups */
    int32_t num_replicas; /* num_experts..65536, a multiple of num_ranks */
    int32_t num_ranks;    /* a multiple of num_nodes */
    int32_t num_nodes;    /* 0: 1 */
    int32_t num_groups;   /* 0: 1 */
    weft_balance_mode mode;
    float target_imbalance; /* of weft_balance_fill: 1 or more; 0: 1.01 */
} weft_balance_config;

/* Local, on the host, the same answer everywhere. `loads` [num_layers][num_experts], finite and not
 * negative, say how many tokens choose each expert, or anything in proportion. `experts`
 * [num_layers][num_replicas] gets the expert of each replica. If there are few experts, a rank can
 * get two replicas of one expert. `imbalance` [num_layers], optional, gets the load of the busiest
 * rank over the mean, where the ranks that have an expert share its load alike; 1 if there is no
 * load. */
WEFT_API weft_result weft_balance_place(const weft_balance_config *config, const float *loads,
                                        int32_t *experts, float *imbalance);

/* Local: the placement `experts` [num_replicas] of one layer as weft_ep_config takes it:
 * `expert_offsets` [num_experts + 1] and `expert_ranks` [num_replicas], of which the first
 * expert_offsets[num_experts] are used, since a rank counts once for an expert. */
WEFT_API weft_result weft_balance_ranks(const weft_balance_config *config, const int32_t *experts,
                                        int32_t *expert_offsets, int32_t *expert_ranks);

typedef enum weft_move_distance {
    WEFT_MOVE_IN_RANK = 0,
    WEFT_MOVE_IN_NODE = 1,
    WEFT_MOVE_BETWEEN_NODES = 2
} weft_move_distance;

/* The weights of an expert go from one replica to another. */
typedef struct weft_expert_move {
    size_t size;
    int32_t layer, expert;
    int32_t from_replica; /* in the placement `from` */
    int32_t to_replica;   /* in the placement `to` */
    weft_move_distance distance;
    int32_t reserved;
} weft_expert_move;

/* Local: the moves that make the placement `to` out of `from`, both [num_layers][num_replicas], the
 * nearest first. `to` is rearranged at first, so that little moves: nodes, ranks of a node and
 * replicas of a rank change places. That changes no load. Sources are the nearest replicas in
 * `from`, in turn. Writes up to max_moves moves, and the number of all moves into *num_moves: at
 * most num_layers * num_replicas. */
WEFT_API weft_result weft_balance_moves(const weft_balance_config *config, const int32_t *from,
                                        int32_t *to, weft_expert_move *moves, int32_t max_moves,
                                        int32_t *num_moves);

/* An expert's tokens have this many granules: token t of source rank s is of granule
 * (s + t) % WEFT_BALANCE_GRANULES. */
#define WEFT_BALANCE_GRANULES 16

/* Local, on the host, the same answer everywhere: copies of experts for one step, so that no rank
 * has more than its share and a granule, as far as there is room. `loads` [num_layers][num_experts]
 * say how many tokens choose each expert in this step. `experts` [num_layers][num_replicas] has the
 * expert of each replica, or -1 for a spare replica. Each expert has at least one replica. A spare
 * one gets a copy of an expert that is on a busy rank, or stays -1. `granules`
 * [num_layers][num_experts][WEFT_BALANCE_GRANULES] gets the replica that serves each granule.
 *
 * The busiest rank is relieved until its load over the mean is at most target_imbalance: a higher
 * one means fewer copies. `imbalance` [num_layers], optional, gets what was reached; 1 if there is
 * no load. In config, num_nodes, num_groups and mode must be valid, but change nothing. */
WEFT_API weft_result weft_balance_fill(const weft_balance_config *config, const float *loads,
                                       int32_t *experts, int32_t *granules, float *imbalance);

#ifdef __cplusplus
}
#endif

#endif
