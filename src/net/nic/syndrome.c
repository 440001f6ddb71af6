/* SPDX-License-Identifier: MIT */
#include "net/nic/syndrome.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>

static const char *const texts[] = {
    [WEFT__NIC_NO_SYNDROME] = "no error",
    [WEFT__NIC_LOCAL_LENGTH] = "length error at the initiator",
    [WEFT__NIC_LOCAL_OPERATION] = "malformed request",
    [WEFT__NIC_LOCAL_PROTECTION] = "local memory that is not registered for it",
    [WEFT__NIC_FLUSHED] = "flushed after an earlier error",
    [WEFT__NIC_MEMORY_WINDOW] = "memory window error",
    [WEFT__NIC_BAD_RESPONSE] = "bad response",
    [WEFT__NIC_LOCAL_ACCESS] = "access error at the initiator",
    [WEFT__NIC_REMOTE_REQUEST] = "invalid request at the target",
    [WEFT__NIC_REMOTE_ACCESS] = "remote memory that is not registered for it",
    [WEFT__NIC_REMOTE_OPERATION] = "the target failed",
    [WEFT__NIC_RETRIES] = "transport retries exceeded",
    [WEFT__NIC_RECEIVER_RETRIES] = "the target has no receive: retries exceeded",
    [WEFT__NIC_REMOTE_ABORTED] = "the target aborted",
};

const char *weft__nic_syndrome_text(uint32_t syndrome)
{
    const char *text = syndrome < sizeof texts / sizeof *texts ? texts[syndrome] : NULL;
    return text != NULL ? text : "unknown syndrome";
}

void weft__nic_cause_text(const struct weft__nic_cause *cause, char text[WEFT__NIC_CAUSE_BYTES])
{
    snprintf(text, WEFT__NIC_CAUSE_BYTES, "%s (0x%02x, vendor 0x%02x), QP 0x%x, unit %" PRIu64,
             weft__nic_syndrome_text(cause->syndrome), cause->syndrome, cause->vendor_syndrome,
             cause->qp, cause->unit);
}
