/* SPDX-License-Identifier: MIT */
#include "comm/comm.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "comm/heap/heap_kind.h"
#include "comm/host/error.h"
#include "comm/host/log.h"
#include "comm/host/settings.h"
#include "comm/host/thread.h"
#include "comm/host/unknown_variables.h"
#include "comm/rendezvous/bootstrap.h"
#include "comm/rendezvous/fd_exchange.h"
#include "comm/rendezvous/heartbeat.h"
#include "comm/rendezvous/identity.h"
#include "comm/rendezvous/link.h"
#include "comm/rendezvous/observe.h"

/* All that it takes to make a communicator, however its ranks came by it. */
struct origin {
    struct weft__meeting_point point;
    uint64_t key;
    int32_t rank, num_ranks;
    int32_t num_nodes; /* virtual ones; 0: by node_key */
    weft_comm_config config;
    weft_comm *parent;        /* of a split or shrunk one; NULL: none */
    struct weft__watch watch; /* ends the meeting */
    const struct weft__comm_hooks *hooks;
};

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

static weft_result read_config(const weft_comm_config *config, struct origin *origin)
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
static weft_result read_num_nodes(struct origin *origin)
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
static uint64_t node_key(const struct origin *origin, const struct weft__identity *identity)
{
    if (origin->parent == NULL)
        return identity->host_key;
    const weft_comm *parent = origin->parent;
    int32_t node = parent->topology.node_of_rank[parent->rank];
    return weft__hash(parent->key, &node, sizeof(node));
}

static weft_result init_topology(weft_comm *comm, const struct origin *origin)
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
static weft_result meet(weft_comm *comm, const struct origin *origin)
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
static weft_result name_job(weft_comm *comm, const struct origin *origin)
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

static weft_result build(weft_comm *comm, const struct origin *origin)
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

/* The others, who have met this rank or wait for it to come, hear why it fails. Before it has
 * connected it can tell them by way of the communicator that is split; without that they hear at
 * the deadline that it did not come. So do those of a shrunk communicator, whose key is used again
 * by the next attempt. */
static void withdraw(const struct origin *origin, weft_comm *comm, weft_result result)
{
    const char *why = weft__last_error();
    const int32_t name = origin->parent != NULL ? origin->parent->rank : origin->rank;
    if (comm != NULL && comm->link != NULL) {
        weft__status_fail(&comm->status, result, comm->rank, "rank %d: %.400s", name, why);
        weft__comm_tell_failure(comm);
    } else if (origin->parent != NULL && origin->watch.ranks == NULL &&
               origin->parent->link != NULL) {
        struct weft__absence absence = {.key = origin->key,
                                        .rank = origin->rank,
                                        .num_ranks = origin->num_ranks,
                                        .timeout_ms = origin->config.timeout_ms,
                                        .why = {.result = result, .rank = origin->rank}};
        snprintf(absence.why.text, sizeof(absence.why.text), "rank %d: %.400s", name, why);
        weft__link_tell_absence(origin->parent->link, &absence);
    }
}

static weft_comm *allocate(const struct origin *origin)
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

static weft_result create(const struct origin *origin, weft_comm **created)
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
    struct origin origin = {.rank = rank, .num_ranks = num_ranks, .hooks = hooks};
    WEFT__TRY(weft__meeting_point_from_id(&origin.point, id));
    WEFT__TRY(read_config(config, &origin));
    WEFT__TRY(read_num_nodes(&origin));
    return create(&origin, comm);
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
    struct origin origin = {.hooks = hooks};
    struct weft__bootstrap bootstrap;
    WEFT__TRY(weft__bootstrap_read(&bootstrap));
    origin.rank = bootstrap.rank;
    origin.num_ranks = bootstrap.num_ranks;
    WEFT__TRY(read_config(config, &origin));
    WEFT__TRY(read_num_nodes(&origin));
    WEFT__TRY(weft__bootstrap_start(&bootstrap, origin.config.timeout_ms, &origin.key));
    origin.point = bootstrap.point;
    return tell_launcher(&bootstrap, create(&origin, comm));
}

void weft__comm_destroy(weft_comm *comm)
{
    comm->hooks->stop(comm);
    /* The link's monitor rings the bell, which is in the heap, by way of the status. */
    if (comm->link != NULL)
        weft__link_close(comm->link);
    weft__comm_end_records(comm); /* a file system that hangs does not keep the others waiting */
    if (comm->heap != NULL)
        weft__heap_destroy(comm->heap);
    comm->hooks->detach(comm);
    if (comm->socket_fd >= 0)
        close(comm->socket_fd);
    free(comm->identities);
    free(comm->fd_marks);
    free(comm->shrunk);
    weft__topology_destroy(&comm->topology);
    weft__status_destroy(&comm->status);
    weft__waits_destroy(&comm->waits);
    weft__standing_destroy(&comm->standing);
    weft__comm_free_records(comm);
    pthread_mutex_destroy(&comm->masked_mutex);
    free(comm);
}

/* ---------------------------------------------------------------- collectives */

static weft_result exchange_alone(weft_comm *comm, struct weft__share *share)
{
    WEFT__TRY(weft__status_check(&comm->status));
    if (share->result != WEFT_OK)
        share->failed_rank = comm->rank;
    else if (share->bytes > 0)
        memcpy(share->recv, share->send, share->bytes);
    return share->result;
}

weft_result weft__comm_exchange(weft_comm *comm, struct weft__share *share)
{
    atomic_fetch_add_explicit(&comm->num_gathers, 1, memory_order_release);
    if (comm->link == NULL)
        return exchange_alone(comm, share);
    const weft_result result = weft__link_all_gather(comm->link, share);
    (void)atomic_load_explicit(&comm->num_messages_taken, memory_order_acquire);
    return result;
}

