/* SPDX-License-Identifier: MIT */
#include "ops/mismatch.h"

#include <stdio.h>
#include <string.h>

#include "ops/names.h"
#include "ops/programs.h"
#include "programs/packet_area.h"

static int is_program(const struct weft__program *program, enum weft_program number)
{
    return strcmp(program->name, weft__program_name(number)) == 0;
}

static void write_number(uint64_t value, char *text, size_t text_bytes)
{
    snprintf(text, text_bytes, "%llu", (unsigned long long)value);
}

static const char *dtype_name(uint64_t dtype)
{
    return weft__constant_name(WEFT__ENUM_DTYPE, (int64_t)dtype);
}

/* ---------------------------------------------------------------- collectives */

static int is_collective(const struct weft__program *program)
{
    for (int i = WEFT_PROGRAM_packet_reduce; i <= WEFT_PROGRAM_direct_push; i++) {
        if (is_program(program, (enum weft_program)i))
            return 1;
    }
    return 0;
}

/* The parts of a header's words, in the order in which they are named. */
struct part {
    const char *name;
    enum weft_header_field word;
    uint32_t first_bit, num_bits;
    const char *(*value_name)(uint64_t value); /* NULL: it is a number */
};

static const char *reduce_op_name(uint64_t op)
{
    return weft__constant_name(WEFT__ENUM_REDUCE_OP, (int64_t)op);
}

static const char *yes_or_no(uint64_t value)
{
    return value ? "yes" : "no";
}

/* The same programs do several algorithms: this one, or the like. */
static const char *algorithm_name(uint64_t program)
{
    switch (program) {
    case WEFT_PROGRAM_packet_reduce:
    case WEFT_PROGRAM_packet_exchange:
        return "oneshot";
    case WEFT_PROGRAM_packet_two_step:
        return "twoshot_packets";
    case WEFT_PROGRAM_direct_reduce:
        return "oneshot_pull or twoshot";
    case WEFT_PROGRAM_direct_push:
        return "push";
    default:
        return "?";
    }
}

static const struct part parts[] = {
    {"the operation", WEFT_HEADER_KIND, WEFT_KIND_COLLECTIVE_BIT, 8, weft__collective_name},
    {"dtype", WEFT_HEADER_KIND, WEFT_KIND_DTYPE_BIT, 8, dtype_name},
    {"op", WEFT_HEADER_KIND, WEFT_KIND_OP_BIT, 8, reduce_op_name},
    {"root", WEFT_HEADER_KIND, WEFT_KIND_ROOT_BIT, 32, NULL},
    {"the algorithm", WEFT_HEADER_KIND, WEFT_KIND_PROGRAM_BIT, 8, algorithm_name},
    {"count (its bytes between the two ranks)", WEFT_HEADER_NUM_BYTES, 0, WEFT_CALL_IS_PIECE_BIT,
     NULL},
    {"whether send and recv are staged in pieces (more than staging_bytes must be in the heap, or "
     "registered, on all ranks or on none)",
     WEFT_HEADER_NUM_BYTES, WEFT_CALL_IS_PIECE_BIT, 1, yes_or_no},
};

static uint64_t part_value(const struct part *part, uint64_t word)
{
    return word >> part->first_bit & ((UINT64_C(1) << part->num_bits) - 1);
}

static const struct part *first_difference(const struct weft_failure *failure)
{
    const struct part *part = parts;
    while (part->word != failure->field ||
           part_value(part, failure->expected) == part_value(part, failure->seen))
        part++;
    return part;
}

static void write_part(const struct part *part, uint64_t word, char *text, size_t text_bytes)
{
    const uint64_t value = part_value(part, word);
    if (part->value_name != NULL)
        snprintf(text, text_bytes, "%s", part->value_name(value));
    else
        write_number(value, text, text_bytes);
}

static void describe_collectives(const struct weft_failure *failure,
                                 struct weft__mismatch *mismatch)
{
    const struct part *part = first_difference(failure);
    snprintf(mismatch->field, sizeof mismatch->field, "%s", part->name);
    write_part(part, failure->expected, mismatch->ours, sizeof mismatch->ours);
    write_part(part, failure->seen, mismatch->theirs, sizeof mismatch->theirs);
}

/* ---------------------------------------------------------------- expert parallelism and barriers */

static void write_field_name(const struct weft__program *program, uint32_t field, char *name,
                             size_t name_bytes)
{
    static const char *const names[] = {
        [WEFT_CALL_PROGRAM] = "the operation",
        [WEFT_CALL_NUM_TOPK] = "num_topk",
        [WEFT_CALL_DTYPE] = "dtype",
        [WEFT_CALL_OPTIONS] = "which of topk_idx, topk_weights and WEFT_INT64 indices are given",
        [WEFT_CALL_MAX_TOKENS] = "max_tokens of the handle",
        [WEFT_CALL_NUM_PLANES] = "num_planes",
    };
    if (field < WEFT_CALL_ROW_BYTES)
        snprintf(name, name_bytes, "%s", names[field]);
    else if (is_program(program, WEFT_PROGRAM_combine) ||
             is_program(program, WEFT_PROGRAM_internode_combine))
        snprintf(name, name_bytes, "the bytes of a row (hidden times those of dtype)");
    else
        snprintf(name, name_bytes, "row_bytes of plane %u", field - WEFT_CALL_ROW_BYTES);
}

static void write_options(uint64_t options, char *text, size_t text_bytes)
{
    const char *idx = "";
    if (options & WEFT_OPTION_TOPK_IDX)
        idx = options & WEFT_OPTION_INT64 ? "topk_idx of WEFT_INT64" : "topk_idx of WEFT_INT32";
    const char *weights = options & WEFT_OPTION_TOPK_WEIGHTS ? "topk_weights" : "";
    const char *both = idx[0] != '\0' && weights[0] != '\0' ? " and " : "";
    snprintf(text, text_bytes, "%s%s%s", idx, both, weights);
    if (text[0] == '\0')
        snprintf(text, text_bytes, "neither");
}

static void write_value(uint32_t field, uint64_t value, char *text, size_t text_bytes)
{
    if (field == WEFT_CALL_PROGRAM)
        snprintf(text, text_bytes, "%s", weft__program_calls(value));
    else if (field == WEFT_CALL_OPTIONS)
        write_options(value, text, text_bytes);
    else if (field == WEFT_CALL_DTYPE)
        snprintf(text, text_bytes, "%s", dtype_name(value));
    else
        write_number(value, text, text_bytes);
}

/* ---------------------------------------------------------------- all */

void weft__mismatch_describe(const struct weft__program *program,
                             const struct weft_failure *failure, struct weft__mismatch *mismatch)
{
    if (is_collective(program)) {
        describe_collectives(failure, mismatch);
        return;
    }
    write_field_name(program, failure->field, mismatch->field, sizeof mismatch->field);
    write_value(failure->field, failure->expected, mismatch->ours, sizeof mismatch->ours);
    write_value(failure->field, failure->seen, mismatch->theirs, sizeof mismatch->theirs);
}
