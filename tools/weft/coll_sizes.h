/* SPDX-License-Identifier: MIT */
/* Ranges of sizes: 1K:64M:x2, 0:4K:+256, 8M. */
#ifndef WEFT_TOOL_COLL_SIZES_H
#define WEFT_TOOL_COLL_SIZES_H

#include <stdint.h>

/* In bytes. min, and what follows it up to max: each size is factor times the last plus increment. */
struct coll_sizes {
    uint64_t min, max;
    uint64_t factor;
    uint64_t increment;
};

/* 0, or -1 if text is none of: SIZE, MIN:MAX:xFACTOR, MIN:MAX:+STEP. */
int coll_sizes_read(struct coll_sizes *sizes, const char *text);

/* Moves *bytes to the size behind it: 1, or 0 behind the last. */
int coll_sizes_next(const struct coll_sizes *sizes, uint64_t *bytes);

#endif