weft_result weft__comm_exchange_fd(weft_comm *comm, int fd, int *fds)
{
    const struct weft__fd_exchange exchange = {.socket_fd = comm->socket_fd,
                                               .rank = comm->rank,
                                               .num_ranks = comm->num_ranks,
                                               .timeout_ms = comm->timeout_ms,
                                               .key = comm->key,
                                               .round = ++comm->num_fd_exchanges,
                                               .table = comm->identities,
                                               .status = &comm->status,
                                               .marks = comm->fd_marks};
    const weft_result result = weft__fd_exchange(&exchange, fd, fds);
    if (result == WEFT_ERROR_SYSTEM) { /* the other ranks wait for this one */
        weft__status_fail(&comm->status, result, comm->rank, "%s", weft__last_error());
        weft__comm_tell_failure(comm);
    }
    return result;
}

void weft__comm_abort(weft_comm *comm)
{
    weft__status_fail(&comm->status, WEFT_ERROR_ABORTED, comm->rank,
                      "rank %d called weft_comm_abort", comm->rank);
    weft__comm_tell_failure(comm);
}

void weft__comm_tell_failure(weft_comm *comm)
{
    if (comm->link != NULL)
        weft__link_tell_failure(comm->link);
}

void weft__comm_share_failure(weft_comm *comm)
{
    const int64_t timeout_ms =
        comm->timeout_ms < WEFT__INQUIRY_MS ? comm->timeout_ms : WEFT__INQUIRY_MS;
    if (comm->link == NULL)
        return;
    weft__link_tell_failure(comm->link);
    weft__status_await_told(&comm->status, timeout_ms * WEFT__NS_PER_MS);
}

enum weft__ask_result weft__comm_ask(weft_comm *comm, int32_t rank, const struct weft__wait *wait,
                                     int64_t deadline_ns, struct weft__wait_list *waits)
{
    const struct weft__question question = {.asked = rank, .wait = *wait};
    if (comm->link == NULL)
        return WEFT__ASK_IMPOSSIBLE;
    enum weft__ask_result result = weft__link_ask(comm->link, &question, deadline_ns, waits);
    if (result == WEFT__ASK_LOST) /* the rendezvous has the answer */
        result = weft__link_ask(comm->link, &question, deadline_ns, waits);
    return result;
}

void weft__comm_report(weft_comm *comm, struct weft__report *report)
{
    const struct weft__last_call last = weft__standing_last_call(&comm->standing);
    weft_heap_info heap = {.used_bytes = 0};
    snprintf(report->machine, sizeof(report->machine), "%s", comm->hooks->name);
    report->device = -1;
    /* Until the link is closed, which ends the monitor, the heap and the device stay. */
    if (atomic_load_explicit(&comm->is_complete, memory_order_acquire)) {
        weft__heap_query(comm->heap, &heap);
        report->device = comm->hooks->device_of(comm);
    }
    report->heap_used_bytes = heap.used_bytes;
    report->heap_bytes = heap.committed_bytes;
    report->call = last.call;
    report->count = last.count;
    report->held_ms = last.held_ms;
    /* Pairs with the release of weft__status_fail. */
    report->result = atomic_load_explicit(&comm->status.result, memory_order_acquire);
    if (report->result != WEFT_OK)
        snprintf(report->error, sizeof(report->error), "%s", comm->status.message);
}

weft_result weft__comm_look(const weft_comm *comm, struct weft__observed_rank **ranks,
                            int32_t *num_ranks)
{
    return comm->link != NULL ? weft__observe(&comm->point, WEFT__INQUIRY_MS, ranks, num_ranks)
                              : WEFT_ERROR_UNSUPPORTED;
}

int32_t weft__comm_rank_of_rendezvous(const weft_comm *comm)
{
    return comm->link != NULL ? weft__link_rank_of_server(comm->link) : WEFT__NOBODY;
}

struct choice {
    int32_t color, key;
};

/* This rank's place among those of its color, by key, then by rank. */
static void place_in_child(const struct choice *choices, const weft_comm *comm,
                           struct origin *child)
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
    struct origin origin = {.point = comm->point,
                            .parent = comm,
                            .watch = {.status = &comm->status},
                            .hooks = comm->hooks};
    const struct choice mine = {.color = color, .key = key};
    weft_result result = read_config(config, &origin);
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
    result = read_num_nodes(&origin);
    if (result == WEFT_OK)
        return weft__comm_find_cause(comm, create(&origin, child));
    withdraw(&origin, NULL, result);
    return result;
}

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
    struct origin origin = {.point = comm->point,
                            .num_ranks = num_ranks,
                            .parent = comm,
                            .watch = {&comm->status, ranks, num_ranks},
                            .hooks = comm->hooks};
    WEFT__TRY(read_config(config, &origin));
    WEFT__TRY(read_num_nodes(&origin));
    while (ranks[origin.rank] != comm->rank)
        origin.rank++;
    uint64_t key = weft__hash(WEFT__HASH_SEED, &comm->key, sizeof(comm->key));
    key = weft__hash(key, "shrink", 6); /* no split has this key */
    key = weft__hash(key, ranks, (size_t)num_ranks * sizeof(*ranks));
    struct weft__shrunk *shrunk = find_shrunk(comm, key);
    WEFT__CHECK_MEMORY(shrunk, "no memory to shrink a communicator");
    origin.key = weft__hash(key, &shrunk->count, sizeof(shrunk->count));
    const weft_result result = create(&origin, child);
    shrunk->count += result == WEFT_OK;
    return result;
}
