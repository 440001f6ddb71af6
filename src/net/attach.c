/* SPDX-License-Identifier: MIT */
#include "net/attach.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/host/settings.h"
#include "comm/host/thread.h"
#include "net/mac.h"
#include "net/nic/lacks.h"
#include "net/ports.h"

enum {
    NUM_SLOTS = 1024,
    ENGINE_BYTES = 16,
    /* For the others to take what they may wait for, before they hear that this rank has left. */
    CLOSE_MS = 5000,
    NEWS_MS = 200 /* for the rendezvous to notice what the network has noticed */
};

/* ---------------------------------------------------------------- opening */

/* Not the nonce itself, which is the rendezvous's and which nobody can compute from this one; one
 * for each communicator. */
static void derive_secret(const weft_comm *comm, uint8_t secret[WEFT__NONCE_BYTES])
{
    const struct weft__mac_part parts[] = {{"weft net", 8}, {&comm->key, sizeof(comm->key)}};
    uint8_t mac[WEFT__MAC_BYTES];
    weft__mac(comm->point.nonce, sizeof(comm->point.nonce), parts, 2, mac);
    memcpy(secret, mac, WEFT__NONCE_BYTES);
}

/* Until what was sent is at the peer's host: as the heartbeat, but no less than a bad link takes to
 * send it again. */
static weft_result read_silence(uint32_t *silence_ms)
{
    enum { LEAST_MS = 4000 };
    int64_t heartbeat_ms = 0;
    WEFT__TRY(weft__setting_number(WEFT__SETTING_HEARTBEAT_MS, &heartbeat_ms));
    *silence_ms = heartbeat_ms != 0 && heartbeat_ms < LEAST_MS ? LEAST_MS : (uint32_t)heartbeat_ms;
    return WEFT_OK;
}

/* The engine that a rank would take by itself, and who starts what programs send. */
struct choice {
    char engine[ENGINE_BYTES];
    int32_t is_automatic;
    int32_t initiator; /* enum weft__net_initiator */
};

/* Nobody sleeps where the host cannot access the heap. */
static struct weft__doorbell *bell_of(const weft_comm *comm, const struct weft__net_memory *memory)
{
    return memory->heap == NULL ? weft__heap_bell(weft__heap_bases(comm->heap)[comm->rank]) : NULL;
}

static weft_result read_config(weft_comm *comm, const struct weft__net_memory *memory,
                               struct weft__net_config *config)
{
    /* The timeout is shorter than the communicator's: a rank that cannot connect says so before
     * others miss it at their deadlines. */
    *config = (struct weft__net_config){.rank = comm->rank,
                                        .num_ranks = comm->num_ranks,
                                        .timeout_ms = comm->timeout_ms - comm->timeout_ms / 4,
                                        .close_ms = CLOSE_MS,
                                        .order = &comm->num_gathers,
                                        .num_taken = &comm->num_messages_taken,
                                        .counters = weft__records_peers(comm->records),
                                        .bell = bell_of(comm, memory)};
    derive_secret(comm, config->secret);
    WEFT__TRY(weft__net_read_settings(config));
    return read_silence(&config->silence_ms);
}

static weft_result choose(const struct weft__net_config *config, struct choice *mine)
{
    const char *engine = "";
    char reason[WEFT__NET_REASON_BYTES];
    mine->initiator = config->initiator;
    mine->is_automatic = weft__net_is_automatic(config);
    WEFT__TRY(weft__net_choice(config, &engine, reason, sizeof(reason)));
    snprintf(mine->engine, sizeof(mine->engine), "%s", engine);
    return WEFT_OK;
}

/* A queue of the host and a NIC keep different promises, so all ranks have the same. */
static weft_result check_initiators(const weft_comm *comm, const struct choice *all)
{
    const char *const *words = weft__settings[WEFT__SETTING_NET_INITIATOR].words;
    for (int32_t rank = 1; rank < comm->num_ranks; rank++)
        if (all[rank].initiator != all[0].initiator)
            return weft__error(WEFT_ERROR_MISMATCH,
                               "ranks disagree: WEFT_NET_INITIATOR is %s on rank 0 and %s on rank "
                               "%d",
                               words[all[0].initiator], words[all[rank].initiator], rank);
    return WEFT_OK;
}

