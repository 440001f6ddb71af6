/* SPDX-License-Identifier: MIT */
/* Accesses to ranks of other nodes on the cuda machine; part of primitives.h. The rank's
 * progress thread takes them from a queue in pinned memory. */
#pragma once

WP_FN void wp_row_sync(struct wp_warp *warp)
{
    weft__cuda_complete_stores(warp);
    __syncwarp();
}

/* Lane 0. What cannot be posted is lost with the communicator. */
WP_FN uint64_t weft__cuda_post(struct wp_warp *warp, const struct wp_access *access)
{
    const uint64_t number = atomicAdd(warp->launch->work_queue.num_reserved, 1ull);
    const struct wp_wait_site site = {WP_PHASE_ACCESS, access->rank, number,
                                      access->num_bytes > 0 ? access->target : access->word, 0};
    struct wp_access *slot = weft__cuda_await_work_slot(warp, number, &site);
    if (slot == NULL)
        return number;
    slot->operation = access->operation;
    slot->rank = access->rank;
    slot->source = access->source;
    slot->target = access->target;
    slot->num_bytes = access->num_bytes;
    slot->word = access->word;
    slot->add = access->add;
    slot->loss = access->loss;
    /* Pairs with the thread's acquire. */
    asm volatile("st.release.sys.global.u64 [%0], %1;"
                 :
                 : "l"(&slot->ready), "l"(number + 1)
                 : "memory");
    return number;
}

WP_FN uint64_t wp_remote_post(struct wp_warp *warp, const struct wp_access *access)
{
    uint64_t number = 0;
    /* Orders what each lane has done before lane 0's release. */
    weft__cuda_complete_stores(warp);
    asm volatile("fence.acq_rel.sys;" : : : "memory");
    __syncwarp();
    if (wp_lane_idx(warp) == 0)
        number = weft__cuda_post(warp, access);
    return __shfl_sync(0xffffffffu, number, 0);
}

WP_FN enum wp_status wp_remote_await(struct wp_warp *warp, uint64_t number,
                                     const struct wp_wait_site *site)
{
    const struct weft__cuda_work_queue *queue = &warp->launch->work_queue;
    const enum wp_status status = wp_wait(warp, queue->num_completed, number + 1, site);
    /* Failed accesses complete, too, but not before this is set. */
    if (status != WP_STATUS_OK || *(const volatile uint32_t *)queue->comm_has_failed == 0)
        return status;
    const struct wp_failure failure = {WP_FAILURE_COMM, *site, 0, 0, 0};
    return wp_fail(warp, &failure);
}
