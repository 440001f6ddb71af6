/* SPDX-License-Identifier: MIT */
#include "oracle/ll_case.h"

#include <string.h>

#include "harness/memory.h"
#include "oracle/quantised.h"
#include "workload/elements.h"
#include "workload/logarithmic.h"
#include "workload/rng.h"

enum draw { DRAW_TOKENS, DRAW_EXPERT, DRAW_WEIGHT, DRAW_ELEMENTS };

static uint64_t draw(const struct ll_case *problem, enum draw what, int32_t step, int32_t rank,
                     int64_t idx)
{
    uint64_t key = rng_key(problem->seed, (uint64_t)what);
    key = rng_key(key, (uint64_t)step);
    key = rng_key(key, (uint64_t)rank);
    return rng_key(key, (uint64_t)idx);
}

static int64_t routing_idx(const struct ll_case *problem, int32_t rank, int32_t token, int32_t k)
{
    return ((int64_t)rank * problem->max_tokens + token) * problem->num_topk + k;
}

int32_t ll_num_tokens(const struct ll_case *problem, int32_t step, int32_t rank)
{
    if (problem->routing != NULL)
        return problem->routing->num_tokens[rank];
    if (problem->without_tokens || (rank % 4 == 1 && step % 3 == 1))
        return 0;
    if (step == 0)
        return problem->max_tokens;
    return (int32_t)(draw(problem, DRAW_TOKENS, step, rank, 0) %
                     (uint64_t)(problem->max_tokens + 1));
}

int64_t ll_expert(const struct ll_case *problem, int32_t step, int32_t rank, int32_t token,
                  int32_t k)
{
    if (problem->routing != NULL)
        return problem->routing->experts[routing_idx(problem, rank, token, k)];
    const int64_t idx = (int64_t)token * problem->num_topk + k;
    const uint64_t bits = draw(problem, DRAW_EXPERT, step, rank, idx);
    if (bits % 11 == 0)
        return -1;
    /* Few experts are popular, so that capacities overflow. */
    const uint64_t among =
        bits % 5 == 0 ? (uint64_t)(problem->num_experts + 3) / 4 : (uint64_t)problem->num_experts;
    return (int64_t)((bits >> 20) % among);
}

float ll_weight(const struct ll_case *problem, int32_t step, int32_t rank, int32_t token, int32_t k)
{
    if (problem->routing != NULL)
        return problem->routing->weights[routing_idx(problem, rank, token, k)];
    struct rng rng = {
        draw(problem, DRAW_WEIGHT, step, rank, (int64_t)token * problem->num_topk + k)};
    return problem->without_weights ? 1.0f : rng_uniform(&rng) - 0.25f;
}

void ll_fill_token(const struct ll_case *problem, int32_t step, int32_t rank, int32_t token,
                   void *elements)
{
    const struct element_source source = {draw(problem, DRAW_ELEMENTS, step, rank, 0),
                                          problem->dtype, ELEMENTS_NUMBERS, NULL};
    elements_fill(&source, token, 0, (uint64_t)problem->hidden, elements);
}

/* ---------------------------------------------------------------- quantised rows */

static struct quantised_form form_of(const struct ll_case *problem, int64_t word_stride)
{
    return (struct quantised_form){problem->dtype, problem->narrow_dtype, problem->scale,
                                   problem->group_elements, word_stride};
}

uint64_t ll_sent_bytes(const struct ll_case *problem)
{
    const uint64_t element_bytes =
        problem->narrow_dtype == WEFT_DTYPE_NONE ? dtype_bytes(problem->dtype) : 1;
    return (uint64_t)problem->hidden * element_bytes;
}

int32_t ll_num_groups(const struct ll_case *problem)
{
    return problem->narrow_dtype == WEFT_DTYPE_NONE ? 0 : problem->hidden / problem->group_elements;
}

