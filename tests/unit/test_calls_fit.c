/* SPDX-License-Identifier: MIT */
/* Calls of two ranks are compared in every field. */
#include "harness/cmocka.h"
#include "programs/exchange.h"

TEST(the_first_field_that_differs_is_found)
{
    uint32_t ours[WEFT_NUM_CALL_FIELDS] = {0}, theirs[WEFT_NUM_CALL_FIELDS] = {0};
    assert_int_equal(weft_first_difference(NULL, ours, theirs), WEFT_NUM_CALL_FIELDS);
    for (int32_t field = WEFT_NUM_CALL_FIELDS - 1; field >= 0; field--) {
        theirs[field] = WEFT_OPTION_TOPK_IDX;
        assert_int_equal(weft_first_difference(NULL, ours, theirs), field);
    }
}

/* Whatever options the others use suit a rank without rows; anything else must fit all the same. */
TEST(options_of_a_rank_without_rows_fit_all)
{
    uint32_t ours[WEFT_NUM_CALL_FIELDS] = {0}, theirs[WEFT_NUM_CALL_FIELDS] = {0};
    ours[WEFT_CALL_OPTIONS] = WEFT_OPTION_NO_ROWS;
    theirs[WEFT_CALL_OPTIONS] = WEFT_OPTION_TOPK_WEIGHTS;
    assert_int_equal(weft_first_difference(NULL, ours, theirs), WEFT_NUM_CALL_FIELDS);
    assert_int_equal(weft_first_difference(NULL, theirs, ours), WEFT_NUM_CALL_FIELDS);
    ours[WEFT_NUM_CALL_FIELDS - 1] = 1;
    assert_int_equal(weft_first_difference(NULL, ours, theirs), WEFT_NUM_CALL_FIELDS - 1);
}
