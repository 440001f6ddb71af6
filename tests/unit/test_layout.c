/* SPDX-License-Identifier: MIT */
/* Layout for more ranks than it looks for at once: each choice is counted once. */
#include <string.h>

#include "harness/cmocka.h"
#include "launch/programs.h"
#include "machine/host.h"
#include "programs/ep/layout.h"

/* An expert on each rank; a token goes to one of the first 64 ranks, of the next and of the
 * rest. */
enum { NUM_RANKS = 130, NUM_TOKENS = 40, NUM_TOPK = 3, NUM_STRIDES = 64 };

static int32_t offsets[NUM_RANKS + 1], ranks[NUM_RANKS], node_of_rank[NUM_RANKS];
static int32_t topk_idx[NUM_TOKENS][NUM_TOPK];
static int32_t chunk_base[NUM_RANKS], send_rows[NUM_RANKS], entry_selections[NUM_RANKS],
    selections[NUM_RANKS];
static struct wp_route routes[NUM_TOKENS][NUM_TOPK];

static int32_t choice(int32_t token, int32_t k)
{
    const int32_t expert = k * NUM_STRIDES + token % 5;
    return expert < NUM_RANKS ? expert : NUM_RANKS - 1;
}

static struct wp_layout_args make_args(uint32_t *num_blocks_done)
{
    for (int32_t rank = 0; rank < NUM_RANKS; rank++)
        offsets[rank] = ranks[rank] = rank;
    offsets[NUM_RANKS] = NUM_RANKS;
    for (int32_t token = 0; token < NUM_TOKENS; token++)
        for (int32_t k = 0; k < NUM_TOPK; k++)
            topk_idx[token][k] = choice(token, k);
    return (struct wp_layout_args){
        .routing = {.num_ranks = NUM_RANKS,
                    .num_tokens = NUM_TOKENS,
                    .num_topk = NUM_TOPK,
                    .max_routes = NUM_TOPK,
                    .num_chunks = 1,
                    .chunk_tokens = NUM_TOKENS,
                    .routes = routes[0],
                    .chunk_base = chunk_base,
                    .send_rows = send_rows,
                    .entry_selections = entry_selections},
        .placement = {.num_experts = NUM_RANKS,
                      .num_ranks = NUM_RANKS,
                      .expert_offsets = offsets,
                      .entry_ranks = ranks},
        .index_type = WEFT_INT32,
        .topk_idx = topk_idx,
        .num_blocks_done = num_blocks_done,
        .num_entries = NUM_RANKS,
        .selections = selections,
        .node_of_rank = node_of_rank,
    };
}

static void launch_layout(const struct wp_layout_args *args)
{
    weft_comm *comm;
    weft_stream *stream;
    weft_unique_id id;
    const struct weft__program_run run = {.program = WP_PROGRAM_layout,
                                          .grid = {.num_blocks = 1, .num_warps = 1},
                                          .args = args,
                                          .args_bytes = sizeof *args};
    assert_ok(weft_unique_id_create(&id));
    assert_ok(weft_comm_create(&id, 0, 1, NULL, &comm));
    assert_ok(weft_stream_create(comm, &stream));
    assert_ok(weft__program_launch(comm, stream, &run));
    assert_ok(weft_stream_synchronize(stream));
    assert_ok(weft_stream_destroy(stream));
    assert_ok(weft_comm_destroy(comm));
}

/* The table says twice as many ranks as a token may have, from the first to the last. */
TEST(tables_of_all_ranks)
{
    static uint8_t tokens_to_ranks[NUM_TOKENS][NUM_RANKS];
    static int32_t given[NUM_RANKS];
    uint32_t num_blocks_done = 0;
    int32_t expected[NUM_RANKS] = {0};
    struct wp_layout_args args = make_args(&num_blocks_done);
    for (int32_t rank = 0; rank < NUM_RANKS; rank++)
        given[rank] = 1000 + rank;
    for (int32_t token = 0; token < NUM_TOKENS; token++)
        for (int32_t i = 0; i < 2 * NUM_TOPK; i++)
            tokens_to_ranks[token][i * (NUM_RANKS / 6) + token % 5] = (uint8_t)(token % 2 + 127);
    args.index_type = WEFT_DTYPE_NONE;
    args.topk_idx = NULL;
    args.tokens_to_ranks = tokens_to_ranks[0];
    args.selections_per_entry = given;
    for (int skipped = 0; skipped < 2 * NUM_TOPK; skipped += NUM_TOPK) {
        for (int32_t token = 0; token < NUM_TOKENS && skipped > 0; token++)
            for (int32_t i = 0; i < NUM_TOPK; i++)
                tokens_to_ranks[token][i * (NUM_RANKS / 6) + token % 5] = 0;
        memset(expected, 0, sizeof expected);
        launch_layout(&args);
        for (int32_t token = 0; token < NUM_TOKENS; token++) {
            for (int32_t i = 0; i < NUM_TOPK; i++) {
                const int32_t rank = (skipped + i) * (NUM_RANKS / 6) + token % 5;
                assert_int_equal(routes[token][i].rank, rank);
                assert_int_equal(routes[token][i].slot, expected[rank]++);
            }
        }
        assert_memory_equal(send_rows, expected, sizeof expected);
        assert_memory_equal(entry_selections, given, sizeof given);
    }
}

TEST(choices_of_all_ranks_are_counted_once)
{
    uint32_t num_blocks_done = 0;
    int32_t expected[NUM_RANKS] = {0};
    const struct wp_layout_args args = make_args(&num_blocks_done);
    launch_layout(&args);
    for (int32_t token = 0; token < NUM_TOKENS; token++) {
        for (int32_t k = 0; k < NUM_TOPK; k++) {
            assert_int_equal(routes[token][k].rank, choice(token, k));
            assert_int_equal(routes[token][k].slot, expected[choice(token, k)]++);
        }
    }
    for (int32_t rank = 0; rank < NUM_RANKS; rank++) {
        assert_int_equal(entry_selections[rank], expected[rank]);
        assert_int_equal(send_rows[rank], expected[rank]);
    }
}
