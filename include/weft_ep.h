/* SPDX-License-Identifier: MIT */
/* Expert parallelism, and its low-latency form: a part of weft.h, which includes it and has the rules
 * that hold for all of it. */
#ifndef WEFT_EP_H
#define WEFT_EP_H

#include "weft.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---------------------------------------------------------------- expert parallelism */

/*
 * The experts of one or more layers, placed on the ranks of comm. For operations that overlap each
 * other make several. Over several nodes all nodes must have the same number of ranks
 * (WEFT_ERROR_UNSUPPORTED). A token that ranks of another node need crosses the network once, in
 * dispatch and, as a sum, in combine; the max_tokens of handles must be the same on all ranks then.
 * Everything else is as on one node, except the order in which combine sums.
 *
 * Outputs of dispatch and inputs of combine are any memory of the machine. Those that other ranks
 * reach (weft_is_direct) are written and read where they are; each rank may have each array where it
 * likes. Others are staged, with the same results: the rank copies the rows that came from or to heap
 * memory of the weft_ep, of which weft_ep_config.staging_bytes says how much there is. If all rows
 * of an operation fit, that is all. If not, it goes in rounds of as many tokens as fit, on all ranks,
 * in graphs too; then 176 bytes and R times those of a token are needed, that is of all its planes
 * (or its row of combine), 12 * num_topk + 4, and at least 64 in all. WEFT_ERROR_UNSUPPORTED tells what
 * is needed where there is less; so between nodes, where there are no rounds, if not all rows fit. Rows of combine
 * that combine_wire makes narrower on one node are staged wherever they are.
 *
 * Example ep: sends each token to its experts, which return it unchanged, and sums what comes back.
 *
 *     enum { TOKENS = 4, HIDDEN = 8, TOPK = 2, EXPERTS = 16 };
 *     int32_t rank = weft_comm_rank(comm);
 *     int32_t max_rows = TOKENS * weft_comm_num_ranks(comm);
 *     weft_stream *stream;
 *     CHECK(weft_stream_create(comm, &stream));
 *     weft_ep_config ep_config = WEFT_INIT(weft_ep_config);
 *     ep_config.num_experts = EXPERTS;
 *     weft_ep *ep;
 *     CHECK(weft_ep_create(comm, &ep_config, &ep));
 *     weft_ep_handle_config handle_config = WEFT_INIT(weft_ep_handle_config);
 *     handle_config.max_tokens = TOKENS;
 *     handle_config.num_topk = TOPK;
 *     weft_ep_handle *handle;
 *     CHECK(weft_ep_handle_create(ep, &handle_config, &handle));
 *
 *     float x[TOKENS][HIDDEN];
 *     int32_t ids[TOKENS][TOPK];
 *     for (int t = 0; t < TOKENS; t++) {
 *         ids[t][0] = (5 * rank + 3 * t) % EXPERTS;
 *         ids[t][1] = (ids[t][0] + 8) % EXPERTS;
 *         for (int h = 0; h < HIDDEN; h++)
 *             x[t][h] = (float)(t + 1);
 *     }
 *     void *tokens, *topk_idx, *rows, *out; // memory of the machine, which may be a GPU
 *     CHECK(weft_memory_alloc(comm, sizeof x, &tokens));
 *     CHECK(weft_memory_alloc(comm, sizeof ids, &topk_idx));
 *     CHECK(weft_memory_alloc(comm, sizeof x, &out));
 *     CHECK(weft_memory_copy(comm, tokens, x, sizeof x));
 *     CHECK(weft_memory_copy(comm, topk_idx, ids, sizeof ids));
 *     CHECK(weft_heap_alloc(comm, sizeof x[0] * (uint64_t)max_rows, &rows));
 *
 *     weft_ep_layout_args layout = WEFT_INIT(weft_ep_layout_args);
 *     layout.num_tokens = TOKENS;
 *     layout.index_type = WEFT_INT32;
 *     layout.topk_idx = topk_idx;
 *     CHECK(weft_ep_layout(handle, &layout, stream));
 *     CHECK(weft_ep_notify(handle, stream));
 *     weft_ep_counts counts = WEFT_INIT(weft_ep_counts);
 *     CHECK(weft_ep_wait_counts(handle, &counts)); // counts.num_recv_tokens rows will come
 *
 *     weft_plane plane = WEFT_INIT(weft_plane);
 *     plane.src = tokens;
 *     plane.dst = rows;
 *     plane.row_bytes = sizeof x[0];
 *     weft_ep_dispatch_args dispatch = WEFT_INIT(weft_ep_dispatch_args);
 *     dispatch.planes = &plane;
 *     dispatch.num_planes = 1;
 *     dispatch.capacity = max_rows;
 *     CHECK(weft_ep_dispatch(handle, &dispatch, stream));
 *
 *     weft_ep_combine_args combine = WEFT_INIT(weft_ep_combine_args);
 *     combine.dtype = WEFT_FP32;
 *     combine.hidden = HIDDEN;
 *     combine.capacity = max_rows;
 *     combine.x = rows; // what the experts make of them
 *     combine.out = out;
 *     CHECK(weft_ep_combine(handle, &combine, stream));
 *     CHECK(weft_stream_synchronize(stream));
 *
 *     CHECK(weft_memory_copy(comm, x, out, sizeof x));
 *     EXPECT(x[3][0] == 4 || x[3][0] == 8); // token 3 came back from one rank or from two
 *     CHECK(weft_ep_handle_destroy(handle));
 *     CHECK(weft_ep_destroy(ep));
 *     CHECK(weft_heap_free(comm, rows));
 *     CHECK(weft_memory_free(comm, out));
 *     CHECK(weft_memory_free(comm, topk_idx));
 *     CHECK(weft_memory_free(comm, tokens));
 *     CHECK(weft_stream_destroy(stream));
 */
