/* SPDX-License-Identifier: MIT */
/* Which algorithm is used up to which size, as `weft tune` has measured it: a text file with a row
 * per line,
 *
 *     machine ranks collective max_bytes algorithm blocks warps
 *
 * of which a communicator uses those of its machine and number of ranks, in their order. max_bytes
 * are those of weft_coll_algorithm, with K, M or G for powers of 1024, or inf; 0 blocks or warps
 * are the machine's choice; # begins a comment.
 *
 * The library has such tables of its own, shipped (tables/), for GPUs and numbers of ranks on which
 * it was measured. Their rows come behind those of the file. */
#pragma once

#include <stdint.h>

#include "weft.h"

enum weft__tuning_source { WEFT__TUNING_FILE, WEFT__TUNING_SHIPPED };

struct weft__tuning_row {
    uint64_t max_bytes; /* UINT64_MAX: any */
    int32_t source;     /* enum weft__tuning_source */
    int32_t line;       /* from 1 */
    int32_t collective;
    int32_t algorithm;
    int32_t num_blocks;
    int32_t num_warps;
};

enum { WEFT__TUNING_MAX_ROWS = 128, WEFT__TUNING_NAME_BYTES = 128 };

struct weft__tuning {
    int32_t num_rows;
    struct weft__tuning_row rows[2 * WEFT__TUNING_MAX_ROWS]; /* so many of each source */
    char path[WEFT__TUNING_NAME_BYTES];                      /* of the file, or its beginning */
};

/* The machine and the number of ranks that rows are wanted for. */
struct weft__tuning_key {
    const char *machine;
    int32_t num_ranks;
};

/* All rows are checked, also those that are not wanted. Errors name file and line. */
weft_result weft__tuning_read(const char *path, const struct weft__tuning_key *key,
                              struct weft__tuning *tuning);
/* Adds the rows that this library ships for ranks that all have a device of that name; "": none. */
weft_result weft__tuning_add_shipped(const char *device, const struct weft__tuning_key *key,
                                     struct weft__tuning *tuning);

/* Made of tables/ when the library is built. */
struct weft__shipped_table {
    const char *device; /* as weft_device_query names it */
    const char *name;   /* of the file */
    const char *text;
};
extern const struct weft__shipped_table weft__shipped_tables[]; /* the last has no device */
