/* SPDX-License-Identifier: MIT */
#include "workload/low_latency.h"

#include <stdlib.h>
#include <string.h>

#include "workload/elements.h"
#include "workload/quantised.h"

enum { MOST_ELEMENT_BYTES = 4 };

static int is_by_expert(const struct ll_oracle *oracle)
{
    return oracle->config.layout == WEFT_LL_BY_EXPERT;
}

static int is_quantised(const weft_ll_config *config)
{
    return config->quantisation.dtype != WEFT_DTYPE_NONE;
}

/* ---------------------------------------------------------------- sizes */

uint64_t ll_sent_bytes(const weft_ll_config *config)
{
    return (uint64_t)config->hidden * (is_quantised(config) ? 1 : dtype_bytes(config->dtype));
}

int64_t ll_num_groups(const weft_ll_config *config)
{
    return is_quantised(config) ? config->hidden / config->quantisation.group_elements : 0;
}

uint64_t ll_scale_bytes(const weft_ll_config *config)
{
    const uint64_t num_groups = (uint64_t)ll_num_groups(config);
    return config->quantisation.scale == WEFT_SCALE_UE8M0 ? num_groups : num_groups * sizeof(float);
}

/* ---------------------------------------------------------------- weights */

int ll_dispatch_uses_weights(weft_ll_answer answer)
{
    return answer != WEFT_LL_ANSWER_SUMS_WEIGHED_LATE;
}

int ll_combine_uses_weights(weft_ll_answer answer, weft_ll_phases phases)
{
    return (answer == WEFT_LL_ANSWER_ROWS && phases != WEFT_LL_SEND) ||
           (answer == WEFT_LL_ANSWER_SUMS_WEIGHED_LATE && phases != WEFT_LL_RECEIVE);
}

/* ---------------------------------------------------------------- packets */

static int are_choices_few(const weft_ll_config *config, weft_ll_carrier carrier, int32_t num_ranks,
                           int32_t most_local)
{
    enum { MAX_CHOSEN = 256, MAX_TOLD_TOPK = 63, MAX_TOLD_LOCAL = 4095, MAX_PLACES = 3968 };
    const int is_by_expert = config->layout == WEFT_LL_BY_EXPERT;
    const int32_t num_choices = config->max_tokens * config->num_topk;
    const int32_t num_pairs = is_by_expert ? (most_local + 1) / 2 : 0;
    if (carrier == WEFT_LL_TOLD_PACKETS)
        return config->num_topk <= MAX_TOLD_TOPK && most_local <= MAX_TOLD_LOCAL &&
               num_choices + 2 * num_ranks * 2 * num_pairs <= MAX_PLACES;
    return !is_by_expert || (num_choices + 1) / 2 * 2 + 2 * num_pairs <= MAX_CHOSEN;
}

static int are_answers_fit(const weft_ll_config *config)
{
    return (config->answer == WEFT_LL_ANSWER_SUMS ||
            config->answer == WEFT_LL_ANSWER_SUMS_WEIGHED_LATE) &&
           (config->answer_dtype == WEFT_DTYPE_NONE || config->answer_dtype == config->dtype);
}

int ll_suits_packets(const weft_ll_config *config, weft_ll_carrier carrier, int32_t num_ranks,
                     int32_t most_local)
{
    enum { MAX_RANKS = 8, MAX_GROUP = 128 };
    const weft_quantisation *how = &config->quantisation;
    const int64_t group = how->group_elements == 0 ? config->hidden : how->group_elements;
    const int are_rows_fit =
        how->dtype == WEFT_DTYPE_NONE ||
        (how->scale != WEFT_SCALE_UE8M0 && group <= MAX_GROUP && group % 4 == 0);
    return num_ranks <= MAX_RANKS && are_rows_fit && are_answers_fit(config) &&
           are_choices_few(config, carrier, num_ranks, most_local);
}

/* ---------------------------------------------------------------- choices */

