/* SPDX-License-Identifier: MIT */
/* One call of a collective operation as a few numbers, from which every rank can tell what all
 * ranks give to it and what each must get. */
#pragma once

#include "oracle/ep_memory.h"
#include "workload/collective.h"

enum coll_operation {
    COLL_ALL_REDUCE = WEFT_ALL_REDUCE,
    COLL_REDUCE_SCATTER = WEFT_REDUCE_SCATTER,
    COLL_ALL_GATHER = WEFT_ALL_GATHER,
    COLL_ALL_TO_ALL = WEFT_ALL_TO_ALL,
    COLL_BROADCAST = WEFT_BROADCAST,
    COLL_REDUCE = WEFT_REDUCE,
    COLL_GATHER = WEFT_GATHER,
    COLL_SCATTER = WEFT_SCATTER,
    COLL_ALL_TO_ALL_V = NUM_COLLECTIVES, /* the same algorithms as WEFT_ALL_TO_ALL */
    COLL_GROUP,                          /* the same, by sends and receives in a group */
    COLL_NUM_OPERATIONS
};

enum coll_values {
    COLL_VALUES_FINITE,
    COLL_VALUES_CANCELLING, /* magnitudes so far apart that every other order of a sum shows */
    COLL_VALUES_SPECIAL,    /* zeros, subnormals, infinities, huge values, NaNs */
    COLL_VALUES_HOSTILE, /* what packets are marked with, in all bytes of a row; of any alignment */
    COLL_VALUES_HOSTILE_EVERYWHERE, /* the same on all ranks, so that some reductions give it too */
    COLL_NUM_VALUES
};

enum coll_form { COLL_OUT_OF_PLACE, COLL_IN_PLACE };

enum coll_place {
    COLL_IN_HEAP,
    COLL_ELSEWHERE,
    COLL_PLACE_DIFFERS, /* by rank */
    COLL_NUM_PLACES
};

enum coll_alignment {
    COLL_ALIGNED,
    COLL_MISALIGNED, /* by 1 to 15 bytes, the same on all ranks */
    COLL_ALIGNMENT_DIFFERS,
    COLL_NUM_ALIGNMENTS
};

/* Of calls that can have one; ignored by others. */
enum coll_factor { COLL_NO_FACTOR, COLL_FACTOR_GIVEN, COLL_FACTOR_IN_MEMORY, COLL_NUM_FACTORS };

/* Ranks over several nodes are some of a world of num_nodes nodes of num_local ranks each. */
struct coll_nodes {
    int32_t num_nodes; /* 0: all ranks are on one node, and the rest is 0, too */
    int32_t num_local;
    int32_t first; /* of the world: the others follow */
    enum coll_order {
        COLL_NODE_AFTER_NODE,
        COLL_NODES_IN_TURN /* all ranks of the world */
    } order;
};

struct coll_case {
    uint64_t seed;
    int32_t num_ranks;
    struct coll_nodes nodes;
    enum coll_operation operation;
    weft_dtype dtype;
    weft_reduce_op op; /* of reductions */
    uint64_t count;    /* of COLL_ALL_TO_ALL_V and COLL_GROUP: the most from one rank to another */
    int32_t root;      /* of operations that have one */
    enum coll_factor factor;
    enum coll_values values;
    enum coll_form form; /* ignored by operations without an in-place form */
    enum coll_place send_place, recv_place;
    enum coll_alignment send_alignment, recv_alignment;
    enum element_order order; /* of reductions */
};

/* Values, factor, form, places, alignments and root at random. */
struct coll_case coll_case_random(uint64_t seed, int32_t num_ranks, enum coll_operation operation,
                                  weft_dtype dtype, weft_reduce_op op, uint64_t count);

/* Nodes are numbered by their first ranks. */
int32_t coll_node_of(const struct coll_nodes *nodes, int32_t rank);

const char *coll_operation_name(enum coll_operation operation);
weft_collective coll_collective(enum coll_operation operation);
int coll_is_in_place(const struct coll_case *spec);
/* The bytes by which the algorithm of the operation is chosen. */
uint64_t coll_row_bytes(const struct coll_case *spec);
void coll_describe(const struct coll_case *spec, char *text, size_t text_bytes);

enum ep_place coll_place_of(const struct coll_case *spec, enum coll_place place, int32_t rank);
uint64_t coll_misalign_bytes(const struct coll_case *spec, enum coll_alignment alignment,
                             int32_t rank, uint64_t salt);

enum { COLL_CASE_MAX_RANKS = 72 };

/* Whether it has a factor, and is a sum that can have one. */
int coll_is_premultiplied(const struct coll_case *spec);
/* What a rank multiplies by. */
float coll_factor_of(const struct coll_case *spec, int32_t rank);

/* Where the rows of an array lie; element offsets. */
struct coll_rows {
    int32_t num_rows;
    uint64_t counts[COLL_CASE_MAX_RANKS];
    uint64_t offsets[COLL_CASE_MAX_RANKS];
    uint64_t total; /* elements, with the gaps between rows */
};

/* The rows that `rank` gives and gets: none in an array that is the root's. Only uneven ones have
 * gaps. */
struct coll_rows coll_rows_of(const struct coll_case *spec, enum collective_array array,
                              int32_t rank);

/* Elements first .. first + count - 1 of the result's row `row`: `rows` are those of all ranks,
 * products if there is a factor. It changes them. */
void coll_reduce(const struct coll_case *spec, int32_t row, const void **rows, uint64_t count,
                 void *out);

/* Contents of row `row` of what the rank gives, and of what it must get. */
void coll_input_row(const struct coll_case *spec, int32_t rank, int32_t row, uint64_t count,
                    void *out);
void coll_expected_row(const struct coll_case *spec, int32_t rank, int32_t row, uint64_t count,
                       void *out);
