/* SPDX-License-Identifier: MIT */
#include "coll/coll_internode.h"

#include <stdlib.h>

#include "programs/coll/streams.h"

/* ---------------------------------------------------------------- life */

enum {
    LEAST_SLOTS = 2,
    DEFAULT_SLOTS = 8,
    DEFAULT_SLOT_BYTES = (128 << 10) + WP_CHUNK_HEADER_BYTES
};

/* As of weft_ep: warps of GPUs are slow with memory of the host, and fibers share a core. */
static int32_t default_channels(const weft_comm *comm)
{
    return weft__machine_of(comm)->kind == WEFT_MACHINE_CUDA ? 4 : 1;
}

/* To pass on, a ring needs two. */
static int32_t num_slots(const weft_coll_config *config)
{
    if (config->num_staging_slots == 0)
        return DEFAULT_SLOTS;
    return config->num_staging_slots < LEAST_SLOTS ? LEAST_SLOTS : config->num_staging_slots;
}

void weft__coll_internode_plan(const weft_comm *comm, const weft_coll_config *config,
                               struct wp_rings *rings)
{
    *rings = (struct wp_rings){
        .reach = comm->topology.num_nodes > 1 ? 1 : 0,
        .num_channels = config->num_channels == 0 ? default_channels(comm) : config->num_channels,
        .num_slots = num_slots(config),
    };
    const uint64_t slot_bytes =
        config->staging_slot_bytes == 0 ? DEFAULT_SLOT_BYTES : config->staging_slot_bytes;
    rings->num_credited = rings->num_slots / 2;
    rings->slot_bytes = (uint32_t)wp_wire_round_up(slot_bytes);
}

weft_result weft__coll_internode_create_nodes(weft_coll *coll)
{
    struct weft__coll_internode *internode = coll->internode;
    WEFT__TRY(weft__nodes_create(coll->comm, &internode->nodes));
    internode->rings.nodes = internode->nodes.device;
    return WEFT_OK;
}

static weft_result allocate_tables(weft_coll *coll)
{
    const struct weft__machine *machine = weft__machine_of(coll->comm);
    struct weft__coll_internode *internode = coll->internode;
    struct wp_rings *rings = &internode->rings;
    WEFT__TRY(machine->alloc(coll->comm, weft__rings_counters_bytes(rings), &internode->counters));
    weft__rings_lay_counters(rings, internode->counters);
    return machine->alloc(coll->comm, (uint64_t)rings->num_channels * rings->slot_bytes,
                          &internode->own_sums);
}

weft_result weft__coll_internode_create_rings(weft_coll *coll)
{
    WEFT__TRY(weft__comm_agree(coll->comm, allocate_tables(coll), "have a weft_coll's rings"));
    if (coll->internode->rings.reach == 0)
        return WEFT_OK;
    WEFT__TRY(weft__rings_allocate(coll->comm, 0, &coll->internode->rings));
    return weft__coll_tree_create(coll);
}

void weft__coll_internode_destroy(weft_coll *coll)
{
    struct weft__coll_internode *internode = coll->internode;
    const struct weft__machine *machine = weft__machine_of(coll->comm);
    if (internode == NULL)
        return;
    weft__coll_tree_destroy(coll);
    weft__rings_free(coll->comm, &internode->rings);
    machine->free(coll->comm, internode->counters);
    machine->free(coll->comm, internode->own_sums);
    weft__nodes_destroy(coll->comm, &internode->nodes);
    free(internode);
}

/* ---------------------------------------------------------------- launches */

static struct wp_reduction reduction_of(const struct weft__coll_call *call)
{
    const int is_average = call->op == WEFT_AVG;
    return (struct wp_reduction){.dtype = call->dtype,
                                 .op = weft__coll_reduction_op(call),
                                 .num_averaged = is_average ? call->coll->comm->num_ranks : 0};
}

/* A warp for each channel, and one at least for what stays in the node. */
static struct weft__grid grid_of(const struct weft__coll_call *call)
{
    struct weft__grid grid = weft__coll_tensor_grid(call, WEFT__WORK_PUSH_TENSOR);
    const int32_t num_wanted = call->coll->internode->rings.num_channels + 1;
    /* As of weft_ep's: copy engines do not see what the network has put. */
    grid.copied_row_bytes = 0;
    return call->coll->num_warps == 0 ? weft__coll_widen_grid(call->coll, grid, num_wanted) : grid;
}

