/* SPDX-License-Identifier: MIT */
/* Communicators of the sim: takes the place of the rendezvous and of shared memory. All ranks are
 * here, so what they share is one object. */
#include "comm/comm.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "comm/bootstrap.h"
#include "comm/ranges.h"
#include "machine/sim/world.h"

#define WEFT_SIM_TRY(call)                                                                         \
    do {                                                                                           \
        const weft_result result_of_try = (call);                                                  \
        if (result_of_try != WEFT_OK)                                                              \
            return result_of_try;                                                                  \
    } while (0)

/* What the ranks of one communicator share. */
struct weft__link {
    struct weft__link *next;
    uint64_t key;
    int32_t num_ranks;
    int32_t num_joined;
    int has_joined[SIM_MAX_RANKS];
    int32_t num_destroyed;
    weft_comm *comms[SIM_MAX_RANKS]; /* NULL before creation, and after destruction */
    int32_t world_ranks[SIM_MAX_RANKS];
    char *heap_bases[SIM_MAX_RANKS]; /* also after destruction */
    /* The all-gather that is going on. */
    uint64_t gather_number;
    int32_t num_gathered;
    int has_gathered[SIM_MAX_RANKS];
    size_t blob_bytes[SIM_MAX_RANKS];
    unsigned char *blobs[SIM_MAX_RANKS];
    struct sim_clock clocks[2]; /* of this all-gather's and the previous one's past */
};

struct region;

struct weft__heap {
    int32_t rank;
    int32_t num_ranks;
    struct weft__ranges ranges;
    char *bases[SIM_MAX_RANKS];
    struct region *region;
};

enum { HEAP_BYTES = 64 << 20, HEADER_BYTES = 256 };

/* A heap's memory lasts as long as the run, since peers keep it mapped after its owner has gone; it is
 * used again in the next. */
struct region {
    struct region *next;
    char *base;
    uint64_t used_bytes;
};

static struct weft__link *links;
static struct region *used_regions, *free_regions;
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
    for (struct weft__link *link = links; link != NULL; link = link->next) {
        if (link->key == key)
            return link;
    }
    struct weft__link *link = calloc(1, sizeof *link);
    if (link == NULL)
        return NULL;
    link->key = key;
    link->num_ranks = num_ranks;
    link->next = links;
    links = link;
    return link;
}

static int all_have_joined(struct sim_fiber *fiber)
{
    const weft_comm *comm = fiber->wait_argument;
    return comm->link->num_joined == comm->num_ranks ||
           atomic_load(&((weft_comm *)(uintptr_t)comm)->status.result) != WEFT_OK;
}

