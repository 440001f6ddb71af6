/* SPDX-License-Identifier: MIT */
#include "oracle/coll_data.h"

#include <string.h>

#include "workload/elements.h"
#include "workload/hard_numbers.h"
#include "workload/rng.h"

/* The low bytes of a number come first on all our machines. Each size has a copy of its own, which
 * the compiler does in place: most of the time of a large case goes here. */
static void put(uint64_t element_bytes, void *out, uint64_t i, uint64_t bits)
{
    char *element = (char *)out + i * element_bytes;
    switch (element_bytes) {
    case 1:
        memcpy(element, &bits, 1);
        break;
    case 2:
        memcpy(element, &bits, 2);
        break;
    case 4:
        memcpy(element, &bits, 4);
        break;
    default:
        memcpy(element, &bits, 8);
        break;
    }
}

/* All elements at one place are of one class, and at most every third rank has a NaN, so that not
 * every reduction has one in it. */
static uint64_t special_element(weft_dtype dtype, enum number_class class, int is_chosen,
                                struct rng *rng)
{
    const uint64_t random = rng_next(rng);
    if (class == CLASS_NANS && !is_chosen)
        return number_near_one(dtype, 2, random);
    return number_of_class(dtype, class, random);
}

static void fill_special(uint64_t place_key, int32_t rank, weft_dtype dtype, void *out,
                         uint64_t count)
{
    struct rng of_place = {place_key};
    struct rng of_rank = {rng_key(place_key, (uint64_t)rank)};
    const uint64_t element_bytes = dtype_bytes(dtype);
    for (uint64_t i = 0; i < count; i++) {
        const enum number_class class = (enum number_class)rng_below(&of_place, NUM_NUMBER_CLASSES);
        const int is_chosen = rng_below(&of_place, 3) == (uint32_t)rank % 3;
        put(element_bytes, out, i,
            dtype_is_integer(dtype)
                ? special_number(dtype, (int)rng_below(&of_rank, NUM_SPECIAL_NUMBERS))
                : special_element(dtype, class, is_chosen, &of_rank));
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

/* Runs of equal blocks, so that larger packets consist of one kind too. Most begin where the row
 * does. */
static void fill_hostile(uint64_t key, weft_dtype dtype, void *out, uint64_t count)
{
    enum { MAX_BLOCKS = COLL_DATA_PIECE * 8 / sizeof(struct block) + 1, MAX_RUN = 8 };
    struct rng rng = {key};
    struct block blocks[MAX_BLOCKS];
    const uint64_t bytes = count * dtype_bytes(dtype);
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
    const uint64_t place_key = rng_key(key, piece);
    const uint64_t rank_key = rng_key(place_key, (uint64_t)rank);
    const uint64_t element_bytes = dtype_bytes(dtype);
    struct rng rng = {rank_key};
    if (values == COLL_VALUES_SPECIAL)
        fill_special(place_key, rank, dtype, out, count);
    else if (values == COLL_VALUES_HOSTILE)
        fill_hostile(rank_key, dtype, out, count);
    else if (values == COLL_VALUES_HOSTILE_EVERYWHERE)
        fill_hostile(place_key, dtype, out, count);
    else
        for (uint64_t i = 0; i < count; i++)
            put(element_bytes, out, i,
                values == COLL_VALUES_FINITE ? number_near_one(dtype, 3, rng_next(&rng))
                                             : cancelling_number(dtype, rng_next(&rng)));
}
