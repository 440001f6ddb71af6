/* SPDX-License-Identifier: MIT */
/* Counted puts on the cpu machine: rows through a ring of slots, with credits, between ranks of two
 * nodes; in heaps that have grown; and puts that are wrong. */

#include "harness/cmocka.h"
#include "harness/machine.h"
#include "harness/ranks.h"
#include "launch/programs.h"
#include "machine/host.h"
#include "net/engine.h"

enum { NUM_RANKS = 4, NUM_NODES = 2, NUM_SLOTS = 4, NUM_ROWS = 100, MAX_ROW_BYTES = 100000 };

/* In memory of the network. */
struct area {
    unsigned char sent[NUM_SLOTS][MAX_ROW_BYTES];
    unsigned char received[NUM_SLOTS][MAX_ROW_BYTES];
    uint64_t num_arrived[NUM_SLOTS]; /* rows, in this rank's slots */
    uint64_t num_credits[NUM_SLOTS]; /* rows that the partner has read in its slots */
};

struct ring_args {
    struct area *area;
    uint64_t area_offset;
    int32_t rank, partner;
    uint64_t row_bytes;
    int32_t *num_wrong;
    struct wp_access wrong;      /* of put_wrongly */
    struct weft__status *status; /* of await_after_a_failure */
};

static unsigned char value_at(int32_t from, int32_t row, uint64_t byte)
{
    return (unsigned char)((uint64_t)from * 77 + (uint64_t)row * 13 + byte + (byte >> 8));
}

static enum wp_status send_row(struct wp_warp *warp, const struct ring_args *args, int32_t row)
{
    const int32_t slot = row % NUM_SLOTS;
    const struct wp_wait_site site = {WP_PHASE_DATA, args->partner, 1, args->area_offset, 0};
    if (wp_wait(warp, &args->area->num_credits[slot], (uint64_t)(row / NUM_SLOTS), &site) !=
        WP_STATUS_OK)
        return WP_STATUS_FAILED;
    for (uint64_t byte = 0; byte < args->row_bytes; byte++)
        args->area->sent[slot][byte] = value_at(args->rank, row, byte);
    const uint64_t slot_offset = (uint64_t)slot * MAX_ROW_BYTES;
    const struct wp_access put = wp_counted_put(
        args->partner, args->area_offset + offsetof(struct area, sent) + slot_offset,
        args->area_offset + offsetof(struct area, received) + slot_offset, args->row_bytes,
        args->area_offset + offsetof(struct area, num_arrived) + (uint64_t)slot * sizeof(uint64_t));
    wp_remote_post(warp, &put);
    return WP_STATUS_OK;
}

static enum wp_status receive_row(struct wp_warp *warp, const struct ring_args *args, int32_t row)
{
    const int32_t slot = row % NUM_SLOTS;
    const struct wp_wait_site site = {WP_PHASE_DATA, args->partner, 1, args->area_offset, 0};
    if (wp_wait(warp, &args->area->num_arrived[slot], (uint64_t)(row / NUM_SLOTS) + 1, &site) !=
        WP_STATUS_OK)
        return WP_STATUS_FAILED;
    for (uint64_t byte = 0; byte < args->row_bytes; byte++)
        *args->num_wrong += args->area->received[slot][byte] != value_at(args->partner, row, byte);
    const struct wp_access credit = wp_counted_put(
        args->partner, 0, 0, 0,
        args->area_offset + offsetof(struct area, num_credits) + (uint64_t)slot * sizeof(uint64_t));
    wp_remote_post(warp, &credit);
    return WP_STATUS_OK;
}

/* Until the partner has read all rows: before that the slots must not be freed. */
static enum wp_status await_all_credits(struct wp_warp *warp, const struct ring_args *args)
{
    const struct wp_wait_site site = {WP_PHASE_DATA, args->partner, 1, args->area_offset, 0};
    enum wp_status status = WP_STATUS_OK;
    for (int32_t slot = 0; slot < NUM_SLOTS && status == WP_STATUS_OK; slot++)
        status = wp_wait(warp, &args->area->num_credits[slot], NUM_ROWS / NUM_SLOTS, &site);
    return status;
}

