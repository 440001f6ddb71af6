/* SPDX-License-Identifier: MIT */
/* Compares what a low-latency dispatch has brought to a rank with the oracle, wherever it lies. */
#pragma once

#include "workload/low_latency.h"

/* Memory of the machine. Pointers may be NULL where the dispatch was not asked for it. */
struct ll_received {
    const int32_t *rank_counts, *expert_counts, *src_tokens;
    const int64_t *ranges;
    /* By expert, by ll_oracle_place; columns are so long, 0: scales lie by rows. */
    const void *rows, *scales;
    uint64_t column_bytes;
    weft_ll_slots slots; /* by rank, and which half */
    int32_t half;
};

/* By rank: where the row came to, and its answer may lie. */
char *ll_slot_of(const struct ll_received *received, const struct ll_row *row);

struct ll_checker {
    struct ll_oracle *oracle;
    struct ll_received received;
    int32_t num_local; /* experts of this rank */
    /* Bits of ranks that are missing since their rows have been counted; these are anything. */
    uint64_t half_there;
    weft_result (*read)(void *of, void *dst, const void *src, size_t num_bytes);
    /* Checks each count and each row; if one is wrong, what is wrong. */
    void (*tell)(void *of, int is_right, const char *text);
    void *of; /* for both */
};

/* Both return what `read` does. */
weft_result ll_check_counts(const struct ll_checker *checker);
weft_result ll_check_row(const struct ll_checker *checker, const struct ll_row *row);
