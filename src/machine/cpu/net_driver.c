/* SPDX-License-Identifier: MIT */
#include "machine/cpu/net_driver.h"

#include "net/attach.h"

/* Less is sent before another thread has been woken for it. */
enum { MUCH_BYTES = 256 << 10 };

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
    *number = weft__net_post(driver->comm, &request);
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
