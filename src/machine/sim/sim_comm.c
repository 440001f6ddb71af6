/* SPDX-License-Identifier: MIT */
/* Communicators of the sim: takes the place of the rendezvous. */
#include "machine/sim/sim_comm.h"

#include <stdlib.h>
#include <string.h>

#include "comm/failure/culprit.h"
#include "comm/rendezvous/bootstrap.h"
#include "machine/sim/sim_nic.h"

struct weft__link *sim_links;
static uint64_t last_id;

/* ---------------------------------------------------------------- meeting */

weft_result weft__unique_id_create(weft_unique_id *id)
{
    memset(id, 0, sizeof *id);
    last_id++;
    memcpy(id->bytes, &last_id, sizeof last_id);
    return WEFT_OK;
}

static struct weft__link *find_link(uint64_t key, int32_t num_ranks)
{
    for (struct weft__link *link = sim_links; link != NULL; link = link->next) {
        if (link->key == key)
            return link;
    }
    struct weft__link *link = calloc(1, sizeof *link);
    if (link == NULL)
        return NULL;
    link->key = key;
    link->num_ranks = num_ranks;
    link->next = sim_links;
    sim_links = link;
    return link;
}

static int all_have_joined(struct sim_fiber *fiber)
{
    const weft_comm *comm = fiber->wait_argument;
    return comm->link->num_joined == comm->num_ranks ||
           atomic_load(&((weft_comm *)(uintptr_t)comm)->status.result) != WEFT_OK;
}

static weft_result set_topology(weft_comm *comm, int32_t num_nodes)
{
    uint64_t node_keys[SIM_MAX_RANKS];
    if (num_nodes == 0)
        num_nodes = 1;
    if (num_nodes < 0 || num_nodes > comm->num_ranks)
        return weft__invalid("num_nodes is %d, allowed are 0..%d", num_nodes, comm->num_ranks);
    /* As many ranks each, or one more: so that splits are not needed for nodes that are not
     * alike. */
    for (int32_t rank = 0; rank < comm->num_ranks; rank++)
        node_keys[rank] = (uint64_t)((int64_t)rank * num_nodes / comm->num_ranks);
    return weft__topology_init(&comm->topology, node_keys, comm->num_ranks);
}

static void note_death(weft_comm *comm, int32_t rank)
{
    weft__status_lose_rank(&comm->status, rank, "rank %d died", rank);
}

/* Deaths from before this rank came. */
static void note_early_deaths(weft_comm *comm)
{
    const struct weft__link *link = comm->link;
    for (int32_t rank = 0; rank < comm->num_ranks; rank++) {
        if (link->has_joined[rank] && sim_world->rank_is_dead[link->world_ranks[rank]])
            note_death(comm, rank);
    }
}

/* Ranks of other nodes are reached by puts only. */
static void map_node(weft_comm *comm)
{
    const int32_t *node_of_rank = comm->topology.node_of_rank;
    for (int32_t rank = 0; rank < comm->num_ranks; rank++) {
        if (node_of_rank[rank] == node_of_rank[comm->rank])
            comm->heap->bases[rank] = comm->link->comms[rank]->heap->bases[rank];
    }
}

static weft_result join(weft_comm *comm)
{
    struct weft__link *link = comm->link;
    link->comms[comm->rank] = comm;
    link->world_ranks[comm->rank] = sim_current()->rank;
    link->is_member[sim_current()->rank] = 1;
    link->has_joined[comm->rank] = 1;
    link->num_joined++;
    note_early_deaths(comm);
    if (!sim_wait_until(all_have_joined, comm, comm->timeout_ms)) {
        int32_t missing = 0;
        while (link->has_joined[missing])
            missing++;
        return weft__error(WEFT_ERROR_TIMEOUT, "rank %d did not come within %u ms", missing,
                           comm->timeout_ms);
    }
    WEFT__TRY(weft__status_check(&comm->status));
    for (int32_t rank = 0; rank < comm->num_ranks; rank++) {
        if (link->comms[rank] == NULL)
            return weft__error(WEFT_ERROR_RANK_FAILED, "rank %d has left the communicator", rank);
    }
    map_node(comm);
    if (sim_world->config->initiator == WEFT__SIM_BY_NIC && comm->topology.num_nodes > 1 &&
        link->nics == NULL)
        sim_nics_make(comm);
    return weft__comm_all_gather(comm, NULL, 0, NULL); /* nobody leaves before all have looked */
}

