/* SPDX-License-Identifier: MIT */
#include "gpus.h"

#include <stdlib.h>

#include "try.h"

static int enable_peers(int32_t num_gpus, int32_t gpu)
{
    for (int32_t peer = 0; peer < num_gpus; peer++) {
        if (peer == gpu)
            continue;
        int can_access;
        CUDA_TRY(cudaDeviceCanAccessPeer(&can_access, gpu, peer));
        if (!can_access) {
            fprintf(stderr, "GPU %d cannot reach the memory of GPU %d\n", gpu, peer);
            return -1;
        }
        CUDA_TRY(cudaDeviceEnablePeerAccess(peer, 0));
    }
    return 0;
}

static int gpu_init(struct gpus *gpus, int32_t index)
{
    struct gpu *gpu = &gpus->gpu[index];
    CUDA_TRY(cudaSetDevice(index));
    TRY(enable_peers(gpus->num_gpus, index));
    CUDA_TRY(cudaStreamCreateWithFlags(&gpu->stream, cudaStreamNonBlocking));
    CUDA_TRY(cudaEventCreate(&gpu->start));
    CUDA_TRY(cudaEventCreate(&gpu->stop));
    TRY(device_alloc(&gpus->memory, MAX_RANKS * sizeof(uint32_t), (void **)&gpu->arrivals));
    TRY(device_alloc(&gpus->memory, sizeof(uint32_t), (void **)&gpu->num_faults));
    int num_sms;
    CUDA_TRY(cudaDeviceGetAttribute(&num_sms, cudaDevAttrMultiProcessorCount, index));
    if (index == 0 || num_sms < gpus->num_sms)
        gpus->num_sms = num_sms;
    gpus->has_bulk = (index == 0 || gpus->has_bulk) && bulk_is_there();
    return 0;
}

int gpus_init(struct gpus *gpus, int32_t num_gpus)
{
    int num_there;
    CUDA_TRY(cudaGetDeviceCount(&num_there));
    if (num_there > MAX_RANKS)
        num_there = MAX_RANKS;
    if (num_gpus > num_there) {
        fprintf(stderr, "--gpus %d: there are %d\n", num_gpus, num_there);
        return -1;
    }
    gpus->num_gpus = num_gpus == 0 ? num_there : num_gpus;
    CUDA_TRY(cudaHostAlloc((void **)&gpus->released, sizeof(*gpus->released),
                           cudaHostAllocPortable | cudaHostAllocMapped));
    *gpus->released = 0;
    for (int32_t gpu = 0; gpu < gpus->num_gpus; gpu++)
        TRY(gpu_init(gpus, gpu));
    return 0;
}

void gpus_destroy(struct gpus *gpus)
{
    for (int32_t i = 0; i < gpus->num_gpus; i++) {
        struct gpu *gpu = &gpus->gpu[i];
        cudaSetDevice(i);
        if (gpu->stream != NULL)
            cudaStreamDestroy(gpu->stream);
        if (gpu->start != NULL)
            cudaEventDestroy(gpu->start);
        if (gpu->stop != NULL)
            cudaEventDestroy(gpu->stop);
    }
    device_free_all(&gpus->memory);
    if (gpus->released != NULL)
        cudaFreeHost(gpus->released);
}

static int wait_for_all(struct gpus *gpus)
{
    for (int32_t i = 0; i < gpus->num_gpus; i++) {
        uint32_t num_faults;
        CUDA_TRY(cudaSetDevice(i));
        CUDA_TRY(cudaStreamSynchronize(gpus->gpu[i].stream));
        CUDA_TRY(cudaMemcpy(&num_faults, gpus->gpu[i].num_faults, sizeof(num_faults),
                            cudaMemcpyDeviceToHost));
        if (num_faults != 0) {
            fprintf(stderr, "GPU %d: %u waits in kernels took longer than %d s\n", i, num_faults,
                    WAITED_S_MAX);
            return -1;
        }
    }
    return 0;
}

