/* SPDX-License-Identifier: MIT */
#include "workload/ep_oracle_check.h"

#include <stdarg.h>
#include <stdio.h>

#include "workload/convert.h"

enum { TEXT_BYTES = 160 };

static void __attribute__((format(printf, 3, 4)))
tell(const struct ep_checker *checker, int is_right, const char *format, ...)
{
    char text[TEXT_BYTES] = "";
    if (!is_right) {
        va_list arguments;
        va_start(arguments, format);
        vsnprintf(text, sizeof text, format, arguments);
        va_end(arguments);
    }
    checker->tell(checker->of, is_right, text);
}

static void compare(const struct ep_checker *checker, const char *what, int32_t i, int32_t found,
                    int32_t expected)
{
    tell(checker, found == expected, "%s[%d] is %d, not %d", what, i, found, expected);
}

/* ---------------------------------------------------------------- layout and notify */

static void check_token(const struct ep_checker *checker, struct ep_token token,
                        const uint8_t *is_in_rank)
{
    int32_t wrong = -1;
    for (int32_t rank = 0; rank < checker->problem->num_ranks; rank++)
        if (is_in_rank[rank] != ep_oracle_goes_to(checker->problem, token, rank))
            wrong = rank;
    tell(checker, wrong < 0, "is_token_in_rank of token %d and rank %d is %d", token.idx, wrong,
         wrong < 0 ? 0 : is_in_rank[wrong]);
}

void ep_oracle_check_layout(const struct ep_checker *checker, const struct ep_laid_out *found)
{
    const struct ep_problem *problem = checker->problem;
    const int32_t source = checker->rank;
    for (int32_t i = 0; i < ep_oracle_num_tokens(problem, source) && found->is_token_in_rank; i++)
        check_token(checker, (struct ep_token){source, i},
                    found->is_token_in_rank + (int64_t)i * problem->num_ranks);
    for (int32_t rank = 0; rank < problem->num_ranks && found->num_tokens_per_rank; rank++)
        compare(checker, "num_tokens_per_rank", rank, found->num_tokens_per_rank[rank],
                ep_oracle_rows_from(problem, source, rank));
    for (int32_t node = 0; node < problem->num_nodes && found->num_tokens_per_node; node++)
        compare(checker, "num_tokens_per_node", node, found->num_tokens_per_node[node],
                ep_oracle_rows_for_node(problem, source, node));
    for (int32_t i = 0; i < problem->num_experts && found->num_tokens_per_expert; i++)
        compare(checker, "num_tokens_per_expert", i, found->num_tokens_per_expert[i],
                ep_oracle_selections_from(problem, source, i));
}

/* Whose block begins at *first_row of the expanded layout, which then is the next one's. */
static void check_expert(const struct ep_checker *checker, const weft_ep_counts *found, int32_t i,
                         int32_t *first_row)
{
    const int32_t num_rows = ep_oracle_local_selections(checker->problem, checker->rank, i);
    compare(checker, "num_recv_per_expert", i, found->num_recv_per_expert[i], num_rows);
    compare(checker, "num_selections_per_expert", i, found->num_selections_per_expert[i],
            ep_oracle_local_choices(checker->problem, checker->rank, i));
    compare(checker, "first_row_per_expert", i, found->first_row_per_expert[i], *first_row);
    *first_row += num_rows;
}

void ep_oracle_check_counts(const struct ep_checker *checker, const weft_ep_counts *found)
{
    const struct ep_problem *problem = checker->problem;
    const int32_t num_local_experts = problem->num_local_experts[checker->rank];
    int32_t first_row = 0;
    compare(checker, "num_recv_tokens", 0, found->num_recv_tokens,
            ep_oracle_num_rows(problem, checker->rank));
    compare(checker, "max_recv_tokens", 0, found->max_recv_tokens, ep_oracle_max_rows(problem));
    compare(checker, "num_relayed_tokens", 0, found->num_relayed_tokens,
            ep_oracle_num_relayed(problem, checker->rank));
    for (int32_t source = 0; source < problem->num_ranks; source++)
        compare(checker, "num_recv_per_rank", source, found->num_recv_per_rank[source],
                ep_oracle_rows_from(problem, source, checker->rank));
    compare(checker, "num_local_experts", 0, found->num_local_experts, num_local_experts);
    for (int32_t i = 0; i < num_local_experts && found->num_local_experts == num_local_experts; i++)
        check_expert(checker, found, i, &first_row);
    compare(checker, "num_expanded_rows", 0, found->num_expanded_rows, first_row);
}

void ep_oracle_check_ends(const struct ep_checker *checker, const int32_t *recv_rank_ends)
{
    int32_t end = 0;
    for (int32_t source = 0; source < checker->problem->num_ranks; source++) {
        end += ep_oracle_rows_from(checker->problem, source, checker->rank);
        compare(checker, "recv_rank_ends", source, recv_rank_ends[source], end);
    }
}

/* ---------------------------------------------------------------- dispatch */

static int64_t id_at(const struct ep_row_notes *notes, int64_t i)
{
    return notes->index_type == WEFT_INT32 ? ((const int32_t *)notes->topk_idx)[i]
                                           : ((const int64_t *)notes->topk_idx)[i];
}

void ep_oracle_check_notes(const struct ep_checker *checker, const struct ep_row_notes *found,
                           int32_t row, struct ep_token token)
{
    const struct ep_problem *problem = checker->problem;
    for (int32_t k = 0; k < problem->num_topk; k++) {
        const struct ep_choice choice = ep_oracle_choice(problem, token, k);
        const int is_here = choice.rank == checker->rank;
        const int64_t id = is_here ? choice.local_expert : -1,
                      i = (int64_t)row * problem->num_topk + k;
        const float weight = is_here ? choice.weight : 0;
        if (found->topk_idx && id_at(found, i) != id) {
            tell(checker, 0, "recv_topk_idx[%d] of row %d is %lld, not %lld", k, row,
                 (long long)id_at(found, i), (long long)id);
            return;
        }
        if (found->topk_weights && fp32_bits(found->topk_weights[i]) != fp32_bits(weight)) {
            tell(checker, 0, "recv_topk_weights[%d] of row %d is %g, not %g", k, row,
                 (double)found->topk_weights[i], (double)weight);
            return;
        }
    }
    const int is_right = found->src_token == NULL || found->src_token[row] == token.idx;
    tell(checker, is_right, "recv_src_token of row %d is %d, not %d", row,
         is_right ? 0 : found->src_token[row], token.idx);
}

void ep_oracle_check_no_more(const struct ep_checker *checker, const struct ep_row_notes *found,
                             int32_t num_rows, int32_t capacity)
{
    const int64_t num_topk = checker->problem->num_topk;
    for (int64_t i = num_rows * num_topk; found->topk_idx && i < capacity * num_topk; i++)
        if (id_at(found, i) != -1) {
            tell(checker, 0, "recv_topk_idx[%lld] behind the last row is %lld", (long long)i,
                 (long long)id_at(found, i));
            return;
        }
}