void ll_fill_sent(const struct ll_case *problem, int32_t step, int32_t rank, int32_t token,
                  char *elements, char *scales, int64_t word_stride)
{
    const struct quantised_form form = form_of(problem, word_stride);
    char *wide = tests_alloc((size_t)problem->hidden * dtype_bytes(problem->dtype));
    ll_fill_token(problem, step, rank, token, wide);
    if (problem->narrow_dtype == WEFT_DTYPE_NONE)
        memcpy(elements, wide, ll_sent_bytes(problem));
    else
        quantised_make_row(&form, wide, problem->hidden, elements, scales);
    tests_free(wide);
}

void ll_fill_input(const struct ll_case *problem, int32_t step, int32_t rank, int32_t token,
                   void *elements)
{
    const struct quantised_form form = form_of(problem, sizeof(float));
    char *sent = tests_alloc(ll_sent_bytes(problem));
    char *scales = tests_alloc((size_t)(ll_num_groups(problem) + 4) * sizeof(float));
    ll_fill_sent(problem, step, rank, token, sent, scales, sizeof(float));
    if (problem->narrow_dtype == WEFT_DTYPE_NONE)
        memcpy(elements, sent, ll_sent_bytes(problem));
    for (int32_t i = 0; i < problem->hidden && problem->narrow_dtype != WEFT_DTYPE_NONE; i++)
        element_store(problem->dtype, elements, i, quantised_number(&form, sent, scales, i));
    tests_free(scales);
    tests_free(sent);
}

/* ---------------------------------------------------------------- placement */

static int32_t rank_of_replica(const struct ll_case *problem, int32_t expert, int32_t replica)
{
    return (expert + replica) % problem->num_ranks;
}

static int has_expert(const struct ll_case *problem, int32_t rank, int32_t expert)
{
    const int64_t num_experts = problem->num_experts, num_ranks = problem->num_ranks;
    if (problem->num_replicas == 0)
        return expert >= num_experts * rank / num_ranks &&
               expert < num_experts * (rank + 1) / num_ranks;
    for (int32_t replica = 0; replica < problem->num_replicas; replica++)
        if (rank_of_replica(problem, expert, replica) == rank)
            return 1;
    return 0;
}

int ll_are_cut(const struct ll_case *problem, int32_t a, int32_t b)
{
    return problem->cuts != NULL && (problem->cuts[a] >> b & 1) != 0;
}

static int32_t local_expert(const struct ll_case *problem, int32_t rank, int32_t expert)
{
    int32_t num_before = 0;
    for (int32_t other = 0; other < expert; other++)
        num_before += has_expert(problem, rank, other);
    return num_before;
}

int32_t ll_num_local(const struct ll_case *problem, int32_t rank)
{
    return local_expert(problem, rank, problem->num_experts);
}

struct ll_place ll_place(const struct ll_case *problem, int32_t step, int32_t rank, int32_t token,
                         int32_t k)
{
    const int64_t expert = ll_expert(problem, step, rank, token, k);
    struct ll_place place = {-1, -1};
    if (expert < 0)
        return place;
    if (problem->num_replicas > 0)
        place.rank =
            rank_of_replica(problem, (int32_t)expert, (rank + token) % problem->num_replicas);
    for (int32_t owner = 0; problem->num_replicas == 0 && owner < problem->num_ranks; owner++)
        if (has_expert(problem, owner, (int32_t)expert))
            place.rank = owner;
    if (ll_are_cut(problem, rank, place.rank))
        return (struct ll_place){-1, -1};
    place.local_expert = local_expert(problem, place.rank, (int32_t)expert);
    return place;
}

int32_t ll_capacity(const struct ll_case *problem)
{
    return problem->expert_capacity > 0 ? problem->expert_capacity
                                        : problem->num_ranks * problem->max_tokens;
}

int32_t *ll_expert_offsets(const struct ll_case *problem)
{
    if (problem->num_replicas == 0)
        return NULL;
    int32_t *offsets = tests_alloc((size_t)(problem->num_experts + 1) * sizeof *offsets);
    for (int32_t expert = 0; expert <= problem->num_experts; expert++)
        offsets[expert] = expert * problem->num_replicas;
    return offsets;
}

