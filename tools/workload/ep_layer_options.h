/* SPDX-License-Identifier: MIT */
/* The shape of a mixture-of-experts layer, and how it is run. */
#pragma once

#include <stdint.h>

#include "weft.h"
#include "workload/options.h"
#include "workload/progress.h"
#include "workload/trace.h"

enum ep_check_mode { EP_CHECK_FULL, EP_CHECK_SAMPLE, EP_CHECK_NONE };
/* Where outputs of dispatch and inputs of combine are. */
enum ep_memory { EP_MEMORY_HEAP, EP_MEMORY_OTHER };
enum ep_mode { EP_MODE_NORMAL, EP_MODE_LOW_LATENCY };
/* Rows on their way to experts: as they are, or quantised, in groups of elements that have a
 * scale. */
enum ep_row_format {
    EP_ROW_FORMAT_DTYPE,
    EP_ROW_FORMAT_FP8,
    EP_ROW_FORMAT_UE8M0,
    EP_ROW_FORMAT_INT8,
    EP_NUM_ROW_FORMATS
};
enum { EP_LL_GROUP_ELEMENTS = 128 };
/* With EP_GATE_PARTNERS a token chooses one expert, on the rank of the same place on the next node;
 * with EP_GATE_SENDER one rank alone has tokens, which choose an expert of its mirror image: rank r
 * of R sends to R - 1 - r. */
enum ep_gate { EP_GATE_SEEDED, EP_GATE_PARTNERS, EP_GATE_SENDER };
enum ep_start { EP_START_STREAM, EP_START_GRAPH };
enum { EP_GRAPH_CALLS = 20 };
/* A dispatch carries rows with the ids, weights and sources of their tokens; or rows. */
enum ep_carried { EP_CARRY_ALL, EP_CARRY_ROWS };
enum { EP_MAX_PLANES = 2 };
/* Operations are timed each by itself, one after the other. ep_layer_options.c has their parts. */
enum ep_op {
    EP_LAYOUT,
    EP_NOTIFY,
    EP_DISPATCH,
    EP_COMBINE,
    EP_LAYER,
    EP_LL_DISPATCH, /* of low latency, as the next two */
    EP_LL_COMBINE,
    EP_LL_LAYER,
    EP_NUM_USUAL_OPS, /* those from here on only if they are asked for */
    EP_DISPATCH_COUNTED = EP_NUM_USUAL_OPS,
    EP_DISPATCH_CAPACITY,
    EP_DISPATCH_COMBINE,
    EP_LL_DISPATCH_RELEASE,
    EP_NUM_OPS
};
extern const char *const ep_op_names[]; /* NULL behind the last */

/* An operation is a set of these, in their order. */
enum ep_part {
    EP_PART_LAYOUT = 1,
    EP_PART_NOTIFY = 2,
    EP_PART_COUNTS = 4, /* the host waits for them */
    EP_PART_DISPATCH = 8,
    EP_PART_COMBINE = 16,
    EP_PART_RELEASE = 32 /* of what came, with low latency */
};

struct ep_layer_options {
    const char *program; /* in messages */
    enum progress_visibility progress;
    int32_t num_tokens; /* per rank, at most */
    int32_t num_topk;
    int32_t num_experts;
    int32_t hidden; /* elements per row; bytes when kind is WEFT_UINT8 */
    weft_dtype kind;
    uint64_t row_bytes;
    int32_t num_planes; /* of a row; one, but of bytes */
    uint64_t plane_bytes[EP_MAX_PLANES];
    enum ep_gate gate;
    int32_t sender;            /* of EP_GATE_SENDER */
    const struct trace *trace; /* NULL: the gate routes */
    int32_t trace_layer;
    uint64_t seed;
    double skew;
    struct option_list ops; /* of enum ep_op; none: the usual ones of the mode */
    enum ep_start start;
    enum ep_carried carried;
    int32_t num_blocks; /* 0: the library chooses, as the next ones */
    int32_t num_warps;
    int32_t num_channels; /* between nodes */
    int32_t num_staging_slots;
    uint64_t staging_slot_bytes;
    int32_t wire; /* of wire_dtypes */
    enum ep_memory memory;
    uint64_t staging_bytes;
    enum ep_mode mode;
    weft_ll_layout ll_layout;
    weft_ll_carrier ll_carrier;
    weft_ll_route ll_route;
    weft_ll_on_missing ll_on_missing;
    weft_ll_answer ll_answer;
    int32_t num_results; /* of low latency, at a time; 0: two */
    int32_t num_phases;
    enum ep_row_format row_format;
    struct option_list masked; /* ranks that do without the others, and these without them */
    enum ep_check_mode check;
};

/* 1 if two ranks have masked each other. */
int ep_ll_are_cut(const struct ep_layer_options *options, int32_t a, int32_t b);
/* The bytes of a row on its way in low latency: elements, then scales; these are 0 of
 * EP_ROW_FORMAT_DTYPE. */
uint64_t ep_ll_element_bytes(const struct ep_layer_options *options);
uint64_t ep_ll_scale_bytes(const struct ep_layer_options *options);

/* combine_wire or answer_dtype: the type that values of combine are rounded to on their way. */
weft_dtype ep_wire_dtype(const struct ep_layer_options *options);

/* The parts of an operation that there are with the options; 0: it does not exist. Opaque bytes
 * cannot be summed, and a result whose answers lie in its slots cannot be combined again. */
int ep_op_parts(enum ep_op op, const struct ep_layer_options *options);
/* 1 if the options ask for its time. */
int ep_op_is_timed(enum ep_op op, const struct ep_layer_options *options);
/* How many of it are timed together: one, or those of a graph. */
int32_t ep_op_calls(enum ep_op op, const struct ep_layer_options *options);
/* 1 if each part of `part` is one of `whole`, in the same mode. */
int ep_op_contains(enum ep_op whole, enum ep_op part);
