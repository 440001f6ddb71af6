/* SPDX-License-Identifier: MIT */
#include "machine/cpu/net_driver.h"

#include <sched.h>

#include "net/attach.h"

/* Less is sent before another thread has been woken for it. */
enum { MUCH_BYTES = 256 << 10 };

enum weft__cores weft__count_cores(const weft_comm *comm)
{
    const struct weft__identity *own = &comm->identities[comm->rank];
    int32_t num_here = 0;
    cpu_set_t set;
    const int num_cores = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    for (int32_t rank = 0; rank < comm->num_ranks; rank++)
        num_here += comm->identities[rank].host_key == own->host_key &&
                    comm->identities[rank].cores_key == own->cores_key;
    if (2 * num_here <= num_cores)
        return WEFT__TWO_CORES_FOR_EACH_RANK;
    return num_here <= num_cores ? WEFT__CORE_FOR_EACH_RANK : WEFT__FEWER_CORES_THAN_RANKS;
}

static int is_driven_here(const struct weft__net_driver *driver)
{
    return driver->comm->network != NULL &&
           (driver->num_bytes < MUCH_BYTES || driver->cores < WEFT__TWO_CORES_FOR_EACH_RANK);
}

enum weft__posted_for weft__net_driver_post(struct weft__net_driver *driver,
                                            struct weft__work_request request, uint64_t *number)
{
    const int was_driven_here = is_driven_here(driver);
    driver->num_bytes += request.num_bytes;
    request.poster = is_driven_here(driver) ? WEFT__POSTER_DRIVES : WEFT__POSTER_WAITS;
    const uint64_t posted = weft__net_post(driver->comm, &request);
    if (number != NULL)
        *number = posted;
    if (is_driven_here(driver))
        return WEFT__POSTED_FOR_THIS_THREAD;
    if (was_driven_here)
        weft__net_hand_back(driver->comm);
    return WEFT__POSTED_FOR_ANOTHER;
}

void weft__net_driver_send(const struct weft__net_driver *driver)
{
    if (is_driven_here(driver))
        weft__net_drive_posted(driver->comm);
}

void weft__net_driver_poll(const struct weft__net_driver *driver)
{
    if (is_driven_here(driver))
        weft__net_drive(driver->comm);
}

void weft__net_driver_rest(const struct weft__net_driver *driver)
{
    if (is_driven_here(driver))
        weft__net_hand_back(driver->comm);
}
