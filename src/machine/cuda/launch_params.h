/* SPDX-License-Identifier: MIT */
/* What host and programs share on the cuda machine. Read by C and by CUDA C++. */
#ifndef WEFT_MACHINE_CUDA_LAUNCH_PARAMS_H
#define WEFT_MACHINE_CUDA_LAUNCH_PARAMS_H

#include "machine/machine.h" /* struct weft_failure */

#ifdef __CUDACC__
#define WEFT__CUDA_BOTH __host__ __device__
#else
#define WEFT__CUDA_BOTH
#endif

/* Kernels have 128 registers for each thread of so many warps. */
enum { WEFT__CUDA_MAX_WARPS = 16 };
/* Shared memory: of a block's own, at most; and of each warp, beside its slot for bulk copies. */
enum {
    WEFT__CUDA_BLOCK_BYTES = WEFT_BLOCK_SHARED_BYTES + 1024,
    WEFT__CUDA_WARP_BYTES = (WEFT_WARP_POINTERS * 8 + 127) / 128 * 128
};

/* Of waits that take long. */
enum { WEFT__CUDA_NUM_LONG_WAITS = 16 };
struct weft__cuda_long_wait {
    uint64_t wait;      /* the last one: weft__cuda_pack_wait */
    uint32_t num_looks; /* changes as long as there is one */
    uint32_t unused;
};

/* Of one communicator, in pinned memory of the host: waits look at it now and then. */
struct weft__cuda_board {
    /* Written by waits, each by those for every so manyth rank. */
    struct weft__cuda_long_wait long_waits[WEFT__CUDA_NUM_LONG_WAITS];
    uint32_t comm_has_failed; /* written by the host */
    /* Written by the first warp that fails; the failure, too, before it is told. */
    uint32_t failure_is_told;
    uint32_t failed_program; /* program_idx of its launch */
    struct weft_failure failure;
    uint8_t rank_has_left[]; /* [num_ranks], written by the host */
};

/* Rank and exchange of a wait in one word, so that they belong together. Exchanges are at heap offsets
 * of multiples of 256. */
static inline WEFT__CUDA_BOTH uint64_t weft__cuda_pack_wait(int32_t rank, uint64_t exchange)
{
    return (uint64_t)rank << 40 | exchange / 256;
}
static inline WEFT__CUDA_BOTH int32_t weft__cuda_wait_rank(uint64_t wait)
{
    return (int32_t)(wait >> 40);
}
static inline WEFT__CUDA_BOTH uint64_t weft__cuda_wait_exchange(uint64_t wait)
{
    return (wait & ((UINT64_C(1) << 40) - 1)) * 256;
}

/* A slot of the queue of the rank's progress thread (net/work_queue.h, which is C alone). */
struct weft__cuda_work {
    uint64_t ready; /* number + 1, once the rest is written */
    uint64_t source, target;
    uint64_t num_bytes;
    uint64_t word, add;
    uint32_t operation; /* enum weft_access_operation */
    int32_t peer;
    uint32_t loss;
    uint32_t unused; /* slots are cache lines */
};

/* enum weft__work_loss */
enum { WEFT__CUDA_MAY_BE_LOST, WEFT__CUDA_MUST_NOT_BE_LOST };

/* That queue, in pinned memory but for its first word; no slots: there is no network. */
struct weft__cuda_work_queue {
    struct weft__cuda_work *slots;
    unsigned long long *num_reserved; /* in device memory */
    const uint64_t *num_taken, *num_completed;
    const uint32_t *comm_has_failed;
    uint64_t memory_place, heap_place; /* where the regions of puts and accesses begin */
    uint32_t num_slots;
};

/* The first parameter of every kernel; the program's arguments are the second. */
struct weft__cuda_launch {
    uint64_t timeout_ns;
    struct weft__cuda_board *board; /* as the device sees it */
    uint32_t *failure_is_taken;     /* in device memory: who fails first tells why */
    uint32_t program_idx;           /* for the board */
    uint32_t copy_slot_bytes;       /* shared memory of each warp for bulk copies; 0: none */
    struct weft__cuda_work_queue work_queue;
};

#endif