static weft_result create(uint64_t key, int32_t rank, int32_t num_ranks,
                          const weft_comm_config *config, const struct weft__comm_hooks *hooks,
                          weft_comm **created)
{
    weft_comm *comm = calloc(1, sizeof *comm);
    if (comm == NULL || num_ranks > SIM_MAX_RANKS) {
        free(comm);
        return weft__no_memory("no memory for %d ranks", num_ranks);
    }
    weft__waits_init(&comm->waits);
    pthread_mutex_init(&comm->masked_mutex, NULL);
    weft__standing_init(&comm->standing);
    comm->rank = rank;
    comm->num_ranks = num_ranks;
    comm->key = key;
    comm->hooks = hooks;
    comm->timeout_ms = config->timeout_ms == 0 ? 30000 : config->timeout_ms;
    comm->link = find_link(key, num_ranks);
    /* All the same: the ranks are one process. */
    comm->identities = calloc(SIM_MAX_RANKS, sizeof *comm->identities);
    weft_result result = weft__status_init(&comm->status, num_ranks);
    if (result == WEFT_OK && comm->identities == NULL)
        result = weft__no_memory("no memory for %d ranks", num_ranks);
    if (result == WEFT_OK)
        result = set_topology(comm, config->num_nodes);
    if (result == WEFT_OK)
        result = sim_heap_create(comm);
    if (result == WEFT_OK)
        result = join(comm);
    if (result != WEFT_OK) {
        weft__comm_destroy(comm);
        return result;
    }
    *created = comm;
    return WEFT_OK;
}

weft_result weft__comm_create(const weft_unique_id *id, int32_t rank, int32_t num_ranks,
                              const weft_comm_config *config, const struct weft__comm_hooks *hooks,
                              weft_comm **comm)
{
    uint64_t key;
    memcpy(&key, id->bytes, sizeof key);
    return create(key, rank, num_ranks, config, hooks, comm);
}

weft_result weft__comm_create_from_env(const weft_comm_config *config,
                                       const struct weft__comm_hooks *hooks, weft_comm **comm)
{
    (void)config;
    (void)hooks;
    (void)comm;
    return weft__error(WEFT_ERROR_UNSUPPORTED, "the sim machine has no environment");
}

struct membership {
    int32_t color, key;
};

weft_result weft__comm_split(weft_comm *comm, int32_t color, int32_t key,
                             const weft_comm_config *config, weft_comm **child)
{
    const struct membership own = {color, key};
    struct membership all[SIM_MAX_RANKS] = {{0}};
    WEFT__TRY(weft__comm_all_gather(comm, &own, sizeof own, all));
    const uint64_t child_key =
        ((comm->key * 1000003 + (uint64_t)++comm->num_splits) * 1000003 + (uint64_t)color) |
        (uint64_t)1 << 63;
    int32_t rank = 0, num_ranks = 0;
    for (int32_t other = 0; other < comm->num_ranks; other++) {
        if (all[other].color != color)
            continue;
        num_ranks++;
        rank += all[other].key < key || (all[other].key == key && other < comm->rank);
    }
    *child = NULL;
    return color < 0 ? WEFT_OK : create(child_key, rank, num_ranks, config, comm->hooks, child);
}

weft_result weft__comm_shrink(weft_comm *comm, const int32_t *ranks, int32_t num_ranks,
                              const weft_comm_config *config, weft_comm **child)
{
    uint64_t key = comm->key * 1000003;
    int32_t own = 0;
    for (int32_t i = 0; i < num_ranks; i++) {
        key = (key + (uint64_t)ranks[i] + 1) * 1000003;
        own = ranks[i] == comm->rank ? i : own;
    }
    return create(key | (uint64_t)1 << 62, own, num_ranks, config, comm->hooks, child);
}

weft_result weft__comm_grow(weft_comm *comm, const weft_unique_id *id, int32_t num_ranks,
                            const weft_comm_config *config, weft_comm **grown)
{
    (void)comm;
    (void)id;
    (void)num_ranks;
    (void)config;
    (void)grown;
    return weft__error(WEFT_ERROR_UNSUPPORTED, "the sim machine has no new ranks");
}

weft_result weft__comm_find_cause(weft_comm *comm, weft_result result)
{
    (void)comm;
    return result;
}

