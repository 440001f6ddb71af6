/* SPDX-License-Identifier: MIT */
/* The sizes that an operation is measured at, and options that tell them. */
#pragma once

#include <argp.h>
#include <stdint.h>

/* In bytes, such as 1K:64M:x2, 0:4K:+256, 8M: min, and what follows it up to max: each size is factor times the last plus
 * increment. */
struct coll_sizes {
    uint64_t min, max;
    uint64_t factor;
    uint64_t increment;
};

/* The same from nccl-tests' options: with a factor of 2 or more, step does not count. */
struct coll_size_range {
    int64_t min, max, step, factor;
};

/* Moves *bytes to the size behind it: 1, or 0 behind the last. */
int coll_sizes_next(const struct coll_sizes *sizes, uint64_t *bytes);

/* The argument of --bytes. */
void coll_parse_sizes(struct coll_sizes *sizes, const char *text, struct argp_state *state);
/* Those of --minbytes and its like. */
void coll_parse_size(const char *option, const char *text, int64_t *bytes,
                     struct argp_state *state);
void coll_sizes_of_range(const struct coll_size_range *range, struct coll_sizes *sizes,
                         struct argp_state *state);
