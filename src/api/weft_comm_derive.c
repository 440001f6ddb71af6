/* SPDX-License-Identifier: MIT */
/* Communicators that ranks make out of one that they have. */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/destroy.h"
#include "api/new_comm.h"
#include "api/structs.h"
#include "comm/host/thread.h"
#include "machine/host.h"

static weft_result note_parent_ranks(weft_comm *created, int32_t own)
{
    weft_result result;
    created->parent_ranks = weft__comm_gather_new(created, WEFT_OK, &own, sizeof own, &result);
    return result;
}

weft_result weft_comm_split(weft_comm *comm, int32_t color, int32_t key,
                            const weft_comm_config *user_config, weft_comm **child)
{
    weft_comm_config config;
    weft_comm *created;
    WEFT__TRY(weft__check_may_wait(__func__));
    WEFT__TRY(weft__object_check(WEFT__KIND_COMM, comm, "comm"));
    WEFT__TRY(weft__check_not_null(child, "child"));
    WEFT__TRY(weft__check_range(color, -1, INT32_MAX, "color"));
    WEFT__TRY(weft__read_comm_config(user_config, &config));
    weft__comm_enter(comm, WEFT__CALL_COMM_SPLIT);
    WEFT__TRY(weft__comm_split(comm, color, key, &config, &created));
    *child = NULL;
    if (created == NULL)
        return WEFT_OK;
    const weft_result result = note_parent_ranks(created, comm->rank);
    if (result == WEFT_OK)
        return weft__comm_find_cause(comm, weft__finish_comm(created, child));
    weft__comm_end(created);
    return weft__comm_find_cause(comm, result);
}

int32_t weft_comm_parent_rank(const weft_comm *comm, int32_t rank)
{
    const int is_known = weft__object_exists(WEFT__KIND_COMM, comm) && comm->parent_ranks != NULL &&
                         rank >= 0 && rank < comm->num_ranks;
    return is_known ? comm->parent_ranks[rank] : -1;
}

struct split {
    int64_t first, stride, num_ranks;
};
static const struct weft__term terms[] = {
    {WEFT__TERM(struct split, first)},
    {WEFT__TERM(struct split, stride)},
    {WEFT__TERM(struct split, num_ranks)},
};

static weft_result check_split(const weft_comm *comm, const struct split *split)
{
    WEFT__TRY(weft__check_range(split->first, 0, comm->num_ranks - 1, "first"));
    WEFT__TRY(weft__check_range(split->stride, 1, INT32_MAX, "stride"));
    return weft__check_range(split->num_ranks, 1,
                             (comm->num_ranks - 1 - split->first) / split->stride + 1, "num_ranks");
}

static weft_result agree_on_split(weft_comm *comm, const struct split *split)
{
    weft_result result;
    struct split *splits = weft__comm_gather_new(comm, WEFT_OK, split, sizeof *split, &result);
    if (splits != NULL)
        result = weft__comm_compare(comm, splits, sizeof *splits, terms, 3);
    free(splits);
    return result;
}

weft_result weft_comm_split_strided(weft_comm *comm, int32_t first, int32_t stride,
                                    int32_t num_ranks, const weft_comm_config *config,
                                    weft_comm **child)
{
    const struct split split = {first, stride, num_ranks};
    weft_comm_config checked;
    WEFT__TRY(weft__check_may_wait(__func__));
    WEFT__TRY(weft__object_check(WEFT__KIND_COMM, comm, "comm"));
    WEFT__TRY(weft__check_not_null(child, "child"));
    WEFT__TRY(check_split(comm, &split));
    WEFT__TRY(weft__read_comm_config(config, &checked));
    weft__comm_enter(comm, WEFT__CALL_COMM_SPLIT_STRIDED);
    WEFT__TRY(agree_on_split(comm, &split));
    const int32_t distance = comm->rank - first;
    const int is_member = distance >= 0 && distance % stride == 0 && distance / stride < num_ranks;
    return weft_comm_split(comm, is_member ? 0 : -1, 0, config, child);
}

static weft_result check_excluded(const weft_comm *comm, const int32_t *excluded,
                                  int32_t num_excluded)
{
    for (int32_t i = 0; i < num_excluded; i++) {
        if (excluded[i] < 0 || excluded[i] >= comm->num_ranks)
            return weft__invalid("excluded[%d] is %d, allowed are 0..%d", i, excluded[i],
                                 comm->num_ranks - 1);
        if (excluded[i] == comm->rank)
            return weft__invalid("excluded[%d] is %d, which is the caller", i, comm->rank);
        for (int32_t k = 0; k < i; k++)
            if (excluded[k] == excluded[i])
                return weft__invalid("excluded[%d] is %d, which is there twice", i, excluded[i]);
    }
    return WEFT_OK;
}

