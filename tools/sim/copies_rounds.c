/* SPDX-License-Identifier: MIT */
/* A round with copies of experts: choices become those of replicas, copies get weights, and their
 * gradients are added to those of their experts. */
#include "ep_rounds.h"
#include "shape_draws.h"
#include "weights.h"
#include "workload/elements.h"

/* ---------------------------------------------------------------- placements */

struct copies {
    int32_t base[WEIGHTS_MAX_REPLICAS], experts[WEIGHTS_MAX_REPLICAS];
    int32_t num_replicas;
};

/* The first replica of the expert in both placements, or -1. */
static int32_t find_owner(const struct copies *copies, int32_t expert)
{
    for (int32_t i = 0; i < copies->num_replicas; i++)
        if (copies->base[i] == expert && copies->experts[i] == expert)
            return i;
    return -1;
}

/* The same on all ranks. An expert's first replica stays; others may become copies, or spare. */
static void place(const struct shape *shape, int32_t round, struct copies *copies)
{
    struct rng rng = {rng_key(shape->weights_terms.key, (uint64_t)round)};
    const int32_t count = shape->num_ranks * shape->weights_terms.replicas_per_rank;
    copies->num_replicas = 0;
    for (int32_t i = 0; i < count; i++) {
        const int32_t expert = draw(&rng, -1, count / 2);
        copies->base[i] = expert;
        copies->experts[i] = find_owner(copies, expert) < 0 ? expert : -1;
        copies->num_replicas++;
    }
    for (int32_t i = 0; i < count; i++) {
        const int32_t other = copies->base[draw(&rng, 0, count - 1)];
        if (copies->experts[i] < 0 && draw(&rng, 0, 3) > 0)
            copies->experts[i] = draw(&rng, 0, 1) ? other : copies->base[i];
    }
}

static int32_t replica_of(const struct party *party, int32_t local)
{
    return party->rank * party->shape->weights_terms.replicas_per_rank + local;
}

/* ---------------------------------------------------------------- choices */

static int64_t choice_at(const struct party *party, const void *choices, int32_t i)
{
    return party->shape->weights_terms.index_type == WEFT_INT64 ? ((const int64_t *)choices)[i]
                                                                : ((const int32_t *)choices)[i];
}

static int32_t granule_at(int32_t round, int32_t i)
{
    return 1000 * (round + 1) + i;
}

static weft_result enqueue_choose(struct party *party, int32_t round)
{
    const struct shape *shape = party->shape;
    const weft_dtype type = shape->weights_terms.index_type;
    const int32_t num_tokens = shape->num_tokens[round][party->rank];
    const int32_t num_choices = num_tokens * shape->num_topk;
    const int32_t num_granules = shape->num_experts * WEFT_BALANCE_GRANULES;
    weft__sim_host_writes(party->granules, (size_t)num_granules * sizeof *party->granules);
    for (int32_t i = 0; i < num_granules; i++)
        party->granules[i] = granule_at(round, i);
    weft__sim_host_writes(party->choices, (size_t)num_choices * dtype_bytes(type));
    for (int32_t i = 0; i < num_choices; i++) {
        const int32_t expert =
            shape->experts[round][party->rank][i / shape->num_topk][i % shape->num_topk];
        if (type == WEFT_INT64)
            ((int64_t *)party->choices)[i] = expert;
        else
            ((int32_t *)party->choices)[i] = expert;
    }
    return weft_ep_choose_replicas(party->comm,
                                   WEFT_ARGS(weft_ep_replicas_args, .topk_idx = party->choices,
                                             .replica_idx = party->chosen[round % 2],
                                             .granules = party->granules, .index_type = type,
                                             .num_tokens = num_tokens, .num_topk = shape->num_topk,
                                             .num_experts = shape->num_experts),
                                   party->stream);
}

static void check_chosen(struct party *party, int32_t round)
{
    const struct shape *shape = party->shape;
    const void *chosen = party->chosen[round % 2];
    const int32_t num_choices = shape->num_tokens[round][party->rank] * shape->num_topk;
    weft__sim_host_reads(chosen,
                         (size_t)num_choices * dtype_bytes(shape->weights_terms.index_type));
    for (int32_t i = 0; i < num_choices; i++) {
        const int32_t token = i / shape->num_topk;
        const int32_t expert = shape->experts[round][party->rank][token][i % shape->num_topk];
        const int32_t granule = (party->rank + token) % WEFT_BALANCE_GRANULES;
        const int32_t replica = expert == SHAPE_NO_CHOICE
                                    ? -1
                                    : granule_at(round, expert * WEFT_BALANCE_GRANULES + granule);
        party_expect(party, "replica_idx", i, (double)choice_at(party, chosen, i), replica);
    }
}

/* ---------------------------------------------------------------- weights */

static weft_result call(struct party *party, const struct copies *copies,
                        weft_result (*function)(weft_comm *, const weft_ep_copies_args *,
                                                weft_stream *),
                        weft_ep_copies_args args)
{
    weft_plane planes[WEIGHTS_MAX_PLANES];
    for (int32_t i = 0; i < party->shape->num_planes; i++)
        planes[i] = (weft_plane){.size = sizeof(weft_plane),
                                 .dst = weights_at(party, 0, i, 0),
                                 .row_bytes = party->shape->weights_terms.row_bytes[i]};
    args.size = sizeof args;
    args.base = copies->base;
    args.experts = copies->experts;
    args.num_replicas = copies->num_replicas;
    args.num_planes = party->shape->num_planes;
    args.planes = planes;
    return function(party->comm, &args, party->stream);
}

