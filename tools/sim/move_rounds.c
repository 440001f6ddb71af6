/* SPDX-License-Identifier: MIT */
/* The rounds of weft_ep_move_experts: weights go from one placement to the next. As soon as the
 * operation has finished, their old places are overwritten. */
#include "ep_rounds.h"
#include "shape_draws.h"
#include "weights.h"

enum { MAX_REPLICAS = 3 };

/* The same on all ranks: every expert is on one to three ranks. */
static weft_result create_ep(struct party *party, int32_t number, weft_ep **ep)
{
    const struct shape *shape = party->shape;
    int32_t offsets[SHAPE_MAX_EXPERTS + 1] = {0}, ranks[SHAPE_MAX_EXPERTS * MAX_REPLICAS];
    const int32_t most = shape->num_ranks < MAX_REPLICAS ? shape->num_ranks : MAX_REPLICAS;
    struct rng rng = {rng_key(shape->weights_terms.key, (uint64_t)number)};
    weft_ep_config config = party_ep_config(party);
    for (int32_t expert = 0; expert < shape->num_experts; expert++) {
        const int32_t num_replicas = draw(&rng, 1, most);
        const int32_t first = draw(&rng, 0, shape->num_ranks - 1);
        for (int32_t i = 0; i < num_replicas; i++)
            ranks[offsets[expert] + i] = (first + i) % shape->num_ranks;
        offsets[expert + 1] = offsets[expert] + num_replicas;
    }
    config.expert_offsets = offsets;
    config.expert_ranks = ranks;
    return weft_ep_create(party->comm, &config, ep);
}

/* Visits all rows of an array, which has the local experts of ep; ep is NULL: none. */
static void for_each_row(struct party *party, const weft_ep *ep, struct weights_row row,
                         void (*visit)(struct party *, struct weights_row))
{
    const int32_t num_local = ep == NULL ? 0 : weft_ep_num_local_experts(ep, party->rank);
    for (row.local = 0; row.local < party->shape->num_experts; row.local++) {
        row.expert = row.local < num_local ? weft_ep_global_expert(ep, party->rank, row.local)
                                           : WEIGHTS_OF_NOBODY;
        visit(party, row);
    }
}

weft_result party_open_move(struct party *party)
{
    TRY(party_alloc_weights(party, 2));
    TRY(weft_stream_create(party->comm, &party->stream));
    return create_ep(party, 0, &party->ep);
}

static weft_result move(struct party *party, int32_t array)
{
    const struct shape *shape = party->shape;
    weft_plane planes[WEIGHTS_MAX_PLANES];
    for (int32_t i = 0; i < shape->num_planes; i++)
        planes[i] = (weft_plane){.size = sizeof(weft_plane),
                                 .src = weights_at(party, array, i, 0),
                                 .dst = weights_at(party, !array, i, 0),
                                 .row_bytes = shape->weights_terms.row_bytes[i]};
    TRY(weft_ep_move_experts(party->ep, party->next_ep, planes, shape->num_planes, party->stream));
    return weft_stream_synchronize(party->stream);
}

weft_result party_run_move(struct party *party, int32_t round)
{
    const struct weights_row from = {.array = round % 2, .round = round},
                             to = {.array = !from.array, .round = round};
    TRY(create_ep(party, round + 1, &party->next_ep)); /* before, since it orders what ranks do */
    for_each_row(party, party->ep, from, weights_fill);
    for_each_row(party, NULL, to, weights_fill);
    const weft_result result = move(party, from.array);
    for_each_row(party, party->ep, from, weights_check); /* also after a failure */
    TRY(result);
    for_each_row(party, NULL, from, weights_fill);
    for_each_row(party, party->next_ep, to, weights_check);
    TRY(weft_ep_destroy(party->ep));
    party->ep = party->next_ep;
    party->next_ep = NULL;
    return WEFT_OK;
}