void weft__comm_destroy(weft_comm *comm)
{
    struct weft__link *link = comm->link;
    sim_wire_drain(comm);
    link->comms[comm->rank] = NULL;
    link->has_failed |= atomic_load(&comm->status.result) != WEFT_OK;
    link->last_waits[comm->rank] =
        weft__standing_answer(&comm->standing, &comm->waits, &(struct weft__wait){.exchange = 0});
    link->is_member[sim_current()->rank] = 0;
    for (int32_t rank = 0; rank < comm->num_ranks; rank++) {
        if (link->comms[rank] != NULL)
            weft__status_set_rank(&link->comms[rank]->status, comm->rank, WEFT__RANK_LEFT);
    }
    weft__heap_destroy(comm->heap);
    free(comm->identities);
    weft__topology_destroy(&comm->topology);
    weft__status_destroy(&comm->status);
    weft__waits_destroy(&comm->waits);
    weft__standing_destroy(&comm->standing);
    pthread_mutex_destroy(&comm->masked_mutex);
    free(comm);
}

void weft__comm_tell_failure(weft_comm *comm)
{
    const struct weft__status *status = &comm->status;
    for (int32_t rank = 0; rank < comm->num_ranks; rank++) {
        weft_comm *other = comm->link->comms[rank];
        if (other != NULL && other != comm)
            weft__status_fail(&other->status, (weft_result)atomic_load(&status->result),
                              status->failed_rank, "%s", status->message);
    }
}

void weft__comm_share_failure(weft_comm *comm)
{
    weft__comm_tell_failure(comm);
}

void weft__comm_abort(weft_comm *comm)
{
    weft__status_fail(&comm->status, WEFT_ERROR_ABORTED, comm->rank,
                      "rank %d called weft_comm_abort", comm->rank);
    weft__comm_tell_failure(comm);
}

/* The rank that the all-gather still lacks, if this one is in it. */
static int32_t find_ungathered(const struct weft__link *link, int32_t rank)
{
    int32_t missing = 0;
    if (!link->has_gathered[rank])
        return WEFT__NOBODY;
    while (link->has_gathered[missing])
        missing++;
    return missing;
}

/* As through a rendezvous, but at once: only a stalled rank does not answer. */
enum weft__ask_result weft__comm_ask(weft_comm *comm, int32_t rank, const struct weft__wait *wait,
                                     int64_t deadline_ns, struct weft__wait_list *waits)
{
    (void)deadline_ns;
    const struct weft__link *link = comm->link;
    if (atomic_load(&comm->status.result) != WEFT_OK)
        return WEFT__ASK_IMPOSSIBLE;
    if (sim_world->now_ns < sim_world->rank_stalled_until_ns[link->world_ranks[rank]])
        return WEFT__ASK_SILENT;
    weft_comm *asked = link->comms[rank];
    *waits = asked != NULL ? weft__standing_answer(&asked->standing, &asked->waits, wait)
                           : link->last_waits[rank];
    const struct weft__wait gather = {.rank = find_ungathered(link, rank),
                                      .call = asked != NULL ? asked->step.call : 0};
    if (waits->num_waits == 0 && gather.rank != WEFT__NOBODY)
        weft__wait_list_add(waits, &gather);
    return WEFT__ASK_ANSWERED;
}

int32_t weft__comm_rank_of_rendezvous(const weft_comm *comm)
{
    (void)comm;
    return WEFT__NOBODY;
}

void sim_comm_lose_rank(int32_t world_rank)
{
    for (struct weft__link *link = sim_links; link != NULL; link = link->next) {
        for (int32_t rank = 0; rank < link->num_ranks; rank++) {
            if (link->comms[rank] == NULL || link->world_ranks[rank] != world_rank)
                continue;
            for (int32_t other = 0; other < link->num_ranks; other++) {
                if (other == rank || link->comms[other] == NULL)
                    continue;
                note_death(link->comms[other], rank);
            }
        }
    }
}

/* ---------------------------------------------------------------- all-gather */

struct gather_wait {
    weft_comm *comm;
    uint64_t number;
};

static int gather_is_over(struct sim_fiber *fiber)
{
    const struct gather_wait *wait = fiber->wait_argument;
    return wait->comm->link->gather_number != wait->number ||
           atomic_load(&wait->comm->status.result) != WEFT_OK;
}

