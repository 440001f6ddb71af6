/* SPDX-License-Identifier: MIT */
#include "oracle/coll_data.h"

#include <string.h>

#include "workload/rng.h"

/* The bits of a floating-point format; integers have fraction_bits 0. */
struct layout {
    int bytes;
    int fraction_bits;
    int exponent_bits;
    int spread; /* of the exponents of numbers that cancel: further apart than the bits of a sum */
};

static struct layout layout_of(weft_dtype dtype)
{
    static const struct layout layouts[] = {
        [WEFT_INT32] = {4, 0, 0, 0},    [WEFT_INT64] = {8, 0, 0, 0}, [WEFT_UINT8] = {1, 0, 0, 0},
        [WEFT_FP8_E4M3] = {1, 3, 4, 1}, [WEFT_FP16] = {2, 10, 5, 2}, [WEFT_BF16] = {2, 7, 8, 4},
        [WEFT_FP32] = {4, 23, 8, 4},    [WEFT_FP64] = {8, 52, 11, 8}};
    return layouts[dtype];
}

/* The low bytes of a number come first on all our machines. */
static void put(void *out, uint64_t i, int bytes, uint64_t bits)
{
    memcpy((char *)out + i * (uint64_t)bytes, &bits, (size_t)bytes);
}

static uint64_t sign_bit(struct layout layout)
{
    return 1ull << (8 * layout.bytes - 1);
}

/* A number with random sign and fraction, and one of the 2 * spread + 1 exponents around 0. */
static uint64_t number_near_one(struct layout layout, struct rng *rng, uint32_t spread)
{
    const uint64_t bias = (1ull << (layout.exponent_bits - 1)) - 1;
    const uint64_t exponent = bias - spread + rng_below(rng, 2 * spread + 1);
    const uint64_t fraction = rng_next(rng) >> (64 - layout.fraction_bits);
    const uint64_t sign = rng_below(rng, 2) == 0 ? 0 : sign_bit(layout);
    return sign | exponent << layout.fraction_bits | fraction;
}

static uint64_t finite_element(struct layout layout, struct rng *rng)
{
    return layout.fraction_bits == 0 ? rng_next(rng) : number_near_one(layout, rng, 3);
}

/* Powers of two that in sums round, and cancel, in every order differently. */
static uint64_t cancelling_element(struct layout layout, struct rng *rng)
{
    static const int exponents[] = {0, 0, 1, -1, -6, 7, 7, 2};
    if (layout.fraction_bits == 0)
        return rng_next(rng);
    const uint64_t bias = (1ull << (layout.exponent_bits - 1)) - 1;
    const uint64_t exponent = bias + (uint64_t)(exponents[rng_below(rng, 8)] * layout.spread);
    const uint64_t sign = rng_below(rng, 2) == 0 ? 0 : sign_bit(layout);
    return sign | exponent << layout.fraction_bits | rng_below(rng, 2);
}

/* ---------------------------------------------------------------- special values */

static uint64_t special_integer(struct layout layout, struct rng *rng)
{
    const uint64_t sign = sign_bit(layout);
    const uint64_t values[] = {0, 1, ~0ull, sign, sign - 1, sign + 1, 2, 3};
    return values[rng_below(rng, 8)];
}

/* All elements at one place are of one class, so that not every reduction has a NaN in it. */
enum special { ZEROS, TINY, HUGE_NUMBERS, INFINITIES, ONE_NAN, ANY_BITS, NUM_SPECIALS };

static uint64_t special_float(struct layout layout, enum special class, int is_chosen,
                              struct rng *rng)
{
    const uint64_t any = rng_next(rng);
    const uint64_t sign = any & sign_bit(layout);
    const uint64_t fraction_mask = (1ull << layout.fraction_bits) - 1;
    const uint64_t top_exponent = ((1ull << layout.exponent_bits) - 1) << layout.fraction_bits;
    /* FP8 has numbers with the top exponent, and one NaN, but no infinity. */
    const int is_fp8 = layout.bytes == 1;
    const uint64_t infinity = is_fp8 ? top_exponent | (fraction_mask - 1) : top_exponent;
    const uint64_t payload = is_fp8 ? fraction_mask : any >> 8 & fraction_mask;
    switch (class) {
    case ZEROS:
        return sign;
    case TINY: /* subnormal, and the least normal number */
        return sign |
               (rng_below(rng, 4) == 0 ? fraction_mask + (any >> 8 & 1) : any >> 8 & fraction_mask);
    case HUGE_NUMBERS:
        return sign | (infinity - 1 - (any >> 8 & 1));
    case INFINITIES:
        return rng_below(rng, 2) == 0 ? sign | infinity : number_near_one(layout, rng, 2);
    case ONE_NAN:
        return is_chosen ? sign | top_exponent | (payload == 0 ? 1 : payload)
                         : number_near_one(layout, rng, 2);
    default:
        return any;
    }
}

