/* SPDX-License-Identifier: MIT */
#include "ll_values.h"

#include "workload/elements.h"
#include "workload/failure.h"

enum { RANK_FACTOR = 3, EXPERT_FACTOR = 5 }; /* what an answer tells of whence it comes */

weft_ll_config ll_config(const struct shape *shape, int32_t rank)
{
    const struct ll_terms *terms = &shape->ll_terms;
    weft_ll_config config = WEFT_INIT(weft_ll_config);
    config.hidden = terms->hidden;
    config.max_tokens = shape->max_tokens;
    config.num_topk = shape->num_topk;
    config.dtype = shape->combine_dtype;
    config.layout = terms->layout;
    /* Tokens choose experts twice. Rows beyond a capacity that is given are dropped. */
    if (terms->layout == WEFT_LL_BY_EXPERT)
        config.expert_capacity = terms->expert_capacity > 0 ? terms->expert_capacity
                                                            : shape->num_ranks * shape->max_tokens;
    config.num_results = terms->num_results;
    config.answer = terms->answer;
    config.answer_dtype = terms->answer_dtype;
    config.quantisation = terms->quantisation;
    config.num_blocks = shape->num_blocks[rank];
    config.num_warps = shape->num_warps[rank];
    config.route = terms->route;
    config.carrier = terms->carrier;
    config.on_missing = terms->on_missing;
    return config;
}

int32_t ll_num_local(const struct shape *shape, int32_t rank)
{
    return shape_first_expert(shape, rank + 1) - shape_first_expert(shape, rank);
}

size_t ll_row_bytes(const struct shape *shape)
{
    return (size_t)shape->ll_terms.hidden * dtype_bytes(shape->combine_dtype);
}

int32_t ll_num_tokens(const struct shape *shape, int32_t round, int32_t result, int32_t source)
{
    const int32_t num_tokens = shape->num_tokens[round][source];
    return result == 0 ? num_tokens : (num_tokens + 1) / 2;
}

float ll_weight(const struct shape *shape, int32_t round, int32_t source, int32_t index, int32_t k)
{
    return shape->ll_terms.has_weights ? shape_weight(round, source, index, k) : 1;
}

void ll_fill_token(const struct ll_about *about, int32_t source, int32_t index, void *elements)
{
    for (int32_t i = 0; i < about->shape->ll_terms.hidden; i++)
        element_store(about->shape->combine_dtype, elements, i,
                      shape_element(about->round, about->result, source, index, i));
}

/* ---------------------------------------------------------------- what must come */

static void fill_token(const void *of, int64_t token, void *elements)
{
    const struct ll_expected *expected = of;
    const int64_t *first_tokens = expected->oracle.first_tokens;
    int32_t source = 0;
    while (token >= first_tokens[source + 1])
        source++;
    ll_fill_token(&expected->about, source, (int32_t)(token - first_tokens[source]), elements);
}

static void run_expert(const void *of, int32_t rank, int32_t local_expert, float *values,
                       int64_t num_values)
{
    (void)of;
    for (int64_t i = 0; i < num_values; i++)
        values[i] += (float)(1 + RANK_FACTOR * rank + EXPERT_FACTOR * local_expert);
}

/* Whether two ranks do nothing for each other. */
static int are_cut(const struct ll_about *about, int32_t a, int32_t b)
{
    if (about->shape->ll_terms.on_missing != WEFT_LL_MASK)
        return 0;
    return (about->shape->ll_cuts[about->round][a] >> b & 1) != 0 ||
           (a != b && ((about->lost >> a | about->lost >> b) & 1) != 0);
}

static struct ll_choice find_choice(const struct ll_about *about, int32_t source, int32_t index,
                                    int32_t k)
{
    const struct shape *shape = about->shape;
    const int32_t expert = shape->experts[about->round][source][index][k];
    struct ll_choice choice = {-1, -1, ll_weight(shape, about->round, source, index, k)};
    int32_t rank = 0;
    if (expert == SHAPE_NO_CHOICE)
        return choice;
    while (expert >= shape_first_expert(shape, rank + 1))
        rank++;
    if (are_cut(about, source, rank))
        return choice;
    choice.rank = rank;
    choice.local_expert = expert - shape_first_expert(shape, rank);
    return choice;
}

weft_result ll_open_expected(struct ll_expected *expected, const struct party *party, int32_t round,
                             int32_t result, uint64_t lost)
{
    const struct shape *shape = party->shape;
    const weft_ll_config config = ll_config(shape, party->rank);
    const struct ll_content content = {fill_token, run_expert, expected};
    int32_t num_tokens[SCENARIO_MAX_RANKS];
    const struct ll_world world = {party->rank, shape->num_ranks, SHAPE_MAX_LOCAL_EXPERTS,
                                   num_tokens};
    expected->about = (struct ll_about){shape, round, result, lost};
    for (int32_t source = 0; source < shape->num_ranks; source++)
        num_tokens[source] = ll_num_tokens(shape, round, result, source);
    if (ll_oracle_open(&expected->oracle, &config, &world, &content) != 0)
        return LACKS_MEMORY("what is expected");
    for (int32_t source = 0; source < shape->num_ranks; source++)
        for (int32_t i = 0; i < num_tokens[source] * shape->num_topk; i++)
            ll_oracle_choices(&expected->oracle, expected->oracle.first_tokens[source])[i] =
                find_choice(&expected->about, source, i / shape->num_topk, i % shape->num_topk);
    for (int32_t rank = 0; rank < shape->num_ranks; rank++)
        expected->oracle.nodes[rank] = shape_node_of(shape, rank);
    ll_oracle_settle(&expected->oracle);
    return WEFT_OK;
}
