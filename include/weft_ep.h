/* SPDX-License-Identifier: MIT */
/* Expert parallelism: a part of weft.h, which includes it and has the rules that hold for all of
 * it. Its low-latency form is in weft_ll.h. */
#include "weft.h" /* before the guard: it includes its parts in their order */

#ifndef WEFT_EP_H
#define WEFT_EP_H

#ifdef __cplusplus
extern "C" {
#endif

/*
 * The experts of one or more layers, placed on the ranks of comm. For operations that overlap each
 * other make several. Over several nodes all nodes must have the same number of ranks
 * (WEFT_ERROR_UNSUPPORTED). A token that ranks of another node need crosses the network once, in
 * dispatch and, as a sum, in combine; the max_tokens of handles must be the same on all ranks then.
 * Everything else is as on one node, except the order in which combine sums.
 *
 * Outputs of dispatch and inputs of combine are any memory of the machine; each rank may have each
 * array where it likes. Arrays that other ranks reach (weft_memory_is_direct) are written and read
 * in place. Others are staged, with the same results: the rank copies their rows to or from a block
 * of the heap that the weft_ep has, of weft_ep_config.staging_bytes. If not all rows of an
 * operation fit, it goes in rounds of as many tokens as fit, on all ranks, in graphs too.
 * staging_bytes must be at least 176 + R * B. B is the bytes of a token, 64 at least: all its
 * planes (or its row of combine) and 12 * num_topk + 4. With less the operation fails with
 * WEFT_ERROR_UNSUPPORTED, whose message tells the bytes that it needs. Between nodes there are no
 * rounds: the operation fails with the same error if not all rows fit.
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
    int32_t num_experts; /* 1..WEFT_MAX_EXPERTS */
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
    /* Heap memory per rank for outputs of dispatch and inputs of combine that other ranks do not
     * reach (above); weft adds a sixteenth. The same on all ranks. 0: none; then other ranks must
     * reach all of these arrays. */
    uint64_t staging_bytes;
    /* The type in which a node's sum of a token's rows goes to another node: WEFT_BF16, WEFT_FP16,
     * WEFT_FP32, which is not to round, or WEFT_DTYPE_NONE: the dtype that is combined. The same on
     * all ranks. Rows stay as they are inside a node, so it changes nothing on one node. */
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

/* The order in which combine adds up a token's rows of several ranks, and of several nodes. */
typedef enum weft_ep_order {
    WEFT_ORDER_BY_RANK = 0,
    /* Ranks, or nodes, sorted by the last of the token's choices whose expert they have. */
    WEFT_ORDER_BY_CHOICE = 1
} weft_ep_order;

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
    /* 0: the experts of the weft_ep, placed as there. Else this many experts, at most as many as
     * the weft_ep has, spread evenly as without tables, whatever the weft_ep's placement: so one
     * weft_ep serves layers that differ. The same on all ranks. */
    int32_t num_experts;
    /* How combine adds up the rows of this rank's tokens; ranks may differ. A layout that gets
     * tokens_to_ranks knows no choices: there the order is that of ranks. */
    weft_ep_order order;
} weft_ep_handle_config;

WEFT_API weft_result weft_ep_handle_create(weft_ep *ep, const weft_ep_handle_config *config,
                                           weft_ep_handle **handle);
WEFT_API weft_result weft_ep_handle_destroy(weft_ep_handle *handle);

typedef struct weft_ep_layout_args {
    size_t size;
    int32_t num_tokens; /* N, 0..max_tokens, if that is not 0 */
    /* Where the tokens go: by their experts, or by a table; the other way's fields are zero. */
    weft_dtype index_type; /* of topk_idx: WEFT_INT32 or WEFT_INT64 */
    /* [N][num_topk] experts; -1 and any other value outside 0..num_experts-1, of the handle, are
     * ignored. A token that chooses an expert twice has one row at its rank, and counts twice among
     * the expert's selections. */
    const void *topk_idx;
    /* [N][R], nonzero: the token goes to the rank. A token goes to at most num_topk ranks; those
     * beyond, in ascending order, are ignored. dispatch may carry any topk_idx along. */
    const uint8_t *tokens_to_ranks;
    /* [the handle's experts] How often this rank's tokens choose each expert, 0 or more;
     * num_recv_per_expert of the ranks follows from it. With replicas
     * [expert_offsets[num_experts]]: how often they choose each replica. */
    const int32_t *selections_per_expert;
    /* Optional results, memory of the machine. D is the number of nodes. */
    int32_t *num_tokens_per_rank;   /* [R] distinct tokens */
    int32_t *num_tokens_per_node;   /* [D] distinct tokens */
    int32_t *num_tokens_per_expert; /* [the handle's experts] selections, duplicates counted */
    uint8_t *is_token_in_rank;      /* [N][R] 0 or 1 */
    int32_t tag;                    /* any number; all ranks get it in weft_ep_counts.tags */
} weft_ep_layout_args;