typedef struct weft_ep weft_ep;

typedef struct weft_ep_config {
    size_t size;
    int32_t num_experts; /* 1..2^20 */
    int32_t max_topk;    /* largest top-k of any operation; 0: WEFT_MAX_TOPK */
    /* Placement: expert e is on the ranks expert_ranks[expert_offsets[e] .. expert_offsets[e+1]),
     * at least one, all different. Both NULL: rank r gets the experts
     * [num_experts*r/R, num_experts*(r+1)/R). With several replicas, token t of source rank s
     * uses replica (s + t) % replicas. Copied. */
    const int32_t *expert_offsets; /* [num_experts + 1] */
    const int32_t *expert_ranks;   /* [expert_offsets[num_experts]] */
    /* Per operation: on cuda the number of SMs that it uses; 0: as few as reach the speed of the
     * links, on cpu 1. The blocks of operations that run at the same time on a GPU must fit it
     * together. A dispatch or combine may ask for fewer. */
    int32_t num_blocks;
    /* Per block; 0: what suits the operation, on cpu 1. At most 32, on cuda 16. Over several nodes
     * there are more blocks, or warps, where rings (below) need them. */
    int32_t num_warps;
    /* Over several nodes, the same on all ranks. Rows cross the network in chunks through rings of
     * slots, which all operations share: num_channels rings to each other node, and as many from
     * it, of num_staging_slots slots of staging_slot_bytes. Fewer or smaller ones are slower, never
     * wrong: a slot must hold one row, of all planes, with its top-k data (docs/network.md). 0: 1
     * ring (on cuda 4), of 8 slots, of 64 KiB. */
    uint64_t staging_slot_bytes; /* at most 2^30; rounded up to a multiple of 16 */
    int32_t num_channels;
    int32_t num_staging_slots;
    /* Heap memory per rank, a sixteenth is added, through which inputs and outputs go that other ranks
     * do not reach (above); the same on all ranks. 0: none, so that these must be where they are
     * reached. */
    uint64_t staging_bytes;
    /* What combine's values are rounded to, once, on their way to the token's rank: WEFT_BF16, WEFT_FP16,
     * WEFT_LOG_10BIT (of rows that are whole groups of 128 elements), WEFT_FP32, which is not to round, or
     * WEFT_DTYPE_NONE: the dtype that is combined. The same on all ranks. Over several nodes it is what a node's
     * sum of a token's rows goes to another node in; rows stay as they are inside a node. On one node it is what
     * the rows are read in, where that has fewer bytes than dtype, else they are read as they are. Then each rank
     * rounds its rows before, into the staging block: staging_bytes are needed, wherever x is, as for all that is
     * staged, for rows in combine_wire. That is a pass over x in the rank's own memory, for fewer bytes on links. */
    weft_dtype combine_wire;
    int32_t reserved; /* 0 */
} weft_ep_config;

/* Collective; every field except num_blocks and num_warps must be the same on all ranks
 * (WEFT_ERROR_MISMATCH names a rank that differs). */
WEFT_API weft_result weft_ep_create(weft_comm *comm, const weft_ep_config *config, weft_ep **ep);
/* As weft_heap_free. */
WEFT_API weft_result weft_ep_destroy(weft_ep *ep);
/* The local ids on `rank` are 0..n-1, in ascending order of expert; n is the result, -1 if there
 * is no such rank. (Of a handle with num_experts of its own: weft_ep_counts.num_local_experts.) */
WEFT_API int32_t weft_ep_num_local_experts(const weft_ep *ep, int32_t rank);
/* The expert behind local id `local_expert` of `rank`; -1 if there is none. */
WEFT_API int32_t weft_ep_global_expert(const weft_ep *ep, int32_t rank, int32_t local_expert);

/* A handle holds the routing of one batch: which token goes to which rank, and to which row.
 * layout and notify fill it; dispatch and combine use it, any number of times and in any order
 * (a "cached" dispatch is one more dispatch). Filling it again replaces the routing. Any number
 * of handles may be filled at a time. Operations in graphs use the routing that is there when they
 * run; num_tokens must be then what it was when they were recorded. */
typedef struct weft_ep_handle weft_ep_handle;

typedef struct weft_ep_handle_config {
    size_t size;
    /* Most tokens that this rank has. max_tokens * R * num_topk must be less than about
     * 2^31 - 2^22; the message of WEFT_ERROR_INVALID_ARGUMENT tells the limit. Over several nodes
     * it is the same on all ranks. 0: any number; the handle's memory grows, to twice its size or
     * more. A weft_ep_layout of more tokens than before then waits on the host for the weft_ep's
     * operations; over several nodes the first weft_ep_dispatch or weft_ep_combine after a notify
     * waits for that notify. What waits is refused in a host callback, and operations of such a
     * handle cannot be captured. */
    int32_t max_tokens;
    int32_t num_topk;         /* 1..max_topk, the same on all ranks */
    int32_t expert_alignment; /* per-expert counts are rounded up to a multiple of it, at most 2^20;
                                 0: 1 */
    /* 0: those of the weft_ep, placed as there. Else so many, at most as many as those, spread
     * evenly as weft_ep_config has it, whatever the weft_ep's placement: so one weft_ep serves
     * layers that differ. The same on all ranks. */
    int32_t num_experts;
} weft_ep_handle_config;

WEFT_API weft_result weft_ep_handle_create(weft_ep *ep, const weft_ep_handle_config *config,
                                           weft_ep_handle **handle);
WEFT_API weft_result weft_ep_handle_destroy(weft_ep_handle *handle);

