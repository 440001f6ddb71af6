/* SPDX-License-Identifier: MIT */
#include "net/nic/devx.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

/* The first bit, and how many. */
struct field {
    uint32_t bit, num_bits;
};

static void put(uint8_t *bytes, struct field field, uint64_t value)
{
    for (uint32_t i = 0; i < field.num_bits; i++) {
        const uint32_t bit = field.bit + field.num_bits - 1 - i;
        if (value >> i & 1)
            bytes[bit / 8] |= (uint8_t)(0x80 >> bit % 8);
    }
}

static uint32_t get(const uint8_t *bytes, struct field field)
{
    uint32_t value = 0;
    for (uint32_t bit = field.bit; bit < field.bit + field.num_bits; bit++)
        value = value << 1 | (bytes[bit / 8] >> (7 - bit % 8) & 1);
    return value;
}

static const struct field opcode_field = {0x00, 16}, modifier_field = {0x30, 16},
                          number_field = {0x48, 24};

static void begin(struct weft__devx_command *command, enum weft__devx_opcode opcode,
                  uint32_t num_bytes)
{
    memset(command, 0, sizeof *command);
    command->num_bytes = num_bytes;
    put(command->bytes, opcode_field, opcode);
}

/* ---------------------------------------------------------------- completion queues */

enum { CQ_BYTES = 16 }; /* before its context */

void weft__devx_create_cq(const struct weft__devx_cq *cq, struct weft__devx_command *command)
{
    static const struct field entries_offset = {0x280, 64}, entries_umem = {0x2c0, 32},
                              entries_are_in_umem = {0x2e0, 1};
    /* These are of the context. */
    static const struct field record_is_in_umem = {0x06, 1}, is_collapsed = {0x0b, 1},
                              ignores_overrun = {0x0e, 1}, record_umem = {0x20, 32},
                              log_entries = {0x63, 5}, uar = {0x68, 24}, eqn = {0xb8, 8},
                              log_page = {0xc3, 5}, record_offset = {0x1c0, 64};
    begin(command, WEFT__DEVX_CREATE_CQ, WEFT__DEVX_MAX_COMMAND_BYTES);
    put(command->bytes, entries_offset, cq->entries.offset);
    put(command->bytes, entries_umem, cq->entries.umem);
    put(command->bytes, entries_are_in_umem, 1);
    uint8_t *context = command->bytes + CQ_BYTES;
    put(context, record_is_in_umem, 1);
    put(context, is_collapsed, 1);
    put(context, ignores_overrun, 1);
    put(context, record_umem, cq->record.umem);
    put(context, log_entries, cq->log_entries);
    put(context, uar, cq->uar);
    put(context, eqn, cq->eqn);
    put(context, log_page, cq->log_page - WEFT__DEVX_MIN_LOG_PAGE);
    put(context, record_offset, cq->record.offset);
}

/* ---------------------------------------------------------------- queue pairs */

enum {
    QP_BYTES = 24, /* before its context */
    PATH_MIGRATED = 3,
    NO_RECEIVES = 3,
    ATOMICS_OF_8_BYTES = 3,
    LOG_MESSAGE = 30,    /* as WEFT__NIC_MAX_MESSAGE_BYTES */
    ACK_TIMEOUT = 14,    /* 4.096 us << 14 = 67 ms */
    MAX_RETRIES = 7,     /* of as many as the field holds; receives that are not there: for ever */
    RECEIVER_DELAY = 12, /* 0.64 ms */
    MAX_HOPS = 255
};

