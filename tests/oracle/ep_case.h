/* SPDX-License-Identifier: MIT */
/* A test case of expert parallelism as a few numbers, and the world that follows from it: the
 * inputs of all ranks and what the oracle makes of them. Made once, before the ranks start. */
#pragma once

#include "oracle/ep_experts.h"

enum ep_tokens {
    EP_TOKENS_EQUAL,      /* max_tokens on every rank */
    EP_TOKENS_RAGGED,     /* 0..max_tokens, different everywhere */
    EP_TOKENS_SOME_EMPTY, /* every other rank has none */
    EP_TOKENS_ONLY_LAST,  /* all but the last rank have none */
    EP_TOKENS_ALL_EMPTY,
    EP_NUM_TOKENS
};

enum ep_routing {
    EP_ROUTING_DISTINCT,   /* different experts, each as likely */
    EP_ROUTING_SKEWED,     /* different experts, the low ones far more likely */
    EP_ROUTING_HOLES,      /* with -1 and all sorts of ids that are out of range */
    EP_ROUTING_DUPLICATES, /* a token may choose an expert twice */
    EP_ROUTING_ONE_EXPERT, /* everybody chooses the same */
    EP_ROUTING_NOWHERE,    /* -1 only */
    EP_NUM_ROUTINGS
};

enum ep_placement {
    EP_PLACEMENT_DEFAULT,    /* no tables */
    EP_PLACEMENT_SCATTERED,  /* one rank per expert, in no order */
    EP_PLACEMENT_REPLICATED, /* 1 to all ranks per expert, in no order */
    EP_PLACEMENT_LAST_RANK,  /* all experts on the last rank */
    EP_NUM_PLACEMENTS
};

enum ep_grid {
    EP_GRID_AS_GIVEN,       /* num_blocks x num_warps on every rank */
    EP_GRID_DIFFERS_BY_RANK /* the ranks have different numbers of both */
};

enum ep_routed_by {
    EP_ROUTED_BY_EXPERTS, /* layout gets topk_idx */
    EP_ROUTED_BY_TABLE,   /* the ranks and selections that follow from it */
    EP_NUM_ROUTED_BY
};

enum ep_room {
    EP_ROOM_GIVEN, /* the handle's max_tokens is the case's */
    EP_ROOM_GROWS, /* it is 0 */
    EP_NUM_ROOMS
};

/* Where the arrays lie that other ranks access: outputs of dispatch, inputs of combine. */
enum ep_reach {
    EP_REACH_HEAP,
    EP_REACH_OWN,     /* in memory of the rank alone */
    EP_REACH_DIFFERS, /* in one or the other, by rank, operation and array */
    EP_NUM_REACHES
};

/* Of the cases drawn at random: room for the rows of a token of each rank at least, or of all. */
enum { EP_STAGING_OF_FEW = 80 << 10, EP_STAGING_OF_ALL = 4 << 20 };

struct ep_case {
    uint64_t seed;
    int32_t num_ranks;
    int32_t num_nodes; /* 0: 1 */
    int32_t max_tokens;
    enum ep_room room;
    int32_t num_topk;
    int32_t num_experts;
    /* With the default placement: the weft_ep has as many more, all experts on the last rank, and
     * the handle those of the case. */
    int32_t num_spare_experts;
    int32_t expert_alignment; /* 0: 1 */
    weft_ep_order order;      /* of the handle */
    weft_dtype index_type;    /* 0: INT32 */
    enum ep_tokens tokens;
    enum ep_routing routing;
    enum ep_routed_by routed_by;
    enum ep_placement placement;
    enum ep_grid grid;
    int32_t num_blocks, num_warps; /* 0: the library's choice */
    /* The rings between nodes; 0: the library's choice. */
    int32_t num_channels, num_staging_slots;
    uint64_t staging_slot_bytes;
    weft_dtype wire; /* of combine */
    enum ep_reach reach;
    uint64_t staging_bytes; /* 0: none */
};

struct ep_world {
    struct ep_case spec;
    struct ep_experts experts;
    struct ep_chosen *chosen; /* [num_ranks] */
    struct ep_problem problem;
    struct ep_received *received;   /* [num_ranks] */
    void **topk_idx;                /* [num_ranks] as the library gets them */
    int32_t *ep_offsets, *ep_ranks; /* the weft_ep's placement, if there are spare experts */
};

struct ep_world *ep_world_create(const struct ep_case *spec);
/* The same with a copy of the given tokens [num_ranks]: spec's tokens and routing are unused. */
struct ep_world *ep_world_create_from(const struct ep_case *spec, const struct ep_chosen *tokens);
void ep_world_destroy(struct ep_world *world);

/* The tokens of one rank; ids and weights are from tests_alloc. */
struct ep_chosen ep_case_tokens(const struct ep_case *spec, int32_t rank);
/* A case with everything but seed, num_ranks and max_tokens drawn at random. */
struct ep_case ep_case_random(uint64_t seed, int32_t num_ranks, int32_t max_tokens);
