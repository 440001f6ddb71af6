/* SPDX-License-Identifier: MIT */
/* The arguments of weft ep. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "job.h"
#include "weft.h"
#include "workload/options.h"
#include "workload/payload.h"
#include "workload/progress.h"
#include "workload/trace.h"

enum ep_check_mode { EP_CHECK_FULL, EP_CHECK_SAMPLE, EP_CHECK_NONE };
/* Of outputs of dispatch and inputs of combine. */
enum ep_memory { EP_MEMORY_HEAP, EP_MEMORY_OTHER };
extern const char *const ep_memory_names[]; /* NULL behind the last */
enum ep_mode { EP_MODE_NORMAL, EP_MODE_LOW_LATENCY };
/* Of rows on their way to experts: as they are, or quantised, in groups of elements that have a
 * scale. */
enum ep_row_format {
    EP_ROW_FORMAT_DTYPE,
    EP_ROW_FORMAT_FP8,
    EP_ROW_FORMAT_UE8M0,
    EP_ROW_FORMAT_INT8,
    EP_NUM_ROW_FORMATS
};
enum { EP_LL_GROUP_ELEMENTS = 128 };
extern const char *const ep_row_format_names[];    /* NULL behind the last */
extern const char *const ep_ll_carrier_names[];    /* the same, by weft_ll_carrier */
extern const char *const ep_ll_route_names[];      /* the same, by weft_ll_route */
extern const char *const ep_ll_on_missing_names[]; /* the same, by weft_ll_on_missing */
extern const char *const ep_ll_answer_names[];     /* the same, by weft_ll_answer */
extern const char *const ep_ll_layout_names[];     /* the same, by weft_ll_layout */
extern const char *const ep_mode_names[];          /* the same */
enum ep_start { EP_START_STREAM, EP_START_GRAPH };
enum ep_task { EP_TASK_RUN, EP_TASK_QUERY };
enum ep_format { EP_FORMAT_TABLE, EP_FORMAT_JSON };

enum { EP_NOT_GIVEN = -1 };

struct ep_options {
    struct job_options job;
    int32_t num_tokens; /* per rank, at most; EP_NOT_GIVEN until resolved, as the next ones */
    int32_t num_topk;
    int32_t num_experts;
    int32_t hidden; /* elements per row; bytes when kind is WEFT_UINT8 */
    weft_dtype kind;
    uint64_t row_bytes;
    char dtype[24]; /* as in the reports */
    const char *trace_path;
    struct trace *trace; /* NULL: a gate routes; the caller closes it */
    int32_t layer;
    int32_t num_iters;
    int32_t num_warmup;
    int32_t num_blocks; /* EP_NOT_GIVEN until resolved, as the next; 0: the library chooses */
    int32_t num_warps;
    int32_t num_channels; /* between nodes; 0: the library chooses, as the next two */
    int32_t num_staging_slots;
    uint64_t staging_slot_bytes;
    int32_t wire; /* of wire_dtypes */
    enum ep_memory memory;
    uint64_t staging_bytes;
    uint64_t seed;
    double skew;
    enum ep_mode mode;
    weft_ll_layout ll_layout;
    weft_ll_carrier ll_carrier;
    weft_ll_route ll_route;
    weft_ll_on_missing ll_on_missing;
    weft_ll_answer ll_answer;
    int32_t num_phases;
    enum ep_row_format row_format;
    struct option_list masked; /* ranks that do without the others, and these without them */
    enum ep_start start;
    enum ep_task task;
    enum ep_check_mode check;
    enum ep_format format;
    const char *plot; /* a file, or NULL */
    enum progress_visibility progress;
};

/* Ends the process with STATUS_USAGE when an argument is wrong whatever the number of ranks. Opens
 * the trace. */
void ep_options_parse(struct ep_options *options, int argc, char **argv);

/* The rest, once the job's ranks and nodes are known: 0, or -1 with the error. */
int ep_options_resolve(struct ep_options *options, char error[JOB_ERROR_BYTES]);
/* And once the machine is known. */
void ep_options_resolve_grid(struct ep_options *options, weft_machine machine);

/* Whether two ranks have masked each other. */
int ep_ll_are_cut(const struct ep_options *options, int32_t a, int32_t b);
/* The bytes of a row on its way in low latency: elements, then scales; these are 0 of
 * EP_ROW_FORMAT_DTYPE. */
uint64_t ep_ll_element_bytes(const struct ep_options *options);
uint64_t ep_ll_scale_bytes(const struct ep_options *options);

/* What combine's values are rounded to on their way, as combine_wire and answer_dtype have it. */
weft_dtype ep_wire_dtype(const struct ep_options *options);
const char *ep_wire_name(const struct ep_options *options);
