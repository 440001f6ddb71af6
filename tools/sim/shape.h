/* SPDX-License-Identifier: MIT */
/* The shape of a scenario, drawn from its seed, and what follows from it: routing, rows, and all
 * results, computed without communication by plain loops. */
#pragma once

#include "coll_call.h"
#include "ll_script.h"
#include "weights_terms.h"

enum { SHAPE_MAX_TOPK = 3, SHAPE_NO_CHOICE = -1, SHAPE_MAX_CALLS = 3 };
enum { SHAPE_MAX_HIDDEN = 640 }; /* of a row with more scales than a warp takes at once */
/* Tokens of a rank; most where one of two ranks has survived the other. */
enum { SHAPE_MAX_LOCAL_EXPERTS = 8 };
enum { SHAPE_MORE_EXPERTS = 4, SHAPE_MAX_EXPERTS = 2 * SCENARIO_MAX_RANKS + SHAPE_MORE_EXPERTS };

struct shape {
    enum scenario_op op;
    uint64_t seed;
    int32_t num_ranks;
    int32_t num_nodes;
    int32_t num_experts;
    int32_t num_topk;
    int32_t expert_alignment;
    weft_ep_order order; /* of combine */
    int32_t num_rounds;
    int32_t
        num_repeats; /* of dispatch and combine, the calls of collectives, and the results of low
                            latency, in a round; not synchronised in between */
    weft_dtype combine_dtype; /* FP32 or BF16 */
    int32_t num_biases;
    int wants_node_counts;          /* of layout */
    int routes_by_table;            /* layout, in place of topk_idx */
    int32_t num_planes;             /* of dispatch, 0 to 2: equal parts of a row; of weights */
    weft_quantisation quantisation; /* of a plane, if it is there; zero: of none */
    int32_t narrow_plane;
    /* Between nodes. */
    int32_t num_channels;
    int32_t num_slots;
    uint64_t slot_bytes;
    weft_dtype combine_wire; /* 0, FP32 or BF16 */
    uint64_t staging_bytes;  /* of a weft_ep: room for all rows */
    /* By repeat: whether the outputs of dispatch, and inputs of combine, are local to the rank. */
    int is_local[SHAPE_MAX_CALLS][SCENARIO_MAX_RANKS];
    int32_t num_handles; /* used in turn by the rounds */
    int32_t max_tokens;
    int32_t num_blocks[SCENARIO_MAX_RANKS];
    /* That dispatches and combines ask for, by repeat; 0: as above. */
    int32_t num_call_blocks[SHAPE_MAX_CALLS][SCENARIO_MAX_RANKS];
    int32_t num_warps[SCENARIO_MAX_RANKS];
    int32_t num_tokens[SCENARIO_MAX_ROUNDS][SCENARIO_MAX_RANKS];
    int32_t experts[SCENARIO_MAX_ROUNDS][SCENARIO_MAX_RANKS][SCENARIO_MAX_TOKENS][SHAPE_MAX_TOPK];
    int32_t capacity; /* more rows than any rank gets in any round */
    struct coll_terms coll_terms;
    struct coll_call calls[SCENARIO_MAX_ROUNDS][SHAPE_MAX_CALLS];
    struct ll_terms ll_terms;
    struct ll_script ll_scripts[SCENARIO_MAX_ROUNDS];
    /* With masks: bit b of rank a: the two have masked each other in the round. */
    uint64_t ll_cuts[SCENARIO_MAX_ROUNDS][SCENARIO_MAX_RANKS];
    struct weights_terms weights_terms;
    int ll_has_leaver; /* of the last round: */
    int32_t ll_leaver; /* masked by all others; it destroys its weft_ll when they begin */
};

/* For collectives 1 to 5 ranks, or 2 to 6 on 2 to 4 nodes; else 1 to 4 nodes of 1 to 4 ranks, 2 to
 * 8 in all (for layout also 1), but now and then up to 16 of 4. */
void shape_draw(struct shape *shape, const struct scenario_request *request);
/* The same without one rank: what the survivors run. */
void shape_without_rank(struct shape *shape);

float shape_weight(int32_t round, int32_t rank, int32_t token, int32_t k);
/* Small integers: their sums are exact. */
float shape_element(int32_t round, int32_t repeat, int32_t rank, int32_t token, int32_t i);

/* As the sim has it: node after node, as many ranks each or one more. */
int32_t shape_node_of(const struct shape *shape, int32_t rank);
/* The experts [first, shape_first_expert(rank + 1)) are on `rank`. */
int32_t shape_first_expert(const struct shape *shape, int32_t rank);
