/* SPDX-License-Identifier: MIT */
/*
 * The NIC of a rank whose programs post to it themselves (WEFT_NET_INITIATOR): a queue pair for
 * each rank of another node and one for itself, the memory that it may reach, and its failures. The
 * NIC is a model. Its packets go through the rank's net, which tells of peers that are gone.
 *
 * All belongs to the net's owner (progress.h), unless it says something else.
 */
#pragma once

#include "comm/host/doorbell.h"
#include "net/net.h"
#include "net/nic/model.h"
#include "net/nic/queue.h"

struct weft__nic_adapter;

struct weft__nic_adapter_config {
    struct weft__net *net; /* connected, with an engine that keeps the order of messages */
    int32_t rank, num_ranks;
    const char *heap; /* of this rank */
    uint64_t max_heap_bytes;
    struct weft__doorbell *bell; /* rung when a queue has news */
    uint32_t depth;              /* of a queue, in units; 0: 1024 */
    struct weft__nic_trouble trouble;
};

weft_result weft__nic_adapter_create(const struct weft__nic_adapter_config *config,
                                     struct weft__nic_adapter **adapter);
/* When the net is closed; NULL is legal. */
void weft__nic_adapter_destroy(struct weft__nic_adapter *adapter);
/* For programs. */
struct weft__nic_port *weft__nic_adapter_port(struct weft__nic_adapter *adapter);

/* Registers bytes of the heap, behind those of all steps before. */
weft_result weft__nic_adapter_add_step(struct weft__nic_adapter *adapter, uint64_t begin,
                                       uint64_t num_bytes, struct weft__nic_key *own);
/* A rank's key for this step. When all ranks know all keys, it is opened: programs may name its
 * bytes. Or it is dropped, as if it had not been added. */
void weft__nic_adapter_learn_key(struct weft__nic_adapter *adapter, int32_t rank,
                                 const struct weft__nic_key *key);
void weft__nic_adapter_open_step(struct weft__nic_adapter *adapter);
void weft__nic_adapter_drop_step(struct weft__nic_adapter *adapter);

/* From any thread: whether a doorbell has been rung that the NIC has not heard. */
int weft__nic_adapter_is_rung(const struct weft__nic_adapter *adapter);
/* From any thread: true if every posted request is done or has failed. */
int weft__nic_adapter_is_idle(const struct weft__nic_adapter *adapter);
/* Moves the NIC on. Returns the number of events. */
int weft__nic_adapter_step(struct weft__nic_adapter *adapter);

struct weft__nic_failure {
    enum {
        WEFT__NIC_REQUESTS_FAILED,
        WEFT__NIC_PEER_IS_LOST /* the net does not know that yet */
    } kind;
    int32_t peer;       /* -1: this rank is to blame */
    weft_result result; /* RANK_FAILED: what must not be lost was lost */
    char message[WEFT__NET_REASON_BYTES];
};
/* The next failure that was not told yet. Returns 0 if there is none. */
int weft__nic_adapter_next_failure(struct weft__nic_adapter *adapter,
                                   struct weft__nic_failure *failure);
