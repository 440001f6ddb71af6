/* SPDX-License-Identifier: MIT */
/* Calls of two ranks are compared in every part, and what differs is told in words. */
#include <string.h>

#include "harness/cmocka.h"
#include "launch/mismatch.h"
#include "programs/call.h"
#include "workload/rng.h"

#define KIND(part, value) ((uint64_t)(value) << WP_CALL_##part##_BIT)

static void set_field(struct wp_call *call, int32_t field, uint32_t value)
{
    if (field == WP_CALL_KIND)
        call->head.kind = value;
    else if (field == WP_CALL_NUM_BYTES)
        call->head.num_bytes = value;
    else if (field == WP_CALL_MAX_TOKENS)
        call->max_tokens = value;
    else if (field == WP_CALL_NUM_EXPERTS)
        call->num_experts = value;
    else
        call->row_bytes[field - WP_CALL_ROW_BYTES] = value;
}

TEST(the_first_field_that_differs_is_found)
{
    struct wp_call ours = {.max_tokens = 0}, theirs = ours;
    assert_int_equal(wp_call_difference(NULL, &ours, &theirs), WP_NUM_CALL_FIELDS);
    for (int32_t field = WP_NUM_CALL_FIELDS - 1; field >= 0; field--) {
        set_field(&theirs, field, 1);
        assert_int_equal(wp_call_difference(NULL, &ours, &theirs), field);
        assert_int_equal(wp_call_value(&theirs, field), 1);
    }
}

/* Whatever options the others use suit a rank without rows; anything else must fit all the same. */
TEST(options_of_a_rank_without_rows_fit_all)
{
    struct wp_call ours = {.max_tokens = 0}, theirs = ours;
    ours.head.kind = KIND(OPTIONS, WP_OPTION_NO_ROWS);
    theirs.head.kind = KIND(OPTIONS, WP_OPTION_TOPK_WEIGHTS);
    assert_int_equal(wp_call_difference(NULL, &ours, &theirs), WP_NUM_CALL_FIELDS);
    assert_int_equal(wp_call_difference(NULL, &theirs, &ours), WP_NUM_CALL_FIELDS);
    ours.max_tokens = 1;
    assert_int_equal(wp_call_difference(NULL, &ours, &theirs), WP_CALL_MAX_TOKENS);
    for (int32_t bit = 0; bit < 64; bit++) {
        if (KIND(OPTIONS, WP_OPTION_NO_ROWS) == UINT64_C(1) << bit)
            continue;
        const int is_option = bit >= WP_CALL_OPTIONS_BIT && bit < WP_CALL_NUM_PLANES_BIT;
        ours.head.kind ^= UINT64_C(1) << bit;
        assert_int_equal(wp_call_difference(NULL, &ours, &theirs),
                         is_option ? WP_CALL_MAX_TOKENS : WP_CALL_KIND);
        ours.head.kind ^= UINT64_C(1) << bit;
    }
}

/* ---------------------------------------------------------------- in words */

struct difference {
    uint32_t field;
    uint64_t ours, theirs;
    const char *name, *our_text, *their_text;
};

