/* SPDX-License-Identifier: MIT */
/*
 * What a rank called: one record, by which ranks find out that their calls do not fit together.
 * Messages (exchange.h), chunks (ring.h) and the counts of notify (internode_notify.h) carry all of
 * it. Collectives say all that they have to say in its head, which goes in packets (packet_area.h).
 * A difference is a field and its two values, whichever way they came; ops/mismatch.c puts it into
 * words.
 */
#ifndef WEFT_PROGRAMS_CALL_H
#define WEFT_PROGRAMS_CALL_H

#include "machine/machine.h"

/* The operations beside the collectives, whose numbers are those of weft_collective. */
enum weft_operation_kind {
    WEFT_OPERATION_BARRIER = 128,
    WEFT_OPERATION_NOTIFY,
    WEFT_OPERATION_DISPATCH,
    WEFT_OPERATION_COMBINE,
    WEFT_OPERATION_END
};

/* Where the parts of a call's kind begin; each ends where the next one begins. All are below bit
 * 60, as weft_packets_send_words wants words. */
enum weft_call_part {
    WEFT_CALL_ALGORITHM_BIT = 0, /* weft_algorithm, of collectives */
    WEFT_CALL_OPERATION_BIT = 8, /* weft_collective or enum weft_operation_kind */
    WEFT_CALL_DTYPE_BIT = 16,
    WEFT_CALL_OP_BIT = 24,
    WEFT_CALL_OPTIONS_BIT = 28, /* enum weft_call_option */
    WEFT_CALL_NUM_PLANES_BIT = 32,
    WEFT_CALL_NUM_TOPK_BIT = 36,
    WEFT_CALL_ROOT_BIT = 44,
    WEFT_CALL_END_BIT = 60
};

enum weft_call_option {
    WEFT_OPTION_TOPK_IDX = 1,
    WEFT_OPTION_TOPK_WEIGHTS = 2,
    WEFT_OPTION_INT64 = 4,
    /* The rank neither sends nor holds rows: whatever options the others use suit it. */
    WEFT_OPTION_NO_ROWS = 8
};

/* All that collectives say. */
struct weft_call_head {
    uint64_t kind; /* enum weft_call_part */
    /* That go from the one rank to the other, or would if it were the root; of a piece, all the
     * row's, with WEFT_CALL_IS_PIECE. 0 in expert parallelism. */
    uint64_t num_bytes;
};

/* Whether it is the whole operation, or one of several pieces that are staged. */
#define WEFT_CALL_IS_PIECE_BIT 63
#define WEFT_CALL_IS_PIECE     (UINT64_C(1) << WEFT_CALL_IS_PIECE_BIT)

struct weft_call {
    struct weft_call_head head;
    uint32_t row_bytes[WEFT_MAX_PLANES];
    uint32_t max_tokens;  /* of a handle; between nodes only */
    uint32_t num_experts; /* of a handle */
};

/* The fields as they are compared, and as failures tell them. */
enum weft_call_field {
    WEFT_CALL_KIND = 0,
    WEFT_CALL_NUM_BYTES,
    WEFT_CALL_ROW_BYTES, /* of plane 0; those of the others follow */
    WEFT_CALL_MAX_TOKENS = WEFT_CALL_ROW_BYTES + WEFT_MAX_PLANES,
    WEFT_CALL_NUM_EXPERTS,
    WEFT_NUM_CALL_FIELDS
};

/* ------------------------------------------------------------------ its parts */

WEFT_FN uint64_t weft_call_part(uint64_t word, int32_t first_bit, int32_t end_bit)
{
    return word >> first_bit & ((UINT64_C(1) << (end_bit - first_bit)) - 1);
}

WEFT_FN uint32_t weft_call_options(const struct weft_call *call)
{
    return (uint32_t)weft_call_part(call->head.kind, WEFT_CALL_OPTIONS_BIT,
                                    WEFT_CALL_NUM_PLANES_BIT);
}

WEFT_FN int32_t weft_call_num_planes(const struct weft_call *call)
{
    return (int32_t)weft_call_part(call->head.kind, WEFT_CALL_NUM_PLANES_BIT,
                                   WEFT_CALL_NUM_TOPK_BIT);
}

WEFT_FN int32_t weft_call_num_topk(const struct weft_call *call)
{
    return (int32_t)weft_call_part(call->head.kind, WEFT_CALL_NUM_TOPK_BIT, WEFT_CALL_ROOT_BIT);
}

WEFT_FN weft_dtype weft_call_dtype(const struct weft_call *call)
{
    return (weft_dtype)weft_call_part(call->head.kind, WEFT_CALL_DTYPE_BIT, WEFT_CALL_OP_BIT);
}