static int alloc_choices(struct ll_oracle *oracle)
{
    const size_t num_tokens = (size_t)oracle->first_tokens[oracle->num_ranks];
    const size_t num_choices = num_tokens * (size_t)oracle->config.num_topk;
    oracle->choices = calloc(num_choices + 1, sizeof *oracle->choices);
    oracle->positions = calloc(num_choices + 1, sizeof *oracle->positions);
    oracle->rows =
        calloc((is_by_expert(oracle) ? num_choices : num_tokens) + 1, sizeof *oracle->rows);
    for (size_t i = 0; i < num_choices && oracle->choices != NULL; i++)
        oracle->choices[i].rank = -1;
    return oracle->choices != NULL && oracle->positions != NULL && oracle->rows != NULL ? 0 : -1;
}

int ll_oracle_open(struct ll_oracle *oracle, const weft_ll_config *config,
                   const struct ll_world *world, const struct ll_content *content)
{
    const size_t hidden = (size_t)config->hidden, num_ranks = (size_t)world->num_ranks;
    *oracle = (struct ll_oracle){
        .config = *config,
        .content = *content,
        .rank = world->rank,
        .num_ranks = world->num_ranks,
        .most_local = world->most_local,
        .nodes = calloc(num_ranks, sizeof *oracle->nodes),
        .first_tokens = calloc(num_ranks + 1, sizeof *oracle->first_tokens),
        .selections = calloc(num_ranks * (size_t)world->most_local + 1, sizeof *oracle->selections),
        .input = calloc(5 * hidden, sizeof *oracle->input),
        .wide = calloc(1, hidden * MOST_ELEMENT_BYTES),
        .codes = calloc(1, ll_sent_bytes(config)),
        .scales = calloc(1, ((size_t)ll_num_groups(config) + 4) * MOST_ELEMENT_BYTES),
    };
    if (config->expert_capacity == 0)
        oracle->config.expert_capacity = world->num_ranks * config->max_tokens;
    if (oracle->nodes == NULL || oracle->first_tokens == NULL || oracle->selections == NULL ||
        oracle->input == NULL || oracle->wide == NULL || oracle->codes == NULL ||
        oracle->scales == NULL)
        return -1;
    oracle->values = oracle->input + hidden;
    oracle->answer = oracle->values + hidden;
    oracle->of_node = oracle->answer + hidden;
    oracle->sum = oracle->of_node + hidden;
    for (int32_t rank = 0; rank < world->num_ranks; rank++)
        oracle->first_tokens[rank + 1] = oracle->first_tokens[rank] + world->num_tokens[rank];
    return alloc_choices(oracle);
}

void ll_oracle_close(struct ll_oracle *oracle)
{
    void *const blocks[] = {
        oracle->nodes, oracle->first_tokens, oracle->choices, oracle->positions, oracle->selections,
        oracle->rows,  oracle->input,        oracle->wide,    oracle->codes,     oracle->scales};
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++)
        free(blocks[i]);
}

static int32_t *selections_of(const struct ll_oracle *oracle, int32_t rank, int32_t local_expert)
{
    return &oracle->selections[rank * oracle->most_local + local_expert];
}

static int goes_to(const struct ll_oracle *oracle, int64_t token, int32_t rank)
{
    const struct ll_choice *choices = ll_oracle_choices(oracle, token);
    for (int32_t k = 0; k < oracle->config.num_topk; k++)
        if (choices[k].rank == rank)
            return 1;
    return 0;
}

/* The rows of a token: one for each choice of this rank's experts, or by rank one in all. */
static void list_rows(struct ll_oracle *oracle, struct ll_row row, int32_t num_before)
{
    const int64_t first = row.token * oracle->config.num_topk;
    row.expert = -1;
    row.position = num_before;
    if (!is_by_expert(oracle))
        oracle->rows[oracle->num_rows++] = row;
    for (int64_t i = first; i < first + oracle->config.num_topk && is_by_expert(oracle); i++) {
        row.expert = oracle->choices[i].local_expert;
        row.position = oracle->positions[i];
        if (oracle->choices[i].rank == oracle->rank)
            oracle->rows[oracle->num_rows++] = row;
    }
}

