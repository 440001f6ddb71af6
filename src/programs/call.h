/* SPDX-License-Identifier: MIT */
/*
 * The record of a rank's call, by which ranks find out that their calls do not fit together.
 * Messages (exchange.h), chunks (ring.h) and the counts of notify (internode_notify.h) carry all of
 * it. Collectives say all that they have to say in its head, which goes in packets (packet_area.h).
 * A difference is a field and its two values, whichever way they came; launch/mismatch.c puts it into
 * words.
 */
#pragma once

#include "machine/machine.h"

/* The operations beside the collectives, whose numbers are those of weft_collective. */
enum wp_operation_kind {
    WP_OPERATION_BARRIER = 128,
    WP_OPERATION_NOTIFY,
    WP_OPERATION_DISPATCH,
    WP_OPERATION_COMBINE,
    WP_OPERATION_SEND,
    WP_OPERATION_ALL_TO_ALL_V,
    WP_OPERATION_END
};

/* Where the parts of a call's kind begin; each ends where the next one begins. All are below bit
 * 60, as wp_packets_send_words wants words. */
enum wp_call_part {
    WP_CALL_ALGORITHM_BIT = 0, /* weft_algorithm, of collectives */
    WP_CALL_OPERATION_BIT = 8, /* weft_collective or enum wp_operation_kind */
    WP_CALL_DTYPE_BIT = 16,
    WP_CALL_OP_BIT = 24,
    WP_CALL_OPTIONS_BIT = 28, /* enum wp_call_option */
    WP_CALL_NUM_PLANES_BIT = 32,
    WP_CALL_NUM_TOPK_BIT = 36,
    WP_CALL_ROOT_BIT = 44,
    WP_CALL_END_BIT = 60
};

enum wp_call_option {
    WP_OPTION_TOPK_IDX = 1,
    WP_OPTION_TOPK_WEIGHTS = 2,
    WP_OPTION_INT64 = 4,
    /* The rank neither sends nor holds rows: whatever options the others use suit it. */
    WP_OPTION_NO_ROWS = 8
};

/* All that collectives say. */
struct wp_call_head {
    uint64_t kind; /* enum wp_call_part */
    /* That go from the one rank to the other, or would if it were the root; of a piece, all the
     * row's, with WP_CALL_IS_PIECE. 0 in expert parallelism. */
    uint64_t num_bytes;
};

/* Whether it is the whole operation, or one of several pieces that are staged. */
#define WP_CALL_IS_PIECE_BIT 63
#define WP_CALL_IS_PIECE     (UINT64_C(1) << WP_CALL_IS_PIECE_BIT)

struct wp_call {
    struct wp_call_head head;
    uint32_t row_bytes[WEFT_MAX_PLANES];
    uint32_t max_tokens;  /* of a handle; between nodes only */
    uint32_t num_experts; /* of a handle */
};

/* The fields as they are compared, and as failures tell them. */
enum wp_call_field {
    WP_CALL_KIND = 0,
    WP_CALL_NUM_BYTES,
    WP_CALL_ROW_BYTES, /* of plane 0; those of the others follow */
    WP_CALL_MAX_TOKENS = WP_CALL_ROW_BYTES + WEFT_MAX_PLANES,
    WP_CALL_NUM_EXPERTS,
    WP_NUM_CALL_FIELDS
};
/* A failure about WP_CALL_NUM_BYTES has the dtype above the field: messages count in elements. */
#define WP_CALL_FIELD_DTYPE_BIT 16

/* ------------------------------------------------------------------ its parts */

WP_FN uint64_t wp_call_part(uint64_t word, int32_t first_bit, int32_t end_bit)
{
    return word >> first_bit & ((UINT64_C(1) << (end_bit - first_bit)) - 1);
}

WP_FN uint32_t wp_call_options(const struct wp_call *call)
{
    return (uint32_t)wp_call_part(call->head.kind, WP_CALL_OPTIONS_BIT, WP_CALL_NUM_PLANES_BIT);
}

WP_FN uint64_t wp_expert_id_bytes(uint32_t options)
{
    return options & WP_OPTION_INT64 ? sizeof(int64_t) : sizeof(int32_t);
}

WP_FN int32_t wp_call_num_planes(const struct wp_call *call)
{
    return (int32_t)wp_call_part(call->head.kind, WP_CALL_NUM_PLANES_BIT, WP_CALL_NUM_TOPK_BIT);
}

WP_FN int32_t wp_call_num_topk(const struct wp_call *call)
{
    return (int32_t)wp_call_part(call->head.kind, WP_CALL_NUM_TOPK_BIT, WP_CALL_ROOT_BIT);
}

WP_FN weft_dtype wp_call_dtype(const struct wp_call *call)
{
    return (weft_dtype)wp_call_part(call->head.kind, WP_CALL_DTYPE_BIT, WP_CALL_OP_BIT);
}