/* Where ranks differ only in what fits their hosts, all take what fits any. */
static weft_result settle_engine(weft_comm *comm, struct weft__net_config *config)
{
    struct choice mine = {.is_automatic = 0};
    weft_result result = choose(config, &mine);
    struct choice *all = weft__comm_gather_new(comm, result, &mine, sizeof(mine), &result);
    if (all == NULL)
        return result;
    for (int32_t rank = 0; rank < comm->num_ranks; rank++)
        if (mine.is_automatic && strncmp(all[rank].engine, mine.engine, ENGINE_BYTES) != 0)
            config->engine = "tcp";
    result = check_initiators(comm, all);
    free(all);
    return result;
}

static weft_result reg_memory(weft_comm *comm, const struct weft__net_memory *memory)
{
    struct weft__net *net = comm->network->net;
    const _Atomic uint64_t *num_bytes = weft__heap_backed_bytes(comm->heap);
    weft_heap_info heap;
    weft__heap_query(comm->heap, &heap);
    if (memory->heap == NULL)
        return weft__net_reg_growing(net, WEFT__NET_HEAP_REGION,
                                     weft__heap_bases(comm->heap)[comm->rank], heap.max_bytes,
                                     num_bytes);
    WEFT__TRY(weft__net_reg_accessed(net, WEFT__NET_HEAP_REGION, memory->heap, heap.max_bytes,
                                     num_bytes));
    return weft__net_reg_growing(net, WEFT__NET_PINNED_REGION, memory->pinned,
                                 memory->max_pinned_bytes, memory->num_pinned_bytes);
}

static weft_result open_net(weft_comm *comm, const struct weft__net_memory *memory,
                            struct weft__net_config *config)
{
    char *devices = comm->network->devices;
    if (config->devices == NULL && weft__net_default_devices(comm, devices) == WEFT_OK)
        config->devices = devices;
    WEFT__TRY(weft__net_open(config, &comm->network->net));
    comm->network->engine = weft__net_engine_name(comm->network->net);
    snprintf(comm->network->reason, sizeof(comm->network->reason), "%s",
             weft__net_reason(comm->network->net));
    return reg_memory(comm, memory);
}

/* ---------------------------------------------------------------- connecting */

/* The ranks compare this before they exchange addresses. */
struct card {
    char engine[ENGINE_BYTES];
    uint32_t num_bytes;
    int32_t has_writes;
};

static weft_result check_cards(const struct card *cards, int32_t num_ranks, uint64_t *most_bytes,
                               int *has_writes)
{
    *most_bytes = 0;
    *has_writes = 0;
    for (int32_t rank = 0; rank < num_ranks; rank++) {
        if (strncmp(cards[rank].engine, cards[0].engine, ENGINE_BYTES) != 0)
            return weft__error(WEFT_ERROR_MISMATCH,
                               "ranks disagree: the network engine is %.*s on rank 0 and %.*s on "
                               "rank %d; WEFT_NET chooses it",
                               ENGINE_BYTES, cards[0].engine, ENGINE_BYTES, cards[rank].engine,
                               rank);
        if (cards[rank].num_bytes > *most_bytes)
            *most_bytes = cards[rank].num_bytes;
        *has_writes |= cards[rank].has_writes;
    }
    return WEFT_OK;
}

static weft_result gather_cards(weft_comm *comm, const struct weft__net_blob *own,
                                struct card *cards)
{
    struct card mine = {.num_bytes = (uint32_t)own->num_bytes,
                        .has_writes = weft__net_has_writes(comm->network->net)};
    snprintf(mine.engine, sizeof(mine.engine), "%s", comm->network->engine);
    return weft__comm_all_gather(comm, &mine, sizeof(mine), cards);
}

/* Ranks of the own node are no peers: they have no blobs. */
static void choose_peers(const weft_comm *comm, const struct card *cards, const char *bytes,
                         uint64_t most_bytes, struct weft__net_blob *blobs)
{
    const int32_t *node_of_rank = comm->topology.node_of_rank;
    for (int32_t rank = 0; rank < comm->num_ranks; rank++)
        if (node_of_rank[rank] != node_of_rank[comm->rank])
            blobs[rank] =
                (struct weft__net_blob){bytes + (uint64_t)rank * most_bytes, cards[rank].num_bytes};
}

struct meeting {
    struct weft__net_blob own;
    struct card *cards;           /* [num_ranks] */
    struct weft__net_blob *blobs; /* [num_ranks], of the peers; they point into `all` */
    char *padded, *all;           /* the own one, and all, as long as the longest */
};

static weft_result start_meeting(weft_comm *comm, struct meeting *meeting)
{
    *meeting =
        (struct meeting){.cards = calloc((size_t)comm->num_ranks, sizeof(struct card)),
                         .blobs = calloc((size_t)comm->num_ranks, sizeof(struct weft__net_blob))};
    if (meeting->cards == NULL || meeting->blobs == NULL) {
        weft__no_memory("no memory for %d ranks", comm->num_ranks);
        return WEFT_ERROR_OUT_OF_MEMORY;
    }
    return weft__net_address(comm->network->net, &meeting->own);
}

