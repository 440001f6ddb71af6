/* SPDX-License-Identifier: MIT */
/* Which extents of memory overlap, against a map of bytes. */
#include <stdio.h>
#include <string.h>

#include "api/overlap.h"
#include "harness/cmocka.h"
#include "workload/rng.h"

enum { MAP_BYTES = 64, MAX_EXTENTS = 4, NUM_TRIALS = 200000 };

static char map[MAP_BYTES];

static struct weft__extent random_extent(struct rng *rng, int32_t index)
{
    const uint64_t row_bytes = rng_below(rng, 6);
    const enum weft__extent_use use = rng_below(rng, 2) ? WEFT__EXTENT_WRITTEN : WEFT__EXTENT_READ;
    const uint64_t gap = use == WEFT__EXTENT_READ ? rng_below(rng, 5) : 0;
    /* Rows that overlap each other may be read, too. */
    const uint64_t stride = use == WEFT__EXTENT_READ && rng_below(rng, 4) == 0 && row_bytes > 1
                                ? 1 + rng_below(rng, (uint32_t)row_bytes - 1)
                                : row_bytes + gap;
    return (struct weft__extent){.name = "r",
                                 .index = index,
                                 .member = ".m",
                                 .use = use,
                                 .ptr = map + rng_below(rng, MAP_BYTES / 2),
                                 .num_rows = rng_below(rng, 4),
                                 .row_bytes = row_bytes,
                                 .stride_bytes = stride};
}

static int touches(const struct weft__extent *extent, const char *byte)
{
    for (uint64_t row = 0; row < extent->num_rows; row++) {
        const char *begin = (const char *)extent->ptr + row * extent->stride_bytes;
        if (byte >= begin && byte < begin + extent->row_bytes)
            return 1;
    }
    return 0;
}

static int share_a_byte(const struct weft__extent *a, const struct weft__extent *b)
{
    for (const char *byte = map; byte < map + MAP_BYTES; byte++)
        if (touches(a, byte) && touches(b, byte))
            return 1;
    return 0;
}

/* The extents named by the last error must overlap, and one of them be written. */
static void check_names(const struct weft__extent *extents)
{
    int written = -1, other = -1;
    const char *rest = strstr(weft__last_error(), "those of ");
    assert_int_equal(sscanf(weft__last_error(), "r[%d].m is ", &written), 1);
    assert_non_null(rest);
    assert_int_equal(sscanf(rest, "those of r[%d].m", &other), 1);
    assert_int_not_equal(written, other);
    assert_int_equal(extents[written].use, WEFT__EXTENT_WRITTEN);
    assert_true(share_a_byte(&extents[written], &extents[other]));
}

TEST(overlaps_are_found_by_the_byte)
{
    struct rng rng = {1};
    int num_refused = 0;
    for (int trial = 0; trial < NUM_TRIALS; trial++) {
        struct weft__extent extents[MAX_EXTENTS];
        const int32_t num_extents = (int32_t)rng_below(&rng, MAX_EXTENTS + 1);
        int expected = 0;
        for (int32_t i = 0; i < num_extents; i++) {
            extents[i] = random_extent(&rng, i);
            for (int32_t j = 0; j < i; j++)
                expected |= (extents[i].use == WEFT__EXTENT_WRITTEN ||
                             extents[j].use == WEFT__EXTENT_WRITTEN) &&
                            share_a_byte(&extents[i], &extents[j]);
        }
        const weft_result result = weft__check_overlaps(extents, num_extents);
        assert_int_equal(result, expected ? WEFT_ERROR_INVALID_ARGUMENT : WEFT_OK);
        if (expected)
            check_names(extents);
        num_refused += expected;
    }
    assert_in_range(num_refused, NUM_TRIALS / 10, NUM_TRIALS * 9 / 10);
}

static void refuse_end(uint64_t num_rows, uint64_t row_bytes, uint64_t stride_bytes)
{
    struct weft__extent extent =
        weft__extent_of("src", WEFT__EXTENT_READ, map, num_rows, row_bytes);
    extent.stride_bytes = stride_bytes;
    assert_error(weft__check_overlaps(&extent, 1), WEFT_ERROR_INVALID_ARGUMENT, "src is ");
    assert_non_null(strstr(weft__last_error(), "end beyond all addresses"));
}

TEST(ranges_beyond_all_addresses_are_refused)
{
    refuse_end(1, UINT64_MAX, 0);
    refuse_end(2, 1, UINT64_MAX);
    refuse_end(UINT64_MAX, 2, 0);
    refuse_end(3, 8, UINT64_C(1) << 63);
}