/* ------------------------------------------------------------------ comparison */

WP_FN uint64_t wp_call_value(const struct wp_call *call, int32_t field)
{
    if (field < WP_CALL_ROW_BYTES)
        return field == WP_CALL_KIND ? call->head.kind : call->head.num_bytes;
    if (field < WP_CALL_MAX_TOKENS)
        return call->row_bytes[field - WP_CALL_ROW_BYTES];
    return field == WP_CALL_MAX_TOKENS ? call->max_tokens : call->num_experts;
}

/* The bits in which two ranks' values of a field differ. A rank without rows fits any options. */
WP_FN uint64_t wp_call_differing_bits(int32_t field, uint64_t ours, uint64_t theirs)
{
    const uint64_t options =
        (UINT64_C(1) << WP_CALL_NUM_PLANES_BIT) - (UINT64_C(1) << WP_CALL_OPTIONS_BIT);
    const uint64_t no_rows = (uint64_t)WP_OPTION_NO_ROWS << WP_CALL_OPTIONS_BIT;
    const int any_options_fit = field == WP_CALL_KIND && ((ours | theirs) & no_rows) != 0;
    return (ours ^ theirs) & ~(any_options_fit ? options : 0);
}

/* Warp-wide: the first field in which the calls differ, or WP_NUM_CALL_FIELDS. */
WP_FN int32_t wp_call_difference(struct wp_warp *warp, const struct wp_call *ours,
                                 const struct wp_call *theirs)
{
    uint32_t num_from_first = 0;
    for (int32_t field = wp_lane_idx(warp); field < WP_NUM_CALL_FIELDS; field += WP_WARP_SIZE)
        if (num_from_first == 0 && wp_call_differing_bits(field, wp_call_value(ours, field),
                                                          wp_call_value(theirs, field)) != 0)
            num_from_first = (uint32_t)(WP_NUM_CALL_FIELDS - field);
    return WP_NUM_CALL_FIELDS - (int32_t)wp_max_u32(warp, num_from_first);
}

/* The failure of a launch that has received another call than it expected, of kind `kind`. */
WP_FN struct wp_failure wp_call_mismatch(struct wp_wait_site site, int32_t field, uint64_t kind,
                                         uint64_t expected, uint64_t seen)
{
    const uint64_t dtype =
        field == WP_CALL_NUM_BYTES ? wp_call_part(kind, WP_CALL_DTYPE_BIT, WP_CALL_OP_BIT) : 0;
    const uint32_t told = (uint32_t)field | (uint32_t)dtype << WP_CALL_FIELD_DTYPE_BIT;
    const struct wp_failure mismatch = {WP_FAILURE_MISMATCH, site, told, expected, seen};
    return mismatch;
}

/* Warp-wide: fails the launch if a call that came is not the one that was expected. */
WP_FN enum wp_status wp_call_check(struct wp_warp *warp, struct wp_wait_site site,
                                   const struct wp_call *expected, const struct wp_call *seen)
{
    const int32_t field = wp_call_difference(warp, expected, seen);
    if (field == WP_NUM_CALL_FIELDS)
        return WP_STATUS_OK;
    const struct wp_failure mismatch =
        wp_call_mismatch(site, field, expected->head.kind, wp_call_value(expected, field),
                         wp_call_value(seen, field));
    return wp_fail(warp, &mismatch);
}

/* Warp-wide: fails the launch, whose head is not the one that came. Where the algorithms differ
 * because the bytes do, the bytes are told. */
WP_FN enum wp_status wp_call_head_fail(struct wp_warp *warp, struct wp_wait_site site,
                                       const struct wp_call_head *expected,
                                       const struct wp_call_head *seen)
{
    const int is_of_bytes = (expected->kind ^ seen->kind) >> WP_CALL_OPERATION_BIT == 0 &&
                            expected->num_bytes != seen->num_bytes;
    const struct wp_failure mismatch =
        wp_call_mismatch(site, is_of_bytes ? WP_CALL_NUM_BYTES : WP_CALL_KIND, expected->kind,
                         is_of_bytes ? expected->num_bytes : expected->kind,
                         is_of_bytes ? seen->num_bytes : seen->kind);
    return wp_fail(warp, &mismatch);
}

/* Warp-wide: writes a call where it will be sent from. */
WP_FN void wp_call_write(struct wp_warp *warp, struct wp_call *to, const struct wp_call *call)
{
    for (int32_t plane = wp_lane_idx(warp); plane < WEFT_MAX_PLANES; plane += WP_WARP_SIZE)
        to->row_bytes[plane] = call->row_bytes[plane];
    if (wp_lane_idx(warp) == 0) {
        to->head.kind = call->head.kind;
        to->head.num_bytes = call->head.num_bytes;
        to->max_tokens = call->max_tokens;
        to->num_experts = call->num_experts;
    }
}
