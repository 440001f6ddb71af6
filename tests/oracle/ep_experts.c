/* SPDX-License-Identifier: MIT */
#include "oracle/ep_experts.h"

#include "harness/memory.h"

void ep_experts_default(int32_t num_ranks, int32_t num_experts, int32_t *offsets, int32_t *ranks)
{
    for (int32_t rank = 0; rank < num_ranks; rank++)
        for (int32_t expert = ep_first_expert(num_experts, num_ranks, rank);
             expert < ep_first_expert(num_experts, num_ranks, rank + 1); expert++)
            ranks[expert] = rank;
    for (int32_t expert = 0; expert <= num_experts; expert++)
        offsets[expert] = expert;
}

/* Which entry of `ranks` serves the choice. */
static int64_t replica_entry(const struct ep_experts *experts, int32_t expert,
                             int64_t source_plus_token)
{
    const int32_t begin = experts->offsets[expert];
    const int32_t num_replicas = experts->offsets[expert + 1] - begin;
    return begin + source_plus_token % num_replicas;
}

static int rank_has_expert(const struct ep_experts *experts, int32_t rank, int32_t expert)
{
    for (int32_t i = experts->offsets[expert]; i < experts->offsets[expert + 1]; i++)
        if (experts->ranks[i] == rank)
            return 1;
    return 0;
}

int32_t ep_experts_next(const struct ep_experts *experts, int32_t rank, int32_t expert)
{
    while (++expert < experts->num_experts)
        if (rank_has_expert(experts, rank, expert))
            return expert;
    return -1;
}

int64_t ep_experts_max_recv_tokens(const struct ep_experts *experts, int32_t rank,
                                   int32_t max_tokens)
{
    int64_t num_recv_tokens = 0;
    for (int32_t source = 0; source < experts->num_ranks; source++)
        for (int32_t token = 0; token < max_tokens; token++) {
            int can_come = 0;
            for (int32_t expert = 0; expert < experts->num_experts && !can_come; expert++)
                can_come =
                    experts->ranks[replica_entry(experts, expert, (int64_t)source + token)] == rank;
            num_recv_tokens += can_come;
        }
    return num_recv_tokens;
}

/* ---------------------------------------------------------------- choices */

struct choices {
    int32_t num_topk;
    const int64_t *first_tokens;
    struct ep_choice *choices; /* [all tokens][num_topk] */
};

static struct ep_choice choose(const void *of, struct ep_token token, int32_t k)
{
    const struct choices *choices = of;
    const int64_t number = choices->first_tokens[token.source] + token.idx;
    return choices->choices[number * choices->num_topk + k];
}

static void serve(const struct ep_experts *experts, const int32_t *local_experts, int32_t source,
                  const struct ep_chosen *chosen, int32_t num_topk, struct ep_choice *choices)
{
    for (int64_t i = 0; i < (int64_t)chosen->num_tokens * num_topk; i++) {
        const int64_t expert = chosen->topk_idx[i];
        choices[i] = (struct ep_choice){.rank = -1, .weight = chosen->topk_weights[i]};
        if (expert < 0 || expert >= experts->num_experts)
            continue;
        choices[i].expert = (int32_t)expert;
        choices[i].rank =
            experts->ranks[replica_entry(experts, (int32_t)expert, source + i / num_topk)];
        choices[i].local_expert = local_experts[choices[i].rank * experts->num_experts + expert];
    }
}

/* By rank and expert; and how many each rank has. */
static int32_t *number_local_experts(const struct ep_experts *experts, int32_t *num_local)
{
    int32_t *numbers =
        tests_alloc(sizeof *numbers * (size_t)experts->num_ranks * (size_t)experts->num_experts);
    for (int32_t expert = 0; expert < experts->num_experts; expert++)
        for (int32_t rank = 0; rank < experts->num_ranks; rank++)
            if (rank_has_expert(experts, rank, expert))
                numbers[rank * experts->num_experts + expert] = num_local[rank]++;
    return numbers;
}

struct ep_problem ep_problem_create(const struct ep_experts *experts,
                                    const struct ep_chosen *chosen, int32_t num_topk)
{
    const size_t num_ranks = (size_t)experts->num_ranks;
    int64_t *first_tokens = tests_alloc(sizeof *first_tokens * (num_ranks + 1));
    int32_t *num_local = tests_alloc(sizeof *num_local * num_ranks);
    struct choices *choices = tests_alloc(sizeof *choices);
    int32_t *local_experts = number_local_experts(experts, num_local);
    for (size_t rank = 0; rank < num_ranks; rank++)
        first_tokens[rank + 1] = first_tokens[rank] + chosen[rank].num_tokens;
    *choices = (struct choices){
        num_topk, first_tokens,
        tests_alloc(sizeof *choices->choices * (size_t)first_tokens[num_ranks] * (size_t)num_topk)};
    for (int32_t rank = 0; rank < experts->num_ranks; rank++)
        serve(experts, local_experts, rank, &chosen[rank], num_topk,
              choices->choices + first_tokens[rank] * num_topk);
    tests_free(local_experts);
    return (struct ep_problem){.num_ranks = experts->num_ranks,
                               .num_nodes = 1,
                               .num_experts = experts->num_experts,
                               .num_topk = num_topk,
                               .expert_alignment = 1,
                               .num_local_experts = num_local,
                               .first_tokens = first_tokens,
                               .choose = choose,
                               .of = choices};
}

void ep_problem_destroy(const struct ep_problem *problem)
{
    const struct choices *choices = problem->of;
    tests_free(choices->choices);
    tests_free(choices);
    tests_free(problem->num_local_experts);
    tests_free(problem->first_tokens);
}

/* All bytes but 0 mean that the token goes there. */
void ep_experts_fill_table(const struct ep_experts *experts, const struct ep_problem *problem,
                           int32_t rank, const struct ep_table *table)
{
    for (int32_t token = 0; token < ep_oracle_num_tokens(problem, rank); token++)
        for (int32_t k = 0; k < problem->num_topk; k++) {
            const struct ep_choice choice =
                ep_oracle_choice(problem, (struct ep_token){rank, token}, k);
            if (choice.rank < 0)
                continue;
            table->tokens_to_ranks[(int64_t)token * problem->num_ranks + choice.rank] =
                (uint8_t)(1 + token % 255);
            table->selections[replica_entry(experts, choice.expert, (int64_t)rank + token)]++;
        }
}