int32_t *ll_expert_ranks(const struct ll_case *problem)
{
    if (problem->num_replicas == 0)
        return NULL;
    int32_t *ranks =
        tests_alloc((size_t)(problem->num_experts * problem->num_replicas) * sizeof *ranks);
    for (int32_t i = 0; i < problem->num_experts * problem->num_replicas; i++)
        ranks[i] = rank_of_replica(problem, i / problem->num_replicas, i % problem->num_replicas);
    return ranks;
}

/* ---------------------------------------------------------------- rows */

int32_t ll_most_rows(const struct ll_case *problem)
{
    return problem->num_ranks * problem->max_tokens;
}

int32_t ll_rows_of_rank(const struct ll_case *problem, int32_t step, int32_t rank,
                        struct ll_row *rows)
{
    int32_t num_rows = 0;
    for (int32_t source = 0; source < problem->num_ranks; source++) {
        int32_t idx = 0;
        for (int32_t token = 0; token < ll_num_tokens(problem, step, source); token++) {
            int is_here = 0;
            for (int32_t k = 0; k < problem->num_topk; k++)
                is_here |= ll_place(problem, step, source, token, k).rank == rank;
            if (is_here)
                rows[num_rows++] = (struct ll_row){source, token, idx++};
        }
    }
    return num_rows;
}

/* ---------------------------------------------------------------- combine */

static float factor(int32_t rank, int32_t local)
{
    return 0.5f + (float)((7 * rank + 3 * local) % 16) / 8;
}

void ll_run_expert(const struct ll_case *problem, int32_t rank, int32_t local, void *elements)
{
    for (int32_t i = 0; i < problem->hidden; i++)
        element_store(problem->dtype, elements, i,
                      element_load(problem->dtype, elements, i) * factor(rank, local));
}

/* The rows of a token's choices on `rank` that had room, summed with their weights. */
static void sum_choices(const struct ll_case *problem, int32_t step, struct ll_row row,
                        int32_t rank, const unsigned char *has_room, float *sums)
{
    const size_t hidden = (size_t)problem->hidden, bytes = hidden * dtype_bytes(problem->dtype);
    void *elements = tests_alloc(bytes);
    memset(sums, 0, hidden * sizeof *sums);
    for (int32_t k = 0; k < problem->num_topk; k++) {
        const struct ll_place place = ll_place(problem, step, row.source, row.token, k);
        const float weight = ll_weight(problem, step, row.source, row.token, k);
        if (place.rank != rank || !has_room[k])
            continue;
        ll_fill_input(problem, step, row.source, row.token, elements);
        ll_run_expert(problem, rank, place.local_expert, elements);
        for (size_t i = 0; i < hidden; i++) {
            const float product = element_load(problem->dtype, elements, (int64_t)i) * weight;
            sums[i] += product;
        }
    }
    tests_free(elements);
}

void ll_run_experts(const struct ll_case *problem, int32_t step, int32_t rank, struct ll_row row,
                    void *elements)
{
    unsigned char all[WEFT_MAX_TOPK];
    float *sums = tests_alloc((size_t)problem->hidden * sizeof *sums);
    memset(all, 1, sizeof all);
    sum_choices(problem, step, row, rank, all, sums);
    elements_from_fp32(problem->dtype, sums, (size_t)problem->hidden, elements);
    tests_free(sums);
}

/* Which of the token's choices fit their experts' capacity: by counting all selections before. */
static void find_room(const struct ll_case *problem, int32_t step, int32_t rank, int32_t token,
                      unsigned char *has_room)
{
    for (int32_t k = 0; k < problem->num_topk; k++) {
        const struct ll_place place = ll_place(problem, step, rank, token, k);
        int32_t num_before = 0;
        for (int32_t source = 0; source <= rank; source++) {
            const int32_t end = source < rank ? ll_num_tokens(problem, step, source) : token + 1;
            for (int32_t i = 0; i < end * problem->num_topk; i++) {
                if (source == rank && i >= token * problem->num_topk + k)
                    break;
                const struct ll_place other =
                    ll_place(problem, step, source, i / problem->num_topk, i % problem->num_topk);
                num_before += other.rank == place.rank && other.local_expert == place.local_expert;
            }
        }
        has_room[k] = problem->layout == WEFT_LL_BY_RANK || num_before < ll_capacity(problem);
    }
}

