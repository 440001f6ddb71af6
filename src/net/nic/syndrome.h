/* SPDX-License-Identifier: MIT */
/* Why a request failed, as the completion of an mlx5 NIC says it. */
#pragma once

#include <stdint.h>

enum weft__nic_syndrome {
    WEFT__NIC_NO_SYNDROME = 0,
    WEFT__NIC_LOCAL_LENGTH = 0x01,
    WEFT__NIC_LOCAL_OPERATION = 0x02,
    WEFT__NIC_LOCAL_PROTECTION = 0x04,
    WEFT__NIC_FLUSHED = 0x05, /* an earlier request of the queue failed: that one has the cause */
    WEFT__NIC_MEMORY_WINDOW = 0x06,
    WEFT__NIC_BAD_RESPONSE = 0x10,
    WEFT__NIC_LOCAL_ACCESS = 0x11,
    WEFT__NIC_REMOTE_REQUEST = 0x12,
    WEFT__NIC_REMOTE_ACCESS = 0x13,
    WEFT__NIC_REMOTE_OPERATION = 0x14,
    WEFT__NIC_RETRIES = 0x15,
    WEFT__NIC_RECEIVER_RETRIES = 0x16,
    WEFT__NIC_REMOTE_ABORTED = 0x22
};

/* For users; never NULL. */
const char *weft__nic_syndrome_text(uint32_t syndrome);

/* Where and why a request failed, in words. */
struct weft__nic_cause {
    uint32_t syndrome, vendor_syndrome;
    uint32_t qp;
    uint64_t unit;
};
enum { WEFT__NIC_CAUSE_BYTES = 128 };
void weft__nic_cause_text(const struct weft__nic_cause *cause, char text[WEFT__NIC_CAUSE_BYTES]);
