/* SPDX-License-Identifier: MIT */
/* How fast the links between the GPUs are, for the choice of grids. */
#include "machine/cuda/link_rate.h"

#include <stdlib.h>

#include "comm/host/log.h"
#include "machine/cuda/device.h"

enum {
    /* 0.1 ms over NVLink, of which starting and ending take a twentieth; some 1.3 ms over PCIe. */
    PUSHED_BYTES = 32 << 20,
    NUM_TIMED = 2,
    NUM_EVENTS = NUM_TIMED + 1,
    FREE_OFFSET = 4096, /* nothing has been allocated in the heap yet */
    MAX_BLOCKS = 64
};

/* The rate of an H200's links (NV18). */
static const double ASSUMED_GBPS = 350;

static const struct weft__program link_rate_program = {.name = "link_rate"};

struct pushes {
    struct wp_link_rate_args args;
    uint64_t bytes; /* of one launch; 0: no link can be measured */
    void *heap_bases;
    CUevent events[NUM_EVENTS];
};

/* To all the others that can be reached, each into a slice of its own of what the heap has from the
 * start. Ranks on one GPU have no link between them, and would measure each other's launches. */
static void plan_pushes(const weft_comm *comm, struct pushes *pushes)
{
    char *const *bases = weft__heap_bases(comm->heap);
    weft_heap_info heap;
    weft__heap_query(comm->heap, &heap);
    const uint64_t free_bytes =
        heap.committed_bytes > FREE_OFFSET ? heap.committed_bytes - FREE_OFFSET : 0;
    const uint64_t num_slice_pieces =
        free_bytes / (uint64_t)comm->num_ranks / WP_LINK_RATE_PIECE_BYTES;
    uint64_t num_peers = 0;
    for (int32_t rank = 0; rank < comm->num_ranks; rank++)
        num_peers += rank != comm->rank && bases[rank] != NULL;
    if (num_peers == 0 || num_slice_pieces == 0 || weft__cuda_of(comm)->num_ranks_here > 1)
        return;
    const uint64_t num_pieces = PUSHED_BYTES / WP_LINK_RATE_PIECE_BYTES / num_peers;
    pushes->bytes = num_pieces * num_peers * WP_LINK_RATE_PIECE_BYTES;
    pushes->args = (struct wp_link_rate_args){
        .rank = comm->rank,
        .num_ranks = comm->num_ranks,
        .slice_offset =
            FREE_OFFSET + (uint64_t)comm->rank * num_slice_pieces * WP_LINK_RATE_PIECE_BYTES,
        .num_slice_pieces = (uint32_t)num_slice_pieces,
        .num_pieces = (uint32_t)num_pieces};
}

static weft_result prepare(weft_comm *comm, struct pushes *pushes)
{
    plan_pushes(comm, pushes);
    if (pushes->bytes == 0)
        return WEFT_OK;
    WEFT__TRY(weft__machine_duplicate(comm, weft__heap_bases(comm->heap),
                                      (uint64_t)comm->num_ranks * sizeof(char *),
                                      &pushes->heap_bases));
    pushes->args.heap_bases = pushes->heap_bases;
    WEFT__TRY(weft__cuda_enter(weft__cuda_of(comm)));
    CUresult created = CUDA_SUCCESS;
    for (int32_t i = 0; i < NUM_EVENTS && created == CUDA_SUCCESS; i++)
        created = weft__cu.event_create(&pushes->events[i], CU_EVENT_DEFAULT);
    weft__cuda_leave();
    return created == CUDA_SUCCESS ? WEFT_OK
                                   : weft__cuda_error(created, "cannot create a CUDA event");
}

/* Behind whatever is still enqueued. */
static void clean_up(weft_comm *comm, struct pushes *pushes)
{
    weft__cuda_free(comm, pushes->heap_bases);
    if (weft__cuda_enter(weft__cuda_of(comm)) != WEFT_OK)
        return;
    for (int32_t i = 0; i < NUM_EVENTS; i++) {
        if (pushes->events[i] != NULL)
            (void)weft__cu.event_destroy(pushes->events[i]);
    }
    weft__cuda_leave();
}

/* The first launch wakes the links. At most one stream's share of the SMs: the launch waits until
 * all its blocks have one, and kernels of other communicators may hold theirs until this rank goes
 * on. */