void ll_oracle_settle(struct ll_oracle *oracle)
{
    const int64_t num_tokens = oracle->first_tokens[oracle->num_ranks];
    for (int64_t i = 0; i < num_tokens * oracle->config.num_topk; i++) {
        const struct ll_choice *choice = &oracle->choices[i];
        if (choice->rank >= 0)
            oracle->positions[i] = (*selections_of(oracle, choice->rank, choice->local_expert))++;
    }
    for (int32_t source = 0; source < oracle->num_ranks; source++) {
        const int64_t first = oracle->first_tokens[source];
        int32_t num_before = 0;
        for (int64_t token = first; token < oracle->first_tokens[source + 1]; token++)
            if (goes_to(oracle, token, oracle->rank))
                list_rows(oracle,
                          (struct ll_row){
                              .token = token, .source = source, .index = (int32_t)(token - first)},
                          num_before++);
    }
}

int32_t ll_oracle_tokens_from(const struct ll_oracle *oracle, int32_t source)
{
    int32_t num_tokens = 0;
    for (int64_t token = oracle->first_tokens[source]; token < oracle->first_tokens[source + 1];
         token++)
        num_tokens += goes_to(oracle, token, oracle->rank);
    return num_tokens;
}

int32_t ll_oracle_selections_from(const struct ll_oracle *oracle, int32_t source,
                                  int32_t local_expert)
{
    const int64_t num_topk = oracle->config.num_topk;
    int32_t num_selections = 0;
    for (int64_t i = oracle->first_tokens[source] * num_topk;
         i < oracle->first_tokens[source + 1] * num_topk; i++)
        num_selections += oracle->choices[i].rank == oracle->rank &&
                          oracle->choices[i].local_expert == local_expert;
    return num_selections;
}

int32_t ll_oracle_selections(const struct ll_oracle *oracle, int32_t local_expert)
{
    return *selections_of(oracle, oracle->rank, local_expert);
}

int64_t ll_oracle_place(const struct ll_oracle *oracle, const struct ll_row *row)
{
    const int64_t capacity = oracle->config.expert_capacity;
    if (!is_by_expert(oracle))
        return (int64_t)row->source * oracle->config.max_tokens + row->position;
    return row->position < capacity ? row->expert * capacity + row->position : -1;
}

/* ---------------------------------------------------------------- rows as they are sent */

static struct quantised_form form_of(const weft_ll_config *config)
{
    return (struct quantised_form){config->dtype, config->quantisation.dtype,
                                   config->quantisation.scale, config->quantisation.group_elements,
                                   sizeof(float)};
}

void ll_oracle_fill_sent(struct ll_oracle *oracle, int64_t token, void *elements, void *scales)
{
    const struct quantised_form form = form_of(&oracle->config);
    if (!is_quantised(&oracle->config)) {
        oracle->content.fill_token(oracle->content.of, token, elements);
        return;
    }
    oracle->content.fill_token(oracle->content.of, token, oracle->wide);
    quantised_make_row(&form, oracle->wide, oracle->config.hidden, elements, scales);
}

/* Fills in oracle->input with the numbers that experts compute with. */
static void load_input(struct ll_oracle *oracle, int64_t token)
{
    const weft_ll_config *config = &oracle->config;
    const struct quantised_form form = form_of(config);
    if (!is_quantised(config)) {
        oracle->content.fill_token(oracle->content.of, token, oracle->wide);
        elements_to_fp32(config->dtype, oracle->wide, (size_t)config->hidden, oracle->input);
        return;
    }
    ll_oracle_fill_sent(oracle, token, oracle->codes, oracle->scales);
    for (int64_t i = 0; i < config->hidden; i++)
        oracle->input[i] =
            quantised_number(&form, (const char *)oracle->codes, (const char *)oracle->scales, i);
    elements_round(config->dtype, oracle->input, (size_t)config->hidden);
}

/* ---------------------------------------------------------------- answers */

/* Fills in oracle->values with what an expert makes of oracle->input. */
static void run_expert(struct ll_oracle *oracle, int32_t rank, int32_t local_expert)
{
    const size_t hidden = (size_t)oracle->config.hidden;
    memcpy(oracle->values, oracle->input, hidden * sizeof *oracle->values);
    oracle->content.run_expert(oracle->content.of, rank, local_expert, oracle->values,
                               oracle->config.hidden);
    elements_round(oracle->config.dtype, oracle->values, hidden);
}

static void add_weighed(const struct ll_oracle *oracle, float weight, const float *values,
                        float *sum)
{
    for (int64_t i = 0; i < oracle->config.hidden; i++) {
        const float product = values[i] * weight;
        sum[i] += product;
    }
}