static struct region *take_region(void)
{
    struct region *region = free_regions;
    if (region != NULL) {
        free_regions = region->next;
    } else {
        region = calloc(1, sizeof *region);
        char *base = mmap(NULL, HEAP_BYTES, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (region == NULL || base == MAP_FAILED) {
            free(region);
            return NULL;
        }
        region->base = base;
    }
    region->next = used_regions;
    used_regions = region;
    return region;
}

static void free_all_regions(void)
{
    while (used_regions != NULL) {
        struct region *region = used_regions;
        used_regions = region->next;
        memset(region->base, 0, region->used_bytes);
        region->used_bytes = 0;
        region->next = free_regions;
        free_regions = region;
    }
}

static weft_result create_heap(weft_comm *comm)
{
    struct weft__heap *heap = calloc(1, sizeof *heap);
    struct region *region = take_region();
    if (heap == NULL || region == NULL) {
        free(heap);
        return weft__error(WEFT_ERROR_OUT_OF_MEMORY, "no memory for a heap");
    }
    heap->rank = comm->rank;
    heap->num_ranks = comm->num_ranks;
    heap->region = region;
    weft__ranges_init(&heap->ranges, HEAP_BYTES);
    uint64_t header;
    (void)weft__ranges_alloc(&heap->ranges, HEADER_BYTES, &header);
    heap->bases[comm->rank] = region->base;
    comm->heap = heap;
    return WEFT_OK;
}

static weft_result set_topology(weft_comm *comm, int32_t num_nodes)
{
    uint64_t node_keys[SIM_MAX_RANKS];
    if (num_nodes == 0)
        num_nodes = 1;
    if (num_nodes < 0 || comm->num_ranks % num_nodes != 0)
        return weft__error(WEFT_ERROR_INVALID_ARGUMENT,
                           "num_nodes is %d, which does not divide the %d ranks", num_nodes,
                           comm->num_ranks);
    for (int32_t rank = 0; rank < comm->num_ranks; rank++)
        node_keys[rank] = (uint64_t)(rank / (comm->num_ranks / num_nodes));
    return weft__topology_init(&comm->topology, node_keys, comm->num_ranks);
}

static void note_death(weft_comm *comm, int32_t rank)
{
    weft__status_set_rank(&comm->status, rank, WEFT__RANK_DEAD);
    weft__status_fail(&comm->status, WEFT_ERROR_RANK_FAILED, rank, "rank %d died", rank);
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

static weft_result join(weft_comm *comm)
{
    struct weft__link *link = comm->link;
    link->comms[comm->rank] = comm;
    link->world_ranks[comm->rank] = sim_current()->rank;
    link->heap_bases[comm->rank] = comm->heap->bases[comm->rank];
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
    WEFT_SIM_TRY(weft__status_check(&comm->status));
    for (int32_t rank = 0; rank < comm->num_ranks; rank++) {
        if (sim_world->rank_is_dead[link->world_ranks[rank]])
            return weft__error(WEFT_ERROR_RANK_FAILED, "rank %d died", rank);
    }
    for (int32_t rank = 0; rank < comm->num_ranks; rank++) {
        if (link->comms[rank] == NULL)
            return weft__error(WEFT_ERROR_RANK_FAILED, "rank %d has left the communicator", rank);
    }
    for (int32_t rank = 0; rank < comm->num_ranks; rank++)
        comm->heap->bases[rank] = link->comms[rank]->heap->bases[rank];
    return weft__comm_all_gather(comm, NULL, 0, NULL); /* nobody leaves before all have looked */
}

static weft_result create(uint64_t key, int32_t rank, int32_t num_ranks,
                          const weft_comm_config *user_config, weft_comm **created)
{
    weft_comm_config config;
    WEFT_SIM_TRY(weft__config_copy(&config, sizeof config, user_config, "weft_comm_config"));
    weft_comm *comm = calloc(1, sizeof *comm);
    if (comm == NULL || num_ranks > SIM_MAX_RANKS) {
        free(comm);
        return weft__error(WEFT_ERROR_OUT_OF_MEMORY, "no memory for %d ranks", num_ranks);
    }
    comm->rank = rank;
    comm->num_ranks = num_ranks;
    comm->key = key;
    comm->timeout_ms = config.timeout_ms == 0 ? 30000 : config.timeout_ms;
    comm->link = find_link(key, num_ranks);
    weft_result result = weft__status_init(&comm->status, num_ranks);
    if (result == WEFT_OK)
        result = set_topology(comm, config.num_nodes);
    if (result == WEFT_OK)
        result = create_heap(comm);
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
                              const weft_comm_config *config, weft_comm **comm)
{
    uint64_t key;
    memcpy(&key, id->bytes, sizeof key);
    return create(key, rank, num_ranks, config, comm);
}

weft_result weft__comm_create_from_env(const weft_comm_config *config, weft_comm **comm)
{
    (void)config;
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
    WEFT_SIM_TRY(weft__comm_all_gather(comm, &own, sizeof own, all));
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
    return color < 0 ? WEFT_OK : create(child_key, rank, num_ranks, config, child);
}

void weft__comm_destroy(weft_comm *comm)
{
    struct weft__link *link = comm->link;
    link->comms[comm->rank] = NULL;
    for (int32_t rank = 0; rank < comm->num_ranks; rank++) {
        if (link->comms[rank] != NULL)
            weft__status_set_rank(&link->comms[rank]->status, comm->rank, WEFT__RANK_LEFT);
    }
    weft__heap_destroy(comm->heap);
    weft__topology_destroy(&comm->topology);
    weft__status_destroy(&comm->status);
    free(comm);
}

void weft__comm_abort(weft_comm *comm)
{
    for (int32_t rank = 0; rank < comm->num_ranks; rank++) {
        if (comm->link->comms[rank] != NULL)
            weft__status_fail(&comm->link->comms[rank]->status, WEFT_ERROR_ABORTED, comm->rank,
                              "rank %d has aborted the communicator", comm->rank);
    }
}

void sim_comm_lose_rank(int32_t world_rank)
{
    for (struct weft__link *link = links; link != NULL; link = link->next) {
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

static weft_result check_blob_bytes(const weft_comm *comm, size_t bytes)
{
    for (int32_t rank = 0; rank < comm->num_ranks; rank++) {
        if (comm->link->blob_bytes[rank] != bytes)
            return weft__error(WEFT_ERROR_MISMATCH,
                               "ranks disagree on bytes: %zu on this rank %d, %zu on rank %d",
                               bytes, comm->rank, comm->link->blob_bytes[rank], rank);
    }
    return WEFT_OK;
}

static weft_result take_blobs(const weft_comm *comm, size_t bytes, void *recv)
{
    WEFT_SIM_TRY(check_blob_bytes(comm, bytes));
    for (int32_t rank = 0; rank < comm->num_ranks && bytes > 0; rank++)
        memcpy((char *)recv + (size_t)rank * bytes, comm->link->blobs[rank], bytes);
    return WEFT_OK;
}

static void end_gather(struct weft__link *link)
{
    link->num_gathered = 0;
    link->gather_number++;
    memset(link->has_gathered, 0, sizeof link->has_gathered);
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
    else if (!sim_wait_until(gather_is_over, &wait, comm->timeout_ms)) {
        int32_t missing = 0;
        while (link->has_gathered[missing])
            missing++;
        weft__status_fail(&comm->status, WEFT_ERROR_TIMEOUT, missing,
                          "rank %d did not come within %u ms", missing, comm->timeout_ms);
    }
    sim_acquire(&link->clocks[wait.number % 2]);
    return weft__status_check(&comm->status);
}

weft_result weft__comm_all_gather(weft_comm *comm, const void *send, size_t bytes, void *recv)
{
    struct weft__link *link = comm->link;
    WEFT_SIM_TRY(weft__status_check(&comm->status));
    free(link->blobs[comm->rank]);
    link->blobs[comm->rank] = malloc(bytes + 1);
    if (link->blobs[comm->rank] == NULL)
        return weft__error(WEFT_ERROR_OUT_OF_MEMORY, "no memory to gather %zu bytes", bytes);
    if (bytes > 0)
        memcpy(link->blobs[comm->rank], send, bytes);
    link->blob_bytes[comm->rank] = bytes;
    WEFT_SIM_TRY(gather_round(comm));
    const weft_result result = take_blobs(comm, bytes, recv);
    WEFT_SIM_TRY(gather_round(comm));
    return result;
}

void sim_comm_reset(void)
{
    while (links != NULL) {
        struct weft__link *link = links;
        links = link->next;
        for (int32_t rank = 0; rank < SIM_MAX_RANKS; rank++) {
            free(link->blobs[rank]);
            if (link->comms[rank] != NULL) { /* of a rank that was killed */
                weft__heap_destroy(link->comms[rank]->heap);
                weft__topology_destroy(&link->comms[rank]->topology);
                weft__status_destroy(&link->comms[rank]->status);
                free(link->comms[rank]);
            }
        }
        free(link);
    }
    free_all_regions();
}

/* ---------------------------------------------------------------- heap */

char *const *weft__heap_bases(const struct weft__heap *heap)
{
    return heap->bases;
}

void weft__heap_destroy(struct weft__heap *heap)
{
    if (heap == NULL)
        return;
    weft__ranges_destroy(&heap->ranges);
    free(heap);
}

weft_result weft__heap_offset(const struct weft__heap *heap, const void *ptr, uint64_t bytes,
                              const char *argument, uint64_t *offset)
{
    *offset = 0;
    if (ptr == NULL && bytes == 0)
        return WEFT_OK;
    *offset = (uintptr_t)ptr - (uintptr_t)heap->bases[heap->rank];
    if (*offset < (uint64_t)HEAP_BYTES && weft__ranges_contain(&heap->ranges, *offset, bytes))
        return WEFT_OK;
    return weft__error(WEFT_ERROR_INVALID_ARGUMENT, "%s is not in the heap of this communicator",
                       argument);
}

weft_result weft__heap_alloc(weft_comm *comm, uint64_t bytes, void **ptr)
{
    uint64_t all[SIM_MAX_RANKS] = {0}, offset;
    WEFT_SIM_TRY(weft__comm_all_gather(comm, &bytes, sizeof bytes, all));
    for (int32_t rank = 0; rank < comm->num_ranks; rank++) {
        if (all[rank] != bytes)
            return weft__error(WEFT_ERROR_MISMATCH, "ranks disagree on bytes: rank %d differs",
                               rank);
    }
    *ptr = NULL;
    if (bytes == 0)
        return WEFT_OK;
    if (weft__ranges_alloc(&comm->heap->ranges, bytes, &offset) != WEFT__RANGES_OK)
        return weft__error(WEFT_ERROR_OUT_OF_MEMORY, "the heap has no %llu bytes free",
                           (unsigned long long)bytes);
    *ptr = comm->heap->bases[comm->rank] + offset;
    if (comm->heap->region->used_bytes < offset + bytes)
        comm->heap->region->used_bytes = offset + bytes;
    sim_shadow_set(*ptr, bytes, SIM_CONTENT_UNWRITTEN);
    return WEFT_OK;
}

/* Whether the heap's communicator has: then nobody can allocate again what is freed, and a rank that
 * has not learned of the failure yet may still write there. */
static int has_failed(const struct weft__heap *heap)
{
    for (struct weft__link *link = links; link != NULL; link = link->next) {
        const weft_comm *comm = link->comms[heap->rank];
        if (comm != NULL && comm->heap == heap)
            return atomic_load(&comm->status.result) != WEFT_OK;
    }
    return 0;
}

weft_result weft__heap_free(struct weft__heap *heap, void *ptr)
{
    if (ptr == NULL)
        return WEFT_OK;
    const uint64_t bytes =
        weft__ranges_free(&heap->ranges, (uintptr_t)ptr - (uintptr_t)heap->bases[heap->rank]);
    if (bytes == 0)
        return weft__error(WEFT_ERROR_INVALID_ARGUMENT, "ptr is not an allocation of the heap");
    if (!has_failed(heap))
        sim_shadow_set(ptr, bytes, SIM_CONTENT_FREED);
    return WEFT_OK;
}

weft_result weft__heap_grow(weft_comm *comm, uint64_t bytes)
{
    (void)comm;
    if (bytes <= (uint64_t)HEAP_BYTES)
        return WEFT_OK;
    return weft__error(WEFT_ERROR_OUT_OF_MEMORY, "the sim machine's heaps do not grow");
}

void weft__heap_query(struct weft__heap *heap, weft_heap_info *info)
{
    *info = (weft_heap_info){.committed_bytes = (uint64_t)HEAP_BYTES,
                             .used_bytes = heap->ranges.used_bytes,
                             .largest_free_bytes = weft__ranges_largest_free(&heap->ranges),
                             .max_bytes = (uint64_t)HEAP_BYTES,
                             .page_bytes = 4096};
}

void *weft__heap_peer(const struct weft__heap *heap, const void *ptr, int32_t rank)
{
    const uint64_t offset = (uintptr_t)ptr - (uintptr_t)heap->bases[heap->rank];
    return offset < (uint64_t)HEAP_BYTES && rank >= 0 && rank < heap->num_ranks
               ? heap->bases[rank] + offset
               : NULL;
}

int32_t sim_heap_rank(const void *address, uint64_t *offset)
{
    for (struct weft__link *link = links; link != NULL; link = link->next) {
        for (int32_t rank = 0; rank < link->num_ranks; rank++) {
            if (link->heap_bases[rank] == NULL)
                continue;
            *offset = (uintptr_t)address - (uintptr_t)link->heap_bases[rank];
            if (*offset < (uint64_t)HEAP_BYTES)
                return rank;
        }
    }
    return -1;
}
