/* SPDX-License-Identifier: MIT */
/* Waits for what programs have given to the network. */
#include "comm/comm.h"
#include "machine/cpu/cpu_launch.h"
#include "machine/cpu/nic_remote.h"
#include "net/attach.h"

enum wp_status weft__cpu_remote_await(struct wp_warp *warp, uint64_t number,
                                      const struct wp_wait_site *site)
{
    const weft_comm *comm = weft__cpu_comm_of(warp);
    const struct weft__work_queue *queue = weft__progress_queue(comm->network->progress);
    const uint64_t *num_completed = (const uint64_t *)(const void *)&queue->num_completed;
    const int is_of_nic = weft__cpu_nic_has_number(number);
    const uint64_t needed = is_of_nic ? weft__cpu_nic_num_flushed(warp, number) : number + 1;
    enum wp_status status = is_of_nic ? weft__cpu_nic_await(warp, number, site) : WP_STATUS_OK;
    if (status == WP_STATUS_OK)
        status = wp_wait(warp, num_completed, needed, site);
    /* Failed accesses complete, too, but not before the communicator has failed. */
    if (status != WP_STATUS_OK || atomic_load(&comm->status.result) == WEFT_OK)
        return status;
    const struct wp_failure failure = {.kind = WP_FAILURE_COMM, .site = *site};
    return weft__cpu_fail(warp, &failure);
}