TEST(differences_are_told)
{
    static const struct difference all[] = {
        {WP_CALL_KIND, KIND(OPERATION, WP_OPERATION_DISPATCH),
         KIND(OPERATION, WP_OPERATION_COMBINE), "the operation", "weft_ep_dispatch",
         "weft_ep_combine"},
        {WP_CALL_KIND, KIND(OPERATION, WP_OPERATION_NOTIFY), KIND(OPERATION, WP_OPERATION_BARRIER),
         "the operation", "weft_ep_notify", "weft_comm_barrier"},
        {WP_CALL_KIND, KIND(OPERATION, WEFT_BROADCAST), KIND(OPERATION, WEFT_ALL_TO_ALL),
         "the operation", "weft_coll_broadcast", "weft_coll_all_to_all"},
        {WP_CALL_KIND, KIND(OPERATION, 255), KIND(OPERATION, WEFT_ALL_TO_ALL), "the operation",
         "255", "weft_coll_all_to_all"},
        {WP_CALL_KIND, KIND(NUM_TOPK, 64), KIND(NUM_TOPK, 1), "num_topk", "64", "1"},
        {WP_CALL_KIND, KIND(DTYPE, WEFT_BF16), KIND(DTYPE, WEFT_FP32), "dtype", "WEFT_BF16",
         "WEFT_FP32"},
        {WP_CALL_KIND, KIND(OP, WEFT_SUM), KIND(OP, WEFT_AVG), "op", "WEFT_SUM", "WEFT_AVG"},
        {WP_CALL_KIND, KIND(ROOT, 65535), KIND(ROOT, 2), "root", "65535", "2"},
        {WP_CALL_KIND, KIND(OPTIONS, WP_OPTION_TOPK_IDX | WP_OPTION_INT64),
         KIND(OPTIONS, WP_OPTION_TOPK_IDX | WP_OPTION_TOPK_WEIGHTS), "which of topk_idx",
         "topk_idx of WEFT_INT64", "topk_idx of WEFT_INT32 and topk_weights"},
        {WP_CALL_KIND, KIND(NUM_PLANES, 8), KIND(NUM_PLANES, 0), "num_planes", "8", "0"},
        {WP_CALL_KIND, KIND(ALGORITHM, WEFT_ALGORITHM_PUSH),
         KIND(ALGORITHM, WEFT_ALGORITHM_ONESHOT), "the algorithm", "push", "oneshot"},
        /* The operation comes first, and the algorithm last. */
        {WP_CALL_KIND, KIND(ALGORITHM, 1) | KIND(OPERATION, 1) | KIND(ROOT, 1), 0, "the operation",
         "weft_coll_reduce_scatter", "weft_coll_all_reduce"},
        {WP_CALL_KIND, KIND(ALGORITHM, 1) | KIND(ROOT, 1), 0, "root", "1", "0"},
        /* Options of a rank without rows are no difference, but the rest is. */
        {WP_CALL_KIND, KIND(OPTIONS, WP_OPTION_NO_ROWS) | KIND(NUM_PLANES, 1),
         KIND(OPTIONS, WP_OPTION_TOPK_IDX), "num_planes", "1", "0"},
        {WP_CALL_NUM_BYTES, 400, 20000, "count", "400", "20000"},
        {WP_CALL_NUM_BYTES | (uint32_t)WEFT_FP32 << WP_CALL_FIELD_DTYPE_BIT, 36, 32, "count", "9",
         "8"},
        {WP_CALL_NUM_BYTES, WP_CALL_IS_PIECE | 400, 20000, "count", "400", "20000"},
        {WP_CALL_NUM_BYTES | (uint32_t)WEFT_FP32 << WP_CALL_FIELD_DTYPE_BIT, 36, 32, "count", "9",
         "8"},
        {WP_CALL_NUM_BYTES, WP_CALL_IS_PIECE | 400, 400, "whether send and recv", "yes", "no"},
        {WP_CALL_ROW_BYTES, UINT32_MAX, 7, "row_bytes of plane 0", "4294967295", "7"},
        {WP_CALL_ROW_BYTES + 7, 1, 2, "row_bytes of plane 7", "1", "2"},
        {WP_CALL_MAX_TOKENS, 1, 2, "max_tokens of the handle", "1", "2"},
        {WP_CALL_NUM_EXPERTS, 256, 64, "num_experts of the handle", "256", "64"},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        const struct wp_failure failure = {.kind = WP_FAILURE_MISMATCH,
                                           .field = all[i].field,
                                           .expected = all[i].ours,
                                           .seen = all[i].theirs};
        struct weft__mismatch mismatch;
        weft__mismatch_describe(&failure, &mismatch);
        assert_ptr_equal(strstr(mismatch.field, all[i].name), mismatch.field);
        assert_string_equal(mismatch.ours, all[i].our_text);
        assert_string_equal(mismatch.theirs, all[i].their_text);
    }
}

/* Each bit of each field is in a part that has a name. */
TEST(every_bit_has_a_name)
{
    for (uint32_t field = 0; field < WP_NUM_CALL_FIELDS; field++) {
        const int32_t num_bits = field == WP_CALL_KIND        ? WP_CALL_END_BIT
                                 : field == WP_CALL_NUM_BYTES ? 64
                                                              : 32;
        for (int32_t bit = 0; bit < num_bits; bit++) {
            const struct wp_failure failure = {
                .kind = WP_FAILURE_MISMATCH, .field = field, .expected = UINT64_C(1) << bit};
            struct weft__mismatch mismatch;
            /* A rank without rows fits any options. */
            if (field == WP_CALL_KIND && failure.expected == KIND(OPTIONS, WP_OPTION_NO_ROWS))
                continue;
            weft__mismatch_describe(&failure, &mismatch);
            assert_string_not_equal(mismatch.field, "what they call");
        }
    }
}

/* Whatever a message holds: the two texts differ, as the calls do, and end within their arrays. */
TEST(whatever_comes_is_told)
{
    enum { NUM_TRIALS = 20000 };
    struct rng rng = {rng_key(1, 0)};
    for (int trial = 0; trial < NUM_TRIALS; trial++) {
        struct wp_failure failure = {.kind = WP_FAILURE_MISMATCH,
                                     .field = rng_below(&rng, WP_NUM_CALL_FIELDS),
                                     .expected = rng_next(&rng)};
        failure.seen =
            trial % 2 == 0 ? rng_next(&rng) : failure.expected ^ UINT64_C(1) << rng_below(&rng, 64);
        if (failure.field >= WP_CALL_ROW_BYTES) {
            failure.expected = (uint32_t)failure.expected;
            failure.seen = (uint32_t)failure.seen;
        }
        struct weft__mismatch mismatch;
        if (wp_call_differing_bits((int32_t)failure.field, failure.expected, failure.seen) == 0)
            continue;
        memset(&mismatch, 0x7f, sizeof mismatch);
        weft__mismatch_describe(&failure, &mismatch);
        assert_true(strlen(mismatch.field) < sizeof mismatch.field - 1);
        assert_true(strlen(mismatch.ours) < sizeof mismatch.ours - 1);
        assert_true(strlen(mismatch.theirs) < sizeof mismatch.theirs - 1);
        assert_string_not_equal(mismatch.ours, mismatch.theirs);
    }
}
