/* SPDX-License-Identifier: MIT */
/* Programs that post to the rank's NIC themselves. */
#include "machine/cpu/nic_remote.h"

#include "machine/cpu/cpu_launch_internal.h"
#include "machine/nic_access.h"
#include "net/attach.h"

/* Numbers of the work queue are below. */
enum { INDEX_BITS = 48 };

int weft__cpu_nic_takes(const weft_comm *comm, const struct wp_access *access)
{
    const int has_word = access->operation == WP_ACCESS_PUT_SIGNAL ||
                         access->operation == WP_ACCESS_SIGNAL ||
                         access->operation == WP_ACCESS_FETCH_ADD;
    return comm->network->nic != NULL &&
           (!has_word || access->adders == WP_ACCESS_ADDED_BY_NETWORK);
}

int weft__cpu_nic_has_number(uint64_t number)
{
    return number >> INDEX_BITS != 0;
}

static int32_t rank_of(uint64_t number)
{
    return (int32_t)(number >> INDEX_BITS) - 1;
}

static struct weft__nic_channel *channel_of(const weft_comm *comm, int32_t rank)
{
    return &weft__nic_adapter_port(comm->network->nic)->channels[rank];
}

static struct wp_nic_wait begin_wait(struct wp_warp *warp, const struct weft__nic_channel *channel,
                                     const struct wp_wait_site *site)
{
    const uint64_t *news = &channel->num_news;
    return wp_nic_begin_wait(warp, news, __atomic_load_n(news, __ATOMIC_ACQUIRE), site);
}

static void count(struct weft__nic_port *port, const struct wp_access *access)
{
    const int is_put = access->operation == WP_ACCESS_PUT ||
                       access->operation == WP_ACCESS_PUT_SIGNAL ||
                       access->operation == WP_ACCESS_SIGNAL;
    if (!is_put)
        return;
    __atomic_fetch_add(&port->num_puts, 1, __ATOMIC_RELAXED);
    __atomic_fetch_add(&port->num_put_bytes, access->num_bytes, __ATOMIC_RELAXED);
}

uint64_t weft__cpu_nic_post(struct wp_warp *warp, const struct wp_access *access,
                            uint64_t flush_number)
{
    const weft_comm *comm = weft__cpu_comm_of(warp);
    struct weft__nic_port *port = weft__nic_adapter_port(comm->network->nic);
    struct weft__nic_channel *channel = channel_of(comm, access->rank);
    const struct wp_wait_site site = wp_nic_post_site(access, comm->timeout_ms);
    struct wp_nic_wait wait = begin_wait(warp, channel, &site);
    uint64_t index = 0;
    count(port, access);
    /* The driver of the NIC tells other failures. */
    if (wp_nic_post(port, access, &wait, &index) != WP_STATUS_OK &&
        wait.status == WP_STATUS_ABSENT && access->absent_after_ms == 0 &&
        !weft__status_rank_is_gone(&comm->status, access->rank))
        (void)weft__cpu_fail(warp, &(struct wp_failure){.kind = WP_FAILURE_TIMEOUT, .site = site});
    if (access->operation == WP_ACCESS_FLUSH)
        wp_nic_raise_release(&channel->num_flushed, flush_number + 1);
    if (access->loss == WP_ACCESS_MUST_NOT_BE_LOST)
        wp_nic_raise_release(&channel->kept, index + 1);
    /* Those who wait for their turn behind it. */
    __atomic_fetch_add(&channel->num_news, 1, __ATOMIC_RELEASE);
    weft__doorbell_ring_words(weft__heap_bell(weft__heap_bases(comm->heap)[comm->rank]),
                              WEFT__ANY_WORD, WEFT__ANY_WORD + 1);
    return (uint64_t)(access->rank + 1) << INDEX_BITS | index;
}

uint64_t weft__cpu_nic_num_flushed(const struct wp_warp *warp, uint64_t number)
{
    return wp_nic_load_acquire(&channel_of(weft__cpu_comm_of(warp), rank_of(number))->num_flushed);
}

/* A flush of all waits for nobody in particular, but its NIC knows for whom. */
static void name_rank(struct wp_failure *failure, int32_t rank)
{
    if (failure->kind == WP_FAILURE_TIMEOUT && failure->site.phase == WP_PHASE_FLUSH &&
        failure->site.rank == WP_NO_RANK)
        failure->site.rank = rank;
}

enum wp_status weft__cpu_nic_await(struct wp_warp *warp, uint64_t number,
                                   const struct wp_wait_site *site)
{
    weft_comm *comm = weft__cpu_comm_of(warp);
    struct weft__nic_channel *channel = channel_of(comm, rank_of(number));
    const uint64_t index = number & ((UINT64_C(1) << INDEX_BITS) - 1);
    struct wp_wait_site here = *site;
    here.sequence = index; /* for messages */
    struct wp_nic_wait wait = begin_wait(warp, channel, &here);
    if (wp_nic_await(&channel->queue, index, &wait) == WP_STATUS_OK)
        return WP_STATUS_OK;
    if (wait.status != WP_STATUS_OK) {
        name_rank(&warp->launch->failure, rank_of(number));
        return wait.status;
    }
    /* Requests that fail complete, too, but not before the communicator has, if the loss is one. In
     * a queue that was given up they do not. */
    weft__progress_run(comm->network->progress);
    struct wp_failure failure = {.kind = WP_FAILURE_COMM, .site = here};
    if (atomic_load(&comm->status.result) == WEFT_OK) {
        if (wp_nic_load(&channel->queue.failure) != WEFT__NIC_QUEUE_FAILED)
            return WP_STATUS_OK;
        failure.kind = WP_FAILURE_TIMEOUT;
        failure.site.rank = rank_of(number);
    }
    return weft__cpu_fail(warp, &failure);
}