static int has_room(const struct ll_oracle *oracle, int64_t token, int32_t k)
{
    return !is_by_expert(oracle) ||
           oracle->positions[token * oracle->config.num_topk + k] < oracle->config.expert_capacity;
}

/* Fills in oracle->answer with the sum of what the experts of a rank make of oracle->input. */
static void sum_of_rank(struct ll_oracle *oracle, int64_t token, int32_t rank)
{
    const struct ll_choice *choices = ll_oracle_choices(oracle, token);
    memset(oracle->answer, 0, (size_t)oracle->config.hidden * sizeof *oracle->answer);
    for (int32_t k = 0; k < oracle->config.num_topk; k++)
        if (choices[k].rank == rank && has_room(oracle, token, k)) {
            run_expert(oracle, rank, choices[k].local_expert);
            add_weighed(oracle, choices[k].weight, oracle->values, oracle->answer);
        }
    if (!is_by_expert(oracle)) /* it is a row of the caller's */
        elements_round(oracle->config.dtype, oracle->answer, (size_t)oracle->config.hidden);
}

void ll_oracle_fill_answer(struct ll_oracle *oracle, const struct ll_row *row, void *elements)
{
    const size_t hidden = (size_t)oracle->config.hidden;
    load_input(oracle, row->token);
    if (is_by_expert(oracle))
        run_expert(oracle, oracle->rank, row->expert);
    else
        sum_of_rank(oracle, row->token, oracle->rank);
    elements_from_fp32(oracle->config.dtype, is_by_expert(oracle) ? oracle->values : oracle->answer,
                       hidden, elements);
}

/* As the answers' type keeps them. */
static void round_answer(const struct ll_oracle *oracle, float *values)
{
    const weft_dtype dtype = oracle->config.answer_dtype;
    elements_round(dtype == WEFT_DTYPE_NONE ? oracle->config.dtype : dtype, values,
                   (size_t)oracle->config.hidden);
}

/* Sums the answers of a node's ranks, or of all where nodes have no sums of theirs. */
enum { ALL_NODES = -1 };
static void add_answers(struct ll_oracle *oracle, int64_t token, int32_t node, float *sum)
{
    for (int32_t rank = 0; rank < oracle->num_ranks; rank++)
        if (goes_to(oracle, token, rank) && (node == ALL_NODES || oracle->nodes[rank] == node)) {
            sum_of_rank(oracle, token, rank);
            round_answer(oracle, oracle->answer);
            add_weighed(oracle, 1, oracle->answer, sum);
        }
}

/* Each node sums what is relayed, and its sum is an answer. */
static void add_all_answers(struct ll_oracle *oracle, int64_t token)
{
    const int32_t num_nodes = oracle->nodes[oracle->num_ranks - 1] + 1;
    if (oracle->config.route == WEFT_LL_STRAIGHT || num_nodes == 1) {
        add_answers(oracle, token, ALL_NODES, oracle->sum);
        return;
    }
    for (int32_t node = 0; node < num_nodes; node++) {
        memset(oracle->of_node, 0, (size_t)oracle->config.hidden * sizeof *oracle->of_node);
        add_answers(oracle, token, node, oracle->of_node);
        round_answer(oracle, oracle->of_node);
        add_weighed(oracle, 1, oracle->of_node, oracle->sum);
    }
}

void ll_oracle_fill_combined(struct ll_oracle *oracle, int64_t token, void *elements)
{
    const weft_ll_config *config = &oracle->config;
    const struct ll_choice *choices = ll_oracle_choices(oracle, token);
    const int is_of_rows = config->answer == WEFT_LL_ANSWER_ROWS;
    memset(oracle->sum, 0, (size_t)config->hidden * sizeof *oracle->sum);
    load_input(oracle, token);
    if (!is_of_rows)
        add_all_answers(oracle, token);
    for (int32_t k = 0; k < config->num_topk && is_of_rows; k++)
        if (choices[k].rank >= 0 && has_room(oracle, token, k)) {
            run_expert(oracle, choices[k].rank, choices[k].local_expert);
            round_answer(oracle, oracle->values);
            add_weighed(oracle, choices[k].weight, oracle->values, oracle->sum);
        }
    elements_from_fp32(config->dtype, oracle->sum, (size_t)config->hidden, elements);
}
