/* SPDX-License-Identifier: MIT */
/*
 * Cases of low latency: inputs are pure functions of (case, step, rank, token), so each rank computes those of all
 * others, and what must come of them (workload/low_latency.h). Expert e returns its row times a factor of its own,
 * so that a row which comes from another expert shows.
 */
#pragma once

#include "weft.h"
#include "workload/low_latency.h"

/* What tokens choose, of all steps: element [rank][token][k]. */
struct ll_routing {
    const int32_t *num_tokens; /* [num_ranks] */
    const int32_t *experts;    /* [num_ranks][max_tokens][num_topk] */
    const float *weights;      /* the same */
};

struct ll_case {
    const char *name;
    uint64_t seed;
    int32_t num_ranks;
    int32_t max_tokens;
    int32_t num_topk;
    int32_t num_experts;
    int32_t
        num_replicas; /* of each expert, on ranks one after the other; 0: the default placement */
    int32_t hidden;
    weft_dtype dtype;
    weft_dtype answer_dtype;
    weft_ll_layout layout;
    weft_ll_answer answer;
    int32_t expert_capacity;
    int32_t num_results;
    int32_t num_blocks, num_warps;
    weft_dtype index_type;
    int32_t answer_gap;       /* elements between the rows that combine reads */
    int32_t odd_bytes;        /* that rows of the caller begin behind where memory does */
    int32_t answers_in_slots; /* by rank: they are written where the rows came to */
    /* By expert: combine begins before rows are written, and a word tells of so many of them, or,
     * LL_LATE_EXPERTS, of all of an expert; 0: rows are there before. */
    int32_t late_rows;
    int32_t has_expert_signals; /* by expert: dispatch tells of each expert */
    int32_t without_weights;
    int32_t without_tokens;           /* on all ranks */
    const struct ll_routing *routing; /* NULL: drawn from the seed */
    weft_quantisation quantisation;   /* zero: rows are not quantised */
    int32_t scale_columns; /* by expert: scales lie by columns, with a gap of so many rows */
    weft_ll_route route;
    weft_ll_carrier carrier;
    int32_t node_ranks; /* of each node, but that the first one has `cut_ranks` less; 0: one node */
    int32_t cut_ranks;
    weft_ll_on_missing on_missing;
    uint32_t missing_ms;
    const uint64_t
        *cuts; /* [num_ranks] bit r: neither of the two does anything for the other; NULL: none */
};

enum { LL_LATE_EXPERTS = -1, LL_SIGNAL_VALUE = 3 /* of words that tell of late rows */ };

/* Fields that go together, for cases in a row: {"name", LL_SIZES(...), LL_TYPES(...), ...}. */
#define LL_SIZES(ranks, tokens, topk, experts, elements)                                           \
    .num_ranks = ranks, .max_tokens = tokens, .num_topk = topk, .num_experts = experts,            \
    .hidden = elements
#define LL_TYPES(tokens, answers, index)                                                           \
    .dtype = WEFT_##tokens, .answer_dtype = WEFT_##answers, .index_type = WEFT_##index
#define LL_NARROW(narrow, kind, elements)                                                          \
    .quantisation = {WEFT_##narrow, WEFT_SCALE_##kind, elements}
#define LL_GRID(blocks, warps) .num_blocks = blocks, .num_warps = warps
#define LL_ANSWERS(what)       .answer = WEFT_LL_ANSWER_##what
#define LL_EXPERTS             .layout = WEFT_LL_BY_EXPERT

/* Whether two ranks have masked each other. */
int ll_are_cut(const struct ll_case *problem, int32_t a, int32_t b);

/* 0..max_tokens; every fourth rank has none in every third step. */
int32_t ll_num_tokens(const struct ll_case *problem, int32_t step, int32_t rank);
/* -1 now and then, and now and then a token chooses an expert twice. */
int64_t ll_expert(const struct ll_case *problem, int32_t step, int32_t rank, int32_t token,
                  int32_t k);
float ll_weight(const struct ll_case *problem, int32_t step, int32_t rank, int32_t token,
                int32_t k);
/* Groups that have a scale differ in their size, so that scales do, of whatever kind. */
void ll_fill_token(const struct ll_case *problem, int32_t step, int32_t rank, int32_t token,
                   void *elements);

/* Whether rows can go so, by what weft.h says of the carrier, which is not WEFT_LL_SIGNALS. */
int ll_suits(const struct ll_case *problem, weft_ll_carrier carrier);

weft_ll_config ll_config(const struct ll_case *problem);
int32_t ll_num_local(const struct ll_case *problem, int32_t rank);
int32_t ll_capacity(const struct ll_case *problem);
/* The tables of weft_ep_config; NULL with the default placement. tests_free. */
int32_t *ll_expert_ranks(const struct ll_case *problem);
int32_t *ll_expert_offsets(const struct ll_case *problem);

/* What must come of a step, for a rank. ll_oracle_close. */
struct ll_step_oracle {
    struct ll_oracle oracle;
    const struct ll_case *problem;
    int32_t step;
};
void ll_open_oracle(struct ll_step_oracle *oracle, const struct ll_case *problem, int32_t step,
                    int32_t rank);
