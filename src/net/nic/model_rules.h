/* SPDX-License-Identifier: MIT */
/* The model of the NIC demands this of those who post, and says where they break it. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "net/nic/syndrome.h"

/* Each is a row of the table in model_rules.c. */
enum weft__nic_rule {
    WEFT__NIC_FINE,
    /* Fields of a WQE. */
    WEFT__NIC_RULE_INDEX,
    WEFT__NIC_RULE_OPCODE,
    WEFT__NIC_RULE_MODIFIER,
    WEFT__NIC_RULE_QP,
    WEFT__NIC_RULE_SEGMENTS,
    WEFT__NIC_RULE_SIGNATURE,
    WEFT__NIC_RULE_STREAM,
    WEFT__NIC_RULE_FENCE,
    WEFT__NIC_RULE_COMPLETION,
    WEFT__NIC_RULE_SOLICITED,
    WEFT__NIC_RULE_FLAGS,
    WEFT__NIC_RULE_IMMEDIATE,
    WEFT__NIC_RULE_REMOTE_UNUSED,
    WEFT__NIC_RULE_BYTES,
    WEFT__NIC_RULE_INLINE,
    WEFT__NIC_RULE_INLINE_BYTES,
    WEFT__NIC_RULE_SINK_BYTES,
    WEFT__NIC_RULE_LOCAL_KEY,
    WEFT__NIC_RULE_LOCAL_RANGE,
    WEFT__NIC_RULE_LOCAL_RIGHTS,
    /* The target's NIC finds these. */
    WEFT__NIC_RULE_REMOTE_KEY,
    WEFT__NIC_RULE_REMOTE_RANGE,
    WEFT__NIC_RULE_REMOTE_RIGHTS,
    WEFT__NIC_RULE_ALIGNMENT,
    WEFT__NIC_RULE_RECEIVE,
    WEFT__NIC_RULE_KINDS,
    /* Doorbells and records. */
    WEFT__NIC_RULE_DOORBELL_QP,
    WEFT__NIC_RULE_DOORBELL_MODIFIER,
    WEFT__NIC_RULE_DOORBELL_OPCODE,
    WEFT__NIC_RULE_DOORBELL_SEGMENTS,
    WEFT__NIC_RULE_DOORBELL_AHEAD,
    WEFT__NIC_RULE_RECORD_UPPER,
    WEFT__NIC_RULE_RECORD_BACK,
    WEFT__NIC_RULE_RECORD_PASSES,
    WEFT__NIC_RULE_FIRST_RECORD,
    /* Entries of queues, and when they are written. */
    WEFT__NIC_RULE_LAST_SILENT,
    WEFT__NIC_RULE_DUMP_EARLY,
    WEFT__NIC_RULE_UNIT_CHANGED,
    WEFT__NIC_RULE_SOURCE_CHANGED,
    WEFT__NIC_RULE_CQ_OVERRUN,
    WEFT__NIC_RULE_FIRST_CQE,
    WEFT__NIC_NUM_RULES
};

struct weft__nic_finding {
    enum weft__nic_rule rule;
    uint32_t qp;
    uint64_t index; /* of the unit */
    uint64_t value, allowed;
};

/* A NIC answers with it; 0 where the NIC would do something else than was meant, silently. */
enum weft__nic_syndrome weft__nic_rule_syndrome(enum weft__nic_rule rule);

enum { WEFT__NIC_FINDING_BYTES = 256 };
/* Field, value and what is allowed. */
void weft__nic_finding_text(const struct weft__nic_finding *finding,
                            char text[WEFT__NIC_FINDING_BYTES]);
