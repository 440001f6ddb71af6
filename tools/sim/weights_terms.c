/* SPDX-License-Identifier: MIT */
#include "weights_terms.h"

#include "shape_draws.h"

/* Copies have whole elements. Now and then a row is so long that a warp moves, or adds, several
 * parts of it. */
static uint64_t draw_row_bytes(const struct shape *shape, struct rng *rng)
{
    enum { MAX_BYTES = 70, MAX_WORDS = 16, LONG_ONE_IN = 32 };
    enum { LONG_BYTES = (16 << 10) + 3, LONG_WORDS = 1033 };
    const int is_long = shape->num_ranks <= MAX_RANKS_DRAWN && draw(rng, 1, LONG_ONE_IN) == 1;
    if (shape->op == SCENARIO_MOVE_EXPERTS)
        return (uint64_t)(is_long ? LONG_BYTES : draw(rng, 1, MAX_BYTES));
    return sizeof(float) * (uint64_t)(is_long ? LONG_WORDS : draw(rng, 1, MAX_WORDS));
}

/* For a few elements of each row, or for all. */
static uint64_t draw_staging_bytes(const struct weights_terms *terms, int32_t num_replicas,
                                   struct rng *rng)
{
    enum { FEW_UNITS = 4, UNIT_BYTES = 16, MAX_SMALL_BYTES = 256 };
    uint64_t longest = UNIT_BYTES;
    for (int32_t i = 0; i < WEIGHTS_MAX_PLANES; i++)
        longest = terms->row_bytes[i] > longest ? terms->row_bytes[i] : longest;
    const uint64_t units = longest > MAX_SMALL_BYTES || draw(rng, 0, 1)
                               ? longest / UNIT_BYTES + 1
                               : (uint64_t)draw(rng, 1, FEW_UNITS);
    return (uint64_t)num_replicas * units * UNIT_BYTES;
}

void weights_draw_terms(struct shape *shape, struct rng *rng)
{
    static const weft_dtype dtypes[] = {WEFT_FP32, WEFT_BF16, WEFT_FP16};
    struct weights_terms *terms = &shape->weights_terms;
    terms->key = rng_next(rng);
    shape->num_planes = draw(rng, 1, WEIGHTS_MAX_PLANES);
    for (int32_t i = 0; i < WEIGHTS_MAX_PLANES; i++)
        terms->row_bytes[i] = draw_row_bytes(shape, rng);
    if (shape->op != SCENARIO_COPIES)
        return;
    terms->replicas_per_rank = draw(rng, 1, WEIGHTS_MAX_REPLICAS_PER_RANK);
    terms->dtype = dtypes[draw(rng, 0, 2)];
    terms->index_type = draw(rng, 0, 1) ? WEFT_INT64 : WEFT_INT32;
    terms->staging_bytes =
        draw_staging_bytes(terms, shape->num_ranks * terms->replicas_per_rank, rng);
}