static weft_result push(weft_comm *comm, const struct pushes *pushes)
{
    const struct weft__cuda *cuda = weft__cuda_of(comm);
    const int32_t share = cuda->num_sms / cuda->num_streams, most = share > 0 ? share : 1;
    const struct weft__launch launch = {
        .program = &link_rate_program,
        .args = &pushes->args,
        .args_bytes = sizeof pushes->args,
        .grid = {.num_blocks = most < MAX_BLOCKS ? most : MAX_BLOCKS,
                 .num_warps = WEFT__CUDA_MAX_WARPS},
        .comm = comm};
    struct weft__cuda_queue queue = {.stream = cuda->copies};
    for (int32_t i = 0; i < NUM_EVENTS; i++) {
        WEFT__TRY(weft__cuda_launch_on(&queue, &launch));
        WEFT__CUDA_TRY(weft__cu.event_record(pushes->events[i], cuda->copies),
                       "cannot record a CUDA event");
    }
    WEFT__CUDA_TRY(weft__cu.stream_synchronize(cuda->copies),
                   "rank %d cannot push to the heaps of the others", comm->rank);
    return WEFT_OK;
}

/* The rate of the fastest launch: others may have waited for work of other streams. */
static weft_result read_rate(const struct pushes *pushes, double *gbps)
{
    for (int32_t i = 0; i < NUM_TIMED; i++) {
        float elapsed_ms = 0;
        WEFT__CUDA_TRY(
            weft__cu.event_elapsed_time(&elapsed_ms, pushes->events[i], pushes->events[i + 1]),
            "cannot compare events");
        const double seen_gbps =
            elapsed_ms > 0 ? (double)pushes->bytes / (double)elapsed_ms * 1e-6 : 0;
        *gbps = seen_gbps > *gbps ? seen_gbps : *gbps;
    }
    return WEFT_OK;
}

static weft_result push_and_time(weft_comm *comm, const struct pushes *pushes, double *gbps)
{
    if (pushes->bytes == 0)
        return WEFT_OK;
    WEFT__TRY(weft__cuda_enter(weft__cuda_of(comm)));
    weft_result result = push(comm, pushes);
    if (result == WEFT_OK)
        result = read_rate(pushes, gbps);
    weft__cuda_leave();
    return result;
}

/* The ranks push at the same time, as in a dispatch. */
static weft_result measure(weft_comm *comm, struct pushes *pushes, double *gbps)
{
    WEFT__TRY(weft__comm_agree(comm, prepare(comm, pushes), "prepare to measure its links"));
    return weft__comm_agree(comm, push_and_time(comm, pushes, gbps), "measure its links");
}

/* All ranks choose alike. */
static weft_result agree_on_slowest(weft_comm *comm, double *gbps)
{
    weft_result result;
    double *rates = weft__comm_gather_new(comm, WEFT_OK, gbps, sizeof *gbps, &result);
    for (int32_t rank = 0; rates != NULL && rank < comm->num_ranks; rank++)
        *gbps = rates[rank] < *gbps ? rates[rank] : *gbps;
    free(rates);
    return result;
}

void weft__cuda_describe_links(const weft_comm *comm, struct weft__links *links)
{
    *links = weft__cuda_of(comm)->links;
}

weft_result weft__cuda_measure_links(weft_comm *comm)
{
    struct weft__cuda *cuda = weft__cuda_of(comm);
    struct pushes pushes = {.bytes = 0};
    double gbps = 0;
    cuda->links.gbps = ASSUMED_GBPS;
    if (comm->num_ranks == 1)
        return WEFT_OK;
    weft_result result = measure(comm, &pushes, &gbps);
    clean_up(comm, &pushes);
    if (result == WEFT_OK)
        result = agree_on_slowest(comm, &gbps);
    if (result == WEFT_OK && gbps > 0)
        cuda->links = (struct weft__links){.gbps = gbps, .is_measured = 1};
    weft__log(WEFT__LOG_INFO, comm->rank, "links of %.0f GB/s (%s)", cuda->links.gbps,
              cuda->links.is_measured ? "measured"
                                      : "assumed: ranks share a GPU, or their heaps are too small");
    return result;
}
