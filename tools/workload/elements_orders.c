/* SPDX-License-Identifier: MIT */
/* Reductions that are rounded on their way up a tree. */

#include "workload/elements.h"

/* Rows are reduced some elements at a time, of all of them as many as fit a buffer. It is on the
 * stack: memory of each thread is cleared page by page when a thread starts, of which there are
 * many. */
enum { MAX_RANKS = 256, BUFFER_ELEMENTS = 1024 /* as wide as any element */ };

static uint64_t elements_at_once(uint64_t rest, int32_t num_rows, uint64_t most)
{
    const uint64_t of_buffer = BUFFER_ELEMENTS / (uint64_t)num_rows;
    const uint64_t count = of_buffer < most ? of_buffer : most;
    return rest < count ? rest : count;
}

/* A reduction of some rows, of the elements that are all reduced at a time. */
struct job {
    weft_dtype dtype;
    weft_reduce_op op;
    int32_t num_rows;
    int32_t num_averaged; /* that an average divides by */
    const void *const *rows;
    uint64_t first, count; /* of the rows' elements */
};

static const void *row_of(const struct job *job, int32_t rank)
{
    return (const char *)job->rows[rank] + job->first * dtype_bytes(job->dtype);
}

enum rest { MORE_IS_ADDED, IS_COMPLETE };

/* An average that is not complete yet is a sum. */
static void reduce(const struct job *job, enum rest rest, int32_t num_terms,
                   const void *const *terms, void *out)
{
    const struct element_ranks ranks = {num_terms, 1, NULL, 0, job->num_averaged};
    const int is_sum = job->op == WEFT_AVG && rest == MORE_IS_ADDED;
    elements_reduce_rows_over_nodes(job->dtype, is_sum ? WEFT_SUM : job->op, &ranks, terms,
                                    job->count, out);
}

/* ---------------------------------------------------------------- trees */

enum { TREE_CHUNK = 64 }; /* elements; there are two chunks for each rank on the way up */

/* The places between `after` and `before`, of which there is one at least: that which is above the
 * others adds what is before it, its own and what is behind it. */
static void reduce_between(const struct job *job, int32_t after, int32_t before, void *out)
{
    uint64_t sums[2][TREE_CHUNK]; /* as wide as any element */
    const void *terms[3];
    int32_t num_terms = 0, step = 1;
    while (after + 2 * step < before)
        step *= 2;
    const int32_t above = after + step;
    if (above - after > 1) {
        reduce_between(job, after, above, sums[0]);
        terms[num_terms++] = sums[0];
    }
    terms[num_terms++] = row_of(job, above);
    if (before - above > 1) {
        reduce_between(job, above, before, sums[1]);
        terms[num_terms++] = sums[1];
    }
    reduce(job, MORE_IS_ADDED, num_terms, terms, out);
}

static void reduce_up(const struct job *job, void *out)
{
    uint64_t sums[TREE_CHUNK];
    const void *terms[2] = {row_of(job, 0), sums};
    if (job->num_rows > 1)
        reduce_between(job, 0, job->num_rows, sums);
    reduce(job, IS_COMPLETE, job->num_rows > 1 ? 2 : 1, terms, out);
}

/* ---------------------------------------------------------------- nodes */

/* The sum of the node's rows, in ascending order of ranks. */
static void reduce_node(const struct job *job, const struct element_ranks *ranks, int32_t node,
                        void *out)
{
    const void *terms[MAX_RANKS];
    int32_t num_terms = 0;
    for (int32_t rank = 0; rank < ranks->num_ranks; rank++)
        if (ranks->node_of_rank[rank] == node)
            terms[num_terms++] = row_of(job, rank);
    reduce(job, MORE_IS_ADDED, num_terms, terms, out);
}

/* `count` elements of each rank's, one rank after another. */
static void fill_rows(const struct element_source *source, int32_t num_ranks, uint64_t first,
                      uint64_t count, uint64_t *buffer, const void **rows)
{
    for (int32_t rank = 0; rank < num_ranks; rank++) {
        uint64_t *row = buffer + (uint64_t)rank * count;
        elements_fill(source, rank, first, count, row);
        rows[rank] = row;
    }
}

void elements_reduce_rows_up_nodes(weft_dtype dtype, weft_reduce_op op,
                                   const struct element_ranks *ranks, const void *const *rows,
                                   uint64_t count, void *elements)
{
    uint64_t sums[BUFFER_ELEMENTS];
    const void *sums_of[MAX_RANKS];
    struct job job = {dtype, op, ranks->num_ranks, ranks->num_ranks, rows, 0, 0};
    for (; job.first < count; job.first += job.count) {
        job.count = elements_at_once(count - job.first, ranks->num_nodes, TREE_CHUNK);
        for (int32_t node = 0; node < ranks->num_nodes; node++) {
            uint64_t *of_node = sums + (uint64_t)node * job.count;
            sums_of[node] = of_node;
            reduce_node(&job, ranks, node, of_node);
        }
        const struct job of_sums = {dtype,   op, ranks->num_nodes, ranks->num_ranks,
                                    sums_of, 0,  job.count};
        reduce_up(&of_sums, (char *)elements + job.first * dtype_bytes(dtype));
    }
}

void elements_reduce_up_nodes(const struct element_source *source, weft_reduce_op op,
                              const struct element_ranks *ranks, uint64_t first, uint64_t count,
                              void *elements)
{
    uint64_t inputs[BUFFER_ELEMENTS], size;
    const void *rows[MAX_RANKS];
    for (uint64_t done = 0; done < count; done += size) {
        size = elements_at_once(count - done, ranks->num_ranks, TREE_CHUNK);
        fill_rows(source, ranks->num_ranks, first + done, size, inputs, rows);
        elements_reduce_rows_up_nodes(source->dtype, op, ranks, rows, size,
                                      (char *)elements + done * dtype_bytes(source->dtype));
    }
}
