/* SPDX-License-Identifier: MIT */
#include "comm/create.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "comm/heap/heap_kind.h"
#include "comm/host/error.h"
#include "comm/host/log.h"
#include "comm/host/settings.h"
#include "comm/host/unknown_variables.h"
#include "comm/rendezvous/bootstrap.h"
#include "comm/rendezvous/fd_exchange.h"
#include "comm/rendezvous/heartbeat.h"
#include "comm/rendezvous/identity.h"
#include "comm/rendezvous/link.h"

/* ---------------------------------------------------------------- configuration */

/* Also of what this communicator will not ask for. */
static weft_result check_settings(void)
{
    const char *secret = weft__setting_text(WEFT__SETTING_SECRET);
    uint8_t bytes[WEFT__NONCE_BYTES];
    weft__warn_of_unknown_variables();
    WEFT__TRY(weft__settings_check());
    return secret == NULL
               ? WEFT_OK
               : weft__secret_from_hex(bytes, weft__settings[WEFT__SETTING_SECRET].name, secret);
}

weft_result weft__origin_read_config(struct weft__origin *origin, const weft_comm_config *config)
{
    int64_t timeout_ms = 0, num_streams = 0;
    weft__log_configure();
    origin->config = *config;
    weft_result result = check_settings();
    if (result == WEFT_OK)
        result = weft__setting_number(WEFT__SETTING_TIMEOUT_MS, &timeout_ms);
    if (result == WEFT_OK && origin->config.timeout_ms == 0)
        origin->config.timeout_ms = (uint32_t)timeout_ms;
    if (result == WEFT_OK)
        result = weft__setting_number(WEFT__SETTING_STREAMS, &num_streams);
    if (result == WEFT_OK && origin->config.num_streams == 0)
        origin->config.num_streams =
            origin->parent != NULL ? origin->parent->num_streams : (int32_t)num_streams;
    const uint64_t max_bytes = origin->config.heap_max_bytes;
    if (result == WEFT_OK && max_bytes > 0 && origin->config.heap_bytes > max_bytes)
        return weft__invalid("heap_bytes is %" PRIu64
                             "; it must be at most heap_max_bytes, %" PRIu64,
                             origin->config.heap_bytes, max_bytes);
    const uint64_t largest_bytes = UINT64_C(1) << 46; /* half of the addresses of a process */
    if (result == WEFT_OK &&
        (max_bytes > largest_bytes || origin->config.heap_bytes > largest_bytes))
        return weft__invalid("heap_bytes is %" PRIu64 ", heap_max_bytes is %" PRIu64
                             "; at most %" PRIu64 " are allowed",
                             origin->config.heap_bytes, max_bytes, largest_bytes);
    return result;
}

/* The environment declares nodes for whole worlds; a split keeps the nodes of its parent. */
weft_result weft__origin_read_nodes(struct weft__origin *origin)
{
    int64_t num_nodes = 0;
    const char *name = "num_nodes";
    if (origin->config.num_nodes != 0) {
        num_nodes = origin->config.num_nodes;
    } else if (origin->parent == NULL) {
        name = weft__settings[WEFT__SETTING_NODES].name;
        WEFT__TRY(weft__setting_number(WEFT__SETTING_NODES, &num_nodes));
    }
    if (num_nodes < 0 || (num_nodes > 0 && origin->num_ranks % num_nodes != 0))
        return weft__invalid("%s is %" PRId64 "; it must divide the number of ranks, which is %d",
                             name, num_nodes, origin->num_ranks);
    origin->num_nodes = (int32_t)num_nodes;
    return WEFT_OK;
}

/* ---------------------------------------------------------------- creation */

/* The key of this rank's node: its host, or within a split, its node of the parent. */
static uint64_t node_key(const struct weft__origin *origin, const struct weft__identity *identity)
{
    if (origin->parent == NULL)
        return identity->host_key;
    const weft_comm *parent = origin->parent;
    int32_t node = parent->topology.node_of_rank[parent->rank];
    return weft__hash(parent->key, &node, sizeof(node));
}

static weft_result init_topology(weft_comm *comm, const struct weft__origin *origin)
{
    const struct weft__identity *table = comm->identities;
    uint64_t *keys = malloc((size_t)comm->num_ranks * sizeof(*keys));
    WEFT__CHECK_MEMORY(keys, "no memory for %d ranks", comm->num_ranks);
    weft_result result = WEFT_OK;
    int32_t node_size = origin->num_nodes > 0 ? comm->num_ranks / origin->num_nodes : 1;
    for (int32_t rank = 0; rank < comm->num_ranks; rank++) {
        int32_t first = rank - rank % node_size; /* of a virtual node */
        keys[rank] = origin->num_nodes > 0 ? (uint64_t)first : table[rank].node_key;
        if (result == WEFT_OK && table[rank].host_key != table[first].host_key)
            result = weft__invalid(
                "num_nodes is %d: ranks %d and %d would be one node, but are on different hosts",
                origin->num_nodes, first, rank);
    }
    if (result == WEFT_OK)
        result = weft__topology_init(&comm->topology, keys, comm->num_ranks);
    free(keys);
    return result;
}

