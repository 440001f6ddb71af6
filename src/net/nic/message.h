/* SPDX-License-Identifier: MIT */
/* The messages between two models of a NIC, over a net: a packet, or the answer to one, without the
 * bytes that it does not use. */
#pragma once

#include <stddef.h>

#include "net/nic/model.h"

enum { WEFT__NIC_REQUEST, WEFT__NIC_ANSWER };

struct weft__nic_message {
    uint32_t kind;
    union {
        struct weft__nic_packet packet;
        struct weft__nic_answer answer;
    };
};

static inline int weft__nic_is_write(const struct weft__nic_packet *packet)
{
    return packet->opcode == WEFT__NIC_WRITE || packet->opcode == WEFT__NIC_WRITE_IMMEDIATE;
}

static inline size_t weft__nic_message_bytes(const struct weft__nic_message *message)
{
    const struct weft__nic_packet *packet = &message->packet;
    if (message->kind == WEFT__NIC_ANSWER)
        return offsetof(struct weft__nic_message, answer.bytes) + message->answer.num_bytes;
    return offsetof(struct weft__nic_message, packet.bytes) +
           (weft__nic_is_write(packet) ? packet->num_bytes : 0);
}

/* Returns 0 if the bytes are none. */
static inline int weft__nic_read_message(const void *bytes, size_t num_bytes,
                                         struct weft__nic_message *message)
{
    if (num_bytes > sizeof *message)
        return 0;
    memset(message, 0, sizeof *message);
    memcpy(message, bytes, num_bytes);
    return message->kind <= WEFT__NIC_ANSWER && num_bytes == weft__nic_message_bytes(message);
}
