/* SPDX-License-Identifier: MIT */
/* A launch of the cpu machine: what its scheduler and the ends of its waits share. */
#pragma once

#include "machine/cpu/cpu_launch.h"
#include "machine/cpu/net_driver.h"
#include "machine/cpu/polling.h"
#include "machine/fiber.h"

struct weft__cpu_block {
    uint32_t num_arrived;
    uint64_t num_syncs; /* waited for by the warps of the block that arrived early */
    _Alignas(16) char shared[WP_BLOCK_SHARED_BYTES];
};

struct weft__cpu_fiber {
    struct wp_warp warp;
    struct weft__fiber *fiber;
    enum { FIBER_READY, FIBER_WAITING, FIBER_GIVES_UP, FIBER_DONE } state;
    /* While waiting: goes on when *word >= at_least. Nobody rings for a word of 32 bits. */
    const void *word;
    enum weft__cpu_width { WEFT__CPU_U64, WEFT__CPU_U32 } width;
    uint64_t at_least;
    const struct wp_wait_site *site; /* NULL for a block sync */
    enum wp_status wait_status;      /* of the last wait */
    int64_t since_ns; /* it waits, where its site allows absence, or waited before in vain */
    int64_t idle_ns;  /* since when it has waited in vain; 0: it found its word, or does not wait */
};

struct weft__cpu_runner {
    struct weft__cpu_fiber **fibers;
    struct weft__cpu_block *blocks;
    int32_t num_fibers;
    int32_t num_blocks;
    enum weft__cores cores;
    struct weft__polling polling;
};

struct weft__cpu_launch {
    const struct weft__launch *launch;
    struct weft__cpu_runner *runner;
    char *const *heap_bases;
    struct weft__net_driver net;
    int32_t num_warp_fibers;
    int32_t num_live;
    struct wp_failure failure; /* of the first warp that failed */
    /* Told to others who ask, while the thread sleeps; one for each rank. */
    struct weft__wait_entry waits[WEFT__MAX_LISTED_WAITS];
    int32_t num_told;
    struct weft__record record; /* its times, if the launch has a record */
    int64_t came_before_ns;     /* to an operation of this exchange */
};

/* The kind of word for which a fiber waits. */
static inline uint64_t weft__cpu_seen(const struct weft__cpu_fiber *fiber)
{
    return fiber->width == WEFT__CPU_U32
               ? __atomic_load_n((const uint32_t *)fiber->word, __ATOMIC_ACQUIRE)
               : __atomic_load_n((const uint64_t *)fiber->word, __ATOMIC_ACQUIRE);
}

static inline int weft__cpu_can_go_on(const struct weft__cpu_fiber *fiber)
{
    if (fiber->state == FIBER_READY)
        return 1;
    return fiber->state == FIBER_WAITING && weft__cpu_seen(fiber) >= fiber->at_least;
}

static inline int weft__cpu_any_can_go_on(const struct weft__cpu_launch *run)
{
    for (int32_t i = 0; i < run->num_warp_fibers; i++) {
        if (weft__cpu_can_go_on(run->runner->fibers[i]))
            return 1;
    }
    return 0;
}

static inline int weft__cpu_waits_for_rank(const struct weft__cpu_fiber *fiber)
{
    return fiber->state == FIBER_WAITING && fiber->site != NULL;
}

/* cpu_record.c: what a launch that has a record tells of itself; others do not call it. */
void weft__cpu_record_start(struct weft__cpu_launch *run);
/* No fiber can go on since since_ns. */
void weft__cpu_record_idle(struct weft__cpu_launch *run, int64_t since_ns);
/* One can, or the launch has failed. */
void weft__cpu_record_wait(struct weft__cpu_launch *run, int64_t since_ns);
void weft__cpu_record_end(struct weft__cpu_launch *run);

/* ends.c. */
/* When the first wait must end, if no fiber has been able to go on since then. */
int64_t weft__cpu_first_deadline(const struct weft__cpu_launch *run, int64_t since_ns);
/* Whether a wait has ended: then a fiber has given up, or the launch has failed. */
int weft__cpu_end_one_wait(struct weft__cpu_launch *run, int64_t since_ns);
