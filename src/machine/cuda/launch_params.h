/* SPDX-License-Identifier: MIT */
/* Shared by host and programs on the cuda machine. Read by C and by CUDA C++. */
#pragma once

#include "machine/machine.h" /* struct wp_failure */
#include "record/record_slots.h"

#ifdef __CUDACC__
#define WEFT__CUDA_BOTH __host__ __device__
#else
#define WEFT__CUDA_BOTH
#endif

/* Kernels have 128 registers for each thread of so many warps. */
enum { WEFT__CUDA_MAX_WARPS = 16 };
/* Shared memory: of a block's own, at most; and of each warp, beside its slot for bulk copies. */
enum {
    WEFT__CUDA_BLOCK_BYTES = WP_BLOCK_SHARED_BYTES + 1024,
    WEFT__CUDA_WARP_BYTES =
        ((WP_WARP_POINTERS * 8 + 15) / 16 * 16 + WP_WARP_SHARED_BYTES + 127) / 128 * 128
};

enum {
    WEFT__CUDA_CALL_BIT = 16
}; /* in a program_idx: the call that launched the program, above its number */

/* Where waits that take long say whom they wait for. */
enum { WEFT__CUDA_NUM_LONG_WAITS = 16 };
struct weft__cuda_long_wait {
    uint64_t wait;      /* the last one: weft__cuda_pack_wait */
    uint32_t num_looks; /* changes as long as there is one */
    uint32_t unused;
};

/* Each communicator has one in pinned memory of the host: waits look at it now and then. */
struct weft__cuda_board {
    /* Written by waits, each by those for every so manyth rank. */
    struct weft__cuda_long_wait long_waits[WEFT__CUDA_NUM_LONG_WAITS];
    uint32_t comm_has_failed; /* written by the host */
    /* Written by the first warp that fails; the failure, too, before it is told. */
    uint32_t failure_is_told;
    uint32_t failed_program; /* program_idx of its launch */
    uint64_t failed_record;  /* its record_id */
    struct wp_failure failure;
    uint64_t clock_ns;      /* the device's, when it was read */
    uint8_t rank_is_gone[]; /* [num_ranks], written by the host */
};

/* Rank and exchange of a wait in one word, so that they belong together. Exchanges are at heap
 * offsets of multiples of 256; of another place the offset is kept. */
static inline WEFT__CUDA_BOTH uint64_t weft__cuda_pack_wait(int32_t rank, uint64_t exchange)
{
    const uint64_t offset = exchange & ((UINT64_C(1) << WP_PLACE_OFFSET_BITS) - 1);
    return (uint64_t)rank << 40 | offset / 256;
}
static inline WEFT__CUDA_BOTH int32_t weft__cuda_wait_rank(uint64_t wait)
{
    return (int32_t)(wait >> 40);
}
static inline WEFT__CUDA_BOTH uint64_t weft__cuda_wait_exchange(uint64_t wait)
{
    return (wait & ((UINT64_C(1) << 40) - 1)) * 256;
}

/* The queue of the rank's progress thread (net/work_queue.h), in pinned memory but for its first
 * word; no slots: there is no network. */
struct weft__cuda_work_queue {
    struct wp_access *slots;
    unsigned long long *num_reserved; /* in device memory */
    const uint64_t *num_taken, *num_completed;
    const uint32_t *comm_has_failed;
    uint32_t num_slots;
};

/* Where a launch writes its record, in memory of the device; all zero: nowhere. */
struct weft__cuda_record {
    struct weft__record_slot *slot;
    struct weft__call_runs *runs; /* of its call, if it is in a graph; else NULL */
    uint64_t record_id, operation, num_bytes;
};

/* The first parameter of every kernel; the program's arguments are the second. */
struct weft__cuda_launch {
    uint64_t timeout_ns;
    struct weft__cuda_board *board; /* as the device sees it */
    uint32_t *failure_is_taken;     /* in device memory: who fails first tells why */
    uint32_t program_idx;           /* for the board, with the call from WEFT__CUDA_CALL_BIT on */
    uint32_t copy_slot_bytes;       /* shared memory of each warp for bulk copies; 0: none */
    struct weft__cuda_work_queue work_queue;
    struct weft__cuda_record record;
};