static void fill_special(uint64_t place_key, int32_t rank, struct layout layout, void *out,
                         uint64_t count)
{
    struct rng of_place = {place_key};
    struct rng of_rank = {rng_key(place_key, (uint64_t)rank)};
    for (uint64_t i = 0; i < count; i++) {
        const enum special class = (enum special)rng_below(&of_place, NUM_SPECIALS);
        const int is_chosen = rng_below(&of_place, 3) == (uint32_t)rank % 3;
        put(out, i, layout.bytes,
            layout.fraction_bits == 0 ? special_integer(layout, &of_rank)
                                      : special_float(layout, class, is_chosen, &of_rank));
    }
}

/* ---------------------------------------------------------------- hostile values */

/* Packets are stored as words, xored with KEY_0 and KEY_1 in turn; all words 0 means "empty", all
 * words ones "escape". */
static const uint64_t KEY_0 = 0x9e3779b97f4a7c15, KEY_1 = 0xc2b2ae3d27d4eb4f, ONES = ~0ull;

struct block {
    uint64_t words[2];
};

static struct block hostile_block(struct rng *rng)
{
    const struct block blocks[] = {{{0, 0}},           {{ONES, ONES}},   {{KEY_0, KEY_1}},
                                   {{~KEY_0, ~KEY_1}}, {{KEY_1, KEY_0}}, {{~KEY_1, ~KEY_0}},
                                   {{KEY_0, KEY_0}},   {{KEY_1, KEY_1}}, {{~KEY_0, ~KEY_0}},
                                   {{KEY_0, ~KEY_1}},  {{KEY_0, 0}},     {{0, ONES}},
                                   {{KEY_0, ONES}},    {{~KEY_0, 0}}};
    return blocks[rng_below(rng, sizeof blocks / sizeof *blocks)];
}

/* Runs of equal blocks, so that larger packets consist of one kind too. Most begin where the row does. */
static void fill_hostile(uint64_t key, struct layout layout, void *out, uint64_t count)
{
    enum { MAX_BLOCKS = COLL_DATA_PIECE * 8 / sizeof(struct block) + 1, MAX_RUN = 8 };
    struct rng rng = {key};
    struct block blocks[MAX_BLOCKS];
    const uint64_t bytes = count * (uint64_t)layout.bytes;
    const uint64_t shift_bytes = rng_below(&rng, 4) == 0 ? rng_below(&rng, sizeof *blocks) : 0;
    for (uint64_t i = 0; i * sizeof *blocks < bytes + shift_bytes;) {
        const struct block block = hostile_block(&rng);
        for (uint32_t run = 1 + rng_below(&rng, MAX_RUN); run > 0 && i < MAX_BLOCKS; run--)
            blocks[i++] = block;
    }
    memcpy(out, (const char *)blocks + shift_bytes, bytes);
}

/* ---------------------------------------------------------------- */

void coll_data_fill(uint64_t key, enum coll_values values, int32_t rank, uint64_t piece,
                    weft_dtype dtype, void *out, uint64_t count)
{
    const struct layout layout = layout_of(dtype);
    const uint64_t place_key = rng_key(key, piece);
    const uint64_t rank_key = rng_key(place_key, (uint64_t)rank);
    struct rng rng = {rank_key};
    if (values == COLL_VALUES_SPECIAL)
        fill_special(place_key, rank, layout, out, count);
    else if (values == COLL_VALUES_HOSTILE)
        fill_hostile(rank_key, layout, out, count);
    else if (values == COLL_VALUES_HOSTILE_EVERYWHERE)
        fill_hostile(place_key, layout, out, count);
    else
        for (uint64_t i = 0; i < count; i++)
            put(out, i, layout.bytes,
                values == COLL_VALUES_FINITE ? finite_element(layout, &rng)
                                             : cancelling_element(layout, &rng));
}