/* The row as the answers' type keeps it. Logarithms are those of a row of dtype. */
static void round_answer(const struct ll_case *problem, float *answer)
{
    const size_t hidden = (size_t)problem->hidden;
    const weft_dtype dtype =
        problem->answer_dtype == WEFT_LOG_10BIT ? problem->dtype : problem->answer_dtype;
    char *row = tests_alloc(hidden * dtype_bytes(dtype));
    elements_from_fp32(dtype, answer, hidden, row);
    elements_to_fp32(dtype, row, hidden, answer);
    if (problem->answer_dtype == WEFT_LOG_10BIT) {
        uint8_t *logarithms = tests_alloc(hidden / LOGARITHMIC_GROUP * LOGARITHMIC_GROUP_BYTES + 1);
        logarithmic_make_row(dtype, row, problem->hidden, logarithms);
        for (int32_t i = 0; i < problem->hidden; i++)
            answer[i] = logarithmic_number(logarithms, problem->hidden, i);
        tests_free(logarithms);
    }
    tests_free(row);
}

/* Adds one row in the answers' type to the token's sum. */
static void add_answer(const struct ll_case *problem, float *answer, float weight, float *sum)
{
    round_answer(problem, answer);
    for (int32_t i = 0; i < problem->hidden; i++) {
        const float product = answer[i] * weight;
        sum[i] += product;
    }
}

static void add_rank(const struct ll_case *problem, int32_t step, struct ll_row row, int32_t rank,
                     const unsigned char *has_room, float *sum)
{
    const size_t hidden = (size_t)problem->hidden;
    float *answer = tests_alloc(hidden * sizeof *answer);
    sum_choices(problem, step, row, rank, has_room, answer);
    if (problem->layout == WEFT_LL_BY_RANK) /* the caller's sum is in dtype */
        for (size_t i = 0; i < hidden; i++) {
            uint32_t stored = 0;
            element_store(problem->dtype, &stored, 0, answer[i]);
            answer[i] = element_load(problem->dtype, &stored, 0);
        }
    add_answer(problem, answer, 1, sum);
    tests_free(answer);
}

static void add_choice(const struct ll_case *problem, int32_t step, struct ll_row row, int32_t k,
                       float *sum)
{
    const struct ll_place place = ll_place(problem, step, row.source, row.token, k);
    const size_t hidden = (size_t)problem->hidden;
    void *elements = tests_alloc(hidden * dtype_bytes(problem->dtype));
    float *answer = tests_alloc(hidden * sizeof *answer);
    ll_fill_input(problem, step, row.source, row.token, elements);
    ll_run_expert(problem, place.rank, place.local_expert, elements);
    elements_to_fp32(problem->dtype, elements, hidden, answer);
    add_answer(problem, answer, ll_weight(problem, step, row.source, row.token, k), sum);
    tests_free(answer);
    tests_free(elements);
}

void ll_expect_combined(const struct ll_case *problem, int32_t step, int32_t rank, int32_t token,
                        void *elements)
{
    const struct ll_row row = {rank, token, 0};
    unsigned char has_room[WEFT_MAX_TOPK];
    float *sum = tests_alloc((size_t)problem->hidden * sizeof *sum);
    find_room(problem, step, rank, token, has_room);
    for (int32_t owner = 0; owner < problem->num_ranks; owner++)
        if (problem->answer != WEFT_LL_ANSWER_ROWS)
            for (int32_t k = 0; k < problem->num_topk; k++)
                if (ll_place(problem, step, rank, token, k).rank == owner) {
                    add_rank(problem, step, row, owner, has_room, sum);
                    break;
                }
    for (int32_t k = 0; k < problem->num_topk; k++)
        if (problem->answer == WEFT_LL_ANSWER_ROWS && has_room[k] &&
            ll_place(problem, step, rank, token, k).rank >= 0)
            add_choice(problem, step, row, k, sum);
    elements_from_fp32(problem->dtype, sum, (size_t)problem->hidden, elements);
    tests_free(sum);
}