typedef struct weft_ep_layout_args {
    size_t size;
    int32_t num_tokens; /* N, 0..max_tokens, if that is not 0 */
    /* Where the tokens go: by their experts, or by a table; the other way's fields are zero. */
    weft_dtype index_type; /* of topk_idx: WEFT_INT32 or WEFT_INT64 */
    const void *topk_idx;  /* [N][num_topk] experts; -1 and any other value outside
                              0..num_experts-1, of the handle, are ignored */
    /* [N][R], nonzero: the token goes to the rank. A token goes to at most num_topk ranks; those
     * beyond, in ascending order, are ignored. dispatch may carry any topk_idx along. */
    const uint8_t *tokens_to_ranks;
    /* [the handle's experts] How often this rank's tokens choose each expert, 0 or more, whence
     * num_recv_per_expert of the ranks. With replicas [expert_offsets[num_experts]], each one's. */
    const int32_t *selections_per_expert;
    /* Optional results, memory of the machine. D is the number of nodes. */
    int32_t *num_tokens_per_rank;   /* [R] distinct tokens */
    int32_t *num_tokens_per_node;   /* [D] distinct tokens */
    int32_t *num_tokens_per_expert; /* [the handle's experts] selections, duplicates counted */
    uint8_t *is_token_in_rank;      /* [N][R] 0 or 1 */
} weft_ep_layout_args;

/* Stream operation, local: which tokens go where. [DeepEP 1.5] */
WEFT_API weft_result weft_ep_layout(weft_ep_handle *handle, const weft_ep_layout_args *args,
                                    weft_stream *stream);

/* Stream operation, collective: the ranks exchange counts, after which every (token, rank) has
 * its final row: rows are in (source rank, token) order, a pure function of the routing. After
 * layout. */
WEFT_API weft_result weft_ep_notify(weft_ep_handle *handle, weft_stream *stream);

typedef struct weft_ep_counts {
    size_t size;
    const int32_t *num_recv_per_rank;   /* [R] rows by source rank */
    const int32_t *num_recv_per_expert; /* [L] selections, rounded up to expert_alignment; rows
                                           themselves are not padded */
    int32_t num_recv_tokens;            /* rows that dispatch delivers to this rank */
    int32_t num_local_experts;          /* L */
    /* Tokens of other nodes that this rank passes on, in dispatch, to those ranks of its node
     * (which may include itself) that have them, and whose sums it sends back in combine. 0 on
     * one node. */
    int32_t num_relayed_tokens;
    /* The most rows that any rank gets, the same number on all ranks: by it they can grow their
     * outputs together. */
    int32_t max_recv_tokens;
} weft_ep_counts;

/* Waits on the host for the handle's last notify, which must not have been captured into a graph,
 * and tells the counts. The pointers, to memory of the host, belong to the handle; what they point
 * to changes with the next call. */
WEFT_API weft_result weft_ep_wait_counts(weft_ep_handle *handle, weft_ep_counts *counts);

/* Where the machine has the same counts, for work on the stream (capacity mode). They belong to the
 * handle and hold once its notify has passed. */
typedef struct weft_ep_device_counts {
    size_t size;
    const int32_t *num_recv_tokens;     /* [1], may exceed the capacity given to dispatch */
    const int32_t *num_recv_per_rank;   /* [R] */
    const int32_t *num_recv_per_expert; /* [L] */
    const int32_t *recv_rank_ends;      /* [R] the row after the last one of each source rank */
} weft_ep_device_counts;

WEFT_API weft_result weft_ep_query_device_counts(const weft_ep_handle *handle,
                                                 weft_ep_device_counts *counts);

/* One array of a token's payload: moved as opaque bytes, or quantised on its way, as weft_rows_quantise does
 * it. Then src has rows of dtype, row_bytes is theirs, and the receivers get rows of narrow_dtype, an
 * element a byte, with their scales. One plane of a dispatch may be so, and its scales count as a plane. */
typedef struct weft_plane {
    size_t size;
    const void *src;    /* rows of this rank's tokens, anywhere */
    void *dst;          /* [capacity][row_bytes]; quantised: [capacity][elements] */
    uint64_t row_bytes; /* 1..2^31-1, the same on all ranks; multiples of 16 and 16-byte aligned
                           src and dst are fastest, all others correct */
    uint64_t src_stride_bytes; /* between rows of src; 0: row_bytes */
    void *scales;     /* quantised: [capacity][groups] floats, or bytes of WEFT_SCALE_UE8M0 */
    weft_dtype dtype; /* quantised: WEFT_BF16, WEFT_FP16 or WEFT_FP32 */
    /* WEFT_FP8_E4M3 or WEFT_INT8; WEFT_DTYPE_NONE: the plane is moved as it is, and the other fields from
     * `scales` on are 0. */
    weft_dtype narrow_dtype;
    weft_scale_kind scale;
    /* That have one scale, a divisor of the row's elements; 0: all of the row. */
    int32_t group_elements;
} weft_plane;

typedef struct weft_ep_dispatch_args {
    size_t size;
    const weft_plane *planes; /* [num_planes], copied */
    /* 0..WEFT_MAX_PLANES, the same on all ranks; with a quantised one, one fewer. */
    int32_t num_planes;
    /* Rows that the outputs hold: at least num_recv_tokens when the host waited for the counts; in
     * capacity mode any number: rows from `capacity` on are neither sent nor written, and
     * weft_ep_check reports them. */
    int32_t capacity;
    /* Optional: the top-k data that layout saw, and its weights. All ranks give them or none, but
     * a rank without tokens and capacity leaves these pointers NULL. */
    const void *topk_idx;      /* [N][num_topk] of index_type */
    const float *topk_weights; /* [N][num_topk] or NULL */
    void *recv_topk_idx;       /* [capacity][num_topk] of index_type: the local id of each expert of
                                  this rank, -1 for others; rows after the last are -1 */
    float *recv_topk_weights; /* [capacity][num_topk], when topk_weights is given: 0 where the id is
                                 -1; rows after the last are untouched */
    int32_t *recv_src_token;  /* optional, each rank as it likes: [capacity]: the token's index at
                                 its source rank */
    weft_dtype index_type; /* WEFT_INT32 or WEFT_INT64, where topk_idx or recv_topk_idx is given */
    /* Of this operation, each rank as it likes; 0: as weft_ep_config.num_blocks says. At most that,
     * or, where it is 0, 256 on cuda and 1 on cpu. */
    int32_t num_blocks;
} weft_ep_dispatch_args;

