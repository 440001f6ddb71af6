/* SPDX-License-Identifier: MIT */
/* What the waits of the cuda machine need of a GPU, as a test plays it. */
#pragma once

#define WP_WARP_SIZE 1
#define WP_FN        static inline

#include "machine/cuda/launch_params.h"

struct wp_warp {
    const struct weft__cuda_launch *launch;
    uint32_t has_acquired;
};

uint64_t wp_now_ns(const struct wp_warp *warp);
uint64_t weft__cuda_load_acquire(const uint64_t *word);
uint32_t weft__cuda_load_acquire_u32(const uint32_t *word);
enum wp_status wp_fail(struct wp_warp *warp, const struct wp_failure *failure);

#include "machine/cuda/cuda_waits.h"
