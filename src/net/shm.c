/* SPDX-License-Identifier: MIT */
/* The engine for ranks of one host where there is no other: every rank has a segment of shared memory with a
 * ring for each source, and a socket that wakes it. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "comm/error.h"
#include "comm/fd_exchange.h"
#include "comm/identity.h"
#include "net/engine.h"
#include "net/shm_ring.h"

enum {
    NUM_RECORDS = 64,      /* of a source in one call of progress */
    CALLS_PER_LOOK = 1024, /* calls of progress between looks for the dead, when it never sleeps */
    SEALS = F_SEAL_SHRINK | F_SEAL_GROW, /* else a peer could make accesses to the segment fail */
    SOCKET_EVENT = -1
};

/* The rings follow, [num_ranks]. */
struct segment {
    _Alignas(WEFT__RING_LINE_BYTES) _Atomic uint32_t is_asleep;
    _Alignas(WEFT__RING_LINE_BYTES) struct weft__ring rings[];
};

struct shm_peer {
    enum { GONE, THERE } state;
    struct segment *segment;     /* its */
    uint64_t num_put, num_taken; /* bytes to it, and from it */
    uint64_t socket_id[2];
    int process_fd;
};

struct shm {
    struct weft__net *net;
    int32_t rank, num_ranks;
    uint32_t timeout_ms;
    struct weft__identity identity;
    int socket_fd, memory_fd, epoll_fd;
    struct segment *segment; /* this rank's */
    struct shm_peer *peers;  /* [num_ranks] */
    uint32_t num_calls;
};

static size_t segment_bytes(int32_t num_ranks)
{
    return sizeof(struct segment) + (size_t)num_ranks * sizeof(struct weft__ring);
}

/* ---------------------------------------------------------------- opening */

static weft_result probe(void)
{
    return WEFT_OK;
}

static weft_result map_segment(int fd, int32_t num_ranks, struct segment **segment)
{
    void *memory = mmap(NULL, segment_bytes(num_ranks), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED)
        return weft__system_error("cannot map %zu bytes of shared memory",
                                  segment_bytes(num_ranks));
    *segment = memory;
    return WEFT_OK;
}