/* Stream operation, local: which tokens go where [DeepEP 1.5]. */
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
    /* [R] The tag that each rank gave to weft_ep_layout. All ranks see the same tags, so they can
     * agree that they are about to do different things, before they do them. */
    const int32_t *tags;
    /* The expanded layout (weft_ep_expand): */
    const int32_t *num_selections_per_expert; /* [L] num_recv_per_expert, not rounded up */
    const int32_t *first_row_per_expert;      /* [L] sums of num_recv_per_expert of lower experts */
    int32_t num_expanded_rows;                /* sum of num_recv_per_expert */
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
    const int32_t *num_selections_per_expert; /* [L] */
    const int32_t *first_row_per_expert;      /* [L] */
    const int32_t *num_expanded_rows;         /* [1] */
} weft_ep_device_counts;

WEFT_API weft_result weft_ep_query_device_counts(const weft_ep_handle *handle,
                                                 weft_ep_device_counts *counts);

/* One array of a token's payload: moved as opaque bytes, or quantised on its way, as
 * weft_rows_quantise does it. Then src has rows of dtype, row_bytes is theirs, and the receivers
 * get rows of quantisation.dtype, an element a byte, with their scales. One plane of a dispatch may
 * be so, and its scales count as a plane. */
typedef struct weft_plane {
    size_t size;
    const void *src; /* rows of this rank's tokens, anywhere */
    void *dst;       /* [capacity][row_bytes]; quantised: [capacity][elements] */
    /* 1..WEFT_MAX_ROW_BYTES, the same on all ranks. Multiples of 16, and src and dst aligned to 16
     * bytes, are fastest; all others are correct. */
    uint64_t row_bytes;
    uint64_t src_stride_bytes; /* between rows of src; 0: row_bytes */
    void *scales;     /* quantised: [capacity][groups] floats, or bytes of WEFT_SCALE_UE8M0 */
    weft_dtype dtype; /* quantised: WEFT_BF16, WEFT_FP16 or WEFT_FP32 */
    /* All zero (dtype is WEFT_DTYPE_NONE): the plane is moved as it is, and the other fields from
     * `scales` on are 0. */
    weft_quantisation quantisation;
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
    void *recv_topk_idx; /* [capacity][num_topk] of index_type: the local id of each choice that
                            is an expert of this rank, -1 for others; rows after the last are -1 */
    float *recv_topk_weights; /* [capacity][num_topk], when topk_weights is given: 0 where the id is
                                 -1; rows after the last are untouched */
    int32_t *recv_src_token;  /* optional, each rank as it likes: [capacity]: the token's index at
                                 its source rank */
    weft_dtype index_type; /* WEFT_INT32 or WEFT_INT64, where topk_idx or recv_topk_idx is given */
    /* Blocks of this operation, each rank as it likes; 0: as weft_ep_config.num_blocks says. At
     * most that, or, where it is 0, 256 on cuda and 1 on cpu. */
    int32_t num_blocks;
} weft_ep_dispatch_args;

/* Stream operation, collective: delivers every token's row once to each rank that has one of its
 * experts, into its final row. When it has finished on this rank, its outputs are complete and its
 * inputs may be overwritten. After notify [DeepEP 1.6]. */
WEFT_API weft_result weft_ep_dispatch(weft_ep_handle *handle, const weft_ep_dispatch_args *args,
                                      weft_stream *stream);

