/* SPDX-License-Identifier: MIT */
/* How low latency's warps share rows: each byte of each row has one unit, whatever the sizes. */
#include "harness/cmocka.h"
#include "programs/low_latency/ll_plan.h"

enum { MOST_WARPS = 32, MOST_ROWS = 20 };

static const uint32_t row_sizes[] = {
    0, 1, 2047, 2048, 2049, 4096, 6144, 14335, 14336, 65535, 3u * (1u << 20), INT32_MAX};

TEST(units_are_the_parts_of_all_rows)
{
    for (int32_t num_warps = 1; num_warps <= MOST_WARPS; num_warps++)
        for (int32_t num_rows = 0; num_rows <= MOST_ROWS; num_rows++) {
            const struct wp_ll_share share = wp_ll_share_rows(num_warps, num_rows);
            const int32_t num_parts = 1 << share.parts_log2;
            assert_int_equal(share.num_units, num_rows * num_parts);
            for (int32_t unit = 0; unit < share.num_units; unit++) {
                const struct wp_part part = wp_ll_unit_part(&share, unit);
                assert_int_equal(part.token, unit / num_parts);
                assert_int_equal(part.part, unit % num_parts);
                assert_int_equal(wp_ll_is_last_part(&share, part.part), part.part == num_parts - 1);
            }
        }
}

/* Fewer rows than warps have more parts, as far as each warp has one. */
TEST(no_warp_has_two_parts_while_another_has_none)
{
    for (int32_t num_warps = 1; num_warps <= MOST_WARPS; num_warps++)
        for (int32_t num_rows = 1; num_rows <= num_warps; num_rows++)
            assert_true(wp_ll_share_rows(num_warps, num_rows).num_units <= num_warps);
    assert_int_equal(wp_ll_share_rows(8, 1).num_units, 8);
    assert_int_equal(wp_ll_share_rows(8, 4).num_units, 8);
    assert_int_equal(wp_ll_share_rows(16, 3).num_units, 12);
}

TEST(parts_of_a_row_are_all_of_it)
{
    for (int32_t parts_log2 = 0; parts_log2 <= 3; parts_log2++)
        for (size_t i = 0; i < sizeof row_sizes / sizeof *row_sizes; i++) {
            const struct wp_ll_share share = {parts_log2, 1 << parts_log2};
            uint32_t end = 0;
            for (int32_t part = 0; part < 1 << parts_log2; part++) {
                const struct wp_ll_span span = wp_ll_part_span(&share, part, row_sizes[i]);
                if (span.bytes == 0)
                    continue;
                assert_int_equal(span.begin, end);
                assert_int_equal(span.begin % WP_STEP_BYTES, 0);
                end = span.begin + span.bytes;
            }
            assert_int_equal(end, row_sizes[i]);
        }
}