/* Whether a rank has one row to send, or to get, whatever the number of ranks. */
static int is_of_one_row(weft_collective collective)
{
    return collective == WEFT_ALL_REDUCE || collective == WEFT_BROADCAST ||
           collective == WEFT_REDUCE;
}

/* Where ranks take turns on a core, another rail sends no sooner, but makes one more message, on
 * both sides, and one more turn: so there is one for each ring's worth of what the largest node
 * sends to another. */
int32_t weft__coll_num_rails(const weft_coll *coll, weft_collective collective, uint64_t row_bytes)
{
    const struct wp_rings *rings = &coll->internode->rings;
    const uint64_t num_local = (uint64_t)rings->nodes.most_local;
    const uint64_t ring_bytes =
        (uint64_t)rings->num_channels * (uint64_t)rings->num_slots * wp_chunk_payload(rings);
    uint64_t bytes = row_bytes;
    if (coll->wire.ranks_per_core <= 1 || rings->nodes.num_nodes == 1)
        return rings->nodes.num_rails;
    if (!is_of_one_row(collective))
        bytes *= collective == WEFT_ALL_TO_ALL ? num_local * num_local : num_local;
    const uint64_t num_filled = bytes == 0 ? 1 : (bytes + ring_bytes - 1) / ring_bytes;
    return num_filled < (uint64_t)rings->nodes.num_rails ? (int32_t)num_filled
                                                         : rings->nodes.num_rails;
}

static weft_result launch(const struct weft__coll_call *call, weft_algorithm algorithm,
                          const struct weft__coll_places *places)
{
    const weft_coll *coll = call->coll;
    const struct weft__grid grid = grid_of(call);
    const uint64_t row_bytes = weft__coll_row_bytes(call);
    struct wp_internode_collective_args args = {
        .exchange = coll->exchange->device,
        .rings = coll->internode->rings,
        .collective = call->collective,
        .reduction = reduction_of(call),
        .root = call->root,
        .root_node = coll->comm->topology.node_of_rank[call->root],
        .row_bytes = row_bytes,
        .chunk_bytes = weft__coll_chunk_bytes(coll, row_bytes),
        .own_sums = coll->internode->own_sums,
    };
    if (algorithm == WEFT_ALGORITHM_TREE) {
        args.tree = weft__coll_tree_toward(coll, args.root_node);
    } else {
        args.tree = coll->internode->tree;
        args.tree.num_levels = 0;
        args.rings.nodes.num_rails = weft__coll_num_rails(coll, call->collective, row_bytes);
    }
    /* Calls of several sizes, which may go by several algorithms, differ in their size. */
    args.message.call.head =
        weft__coll_header(call, WEFT_ALGORITHM_RAILS, weft__coll_told_bytes(call)).call;
    args.message.num_blocks = grid.num_blocks;
    args.message.arrays[WP_ARRAY_INPUT] = places->input;
    args.message.arrays[WP_ARRAY_OUTPUT] = places->output;
    weft__coll_note(call, WP_PROGRAM_internode_collective);
    return weft__exchange_launch(coll->exchange, call->stream, WP_PROGRAM_internode_collective,
                                 grid, &args, sizeof args);
}

/* ---------------------------------------------------------------- memory that others do not
 * reach */

/* One of the arrays of a call on this rank: rows one after the other. */
struct array {
    char *memory;
    int32_t num_rows;
    char *staging;
    uint64_t staging_place;
    uint64_t place; /* of the memory, if others reach it */
    int is_staged;
};

static int32_t num_rows_sent(const struct weft__coll_call *call)
{
    const weft_comm *comm = call->coll->comm;
    const weft_collective collective = call->collective;
    if ((collective == WEFT_BROADCAST || collective == WEFT_SCATTER) && comm->rank != call->root)
        return 0;
    return collective == WEFT_REDUCE_SCATTER || collective == WEFT_ALL_TO_ALL ||
                   collective == WEFT_SCATTER
               ? comm->num_ranks
               : 1;
}

static int32_t num_rows_received(const struct weft__coll_call *call)
{
    const weft_comm *comm = call->coll->comm;
    const weft_collective collective = call->collective;
    if ((collective == WEFT_REDUCE || collective == WEFT_GATHER) && comm->rank != call->root)
        return 0;
    return collective == WEFT_ALL_GATHER || collective == WEFT_ALL_TO_ALL ||
                   collective == WEFT_GATHER
               ? comm->num_ranks
               : 1;
}

