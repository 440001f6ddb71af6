/* SPDX-License-Identifier: MIT */
/* What the low-latency operations need on one rank for one batch of tokens, and the operations. */
#pragma once

#include "gpu_rank.h"
#include "row_tables.h"

enum ll_operation {
    LL_DISPATCH,
    LL_COMBINE,
    LL_COMBINE_KEEPING, /* the result stays, and can be combined once more */
    LL_RELEASE
};

/* What is measured is a sequence of these. */
struct ll_part {
    enum ll_operation operation;
    weft_ll_phases phases;
};
enum { LL_MOST_PARTS = 4 };

/* Rows that lie one behind the other. */
struct ll_run {
    int64_t first; /* place of the first */
    int32_t num_rows;
};

enum { LL_GROUP_ELEMENTS = 128 }; /* that have one scale */

struct ll_batch {
    /* Set before ll_batch_open. */
    const struct cuda_options *options;
    const struct gpu_rank *rank;
    const struct plan *plan;
    weft_ll_layout layout;
    weft_dtype narrow_dtype; /* of rows on their way; NONE: BF16, as they are */
    int32_t num_blocks;      /* 0: the library's choice */

    weft_ep *ep;
    weft_ll *ll;
    struct device_memory memory;
    struct row_tables tables;
    int32_t row_bytes;    /* in BF16 */
    int32_t narrow_bytes; /* of a row on its way, without its scales */
    int32_t scales_bytes; /* 0: it has none */
    int32_t num_runs;     /* of what comes here: one of each source, or of each local expert */
    struct ll_run *runs;  /* in memory of [R][max tokens] rows, or [local experts][capacity] */
    int64_t num_places;   /* rows in such memory */
    int64_t *topk_idx;
    float *topk_weights;
    char *rows, *scales;     /* by expert: where dispatch packs them */
    char *answers;           /* what combine sends */
    int32_t *counts;         /* of the runs, as dispatch gives them */
    struct pattern tokens;   /* what dispatch sends */
    struct pattern received; /* what came, without gaps: copied there, to be checked */
    struct pattern answered; /* the same of answers, before they are copied to their places */
    struct token_rows sums;
    uint32_t *num_wrong; /* on the GPU */
};

/* Collective. Close also after a failure. */
int ll_batch_open(struct ll_batch *batch);
void ll_batch_close(struct ll_batch *batch);

/* Enqueues the parts; for struct calls. */
struct ll_call {
    struct ll_batch *batch;
    int32_t num_parts;
    struct ll_part parts[LL_MOST_PARTS];
};
int ll_call_enqueue(void *call);

/* Destroys earlier results, those in weft's slots too. */
int ll_batch_prepare_check(struct ll_batch *batch);
/* Collective, behind operations: adds how many counts, and units of rows, are wrong on all
 * ranks. */
enum ll_checked { LL_CHECK_ROWS = 1, LL_CHECK_SUMS = 2 };
int ll_batch_check(struct ll_batch *batch, int checked, int64_t *num_wrong);