static weft_result make_segment(struct shm *shm)
{
    shm->memory_fd = memfd_create("weft-net", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (shm->memory_fd < 0 ||
        ftruncate(shm->memory_fd, (off_t)segment_bytes(shm->num_ranks)) != 0 ||
        fcntl(shm->memory_fd, F_ADD_SEALS, SEALS) != 0)
        return weft__system_error("cannot make %zu bytes of shared memory",
                                  segment_bytes(shm->num_ranks));
    return map_segment(shm->memory_fd, shm->num_ranks, &shm->segment);
}

static weft_result watch(struct shm *shm, int fd, int32_t who)
{
    struct epoll_event event = {.events = EPOLLIN, .data = {.u64 = (uint64_t)(int64_t)who}};
    return epoll_ctl(shm->epoll_fd, EPOLL_CTL_ADD, fd, &event) == 0
               ? WEFT_OK
               : weft__system_error("epoll_ctl");
}

static void free_shm(struct shm *shm)
{
    const size_t bytes = segment_bytes(shm->num_ranks);
    for (int32_t rank = 0; shm->peers != NULL && rank < shm->num_ranks; rank++) {
        if (shm->peers[rank].segment != NULL)
            munmap(shm->peers[rank].segment, bytes);
        if (shm->peers[rank].process_fd >= 0)
            close(shm->peers[rank].process_fd);
    }
    if (shm->segment != NULL)
        munmap(shm->segment, bytes);
    const int fds[] = {shm->socket_fd, shm->memory_fd, shm->epoll_fd};
    for (size_t index = 0; index < sizeof(fds) / sizeof(fds[0]); index++)
        if (fds[index] >= 0)
            close(fds[index]);
    free(shm->peers);
    free(shm);
}

static weft_result prepare(struct shm *shm)
{
    shm->peers = calloc((size_t)shm->num_ranks, sizeof(*shm->peers));
    if (shm->peers == NULL)
        return weft__error(WEFT_ERROR_OUT_OF_MEMORY, "no memory for %d peers", shm->num_ranks);
    for (int32_t rank = 0; rank < shm->num_ranks; rank++)
        shm->peers[rank].process_fd = -1;
    weft_result result = weft__identity_of_process(&shm->identity);
    if (result == WEFT_OK)
        result = weft__fd_socket_open(shm->identity.socket_id, &shm->socket_fd);
    if (result == WEFT_OK)
        result = make_segment(shm);
    if (result == WEFT_OK) {
        shm->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
        result = shm->epoll_fd >= 0 ? watch(shm, shm->socket_fd, SOCKET_EVENT)
                                    : weft__system_error("epoll_create1");
    }
    return result;
}

static weft_result open_shm(struct weft__net *net, const struct weft__net_config *config,
                            void **state)
{
    if (config->demand == WEFT__NET_RDMA)
        return weft__error(WEFT_ERROR_UNSUPPORTED,
                           "RDMA is demanded; the network engine is shm, and its transport shared "
                           "memory");
    struct shm *shm = calloc(1, sizeof(*shm));
    if (shm == NULL)
        return weft__error(WEFT_ERROR_OUT_OF_MEMORY, "no memory for a network");
    *shm = (struct shm){.net = net,
                        .rank = config->rank,
                        .num_ranks = config->num_ranks,
                        .timeout_ms = config->timeout_ms,
                        .socket_fd = -1,
                        .memory_fd = -1,
                        .epoll_fd = -1};
    weft_result result = prepare(shm);
    if (result == WEFT_OK)
        *state = shm;
    else
        free_shm(shm);
    return result;
}

static size_t max_message_bytes(void *state)
{
    (void)state;
    return WEFT__RING_MAX_PAYLOAD_BYTES;
}

static weft_result address(void *state, void *bytes, size_t *num_bytes)
{
    const struct shm *shm = state;
    *num_bytes = sizeof(shm->identity);
    memcpy(bytes, &shm->identity, sizeof(shm->identity));
    return WEFT_OK;
}

/* ---------------------------------------------------------------- connecting */

static weft_result read_identity(const struct shm *shm, int32_t rank,
                                 const struct weft__net_blob *blob, struct weft__identity *identity)
{
    if (blob->num_bytes != sizeof(*identity))
        return weft__error(WEFT_ERROR_MISMATCH, "the network address of rank %d is not one", rank);
    memcpy(identity, blob->bytes, sizeof(*identity));
    if (identity->host_key != shm->identity.host_key)
        return weft__error(WEFT_ERROR_UNSUPPORTED,
                           "rank %d is on another host than rank %d; the network engine is shm, "
                           "which reaches ranks of its host alone",
                           rank, shm->rank);
    return WEFT_OK;
}

static weft_result exchange_segments(struct shm *shm, const struct weft__identity *table, int *fds)
{
    struct weft__status status;
    unsigned char *marks = calloc(2, (size_t)shm->num_ranks);
    if (marks == NULL)
        return weft__error(WEFT_ERROR_OUT_OF_MEMORY, "no memory for %d ranks", shm->num_ranks);
    weft_result result = weft__status_init(&status, shm->num_ranks);
    if (result != WEFT_OK) {
        free(marks);
        return result;
    }
    const struct weft__fd_exchange exchange = {.socket_fd = shm->socket_fd,
                                               .rank = shm->rank,
                                               .num_ranks = shm->num_ranks,
                                               .timeout_ms = shm->timeout_ms,
                                               .table = table,
                                               .status = &status,
                                               .marks = marks};
    result = weft__fd_exchange(&exchange, shm->memory_fd, fds);
    weft__status_destroy(&status);
    free(marks);
    return result;
}

static weft_result attach(struct shm *shm, int32_t rank, const struct weft__identity *identity,
                          int fd)
{
    struct shm_peer *peer = &shm->peers[rank];
    struct stat status;
    if (fd < 0 || fstat(fd, &status) != 0 ||
        (size_t)status.st_size != segment_bytes(shm->num_ranks) ||
        (fcntl(fd, F_GET_SEALS) & SEALS) != SEALS)
        return weft__error(WEFT_ERROR_MISMATCH, "rank %d did not share a segment of %zu bytes",
                           rank, segment_bytes(shm->num_ranks));
    weft_result result = map_segment(fd, shm->num_ranks, &peer->segment);
    if (result != WEFT_OK)
        return result;
    memcpy(peer->socket_id, identity->socket_id, sizeof(peer->socket_id));
    peer->process_fd = weft__identity_watch(&shm->identity, identity);
    peer->state = THERE;
    weft__net_found_transport(shm->net, rank, "shared memory", WEFT__NET_WITHOUT_RDMA);
    return peer->process_fd < 0 ? WEFT_OK : watch(shm, peer->process_fd, rank);
}

static weft_result connect_to(struct shm *shm, const struct weft__net_blob *addresses,
                              struct weft__identity *table, int *fds)
{
    weft_result result = WEFT_OK;
    /* Without a host key of its own, a rank that is no peer takes no part. */
    for (int32_t rank = 0; rank < shm->num_ranks && result == WEFT_OK; rank++)
        if (addresses[rank].num_bytes > 0)
            result = read_identity(shm, rank, &addresses[rank], &table[rank]);
    table[shm->rank] = shm->identity;
    if (result != WEFT_OK)
        return result;
    result = exchange_segments(shm, table, fds);
    for (int32_t rank = 0; rank < shm->num_ranks && result == WEFT_OK; rank++)
        if (addresses[rank].num_bytes > 0)
            result = attach(shm, rank, &table[rank], fds[rank]);
    for (int32_t rank = 0; rank < shm->num_ranks; rank++)
        if (fds[rank] >= 0)
            close(fds[rank]);
    return result;
}

static weft_result connect_all(void *state, const struct weft__net_blob *addresses)
{
    struct shm *shm = state;
    struct weft__identity *table = calloc((size_t)shm->num_ranks, sizeof(*table));
    int *fds = malloc((size_t)shm->num_ranks * sizeof(*fds));
    weft_result result = WEFT_OK;
    for (int32_t rank = 0; fds != NULL && rank < shm->num_ranks; rank++)
        fds[rank] = -1;
    if (table == NULL || fds == NULL)
        result = weft__error(WEFT_ERROR_OUT_OF_MEMORY, "no memory for %d peers", shm->num_ranks);
    else
        result = connect_to(shm, addresses, table, fds);
    free(table);
    free(fds);
    return result;
}

/* ---------------------------------------------------------------- traffic */

/* Call after what the sleeper looks at has been stored: its flag is set before it looks. */
static void wake_if_set(struct shm *shm, const struct shm_peer *peer, _Atomic uint32_t *flag)
{
    atomic_thread_fence(memory_order_seq_cst);
    if (atomic_load_explicit(flag, memory_order_relaxed) != 0 && atomic_exchange(flag, 0) != 0)
        weft__fd_socket_wake(shm->socket_fd, peer->socket_id);
}

static enum weft__net_start send_message(void *state, struct weft__net_operation *operation)
{
    struct shm *shm = state;
    struct shm_peer *peer = &shm->peers[operation->peer];
    if (peer->state == GONE)
        return WEFT__NET_LOST;
    struct weft__ring *ring = &peer->segment->rings[shm->rank];
    if (!weft__ring_put(ring, &peer->num_put, &operation->header, operation->payload)) {
        atomic_store(&ring->source_waits, 1);
        atomic_thread_fence(memory_order_seq_cst);
        if (!weft__ring_put(ring, &peer->num_put, &operation->header, operation->payload))
            return WEFT__NET_FULL;
    }
    wake_if_set(shm, peer, &peer->segment->is_asleep);
    return WEFT__NET_DONE;
}

static int take_from(struct shm *shm, int32_t rank)
{
    struct shm_peer *peer = &shm->peers[rank];
    struct weft__ring *ring = &shm->segment->rings[rank];
    enum weft__ring_result result = WEFT__RING_EMPTY;
    int num_records = 0;
    while (num_records < NUM_RECORDS && peer->state == THERE) {
        const struct weft__record *record;
        size_t payload_bytes;
        result = weft__ring_next(ring, &peer->num_taken, &record, &payload_bytes);
        if (result != WEFT__RING_RECORD)
            break;
        weft__net_receive(shm->net, rank, &record->header, sizeof(record->header), record + 1,
                          payload_bytes);
        weft__ring_take(ring, &peer->num_taken, payload_bytes);
        num_records++;
    }
    if (result == WEFT__RING_BROKEN) {
        weft__net_fail_peer(shm->net, rank, "rank %d wrote what is no message to shared memory",
                            rank);
        peer->state = GONE;
    }
    if (num_records > 0)
        wake_if_set(shm, peer, &ring->source_waits);
    return num_records;
}

static void lose(struct shm *shm, int32_t rank)
{
    /* What it has said counts, a goodbye above all. */
    while (take_from(shm, rank) > 0)
        continue;
    weft__net_fail_peer(shm->net, rank, "rank %d died", rank);
    shm->peers[rank].state = GONE;
}

/* Whether there was anything to look at. */
static int look_at_events(struct shm *shm)
{
    struct epoll_event events[16];
    int num_events = epoll_wait(shm->epoll_fd, events, 16, 0);
    for (int index = 0; index < num_events; index++) {
        int32_t who = (int32_t)(int64_t)events[index].data.u64;
        if (who == SOCKET_EVENT)
            weft__fd_socket_drain(shm->socket_fd);
        else if (shm->peers[who].state == THERE)
            lose(shm, who);
    }
    return num_events > 0;
}

static int progress(void *state)
{
    struct shm *shm = state;
    int num_records = 0;
    atomic_store_explicit(&shm->segment->is_asleep, 0, memory_order_relaxed);
    for (int32_t rank = 0; rank < shm->num_ranks; rank++)
        if (shm->peers[rank].state == THERE)
            num_records += take_from(shm, rank);
    if (++shm->num_calls % CALLS_PER_LOOK == 0)
        look_at_events(shm);
    return num_records;
}

static enum weft__net_armed arm(void *state)
{
    struct shm *shm = state;
    if (look_at_events(shm))
        return WEFT__NET_BUSY;
    atomic_store(&shm->segment->is_asleep, 1);
    atomic_thread_fence(memory_order_seq_cst); /* pairs with that of wake_if_set */
    for (int32_t rank = 0; rank < shm->num_ranks; rank++)
        if (shm->peers[rank].state == THERE &&
            !weft__ring_is_empty(&shm->segment->rings[rank], shm->peers[rank].num_taken))
            return WEFT__NET_BUSY;
    return WEFT__NET_ARMED;
}

static int fd_of(const void *state)
{
    return ((const struct shm *)state)->epoll_fd;
}

static void disconnect(void *state, int32_t rank)
{
    struct shm_peer *peer = &((struct shm *)state)->peers[rank];
    peer->state = GONE;
    if (peer->process_fd >= 0)
        close(peer->process_fd); /* which takes it out of the epoll set */
    peer->process_fd = -1;
}

/* What is in the rings of others stays there for them. */
static void close_shm(void *state, int64_t deadline_ns)
{
    (void)deadline_ns;
    free_shm(state);
}

const struct weft__net_engine weft__net_shm = {.name = "shm",
                                               .header_bytes = sizeof(struct weft__net_header),
                                               .probe = probe,
                                               .open = open_shm,
                                               .max_message_bytes = max_message_bytes,
                                               .address = address,
                                               .connect = connect_all,
                                               .send = send_message,
                                               .progress = progress,
                                               .arm = arm,
                                               .fd = fd_of,
                                               .disconnect = disconnect,
                                               .close = close_shm};
