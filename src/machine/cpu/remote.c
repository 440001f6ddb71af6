/* SPDX-License-Identifier: MIT */
/* What programs give to the network: descriptors, which the stream's thread sends when its fibers
 * wait, or the rank's progress thread. */
#include "comm/comm.h"
#include "machine/cpu/launch.h"
#include "net/attach.h"

_Static_assert((int)WEFT_ACCESS_PUT == (int)WEFT__WORK_PUT &&
                   (int)WEFT_ACCESS_PUT_SIGNAL == (int)WEFT__WORK_PUT_SIGNAL &&
                   (int)WEFT_ACCESS_GET == (int)WEFT__WORK_GET &&
                   (int)WEFT_ACCESS_FETCH_ADD == (int)WEFT__WORK_FETCH_ADD &&
                   (int)WEFT_ACCESS_FLUSH == (int)WEFT__WORK_FLUSH,
               "programs post what the network takes");

void weft__cpu_remote_put(struct weft_warp *warp, const struct weft_remote_put *put)
{
    /* Region 0 is the heap. */
    const struct weft__work_request request = {.operation = WEFT__WORK_PUT_SIGNAL,
                                               .peer = put->rank,
                                               .source = put->source,
                                               .target = put->target,
                                               .num_bytes = put->num_bytes,
                                               .word = put->word,
                                               .add = put->add};
    (void)weft__cpu_net_post(warp, &request);
}

uint64_t weft__cpu_remote_post(struct weft_warp *warp, const struct weft_access *access)
{
    /* What a rank that has left was sent before, it has taken: only a flush of that has nothing to lose. */
    const struct weft__work_request request = {
        .operation = (enum weft__work_operation)access->operation,
        .loss = access->operation == WEFT_ACCESS_FLUSH ? WEFT__WORK_MAY_BE_LOST
                                                       : WEFT__WORK_MUST_NOT_BE_LOST,
        .peer = access->rank,
        .source = access->source,
        .target = access->target,
        .num_bytes = access->num_bytes,
        .word = access->word,
        .add = access->add};
    return weft__cpu_net_post(warp, &request);
}

enum weft_status weft__cpu_remote_await(struct weft_warp *warp, uint64_t number,
                                        const struct weft_wait_site *site)
{
    const weft_comm *comm = weft__cpu_comm_of(warp);
    const enum weft_status status =
        weft_wait(warp, weft__net_num_completed(comm), number + 1, site);
    /* What fails completes, too, but not before the communicator has failed. */
    if (status != WEFT_STATUS_OK || atomic_load(&comm->status.result) == WEFT_OK)
        return status;
    const struct weft_failure failure = {.kind = WEFT_FAILURE_COMM, .site = *site};
    return weft__cpu_fail(warp, &failure);
}
