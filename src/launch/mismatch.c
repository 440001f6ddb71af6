/* SPDX-License-Identifier: MIT */
#include "launch/mismatch.h"

#include <stdio.h>
#include <string.h>

#include "comm/calls.h"
#include "launch/names.h"
#include "programs/call.h"

/* ---------------------------------------------------------------- values in words */

typedef void write_fn(uint64_t value, char *text, size_t text_bytes);

static void write_number(uint64_t value, char *text, size_t text_bytes)
{
    snprintf(text, text_bytes, "%llu", (unsigned long long)value);
}

/* A number that no rank of this version sends stays a number. */
static void write_name(const char *name, uint64_t value, char *text, size_t text_bytes)
{
    if (strcmp(name, "?") == 0)
        write_number(value, text, text_bytes);
    else
        snprintf(text, text_bytes, "%s", name);
}

static void write_operation(uint64_t operation, char *text, size_t text_bytes)
{
    /* From WP_OPERATION_BARRIER on. */
    static const enum weft__call others[WP_OPERATION_END - WP_OPERATION_BARRIER] = {
        WEFT__CALL_COMM_BARRIER, WEFT__CALL_EP_NOTIFY, WEFT__CALL_EP_DISPATCH,
        WEFT__CALL_EP_COMBINE,   WEFT__CALL_COLL_SEND, WEFT__CALL_ALL_TO_ALL_V};
    if (operation < WEFT__NUM_COLLECTIVES)
        snprintf(text, text_bytes, "%s",
                 weft__call_name((int32_t)WEFT__CALL_ALL_REDUCE + (int32_t)operation));
    else if (operation >= WP_OPERATION_BARRIER && operation < WP_OPERATION_END)
        snprintf(text, text_bytes, "%s",
                 weft__call_name((int32_t)others[operation - WP_OPERATION_BARRIER]));
    else
        write_number(operation, text, text_bytes);
}

static void write_dtype(uint64_t dtype, char *text, size_t text_bytes)
{
    write_name(weft__constant_name(WEFT__ENUM_DTYPE, (int64_t)dtype), dtype, text, text_bytes);
}

static void write_op(uint64_t op, char *text, size_t text_bytes)
{
    write_name(weft__constant_name(WEFT__ENUM_REDUCE_OP, (int64_t)op), op, text, text_bytes);
}

static void write_algorithm(uint64_t algorithm, char *text, size_t text_bytes)
{
    write_name(weft__algorithm_name(algorithm), algorithm, text, text_bytes);
}

static void write_yes_or_no(uint64_t value, char *text, size_t text_bytes)
{
    snprintf(text, text_bytes, "%s", value ? "yes" : "no");
}

static void write_options(uint64_t options, char *text, size_t text_bytes)
{
    const char *idx = "";
    if (options & WP_OPTION_TOPK_IDX)
        idx = options & WP_OPTION_INT64 ? "topk_idx of WEFT_INT64" : "topk_idx of WEFT_INT32";
    const char *weights = options & WP_OPTION_TOPK_WEIGHTS ? "topk_weights" : "";
    const char *both = idx[0] != '\0' && weights[0] != '\0' ? " and " : "";
    snprintf(text, text_bytes, "%s%s%s", idx, both, weights);
    if (idx[0] == '\0' && (options & WP_OPTION_INT64))
        write_number(options, text, text_bytes); /* which no rank of this version sends, either */
    else if (text[0] == '\0')
        snprintf(text, text_bytes, "neither");
}

/* ---------------------------------------------------------------- the parts of a call */

struct part {
    const char *name;
    uint32_t field; /* enum wp_call_field */
    int32_t first_bit, end_bit;
    write_fn *write;
};

#define ROW_BYTES(plane)                                                                           \
    {                                                                                              \
        "row_bytes of plane " #plane, WP_CALL_ROW_BYTES + (plane), 0, 32, write_number             \
    }

