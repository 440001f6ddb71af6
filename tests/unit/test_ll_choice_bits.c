/* SPDX-License-Identifier: MIT */
/* Bits of a token's choices, which lie in two words: as GPUs have them, whose lanes have four
 * choices each. */
#include "harness/cmocka.h"
#define WP_LL_STEPS_ONLY
#include "programs/low_latency/packet_low_latency_dispatch.c" /* NOLINT(bugprone-suspicious-include) */
#include "workload/rng.h"

static int bit_of(struct wp_ll_choice_bits bits, int32_t i)
{
    return (int)((i < bits.half ? bits.low >> i : bits.high >> (i - bits.half)) & 1);
}

TEST(bits_are_those_of_the_next_choices)
{
    static const int32_t halves[] = {2, 4, 64};
    struct rng rng = {rng_key(1, 1)};
    for (size_t h = 0; h < sizeof halves / sizeof *halves; h++) {
        const int32_t half = halves[h];
        const uint64_t all = half == 64 ? UINT64_MAX : (UINT64_C(1) << half) - 1;
        const struct wp_ll_choice_bits bits = {rng_next(&rng) & all, rng_next(&rng) & all, half};
        for (int32_t begin = 0; begin < 2 * half; begin++)
            for (int32_t num = 1; num <= half && begin + num <= 2 * half; num++)
                for (int32_t i = 0; i < num; i++)
                    assert_int_equal(wp_ll_bits_from(bits, begin, num) >> i & 1,
                                     bit_of(bits, begin + i));
    }
}
