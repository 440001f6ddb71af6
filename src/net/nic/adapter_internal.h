/* SPDX-License-Identifier: MIT */
/* The adapter's files share this. */
#pragma once

#include "net/net_internal.h"
#include "net/nic/adapter.h"

/* The adapter's own knowledge of a channel. */
struct nic_listener {
    uint64_t done; /* units, by the CQEs; stored atomically, as the next */
    int has_failed;
    int is_told, is_lost; /* both by next_failure */
    uint64_t failed_unit;
    struct weft__nic_cqe cqe; /* of the first failure */
};

struct weft__nic_adapter {
    struct weft__nic_adapter_config config;
    struct weft__nic_port port;
    struct weft__nic_model *model;
    struct nic_listener *listeners; /* [num_ranks] */
    struct weft__nic_unit *units;   /* [num_ranks][depth] */
    struct weft__nic_unit *cqes;    /* [num_ranks] */
    uint32_t (*records)[2];         /* [num_ranks] */
    uint64_t sink;
    uint64_t random;
    struct weft__nic_step *new_step; /* that is not open yet; NULL: none */
    uint32_t num_keys;               /* of steps */
    int has_news;
    int32_t sender;                   /* whose packet the model answers; -1: none */
    struct weft__nic_failure finding; /* the first one */
    enum { NO_FINDING, FINDING, FINDING_TOLD } finding_state;
};

static inline uint32_t nic_qp_of(int32_t peer)
{
    enum { FIRST_QP = 0x100 /* of the queue to rank 0 */ };
    return FIRST_QP + (uint32_t)peer;
}