/* Stream operation, collective: delivers every token's row once to each rank that has one of its
 * experts, into its final row. When it has finished on this rank, its outputs are complete and its
 * inputs may be overwritten. After notify. [DeepEP 1.6] */
WEFT_API weft_result weft_ep_dispatch(weft_ep_handle *handle, const weft_ep_dispatch_args *args,
                                      weft_stream *stream);

typedef struct weft_ep_combine_args {
    size_t size;
    const void *x;             /* [capacity][hidden]: row i answers row i of dispatch */
    const void *bias[2];       /* optional, [N][hidden] */
    void *out;                 /* [N][hidden] */
    const float *topk_weights; /* optional, all ranks or none: [capacity][num_topk] */
    float *out_topk_weights;   /* [N][num_topk] when topk_weights is given */
    int64_t hidden;   /* elements per row, 1 or more, at most 2^31-1 bytes; the same on all ranks */
    weft_dtype dtype; /* of x, bias and out: BF16, FP16 or FP32; the same on all ranks */
    int32_t capacity; /* rows that x holds: as given to dispatch. Rows from there on count as 0 */
    int32_t num_blocks; /* as in weft_ep_dispatch_args */
    int32_t reserved;   /* 0 */
} weft_ep_combine_args;

/* Stream operation, collective: out = (bias[0] + bias[1]) + the rows of the token on the ranks that
 * had it, in ascending rank order, from +0, in fp32, rounded once to dtype (nearest even; every NaN
 * becomes the positive quiet NaN with all mantissa bits set). Where combine_wire is narrower than dtype, each row is
 * rounded to it before, as there (beyond the range of WEFT_FP16 to infinity; WEFT_LOG_10BIT as weft_rows_quantise has
 * it, so that infinities become NaN). out_topk_weights is the same sum of
 * topk_weights, which are never rounded. The result does not depend on machine, blocks or warps. The gradient of dispatch is
 * combine, that of combine a dispatch of the same handle. When it has finished on this rank, out is
 * complete and x may be overwritten. [DeepEP 1.7]
 *
 * Over several nodes a token's rows are summed node by node: on each node that had the token, the
 * token's own among them, in ascending rank order, from +0, in fp32, rounded to dtype (with
 * combine_wire to that in its place, with WEFT_FP32 not at all); then out = (bias[0] + bias[1]) + these sums in ascending
 * order of the nodes, from +0, in fp32, rounded once to dtype. The sums of topk_weights have the
 * same order and are never rounded. So a job gives the same bits whenever it has the same ranks on
 * the same number of nodes, whatever the network, the rings and their slots. A combine that is the
 * first operation since notify is preceded by a dispatch without rows. [DeepEP 2] */
WEFT_API weft_result weft_ep_combine(weft_ep_handle *handle, const weft_ep_combine_args *args,
                                     weft_stream *stream);

/* After the stream was synchronised: WEFT_ERROR_CAPACITY, with the numbers in weft_last_error(), if
 * any dispatch since the handle's last notify had to drop rows meant for this rank. *num_dropped
 * (may be NULL) gets the most that one of them dropped, also with this error. */
WEFT_API weft_result weft_ep_check(weft_ep_handle *handle, int32_t *num_dropped);

typedef struct weft_ep_size_args {
    size_t size;
    const uint64_t *plane_row_bytes; /* [num_planes] */
    int32_t num_planes;
    int32_t max_tokens_per_rank; /* on every rank */
    int32_t num_topk;
    weft_dtype index_type;  /* WEFT_INT32 or WEFT_INT64, if with_topk */
    int32_t with_topk;      /* 1: with recv_topk_idx and recv_topk_weights */
    int32_t with_src_token; /* 1: with recv_src_token */
} weft_ep_size_args;

typedef struct weft_ep_sizes {
    size_t size;
    int64_t max_recv_tokens; /* rows that can arrive at this rank at worst */
    /* Size of an arena of this rank that holds the outputs of one dispatch of max_recv_tokens rows:
     * planes, recv_topk_idx, recv_topk_weights, recv_src_token. It differs by rank, since more
     * tokens may choose one rank's experts than another's; weft_arena_create takes such sizes. */
    uint64_t arena_bytes;
    uint64_t handle_bytes; /* this rank's memory outside the heap per handle, if it has the
                              weft_ep's experts */
    uint64_t heap_bytes;   /* heap memory that this weft_ep itself occupies */
    /* Memory of this weft_ep that the network reaches, 0 on one node: the rings, and what notify
     * tells; docs/network.md has the formula. On cpu it is more of the heap. */
    uint64_t network_bytes;
    uint64_t sum_bytes; /* memory outside of both: with combine_wire, for the own node's sums */
} weft_ep_sizes;

/* How much memory this weft_ep has, and batches of a size would need. */
WEFT_API weft_result weft_ep_query_sizes(const weft_ep *ep, const weft_ep_size_args *args,
                                         weft_ep_sizes *sizes);

/* ---------------------------------------------------------------- low latency */

