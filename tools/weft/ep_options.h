/* SPDX-License-Identifier: MIT */
/* The arguments of weft ep. */
#pragma once

#include "job.h"
#include "workload/ep_layer_options.h"

/* A NULL ends each. */
extern const char *const ep_memory_names[];
extern const char *const ep_row_format_names[];
extern const char *const ep_ll_carrier_names[];    /* by weft_ll_carrier */
extern const char *const ep_ll_route_names[];      /* by weft_ll_route */
extern const char *const ep_ll_on_missing_names[]; /* by weft_ll_on_missing */
extern const char *const ep_ll_answer_names[];     /* by weft_ll_answer */
extern const char *const ep_ll_layout_names[];     /* by weft_ll_layout */
extern const char *const ep_mode_names[];
enum ep_task { EP_TASK_RUN, EP_TASK_QUERY };
enum ep_format { EP_FORMAT_TABLE, EP_FORMAT_JSON };

enum { EP_NOT_GIVEN = -1 };

struct ep_options {
    struct job_options job;
    struct ep_layer_options layer; /* of the case that is chosen; until then what needs most */
    struct option_list tokens;     /* per rank; empty until resolved */
    char dtype[32];                /* as in the reports */
    const char *trace_path;
    struct trace *trace; /* NULL: none; the caller closes it */
    struct option_list trace_layers;
    int32_t num_iters;
    int32_t num_warmup;
    enum ep_task task;
    enum ep_format format;
    const char *plot; /* a file, or NULL */
};

/* Ends the process with STATUS_USAGE when an argument is wrong whatever the number of ranks. Opens
 * the trace. */
void ep_options_parse(struct ep_options *options, int argc, char **argv);

/* The rest, once the job's ranks and nodes are known: 0, or -1 with the error. */
int ep_options_resolve(struct ep_options *options, char error[JOB_ERROR_BYTES]);
/* And once the machine is known. */
void ep_options_resolve_grid(struct ep_options *options, weft_machine machine);
/* Each number of tokens, or layer of the trace, is a case; with 0 <= i < the number of them. */
int32_t ep_options_num_cases(const struct ep_options *options);
void ep_options_choose_case(struct ep_options *options, int32_t i);

const char *ep_wire_name(const struct ep_options *options);
