/* SPDX-License-Identifier: MIT */
#include "api_targets.h"

weft_result fuzz_nothing_to_undo(struct fuzz_arguments *arguments)
{
    (void)arguments;
    return WEFT_OK;
}

weft_result fuzz_wait_for_stream(struct fuzz_arguments *arguments)
{
    return weft_stream_synchronize(arguments->own_stream);
}
