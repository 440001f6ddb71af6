/* SPDX-License-Identifier: MIT */
/* Messages name what weft.h numbers: each enumerator by its own name; other numbers stay
 * numbers. */
#include "api/check.h"
#include "harness/cmocka.h"
#include "workload/elements.h"

#define NAMED(kind, constant)                                                                      \
    assert_string_equal(weft__constant_name(WEFT__ENUM_##kind, constant), #constant)

TEST(dtypes_and_reduce_ops)
{
    NAMED(DTYPE, WEFT_DTYPE_NONE);
    NAMED(DTYPE, WEFT_INT32);
    NAMED(DTYPE, WEFT_INT64);
    NAMED(DTYPE, WEFT_BF16);
    NAMED(DTYPE, WEFT_FP16);
    NAMED(DTYPE, WEFT_FP32);
    NAMED(DTYPE, WEFT_FP64);
    NAMED(DTYPE, WEFT_UINT8);
    NAMED(DTYPE, WEFT_FP8_E4M3);
    NAMED(DTYPE, WEFT_INT8);
    assert_string_equal(weft__constant_name(WEFT__ENUM_DTYPE, 63), "?");
    NAMED(REDUCE_OP, WEFT_SUM);
    NAMED(REDUCE_OP, WEFT_PROD);
    NAMED(REDUCE_OP, WEFT_MAX);
    NAMED(REDUCE_OP, WEFT_MIN);
    NAMED(REDUCE_OP, WEFT_AVG);
    NAMED(REDUCE_OP, WEFT_PREMUL_SUM);
}

/* Tables of algorithms and weft_coll_algorithm_name have words of their own for them. */
TEST(collectives_and_algorithms)
{
    for (int i = 0; i < NUM_COLLECTIVES; i++) {
        assert_string_not_equal(weft__constant_name(WEFT__ENUM_COLLECTIVE, i), "?");
        assert_string_not_equal(weft__collective_name((uint64_t)i), "?");
    }
    for (int i = 0; i < NUM_ALGORITHMS; i++) {
        assert_string_not_equal(weft__constant_name(WEFT__ENUM_ALGORITHM, i), "?");
        assert_string_equal(weft__algorithm_name((uint64_t)i),
                            weft_coll_algorithm_name((weft_algorithm)i));
    }
    NAMED(COLLECTIVE, WEFT_BROADCAST);
    NAMED(COLLECTIVE, WEFT_SCATTER);
    assert_string_equal(weft__collective_name(WEFT_BROADCAST), "broadcast");
    NAMED(ALGORITHM, WEFT_ALGORITHM_PUSH);
    assert_string_equal(weft__algorithm_name(WEFT_ALGORITHM_PUSH), "push");
}

TEST(machines_and_teams)
{
    NAMED(MACHINE, WEFT_MACHINE_AUTO);
    NAMED(MACHINE, WEFT_MACHINE_CPU);
    NAMED(MACHINE, WEFT_MACHINE_CUDA);
    NAMED(TEAM, WEFT_TEAM_WORLD);
    NAMED(TEAM, WEFT_TEAM_LOCAL);
    NAMED(TEAM, WEFT_TEAM_RAIL);
}

TEST(scales)
{
    NAMED(SCALE, WEFT_SCALE_FP32);
    NAMED(SCALE, WEFT_SCALE_FP32_POWER_OF_TWO);
    NAMED(SCALE, WEFT_SCALE_UE8M0);
}

/* As a peer's message might hold them. */
TEST(other_numbers_have_no_name)
{
    for (int kind = 0; kind < WEFT__NUM_ENUMS; kind++) {
        assert_string_equal(weft__constant_name((enum weft__enum)kind, -1), "?");
        assert_string_equal(weft__constant_name((enum weft__enum)kind, 255), "?");
    }
    assert_string_equal(weft__collective_name(NUM_COLLECTIVES), "?");
    assert_string_equal(weft__algorithm_name(UINT64_MAX), "?");
}

static void assert_refused(weft_result result, const char *message)
{
    assert_int_equal(result, WEFT_ERROR_INVALID_ARGUMENT);
    assert_string_equal(weft_last_error(), message);
}

TEST(refusals_name_what_is_allowed)
{
    assert_ok(
        weft__check_enum(WEFT__ENUM_TEAM, WEFT_TEAM_RAIL, WEFT_TEAM_WORLD, WEFT_TEAM_RAIL, "team"));
    assert_refused(
        weft__check_enum(WEFT__ENUM_TEAM, 99, WEFT_TEAM_WORLD, WEFT_TEAM_RAIL, "team"),
        "team is 99, allowed are WEFT_TEAM_WORLD (0), WEFT_TEAM_LOCAL (1), WEFT_TEAM_RAIL (2)");
    assert_refused(weft__check_enum(WEFT__ENUM_DTYPE, -1, WEFT_INT32, WEFT_INT64, "index_type"),
                   "index_type is -1, allowed are WEFT_INT32 (1), WEFT_INT64 (2)");
    assert_refused(weft__check_enum(WEFT__ENUM_DTYPE, WEFT_FP64, WEFT_BF16, WEFT_FP32, "dtype"),
                   "dtype is WEFT_FP64 (6), allowed are WEFT_BF16 (3), WEFT_FP16 (4), "
                   "WEFT_FP32 (5)");
}