/* ------------------------------------------------------------------ comparison */

WEFT_FN uint64_t weft_call_value(const struct weft_call *call, int32_t field)
{
    if (field < WEFT_CALL_ROW_BYTES)
        return field == WEFT_CALL_KIND ? call->head.kind : call->head.num_bytes;
    if (field < WEFT_CALL_MAX_TOKENS)
        return call->row_bytes[field - WEFT_CALL_ROW_BYTES];
    return field == WEFT_CALL_MAX_TOKENS ? call->max_tokens : call->num_experts;
}

/* The bits in which two ranks' values of a field differ. A rank without rows fits any options. */
WEFT_FN uint64_t weft_call_differing_bits(int32_t field, uint64_t ours, uint64_t theirs)
{
    const uint64_t options =
        (UINT64_C(1) << WEFT_CALL_NUM_PLANES_BIT) - (UINT64_C(1) << WEFT_CALL_OPTIONS_BIT);
    const uint64_t no_rows = (uint64_t)WEFT_OPTION_NO_ROWS << WEFT_CALL_OPTIONS_BIT;
    const int any_options_fit = field == WEFT_CALL_KIND && ((ours | theirs) & no_rows) != 0;
    return (ours ^ theirs) & ~(any_options_fit ? options : 0);
}

/* Warp-wide: the first field in which the calls differ, or WEFT_NUM_CALL_FIELDS. */
WEFT_FN int32_t weft_call_difference(struct weft_warp *warp, const struct weft_call *ours,
                                     const struct weft_call *theirs)
{
    uint32_t num_from_first = 0;
    for (int32_t field = weft_lane_idx(warp); field < WEFT_NUM_CALL_FIELDS; field += WEFT_WARP_SIZE)
        if (num_from_first == 0 && weft_call_differing_bits(field, weft_call_value(ours, field),
                                                            weft_call_value(theirs, field)) != 0)
            num_from_first = (uint32_t)(WEFT_NUM_CALL_FIELDS - field);
    return WEFT_NUM_CALL_FIELDS - (int32_t)weft_max_u32(warp, num_from_first);
}

/* The failure of a launch that has received another call than it expected. */
WEFT_FN struct weft_failure weft_call_mismatch(struct weft_wait_site site, int32_t field,
                                               uint64_t expected, uint64_t seen)
{
    const struct weft_failure mismatch = {WEFT_FAILURE_MISMATCH, site, (uint32_t)field, expected,
                                          seen};
    return mismatch;
}

/* Warp-wide: fails the launch if a call that came is not the one that was expected. */
WEFT_FN enum weft_status weft_call_check(struct weft_warp *warp, struct weft_wait_site site,
                                         const struct weft_call *expected,
                                         const struct weft_call *seen)
{
    const int32_t field = weft_call_difference(warp, expected, seen);
    if (field == WEFT_NUM_CALL_FIELDS)
        return WEFT_STATUS_OK;
    const struct weft_failure mismatch = weft_call_mismatch(
        site, field, weft_call_value(expected, field), weft_call_value(seen, field));
    return weft_fail(warp, &mismatch);
}

/* Warp-wide: fails the launch, whose head is not the one that came. Where the algorithms differ
 * because the bytes do, the bytes are told. */
WEFT_FN enum weft_status weft_call_head_fail(struct weft_warp *warp, struct weft_wait_site site,
                                             const struct weft_call_head *expected,
                                             const struct weft_call_head *seen)
{
    const int is_of_bytes = (expected->kind ^ seen->kind) >> WEFT_CALL_OPERATION_BIT == 0 &&
                            expected->num_bytes != seen->num_bytes;
    const struct weft_failure mismatch =
        weft_call_mismatch(site, is_of_bytes ? WEFT_CALL_NUM_BYTES : WEFT_CALL_KIND,
                           is_of_bytes ? expected->num_bytes : expected->kind,
                           is_of_bytes ? seen->num_bytes : seen->kind);
    return weft_fail(warp, &mismatch);
}

/* Warp-wide: writes a call where it will be sent from. */
WEFT_FN void weft_call_write(struct weft_warp *warp, struct weft_call *to,
                             const struct weft_call *call)
{
    for (int32_t plane = weft_lane_idx(warp); plane < WEFT_MAX_PLANES; plane += WEFT_WARP_SIZE)
        to->row_bytes[plane] = call->row_bytes[plane];
    if (weft_lane_idx(warp) == 0) {
        to->head.kind = call->head.kind;
        to->head.num_bytes = call->head.num_bytes;
        to->max_tokens = call->max_tokens;
        to->num_experts = call->num_experts;
    }
}

#endif