static weft_result read_heartbeat(uint32_t *limit_ms)
{
    const struct weft__setting_info *info = &weft__settings[WEFT__SETTING_HEARTBEAT_MS];
    int64_t limit = 0;
    weft_result result = weft__setting_number(WEFT__SETTING_HEARTBEAT_MS, &limit);
    if (result == WEFT_OK && limit != 0 && limit < WEFT__HEARTBEAT_MIN_LIMIT_MS)
        result = weft__invalid("%s is %" PRId64 "; it must be 0, or %d..%" PRId64, info->name,
                               limit, WEFT__HEARTBEAT_MIN_LIMIT_MS, info->max);
    *limit_ms = (uint32_t)limit;
    return result;
}

/* Opens the link and fills the identities; a rank alone knows its own already. */
static weft_result meet(weft_comm *comm, const struct weft__origin *origin)
{
    struct weft__hello hello = {.key = origin->key,
                                .rank = origin->rank,
                                .num_ranks = origin->num_ranks,
                                .num_nodes = origin->num_nodes,
                                .timeout_ms = comm->timeout_ms};
    weft_result result = read_heartbeat(&hello.heartbeat_ms);
    if (result == WEFT_OK)
        result = weft__identity_of_process(&hello.identity);
    hello.identity.node_key = node_key(origin, &hello.identity);
    if (result != WEFT_OK || origin->num_ranks == 1) {
        comm->identities[0] = hello.identity;
        return result;
    }
    char message[WEFT__ERROR_BYTES];
    result = weft__fd_socket_open(hello.identity.socket_id, &comm->socket_fd);
    snprintf(message, sizeof(message), "%s", weft__last_error());
    const struct weft__link_options options = {.point = &comm->point,
                                               .hello = &hello,
                                               .status = &comm->status,
                                               .waits = &comm->waits,
                                               .standing = &comm->standing,
                                               .comm = comm,
                                               .watch = origin->watch};
    WEFT__TRY(weft__link_open(&options, comm->identities, &comm->link));
    /* Reported only now: over the link the other ranks can be told. */
    return result == WEFT_OK ? WEFT_OK : weft__error(result, "%s", message);
}

/* One rendezvous may serve several secrets, each of them a job. */
static weft_result name_job(weft_comm *comm, const struct weft__origin *origin)
{
    uint64_t mark[2];
    if (origin->parent != NULL) {
        comm->job = origin->parent->job;
        return WEFT_OK;
    }
    if (comm->link != NULL)
        memcpy(mark, weft__link_mark_of_server(comm->link), sizeof(mark));
    else
        WEFT__TRY(weft__random_bytes(mark, sizeof(mark)));
    comm->job = weft__hash(weft__hash(WEFT__HASH_SEED, mark, sizeof(mark)), comm->point.nonce,
                           sizeof(comm->point.nonce));
    return WEFT_OK;
}

static weft_result check_same_machine(weft_comm *comm)
{
    struct name {
        char text[16];
    } mine = {""};
    weft_result result;
    snprintf(mine.text, sizeof(mine.text), "%s", comm->hooks->name);
    struct name *names = weft__comm_gather_new(comm, WEFT_OK, &mine, sizeof(mine), &result);
    for (int32_t rank = 1; result == WEFT_OK && rank < comm->num_ranks; rank++)
        if (strcmp(names[rank].text, names[0].text) != 0)
            result = weft__error(WEFT_ERROR_MISMATCH,
                                 "ranks disagree: the machine is %s on rank 0 and %s on rank %d",
                                 names[0].text, names[rank].text, rank);
    free(names);
    return result;
}

static weft_result build(weft_comm *comm, const struct weft__origin *origin)
{
    comm->identities = calloc((size_t)origin->num_ranks, sizeof(*comm->identities));
    comm->fd_marks = calloc(2, (size_t)origin->num_ranks);
    if (comm->identities == NULL || comm->fd_marks == NULL)
        return weft__no_memory("no memory for %d ranks", origin->num_ranks);
    WEFT__TRY(weft__status_init(&comm->status, origin->num_ranks));
    WEFT__TRY(meet(comm, origin));
    WEFT__TRY(name_job(comm, origin));
    weft__status_know_ranks(&comm->status, comm->identities);
    WEFT__TRY(weft__comm_prepare_records(comm));
    WEFT__TRY(init_topology(comm, origin));
    WEFT__TRY(check_same_machine(comm));
    WEFT__TRY(weft__comm_compare_clocks(comm));
    WEFT__TRY(comm->hooks->attach(comm));
    WEFT__TRY(weft__heap_create(comm, &origin->config, &comm->heap));
    if (comm->heap_kind->host_can_access)
        weft__status_set_bell(&comm->status,
                              weft__heap_bell(weft__heap_bases(comm->heap)[comm->rank]));
    weft__comm_start_metrics(comm);
    WEFT__TRY(comm->hooks->start(comm));
    atomic_store_explicit(&comm->is_complete, 1, memory_order_release);
    return WEFT_OK;
}