/*
 * Dispatch and combine of few tokens, as a decode step has them: one launch each, without layout,
 * notify or a word between the ranks before the rows. Every rank has room in its heap for the rows
 * of all others, so the number of tokens has a limit and rows have fixed places. A row goes once to
 * each rank that has one of its experts, whatever the number of these. Everything that the
 * operations keep is in memory of the machine: any sequence of them can be captured into graphs,
 * and replayed. Ranks may be of several nodes, of as many ranks or not.
 *
 * - Results. A dispatch makes a result on every rank, which lasts until this rank's combine of it
 *   has been received, or weft_ll_release. A weft_ll has num_results of them at a time; one more is
 *   WEFT_ERROR_INVALID_ARGUMENT, and in a graph, where the host cannot see it, a failure of the
 *   communicator. Combine and release are about the oldest. Layers, and batches that overlap each
 *   other, each have a weft_ll, or share one.
 * - Phases. An operation sends and receives in one launch, or in two: WEFT_LL_SEND, then
 *   WEFT_LL_RECEIVE, on the same stream or another; each rank as it likes. Between them nothing
 *   runs: no SM, no thread. The receive phase comes when its data are needed; its arguments are
 *   those of the receive phase alone. It receives the oldest that was sent and not received, so an
 *   operation in one launch is refused while there is one of its kind. What is sent may be
 *   overwritten when the send phase has finished.
 * - Order. Rows are in (source rank, token) order, sums as each function says. Results are the same
 *   to the bit on all machines, whatever the number of blocks and whenever rows come.
 * - Masks. With WEFT_LL_MASK a rank that is missing when a wait ends is masked by the one that waited:
 *   from then on it is neither sent to nor awaited, its experts add nothing, and it brings no rows.
 *   Each rank masks for itself; missing_ranks of dispatch and combine tells whom. When a rank goes
 *   missing in a dispatch, its rows are counted as 0 by rank; by expert some may have been counted
 *   before, whose contents are anything then. In a combine, each token has either all that the rank
 *   adds to it or nothing. A dead rank is missing at once, and its death is not the communicator's
 *   failure as long as that has a weft_ll with masks, but operations that wait for it fail. A masked
 *   rank that lives comes back by weft_ll_unmask, unless the network's connection to it was lost.
 *   With WEFT_LL_RELAYED the rows that a rank was to relay when it went missing lack at the ranks that were
 *   to get them. These count them, but their contents are anything, by rank those of an earlier row; the source
 *   gets nothing of what becomes of them, so that a token has all that such a rank adds to it, or nothing; and
 *   missing_ranks tells both sides, the one in dispatch, the source in combine. From then on the source sends to
 *   this rank as by WEFT_LL_STRAIGHT, and to all ranks of a node whose relay it has masked itself. So such rows
 *   lack in one step, or in the two that were outstanding when the source was told; what weft_ll_release ends
 *   tells it nothing.
 *
 * Semantics of [DeepEP 3] with these limits lifted: any hidden size, any placement and number of
 * experts and ranks, top-k up to 64, a repeatable order, no even number of calls in graphs.
 *
 * Example ll: the step of a layer whose experts return their input.
 *
 *     enum { TOKENS = 4, HIDDEN = 8, TOPK = 2, EXPERTS = 16 };
 *     int32_t rank = weft_comm_rank(comm);
 *     weft_stream *stream;
 *     CHECK(weft_stream_create(comm, &stream));
 *     weft_ep_config ep_config = WEFT_INIT(weft_ep_config);
 *     ep_config.num_experts = EXPERTS;
 *     weft_ep *ep;
 *     CHECK(weft_ep_create(comm, &ep_config, &ep));
 *     weft_ll_config ll_config = WEFT_INIT(weft_ll_config);
 *     ll_config.max_tokens = TOKENS;
 *     ll_config.num_topk = TOPK;
 *     ll_config.hidden = HIDDEN;
 *     ll_config.dtype = WEFT_FP32;
 *     ll_config.layout = WEFT_LL_BY_EXPERT;
 *     weft_ll *ll;
 *     CHECK(weft_ll_create(ep, &ll_config, &ll));
 *     weft_ll_sizes sizes = WEFT_INIT(weft_ll_sizes);
 *     CHECK(weft_ll_query_sizes(ep, &ll_config, &sizes));
 *
 *     float x[TOKENS][HIDDEN], weights[TOKENS][TOPK];
 *     int32_t ids[TOKENS][TOPK];
 *     for (int t = 0; t < TOKENS; t++) {
 *         for (int k = 0; k < TOPK; k++) {
 *             ids[t][k] = (5 * rank + 3 * t + 8 * k) % EXPERTS;
 *             weights[t][k] = 0.5f;
 *         }
 *         for (int h = 0; h < HIDDEN; h++)
 *             x[t][h] = (float)(t + 1);
 *     }
 *     void *tokens, *topk_idx, *topk_weights, *rows, *counts, *out;
 *     CHECK(weft_memory_alloc(comm, sizeof x, &tokens));
 *     CHECK(weft_memory_alloc(comm, sizeof ids, &topk_idx));
 *     CHECK(weft_memory_alloc(comm, sizeof weights, &topk_weights));
 *     CHECK(weft_memory_alloc(comm, sizeof x, &out));
 *     CHECK(weft_memory_alloc(comm, sizes.rows_bytes, &rows)); // [local experts][capacity]
 *     CHECK(weft_memory_alloc(comm, EXPERTS * sizeof(int32_t), &counts));
 *     CHECK(weft_memory_copy(comm, tokens, x, sizeof x));
 *     CHECK(weft_memory_copy(comm, topk_idx, ids, sizeof ids));
 *     CHECK(weft_memory_copy(comm, topk_weights, weights, sizeof weights));
 *
 *     weft_ll_dispatch_args dispatch = WEFT_INIT(weft_ll_dispatch_args);
 *     dispatch.num_tokens = TOKENS;
 *     dispatch.x = tokens;
 *     dispatch.index_type = WEFT_INT32;
 *     dispatch.topk_idx = topk_idx;
 *     dispatch.topk_weights = (const float *)topk_weights;
 *     dispatch.rows = rows;
 *     dispatch.num_rows_per_expert = (int32_t *)counts;
 *     CHECK(weft_ll_dispatch(ll, &dispatch, stream));
 *
 *     weft_ll_combine_args combine = WEFT_INIT(weft_ll_combine_args);
 *     combine.x = rows; // what the experts make of them
 *     combine.out = out;
 *     CHECK(weft_ll_combine(ll, &combine, stream));
 *     CHECK(weft_stream_synchronize(stream));
 *
 *     CHECK(weft_memory_copy(comm, x, out, sizeof x));
 *     EXPECT(x[3][0] == 4); // half of token 3 came back from each of two experts
 *     CHECK(weft_ll_destroy(ll));
 *     CHECK(weft_ep_destroy(ep));
 *     CHECK(weft_memory_free(comm, tokens));
 *     CHECK(weft_memory_free(comm, topk_idx));
 *     CHECK(weft_memory_free(comm, topk_weights));
 *     CHECK(weft_memory_free(comm, rows));
 *     CHECK(weft_memory_free(comm, counts));
 *     CHECK(weft_memory_free(comm, out));
 *     CHECK(weft_stream_destroy(stream));
 */
