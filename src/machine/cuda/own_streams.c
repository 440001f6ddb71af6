/* SPDX-License-Identifier: MIT */
#include "machine/cuda/own_streams.h"

#include <pthread.h>
#include <stdint.h>

#include "machine/cuda/kept.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

void weft__cuda_first_work_begin(void)
{
    pthread_mutex_lock(&mutex);
}

void weft__cuda_first_work_end(void)
{
    pthread_mutex_unlock(&mutex);
}

/* Enqueues work that waits for no kernel, and that no kernel waits for. */
static CUresult work_in(CUstream stream)
{
    CUdeviceptr byte;
    CUresult result = weft__cu.mem_alloc_async(&byte, 1, stream);
    if (result != CUDA_SUCCESS)
        return result;
    result = weft__cu.memset_d8_async(byte, 0, 1, stream);
    const CUresult freed = weft__cu.mem_free_async(byte, stream);
    return result == CUDA_SUCCESS ? freed : result;
}

/* The work goes into no graph, whatever other threads capture. */
static CUresult do_first_work(CUstream stream)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    (void)weft__cu.thread_exchange_stream_capture_mode(&mode);
    weft__cuda_first_work_begin();
    const CUresult result = work_in(stream);
    weft__cuda_first_work_end();
    (void)weft__cu.thread_exchange_stream_capture_mode(&mode);
    return result;
}

/* Makes a stream that does not wait for the legacy stream. */
static weft_result make(int priority, CUstream *stream)
{
    CUstream made;
    WEFT__CUDA_TRY(weft__cu.stream_create_with_priority(&made, CU_STREAM_NON_BLOCKING, priority),
                   "cannot create a CUDA stream");
    const CUresult result = do_first_work(made);
    if (result != CUDA_SUCCESS) {
        (void)weft__cu.stream_destroy(made);
        return weft__cuda_error(result, "cannot use a CUDA stream");
    }
    *stream = made;
    return WEFT_OK;
}

static void give_back(void *stream, uint64_t bytes)
{
    (void)bytes;
    (void)weft__cu.stream_destroy(stream);
}

weft_result weft__cuda_take_stream(CUcontext context, CUstream *stream)
{
    enum { DEFAULT_PRIORITY = 0 };
    *stream = weft__cuda_take_kept(give_back, context, 0, 0);
    return *stream != NULL ? WEFT_OK : make(DEFAULT_PRIORITY, stream);
}

void weft__cuda_give_stream(CUcontext context, CUstream stream)
{
    weft__cuda_keep(give_back, context, stream, 0);
}

weft_result weft__cuda_make_host_stream(CUstream *stream)
{
    int least = 0, greatest = 0;
    WEFT__CUDA_TRY(weft__cu.ctx_get_stream_priority_range(&least, &greatest),
                   "cannot tell the priorities of streams");
    return make(greatest, stream);
}
