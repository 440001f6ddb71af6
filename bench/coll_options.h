/* SPDX-License-Identifier: MIT */
/* Options of coll_bench and mpi_coll: collectives of fp32, alike in both. */
#pragma once

#include "workload/collective.h"
#include "workload/figures.h"
#include "workload/options.h"

struct coll_bench_options {
    struct option_list kinds; /* of weft_collective */
    struct option_list sizes; /* bytes, as nccl-tests counts them; multiples of 4 */
    int32_t num_iters;
    int32_t num_warmups;
};

/* Ends the process when an option is bad. */
void coll_bench_options_parse(struct coll_bench_options *options, const char *doc, int argc,
                              char **argv);

/* The call to measure: of `bytes`, rounded down to whole counts; the root is rank 0. Its inputs are
 * small whole numbers, whose sums are the same in any order: MPI promises no order. */
struct collective coll_bench_collective(weft_collective kind, uint64_t bytes, int32_t num_ranks);

/* An iteration is that many calls in a row: of small sizes one would not be seen. */
int32_t coll_bench_calls(uint64_t bytes);

struct coll_bench_result {
    const char *library;
    const struct coll_bench_options *options;
    const struct collective *collective;
    struct figures us; /* of one call */
    int64_t num_wrong; /* elements of all ranks */
};
void coll_bench_print(const struct coll_bench_result *result);
