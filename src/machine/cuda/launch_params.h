/* SPDX-License-Identifier: MIT */
/* What host and programs share on the cuda machine. Read by C and by CUDA C++. */
#ifndef WEFT_MACHINE_CUDA_LAUNCH_PARAMS_H
#define WEFT_MACHINE_CUDA_LAUNCH_PARAMS_H

#include "machine/machine.h" /* struct weft_failure */

/* Of one communicator, in pinned memory of the host: waits look at it now and then. */
struct weft__cuda_board {
    uint32_t comm_has_failed; /* written by the host */
    /* Written by the first warp that fails; the failure, too, before it is told. */
    uint32_t failure_is_told;
    uint32_t failed_program; /* program_idx of its launch */
    struct weft_failure failure;
    uint8_t rank_has_left[]; /* [num_ranks], written by the host */
};

/* The first parameter of every kernel; the program's arguments are the second. */
struct weft__cuda_launch {
    uint64_t timeout_ns;
    struct weft__cuda_board *board; /* as the device sees it */
    uint32_t *failure_is_taken;     /* in device memory: who fails first tells why */
    uint32_t program_idx;           /* for the board */
    uint32_t copy_slot_bytes;       /* shared memory of each warp for bulk copies; 0: none */
};

#endif
