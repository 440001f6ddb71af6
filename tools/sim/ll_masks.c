/* SPDX-License-Identifier: MIT */
#include "ll_masks.h"

#include "ll_results.h"

int ll_has_masks(const struct party *party)
{
    return party->shape->ll_terms.on_missing == WEFT_LL_MASK;
}

static int is_struck(const struct party *party, int32_t rank)
{
    return party->shape == &party->scenario->shape && weft__sim_fault_has_struck() &&
           rank == party->scenario->fault_rank;
}

int ll_can_check(const struct party *party)
{
    return !is_struck(party, party->rank);
}

/* Returns the ranks that missing_ranks tells as lost, beside those that are cut off, which must be
 * told. The rank that was struck may be without any others, whoever has masked it. */
static uint64_t find_lost(struct party *party, const char *what, int32_t round,
                          const int32_t *ranks)
{
    const struct shape *shape = party->shape;
    uint64_t lost = 0;
    weft__sim_host_reads(ranks, (size_t)shape->num_ranks * sizeof *ranks);
    for (int32_t rank = 0; rank < shape->num_ranks; rank++) {
        const int is_cut = (int)(shape->ll_cuts[round][party->rank] >> rank & 1);
        if (!is_cut && ranks[rank] == 1 && (is_struck(party, rank) || !ll_can_check(party)))
            lost |= (uint64_t)1 << rank;
        else
            party_expect(party, what, rank, ranks[rank], is_cut);
    }
    party->ll_has_lost |= lost != 0;
    return lost;
}

/* ---------------------------------------------------------------- masks */

static weft_result set_mask(struct party *party, uint64_t bits,
                            weft_result (*call)(struct party *party, int32_t round), int32_t round)
{
    const int32_t num_ranks = party->shape->num_ranks;
    weft__sim_host_writes(party->ll_mask, (size_t)num_ranks * sizeof *party->ll_mask);
    for (int32_t rank = 0; rank < num_ranks; rank++)
        party->ll_mask[rank] = (int32_t)(bits >> rank & 1);
    TRY(call(party, round));
    return party_synchronize(party);
}

static weft_result mask(struct party *party, int32_t round)
{
    (void)round;
    return weft_ll_mask(party->ll, party->ll_mask, party->stream);
}

static weft_result unmask(struct party *party, int32_t round)
{
    return weft_ll_unmask(party->ll, party->ll_mask, (uint64_t)round, party->stream);
}

static void forget_lost(struct party *party)
{
    for (int32_t i = 0; i < LL_MAX_RESULTS; i++)
        party->ll_lost[i] = (struct ll_lost){0};
}

weft_result ll_begin_round(struct party *party, int32_t round)
{
    forget_lost(party);
    if (!ll_has_masks(party))
        return WEFT_OK;
    if (round > 0)
        TRY(set_mask(party, 0, unmask, round));
    TRY(set_mask(party, party->shape->ll_cuts[round][party->rank], mask, round));
    TRY(weft_ll_query_mask(party->ll, party->ll_mask, party->stream));
    TRY(party_synchronize(party));
    (void)find_lost(party, "mask", round, party->ll_mask);
    return WEFT_OK;
}

weft_result ll_let_leave(struct party *party, int32_t round)
{
    const struct shape *shape = party->shape;
    if (!shape->ll_has_leaver || round != shape->num_rounds - 1)
        return WEFT_OK;
    TRY(weft_comm_host_barrier(party->comm));
    if (party->rank != shape->ll_leaver)
        return WEFT_OK;
    TRY(weft_ll_destroy(party->ll));
    party->ll = NULL;
    return WEFT_OK;
}

/* ---------------------------------------------------------------- what operations tell */

/* Whether any row of the source has been counted: by expert, or in packets. */
static int has_counted(const struct party *party, int32_t result, int32_t source)
{
    const struct shape *shape = party->shape;
    const int32_t *rank_counts = party->ll_arrays[result].rank_counts;
    const int64_t *ranges = party->ll_arrays[result].ranges;
    const int32_t num_local = ll_num_local(shape, party->rank);
    int64_t num_rows = 0;
    if (!ll_is_by_expert(party)) {
        weft__sim_host_reads(&rank_counts[source], sizeof *rank_counts);
        return rank_counts[source] > 0;
    }
    weft__sim_host_reads(ranges, (size_t)(num_local * shape->num_ranks) * sizeof *ranges);
    for (int32_t local = 0; local < num_local; local++)
        num_rows += ranges[local * shape->num_ranks + source] & UINT32_MAX;
    return num_rows > 0;
}

void ll_note_missing_rows(struct party *party, int32_t round, int32_t result)
{
    if (!ll_has_masks(party))
        return;
    const uint64_t told =
        find_lost(party, "missing_ranks of dispatch", round, party->ll_arrays[result].missing_rows);
    struct ll_lost *noted = &party->ll_lost[result];
    noted->half_there = 0;
    for (int32_t rank = 0; rank < party->shape->num_ranks; rank++)
        if ((told >> rank & 1) != 0 && has_counted(party, result, rank))
            noted->half_there |= (uint64_t)1 << rank;
    noted->ranks = told & ~noted->half_there;
}

void ll_note_missing_sums(struct party *party, int32_t round, const struct ll_move *move)
{
    if (!ll_has_masks(party))
        return;
    const uint64_t told = find_lost(party, "missing_ranks of combine", round,
                                    party->ll_arrays[move->result].missing_sums[move->combine]);
    struct ll_lost *noted = &party->ll_lost[move->result];
    const int was_there = noted->ranks == 0 && noted->half_there == 0;
    noted->sums[move->combine] = was_there ? 0 : told;
    noted->in_doubt[move->combine] = was_there ? told : 0;
}
