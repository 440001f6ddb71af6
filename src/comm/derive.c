/* SPDX-License-Identifier: MIT */
/* Communicators that ranks make out of one that they have. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/create.h"
#include "comm/host/error.h"
#include "comm/host/thread.h"

/* ---------------------------------------------------------------- splitting */

struct choice {
    int32_t color, key;
};

/* This rank's place among those of its color, by key, then by rank. */
static void place_in_child(const struct choice *choices, const weft_comm *comm,
                           struct weft__origin *child)
{
    const struct choice *mine = &choices[comm->rank];
    child->num_ranks = 1;
    for (int32_t rank = 0; rank < comm->num_ranks; rank++) {
        const struct choice *other = &choices[rank];
        if (rank == comm->rank || other->color != mine->color)
            continue;
        child->num_ranks++;
        child->rank += other->key < mine->key || (other->key == mine->key && rank < comm->rank);
    }
}

weft_result weft__comm_find_cause(weft_comm *comm, weft_result result)
{
    enum { NEWS_MS = 1000 };
    if (result != WEFT_ERROR_RANK_FAILED && result != WEFT_ERROR_SYSTEM)
        return result;
    char message[WEFT__MAX_TEXT_BYTES];
    snprintf(message, sizeof(message), "%s", weft__last_error());
    weft_result cause = weft__status_await_failure(&comm->status, NEWS_MS * WEFT__NS_PER_MS);
    return cause != WEFT_OK ? cause : weft__error(result, "%s", message);
}

weft_result weft__comm_split(weft_comm *comm, int32_t color, int32_t key,
                             const weft_comm_config *config, weft_comm **child)
{
    struct weft__origin origin = {.point = comm->point,
                                  .parent = comm,
                                  .messenger = comm,
                                  .watch = {.status = &comm->status},
                                  .hooks = comm->hooks};
    const struct choice mine = {.color = color, .key = key};
    weft_result result = weft__origin_read_config(&origin, config);
    if (result != WEFT_OK)
        return result;
    struct choice *choices = weft__comm_gather_new(comm, WEFT_OK, &mine, sizeof(mine), &result);
    if (choices == NULL)
        return result;
    place_in_child(choices, comm, &origin);
    free(choices);
    const int32_t names[2] = {comm->num_splits++, color};
    origin.key = weft__hash(weft__hash(WEFT__HASH_SEED, &comm->key, sizeof(comm->key)), names,
                            sizeof(names));
    if (color < 0) {
        *child = NULL;
        return WEFT_OK;
    }
    result = weft__origin_read_nodes(&origin);
    if (result == WEFT_OK)
        return weft__comm_find_cause(comm, weft__origin_create(&origin, child));
    weft__origin_withdraw(&origin, result);
    return result;
}

/* ---------------------------------------------------------------- shrinking */

/* How many communicators ranks have shrunk to. The ranks of each list count for themselves, since
 * others may lack the call. */
struct weft__shrunk {
    uint64_t ranks_key;
    uint64_t count;
};

/* The entry of these ranks, new if there is none; NULL: no memory. */
static struct weft__shrunk *find_shrunk(weft_comm *comm, uint64_t ranks_key)
{
    for (int32_t i = 0; i < comm->num_shrunk; i++)
        if (comm->shrunk[i].ranks_key == ranks_key)
            return &comm->shrunk[i];
    struct weft__shrunk *longer =
        realloc(comm->shrunk, (size_t)(comm->num_shrunk + 1) * sizeof(*longer));
    if (longer == NULL)
        return NULL;
    comm->shrunk = longer;
    longer[comm->num_shrunk] = (struct weft__shrunk){.ranks_key = ranks_key};
    return &longer[comm->num_shrunk++];
}

weft_result weft__comm_shrink(weft_comm *comm, const int32_t *ranks, int32_t num_ranks,
                              const weft_comm_config *config, weft_comm **child)
{
    struct weft__origin origin = {.point = comm->point,
                                  .num_ranks = num_ranks,
                                  .parent = comm,
                                  .watch = {&comm->status, ranks, num_ranks},
                                  .hooks = comm->hooks};
    WEFT__TRY(weft__origin_read_config(&origin, config));
    WEFT__TRY(weft__origin_read_nodes(&origin));
    while (ranks[origin.rank] != comm->rank)
        origin.rank++;
    uint64_t key = weft__hash(WEFT__HASH_SEED, &comm->key, sizeof(comm->key));
    key = weft__hash(key, "shrink", 6); /* no split has this key */
    key = weft__hash(key, ranks, (size_t)num_ranks * sizeof(*ranks));
    struct weft__shrunk *shrunk = find_shrunk(comm, key);
    WEFT__CHECK_MEMORY(shrunk, "no memory to shrink a communicator");
    origin.key = weft__hash(key, &shrunk->count, sizeof(shrunk->count));
    const weft_result result = weft__origin_create(&origin, child);
    shrunk->count += result == WEFT_OK;
    return result;
}