/* Whoever has failed before the exchange, or is in another call, is told of by all. */
static weft_result check_contributions(const weft_comm *comm, struct weft__share *share)
{
    const struct sim_contribution *all = comm->link->contributions;
    for (int32_t rank = 0; rank < comm->num_ranks; rank++) {
        if (!weft__call_step_is_same(all[rank].step, share->step))
            return weft__error(WEFT_ERROR_MISMATCH,
                               "ranks disagree on what to call: rank %d called %s and rank %d "
                               "called %s",
                               comm->rank, weft__call_name(share->step.call), rank,
                               weft__call_name(all[rank].step.call));
    }
    for (int32_t rank = 0; rank < comm->num_ranks; rank++) {
        if (all[rank].result == WEFT_OK)
            continue;
        share->failed_rank = rank;
        return weft__error(all[rank].result, "%s", (const char *)all[rank].blob);
    }
    for (int32_t rank = 0; rank < comm->num_ranks; rank++) {
        if (all[rank].bytes != share->bytes)
            return weft__error(WEFT_ERROR_MISMATCH,
                               "%s: ranks disagree on bytes: %zu on rank %d and %zu on rank %d",
                               weft__call_name(share->step.call), share->bytes, comm->rank,
                               all[rank].bytes, rank);
    }
    return WEFT_OK;
}

static weft_result take_blobs(const weft_comm *comm, struct weft__share *share)
{
    WEFT__TRY(check_contributions(comm, share));
    for (int32_t rank = 0; rank < comm->num_ranks && share->bytes > 0; rank++)
        memcpy((char *)share->recv + (size_t)rank * share->bytes,
               comm->link->contributions[rank].blob, share->bytes);
    return WEFT_OK;
}

static void end_gather(struct weft__link *link)
{
    link->num_gathered = 0;
    link->gather_number++;
    memset(link->has_gathered, 0, sizeof link->has_gathered);
}

/* The rank that does not come may wait for another one itself. */
static void fail_gather(weft_comm *comm)
{
    const struct weft__wait wait = {.rank = find_ungathered(comm->link, comm->rank)};
    struct weft__culprit culprit;
    weft__comm_find_culprit(comm, &wait, &culprit);
    weft__status_fail(&comm->status, WEFT_ERROR_TIMEOUT, culprit.rank,
                      "rank %d did not come within %u ms; %s", wait.rank, comm->timeout_ms,
                      culprit.story);
}

/* Two rounds: nobody may overwrite what others have not read. */
static weft_result gather_round(weft_comm *comm)
{
    struct weft__link *link = comm->link;
    struct gather_wait wait = {comm, link->gather_number};
    sim_release(&link->clocks[wait.number % 2]);
    link->has_gathered[comm->rank] = 1;
    if (++link->num_gathered == comm->num_ranks)
        end_gather(link);
    else if (!sim_wait_until(gather_is_over, &wait, comm->timeout_ms))
        fail_gather(comm);
    sim_acquire(&link->clocks[wait.number % 2]);
    return weft__status_check(&comm->status);
}

weft_result weft__comm_exchange(weft_comm *comm, struct weft__share *share)
{
    struct weft__link *link = comm->link;
    struct sim_contribution *own = &link->contributions[comm->rank];
    const int is_fit = share->result == WEFT_OK;
    const size_t bytes = is_fit ? share->bytes : strlen(share->reason) + 1;
    WEFT__TRY(weft__status_check(&comm->status));
    free(own->blob);
    *own = (struct sim_contribution){
        .blob = malloc(bytes + 1), .bytes = bytes, .step = share->step, .result = share->result};
    WEFT__CHECK_MEMORY(own->blob, "no memory to gather %zu bytes", bytes);
    if (bytes > 0)
        memcpy(own->blob, is_fit ? share->send : share->reason, bytes);
    WEFT__TRY(gather_round(comm));
    const weft_result result = take_blobs(comm, share);
    WEFT__TRY(gather_round(comm));
    return result;
}

void sim_comm_reset(void)
{
    while (sim_links != NULL) {
        struct weft__link *link = sim_links;
        sim_links = link->next;
        sim_nics_free(link);
        for (int32_t rank = 0; rank < SIM_MAX_RANKS; rank++) {
            free(link->contributions[rank].blob);
            if (link->comms[rank] != NULL) { /* of a rank that was killed */
                weft__heap_destroy(link->comms[rank]->heap);
                free(link->comms[rank]->identities);
                weft__topology_destroy(&link->comms[rank]->topology);
                weft__status_destroy(&link->comms[rank]->status);
                weft__waits_destroy(&link->comms[rank]->waits);
                weft__standing_destroy(&link->comms[rank]->standing);
                free(link->comms[rank]);
            }
        }
        free(link);
    }
    sim_heap_reset();
}

/* There is no rendezvous that could be asked. */
weft_result weft__comm_look(const weft_comm *comm, struct weft__observed_rank **ranks,
                            int32_t *num_ranks)
{
    (void)comm;
    (void)ranks;
    (void)num_ranks;
    return WEFT_ERROR_UNSUPPORTED;
}
