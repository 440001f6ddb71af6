/* SPDX-License-Identifier: MIT */
/* Launches are ranges for a tool of NVTX's. */
#include <dlfcn.h>
#include <stdlib.h>

#include "harness/cmocka.h"
#include "machine/cuda/ranges.h"

TEST(a_tool_sees_launches)
{
    static const struct weft__program program = {.name = "dispatch"};
    const struct weft__launch launch = {
        .program = &program, .call = WEFT__CALL_EP_DISPATCH, .sequence = 51, .num_bytes = 4096};
    assert_int_equal(setenv("NVTX_INJECTION64_PATH", NVTX_TOOL, 1), 0);
    void *tool = dlopen(NVTX_TOOL, RTLD_NOW);
    assert_non_null(tool);
    const int *depth = dlsym(tool, "nvtx_tool_depth");
    weft__cuda_range_begin(&launch);
    assert_int_equal(*depth, 1);
    assert_string_equal(dlsym(tool, "nvtx_tool_domain"), "weft");
    assert_string_equal(dlsym(tool, "nvtx_tool_range"),
                        "weft_ep_dispatch #51, 4096 bytes, dispatch");
    weft__cuda_range_end();
    assert_int_equal(*depth, 0);
}