int gpus_run(struct gpus *gpus, gpu_work *work, void *argument)
{
    for (int32_t i = 0; i < gpus->num_gpus; i++) {
        CUDA_TRY(cudaSetDevice(i));
        CUDA_TRY(work(argument, i, gpus->gpu[i].stream));
    }
    return wait_for_all(gpus);
}

static int capture(const struct timing *timing, int32_t gpu, cudaStream_t stream,
                   cudaGraphExec_t *exec)
{
    cudaGraph_t graph;
    CUDA_TRY(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    for (int32_t i = 0; i < timing->num_per_iter; i++)
        CUDA_TRY(timing->work(timing->argument, gpu, stream));
    CUDA_TRY(cudaStreamEndCapture(stream, &graph));
    CUDA_TRY(cudaGraphInstantiate(exec, graph, 0));
    CUDA_TRY(cudaGraphDestroy(graph));
    return 0;
}

/* Everything of one round is enqueued on all GPUs before the round is released. */
static int run_round(struct gpus *gpus, const struct timing *timing, cudaGraphExec_t *execs)
{
    struct gate gate = {
        .num_ranks = gpus->num_gpus, .round = ++gpus->round, .released = gpus->released};
    for (int32_t i = 0; i < gpus->num_gpus; i++)
        gate.arrivals[i] = gpus->gpu[i].arrivals;
    for (int32_t i = 0; i < gpus->num_gpus; i++) {
        const struct gpu *gpu = &gpus->gpu[i];
        gate.rank = i;
        gate.num_faults = gpu->num_faults;
        CUDA_TRY(cudaSetDevice(i));
        CUDA_TRY(gate_wait(&gate, gpu->stream));
        CUDA_TRY(cudaEventRecord(gpu->start, gpu->stream));
        if (execs[i] != NULL)
            CUDA_TRY(cudaGraphLaunch(execs[i], gpu->stream));
        else
            CUDA_TRY(timing->work(timing->argument, i, gpu->stream));
        CUDA_TRY(cudaEventRecord(gpu->stop, gpu->stream));
    }
    /* Pairs with the acquire load in the gate. */
    __atomic_store_n(gpus->released, gpus->round, __ATOMIC_RELEASE);
    return wait_for_all(gpus);
}

static int slowest_us(const struct gpus *gpus, double *us)
{
    *us = 0;
    for (int32_t i = 0; i < gpus->num_gpus; i++) {
        float ms;
        CUDA_TRY(cudaEventElapsedTime(&ms, gpus->gpu[i].start, gpus->gpu[i].stop));
        *us = ms * 1e3 > *us ? ms * 1e3 : *us;
    }
    return 0;
}

static int time_rounds(struct gpus *gpus, const struct timing *timing, cudaGraphExec_t *execs,
                       double *samples)
{
    for (int32_t i = 0; i < gpus->num_gpus && timing->num_per_iter > 1; i++) {
        CUDA_TRY(cudaSetDevice(i));
        TRY(capture(timing, i, gpus->gpu[i].stream, &execs[i]));
    }
    for (int32_t i = -timing->num_warmups; i < timing->num_iters; i++) {
        double us;
        TRY(run_round(gpus, timing, execs));
        TRY(slowest_us(gpus, &us));
        if (i >= 0)
            samples[i] = us / timing->num_per_iter;
    }
    return 0;
}

int gpus_time(struct gpus *gpus, const struct timing *timing, struct figures *us)
{
    cudaGraphExec_t execs[MAX_RANKS] = {NULL};
    double *samples = malloc((size_t)timing->num_iters * sizeof(double));
    if (samples == NULL) {
        perror("malloc");
        return -1;
    }
    const int result = time_rounds(gpus, timing, execs, samples);
    if (result == 0)
        *us = figures_of(samples, (size_t)timing->num_iters);
    for (int32_t i = 0; i < gpus->num_gpus; i++) {
        if (execs[i] != NULL)
            cudaGraphExecDestroy(execs[i]);
    }
    free(samples);
    return result;
}