typedef struct weft_ll weft_ll;

/* Where rows are once they have been received. */
typedef enum weft_ll_layout {
    /* In the slots that they came to, [R][max_tokens], of which each source has filled the first
     * ones; each row once, with its local experts and weights: weft_ll_query_slots. */
    WEFT_LL_BY_RANK = 0,
    /* In memory of the caller, [local experts][expert_capacity], each row for every choice that it
     * is for, from the first one on: a token that chooses an expert twice has two rows there, each
     * with its weight. What grouped GEMMs want. */
    WEFT_LL_BY_EXPERT = 1
} weft_ll_layout;

/* What combine sends back. */
typedef enum weft_ll_answer {
    /* Of each token, the sum of what this rank's experts have made of it: one row. */
    WEFT_LL_ANSWER_SUMS = 0,
    /* The row of each expert, so that the owner sums in ascending order of the choices, as [DeepEP
     * 3] does. By expert only. */
    WEFT_LL_ANSWER_ROWS = 1,
    /* As WEFT_LL_ANSWER_SUMS, with the same bits; but the answer to a row stays in the row's slot, where the
     * token's owner reads it, if it is of this node. So there are no slots for answers, and by rank a caller who
     * writes them to the slots (weft_ll_combine_args.x NULL) has nothing copied. The slots are as long as the
     * longer of row and answer. */
    WEFT_LL_ANSWER_IN_SLOTS = 2,
    /* As WEFT_LL_ANSWER_SUMS, with the same bits; but weights are given to combine, for callers who have them only then,
     * as [DeepEP 3]'s: the owner of a token first sends them to the ranks that sum. By expert only, among ranks of one
     * node, with WEFT_LL_FAIL. WEFT_LL_SEND waits there until the ranks whose rows are answered have begun theirs. */
    WEFT_LL_ANSWER_SUMS_WEIGHED_LATE = 3
} weft_ll_answer;

/* What becomes of a rank that is missing: whose rows, answers or room for more do not come in time, or
 * that has died or left. */
typedef enum weft_ll_on_missing {
    WEFT_LL_FAIL = 0, /* the communicator fails, as everywhere */
    WEFT_LL_MASK = 1  /* this rank goes on without it: see "masks" above */
} weft_ll_on_missing;

/* How a row comes to ranks of another node, and their answers back. */
typedef enum weft_ll_route {
    WEFT_LL_STRAIGHT = 0, /* to each of them by itself, and each answers by itself */
    /* Once to the node: to its rank with the sender's index, of the ranks there in turn where there are fewer, which
     * relays it to the others, to the same places. It sums their answers, and sends one back; so combine's sums have
     * another order than by the straight route, and not the same bits. With WEFT_LL_ANSWER_ROWS answers go straight, and
     * nothing changes. A rank relays when it receives, in the same operation: so nothing of an operation is received
     * before the ranks that relay it have begun to receive, and all ranks call the phases of all operations in the same
     * order. With WEFT_LL_MASK answers go straight, and their owner makes these sums, with the same bits; missing_ms
     * is longer than a rank takes between its phases. See "masks" above for what is lost with a rank that relays. */
    WEFT_LL_RELAYED = 1
} weft_ll_route;

/* How it is known that rows and answers have come. Results are the same to the bit. Packets are rows that tell it
 * themselves, by every 16 bytes. They take more memory (weft_ll_query_sizes), and need one node of R ranks, which are at
 * most 8, WEFT_LL_ANSWER_SUMS of dtype (told ones WEFT_LOG_10BIT, too), and WEFT_LL_FAIL; rows as they are, or with a scale of 32 bits for 4, 8, 12, ... or
 * 128 elements; and what is said below. L is the most experts that a rank has. weft_ll_create tells what is lacking. */
typedef enum weft_ll_carrier {
    /* On GPUs, where they can be: WEFT_LL_PACKETS if max_tokens is 16 or less, R * max_tokens 64 or less and max_tokens *
     * num_topk 128 or less; WEFT_LL_TOLD_PACKETS of BF16, as it is or as FP8 with a scale for 128, if R is 3 or more and
     * R * max_tokens 512 or less, or, of BF16 as it is, if R is 2 and max_tokens 128 or less. Else signals. */
    WEFT_LL_AUTO = 0,
    WEFT_LL_SIGNALS = 1, /* a signal behind the rows tells of them */
    /* Each warp finds out by itself where rows go: best for few. num_topk of at most 60. By expert with C = max_tokens *
     * num_topk of at most 128, and R * C + W * L of at most 1984, where W is R * ceil(C / 32) rounded up to a multiple of
     * 4. */
    WEFT_LL_PACKETS = 2,
    /* Ranks tell each other where each row goes, while rows are on their way: best for many. num_topk of at most 63, L of at
     * most 4095, and max_tokens * num_topk of at most 3968; by expert max_tokens * num_topk + 2 * R * L, with L rounded up to an
     * even number. */
    WEFT_LL_TOLD_PACKETS = 3
} weft_ll_carrier;