void weft__devx_create_qp(const struct weft__devx_qp *qp, struct weft__devx_command *command)
{
    static const struct field units_offset = {0x800, 64}, units_umem = {0x840, 32},
                              units_are_in_umem = {0x860, 1};
    static const struct field migration = {0x13, 2}, pd = {0x28, 24}, log_depth = {0x51, 4},
                              timestamps = {0x58, 2}, uar = {0x68, 24}, user_index = {0x88, 24},
                              log_page = {0xa3, 5}, cq_of_sends = {0x3e8, 24},
                              cq_of_receives = {0x4e8, 24}, record_offset = {0x500, 64},
                              receives = {0x565, 3}, record_is_in_umem = {0x683, 1},
                              record_umem = {0x720, 32};
    begin(command, WEFT__DEVX_CREATE_QP, WEFT__DEVX_MAX_COMMAND_BYTES);
    put(command->bytes, units_offset, qp->units.offset);
    put(command->bytes, units_umem, qp->units.umem);
    put(command->bytes, units_are_in_umem, 1);
    uint8_t *context = command->bytes + QP_BYTES;
    put(context, migration, PATH_MIGRATED);
    put(context, pd, qp->pd);
    put(context, log_depth, qp->log_depth);
    put(context, timestamps, qp->timestamps);
    put(context, uar, qp->uar);
    put(context, user_index, qp->user_index);
    put(context, log_page, qp->log_page - WEFT__DEVX_MIN_LOG_PAGE);
    put(context, cq_of_sends, qp->cq);
    put(context, cq_of_receives, qp->cq);
    put(context, record_offset, qp->record.offset);
    put(context, receives, NO_RECEIVES);
    put(context, record_is_in_umem, 1);
    put(context, record_umem, qp->record.umem);
}

/* Fields of the context that several steps set. */
static const struct field port_field = {0x1e8, 8}, migration_field = {0x13, 2};

static uint8_t *begin_step(struct weft__devx_command *command, enum weft__devx_opcode opcode,
                           const struct weft__devx_path *path)
{
    begin(command, opcode, WEFT__DEVX_MAX_COMMAND_BYTES);
    put(command->bytes, number_field, path->qp);
    return command->bytes + QP_BYTES;
}

void weft__devx_init_qp(const struct weft__devx_path *path, struct weft__devx_command *command)
{
    static const struct field atomics = {0x48c, 4}, may_read = {0x490, 1}, may_write = {0x491, 1},
                              may_add = {0x492, 1};
    uint8_t *context = begin_step(command, WEFT__DEVX_RST2INIT, path);
    put(context, migration_field, PATH_MIGRATED);
    put(context, port_field, path->port);
    put(context, atomics, ATOMICS_OF_8_BYTES);
    put(context, may_read, 1);
    put(context, may_write, 1);
    put(context, may_add, 1);
}

/* The address path begins at bit 0xc0 of the context. */
static void put_path(const struct weft__devx_path *path, uint8_t *context)
{
    static const struct field lid = {0xf0, 16}, gid_index = {0x108, 8}, max_hops = {0x118, 8},
                              udp_port = {0x1d0, 16};
    enum { GID_BYTE = 0x140 / 8, MAC_BYTE = 0x1f0 / 8 };
    put(context, port_field, path->port);
    if (path->peer.link != WEFT__IBV_ETHERNET) {
        put(context, lid, path->peer.lid);
        return;
    }
    put(context, gid_index, path->gid_index);
    put(context, max_hops, MAX_HOPS);
    put(context, udp_port, path->udp_port);
    memcpy(context + GID_BYTE, path->peer.gid, sizeof path->peer.gid);
    memcpy(context + MAC_BYTE, path->mac, sizeof path->mac);
}

void weft__devx_ready_to_receive(const struct weft__devx_path *path,
                                 struct weft__devx_command *command)
{
    static const struct field mtu = {0x40, 3}, log_message = {0x43, 5}, remote_qp = {0xa8, 24},
                              log_reads = {0x488, 3}, receiver_delay = {0x4a3, 5};
    uint8_t *context = begin_step(command, WEFT__DEVX_INIT2RTR, path);
    put(context, mtu, path->mtu);
    put(context, log_message, LOG_MESSAGE);
    put(context, remote_qp, path->peer.qp);
    put(context, log_reads, path->log_reads);
    put(context, receiver_delay, RECEIVER_DELAY);
    put_path(path, context);
}

void weft__devx_ready_to_send(const struct weft__devx_path *path,
                              struct weft__devx_command *command)
{
    static const struct field ack_timeout = {0x100, 5}, log_reads = {0x388, 3},
                              retries = {0x38d, 3}, receiver_retries = {0x390, 3};
    uint8_t *context = begin_step(command, WEFT__DEVX_RTR2RTS, path);
    put(context, ack_timeout, ACK_TIMEOUT);
    put(context, log_reads, path->log_reads);
    put(context, retries, MAX_RETRIES);
    put(context, receiver_retries, MAX_RETRIES);
}

