/* SPDX-License-Identifier: MIT */
/* Programs number the chunks of all rows in 31 bits: also those of the longest rows there may
 * be. */
#include "coll/coll.h"
#include "harness/cmocka.h"

enum { CHUNK_BYTES = 8 << 10 };

static const struct weft_coll coll = {.chunk_bytes = CHUNK_BYTES};

static uint64_t num_chunks(uint64_t row_bytes)
{
    const uint64_t chunk_bytes = weft__coll_chunk_bytes(&coll, row_bytes);
    return row_bytes / chunk_bytes + (row_bytes % chunk_bytes != 0);
}

TEST(short_rows_have_chunks_as_they_were_chosen)
{
    assert_int_equal(weft__coll_chunk_bytes(&coll, 0), CHUNK_BYTES);
    assert_int_equal(weft__coll_chunk_bytes(&coll, 1), CHUNK_BYTES);
    assert_int_equal(weft__coll_chunk_bytes(&coll, UINT64_C(1) << 38), CHUNK_BYTES);
}

TEST(no_more_chunks_than_can_be_counted)
{
    for (int bits = 0; bits <= 42; bits++) {
        for (int change = -1; change <= 1; change++) {
            const uint64_t row_bytes = (UINT64_C(1) << bits) + (uint64_t)(int64_t)change;
            assert_in_range(num_chunks(row_bytes) * WEFT_COLL_MAX_RANKS, 0, WP_DIRECT_MAX_CHUNKS);
        }
    }
}

TEST(long_chunks_are_whole_multiples_of_the_chosen)
{
    const uint64_t chunk_bytes = weft__coll_chunk_bytes(&coll, (UINT64_C(1) << 38) + 1);
    assert_int_equal(chunk_bytes, 2 * CHUNK_BYTES);
    assert_int_equal(weft__coll_chunk_bytes(&coll, UINT64_C(1) << 42), 16 * CHUNK_BYTES);
}
