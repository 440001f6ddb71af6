/* SPDX-License-Identifier: MIT */
/* The arguments of weft coll. */
#pragma once

#include <stdint.h>

#include "job.h"
#include "weft.h"
#include "workload/collective.h"
#include "workload/options.h"
#include "workload/progress.h"

enum coll_memory { COLL_MEMORY_HEAP, COLL_MEMORY_OTHER };
enum coll_launch { COLL_LAUNCH_CALLS, COLL_LAUNCH_GRAPHS };
enum coll_check_mode { COLL_CHECK_FULL, COLL_CHECK_NONE };
enum coll_task { COLL_TASK_MEASURE, COLL_TASK_EXPLAIN };
enum coll_format { COLL_FORMAT_TABLE, COLL_FORMAT_JSON };

enum { COLL_DEFAULT_RANKS = 4, COLL_MAX_JOB_RANKS = 256 };

/* A range of an enumeration, whose members are measured one after the other. */
struct coll_kinds {
    int32_t first, last;
};

/* Sizes by nccl-tests' options; -1, of factor 0: not given. */
struct coll_size_range {
    int64_t min, max, step, factor;
};

/* By which calls the operation is done: its own, or sends and receives in a group. */
enum coll_calls_kind { COLL_CALLS_OWN, COLL_CALLS_GROUP };

struct coll_options {
    struct job_options job;
    weft_collective op;
    weft_algorithm algorithm;
    enum coll_calls_kind calls;
    weft_dtype dtype; /* the one that is measured now, as is redop */
    weft_reduce_op redop;
    struct coll_kinds dtypes, redops;
    int32_t num_factors; /* as given, of WEFT_PREMUL_SUM; then that of ranks */
    float factors[COLL_MAX_JOB_RANKS];
    int32_t root;
    struct option_steps sizes;
    struct coll_size_range range;
    int32_t num_cuda_graph_launches; /* as nccl-tests has graphs */
    int32_t num_gpus, num_threads;   /* as nccl-tests has ranks; 0: not given */
    uint64_t packet_bytes;           /* 0: the library's, as of the next three */
    int32_t num_blocks;
    int32_t num_warps;
    int32_t num_channels, num_slots; /* between nodes, as the next */
    uint64_t slot_bytes;
    enum coll_task task;
    enum coll_memory memory;
    enum coll_launch launch;
    uint64_t seed;
    int32_t num_iters;
    int32_t num_warmup;
    enum coll_check_mode check;
    enum coll_format format;
    const char *plot; /* a file, or NULL */
    enum progress_visibility progress;
};

extern const char *const coll_memory_names[];
extern const char *const coll_calls_names[];

/* Ends the process with STATUS_USAGE when an argument is wrong whatever the number of ranks. */
void coll_options_parse(struct coll_options *options, int argc, char **argv);

/* The rest, once the job's ranks and nodes are known: 0, or -1 with the error. */
int coll_options_resolve(struct coll_options *options, char error[JOB_ERROR_BYTES]);
