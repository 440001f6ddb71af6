/* SPDX-License-Identifier: MIT */
#include "weights.h"

enum { NOT_WRITTEN = 0xee };

/* By move_experts each expert may be on each rank. */
static size_t num_rows(const struct shape *shape)
{
    return shape->op == SCENARIO_COPIES ? (size_t)shape->weights_terms.replicas_per_rank
                                        : (size_t)shape->num_experts;
}

weft_result party_alloc_weights(struct party *party, int32_t num_arrays)
{
    const struct shape *shape = party->shape;
    struct party_array arrays[2 * WEIGHTS_MAX_PLANES + 2] = {{0}};
    int32_t count = 0;
    for (int32_t i = 0; i < num_arrays; i++)
        for (int32_t plane = 0; plane < shape->num_planes; plane++)
            arrays[count++] =
                (struct party_array){&party->expert_weights[i][plane],
                                     num_rows(shape) * shape->weights_terms.row_bytes[plane]};
    arrays[count] = (struct party_array){&party->staging, shape->weights_terms.staging_bytes};
    return party_alloc_in_heap(party, arrays);
}

char *weights_at(const struct party *party, int32_t array, int32_t plane, int32_t local)
{
    return party->expert_weights[array][plane] +
           (size_t)local * party->shape->weights_terms.row_bytes[plane];
}

static unsigned char weight_byte(const struct weights_row *row, int32_t plane, uint64_t i)
{
    return (unsigned char)(row->expert == WEIGHTS_OF_NOBODY
                               ? NOT_WRITTEN
                               : 1 + 7 * row->expert + 53 * row->round + 31 * plane + (int32_t)i);
}

void weights_fill(struct party *party, struct weights_row row)
{
    for (int32_t plane = 0; plane < party->shape->num_planes; plane++) {
        const uint64_t num_bytes = party->shape->weights_terms.row_bytes[plane];
        char *at = weights_at(party, row.array, plane, row.local);
        weft__sim_host_writes(at, num_bytes);
        for (uint64_t i = 0; i < num_bytes; i++)
            at[i] = (char)weight_byte(&row, plane, i);
    }
}

void weights_check(struct party *party, struct weights_row row)
{
    for (int32_t plane = 0; plane < party->shape->num_planes; plane++) {
        const uint64_t num_bytes = party->shape->weights_terms.row_bytes[plane];
        const char *at = weights_at(party, row.array, plane, row.local);
        weft__sim_host_reads(at, num_bytes);
        for (uint64_t i = 0; i < num_bytes; i++)
            if ((unsigned char)at[i] != weight_byte(&row, plane, i))
                party_complain(party, "round %d: row %d of plane %d, of expert %d: byte %d is %d",
                               row.round, row.local, plane, row.expert, (int)i,
                               (unsigned char)at[i]);
    }
}