static void end_meeting(struct meeting *meeting)
{
    free(meeting->all);
    free(meeting->padded);
    free(meeting->blobs);
    free(meeting->cards);
}

static weft_result pad(const weft_comm *comm, uint64_t most_bytes, struct meeting *meeting)
{
    meeting->padded = calloc(1, most_bytes + 1);
    meeting->all = malloc((uint64_t)comm->num_ranks * most_bytes + 1);
    if (meeting->padded == NULL || meeting->all == NULL) {
        weft__no_memory("no memory for %d addresses", comm->num_ranks);
        return WEFT_ERROR_OUT_OF_MEMORY;
    }
    if (meeting->own.bytes != NULL)
        memcpy(meeting->padded, meeting->own.bytes, meeting->own.num_bytes);
    return WEFT_OK;
}

/* The others need this to connect. */
static weft_result gather_blobs(weft_comm *comm, struct meeting *meeting)
{
    uint64_t most_bytes;
    WEFT__TRY(gather_cards(comm, &meeting->own, meeting->cards));
    WEFT__TRY(
        check_cards(meeting->cards, comm->num_ranks, &most_bytes, &comm->network->has_writes));
    WEFT__TRY(weft__comm_agree(comm, pad(comm, most_bytes, meeting), "have memory for addresses"));
    WEFT__TRY(weft__comm_all_gather(comm, meeting->padded, most_bytes, meeting->all));
    choose_peers(comm, meeting->cards, meeting->all, most_bytes, meeting->blobs);
    return WEFT_OK;
}

static weft_result meet(weft_comm *comm, struct meeting *meeting)
{
    const weft_result started = start_meeting(comm, meeting);
    WEFT__TRY(weft__comm_agree(comm, started, "tell its network address"));
    WEFT__TRY(started); /* agreed on already; for clang-tidy, which cannot know */
    WEFT__TRY(gather_blobs(comm, meeting));
    WEFT__TRY(weft__comm_agree(comm, weft__net_connect(comm->network->net, meeting->blobs),
                               "connect its network"));
    return WEFT_OK;
}

static weft_result connect_net(weft_comm *comm)
{
    struct meeting meeting;
    const weft_result result = meet(comm, &meeting);
    end_meeting(&meeting);
    return result;
}

/* ---------------------------------------------------------------- progress */

/* The rendezvous knows more of a peer that is gone: that it died, and its pid. What was for all
 * peers was lost to one that only it can name. */
static void tell_failure(weft_comm *comm, int32_t peer, weft_result result, const char *message)
{
    const int is_loss = peer >= 0 || result == WEFT_ERROR_RANK_FAILED;
    const int32_t culprit = peer >= 0 ? peer : is_loss ? WEFT__NOBODY : comm->rank;
    if (weft__status_await_failure(&comm->status, is_loss ? NEWS_MS * WEFT__NS_PER_MS : 0) !=
        WEFT_OK)
        return;
    weft__status_fail(&comm->status, result, culprit, "network of rank %d: %s", comm->rank,
                      message);
    weft__comm_tell_failure(comm);
}

/* By the progress thread, before what has failed completes. */
static void fail_comm(void *context, int32_t peer, weft_result result, const char *message)
{
    weft_comm *comm = context;
    struct weft__work_queue *device_queue = comm->network->device_queue;
    tell_failure(comm, peer, result, message);
    if (device_queue != NULL)
        atomic_store(&device_queue->comm_has_failed, 1);
}

/* By the progress thread, too: objects that go on without a rank need not hear of it from the
 * rendezvous first. */
static void lose_peer(void *context, int32_t peer, const char *message)
{
    weft_comm *comm = context;
    if (weft__status_is_tolerant(&comm->status))
        weft__status_lose_rank(&comm->status, peer, "network of rank %d: %s", comm->rank, message);
    else
        fail_comm(comm, peer, WEFT_ERROR_RANK_FAILED, message);
}

