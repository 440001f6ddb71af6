/* SPDX-License-Identifier: MIT */
/* The tools report the text that belongs to an error: their own, or the library's. */
#include "comm/host/error.h"
#include "harness/cmocka.h"
#include "workload/failure.h"

TEST(the_last_error_is_told)
{
    weft__error(WEFT_ERROR_SYSTEM, "an older error");
    const weft_result own = LACKS_MEMORY("%d rows", 7);
    assert_int_equal(own, WEFT_ERROR_OUT_OF_MEMORY);
    assert_string_equal(failure_text(own), "no memory for 7 rows");
    assert_string_equal(failure_text(own), "no memory for 7 rows");
    assert_string_equal(failure_text(WEFT_ERROR_SYSTEM), "an older error");
    const weft_result of_library = weft__error(WEFT_ERROR_OUT_OF_MEMORY, "the heap is full");
    assert_string_equal(weft_last_error(), "the heap is full");
    assert_string_equal(failure_text(of_library), "the heap is full");
}
