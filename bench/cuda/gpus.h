/* SPDX-License-Identifier: MIT */
/* All GPUs of the host in one process, and what they take for something that all do at once. */
#pragma once

#include "device_memory.h"
#include "kernels.h"
#include "workload/figures.h"

struct gpu {
    cudaStream_t stream;
    cudaEvent_t start, stop;
    uint32_t *arrivals;   /* see struct gate */
    uint32_t *num_faults; /* waits in kernels that gave up */
};

struct gpus {
    int32_t num_gpus;
    int32_t num_sms; /* of each */
    int has_bulk;
    struct gpu gpu[MAX_RANKS];
    struct device_memory memory;
    uint32_t *released; /* see struct gate */
    uint32_t round;
};

/* num_gpus 0: all there are, at most MAX_RANKS. Each must reach the memory of each. */
int gpus_init(struct gpus *gpus, int32_t num_gpus);
void gpus_destroy(struct gpus *gpus);

/* Enqueues what one GPU does, on the current device. */
typedef cudaError_t gpu_work(void *argument, int32_t gpu, cudaStream_t stream);

/* Has all do it once, and waits for all. */
int gpus_run(struct gpus *gpus, gpu_work *work, void *argument);

struct timing {
    gpu_work *work;
    void *argument;
    int32_t num_per_iter; /* more than 1: so many in a row, in a graph */
    int32_t num_iters, num_warmups;
};

/* Microseconds per work of the slowest GPU. */
int gpus_time(struct gpus *gpus, const struct timing *timing, struct figures *us);