typedef struct weft_ep_combine_args {
    size_t size;
    const void *x;             /* [capacity][hidden]: row i answers row i of dispatch */
    const void *bias[2];       /* optional, [N][hidden] */
    void *out;                 /* [N][hidden] */
    const float *topk_weights; /* optional, all ranks or none: [capacity][num_topk] */
    float *out_topk_weights;   /* [N][num_topk] when topk_weights is given */
    int64_t hidden;     /* elements per row, 1 or more, WEFT_MAX_ROW_BYTES at most; on all ranks */
    weft_dtype dtype;   /* of x, bias and out: BF16, FP16 or FP32; the same on all ranks */
    int32_t capacity;   /* rows that x holds: as given to dispatch. Rows from there on count as 0 */
    int32_t num_blocks; /* as in weft_ep_dispatch_args */
    int32_t reserved;   /* 0 */
} weft_ep_combine_args;

/* Stream operation, collective: out = (bias[0] + bias[1]) + the rows of the token on the ranks that
 * had it, in ascending rank order (or the handle's order), from +0, in fp32, rounded once to dtype
 * (nearest even; every NaN becomes the positive quiet NaN with all mantissa bits set).
 * out_topk_weights is the same sum of topk_weights, which are never rounded. The result does
 * not depend on machine, blocks or warps. The gradient of dispatch is combine, that of combine a
 * dispatch of the same handle. When it has finished on this rank, out is complete and x may be
 * overwritten. [DeepEP 1.7]
 *
 * Over several nodes a token's rows are summed node by node. Each node that had the token, the
 * token's own among them, sums its rows in ascending rank order (or the handle's), from +0, in
 * fp32, and rounds the sum to combine_wire or, without it, to dtype. WEFT_FP32 rounds nothing. Sums
 * beyond the range of WEFT_FP16 become infinity. Then out = (bias[0] + bias[1]) + these sums in
 * ascending order of the nodes (or the handle's), from +0, in fp32, rounded once to dtype. The sums
 * of topk_weights have the same order and are never rounded. So a job gives the same bits whenever
 * it has the same ranks on the same number of nodes, whatever the network, the rings and their
 * slots. A combine that is the first operation since notify is preceded by a dispatch without rows
 * [DeepEP 2]. */
WEFT_API weft_result weft_ep_combine(weft_ep_handle *handle, const weft_ep_combine_args *args,
                                     weft_stream *stream);

/* In an expanded layout, what expand does with the rows of a block that no choice has. */
typedef enum weft_ep_gaps {
    WEFT_GAPS_LEFT = 0, /* they are not written */
    WEFT_GAPS_ZEROED = 1
} weft_ep_gaps;

typedef struct weft_ep_expand_args {
    size_t size;
    /* [num_planes], copied. src has the rows that dispatch has delivered, [capacity], dst is
     * [expanded_capacity][row_bytes]. Rows are opaque here: those that dispatch has quantised are
     * one plane, their scales another, and the fields from `scales` on are 0. */
    const weft_plane *planes;
    int32_t num_planes; /* 0..WEFT_MAX_PLANES, each rank as it likes */
    int32_t capacity;   /* as given to dispatch */
    /* Rows that the outputs hold: at least num_expanded_rows when the host waited for the counts;
     * in capacity mode any number: choices whose rows lie beyond have none, and weft_ep_check
     * reports them. */
    int32_t expanded_capacity;
    weft_dtype index_type; /* of recv_topk_idx: WEFT_INT32 or WEFT_INT64 */
    /* [capacity][num_topk] What dispatch has delivered. NULL, for one more dispatch of the same
     * routing: choice_rows has what an earlier expand of it has written. */
    const void *recv_topk_idx;
    /* [capacity][num_topk] The expanded row of each choice, -1 where there is none. Read if
     * recv_topk_idx is NULL, else written. */
    int32_t *choice_rows;
    const float *recv_topk_weights; /* optional, [capacity][num_topk] */
    /* [expanded_capacity], when recv_topk_weights is given: 0 in gaps; rows after the last block
     * are untouched. */
    float *row_weights;
    /* Optional, [expanded_capacity]: the row of dispatch that each one is a copy of (recv_src_token
     * and recv_rank_ends tell whence it comes); -1 in gaps and after the last block. */
    int32_t *src_rows;
    weft_ep_gaps gaps;
    int32_t num_blocks; /* as in weft_ep_dispatch_args */
} weft_ep_expand_args;

