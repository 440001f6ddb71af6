/* SPDX-License-Identifier: MIT */
/* Input and output of collectives on a GPU, and whether the output is right. */
#pragma once

#include <cuda_runtime_api.h>

#include "workload/collective.h"

struct collective_memory {
    /* Set before collective_memory_init. */
    weft_comm *comm; /* of the ranks */
    cudaStream_t stream;
    void *send, *recv;  /* [max_bytes] of the GPU; the caller frees them */
    uint64_t max_bytes; /* of all operations */

    char *received, *expected; /* [max_bytes] of the host */
};

/* Fills send; for all operations of this source. Destroy also after a failure. */
int collective_memory_init(struct collective_memory *memory, const struct element_source *source);
void collective_memory_destroy(struct collective_memory *memory);

/* The expected results of the next operations. */
void collective_memory_expect(struct collective_memory *memory,
                              const struct collective *collective);

/* Enqueues the destruction of earlier results. */
int collective_memory_wipe(struct collective_memory *memory, const struct collective *collective);
/* Collective, behind the operation, when the stream has been waited for: elements that are wrong,
 * of all ranks. */
int collective_memory_check(struct collective_memory *memory, const struct collective *collective,
                            uint64_t *num_wrong);