/* ---------------------------------------------------------------- answers */

struct weft__devx_answer weft__devx_decode_answer(const uint8_t bytes[WEFT__DEVX_ANSWER_BYTES])
{
    static const struct field status = {0x00, 8}, syndrome = {0x20, 32};
    return (struct weft__devx_answer){.status = get(bytes, status),
                                      .syndrome = get(bytes, syndrome),
                                      .number = get(bytes, number_field)};
}

void weft__devx_status_text(const struct weft__devx_answer *answer,
                            char text[WEFT__DEVX_STATUS_BYTES])
{
    static const char *const words[] = {[0x00] = "done",
                                        [0x01] = "internal error",
                                        [0x02] = "command is not known",
                                        [0x03] = "bad parameter",
                                        [0x04] = "device is not ready",
                                        [0x05] = "resource does not exist",
                                        [0x06] = "resource is busy",
                                        [0x08] = "limit exceeded",
                                        [0x09] = "resource is in the wrong state",
                                        [0x0a] = "index out of range",
                                        [0x0f] = "no resources left",
                                        [0x10] = "queue pair is in the wrong state",
                                        [0x30] = "bad packet",
                                        [0x40] = "completion queue is too small",
                                        [0x50] = "length of the command is wrong",
                                        [0x51] = "length of the answer is wrong"};
    const char *word = NULL;
    if (answer->status < sizeof words / sizeof *words)
        word = words[answer->status];
    snprintf(text, WEFT__DEVX_STATUS_BYTES, "status 0x%x (%s), syndrome 0x%x", answer->status,
             word != NULL ? word : "unknown", answer->syndrome);
}

/* ---------------------------------------------------------------- capabilities */

enum { CAPABILITY_BYTES = 16, QUERY_BYTES = 16 }; /* before the capabilities; of the question */

void weft__devx_query(enum weft__devx_capability capability, struct weft__devx_command *command)
{
    const uint32_t current = 1;
    begin(command, WEFT__DEVX_QUERY_HCA_CAP, QUERY_BYTES);
    put(command->bytes, modifier_field, (uint32_t)capability << 1 | current);
}

static uint32_t smaller(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

static void take_atomics(const uint8_t *bytes, struct weft__devx_limits *limits)
{
    static const struct field order = {0x40, 2}, operations = {0x90, 16}, sizes = {0xb0, 16};
    enum { OF_THE_PROCESSOR = 1, FETCH_ADD = 2, OF_8_BYTES = 8 };
    limits->has_fetch_add = get(bytes, order) == OF_THE_PROCESSOR &&
                            (get(bytes, operations) & FETCH_ADD) != 0 &&
                            (get(bytes, sizes) & OF_8_BYTES) != 0;
}

void weft__devx_take_capability(enum weft__devx_capability capability,
                                const uint8_t answer[WEFT__DEVX_CAPABILITY_BYTES],
                                struct weft__devx_limits *limits)
{
    static const struct field max_log_depth = {0x88, 8}, log_requests = {0x14a, 6},
                              log_responses = {0x15a, 6}, max_log_message = {0x1c3, 5},
                              cqe_version = {0x1fc, 4}, timestamps_of_qp = {0x1e, 2};
    enum { FREE_RUNNING, DEFAULT };
    const uint8_t *bytes = answer + CAPABILITY_BYTES;
    switch (capability) {
    case WEFT__DEVX_GENERAL:
        limits->max_log_depth = get(bytes, max_log_depth);
        limits->max_log_reads = smaller(get(bytes, log_requests), get(bytes, log_responses));
        limits->max_log_message = get(bytes, max_log_message);
        limits->cqe_version = get(bytes, cqe_version);
        break;
    case WEFT__DEVX_ATOMICS:
        take_atomics(bytes, limits);
        break;
    case WEFT__DEVX_ROCE: /* free-running alone is 0 */
        limits->timestamps = get(bytes, timestamps_of_qp) == 0 ? FREE_RUNNING : DEFAULT;
        break;
    }
}