/* Stream operation, local, after a dispatch with recv_topk_idx: from a row for each token to a row
 * for each (token, local expert), packed by local expert. The block of expert e begins at row
 * first_row_per_expert[e] and has num_recv_per_expert[e] rows, a multiple of the handle's
 * expert_alignment: num_selections_per_expert[e] rows in order of source rank, token and choice,
 * then a gap. A token that chooses an expert twice has two rows there. Where each row is depends on
 * the routing alone. [DeepEP V2's expanded layout]
 *
 * A handle that never had a weft_ep_layout expands and reduces rows that came in another way, as by
 * low-latency dispatch: `capacity` rows, of num_topk choices in local ids each. Then
 * weft_ep_device_counts tells num_selections_per_expert, num_recv_per_expert, first_row_per_expert
 * and num_expanded_rows of them once expand has passed. */
WEFT_API weft_result weft_ep_expand(weft_ep_handle *handle, const weft_ep_expand_args *args,
                                    weft_stream *stream);

typedef struct weft_ep_reduce_args {
    size_t size;
    const void *rows;           /* [expanded_capacity][hidden] */
    const int32_t *choice_rows; /* [capacity][num_topk], as expand has written it */
    void *out;                  /* [capacity][hidden], the x of weft_ep_combine */
    const float *row_weights;   /* optional, [expanded_capacity] */
    /* [capacity][num_topk], when row_weights is given: that of each choice's row, 0 where it has
     * none; the topk_weights of weft_ep_combine. */
    float *topk_weights;
    int64_t hidden;       /* elements per row, 1 or more, at most WEFT_MAX_ROW_BYTES */
    weft_dtype dtype;     /* of rows: BF16, FP16 or FP32 */
    weft_dtype out_dtype; /* dtype, WEFT_FP32, or WEFT_DTYPE_NONE, which is dtype */
    int32_t capacity;     /* as given to dispatch */
    int32_t expanded_capacity;
    int32_t num_blocks; /* as in weft_ep_dispatch_args */
    int32_t reserved;   /* 0 */
} weft_ep_reduce_args;

/* Stream operation, local, before combine: from expanded rows to a row for each token that this
 * rank has: the sum of its rows in the order of its choices, from +0, in fp32, rounded once to
 * out_dtype as in weft_ep_combine. With WEFT_ORDER_BY_CHOICE, reduce and combine together add in
 * DeepEP V2's order: first each rank's rows, rounded, then the sums of all ranks, from the bias on.
 * To round nothing before the last sum let out_dtype and combine be WEFT_FP32: then a token's rows
 * still are added rank by rank. The gradient of expand is reduce, that of reduce an expand with the
 * same choice_rows. */
WEFT_API weft_result weft_ep_reduce(weft_ep_handle *handle, const weft_ep_reduce_args *args,
                                    weft_stream *stream);

/* After the stream was synchronised: WEFT_ERROR_CAPACITY, with the numbers in weft_last_error(), if
 * any dispatch or expand since the handle's last notify had to drop rows meant for this rank.
 * *num_dropped (may be NULL) gets the most that one of them dropped, also with this error. */
WEFT_API weft_result weft_ep_check(weft_ep_handle *handle, int32_t *num_dropped);

typedef struct weft_ep_size_args {
    size_t size;
    const uint64_t *plane_row_bytes; /* [num_planes] */
    int32_t num_planes;
    int32_t max_tokens_per_rank; /* on every rank */
    int32_t num_topk;
    weft_dtype index_type;    /* WEFT_INT32 or WEFT_INT64, if with_topk */
    int32_t with_topk;        /* 1: with recv_topk_idx and recv_topk_weights */
    int32_t with_src_token;   /* 1: with recv_src_token */
    int32_t expert_alignment; /* as of the handle */
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
    /* Rows that expand can make of max_recv_tokens at worst, with all gaps, if no token chooses an
     * expert twice. */
    int64_t max_expanded_rows;
} weft_ep_sizes;

/* How much memory this weft_ep has, and batches of a size would need. */
WEFT_API weft_result weft_ep_query_sizes(const weft_ep *ep, const weft_ep_size_args *args,
                                         weft_ep_sizes *sizes);

