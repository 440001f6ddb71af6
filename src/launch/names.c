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

/* The names of an enumeration, by value. */
#define TABLE(...)                                                                                 \
    {                                                                                              \
        (const struct name[]){__VA_ARGS__},                                                        \
            sizeof((const struct name[]){__VA_ARGS__}) / sizeof(struct name)                       \
    }
static const struct {
    const struct name *names;
    size_t num_names;
} tables[WEFT__NUM_ENUMS] = {
    [WEFT__ENUM_DTYPE] =
        TABLE(CONSTANT(WEFT_DTYPE_NONE), CONSTANT(WEFT_INT32), CONSTANT(WEFT_INT64),
              CONSTANT(WEFT_BF16), CONSTANT(WEFT_FP16), CONSTANT(WEFT_FP32), CONSTANT(WEFT_FP64),
              CONSTANT(WEFT_UINT8), CONSTANT(WEFT_FP8_E4M3), CONSTANT(WEFT_INT8)),
    [WEFT__ENUM_REDUCE_OP] =
        TABLE(CONSTANT(WEFT_SUM), CONSTANT(WEFT_PROD), CONSTANT(WEFT_MAX), CONSTANT(WEFT_MIN),
              CONSTANT(WEFT_AVG), CONSTANT(WEFT_PREMUL_SUM)),
    [WEFT__ENUM_COLLECTIVE] = TABLE(
        CONSTANT_AND_WORD(WEFT_ALL_REDUCE, "all_reduce"),
        CONSTANT_AND_WORD(WEFT_REDUCE_SCATTER, "reduce_scatter"),
        CONSTANT_AND_WORD(WEFT_ALL_GATHER, "all_gather"),
        CONSTANT_AND_WORD(WEFT_ALL_TO_ALL, "all_to_all"),
        CONSTANT_AND_WORD(WEFT_BROADCAST, "broadcast"), CONSTANT_AND_WORD(WEFT_REDUCE, "reduce"),
        CONSTANT_AND_WORD(WEFT_GATHER, "gather"), CONSTANT_AND_WORD(WEFT_SCATTER, "scatter")),
    [WEFT__ENUM_ALGORITHM] =
        TABLE(CONSTANT_AND_WORD(WEFT_ALGORITHM_AUTO, "auto"),
              CONSTANT_AND_WORD(WEFT_ALGORITHM_ONESHOT, "oneshot"),
              CONSTANT_AND_WORD(WEFT_ALGORITHM_TWOSHOT_PACKETS, "twoshot_packets"),
              CONSTANT_AND_WORD(WEFT_ALGORITHM_ONESHOT_PULL, "oneshot_pull"),
              CONSTANT_AND_WORD(WEFT_ALGORITHM_TWOSHOT, "twoshot"),
              CONSTANT_AND_WORD(WEFT_ALGORITHM_PUSH, "push"),
              CONSTANT_AND_WORD(WEFT_ALGORITHM_RAILS, "rails"),
              CONSTANT_AND_WORD(WEFT_ALGORITHM_RELAY, "relay"),
              CONSTANT_AND_WORD(WEFT_ALGORITHM_TREE, "tree")),
    [WEFT__ENUM_COLL_REASON] = TABLE(CONSTANT_AND_WORD(WEFT_COLL_ONLY_ONE, "only_one"),
                                     CONSTANT_AND_WORD(WEFT_COLL_PINNED, "pinned"),
                                     CONSTANT_AND_WORD(WEFT_COLL_TABLE, "table"),
                                     CONSTANT_AND_WORD(WEFT_COLL_SHIPPED_TABLE, "shipped_table"),
                                     CONSTANT_AND_WORD(WEFT_COLL_FORMULA, "formula"),
                                     CONSTANT_AND_WORD(WEFT_COLL_MODEL, "model")),
    [WEFT__ENUM_MACHINE] =
        TABLE(CONSTANT(WEFT_MACHINE_AUTO), CONSTANT(WEFT_MACHINE_CPU), CONSTANT(WEFT_MACHINE_CUDA)),
    [WEFT__ENUM_TEAM] =
        TABLE(CONSTANT(WEFT_TEAM_WORLD), CONSTANT(WEFT_TEAM_LOCAL), CONSTANT(WEFT_TEAM_RAIL)),
    [WEFT__ENUM_LL_LAYOUT] = TABLE(CONSTANT(WEFT_LL_BY_RANK), CONSTANT(WEFT_LL_BY_EXPERT)),
    [WEFT__ENUM_LL_ANSWER] =
        TABLE(CONSTANT(WEFT_LL_ANSWER_SUMS), CONSTANT(WEFT_LL_ANSWER_ROWS),
              CONSTANT(WEFT_LL_ANSWER_IN_SLOTS), CONSTANT(WEFT_LL_ANSWER_SUMS_WEIGHED_LATE)),
    [WEFT__ENUM_LL_ON_MISSING] = TABLE(CONSTANT(WEFT_LL_FAIL), CONSTANT(WEFT_LL_MASK)),
    [WEFT__ENUM_LL_ROUTE] = TABLE(CONSTANT(WEFT_LL_STRAIGHT), CONSTANT(WEFT_LL_RELAYED)),
    [WEFT__ENUM_LL_CARRIER] = TABLE(CONSTANT(WEFT_LL_AUTO), CONSTANT(WEFT_LL_SIGNALS),
                                    CONSTANT(WEFT_LL_PACKETS), CONSTANT(WEFT_LL_TOLD_PACKETS)),
    [WEFT__ENUM_LL_PHASES] = TABLE(CONSTANT(WEFT_LL_SEND_AND_RECEIVE), CONSTANT(WEFT_LL_SEND),
                                   CONSTANT(WEFT_LL_RECEIVE)),
    [WEFT__ENUM_LL_CALL] = TABLE(CONSTANT(WEFT_LL_RUN), CONSTANT(WEFT_LL_CHECK)),
    [WEFT__ENUM_SCALE] = TABLE(CONSTANT(WEFT_SCALE_FP32), CONSTANT(WEFT_SCALE_FP32_POWER_OF_TWO),
                               CONSTANT(WEFT_SCALE_UE8M0)),
    [WEFT__ENUM_EP_ORDER] = TABLE(CONSTANT(WEFT_ORDER_BY_RANK), CONSTANT(WEFT_ORDER_BY_CHOICE)),
    [WEFT__ENUM_EP_GAPS] = TABLE(CONSTANT(WEFT_GAPS_LEFT), CONSTANT(WEFT_GAPS_ZEROED)),
    [WEFT__ENUM_BALANCE_MODE] = TABLE(CONSTANT(WEFT_BALANCE_BEST), CONSTANT(WEFT_BALANCE_EPLB)),
    [WEFT__ENUM_GATE_SCORE] = TABLE(CONSTANT(WEFT_GATE_SOFTMAX), CONSTANT(WEFT_GATE_SIGMOID),
                                    CONSTANT(WEFT_GATE_SQRT_SOFTPLUS)),
    [WEFT__ENUM_GATE_GROUP_SCORE] =
        TABLE(CONSTANT(WEFT_GATE_GROUP_TOP2), CONSTANT(WEFT_GATE_GROUP_MAX)),
    [WEFT__ENUM_GATE_WEIGHTS] =
        TABLE(CONSTANT(WEFT_GATE_WEIGHTS_AS_SCORED), CONSTANT(WEFT_GATE_WEIGHTS_NORMALISED)),
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
