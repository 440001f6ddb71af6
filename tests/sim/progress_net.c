/* SPDX-License-Identifier: MIT */
/* A model of the net and its engine, as strict as the contract lets it be: its descriptor is
 * readable only for what comes after it was armed, and each progress disarms it. Two owners at a
 * time are a mistake. */
#include <string.h>

#include "machine/sim/world.h"
#include "net/nic/adapter.h"
#include "progress_job.h"

enum { MAX_ITEMS = 64, LATE_STEPS = 40 };

/* A put until it is acknowledged, or a message from outside. */
struct item {
    enum { NONE, ON_ITS_WAY, HERE } state;
    struct weft__net_request *request;
    int *has_come;
};

struct weft__net {
    struct item items[MAX_ITEMS];
    int is_armed, is_readable, is_owned, has_ended;
    uint64_t num_posted;
};

static struct weft__net the_net;

struct weft__net *progress_net_open(void)
{
    memset(&the_net, 0, sizeof the_net);
    return &the_net;
}

void progress_net_end(void)
{
    the_net.has_ended = 1;
}

uint64_t progress_net_num_posted(void)
{
    return the_net.num_posted;
}

int progress_net_is_readable(void)
{
    return the_net.is_readable;
}

static void own(void)
{
    if (the_net.is_owned) {
        sim_report("two threads own the net\n");
        sim_world->result->num_wrong++;
    }
    the_net.is_owned = 1;
    sim_yield();
}

static void disown(void)
{
    the_net.is_owned = 0;
}

/* ---------------------------------------------------------------- the wire */

static void add_item(struct item item)
{
    int i = 0;
    while (i < MAX_ITEMS && the_net.items[i].state != NONE)
        i++;
    if (i == MAX_ITEMS) {
        sim_report("too much is under way\n");
        sim_world->result->num_wrong++;
        return;
    }
    the_net.items[i] = item;
    the_net.items[i].state = ON_ITS_WAY;
}

void progress_net_expect(int *has_come)
{
    add_item((struct item){.has_come = has_come});
}

static struct item *draw_item(void)
{
    const uint64_t first = sim_random(MAX_ITEMS);
    for (uint64_t i = 0; i < MAX_ITEMS; i++) {
        struct item *item = &the_net.items[(first + i) % MAX_ITEMS];
        if (item->state == ON_ITS_WAY)
            return item;
    }
    return NULL;
}

static int is_anything_sent(struct sim_fiber *fiber)
{
    (void)fiber;
    for (int i = 0; i < MAX_ITEMS; i++)
        if (the_net.items[i].state == ON_ITS_WAY)
            return 1;
    return the_net.has_ended;
}

void progress_net_carry(void)
{
    while (sim_wait_until(is_anything_sent, NULL, INT64_MAX) && !the_net.has_ended) {
        sim_sleep(sim_random(LATE_STEPS));
        struct item *item = draw_item();
        if (item != NULL)
            item->state = HERE;
        the_net.is_readable |= the_net.is_armed;
    }
}

static int is_anything_here(void)
{
    for (int i = 0; i < MAX_ITEMS; i++)
        if (the_net.items[i].state == HERE)
            return 1;
    return 0;
}

/* ---------------------------------------------------------------- a NIC, as adapter.h has it */

struct weft__nic_adapter {
    int is_rung;
};

static struct weft__nic_adapter the_nic;

struct weft__nic_adapter *progress_net_nic(void)
{
    the_nic.is_rung = 0;
    return &the_nic;
}

void progress_net_ring_nic(void)
{
    the_nic.is_rung = 1;
    sim_yield();
}

int weft__nic_adapter_is_rung(const struct weft__nic_adapter *adapter)
{
    return adapter->is_rung;
}

int weft__nic_adapter_is_idle(const struct weft__nic_adapter *adapter)
{
    return !adapter->is_rung;
}

int weft__nic_adapter_step(struct weft__nic_adapter *adapter)
{
    own();
    const int num_events = adapter->is_rung;
    adapter->is_rung = 0;
    disown();
    return num_events;
}

int weft__nic_adapter_next_failure(struct weft__nic_adapter *adapter,
                                   struct weft__nic_failure *failure)
{
    (void)adapter;
    (void)failure;
    return 0;
}

/* ---------------------------------------------------------------- the net, as net.h has it */

weft_result weft__net_post(struct weft__net *net, const struct wp_access *access,
                           struct weft__net_request *request)
{
    (void)access;
    own();
    net->num_posted++;
    *request = (struct weft__net_request){.num_left = 1};
    add_item((struct item){.request = request});
    disown();
    return WEFT_OK;
}

int weft__net_can_share(const struct weft__net *net, const struct wp_access *access,
                        const struct wp_access *other)
{
    (void)net;
    (void)access;
    (void)other;
    return 0;
}

weft_result weft__net_post_both(struct weft__net *net, const struct wp_access *access,
                                const struct wp_access *other, struct weft__net_request *request)
{
    (void)other;
    return weft__net_post(net, access, request);
}

int weft__net_progress(struct weft__net *net)
{
    int num_events = 0;
    own();
    net->is_armed = net->is_readable = 0;
    for (int i = 0; i < MAX_ITEMS; i++) {
        struct item *item = &net->items[i];
        if (item->state != HERE)
            continue;
        if (item->request != NULL)
            item->request->num_left = 0;
        else
            *item->has_come = 1;
        item->state = NONE;
        num_events++;
    }
    disown();
    return num_events;
}

enum weft__net_armed weft__net_arm(struct weft__net *net)
{
    own();
    net->is_armed = !is_anything_here();
    disown();
    return net->is_armed ? WEFT__NET_ARMED : WEFT__NET_BUSY;
}

int weft__net_fd(const struct weft__net *net)
{
    (void)net;
    return -1;
}

int32_t weft__net_failed_peer(const struct weft__net *net)
{
    (void)net;
    return -1;
}

weft_result weft__net_peer_error(const struct weft__net *net, int32_t peer)
{
    (void)net;
    (void)peer;
    return WEFT_OK;
}

void weft__net_fail_peer(struct weft__net *net, int32_t peer, const char *format, ...)
{
    (void)net;
    (void)peer;
    (void)format;
}

void weft__net_set_close_ms(struct weft__net *net, uint32_t close_ms)
{
    (void)net;
    (void)close_ms;
}

void weft__net_close(struct weft__net *net)
{
    (void)net;
}