/* [experimental] Stream operation, collective: the weights of experts go from their places in
 * `from` to those in `to`, two weft_eps of one communicator with the same num_experts. A plane is
 * one array of weights with row_bytes for each expert, in order of the local experts: src has those
 * of this rank in `from`, and dst gets those in `to`. Both are heap memory that is at the same
 * place of every rank's heap, row_bytes may be any number, and the fields behind are 0. An expert
 * comes from this rank where it is here, else from this node, else over the network; ranks that
 * have it give it in turn.
 *
 * All ranks give the same planes; weft does not compare them.
 *
 * src is only read, so `from` can serve meanwhile on other streams. What ranks wrote to src on
 * their streams before is what moves. When the operation has finished, all ranks have all weights
 * in dst: later operations use `to`, and src may be overwritten, perhaps as dst of the next layer.
 * If it fails, src is as before on all ranks. */
WEFT_API weft_result weft_ep_move_experts(const weft_ep *from, const weft_ep *to,
                                          const weft_plane *planes, int32_t num_planes,
                                          weft_stream *stream);

/* [experimental] One step with copies of experts: weft_balance_fill says which replica is a copy of
 * which expert, and which replica serves which tokens. A weft_ep of as many experts as there are
 * replicas, placed evenly, has a local expert for each replica of this rank, also for those that
 * are spare: its choices are what weft_ep_choose_replicas writes. */
typedef struct weft_ep_replicas_args {
    size_t size;
    const void *topk_idx; /* [num_tokens][num_topk] experts; any other number: none */
    void *replica_idx;    /* the same shape and type, perhaps the same memory: replicas; -1: none */
    const int32_t *granules; /* [num_experts][WEFT_BALANCE_GRANULES], memory of the machine */
    weft_dtype index_type;   /* WEFT_INT32 or WEFT_INT64 */
    int32_t num_tokens, num_topk;
    int32_t num_experts;
} weft_ep_replicas_args;

/* [experimental] Stream operation, local: the replica that serves each choice, which for token t of
 * this rank r is granules[expert][(r + t) % WEFT_BALANCE_GRANULES]. */
WEFT_API weft_result weft_ep_choose_replicas(weft_comm *comm, const weft_ep_replicas_args *args,
                                             weft_stream *stream);

typedef struct weft_ep_copies_args {
    size_t size;
    /* [num_replicas] on the host, the same on all ranks: the expert of each replica before and in
     * this step; -1: spare. Where they differ, `experts` has a copy, or a spare replica. An expert
     * that is copied has a replica that is in both. */
    const int32_t *base, *experts;
    int32_t num_replicas; /* a multiple of the ranks: rank r has num_replicas / R * r and so on */
    int32_t num_planes;   /* 0..WEFT_MAX_PLANES */
    /* [num_planes], copied. dst is an array with row_bytes for each replica of this rank, heap
     * memory that is at the same place of every rank's heap. All other fields are 0. */
    const weft_plane *planes;
    /* The rest is for weft_ep_reduce_copies, and else 0. */
    weft_dtype dtype;       /* of all planes: BF16, FP16 or FP32 */
    int32_t reserved;       /* 0 */
    void *staging;          /* heap memory, aligned to 16 */
    uint64_t staging_bytes; /* at least 16 for each replica that an expert has beside its first */
} weft_ep_copies_args;

/* [experimental] Stream operation, collective: each copy gets its expert's row of each plane, from
 * the nearest rank with a replica that is in both placements; ranks that are as near give in turn.
 * Other rows are only read. When the operation has finished, all copies are there. All ranks give
 * the same arguments; weft does not compare them. */
WEFT_API weft_result weft_ep_fetch_copies(weft_comm *comm, const weft_ep_copies_args *args,
                                          weft_stream *stream);

/* [experimental] Stream operation, collective, the way back for gradients: the first replica of an
 * expert that is in both placements gets the sum of the rows of all its replicas in `experts`: its
 * own, then the others in ascending order, from +0, in fp32, rounded once to dtype as in
 * weft_ep_combine. Other rows are only read. The bits do not depend on machine, nodes or staging.
 * When the operation has finished, rows of copies may be overwritten. */
WEFT_API weft_result weft_ep_reduce_copies(weft_comm *comm, const weft_ep_copies_args *args,
                                           weft_stream *stream);

#ifdef __cplusplus
}
#endif

#endif