/* Warp 0 sends, warp 1 receives. */
static enum wp_status pass_rows(struct wp_warp *warp, const void *untyped)
{
    const struct ring_args *args = untyped;
    enum wp_status status = WP_STATUS_OK;
    for (int32_t row = 0; row < NUM_ROWS && status == WP_STATUS_OK; row++)
        status = wp_warp_idx(warp) == 0 ? send_row(warp, args, row) : receive_row(warp, args, row);
    if (status == WP_STATUS_OK && wp_warp_idx(warp) == 0)
        status = await_all_credits(warp, args);
    return status;
}

/* And waits for what nobody sends. */
static enum wp_status put_wrongly(struct wp_warp *warp, const void *untyped)
{
    const struct ring_args *args = untyped;
    const struct wp_wait_site site = {WP_PHASE_DATA, args->partner, 1, args->area_offset, 0};
    if (args->wrong.add != 0)
        wp_remote_post(warp, &args->wrong);
    return wp_wait(warp, &args->area->num_arrived[0], UINT64_MAX, &site);
}

/* Who waits for what is done does not go on if the communicator has failed since. */
static enum wp_status await_after_a_failure(struct wp_warp *warp, const void *untyped)
{
    const struct ring_args *args = untyped;
    const struct wp_wait_site site = {WP_PHASE_DATA, args->partner, 1, args->area_offset, 0};
    const struct wp_access flush = {.operation = WP_ACCESS_FLUSH, .rank = args->partner};
    const uint64_t number = wp_remote_post(warp, &flush);
    *args->num_wrong += wp_remote_await(warp, number, &site) != WP_STATUS_OK;
    weft__status_fail(args->status, WEFT_ERROR_RANK_FAILED, args->partner, "as the test wants");
    *args->num_wrong += wp_remote_await(warp, number, &site) != WP_STATUS_FAILED;
    return WP_STATUS_OK;
}

/* ---------------------------------------------------------------- ranks */

static weft_comm *open_comm(struct ranks_context *context)
{
    return ranks_comm(
        context, WEFT_ARGS(weft_comm_config, .num_nodes = NUM_NODES, .heap_max_bytes = 64 << 20));
}

static int alloc_area(struct ranks_context *context, weft_comm *comm, struct ring_args *args)
{
    void *area;
    CHECK_OK(
        weft__host_machine.network_alloc(comm, sizeof(struct area), &area, &args->area_offset));
    args->area = area;
    args->rank = context->rank;
    args->partner = (context->rank + NUM_RANKS / NUM_NODES) % NUM_RANKS;
    return 0;
}

static weft_result launch(weft_comm *comm, weft__program_fn *function, const struct ring_args *args)
{
    weft_stream *stream;
    const struct weft__program program = {"rows", function};
    const struct weft__launch request = {
        .program = &program,
        .args = args,
        .args_bytes = sizeof *args,
        .grid = {.num_blocks = 1, .num_warps = function == pass_rows ? 2 : 1},
        .comm = comm,
        .on_failure = weft__program_failed};
    WEFT__TRY(weft_stream_create(comm, &stream));
    weft_result result = stream->machine->launch(stream, &request);
    if (result == WEFT_OK)
        result = weft_stream_synchronize(stream);
    (void)weft_stream_destroy(stream);
    return result;
}

static int pass_rows_of(struct ranks_context *context, weft_comm *comm, uint64_t row_bytes)
{
    int32_t num_wrong = 0;
    struct ring_args args = {.row_bytes = row_bytes, .num_wrong = &num_wrong};
    weft_net_info before = WEFT_INIT(weft_net_info), after = WEFT_INIT(weft_net_info);
    if (alloc_area(context, comm, &args) != 0)
        return 1;
    CHECK_OK(weft_net_query(comm, &before));
    CHECK_OK(launch(comm, pass_rows, &args));
    CHECK(num_wrong == 0, "%d wrong bytes", num_wrong);
    CHECK_OK(weft_comm_host_barrier(comm)); /* the last credits are under way */
    CHECK_OK(weft_net_query(comm, &after));
    const uint64_t num_bytes = after.sent_bytes - before.sent_bytes;
    const uint64_t num_header_bytes = after.sent_header_bytes - before.sent_header_bytes;
    CHECK(num_bytes - num_header_bytes == NUM_ROWS * row_bytes,
          "%llu bytes were sent, %llu of them headers", (unsigned long long)num_bytes,
          (unsigned long long)num_header_bytes);
    /* Engine tcp does not send the secret. */
    const uint64_t header_bytes = sizeof(struct weft__net_header) -
                                  (strcmp(after.engine, "tcp") == 0 ? WEFT__NONCE_BYTES : 0);
    CHECK(num_header_bytes >= NUM_ROWS * header_bytes && num_header_bytes % header_bytes == 0,
          "%llu bytes are headers", (unsigned long long)num_header_bytes);
    weft__host_machine.network_free(comm, args.area);
    return 0;
}

