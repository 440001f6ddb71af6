/* SPDX-License-Identifier: MIT */
/* Drawn requests of one queue of a NIC, and an oracle that knows where each byte must be at each
 * completion. Who posts and polls is the test's. */
#pragma once

#include "net/nic/wqe.h"
#include "workload/rng.h"

enum {
    NIC_TRAFFIC_MEMORY = 1 << 16, /* bytes of each of the two memories */
    NIC_TRAFFIC_MESSAGES = 128,   /* that are remembered */
    NIC_TRAFFIC_MAX_DEPTH = 64,   /* so that nobody reads a slot that is used again */
    NIC_TRAFFIC_MAX_BYTES = 600,
    NIC_TRAFFIC_SMALL_GROUP = 3, /* requests that are posted at a time, at most */
    NIC_TRAFFIC_LARGE_GROUP = 20 /* with a depth above it */
};

enum nic_traffic_kinds { NIC_TRAFFIC_OF_VERBS, NIC_TRAFFIC_ALL /* with NOP and DUMP */ };

struct nic_traffic_config {
    uint64_t seed, first; /* index of the first unit */
    uint32_t depth, max_bytes;
    uint32_t qp, local_key, remote_key;
    enum nic_traffic_kinds kinds;
    uint8_t *local, *remote;
    void (*post)(void *context, const struct weft__nic_request *request);
    void *context;
};

enum nic_message_kind { NIC_NOTHING, NIC_WRITES, NIC_READS, NIC_ADDS };

struct nic_message {
    enum nic_message_kind kind;
    uint64_t origin; /* index of the write that has made the bytes */
    uint32_t num_bytes;
    struct weft__nic_request request;
};

struct nic_traffic {
    struct nic_traffic_config config;
    struct rng rng;
    struct nic_message messages[NIC_TRAFFIC_MESSAGES];
    uint64_t posted,
        done; /* indices: of the next unit, and of the first not known to be complete */
    uint64_t num_adds_posted, num_adds_seen, num_adds_done;
    uint64_t adds[NIC_TRAFFIC_MESSAGES]; /* their indices */
    const char *complaint;               /* the first one, or NULL */
};

void nic_traffic_start(struct nic_traffic *traffic, const struct nic_traffic_config *config);
/* Whether a group fits, whatever is drawn. */
int nic_traffic_has_room(const struct nic_traffic *traffic);
void nic_traffic_post(struct nic_traffic *traffic); /* a group; its last asks for a completion */
struct nic_message *nic_traffic_message(struct nic_traffic *traffic, uint64_t index);
int nic_traffic_has_bytes(const struct nic_message *message);
/* The next request that completes by a CQE, or the number posted. */
uint64_t nic_traffic_next_signalled(struct nic_traffic *traffic);
/* All requests before `end` are said to be complete. */
void nic_traffic_complete(struct nic_traffic *traffic, uint64_t end);
/* The word is about to be added to. */
void nic_traffic_see_add(struct nic_traffic *traffic);
void nic_traffic_complain(struct nic_traffic *traffic, const char *complaint);
