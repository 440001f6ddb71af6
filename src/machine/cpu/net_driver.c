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

/* Posts, or rings for what is posted elsewhere: `number` is NULL. */
static enum weft__posted_for start(struct weft__net_driver *driver, const struct wp_access *access,
                                   uint64_t *number)
{
    struct weft__progress *progress = driver->comm->network->progress;
    const int was_driven_here = is_driven_here(driver);
    driver->num_bytes += access->num_bytes;
    driver->has_posted |= access->start == WP_ACCESS_AT_ONCE;
    const enum weft__work_poster poster =
        is_driven_here(driver) ? WEFT__POSTER_DRIVES : WEFT__POSTER_WAITS;
    if (number == NULL)
        weft__progress_ring(progress, poster);
    else
        (void)weft__progress_post(progress, access, poster, number);
    if (is_driven_here(driver))
        return WEFT__POSTED_FOR_THIS_THREAD;
    if (was_driven_here)
        weft__progress_hand_back(progress);
    return WEFT__POSTED_FOR_ANOTHER;
}

/* It is refused only while the network is being closed, when nobody may wait any more. */
enum weft__posted_for weft__net_driver_post(struct weft__net_driver *driver,
                                            const struct wp_access *access, uint64_t *number)
{
    *number = 0;
    return start(driver, access, number);
}

enum weft__posted_for weft__net_driver_ring(struct weft__net_driver *driver,
                                            const struct wp_access *access)
{
    return start(driver, access, NULL);
}

/* Work that can wait goes with what is posted next, when the thread waits, or, by the progress
 * thread, when it does other work. */
void weft__net_driver_send(struct weft__net_driver *driver)
{
    if (driver->has_posted && is_driven_here(driver))
        weft__progress_drive_posted(driver->comm->network->progress);
    driver->has_posted = 0;
}

void weft__net_driver_poll(const struct weft__net_driver *driver)
{
    if (is_driven_here(driver))
        weft__progress_drive(driver->comm->network->progress);
}

void weft__net_driver_rest(const struct weft__net_driver *driver)
{
    if (is_driven_here(driver))
        weft__progress_hand_back(driver->comm->network->progress);
}
