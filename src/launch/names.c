/* SPDX-License-Identifier: MIT */
#include "launch/names.h"

#include <stddef.h>

#include "weft.h"

struct name {
    const char *constant;
    const char *word; /* NULL: nothing needs one */
};

#define CONSTANT(constant)                [constant] = {#constant, NULL}
#define CONSTANT_AND_WORD(constant, word) [constant] = {#constant, word}

static const struct name dtypes[] = {
    CONSTANT(WEFT_DTYPE_NONE), CONSTANT(WEFT_INT32), CONSTANT(WEFT_INT64),     CONSTANT(WEFT_BF16),
    CONSTANT(WEFT_FP16),       CONSTANT(WEFT_FP32),  CONSTANT(WEFT_FP64),      CONSTANT(WEFT_UINT8),
    CONSTANT(WEFT_FP8_E4M3),   CONSTANT(WEFT_INT8),  CONSTANT(WEFT_LOG_10BIT),
};

static const struct name reduce_ops[] = {
    CONSTANT(WEFT_SUM), CONSTANT(WEFT_PROD), CONSTANT(WEFT_MAX),
    CONSTANT(WEFT_MIN), CONSTANT(WEFT_AVG),  CONSTANT(WEFT_PREMUL_SUM),
};

static const struct name collectives[] = {
    CONSTANT_AND_WORD(WEFT_ALL_REDUCE, "all_reduce"),
    CONSTANT_AND_WORD(WEFT_REDUCE_SCATTER, "reduce_scatter"),
    CONSTANT_AND_WORD(WEFT_ALL_GATHER, "all_gather"),
    CONSTANT_AND_WORD(WEFT_ALL_TO_ALL, "all_to_all"),
    CONSTANT_AND_WORD(WEFT_BROADCAST, "broadcast"),
    CONSTANT_AND_WORD(WEFT_REDUCE, "reduce"),
    CONSTANT_AND_WORD(WEFT_GATHER, "gather"),
    CONSTANT_AND_WORD(WEFT_SCATTER, "scatter"),
};

static const struct name algorithms[] = {
    CONSTANT_AND_WORD(WEFT_ALGORITHM_AUTO, "auto"),
    CONSTANT_AND_WORD(WEFT_ALGORITHM_ONESHOT, "oneshot"),
    CONSTANT_AND_WORD(WEFT_ALGORITHM_TWOSHOT_PACKETS, "twoshot_packets"),
    CONSTANT_AND_WORD(WEFT_ALGORITHM_ONESHOT_PULL, "oneshot_pull"),
    CONSTANT_AND_WORD(WEFT_ALGORITHM_TWOSHOT, "twoshot"),
    CONSTANT_AND_WORD(WEFT_ALGORITHM_PUSH, "push"),
    CONSTANT_AND_WORD(WEFT_ALGORITHM_RAILS, "rails"),
    CONSTANT_AND_WORD(WEFT_ALGORITHM_RELAY, "relay"),
    CONSTANT_AND_WORD(WEFT_ALGORITHM_TREE, "tree"),
};

static const struct name coll_reasons[] = {
    CONSTANT_AND_WORD(WEFT_COLL_ONLY_ONE, "only_one"),
    CONSTANT_AND_WORD(WEFT_COLL_PINNED, "pinned"),
    CONSTANT_AND_WORD(WEFT_COLL_TABLE, "table"),
    CONSTANT_AND_WORD(WEFT_COLL_SHIPPED_TABLE, "shipped_table"),
    CONSTANT_AND_WORD(WEFT_COLL_FORMULA, "formula"),
    CONSTANT_AND_WORD(WEFT_COLL_MODEL, "model"),
};

static const struct name machines[] = {
    CONSTANT(WEFT_MACHINE_AUTO),
    CONSTANT(WEFT_MACHINE_CPU),
    CONSTANT(WEFT_MACHINE_CUDA),
};

static const struct name teams[] = {
    CONSTANT(WEFT_TEAM_WORLD),
    CONSTANT(WEFT_TEAM_LOCAL),
    CONSTANT(WEFT_TEAM_RAIL),
};

static const struct name ll_layouts[] = {CONSTANT(WEFT_LL_BY_RANK), CONSTANT(WEFT_LL_BY_EXPERT)};

static const struct name ll_answers[] = {
    CONSTANT(WEFT_LL_ANSWER_SUMS), CONSTANT(WEFT_LL_ANSWER_ROWS), CONSTANT(WEFT_LL_ANSWER_IN_SLOTS),
    CONSTANT(WEFT_LL_ANSWER_SUMS_WEIGHED_LATE)};

static const struct name ll_phases[] = {CONSTANT(WEFT_LL_SEND_AND_RECEIVE), CONSTANT(WEFT_LL_SEND),
                                        CONSTANT(WEFT_LL_RECEIVE)};