static weft_result start_progress(weft_comm *comm, const struct weft__net_memory *memory)
{
    const struct weft__progress_options options = {.net = comm->network->net,
                                                   .rank = comm->rank,
                                                   .num_ranks = comm->num_ranks,
                                                   .num_slots = NUM_SLOTS,
                                                   .cores = weft__count_cores(comm),
                                                   .nic = comm->network->nic,
                                                   .device_queue = memory->device_queue,
                                                   .num_device_slots = memory->num_device_slots,
                                                   .status = &comm->status,
                                                   .bell = bell_of(comm, memory),
                                                   .post_timeout_ms = comm->timeout_ms,
                                                   .on_failure = fail_comm,
                                                   .on_peer_failure = lose_peer,
                                                   .context = comm};
    comm->network->device_queue = memory->device_queue;
    return weft__progress_start(&options, &comm->network->progress);
}

static weft_result make_nic(weft_comm *comm, const struct weft__net_memory *memory,
                            enum weft__net_initiator initiator)
{
    char *heap = weft__heap_bases(comm->heap)[comm->rank];
    weft_heap_info info;
    if (initiator == WEFT__NET_BY_HOST)
        return WEFT_OK;
    if (memory->heap != NULL)
        return weft__error(WEFT_ERROR_UNSUPPORTED,
                           "WEFT_NET_INITIATOR is model; programs on GPUs do not post to it yet: "
                           "it must be host, or the machine cpu");
    weft__heap_query(comm->heap, &info);
    const struct weft__nic_adapter_config config = {.net = comm->network->net,
                                                    .rank = comm->rank,
                                                    .num_ranks = comm->num_ranks,
                                                    .heap = heap,
                                                    .max_heap_bytes = info.max_bytes,
                                                    .bell = weft__heap_bell(heap)};
    return weft__nic_adapter_create(&config, &comm->network->nic);
}

/* UCX connects by its first messages, and ends a process whose peer dies meanwhile
 * (docs/network.md): better here than in an operation. */
static weft_result greet(weft_comm *comm)
{
    const struct wp_access flush = {.operation = WP_ACCESS_FLUSH, .rank = WEFT__NET_ALL_PEERS};
    const int64_t deadline_ns = weft__now_ns() + comm->timeout_ms * WEFT__NS_PER_MS;
    uint64_t number;
    WEFT__TRY(weft__progress_post(comm->network->progress, &flush, WEFT__POSTER_WAITS, &number));
    WEFT__TRY(weft__progress_await(comm->network->progress, number, deadline_ns));
    const weft_result result = weft__progress_error(comm->network->progress);
    /* The communicator has been told before that a peer died, and by whoever knows most. */
    return result == WEFT_ERROR_RANK_FAILED && weft__status_check(&comm->status) != WEFT_OK
               ? weft__status_check(&comm->status)
               : result;
}

/* A peer that is gone has a name at the rendezvous. */
static weft_result greet_all(weft_comm *comm)
{
    const weft_result result = greet(comm);
    if (result != WEFT_ERROR_RANK_FAILED)
        return result;
    char message[WEFT__ERROR_BYTES];
    snprintf(message, sizeof(message), "%s", weft__last_error());
    const weft_result cause = weft__status_await_failure(&comm->status, NEWS_MS * WEFT__NS_PER_MS);
    return cause != WEFT_OK ? cause : weft__error(result, "%s", message);
}

static weft_result find_transports(struct weft__net *net, void *context)
{
    struct weft__network *network = context;
    WEFT__TRY(weft__net_find_transports(net));
    snprintf(network->transport, sizeof(network->transport), "%s", weft__net_transport(net));
    network->round_trip_us = weft__net_round_trip_us(net);
    network->port_gbps = weft__net_port_gbps(network->transport, &weft__sysfs_of_host);
    network->gpu_obstacle = weft__net_gpu_obstacle(net);
    return WEFT_OK;
}

static weft_result attach(weft_comm *comm, const struct weft__net_memory *memory)
{
    struct weft__net_config config;
    WEFT__TRY(weft__comm_agree(comm, read_config(comm, memory, &config), "set up its network"));
    WEFT__TRY(settle_engine(comm, &config));
    WEFT__TRY(weft__comm_agree(comm, open_net(comm, memory, &config), "open its network"));
    WEFT__TRY(connect_net(comm));
    WEFT__TRY(weft__comm_agree(comm, make_nic(comm, memory, config.initiator),
                               "make the queues of its NIC"));
    WEFT__TRY(weft__comm_agree(comm, start_progress(comm, memory), "run its network"));
    WEFT__TRY(weft__comm_agree(comm, greet_all(comm), "reach the ranks of other nodes"));
    WEFT__TRY(weft__comm_agree(
        comm, weft__progress_act(comm->network->progress, find_transports, comm->network),
        "use its network"));
    if (memory->heap != NULL || (!comm->network->has_writes && comm->network->nic == NULL))
        return WEFT_OK;
    comm->heap_has_grown = weft__net_add_step;
    return weft__net_add_step(comm);
}