/* Those that are not excluded, and have not died as far as this rank knows. Returns how many. */
static int32_t list_rest(const weft_comm *comm, const int32_t *excluded, int32_t num_excluded,
                         int32_t *ranks)
{
    int32_t num_ranks = 0;
    for (int32_t rank = 0; rank < comm->num_ranks; rank++) {
        int is_out = atomic_load(&comm->status.rank_states[rank]) == WEFT__RANK_DEAD;
        for (int32_t i = 0; i < num_excluded; i++)
            is_out |= excluded[i] == rank;
        if (!is_out)
            ranks[num_ranks++] = rank;
    }
    return num_ranks;
}

static weft_result shrink_to(weft_comm *comm, const int32_t *ranks, int32_t num_ranks,
                             const weft_comm_config *config, weft_comm **child)
{
    weft_comm *created;
    int32_t *parent_ranks = malloc((size_t)comm->num_ranks * sizeof *parent_ranks);
    WEFT__CHECK_MEMORY(parent_ranks, "no memory for %d ranks", comm->num_ranks);
    const weft_result result = weft__comm_shrink(comm, ranks, num_ranks, config, &created);
    if (result != WEFT_OK) {
        free(parent_ranks);
        return result;
    }
    memcpy(parent_ranks, ranks, (size_t)num_ranks * sizeof *ranks);
    created->parent_ranks = parent_ranks;
    return weft__finish_comm(created, child);
}

/* That is where the ranks meet. */
static weft_result check_rendezvous(weft_comm *comm)
{
    const int32_t rank = weft__comm_rank_of_rendezvous(comm);
    if (rank == WEFT__NOBODY || atomic_load(&comm->status.rank_states[rank]) != WEFT__RANK_DEAD)
        return WEFT_OK;
    return weft__error(WEFT_ERROR_RANK_FAILED, "rank %d died, and with it the rendezvous", rank);
}

/* Fills `ranks`. If one of them has died meanwhile, all hear of it soon, and try without it. */
static weft_result shrink(weft_comm *comm, const int32_t *excluded, int32_t num_excluded,
                          int32_t *ranks, const weft_comm_config *config, weft_comm **child)
{
    enum { NEWS_MS = 1000 };
    char message[WEFT__MAX_TEXT_BYTES];
    for (;;) {
        WEFT__TRY(check_rendezvous(comm));
        const int32_t num_ranks = list_rest(comm, excluded, num_excluded, ranks);
        const struct weft__watch watch = {&comm->status, ranks, num_ranks};
        const weft_result result = shrink_to(comm, ranks, num_ranks, config, child);
        if (result != WEFT_ERROR_RANK_FAILED && result != WEFT_ERROR_SYSTEM)
            return result;
        snprintf(message, sizeof message, "%s", weft__last_error());
        const int64_t deadline_ns = weft__now_ns() + NEWS_MS * WEFT__NS_PER_MS;
        while (weft__watch_check(&watch) == WEFT_OK && weft__now_ns() < deadline_ns)
            poll(NULL, 0, 1);
        if (weft__watch_check(&watch) == WEFT_OK)
            return weft__error(result, "%s", message);
    }
}

weft_result weft_comm_shrink(weft_comm *comm, const int32_t *excluded, int32_t num_excluded,
                             const weft_comm_config *user_config, weft_comm **child)
{
    weft_comm_config config;
    WEFT__TRY(weft__check_may_wait(__func__));
    WEFT__TRY(weft__object_check(WEFT__KIND_COMM, comm, "comm"));
    WEFT__TRY(weft__check_not_null(child, "child"));
    WEFT__TRY(weft__check_range(num_excluded, 0, comm->num_ranks - 1, "num_excluded"));
    WEFT__TRY(weft__check_array(excluded, num_excluded, "excluded"));
    WEFT__TRY(check_excluded(comm, excluded, num_excluded));
    WEFT__TRY(weft__read_comm_config(user_config, &config));
    int32_t *ranks = malloc((size_t)comm->num_ranks * sizeof *ranks);
    WEFT__CHECK_MEMORY(ranks, "no memory for %d ranks", comm->num_ranks);
    weft__comm_enter(comm, WEFT__CALL_COMM_SHRINK);
    const weft_result result = shrink(comm, excluded, num_excluded, ranks, &config, child);
    free(ranks);
    return result;
}

weft_result weft_comm_grow(weft_comm *comm, const weft_unique_id *id, int32_t num_ranks,
                           const weft_comm_config *user_config, weft_comm **grown)
{
    weft_comm_config config;
    weft_comm *created;
    WEFT__TRY(weft__check_may_wait(__func__));
    WEFT__TRY(weft__object_check(WEFT__KIND_COMM, comm, "comm"));
    WEFT__TRY(weft__check_not_null(grown, "grown"));
    WEFT__TRY(weft__check_range(num_ranks, comm->num_ranks, WEFT__MAX_RANKS, "num_ranks"));
    WEFT__TRY(weft__read_comm_config(user_config, &config));
    weft__comm_enter(comm, WEFT__CALL_COMM_GROW);
    WEFT__TRY(weft__comm_grow(comm, id, num_ranks, &config, &created));
    return weft__begin_job(created, grown);
}