static const struct name ll_calls[] = {CONSTANT(WEFT_LL_RUN), CONSTANT(WEFT_LL_CHECK)};

static const struct name ll_on_missing[] = {CONSTANT(WEFT_LL_FAIL), CONSTANT(WEFT_LL_MASK)};

static const struct name ll_routes[] = {CONSTANT(WEFT_LL_STRAIGHT), CONSTANT(WEFT_LL_RELAYED)};

static const struct name ll_carriers[] = {CONSTANT(WEFT_LL_AUTO), CONSTANT(WEFT_LL_SIGNALS),
                                          CONSTANT(WEFT_LL_PACKETS),
                                          CONSTANT(WEFT_LL_TOLD_PACKETS)};

static const struct name ep_orders[] = {CONSTANT(WEFT_ORDER_BY_RANK),
                                        CONSTANT(WEFT_ORDER_BY_CHOICE)};

static const struct name ep_gaps[] = {CONSTANT(WEFT_GAPS_LEFT), CONSTANT(WEFT_GAPS_ZEROED)};

static const struct name balance_modes[] = {CONSTANT(WEFT_BALANCE_BEST),
                                            CONSTANT(WEFT_BALANCE_EPLB)};

static const struct name scales[] = {
    CONSTANT(WEFT_SCALE_FP32),
    CONSTANT(WEFT_SCALE_FP32_POWER_OF_TWO),
    CONSTANT(WEFT_SCALE_UE8M0),
};
static const struct name gate_scores[] = {
    CONSTANT(WEFT_GATE_SOFTMAX),
    CONSTANT(WEFT_GATE_SIGMOID),
    CONSTANT(WEFT_GATE_SQRT_SOFTPLUS),
};
static const struct name gate_group_scores[] = {
    CONSTANT(WEFT_GATE_GROUP_TOP2),
    CONSTANT(WEFT_GATE_GROUP_MAX),
};
static const struct name gate_weights[] = {
    CONSTANT(WEFT_GATE_WEIGHTS_AS_SCORED),
    CONSTANT(WEFT_GATE_WEIGHTS_NORMALISED),
};

#define TABLE(names)                                                                               \
    {                                                                                              \
        names, sizeof(names) / sizeof *(names)                                                     \
    }
static const struct {
    const struct name *names;
    size_t num_names;
} tables[WEFT__NUM_ENUMS] = {
    [WEFT__ENUM_DTYPE] = TABLE(dtypes),
    [WEFT__ENUM_REDUCE_OP] = TABLE(reduce_ops),
    [WEFT__ENUM_COLLECTIVE] = TABLE(collectives),
    [WEFT__ENUM_ALGORITHM] = TABLE(algorithms),
    [WEFT__ENUM_COLL_REASON] = TABLE(coll_reasons),
    [WEFT__ENUM_MACHINE] = TABLE(machines),
    [WEFT__ENUM_TEAM] = TABLE(teams),
    [WEFT__ENUM_LL_LAYOUT] = TABLE(ll_layouts),
    [WEFT__ENUM_LL_ANSWER] = TABLE(ll_answers),
    [WEFT__ENUM_LL_ON_MISSING] = TABLE(ll_on_missing),
    [WEFT__ENUM_LL_ROUTE] = TABLE(ll_routes),
    [WEFT__ENUM_LL_CARRIER] = TABLE(ll_carriers),
    [WEFT__ENUM_LL_PHASES] = TABLE(ll_phases),
    [WEFT__ENUM_LL_CALL] = TABLE(ll_calls),
    [WEFT__ENUM_SCALE] = TABLE(scales),
    [WEFT__ENUM_EP_ORDER] = TABLE(ep_orders),
    [WEFT__ENUM_EP_GAPS] = TABLE(ep_gaps),
    [WEFT__ENUM_BALANCE_MODE] = TABLE(balance_modes),
    [WEFT__ENUM_GATE_SCORE] = TABLE(gate_scores),
    [WEFT__ENUM_GATE_GROUP_SCORE] = TABLE(gate_group_scores),
    [WEFT__ENUM_GATE_WEIGHTS] = TABLE(gate_weights),
};

static struct name find(enum weft__enum kind, uint64_t value)
{
    static const struct name unknown = {"?", "?"};
    if (value >= tables[kind].num_names || tables[kind].names[value].constant == NULL)
        return unknown;
    return tables[kind].names[value];
}

const char *weft__constant_name(enum weft__enum kind, int64_t value)
{
    return find(kind, (uint64_t)value).constant;
}

const char *weft__collective_name(uint64_t collective)
{
    return find(WEFT__ENUM_COLLECTIVE, collective).word;
}

const char *weft__algorithm_name(uint64_t algorithm)
{
    return find(WEFT__ENUM_ALGORITHM, algorithm).word;
}

const char *weft__coll_reason_name(uint64_t reason)
{
    return find(WEFT__ENUM_COLL_REASON, reason).word;
}