void weft__origin_withdraw(const struct weft__origin *origin, weft_result result)
{
    if (origin->messenger == NULL || origin->messenger->link == NULL)
        return;
    struct weft__absence absence = {.key = origin->key,
                                    .rank = origin->rank,
                                    .num_ranks = origin->num_ranks,
                                    .timeout_ms = origin->config.timeout_ms,
                                    .why = {.result = result, .rank = origin->rank}};
    snprintf(absence.why.text, sizeof(absence.why.text), "rank %d: %.400s", origin->messenger->rank,
             weft__last_error());
    weft__link_tell_absence(origin->messenger->link, &absence);
}

/* The others, who have met this rank or wait for it to come, hear why it fails. */
static void withdraw(const struct weft__origin *origin, weft_comm *comm, weft_result result)
{
    const int32_t name = origin->parent != NULL ? origin->parent->rank : origin->rank;
    if (comm == NULL || comm->link == NULL) {
        weft__origin_withdraw(origin, result);
        return;
    }
    weft__status_fail(&comm->status, result, comm->rank, "rank %d: %.400s", name,
                      weft__last_error());
    weft__comm_tell_failure(comm);
}

static weft_comm *allocate(const struct weft__origin *origin)
{
    weft_comm *comm = calloc(1, sizeof(*comm));
    if (comm == NULL) {
        weft__no_memory("no memory for a communicator");
        return NULL;
    }
    weft__waits_init(&comm->waits);
    weft__standing_init(&comm->standing);
    pthread_mutex_init(&comm->masked_mutex, NULL);
    comm->rank = origin->rank;
    comm->num_ranks = origin->num_ranks;
    comm->timeout_ms = origin->config.timeout_ms;
    comm->num_streams = origin->config.num_streams;
    comm->point = origin->point;
    comm->key = origin->key;
    comm->socket_fd = -1;
    comm->hooks = origin->hooks;
    comm->step = (struct weft__call_step){
        .call = origin->parent == NULL ? WEFT__CALL_COMM_CREATE : origin->parent->step.call};
    return comm;
}

weft_result weft__origin_create(const struct weft__origin *origin, weft_comm **created)
{
    weft_comm *comm = allocate(origin);
    weft_result result = comm != NULL ? build(comm, origin) : WEFT_ERROR_OUT_OF_MEMORY;
    if (result == WEFT_OK) {
        *created = comm;
        return WEFT_OK;
    }
    withdraw(origin, comm, result);
    if (comm != NULL)
        weft__comm_destroy(comm);
    return result;
}

weft_result weft__comm_create(const weft_unique_id *id, int32_t rank, int32_t num_ranks,
                              const weft_comm_config *config, const struct weft__comm_hooks *hooks,
                              weft_comm **comm)
{
    struct weft__origin origin = {.rank = rank, .num_ranks = num_ranks, .hooks = hooks};
    WEFT__TRY(weft__meeting_point_from_id(&origin.point, id));
    origin.key = weft__unique_id_key(id);
    WEFT__TRY(weft__origin_read_config(&origin, config));
    WEFT__TRY(weft__origin_read_nodes(&origin));
    return weft__origin_create(&origin, comm);
}

/* If ranks did not come, perhaps nobody meant this process to be a rank: the message names the
 * launcher that made it one. */
static weft_result tell_launcher(const struct weft__bootstrap *bootstrap, weft_result result)
{
    return result == WEFT_ERROR_TIMEOUT && bootstrap->launcher_name != NULL
               ? weft__error(result,
                             "%s (%s and %s, which %s sets, make this process rank %d of %d)",
                             weft__last_error(), bootstrap->rank_name, bootstrap->num_ranks_name,
                             bootstrap->launcher_name, bootstrap->rank, bootstrap->num_ranks)
               : result;
}

weft_result weft__comm_create_from_env(const weft_comm_config *config,
                                       const struct weft__comm_hooks *hooks, weft_comm **comm)
{
    struct weft__origin origin = {.hooks = hooks};
    struct weft__bootstrap bootstrap;
    WEFT__TRY(weft__bootstrap_read(&bootstrap));
    origin.rank = bootstrap.rank;
    origin.num_ranks = bootstrap.num_ranks;
    WEFT__TRY(weft__origin_read_config(&origin, config));
    WEFT__TRY(weft__origin_read_nodes(&origin));
    WEFT__TRY(weft__bootstrap_start(&bootstrap, origin.config.timeout_ms, &origin.key));
    origin.point = bootstrap.point;
    return tell_launcher(&bootstrap, weft__origin_create(&origin, comm));
}
