/* SPDX-License-Identifier: MIT */
/* The primitives that machines have in common whose programs are C. Such a machine defines
 * WP_PROGRAM_SYMBOL(name): the symbol of a program. */
#pragma once

#include <stdint.h>
#include <string.h>

#define WP_FN        static inline
#define WP_CALLED_FN static inline

/* Defines program `name` over `struct wp_<name>_args`. */
#define WP_PROGRAM(name, warp, args)                                                               \
    static enum wp_status name##_body(struct wp_warp *warp, const struct wp_##name##_args *args);  \
    enum wp_status WP_PROGRAM_SYMBOL(name)(struct wp_warp * warp, const void *args);               \
    enum wp_status WP_PROGRAM_SYMBOL(name)(struct wp_warp * warp, const void *args)                \
    {                                                                                              \
        return name##_body(warp, (const struct wp_##name##_args *)args);                           \
    }                                                                                              \
    static enum wp_status name##_body(struct wp_warp *warp, const struct wp_##name##_args *args)

#define wp_block_idx(warp)  ((warp)->block_idx)
#define wp_num_blocks(warp) ((warp)->num_blocks)
#define wp_warp_idx(warp)   ((warp)->warp_idx)
#define wp_num_warps(warp)  ((warp)->num_warps)
#define wp_warp_join(warp)  ((void)(warp))
#define wp_popcount(ballot) __builtin_popcount(ballot)
#define wp_sqrt             __builtin_sqrtf
#define wp_ratio(n, d)      ((n) / (d))

#define WP_EACH_OWN(i, first, end, most) for (int32_t i = (first); i < (end); i++)

/* Launches of a stream run one after the other. */
#define wp_admit_next(warp) ((void)(warp))

/* Copies, since the word may be of whatever type. */
WP_FN uint64_t wp_load_now(const uint64_t *word)
{
    uint64_t value;
    memcpy(&value, word, sizeof value);
    return value;
}

WP_FN uint32_t wp_load_now_u32(const uint32_t *word)
{
    uint32_t value;
    memcpy(&value, word, sizeof value);
    return value;
}
