/* SPDX-License-Identifier: MIT */
/* Prints what calls of an operation take: a line per size, a column per way of doing it. */
#pragma once

#include "workload/collective.h"
#include "workload/figures.h"

/* A way of doing an operation. */
struct way {
    weft_algorithm algorithm;
    int32_t num_blocks, num_warps; /* 0: the library's choice */
};

struct coll_matrix {
    double best_us; /* of the line; 0: none yet */
    struct way best;
};

void coll_matrix_heading(const struct collective *collective, const struct way *ways,
                         int32_t num_ways);
void coll_matrix_begin_line(struct coll_matrix *matrix, uint64_t bytes);
void coll_matrix_cell(struct coll_matrix *matrix, const struct way *way, const struct figures *us,
                      uint64_t num_wrong);
void coll_matrix_empty_cell(const struct way *way); /* it cannot be done in this way */
void coll_matrix_end_line(const struct coll_matrix *matrix);
