/* SPDX-License-Identifier: MIT */
/* The failures at a rank's NIC, and who must hear of each. */
#include <stdio.h>

#include "net/nic/adapter_internal.h"

static void tell_cause(const struct nic_listener *listener, int32_t peer,
                       char text[WEFT__NIC_CAUSE_BYTES])
{
    const struct weft__nic_cqe *cqe = &listener->cqe;
    weft__nic_cause_text(&(struct weft__nic_cause){cqe->syndrome, cqe->vendor_syndrome,
                                                   nic_qp_of(peer), listener->failed_unit},
                         text);
}

static void describe(const struct weft__nic_adapter *adapter, int32_t peer,
                     struct weft__nic_failure *failure)
{
    const struct nic_listener *listener = &adapter->listeners[peer];
    char cause[WEFT__NIC_CAUSE_BYTES];
    *failure = (struct weft__nic_failure){.peer = peer, .result = WEFT_ERROR_RANK_FAILED};
    if (listener->cqe.syndrome == WEFT__NIC_RETRIES) {
        snprintf(failure->message, sizeof failure->message,
                 "rank %d has left, or failed, before what it was sent was done", peer);
        return;
    }
    failure->peer = -1;
    failure->result = WEFT_ERROR_SYSTEM;
    tell_cause(listener, peer, cause);
    snprintf(failure->message, sizeof failure->message, "the NIC's queue to rank %d has failed: %s",
             peer, cause);
}

/* The NIC has found that before the engine has. */
static int is_loss(const struct weft__nic_adapter *adapter, int32_t peer)
{
    const struct nic_listener *listener = &adapter->listeners[peer];
    return listener->has_failed && !listener->is_lost &&
           listener->cqe.syndrome == WEFT__NIC_RETRIES &&
           adapter->config.net->peers[peer].state == WEFT__NET_CONNECTED;
}

static void describe_loss(const struct weft__nic_adapter *adapter, int32_t peer,
                          struct weft__nic_failure *failure)
{
    char cause[WEFT__NIC_CAUSE_BYTES];
    *failure = (struct weft__nic_failure){
        .kind = WEFT__NIC_PEER_IS_LOST, .peer = peer, .result = WEFT_ERROR_RANK_FAILED};
    tell_cause(&adapter->listeners[peer], peer, cause);
    snprintf(failure->message, sizeof failure->message, "rank %d cannot be reached: %s", peer,
             cause);
}

/* A peer that is gone harms nobody but those who must not lose what was for it. */
static int is_failure(const struct weft__nic_adapter *adapter, int32_t peer)
{
    const struct nic_listener *listener = &adapter->listeners[peer];
    const uint64_t kept = __atomic_load_n(&adapter->port.channels[peer].kept, __ATOMIC_ACQUIRE);
    return listener->has_failed && !listener->is_told &&
           (listener->cqe.syndrome != WEFT__NIC_RETRIES || kept > listener->failed_unit);
}

int weft__nic_adapter_next_failure(struct weft__nic_adapter *adapter,
                                   struct weft__nic_failure *failure)
{
    if (adapter->finding_state == FINDING) {
        *failure = adapter->finding;
        adapter->finding_state = FINDING_TOLD;
        return 1;
    }
    for (int32_t peer = 0; peer < adapter->config.num_ranks; peer++) {
        struct nic_listener *listener = &adapter->listeners[peer];
        if (is_loss(adapter, peer)) {
            listener->is_lost = 1;
            describe_loss(adapter, peer, failure);
            return 1;
        }
        if (is_failure(adapter, peer)) {
            listener->is_told = 1;
            describe(adapter, peer, failure);
            return 1;
        }
    }
    return 0;
}
