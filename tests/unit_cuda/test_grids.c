/* SPDX-License-Identifier: MIT */
/* How many blocks the cuda machine takes for rows: by their bytes, as many as fill the links, and
 * of few tokens more, since then latency counts; never more than a stream's part of a rank's share
 * of the GPU. */
#include "harness/cmocka.h"
#include "machine/cuda/device.h"

enum { NUM_RANKS = 4, NUM_SMS = 132, ROW_BYTES = 14336, FEW_TOKENS = 512, FEW_TOKENS_BLOCKS = 32 };

static int32_t num_blocks_of_streams(enum weft__work_kind kind, int32_t num_tokens,
                                     uint64_t row_bytes, int32_t num_ranks_here,
                                     int32_t num_streams)
{
    struct weft__cuda cuda = {.num_sms = NUM_SMS,
                              .code_capability = 90,
                              .num_ranks_here = num_ranks_here,
                              .num_streams = num_streams,
                              .links = {.gbps = 370}};
    const weft_comm comm = {.num_ranks = NUM_RANKS, .machine_state = &cuda};
    const struct weft__work work = {.kind = kind, .num_tokens = num_tokens, .row_bytes = row_bytes};
    return weft__cuda_choose_grid(&comm, &work).num_blocks;
}

static int32_t num_blocks(enum weft__work_kind kind, int32_t num_tokens, uint64_t row_bytes,
                          int32_t num_ranks_here)
{
    return num_blocks_of_streams(kind, num_tokens, row_bytes, num_ranks_here, 2);
}

static const enum weft__work_kind kinds[] = {WEFT__WORK_PUSH_ROWS, WEFT__WORK_PULL_ROWS};
enum { NUM_KINDS = sizeof kinds / sizeof *kinds };

TEST(few_tokens_have_more_blocks)
{
    for (int i = 0; i < NUM_KINDS; i++) {
        const int32_t of_many = num_blocks(kinds[i], FEW_TOKENS + 1, ROW_BYTES, 1);
        assert_int_equal(num_blocks(kinds[i], 1, ROW_BYTES, 1), FEW_TOKENS_BLOCKS);
        assert_int_equal(num_blocks(kinds[i], FEW_TOKENS, ROW_BYTES, 1), FEW_TOKENS_BLOCKS);
        assert_true(of_many < FEW_TOKENS_BLOCKS);
        assert_int_equal(num_blocks(kinds[i], 1 << 20, ROW_BYTES, 1), of_many);
    }
}

/* An SM moves short rows more slowly. */
TEST(short_rows_have_more_blocks)
{
    for (int i = 0; i < NUM_KINDS; i++) {
        const int32_t of_short = num_blocks(kinds[i], FEW_TOKENS + 1, ROW_BYTES / 8, 1);
        assert_true(of_short > num_blocks(kinds[i], FEW_TOKENS + 1, ROW_BYTES, 1));
        assert_int_equal(num_blocks(kinds[i], 1, ROW_BYTES / 8, 1),
                         of_short > FEW_TOKENS_BLOCKS ? of_short : FEW_TOKENS_BLOCKS);
    }
}

TEST(ranks_that_share_a_gpu_have_half_of_their_shares)
{
    for (int i = 0; i < NUM_KINDS; i++)
        for (int32_t num_here = 3; num_here <= NUM_SMS; num_here *= 2)
            assert_int_equal(num_blocks(kinds[i], 1, ROW_BYTES, num_here),
                             NUM_SMS / 2 / num_here > 0 ? NUM_SMS / 2 / num_here : 1);
}

TEST(all_streams_of_all_ranks_fit_at_once)
{
    static const enum weft__work_kind all_kinds[] = {
        WEFT__WORK_PUSH_ROWS, WEFT__WORK_PULL_ROWS, WEFT__WORK_PUSH_TENSOR, WEFT__WORK_PULL_TENSOR};
    for (size_t i = 0; i < sizeof all_kinds / sizeof *all_kinds; i++)
        for (int32_t num_streams = 1; num_streams <= 8; num_streams++)
            for (int32_t num_here = 1; num_here <= 8; num_here++)
                assert_true(num_streams * num_here *
                                num_blocks_of_streams(all_kinds[i], 1 << 20, ROW_BYTES, num_here,
                                                      num_streams) <=
                            NUM_SMS);
}

/* They wait for nobody, so not all of them must fit. */
TEST(each_token_has_a_warp)
{
    enum { WARPS = 8, MOST = 8 * NUM_SMS };
    assert_int_equal(num_blocks(WEFT__WORK_TOKENS, 1, 0, 1), 1);
    assert_int_equal(num_blocks(WEFT__WORK_TOKENS, 4096, 0, 8), 4096 / WARPS);
    assert_int_equal(num_blocks(WEFT__WORK_TOKENS, INT32_MAX, 0, 1), MOST);
}

/* The sum of INT32_MAX tokens and a block's overflowed once. */
TEST(the_most_tokens_are_counted_by_the_most_blocks)
{
    assert_int_equal(num_blocks(WEFT__WORK_COUNT, INT32_MAX, 0, 1),
                     num_blocks(WEFT__WORK_COUNT, 1 << 20, 0, 1));
    assert_int_equal(num_blocks(WEFT__WORK_COUNT, 0, 0, 1), 1);
}