typedef struct weft_ll_config {
    size_t size;
    int64_t hidden;     /* elements of a row, 1 or more, at most 2^31-1 bytes */
    int32_t max_tokens; /* most tokens that a rank has in a dispatch: 1..65535 */
    int32_t num_topk;   /* 1..max_topk of the weft_ep */
    weft_dtype dtype;   /* of tokens, and of what experts make of them: BF16, FP16 or FP32 */
    weft_ll_layout layout;
    int32_t expert_capacity; /* by expert: rows that there is room for. Those beyond are counted and
                                not written, and count as 0 in combine. 0: R * max_tokens, which is
                                enough where no token chooses an expert twice */
    int32_t num_results;     /* 1 or 2 results at a time; 0: 2 */
    weft_ll_answer answer;
    /* Of what combine sends: BF16, FP16, FP32, or WEFT_LOG_10BIT (hidden a multiple of 128; sums are
     * rounded to dtype before); NONE: dtype. */
    weft_dtype answer_dtype;
    /* Rows are quantised on their way to the experts, to FP8_E4M3 or INT8 as weft_rows_quantise
     * does it, and the experts get them so, with their scales; NONE: they stay as they are. */
    weft_dtype narrow_dtype;
    weft_scale_kind scale;
    int32_t group_elements; /* as in weft_rows_args */
    int32_t num_blocks; /* of every launch, as weft_ep_config's: the least of all ranks counts */
    /* Each rank as it likes. By expert in packets, if there are more than R, the last R do nothing but hear the ranks. */
    int32_t num_warps;
    weft_ll_route route; /* between nodes */
    weft_ll_on_missing on_missing;
    /* WEFT_LL_MASK: a rank is missing that is awaited and silent for so long, in the first result three
     * times as long; 0: the communicator's timeout_ms. The same on all ranks, since who waits for others
     * says so four times in it. */
    uint32_t missing_ms;
    weft_ll_carrier carrier;
} weft_ll_config;

typedef struct weft_ll_sizes {
    size_t size;
    uint64_t heap_bytes;   /* of each rank's heap: nearly all of it 2 * R * max_tokens rows and
                              2 * max_tokens * num_topk answers (docs/low-latency.md) */
    uint64_t memory_bytes; /* this rank's beside it */
    uint64_t rows_bytes;   /* by expert: what weft_ll_dispatch_args.rows needs here; else 0 */
    uint64_t scales_bytes; /* the same of its scales, if they lie by rows */
    int32_t num_local_experts;
    int32_t expert_capacity; /* as given, or chosen; by rank 0 */
    uint64_t network_bytes;  /* between nodes: of memory that the network reaches, which on machine
                                cpu is in the heap, too, on cuda pinned memory of the host */
} weft_ll_sizes;

/* Local: the memory that a weft_ll of this configuration has; num_blocks 0 counts as on this rank. */
WEFT_API weft_result weft_ll_query_sizes(const weft_ep *ep, const weft_ll_config *config,
                                         weft_ll_sizes *sizes);

/* Collective; every field except num_blocks and num_warps must be the same on all ranks
 * (WEFT_ERROR_MISMATCH names the first that differs). Experts are placed as those of ep, to which
 * the weft_ll belongs. */
WEFT_API weft_result weft_ll_create(weft_ep *ep, const weft_ll_config *config, weft_ll **ll);
/* As weft_heap_free; with WEFT_LL_ANSWER_IN_SLOTS it waits until all ranks have received this one's answers, or
 * destroy theirs as well. */
WEFT_API weft_result weft_ll_destroy(weft_ll *ll);

/* Which phases of an operation: 0 is both. */
typedef enum weft_ll_phases {
    WEFT_LL_SEND_AND_RECEIVE = 0,
    WEFT_LL_SEND = 1,
    WEFT_LL_RECEIVE = 2
} weft_ll_phases;

/* What a phase that is left out would use is zero. */
typedef struct weft_ll_dispatch_args {
    size_t size;
    weft_ll_phases phases;
    /* To send. */
    int32_t num_tokens;   /* N, 0..max_tokens, each rank its own */
    const void *x;        /* [N][hidden] of dtype */
    const void *topk_idx; /* [N][num_topk] experts; those outside 0..num_experts-1 are ignored */
    /* [N][num_topk], which the experts' ranks get; NULL: 1, or with WEFT_LL_ANSWER_SUMS_WEIGHED_LATE, that they come
     * later */
    const float *topk_weights;
    weft_dtype index_type; /* of topk_idx: WEFT_INT32 or WEFT_INT64 */
    int32_t reserved;      /* 0 */
    /* To receive; all but rows are optional. C is expert_capacity, L the number of local experts. */
    int32_t *num_rows_per_rank; /* [R] rows that came from each source, each counted once */
    /* By expert: [L][C][hidden] of narrow_dtype, or dtype; rows that nobody sent are left as they
     * are. */
    void *rows;
    void *scales; /* by expert: [L][C] of each row's scales, if rows are quantised */
    /* 0: a row's scales lie side by side. Else by columns, as in weft_rows_args, those of each
     * expert behind each other. */
    uint64_t scale_column_bytes;
    int32_t *num_rows_per_expert; /* by expert: [L], also of rows that there was no room for */
    int32_t *src_tokens;          /* by expert: [L][C] index of the token at its source */
    int64_t *row_ranges;          /* by expert: [L][R] rows of each source: their number in the low
                                      32 bits, the first one in the high, as [DeepEP 3] has it */
    int32_t *total_rows_per_expert; /* by expert: [L], to which num_rows_per_expert is added */
    /* WEFT_LL_MASK: [R] 1: masked, so its rows are not there; 2: not masked, but rows of it, which are counted, may lack
     * for want of the rank that was to relay them; else 0. */
    int32_t *missing_ranks;
    /* [R], to each of which is added how many ns the operation has waited for that rank, as its first
     * block saw it: next to nothing if what the rank sends was there before. */
    int64_t *waited_ns;
} weft_ll_dispatch_args;