/* ---------------------------------------------------------------- growing */

struct wish {
    weft_unique_id id; /* if has_id */
    int64_t has_id;
    int64_t num_ranks;
};

/* The id that ranks give, which must be the same one. */
static weft_result find_id(const weft_comm *comm, const struct wish *wishes, weft_unique_id *id)
{
    static const struct weft__term terms[] = {{WEFT__TERM(struct wish, num_ranks)}};
    int32_t first = WEFT__NOBODY;
    WEFT__TRY(weft__comm_compare(comm, wishes, sizeof(*wishes), terms, 1));
    for (int32_t rank = 0; rank < comm->num_ranks; rank++) {
        if (!wishes[rank].has_id)
            continue;
        if (first == WEFT__NOBODY)
            first = rank;
        if (memcmp(&wishes[rank].id, &wishes[first].id, sizeof(*id)) != 0)
            return weft__error(WEFT_ERROR_MISMATCH,
                               "ranks disagree on id: rank %d and rank %d give different ones",
                               first, rank);
    }
    if (first == WEFT__NOBODY)
        return weft__invalid("id is NULL on all ranks; one of them must give it");
    *id = wishes[first].id;
    return WEFT_OK;
}

/* Where the ranks meet. At the rendezvous of comm, new ranks that wait there can be told of a
 * failure. */
static weft_result aim(struct weft__origin *origin, weft_comm *comm, const weft_unique_id *id)
{
    WEFT__TRY(weft__meeting_point_from_id(&origin->point, id));
    origin->key = weft__unique_id_key(id);
    if (memcmp(origin->point.nonce, comm->point.nonce, sizeof(comm->point.nonce)) == 0)
        origin->messenger = comm;
    return WEFT_OK;
}

static weft_result agree_on_id(weft_comm *comm, weft_result mine, const struct wish *wish,
                               weft_unique_id *id)
{
    weft_result result;
    struct wish *wishes = weft__comm_gather_new(comm, mine, wish, sizeof(*wish), &result);
    if (wishes != NULL)
        result = find_id(comm, wishes, id);
    free(wishes);
    return result;
}

/* Ranks of comm keep their numbers. The new ones have none there. */
static int32_t *list_parent_ranks(const weft_comm *comm, int32_t num_ranks)
{
    int32_t *parent_ranks = malloc((size_t)num_ranks * sizeof(*parent_ranks));
    for (int32_t rank = 0; parent_ranks != NULL && rank < num_ranks; rank++)
        parent_ranks[rank] = rank < comm->num_ranks ? rank : WEFT__NOBODY;
    return parent_ranks;
}

/* Without a parent in its origin, since new ranks have none: all make it alike. */
weft_result weft__comm_grow(weft_comm *comm, const weft_unique_id *id, int32_t num_ranks,
                            const weft_comm_config *config, weft_comm **grown)
{
    struct weft__origin origin = {.rank = comm->rank,
                                  .num_ranks = num_ranks,
                                  .watch = {.status = &comm->status},
                                  .hooks = comm->hooks};
    struct wish wish = {.has_id = id != NULL, .num_ranks = num_ranks};
    int32_t *parent_ranks = list_parent_ranks(comm, num_ranks);
    weft_result result = WEFT_OK;
    if (id != NULL) { /* first, so that new ranks are told if what follows fails */
        wish.id = *id;
        result = aim(&origin, comm, id);
    }
    if (result == WEFT_OK)
        result = weft__origin_read_config(&origin, config);
    if (result == WEFT_OK)
        result = weft__origin_read_nodes(&origin);
    if (result == WEFT_OK && parent_ranks == NULL)
        result = weft__no_memory("no memory for %d ranks", num_ranks);
    result = agree_on_id(comm, result, &wish, &wish.id);
    if (result == WEFT_OK)
        result = aim(&origin, comm, &wish.id);
    if (result != WEFT_OK)
        weft__origin_withdraw(&origin, result);
    else
        result = weft__origin_create(&origin, grown);
    if (result == WEFT_ERROR_SYSTEM) /* perhaps the rendezvous died with a rank */
        result = weft__comm_find_cause(comm, result);
    if (result == WEFT_OK)
        (*grown)->parent_ranks = parent_ranks;
    else
        free(parent_ranks);
    return result;
}