static int pass_rows_in_growing_heaps(struct ranks_context *context)
{
    weft_heap_info heap = WEFT_INIT(weft_heap_info);
    void *gap;
    weft_comm *const comm = open_comm(context);
    if (pass_rows_of(context, comm, 1000) != 0)
        return 1;
    CHECK_OK(weft_heap_query(comm, &heap));
    CHECK_OK(weft_heap_alloc(comm, heap.committed_bytes, &gap));
    if (pass_rows_of(context, comm, 16) != 0 ||
        pass_rows_of(context, comm, (uint64_t)tests_grid_size(MAX_ROW_BYTES, 5000)) != 0)
        return 1;
    return 0;
}

static int put_to_neighbour(struct ranks_context *context)
{
    int32_t failed_rank;
    struct ring_args args = {
        .wrong = {.operation = WP_ACCESS_PUT_SIGNAL, .rank = 1, .add = context->rank == 0}};
    weft_comm *const comm = open_comm(context);
    if (alloc_area(context, comm, &args) != 0)
        return 1;
    args.wrong.word = args.area_offset;
    CHECK_ERROR(launch(comm, put_wrongly, &args), WEFT_ERROR_INVALID_ARGUMENT,
                "network of rank 0: rank 1 is no peer of the network");
    CHECK(weft_comm_status(comm, &failed_rank) != WEFT_OK && failed_rank == 0, "rank %d failed",
          failed_rank);
    return 0;
}

/* Where the target has addresses, but no memory yet. It ends the connection, which rank 0 may tell
 * all before it says why; test_net_garbage has its words. */
static int put_beyond_the_memory(struct ranks_context *context)
{
    weft_heap_info heap = WEFT_INIT(weft_heap_info);
    struct ring_args args = {.wrong = {.operation = WP_ACCESS_PUT_SIGNAL,
                                       .rank = 3,
                                       .add = context->rank == 0,
                                       .num_bytes = 64}};
    weft_comm *const comm = open_comm(context);
    if (alloc_area(context, comm, &args) != 0)
        return 1;
    CHECK_OK(weft_heap_query(comm, &heap));
    args.wrong.source = args.wrong.word = args.area_offset;
    args.wrong.target = heap.committed_bytes;
    CHECK_ERROR(launch(comm, put_wrongly, &args), WEFT_ERROR_RANK_FAILED, "network of rank ");
    return 0;
}

TEST_ON_RANKS_OVER(a_wait_ends_with_the_failure_of_the_communicator, "tcp", RANKS_PROCESSES,
                   NUM_RANKS)
{
    int32_t num_wrong = 0;
    struct ring_args args = {.num_wrong = &num_wrong};
    weft_comm *const comm = open_comm(context);
    if (alloc_area(context, comm, &args) != 0)
        return 1;
    args.status = &comm->status;
    ranks_barrier(context);
    CHECK_ERROR(launch(comm, await_after_a_failure, &args), WEFT_ERROR_RANK_FAILED,
                "as the test wants");
    CHECK(num_wrong == 0, "%d of two waits end wrongly", num_wrong);
    ranks_barrier(context);
    return 0;
}

/* ---------------------------------------------------------------- tests */

TEST_OVER_ENGINES(rows_arrive)
{
    assert_int_equal(ranks_run(RANKS_PROCESSES, NUM_RANKS, pass_rows_in_growing_heaps, NULL), 0);
    assert_int_equal(ranks_run(RANKS_THREADS, NUM_RANKS, pass_rows_in_growing_heaps, NULL), 0);
}

TEST_OVER(puts_that_are_wrong_fail_the_communicator, "tcp")
{
    assert_int_equal(ranks_run(RANKS_PROCESSES, NUM_RANKS, put_to_neighbour, NULL), 0);
    assert_int_equal(ranks_run(RANKS_PROCESSES, NUM_RANKS, put_beyond_the_memory, NULL), 0);
}
