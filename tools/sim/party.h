/* SPDX-License-Identifier: MIT */
/* One rank in one communicator of a scenario: its objects and buffers. */
#pragma once

#include "coll/coll.h"
#include "shape.h"
#include "workload/try.h"

/* Call i of a round sends from array i + 1 and receives in array i, so into what the call before
 * has sent from; in place it has one of its own. */
enum { PARTY_NUM_COLL_ARRAYS = 2 * SHAPE_MAX_CALLS + 1 };

enum { PARTY_MAX_REPEATS = 2, PARTY_MAX_HEAP_ARRAYS = 12, PARTY_NUM_WORDS = 2 };

struct scenario {
    struct shape shape;
    struct shape survivors_shape;
    weft_unique_id id, survivors_id;
    enum weft__sim_fault fault;
    int32_t fault_rank;
    /* That each rank has started; then of the survivors. */
    uint64_t barriers[2][PARTY_NUM_WORDS][SCENARIO_MAX_RANKS];
    int32_t num_ll_open; /* ranks that have their weft_ll */
    int has_disagreed;   /* the struck rank, with a call that does not fit the others' */
    int32_t num_told;    /* ranks that were told so */
    struct guarded memory;
    char message[256]; /* of the first wrong result; "" if none */
};

struct heap_array {
    void *inner;
    size_t num_bytes;
};

/* Rows that dispatch delivers, or combine reads: in the heap, or local to the rank (shape). */
struct rows {
    float *x;           /* [capacity][SCENARIO_ROW_ELEMENTS] */
    int32_t *topk_idx;  /* [capacity][num_topk] */
    float *weights;     /* [capacity][num_topk] */
    int32_t *src_token; /* [capacity] */
};

/* Rows that a rank makes of them by itself, local to it. */
struct expanded {
    char *x; /* [expanded capacity][SCENARIO_ROW_BYTES] */
    int32_t *choice_rows;
    float *row_weights;
    int32_t *src_rows;
    float *made; /* [expanded capacity][SCENARIO_ROW_ELEMENTS], whose sums are: */
    float *sums; /* [capacity][SCENARIO_ROW_ELEMENTS] */
    float *weights_back;
};

/* A result of low latency, local to the rank. */
struct ll_arrays {
    char *tokens;        /* [max_tokens][hidden] */
    int32_t *topk_idx;   /* [max_tokens][num_topk] */
    float *weights;      /* the same, for dispatch */
    float *weights_back; /* and for combine */
    char *rows;          /* by expert: [local experts][capacity][hidden] */
    char *scales;        /* of these rows */
    int32_t *src_tokens;
    int32_t *rank_counts, *expert_counts;
    int64_t *ranges;
    int32_t *missing_rows, *missing_sums[LL_MAX_COMBINES]; /* [num_ranks] */
    int64_t *waited;                                       /* [num_ranks] */
    uint64_t *expert_signals; /* [local experts], which so many dispatches have been given */
    uint64_t num_signalled;
    char *answers[LL_MAX_COMBINES];     /* what combine reads */
    uint32_t *signals[LL_MAX_COMBINES]; /* which of them are finished */
    char *out[LL_MAX_COMBINES];         /* [max_tokens][hidden] */
};

/* An array of each kind of memory, and beside it what it should hold. */
struct coll_arrays {
    char *memory[2]; /* by enum coll_memory */
    char *mirrors[2];
};

/* Whom a result has been without, beside those that are cut off: the rank that was struck; and for
 * that one, whoever has masked it. A bit for each rank. */
struct ll_lost {
    uint64_t ranks;                     /* nothing of them has come */
    uint64_t half_there;                /* they are counted, but their rows may be anything */
    uint64_t sums[LL_MAX_COMBINES];     /* they added nothing to these, */
    uint64_t in_doubt[LL_MAX_COMBINES]; /* or to some tokens */
};

