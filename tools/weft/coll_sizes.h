/* SPDX-License-Identifier: MIT */
/* The sizes at which an operation is measured, and their options. */
#pragma once

#include <argp.h>
#include <stdint.h>

/* In bytes, such as 1K:64M:x2, 0:4K:+256 or 8M. Sizes run from min to max; each is factor times the
 * last one, plus increment. */
struct coll_sizes {
    uint64_t min, max;
    uint64_t factor;
    uint64_t increment;
};

/* Sizes by nccl-tests' options. With a factor of 2 or more, step does not count. */
struct coll_size_range {
    int64_t min, max, step, factor;
};

/* Moves *bytes to the next size. Returns 1, or 0 behind the last one. */
int coll_sizes_next(const struct coll_sizes *sizes, uint64_t *bytes);

/* Reads the argument of --bytes. */
void coll_parse_sizes(struct coll_sizes *sizes, const char *text, struct argp_state *state);
/* Reads one size, as that of --minbytes. */
void coll_parse_size(const char *option, const char *text, int64_t *bytes,
                     struct argp_state *state);
void coll_sizes_of_range(const struct coll_size_range *range, struct coll_sizes *sizes,
                         struct argp_state *state);
