/* SPDX-License-Identifier: MIT */
/* Puts to ranks of other nodes on the cuda machine; part of primitives.h. What is sent is in pinned memory of the
 * host; the rank's progress thread takes the order for it from a queue there. */
#ifndef WEFT_MACHINE_CUDA_REMOTE_H
#define WEFT_MACHINE_CUDA_REMOTE_H

WEFT_FN void weft_row_sync(struct weft_warp *warp)
{
    weft__cuda_complete_stores(warp);
    __syncwarp();
}

/* Lane 0: waits until the slot of the number is free. The thread takes orders as long as the communicator lives,
 * and its launches end before it. */
WEFT_FN struct weft__cuda_work *
weft__cuda_await_work_slot(const struct weft__cuda_work_queue *queue, uint64_t number)
{
    while (number - weft__cuda_load_acquire(queue->num_taken) >= queue->num_slots)
        __nanosleep(500);
    return &queue->slots[number % queue->num_slots];
}

WEFT_FN void weft_remote_put(struct weft_warp *warp, const struct weft_remote_put *put)
{
    const struct weft__cuda_work_queue *queue = &warp->launch->work_queue;
    weft__cuda_complete_stores(warp);
    /* What each lane has done, before lane 0's release. */
    asm volatile("fence.acq_rel.sys;" : : : "memory");
    __syncwarp();
    if (weft_lane_idx(warp) == 0) {
        const uint64_t number = atomicAdd(queue->num_reserved, 1ull);
        struct weft__cuda_work *work = weft__cuda_await_work_slot(queue, number);
        work->source = put->source;
        work->target = put->target;
        work->num_bytes = put->num_bytes;
        work->word = put->word;
        work->add = put->add;
        work->operation = queue->put_signal;
        work->peer = put->rank;
        /* Pairs with the thread's acquire. */
        asm volatile("st.release.sys.global.u64 [%0], %1;"
                     :
                     : "l"(&work->ready), "l"(number + 1)
                     : "memory");
    }
    __syncwarp();
}

#endif