/* Stream operation, collective: sends each token's row to the ranks of its experts. */
WEFT_API weft_result weft_ll_dispatch(weft_ll *ll, const weft_ll_dispatch_args *args,
                                      weft_stream *stream);

/* Where rows are that have been received by rank, on the machine; all pointers are constant as long
 * as the weft_ll exists. The row of index i from source s begins at
 * x[h] + s * source_stride_bytes + i * row_stride_bytes, the other data of the row likewise. */
typedef struct weft_ll_slots {
    size_t size;
    /* [hidden] of narrow_dtype, or dtype; of half h. x[1] NULL: num_results is 1. */
    const void *x[2];
    const void *scales[2];        /* the row's scales, side by side; NULL: it is not quantised */
    const int32_t *experts[2];    /* [num_topk] the local id of each choice, -1 for others */
    const float *topk_weights[2]; /* [num_topk] 0 where the id is -1 */
    const int32_t *src_token[2];  /* [1] index of the token at its source */
    uint64_t row_stride_bytes;
    uint64_t source_stride_bytes;
    const int32_t *half; /* [1] h of the result that was received last */
} weft_ll_slots;

/* WEFT_ERROR_INVALID_ARGUMENT by expert. */
WEFT_API weft_result weft_ll_query_slots(const weft_ll *ll, weft_ll_slots *slots);

typedef struct weft_ll_combine_args {
    size_t size;
    weft_ll_phases phases;
    /* 1: the result stays, for another combine or weft_ll_release; to send. 0 with WEFT_LL_ANSWER_IN_SLOTS, which
     * ends it. */
    int32_t keep;
    /* To send: what the experts have made of the oldest result's rows, any memory of the machine. By
     * expert [L][C][hidden], of which the rows that came are read. By rank [R][max_tokens][hidden],
     * for each row what this rank's experts made of it, weights applied; NULL by rank with
     * WEFT_LL_ANSWER_IN_SLOTS, if answer_dtype is dtype: it is in the slots, in place of the rows, where
     * the caller writes nothing more. */
    const void *x;
    uint64_t x_stride_bytes; /* between rows; 0: they are dense */
    /* To receive. */
    void *out; /* [N][hidden], N of the dispatch */
    /* [N][num_topk], or NULL: 1. To receive with WEFT_LL_ANSWER_ROWS, to send with WEFT_LL_ANSWER_SUMS_WEIGHED_LATE;
     * else NULL */
    const float *topk_weights;
    /* WEFT_LL_MASK: [R] 1: masked, so that it adds nothing; 2: not masked, but it lacked rows of this rank, so that it adds
     * nothing to some tokens; else 0. */
    int32_t *missing_ranks;
    int64_t *waited_ns; /* as in weft_ll_dispatch_args; optional */
} weft_ll_combine_args;

/* Stream operation, collective. Sums are made in fp32 without fused operations, begin with +0, and
 * are rounded once at their end (nearest even; every NaN becomes the positive quiet NaN with all
 * mantissa bits set). WEFT_LL_ANSWER_SUMS: each rank sums weight * row over its experts in ascending
 * order of the choices, rounds to answer_dtype, and sends; out = the sum of what comes, in ascending
 * rank order. So it is with all answers but WEFT_LL_ANSWER_ROWS: each rank sends the rows in answer_dtype; out = the sum
 * of weight * row in ascending order of the choices.
 *
 * Over several nodes with WEFT_LL_RELAYED, unless rows are answered, sums are made node by node, as weft_ep_combine
 * makes them: on each node, the token's own among them, what its ranks answer is added in ascending rank order, from +0,
 * in fp32, and rounded to answer_dtype, once more (before WEFT_LOG_10BIT to dtype); out = these sums in ascending
 * order of the nodes. So results depend on which ranks are of one node, but not on whose token it is. */
WEFT_API weft_result weft_ll_combine(weft_ll *ll, const weft_ll_combine_args *args,
                                     weft_stream *stream);

/* Stream operation, collective: ends the oldest result, which has been received and, if it was
 * combined, kept. */
WEFT_API weft_result weft_ll_release(weft_ll *ll, weft_stream *stream);

/* The masks of a weft_ll with WEFT_LL_MASK: [R], in memory of the machine. All three are stream
 * operations.
 *
 * Masks the ranks whose entry is not 0, beside those that are masked; the own entry does not count.
 * Local. The entries are read when the operation runs, so that a captured one takes what is there then. */
WEFT_API weft_result weft_ll_mask(weft_ll *ll, const int32_t *mask, weft_stream *stream);
/* Writes 1 for each rank that is masked, and 0 for others. Local. */
WEFT_API weft_result weft_ll_query_mask(weft_ll *ll, int32_t *mask, weft_stream *stream);
/* Lets ranks come back. Collective among the ranks whose entry is 0, which all give the same mask and
 * the same epoch; epochs grow from call to call, 1 or more, so that nobody is taken for one who called
 * before. What each of them has sent and not received, and its results, are dropped: they begin anew,
 * as with a new weft_ll. Who is silent for two deadlines stays masked, and who does not take part
 * is masked. Not in graphs. */
WEFT_API weft_result weft_ll_unmask(weft_ll *ll, const int32_t *mask, uint64_t epoch,
                                    weft_stream *stream);

#ifdef __cplusplus
}
#endif

#endif