/* In the order in which differences of one field are told. */
static const struct part parts[] = {
    {"the operation", WP_CALL_KIND, WP_CALL_OPERATION_BIT, WP_CALL_DTYPE_BIT, write_operation},
    {"num_topk", WP_CALL_KIND, WP_CALL_NUM_TOPK_BIT, WP_CALL_ROOT_BIT, write_number},
    {"dtype", WP_CALL_KIND, WP_CALL_DTYPE_BIT, WP_CALL_OP_BIT, write_dtype},
    {"op", WP_CALL_KIND, WP_CALL_OP_BIT, WP_CALL_OPTIONS_BIT, write_op},
    {"root", WP_CALL_KIND, WP_CALL_ROOT_BIT, WP_CALL_END_BIT, write_number},
    {"which of topk_idx, topk_weights and WEFT_INT64 indices are given", WP_CALL_KIND,
     WP_CALL_OPTIONS_BIT, WP_CALL_NUM_PLANES_BIT, write_options},
    {"num_planes", WP_CALL_KIND, WP_CALL_NUM_PLANES_BIT, WP_CALL_NUM_TOPK_BIT, write_number},
    {"the algorithm", WP_CALL_KIND, WP_CALL_ALGORITHM_BIT, WP_CALL_OPERATION_BIT, write_algorithm},
    {"count", WP_CALL_NUM_BYTES, 0, WP_CALL_IS_PIECE_BIT, write_number},
    {"whether send and recv are staged in pieces (more than staging_bytes must be in the heap, or "
     "registered, on all ranks or on none)",
     WP_CALL_NUM_BYTES, WP_CALL_IS_PIECE_BIT, WP_CALL_IS_PIECE_BIT + 1, write_yes_or_no},
    {"row_bytes of plane 0 (of weft_ep_combine: hidden times the bytes of dtype)",
     WP_CALL_ROW_BYTES, 0, 32, write_number},
    ROW_BYTES(1),
    ROW_BYTES(2),
    ROW_BYTES(3),
    ROW_BYTES(4),
    ROW_BYTES(5),
    ROW_BYTES(6),
    ROW_BYTES(7),
    {"max_tokens of the handle", WP_CALL_MAX_TOKENS, 0, 32, write_number},
    {"num_experts of the handle", WP_CALL_NUM_EXPERTS, 0, 32, write_number},
};
_Static_assert(WEFT_MAX_PLANES == 8, "each plane has its row");

static const struct part *first_difference(const struct wp_failure *failure, uint32_t field)
{
    const uint64_t differing_bits =
        wp_call_differing_bits((int32_t)field, failure->expected, failure->seen);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        if (parts[i].field == field &&
            wp_call_part(differing_bits, parts[i].first_bit, parts[i].end_bit) != 0)
            return &parts[i];
    }
    return NULL;
}

void weft__mismatch_describe(const struct wp_failure *failure, struct weft__mismatch *mismatch)
{
    const uint32_t field = failure->field & ((UINT32_C(1) << WP_CALL_FIELD_DTYPE_BIT) - 1);
    const weft_dtype dtype = (weft_dtype)(failure->field >> WP_CALL_FIELD_DTYPE_BIT);
    const struct part *part = first_difference(failure, field);
    uint64_t ours = failure->expected, theirs = failure->seen;
    if (part != NULL) { /* else it is in bits that no part has */
        ours = wp_call_part(ours, part->first_bit, part->end_bit);
        theirs = wp_call_part(theirs, part->first_bit, part->end_bit);
    }
    if (part != NULL && part->write == write_number && dtype != WEFT_DTYPE_NONE) {
        ours /= wp_dtype_bytes(dtype);
        theirs /= wp_dtype_bytes(dtype);
    }
    write_fn *const write = part != NULL ? part->write : write_number;
    snprintf(mismatch->field, sizeof mismatch->field, "%s",
             part != NULL ? part->name : "what they call");
    write(ours, mismatch->ours, sizeof mismatch->ours);
    write(theirs, mismatch->theirs, sizeof mismatch->theirs);
}
