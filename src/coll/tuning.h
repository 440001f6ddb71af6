/* SPDX-License-Identifier: MIT */
/* Which algorithm is used up to which size, as `weft tune` has measured it: a text file with a row per line,
 *
 *     machine ranks collective max_bytes algorithm blocks warps
 *
 * of which a communicator uses those of its machine and number of ranks, in their order. max_bytes are those
 * of weft_coll_algorithm, with K, M or G for powers of 1024, or inf; 0 blocks or warps are the machine's
 * choice; # begins a comment. */
#ifndef WEFT_COLL_TUNING_H
#define WEFT_COLL_TUNING_H

#include <stdint.h>

#include "weft.h"

struct weft__tuning_row {
    uint64_t max_bytes; /* UINT64_MAX: any */
    int32_t collective;
    int32_t algorithm;
    int32_t num_blocks;
    int32_t num_warps;
};

enum { WEFT__TUNING_MAX_ROWS = 128 };

struct weft__tuning {
    int32_t num_rows;
    struct weft__tuning_row rows[WEFT__TUNING_MAX_ROWS];
};

/* The machine and the number of ranks that rows are wanted for. */
struct weft__tuning_key {
    const char *machine;
    int32_t num_ranks;
};

/* All rows are checked, also those that are not wanted. Errors name file and line. */
weft_result weft__tuning_read(const char *path, const struct weft__tuning_key *key,
                              struct weft__tuning *tuning);

#endif
