/* SPDX-License-Identifier: MIT */
/*
 * Commands to the firmware of an mlx5 NIC (DEVX) that make queues in memory of the caller's, and
 * the answers. Pure functions: verbs_library.h sends them. A command is a string of bits, the
 * highest first, whose fields have fixed places; all that no field names is 0.
 *
 * A queue pair goes from RESET through INIT and RTR, ready to receive, to RTS, ready to send.
 */
#pragma once

#include <stdint.h>

#include "net/nic/verbs_library.h"

enum {
    WEFT__DEVX_MAX_COMMAND_BYTES = 272,
    WEFT__DEVX_ANSWER_BYTES = 16, /* of all but queries */
    WEFT__DEVX_CAPABILITY_BYTES = 4112,
    WEFT__DEVX_MIN_LOG_PAGE = 12,
    WEFT__DEVX_STATUS_BYTES = 160
};

enum weft__devx_opcode {
    WEFT__DEVX_QUERY_HCA_CAP = 0x100,
    WEFT__DEVX_CREATE_CQ = 0x400,
    WEFT__DEVX_CREATE_QP = 0x500,
    WEFT__DEVX_RST2INIT = 0x502,
    WEFT__DEVX_INIT2RTR = 0x503,
    WEFT__DEVX_RTR2RTS = 0x504
};

struct weft__devx_command {
    uint32_t num_bytes;
    uint8_t bytes[WEFT__DEVX_MAX_COMMAND_BYTES];
};

/* ---------------------------------------------------------------- queues */

/* In memory that was registered as a umem. */
struct weft__devx_place {
    uint32_t umem;
    uint64_t offset;
};

/* Collapsed: the NIC writes each CQE to the first entry. */
struct weft__devx_cq {
    struct weft__devx_place entries, record;
    uint32_t log_entries;
    uint32_t log_page; /* 2^log_page bytes: a page of the umem, with which the entries begin */
    uint32_t uar, eqn;
};

/* Reliable connection, without receives. */
struct weft__devx_qp {
    struct weft__devx_place units, record;
    uint32_t log_depth, log_page;
    uint32_t uar, pd, cq, user_index;
    uint32_t timestamps; /* as weft__devx_limits has it */
};

/* A rank knows the end of a queue pair by it, and so reaches it. */
struct weft__devx_end {
    uint32_t qp;
    uint32_t link;      /* enum weft__ibv_link_layer */
    uint32_t lid;       /* of InfiniBand */
    uint32_t mtu;       /* as verbs count it: 1 is 256 bytes, 5 is 4096 */
    uint32_t log_reads; /* that it answers at a time */
    uint8_t gid[WEFT__IBV_GID_BYTES];
};

struct weft__devx_path {
    uint32_t qp;   /* of this end */
    uint32_t port; /* likewise, from 1 */
    uint32_t gid_index;
    uint32_t udp_port;                 /* of RoCE: the source */
    uint8_t mac[WEFT__MLX5_MAC_BYTES]; /* of RoCE: the next hop's */
    uint32_t mtu, log_reads;           /* of both ends, the smaller ones */
    struct weft__devx_end peer;
};

void weft__devx_create_cq(const struct weft__devx_cq *cq, struct weft__devx_command *command);
void weft__devx_create_qp(const struct weft__devx_qp *qp, struct weft__devx_command *command);
void weft__devx_init_qp(const struct weft__devx_path *path, struct weft__devx_command *command);
void weft__devx_ready_to_receive(const struct weft__devx_path *path,
                                 struct weft__devx_command *command);
void weft__devx_ready_to_send(const struct weft__devx_path *path,
                              struct weft__devx_command *command);

/* ---------------------------------------------------------------- answers */

struct weft__devx_answer {
    uint32_t status, syndrome; /* 0, 0: it is done */
    uint32_t number;           /* of what was created */
};

struct weft__devx_answer weft__devx_decode_answer(const uint8_t bytes[WEFT__DEVX_ANSWER_BYTES]);
/* "status 0x3 (bad parameter), syndrome 0x1a2b3c". */
void weft__devx_status_text(const struct weft__devx_answer *answer,
                            char text[WEFT__DEVX_STATUS_BYTES]);

/* ---------------------------------------------------------------- capabilities */

enum weft__devx_capability { WEFT__DEVX_GENERAL = 0, WEFT__DEVX_ATOMICS = 3, WEFT__DEVX_ROCE = 4 };

/* Limits of a device. */
struct weft__devx_limits {
    uint32_t max_log_depth, max_log_message, max_log_reads; /* reads: at either end */
    uint32_t cqe_version;                                   /* weft knows 1 */
    uint32_t has_fetch_add; /* of 8 bytes, whose result is in the processor's order */
    uint32_t timestamps;    /* the format that a queue pair must have */
};

void weft__devx_query(enum weft__devx_capability capability, struct weft__devx_command *command);
/* Takes the fields of this answer. */
void weft__devx_take_capability(enum weft__devx_capability capability,
                                const uint8_t answer[WEFT__DEVX_CAPABILITY_BYTES],
                                struct weft__devx_limits *limits);
