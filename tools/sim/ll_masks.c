/* SPDX-License-Identifier: MIT */
#include "ll_masks.h"

#include <string.h>

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

/* Where a node's ranks begin. */
static int32_t first_of(const struct shape *shape, int32_t node)
{
    int32_t rank = 0;
    while (rank < shape->num_ranks && shape_node_of(shape, rank) < node)
        rank++;
    return rank;
}

/* Who relays what `sender` sends to another node. */
static int32_t partner_of(const struct shape *shape, int32_t sender, int32_t node)
{
    const int32_t first = first_of(shape, node), num_local = first_of(shape, node + 1) - first;
    const int32_t idx = sender - first_of(shape, shape_node_of(shape, sender));
    return first + (num_local > 0 ? idx % num_local : 0);
}

/* Whether rows of one rank may not reach another one though neither masks the other: for want of who relays them. Who is
 * cut off from his relay sends otherwise. */
static int may_lack(const struct party *party, int32_t round, int32_t source, int32_t receiver)
{
    const struct shape *shape = party->shape;
    const int32_t node = shape_node_of(shape, receiver);
    if (shape->ll_terms.route == WEFT_LL_STRAIGHT || shape_node_of(shape, source) == node)
        return 0;
    const int32_t partner = partner_of(shape, source, node);
    const uint64_t cuts = shape->ll_cuts[round][partner];
    return ((cuts >> receiver & 1) != 0 && (cuts >> source & 1) == 0) ||
           is_struck(party, partner) || is_struck(party, source) || is_struck(party, receiver);
}

/* What missing_ranks has told. */
struct told {
    uint64_t lost;    /* beside those that are cut off, which must be told */
    uint64_t lacking; /* 2 */
};

/* Of rows, or of answers to this rank's own. The rank that was struck may be without any others, whoever has masked
 * it. */
enum of { OF_ROWS, OF_ANSWERS };
static struct told find_lost(struct party *party, const char *what, int32_t round, enum of of,
                             const int32_t *ranks)
{
    enum { MASKED = 1, LACKING = 2 };
    const struct shape *shape = party->shape;
    const int32_t own = party->rank;
    struct told told = {0, 0};
    weft__sim_host_reads(ranks, (size_t)shape->num_ranks * sizeof *ranks);
    for (int32_t rank = 0; rank < shape->num_ranks; rank++) {
        const int is_cut = (int)(shape->ll_cuts[round][own] >> rank & 1);
        const int32_t source = of == OF_ROWS ? rank : own, receiver = of == OF_ROWS ? own : rank;
        if (!is_cut && ranks[rank] == MASKED && (is_struck(party, rank) || !ll_can_check(party)))
            told.lost |= (uint64_t)1 << rank;
        else if (!is_cut && ranks[rank] == LACKING && may_lack(party, round, source, receiver))
            told.lacking |= (uint64_t)1 << rank;
        else
            party_expect(party, what, rank, ranks[rank], is_cut);
    }
    party->ll_has_lost |= told.lost != 0;
    return told;
}

/* ---------------------------------------------------------------- masks */

static weft_result set_mask(struct party *party, uint64_t bits,
                            weft_result (*call)(struct party *party, int32_t round), int32_t round)
{
    const int32_t num_ranks = party->shape->num_ranks;
    weft__sim_host_writes(party->ll_mask, (size_t)num_ranks * sizeof *party->ll_mask);
    for (int32_t rank = 0; rank < num_ranks; rank++)
        party->ll_mask[rank] = (int32_t)(bits >> rank & 1);
    PARTY_TRY(call(party, round));
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
    for (int32_t rank = 0; rank < SCENARIO_MAX_RANKS; rank++)
        party->ll_warnings[rank] = -1;
}

weft_result ll_begin_round(struct party *party, int32_t round)
{
    forget_lost(party);
    if (!ll_has_masks(party))
        return WEFT_OK;
    if (round > 0)
        PARTY_TRY(set_mask(party, 0, unmask, round));
    PARTY_TRY(set_mask(party, party->shape->ll_cuts[round][party->rank], mask, round));
    PARTY_TRY(weft_ll_query_mask(party->ll, party->ll_mask, party->stream));
    PARTY_TRY(party_synchronize(party));
    (void)find_lost(party, "mask", round, OF_ROWS, party->ll_mask);
    return WEFT_OK;
}

weft_result ll_let_leave(struct party *party, int32_t round)
{
    const struct shape *shape = party->shape;
    if (!shape->ll_has_leaver || round != shape->num_rounds - 1)
        return WEFT_OK;
    PARTY_TRY(weft_host_barrier(party->comm));
    if (party->rank != shape->ll_leaver)
        return WEFT_OK;
    PARTY_TRY(weft_ll_destroy(party->ll));
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
    const struct told told = find_lost(party, "missing_ranks of dispatch", round, OF_ROWS,
                                       party->ll_arrays[result].missing_rows);
    struct ll_lost *noted = &party->ll_lost[result];
    noted->half_there = 0;
    for (int32_t rank = 0; rank < party->shape->num_ranks; rank++)
        if ((told.lost >> rank & 1) != 0 && has_counted(party, result, rank))
            noted->half_there |= (uint64_t)1 << rank;
    noted->ranks = told.lost & ~noted->half_there;
    noted->lacking = told.lacking;
}

/* Who has been told that another rank lacks its rows sends them so that it does not. */
static void check_warnings(struct party *party, int32_t round, const struct ll_move *move,
                           uint64_t lacking)
{
    const struct ll_move *moves = party->shape->ll_scripts[round].moves;
    int32_t sent = 0;
    while (moves[sent].step != LL_SEND_ROWS || moves[sent].result != move->result)
        sent++;
    for (int32_t rank = 0; rank < party->shape->num_ranks; rank++) {
        if ((lacking >> rank & 1) == 0)
            continue;
        if (party->ll_warnings[rank] >= 0 && party->ll_warnings[rank] < sent)
            party_complain(party, "rank %d lacks rows that have been sent since it told so", rank);
        party->ll_warnings[rank] = (int32_t)(move - moves);
    }
}

void ll_note_missing_sums(struct party *party, int32_t round, const struct ll_move *move)
{
    if (!ll_has_masks(party))
        return;
    const struct told told = find_lost(party, "missing_ranks of combine", round, OF_ANSWERS,
                                       party->ll_arrays[move->result].missing_sums[move->combine]);
    struct ll_lost *noted = &party->ll_lost[move->result];
    const int was_there = noted->ranks == 0 && noted->half_there == 0;
    check_warnings(party, round, move, told.lacking);
    noted->sums[move->combine] = was_there ? 0 : told.lost;
    noted->in_doubt[move->combine] = told.lacking | (was_there ? told.lost : 0);
}