static weft_result fetch(struct party *party, const struct copies *copies, int32_t round)
{
    const int32_t num_local = party->shape->weights_terms.replicas_per_rank;
    struct weights_row row = {.array = 0, .round = round};
    for (row.local = 0; row.local < num_local; row.local++) {
        row.expert = copies->base[replica_of(party, row.local)];
        weights_fill(party, row);
    }
    TRY(call(party, copies, weft_ep_fetch_copies, (weft_ep_copies_args){.size = 0}));
    TRY(weft_stream_synchronize(party->stream));
    for (row.local = 0; row.local < num_local; row.local++) {
        const int32_t replica = replica_of(party, row.local);
        row.expert =
            copies->experts[replica] >= 0 ? copies->experts[replica] : copies->base[replica];
        weights_check(party, row);
    }
    return WEFT_OK;
}

/* ---------------------------------------------------------------- gradients */

static int32_t row_elements(const struct shape *shape, int32_t plane)
{
    const struct weights_terms *terms = &shape->weights_terms;
    return (int32_t)(terms->row_bytes[plane] / dtype_bytes(terms->dtype));
}

/* Sums of these have other bits in another order. */
static float gradient(const struct shape *shape, int32_t round, int32_t replica, int32_t i)
{
    float value = (float)((37 * replica + 11 * i + round) % 41 - 20) / 3.0f *
                  (float)(replica % 2 == 0 ? 1 : 1024);
    elements_round(shape->weights_terms.dtype, &value, 1);
    return value;
}

static float gradient_sum(const struct shape *shape, const struct copies *copies, int32_t round,
                          int32_t replica, int32_t i)
{
    const int32_t expert = copies->experts[replica];
    float sum = gradient(shape, round, replica, i);
    if (expert < 0 || find_owner(copies, expert) != replica)
        return sum;
    for (int32_t other = 0; other < copies->num_replicas; other++)
        if (other != replica && copies->experts[other] == expert)
            sum += gradient(shape, round, other, i);
    elements_round(shape->weights_terms.dtype, &sum, 1);
    return sum;
}

static void fill_gradients(struct party *party, int32_t round, int32_t plane, int32_t local)
{
    const struct weights_terms *terms = &party->shape->weights_terms;
    char *row = weights_at(party, 0, plane, local);
    weft__sim_host_writes(row, terms->row_bytes[plane]);
    for (int32_t i = 0; i < row_elements(party->shape, plane); i++)
        element_store(terms->dtype, row, i,
                      gradient(party->shape, round, replica_of(party, local), i));
}

static void check_gradients(struct party *party, const struct copies *copies, int32_t round,
                            int32_t plane, int32_t local)
{
    const struct weights_terms *terms = &party->shape->weights_terms;
    const char *row = weights_at(party, 0, plane, local);
    weft__sim_host_reads(row, terms->row_bytes[plane]);
    for (int32_t i = 0; i < row_elements(party->shape, plane); i++)
        party_expect(
            party, "gradient", i, (double)element_load(terms->dtype, row, i),
            (double)gradient_sum(party->shape, copies, round, replica_of(party, local), i));
}

static weft_result reduce(struct party *party, const struct copies *copies, int32_t round)
{
    const struct weights_terms *terms = &party->shape->weights_terms;
    for (int32_t plane = 0; plane < party->shape->num_planes; plane++)
        for (int32_t local = 0; local < terms->replicas_per_rank; local++)
            fill_gradients(party, round, plane, local);
    TRY(call(party, copies, weft_ep_reduce_copies,
             (weft_ep_copies_args){.dtype = terms->dtype,
                                   .staging = party->staging,
                                   .staging_bytes = terms->staging_bytes}));
    TRY(weft_stream_synchronize(party->stream));
    for (int32_t plane = 0; plane < party->shape->num_planes; plane++)
        for (int32_t local = 0; local < terms->replicas_per_rank; local++)
            check_gradients(party, copies, round, plane, local);
    return WEFT_OK;
}

/* ---------------------------------------------------------------- rounds */

weft_result party_open_copies(struct party *party)
{
    const struct shape *shape = party->shape;
    const size_t choices_bytes =
        (size_t)shape->max_tokens * (size_t)shape->num_topk * sizeof(int64_t);
    TRY(party_alloc_weights(party, 1));
    TRY(party_alloc(party, (struct party_array[]){{&party->choices, choices_bytes},
                                                  {&party->chosen[1], choices_bytes},
                                                  {&party->granules, (size_t)shape->num_experts *
                                                                         WEFT_BALANCE_GRANULES *
                                                                         sizeof *party->granules},
                                                  {0}}));
    party->chosen[0] = party->choices; /* in place */
    return weft_stream_create(party->comm, &party->stream);
}

/* The next round overwrites the rows that reduce has read. */
weft_result party_run_copies(struct party *party, int32_t round)
{
    struct copies copies;
    place(party->shape, round, &copies);
    TRY(enqueue_choose(party, round));
    TRY(fetch(party, &copies, round));
    check_chosen(party, round);
    return reduce(party, &copies, round);
}
