/* SPDX-License-Identifier: MIT */

#include "comm/heap/ranges.h"
#include "harness/cmocka.h"

enum { UNIT = WEFT__RANGE_ALIGNMENT, MAX_UNITS = 400, NUM_STEPS = 20000 };

/* The oracle: a byte per unit, holding the number of the allocation that has it, or 0. */
struct oracle {
    int owners[MAX_UNITS];
    int num_units;
};

static uint32_t next_random(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

static int first_fit(const struct oracle *oracle, int num_units)
{
    for (int begin = 0; begin + num_units <= oracle->num_units; begin++) {
        int length = 0;
        while (length < num_units && oracle->owners[begin + length] == 0)
            length++;
        if (length == num_units)
            return begin;
    }
    return -1;
}

static int largest_gap(const struct oracle *oracle)
{
    int largest = 0, length = 0;
    for (int unit = 0; unit < oracle->num_units; unit++) {
        length = oracle->owners[unit] == 0 ? length + 1 : 0;
        largest = length > largest ? length : largest;
    }
    return largest;
}

static void step_alloc(struct weft__ranges *ranges, struct oracle *oracle, uint32_t random,
                       int name)
{
    uint64_t bytes = 1 + random % (12 * UNIT), offset = UINT64_MAX;
    int num_units = (int)((bytes + UNIT - 1) / UNIT);
    int expected = first_fit(oracle, num_units);
    enum weft__ranges_result result = weft__ranges_alloc(ranges, bytes, &offset);
    if (expected < 0) {
        assert_int_equal(result, WEFT__RANGES_FULL);
        return;
    }
    assert_int_equal(result, WEFT__RANGES_OK);
    assert_int_equal(offset, (uint64_t)expected * UNIT);
    for (int unit = expected; unit < expected + num_units; unit++)
        oracle->owners[unit] = name;
}

static void step_free(struct weft__ranges *ranges, struct oracle *oracle, uint32_t random)
{
    int unit = (int)(random % (uint32_t)oracle->num_units), name = oracle->owners[unit];
    int is_start = name != 0 && (unit == 0 || oracle->owners[unit - 1] != name);
    uint64_t num_freed = 0;
    for (int other = unit; is_start && other < oracle->num_units && oracle->owners[other] == name;
         other++, num_freed++)
        oracle->owners[other] = 0;
    assert_int_equal(weft__ranges_free(ranges, (uint64_t)unit * UNIT), num_freed * UNIT);
    assert_int_equal(weft__ranges_free(ranges, (uint64_t)unit * UNIT + 1), 0);
}

static void step_contain(const struct weft__ranges *ranges, const struct oracle *oracle,
                         uint32_t random)
{
    int begin = (int)(random % (uint32_t)oracle->num_units), length = 1 + (int)(random / 1024 % 8);
    int inside = begin + length <= oracle->num_units && oracle->owners[begin] != 0;
    for (int unit = begin; inside && unit < begin + length; unit++)
        inside = oracle->owners[unit] == oracle->owners[begin];
    assert_int_equal(
        weft__ranges_contain(ranges, (uint64_t)begin * UNIT + 3, (uint64_t)length * UNIT - 3),
        inside);
}

TEST(agrees_with_a_bitmap)
{
    struct weft__ranges ranges;
    struct oracle oracle = {.num_units = 60};
    uint32_t random = 12345;
    weft__ranges_init(&ranges, (uint64_t)oracle.num_units * UNIT);
    for (int step = 1; step <= NUM_STEPS; step++) {
        uint32_t draw = next_random(&random);
        int used = 0;
        if (draw % 16 < 7)
            step_alloc(&ranges, &oracle, next_random(&random), step);
        else if (draw % 16 < 15)
            step_free(&ranges, &oracle, next_random(&random));
        else if (draw % 1024 == 1023 && oracle.num_units < MAX_UNITS)
            ranges.capacity = (uint64_t)(oracle.num_units += 10) * UNIT;
        step_contain(&ranges, &oracle, next_random(&random));
        for (int unit = 0; unit < oracle.num_units; unit++)
            used += oracle.owners[unit] != 0;
        assert_int_equal(ranges.used_bytes, (uint64_t)used * UNIT);
        assert_int_equal(weft__ranges_largest_free(&ranges), (uint64_t)largest_gap(&oracle) * UNIT);
    }
    assert_true(oracle.num_units > 60);
    weft__ranges_free_all(&ranges);
    assert_int_equal(weft__ranges_largest_free(&ranges), ranges.capacity);
    weft__ranges_destroy(&ranges);
}

TEST(sizes_at_the_limits)
{
    struct weft__ranges ranges;
    uint64_t offset;
    weft__ranges_init(&ranges, 0);
    assert_int_equal(weft__ranges_alloc(&ranges, 1, &offset), WEFT__RANGES_FULL);
    assert_int_equal(weft__ranges_needed_capacity(&ranges, 1), UNIT);
    ranges.capacity = 3 * UNIT;
    assert_int_equal(weft__ranges_alloc(&ranges, UINT64_MAX, &offset), WEFT__RANGES_FULL);
    assert_int_equal(weft__ranges_alloc(&ranges, 3 * UNIT, &offset), WEFT__RANGES_OK);
    assert_int_equal(weft__ranges_alloc(&ranges, 1, &offset), WEFT__RANGES_FULL);
    assert_int_equal(weft__ranges_needed_capacity(&ranges, UNIT + 1), 5 * UNIT);
    assert_int_equal(weft__ranges_needed_capacity(&ranges, UINT64_MAX - UNIT), UINT64_MAX);
    assert_false(weft__ranges_contain(&ranges, UNIT, UINT64_MAX));
    assert_true(weft__ranges_contain(&ranges, UNIT, 2 * UNIT));
    assert_false(weft__ranges_contain(&ranges, UNIT, 2 * UNIT + 1));
    weft__ranges_destroy(&ranges);
}
