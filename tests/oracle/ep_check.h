/* SPDX-License-Identifier: MIT */
/* Runs the operations of the entered world on this rank and compares what they give with the
 * oracle. All return 0, or 1 when a check has failed. */
#pragma once

#include "oracle/ep_data.h"
#include "oracle/ep_memory.h"
#include "workload/ep_oracle_check.h"

/* Which notes in the context what is wrong first. */
struct ep_checker ep_checker_of(struct ep_rank *self);
int ep_checker_failed(void);

enum ep_optional { EP_WITHOUT, EP_WITH };

/* Arguments of layout, without its results. */
int ep_layout_args(struct ep_rank *self, weft_ep_layout_args *args);
/* Enqueues layout (without its results) and notify. */
int ep_route(struct ep_rank *self);
/* Layout with all its results, compared. */
int ep_check_layout(struct ep_rank *self);
/* Notify, and the counts that the host and the device learn, compared. Layout must have run. */
int ep_check_notify(struct ep_rank *self);

enum ep_topk { EP_TOPK_NONE, EP_TOPK_IDS, EP_TOPK_IDS_AND_WEIGHTS };
enum ep_capacity {
    EP_CAPACITY_EXACT,
    EP_CAPACITY_MORE,
    EP_CAPACITY_LESS, /* half */
    EP_CAPACITY_ZERO,
    EP_CAPACITY_BY_RANK, /* the four above in turn */
    EP_NUM_CAPACITIES
};

/* The capacity for so many rows; by rank it is exact. */
int32_t ep_capacity_for(enum ep_capacity capacity, int32_t num_rows);
/* The capacity that `rank` gives. */
int32_t ep_capacity_of(const struct ep_world *world, enum ep_capacity capacity, int32_t rank);

struct ep_plane_shape {
    uint64_t row_bytes;                              /* of the source */
    uint64_t src_gap_bytes;                          /* between rows */
    uint64_t src_misalign_bytes, dst_misalign_bytes; /* the latter of scales, too */
    weft_dtype dtype;
    weft_quantisation quantisation; /* of at most one plane; zero: of none */
};

/* Of a row as it is received, and of its scales: 0 if it has none. */
uint64_t ep_plane_received_bytes(const struct ep_plane_shape *shape);
uint64_t ep_plane_scales_bytes(const struct ep_plane_shape *shape);

struct ep_dispatch_shape {
    int32_t num_planes;
    struct ep_plane_shape planes[WEFT_MAX_PLANES];
    enum ep_topk topk;
    enum ep_optional src_token;
    enum ep_capacity capacity;
    enum ep_capacity expanded_capacity; /* of expand; by rank is exact */
    uint64_t round;                     /* other rounds move other bytes */
};

struct ep_dispatch {
    struct ep_dispatch_shape shape;
    int32_t capacity;
    weft_plane planes[WEFT_MAX_PLANES];
    struct ep_array src[WEFT_MAX_PLANES];
    struct ep_array dst[WEFT_MAX_PLANES];
    struct ep_array scales; /* of the quantised plane */
    struct ep_array topk_idx, topk_weights, src_token;
};

/* Rows that come to this rank, and have room there. */
int32_t ep_num_delivered(const struct ep_rank *self, const struct ep_dispatch *dispatch);
/* Makes inputs and outputs and enqueues the operation. */
int ep_dispatch_issue(struct ep_rank *self, const struct ep_dispatch_shape *shape,
                      struct ep_dispatch *dispatch);
/* After the stream was synchronised: compares and frees. */
int ep_dispatch_verify(struct ep_rank *self, struct ep_dispatch *dispatch);

/* What expand makes of a dispatch that had ids, else nothing; and what reduce makes of other rows
 * of the same layout (ep_check_expand.c). How, the seed says. */
struct ep_expand {
    int32_t capacity; /* of expanded rows */
    weft_ep_gaps gaps;
    struct ep_expanded_row *expected; /* NULL: nothing was expanded */
    int32_t num_expected;
    int32_t num_planes;
    struct ep_array dst[WEFT_MAX_PLANES], choice_rows, row_weights, src_rows;
    weft_dtype dtype, out_dtype; /* of reduce */
    struct ep_array rows, out, topk_weights;
};

/* Behind the dispatch, whose outputs it reads. */
int ep_expand_issue(struct ep_rank *self, const struct ep_dispatch *dispatch,
                    struct ep_expand *expand);
int ep_expand_verify(struct ep_rank *self, struct ep_dispatch *dispatch, struct ep_expand *expand);

enum ep_bias { EP_BIAS_NONE, EP_BIAS_FIRST, EP_BIAS_SECOND, EP_BIAS_BOTH };

struct ep_combine_shape {
    weft_dtype dtype;
    int64_t hidden;
    enum ep_bias bias;
    enum ep_optional weights;
    enum ep_values values;
    enum ep_capacity capacity;
    uint64_t misalign_bytes; /* of x, bias and out */
    uint64_t round;
};

struct ep_combine {
    struct ep_combine_shape shape;
    struct ep_array x, weights, bias[2], out, out_weights;
};

int ep_combine_issue(struct ep_rank *self, const struct ep_combine_shape *shape,
                     struct ep_combine *combine);
int ep_combine_verify(struct ep_rank *self, struct ep_combine *combine);

/* Both of a round, one behind the other. */
struct ep_pass {
    struct ep_dispatch dispatch;
    struct ep_combine combine;
};
int ep_pass_issue(struct ep_rank *self, struct ep_dispatch_shape dispatch,
                  struct ep_combine_shape combine, uint64_t round, struct ep_pass *pass);
int ep_pass_verify(struct ep_rank *self, struct ep_pass *pass);
/* So many, which were issued: synchronises first. */
int ep_passes_verify(struct ep_rank *self, struct ep_pass *passes, int num_passes);

/* Issue, synchronise, verify. */
int ep_check_dispatch(struct ep_rank *self, const struct ep_dispatch_shape *shape);
int ep_check_combine(struct ep_rank *self, const struct ep_combine_shape *shape);
/* weft_ep_check must tell of the rows that the largest of `num` dispatches since the last notify,
 * given by their capacities, dropped. */
int ep_check_dropped(struct ep_rank *self, const enum ep_capacity *capacities, int num);
/* All of the above, from enter to leave. */
int ep_check_world(struct ep_rank *self, const struct ep_world *world,
                   const struct ep_dispatch_shape *dispatch,
                   const struct ep_combine_shape *combine);
/* Runs the function on ranks whose argument is the case's world; returns how many failed. */
int ep_case_run(const struct ep_case *spec, enum ranks_mode mode, rank_function function);
