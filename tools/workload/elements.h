/* SPDX-License-Identifier: MIT */
/* Elements of any type: the inputs of ranks as a pure function of (seed, rank, index), so that any
 * rank can recompute any of them; and what reductions make of them. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "weft.h"

/* Types are 1..NUM_DTYPES. */
enum { NUM_DTYPES = WEFT_FP8_E4M3 };
/* Those of inputs as they are, of any type; behind them is WEFT_PREMUL_SUM. */
enum { NUM_REDUCE_OPS = WEFT_AVG + 1 };
/* That tools and tests know. */
enum { NUM_COLLECTIVES = WEFT_SCATTER + 1, NUM_ALGORITHMS = WEFT_ALGORITHM_TREE + 1 };

/* By type and by reduction; NULL behind the last. */
extern const char *const dtype_names[NUM_DTYPES + 2];
extern const char *const reduce_op_names[NUM_REDUCE_OPS + 2];

size_t dtype_bytes(weft_dtype dtype);
int dtype_is_integer(weft_dtype dtype);
/* Averages need floating point. */
int reduce_op_takes(weft_reduce_op op, weft_dtype dtype);

enum element_content {
    ELEMENTS_BITS,    /* any bits */
    ELEMENTS_NUMBERS, /* in -2..2, all finite, mantissas full of bits; integers of any value */
    ELEMENTS_WHOLE    /* 0 to 7: sums of up to 32 ranks are exact in any order, of FP8 of 2 */
};

struct element_source {
    uint64_t seed;
    weft_dtype dtype;
    enum element_content content;
    /* By rank; not NULL: its numbers are multiplied, as elements_premultiply does. */
    const float *factors;
};

/* Elements first .. first + count - 1 of a rank (or token); they may lie anywhere. */
void elements_fill(const struct element_source *source, int64_t rank, uint64_t first,
                   uint64_t count, void *elements);

/* Elements of BF16, FP16, FP32 or FP8, at any address, as fp32; and back, rounded once, every NaN
 * as the positive one with all mantissa bits set. */
void elements_to_fp32(weft_dtype dtype, const void *elements, size_t count, float *values);
void elements_from_fp32(weft_dtype dtype, const float *values, size_t count, void *elements);
/* The same of element `i` alone. */
float element_load(weft_dtype dtype, const void *elements, int64_t i);
void element_store(weft_dtype dtype, void *elements, int64_t i, float value);

/* Values as one of these types keeps them. */
void elements_round(weft_dtype dtype, float *values, size_t count);

/* Elements of BF16, FP16 or FP32 as an input of a premultiplied sum; `products` may be
 * `elements`. */
void elements_premultiply(weft_dtype dtype, float factor, const void *elements, uint64_t count,
                          void *products);

/* The ranks of a reduction: each one's node, of numbers from 0 on in the order of the nodes. */
struct element_ranks {
    int32_t num_ranks;
    int32_t num_nodes;           /* with 1: */
    const int32_t *node_of_rank; /* NULL */
    int32_t first_node;          /* whose sum is first; the others follow in turn */
    int32_t num_averaged;        /* that an average divides by; 0: num_ranks */
};

/* The same elements of ranks 0 .. num_ranks - 1, reduced as weft.h defines it. Here and below a
 * premultiplied sum is the SUM of what has factors. */
void elements_reduce_over_nodes(const struct element_source *source, weft_reduce_op op,
                                const struct element_ranks *ranks, uint64_t first, uint64_t count,
                                void *elements);
/* For ranks on one node. */
void elements_reduce(const struct element_source *source, weft_reduce_op op, int32_t num_ranks,
                     uint64_t first, uint64_t count, void *elements);
/* The same of rows in memory, which may lie anywhere; `elements` may be one of them. */
void elements_reduce_rows(weft_dtype dtype, weft_reduce_op op, int32_t num_ranks,
                          const void *const *rows, uint64_t count, void *elements);
void elements_reduce_rows_over_nodes(weft_dtype dtype, weft_reduce_op op,
                                     const struct element_ranks *ranks, const void *const *rows,
                                     uint64_t count, void *elements);

/* TREE reduces between nodes, each step rounded. */
enum element_order { REDUCED_IN_RANK_ORDER, REDUCED_UP_A_TREE };
static inline enum element_order elements_order_of(weft_algorithm algorithm)
{
    return algorithm == WEFT_ALGORITHM_TREE ? REDUCED_UP_A_TREE : REDUCED_IN_RANK_ORDER;
}
/* The sums of nodes, each in the order of its ranks, go up a tree, of which the nodes are the
 * places. At most 256 nodes. */
void elements_reduce_rows_up_nodes(weft_dtype dtype, weft_reduce_op op,
                                   const struct element_ranks *ranks, const void *const *rows,
                                   uint64_t count, void *elements);
void elements_reduce_up_nodes(const struct element_source *source, weft_reduce_op op,
                              const struct element_ranks *ranks, uint64_t first, uint64_t count,
                              void *elements);
