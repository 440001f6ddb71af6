/* SPDX-License-Identifier: MIT */
#include "net/nic/model_rules.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define ROW(rule, ...) [WEFT__NIC_RULE_##rule] = {__VA_ARGS__}

/* The text of what is allowed ends with the finding's number where it ends with "0x". */
static const struct row {
    const char *field, *allowed;
    enum weft__nic_syndrome syndrome;
} rows[WEFT__NIC_NUM_RULES] = {
    [WEFT__NIC_FINE] = {"nothing", "anything", WEFT__NIC_NO_SYNDROME},
    ROW(INDEX, "index", "that of its place, 0x", WEFT__NIC_LOCAL_OPERATION),
    ROW(OPCODE, "opcode", "NOP, WRITE, WRITE_IMM, READ, FETCH_ADD or DUMP",
        WEFT__NIC_LOCAL_OPERATION),
    ROW(MODIFIER, "opcode modifier", "0x", WEFT__NIC_LOCAL_OPERATION),
    ROW(QP, "QP number", "that of the queue, 0x", WEFT__NIC_LOCAL_OPERATION),
    ROW(SEGMENTS, "number of segments", "what the opcode needs, 0x", WEFT__NIC_LOCAL_OPERATION),
    ROW(SIGNATURE, "signature", "0x", WEFT__NIC_LOCAL_OPERATION),
    ROW(STREAM, "stream", "0x", WEFT__NIC_LOCAL_OPERATION),
    ROW(FENCE, "fence mode", "0 or 4", WEFT__NIC_LOCAL_OPERATION),
    ROW(COMPLETION, "completion mode", "0 or 2", WEFT__NIC_LOCAL_OPERATION),
    ROW(SOLICITED, "solicited bit", "0x", WEFT__NIC_LOCAL_OPERATION),
    ROW(FLAGS, "unused flags", "0x", WEFT__NIC_LOCAL_OPERATION),
    ROW(IMMEDIATE, "immediate", "0 but for WRITE_IMM", WEFT__NIC_LOCAL_OPERATION),
    ROW(REMOTE_UNUSED, "unused word of the remote address", "0x", WEFT__NIC_LOCAL_OPERATION),
    ROW(BYTES, "byte count", "1 to 0x", WEFT__NIC_LOCAL_OPERATION),
    ROW(INLINE, "inline bit", "0 but for writes", WEFT__NIC_LOCAL_OPERATION),
    ROW(INLINE_BYTES, "inline byte count", "1 to 0x", WEFT__NIC_LOCAL_OPERATION),
    ROW(SINK_BYTES, "byte count of an atomic's result", "0x", WEFT__NIC_LOCAL_OPERATION),
    ROW(LOCAL_KEY, "local key", "that of a region", WEFT__NIC_LOCAL_PROTECTION),
    ROW(LOCAL_RANGE, "local address", "all bytes in the region, which begins at 0x",
        WEFT__NIC_LOCAL_PROTECTION),
    ROW(LOCAL_RIGHTS, "right of local memory", "those of the region, 0x",
        WEFT__NIC_LOCAL_PROTECTION),
    ROW(REMOTE_KEY, "remote key", "that of a region of the target", WEFT__NIC_REMOTE_ACCESS),
    ROW(REMOTE_RANGE, "remote address", "all bytes in the region, which begins at 0x",
        WEFT__NIC_REMOTE_ACCESS),
    ROW(REMOTE_RIGHTS, "right of remote memory", "those of the region, 0x",
        WEFT__NIC_REMOTE_ACCESS),
    ROW(ALIGNMENT, "address of an atomic", "multiples of 0x", WEFT__NIC_REMOTE_REQUEST),
    ROW(RECEIVE, "immediate", "none where the target has no receive", WEFT__NIC_RECEIVER_RETRIES),
    ROW(KINDS, "kind of memory with writes that the add counts", "that of the word, 0x",
        WEFT__NIC_NO_SYNDROME),
    ROW(DUMP_EARLY, "number of READs and atomics under way as a DUMP starts",
        "none without a fence", WEFT__NIC_NO_SYNDROME),
    ROW(DOORBELL_QP, "QP number of a doorbell", "that of a queue", WEFT__NIC_NO_SYNDROME),
    ROW(DOORBELL_MODIFIER, "first byte of a doorbell", "0x", WEFT__NIC_NO_SYNDROME),
    ROW(DOORBELL_OPCODE, "opcode of a doorbell", "0, or that of a WQE", WEFT__NIC_NO_SYNDROME),
    ROW(DOORBELL_SEGMENTS, "last byte of a doorbell", "0, or the segments of its WQE: up to 0x",
        WEFT__NIC_NO_SYNDROME),
    ROW(DOORBELL_AHEAD, "index of a doorbell", "what the record announces, 0x",
        WEFT__NIC_NO_SYNDROME),
    ROW(RECORD_UPPER, "upper half of the doorbell record", "0x", WEFT__NIC_NO_SYNDROME),
    ROW(RECORD_BACK, "doorbell record", "not less than before, 0x", WEFT__NIC_NO_SYNDROME),
    ROW(RECORD_PASSES, "doorbell record", "the queue's length beyond what a CQE has told: up to 0x",
        WEFT__NIC_NO_SYNDROME),
    ROW(FIRST_RECORD, "doorbell record of a new queue", "0x", WEFT__NIC_NO_SYNDROME),
    ROW(LAST_SILENT, "completion mode of the last WQE of a ring", "0x", WEFT__NIC_NO_SYNDROME),
    ROW(UNIT_CHANGED, "segment that was written before its completion", "none",
        WEFT__NIC_NO_SYNDROME),
    ROW(SOURCE_CHANGED, "local address that was written before the completion", "none",
        WEFT__NIC_NO_SYNDROME),
    ROW(CQ_OVERRUN, "entries of the completion queue", "up to 0x", WEFT__NIC_NO_SYNDROME),
    ROW(FIRST_CQE, "last word of an entry of a new completion queue", "0x", WEFT__NIC_NO_SYNDROME),
};

enum weft__nic_syndrome weft__nic_rule_syndrome(enum weft__nic_rule rule)
{
    return rows[rule].syndrome;
}

void weft__nic_finding_text(const struct weft__nic_finding *finding,
                            char text[WEFT__NIC_FINDING_BYTES])
{
    const struct row *row = &rows[finding->rule];
    const size_t length = strlen(row->allowed);
    const int has_number = length >= 2 && strcmp(row->allowed + length - 2, "0x") == 0;
    char number[24] = "";
    if (has_number)
        snprintf(number, sizeof number, "%" PRIx64, finding->allowed);
    snprintf(text, WEFT__NIC_FINDING_BYTES,
             "QP 0x%x, unit %" PRIu64 ": %s is 0x%" PRIx64 "; allowed: %s%s", finding->qp,
             finding->index, row->field, finding->value, row->allowed, number);
}