struct party {
    struct scenario *scenario;
    const struct shape *shape;
    int32_t rank;
    weft_comm *comm;
    weft_stream *stream;
    weft_stream *second_stream; /* of collectives and low latency, or NULL */
    weft_coll *coll;
    struct coll_arrays coll_arrays[PARTY_NUM_COLL_ARRAYS];
    size_t coll_array_bytes;
    float factors[SHAPE_MAX_CALLS]; /* that calls read when they run */
    weft_ep *ep;
    weft_ep *next_ep; /* with the placement to which experts move */
    weft_ep_handle *handles[2];
    void *heap_block;
    struct heap_array heap_arrays[PARTY_MAX_HEAP_ARRAYS]; /* in heap_block, each with guards */
    int32_t num_heap_arrays;
    uint64_t *words; /* [PARTY_NUM_WORDS], in the heap */
    struct rows recv[PARTY_MAX_REPEATS];
    struct expanded expanded[PARTY_MAX_REPEATS]; /* of dispatch */
    void *expected;                              /* what they should be */
    int32_t *topk_idx; /* [max_tokens][num_topk], as the rest local to the rank */
    float *weights;
    float *x[PARTY_MAX_REPEATS];  /* [max_tokens][SCENARIO_ROW_ELEMENTS] */
    void *bias[2];                /* [max_tokens][SCENARIO_ROW_BYTES] */
    void *out[PARTY_MAX_REPEATS]; /* the same */
    float *out_weights[PARTY_MAX_REPEATS];
    uint8_t *tokens_to_ranks; /* [max_tokens][num_ranks] */
    int32_t *selections;      /* [num_experts] */
    int32_t *tokens_per_rank, *tokens_per_node, *tokens_per_expert;
    uint8_t *is_token_in_rank;
    char *expert_weights[2]
                        [WEIGHTS_MAX_PLANES]; /* of experts, in the heap: before and after a move */
    char *staging;                            /* of gradients of copies, in the heap */
    void *choices, *chosen[2];      /* [max_tokens][num_topk] experts, and their replicas */
    int32_t *granules;              /* [num_experts][WEFT_BALANCE_GRANULES] */
    char *gate_block, *gate_inputs; /* memory of a call of the gate, and what it was before */
    weft_ll *ll;
    struct ll_arrays ll_arrays[LL_MAX_RESULTS];
    struct ll_lost ll_lost[LL_MAX_RESULTS];
    int ll_has_lost;    /* a rank, at any time */
    int32_t *ll_totals; /* [local experts] of all results */
    int32_t *ll_mask;   /* [num_ranks] */
    struct rng ll_rng;  /* what this rank decides by itself */
};

/* An array local to the rank, with guards. `at` is the pointer to it; NULL ends a list of these. */
struct party_array {
    void *at;
    size_t num_bytes;
};
weft_result party_alloc(struct party *party, const struct party_array *arrays);
/* In the heap; once. */
weft_result party_alloc_in_heap(struct party *party, const struct party_array *arrays);

/* The config of the scenario's weft_eps, with experts placed evenly. */
weft_ep_config party_ep_config(const struct party *party);

/* The objects and buffers for shape->op. On failure too, party_close must follow. */
weft_result party_open(struct party *party);
/* Destroys what there is; complains when a guard was overwritten. */
void party_close(struct party *party);

/* The same for low latency (ll_rounds.c), the gate (gate_rounds.c), and experts that move
 * (move_rounds.c) or are copied (copies_rounds.c). */
weft_result party_open_ll(struct party *party);
weft_result party_open_gate(struct party *party);
weft_result party_open_move(struct party *party);
weft_result party_open_copies(struct party *party);

/* For what follows dispatch (expand_rounds.c). */
weft_result party_alloc_expanded(struct party *party);

/* Local array i of collectives, which other ranks then access. */
weft_result party_register(struct party *party, int32_t i);

/* Waits for all streams. */
weft_result party_synchronize(const struct party *party);

/* All rounds of shape->op; wrong results go to party_complain. */
weft_result party_run(struct party *party);

/* A round of calls of a collective (coll_rounds.c). */
weft_result party_run_calls(struct party *party, int32_t round);

/* Notes a wrong result. */
void party_complain(struct party *party, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Complains if it is not right; `of` is the party, as checkers have it. */
void party_tell(void *of, int is_right, const char *text);
/* Complains about number `i` of `what` unless it is as expected. */
void party_expect(struct party *party, const char *what, int32_t i, double found, double expected);