/* Inputs have the first half of the staging block, outputs the second. */
static struct array array_of(const struct weft__coll_call *call, const char *memory,
                             int32_t num_rows, int half)
{
    const uint64_t offset = (uint64_t)half * call->coll->staging_bytes;
    const uint64_t bytes = (uint64_t)num_rows * weft__coll_row_bytes(call);
    struct array array = {.memory = (char *)(uintptr_t)memory,
                          .num_rows = num_rows,
                          .staging = call->coll->staging + offset,
                          .staging_place = weft__coll_staging_place(call->coll) + offset};
    array.is_staged = bytes > 0 && !weft__coll_find_place(call, memory, bytes, &array.place);
    return array;
}

enum direction { TO_STAGING, FROM_STAGING };

/* Elements [begin, begin + piece->count) of the array's rows. */
static weft_result copy_rows(const struct weft__coll_call *call,
                             const struct weft__coll_call *piece, const struct array *array,
                             uint64_t begin, enum direction direction)
{
    const uint64_t piece_bytes = weft__coll_row_bytes(piece);
    const uint64_t element_bytes = wp_dtype_bytes(call->dtype);
    for (int32_t row = 0; row < array->num_rows && array->is_staged;) {
        struct wp_copy_args copies = {0};
        for (; row < array->num_rows && copies.num_rows < WP_MAX_COPIED_ROWS; row++) {
            char *staged = array->staging + (uint64_t)row * piece_bytes;
            char *own = array->memory + ((uint64_t)row * call->count + begin) * element_bytes;
            weft__coll_add_copy(&copies, direction == TO_STAGING ? staged : own,
                                direction == TO_STAGING ? own : staged, piece_bytes);
        }
        WEFT__TRY(weft__coll_launch_copies(call, &copies));
    }
    return WEFT_OK;
}

static weft_result run_piece(const struct weft__coll_call *call, weft_algorithm algorithm,
                             const struct array arrays[2], uint64_t begin, uint64_t count)
{
    struct weft__coll_call piece = *call;
    piece.count = count;
    piece.whole_count = count < call->count ? call->count : call->whole_count;
    const struct weft__coll_places places = {
        .input = arrays[0].is_staged ? arrays[0].staging_place : arrays[0].place,
        .output = arrays[1].is_staged ? arrays[1].staging_place : arrays[1].place};
    WEFT__TRY(copy_rows(call, &piece, &arrays[0], begin, TO_STAGING));
    WEFT__TRY(launch(&piece, algorithm, &places));
    return copy_rows(call, &piece, &arrays[1], begin, FROM_STAGING);
}

/* A root's input is nothing that the others know of: where its output is reached, it goes from
 * there. */
static weft_result broadcast_from_output(const struct weft__coll_call *call, struct array arrays[2])
{
    struct wp_copy_args copy = {0};
    if (call->collective != WEFT_BROADCAST || !arrays[0].is_staged || arrays[1].is_staged)
        return WEFT_OK;
    weft__coll_add_copy(&copy, arrays[1].memory, arrays[0].memory, weft__coll_row_bytes(call));
    arrays[0] = arrays[1];
    return weft__coll_launch_copies(call, &copy);
}

/* In pieces both arrays are staged, so that the rows of all ranks are alike. */
weft_result weft__coll_internode_run(const struct weft__coll_call *call, weft_algorithm algorithm)
{
    struct array arrays[2] = {array_of(call, call->send, num_rows_sent(call), 0),
                              array_of(call, call->recv, num_rows_received(call), 1)};
    WEFT__TRY(broadcast_from_output(call, arrays));
    const int32_t num_ranks = call->coll->comm->num_ranks;
    const uint64_t most = call->coll->staging_bytes /
                          (is_of_one_row(call->collective) ? 1 : (uint64_t)num_ranks) /
                          wp_dtype_bytes(call->dtype);
    if ((!arrays[0].is_staged && !arrays[1].is_staged) || call->count <= most)
        return run_piece(call, algorithm, arrays, 0, call->count);
    arrays[0].is_staged = arrays[1].is_staged = 1;
    for (uint64_t begin = 0; begin < call->count; begin += most) {
        const uint64_t rest = call->count - begin;
        WEFT__TRY(run_piece(call, algorithm, arrays, begin, rest < most ? rest : most));
    }
    return WEFT_OK;
}