weft_result weft__net_attach(weft_comm *comm)
{
    return weft__net_attach_memory(comm, &(struct weft__net_memory){.heap = NULL});
}

weft_result weft__net_attach_memory(weft_comm *comm, const struct weft__net_memory *memory)
{
    if (comm->topology.num_nodes == 1)
        return WEFT_OK;
    comm->network = calloc(1, sizeof(*comm->network));
    WEFT__TRY(weft__comm_agree(
        comm, comm->network != NULL ? WEFT_OK : weft__no_memory("no memory for a network"),
        "have a network"));
    return attach(comm, memory);
}

void weft__net_detach(weft_comm *comm)
{
    struct weft__network *network = comm->network;
    if (network == NULL)
        return;
    comm->heap_has_grown = NULL;
    if (network->progress != NULL)
        weft__progress_stop(network->progress);
    else if (network->net != NULL)
        weft__net_close(network->net);
    weft__nic_adapter_destroy(network->nic);
    free(network);
    comm->network = NULL;
}

/* ---------------------------------------------------------------- use */

void weft__net_drain(weft_comm *comm)
{
    const struct wp_access flush = {.operation = WP_ACCESS_FLUSH, .rank = WEFT__NET_ALL_PEERS};
    uint64_t number;
    if (comm->network == NULL || weft__status_check(&comm->status) != WEFT_OK ||
        weft__progress_post(comm->network->progress, &flush, WEFT__POSTER_WAITS, &number) !=
            WEFT_OK)
        return;
    (void)weft__progress_await(comm->network->progress, number,
                               weft__now_ns() + comm->timeout_ms * WEFT__NS_PER_MS);
}

static void append_demand(const struct weft__net_config *config, weft_net_info *info)
{
    const size_t length = strlen(info->reason);
    if (config->demand == WEFT__NET_RDMA)
        snprintf(info->reason + length, sizeof(info->reason) - length,
                 "; that it has RDMA, which WEFT_NET_TRANSPORT demands, is checked when a job of "
                 "several nodes connects");
}

static void describe_initiator(weft_net_info *info)
{
    char device[WEFT__NIC_NAME_BYTES], lacks[WEFT__NIC_LACKS_BYTES];
    weft__nic_find_lacks(&weft__sysfs_of_host, device, lacks);
    if (lacks[0] != '\0')
        snprintf(info->gpu_initiator, sizeof(info->gpu_initiator), "no: %s", lacks);
    else
        snprintf(info->gpu_initiator, sizeof(info->gpu_initiator), "possible, by %s", device);
}

/* The choice of the settings. */
static weft_result describe_choice(weft_net_info *info)
{
    struct weft__net_config config = {.engine = NULL};
    const char *engine = "";
    WEFT__TRY(weft__net_read_settings(&config));
    const weft_result result =
        weft__net_choice(&config, &engine, info->reason, sizeof(info->reason));
    if (result == WEFT_ERROR_UNSUPPORTED)
        snprintf(info->reason, sizeof(info->reason), "%s", weft__last_error());
    else if (result != WEFT_OK)
        return result;
    snprintf(info->engine, sizeof(info->engine), "%s", engine);
    if (result == WEFT_OK)
        append_demand(&config, info);
    describe_initiator(info);
    return WEFT_OK;
}

weft_result weft__net_describe(const weft_comm *comm, weft_net_info *info)
{
    if (comm == NULL)
        return describe_choice(info);
    const struct weft__network *network = comm->network;
    if (network == NULL) {
        snprintf(info->reason, sizeof(info->reason), "the communicator has one node");
        return WEFT_OK;
    }
    struct weft__net_counts counts = weft__net_counts(network->net);
    uint64_t num_posted = 0;
    if (network->nic != NULL) {
        const struct weft__nic_port *port = weft__nic_adapter_port(network->nic);
        counts.num_bytes += __atomic_load_n(&port->num_put_bytes, __ATOMIC_RELAXED);
        num_posted = __atomic_load_n(&port->num_puts, __ATOMIC_RELAXED);
    }
    snprintf(info->engine, sizeof(info->engine), "%s", network->engine);
    snprintf(info->transport, sizeof(info->transport), "%s", network->transport);
    snprintf(info->reason, sizeof(info->reason), "%s", network->reason);
    info->sent_bytes = counts.num_bytes;
    info->sent_messages = weft__progress_num_puts(network->progress) + num_posted;
    info->sent_header_bytes = counts.num_header_bytes;
    return WEFT_OK;
}
