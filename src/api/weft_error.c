/* SPDX-License-Identifier: MIT */
#include "comm/host/error.h"

#include "weft_commit.h"

uint32_t weft_version(void)
{
    return WEFT_VERSION_MAJOR * 10000 + WEFT_VERSION_MINOR * 100 + WEFT_VERSION_PATCH;
}

const char *weft_commit(void)
{
    return WEFT__COMMIT;
}

const char *weft_result_string(weft_result result)
{
    switch (result) {
    case WEFT_OK:
        return "success";
    case WEFT_ERROR_INVALID_ARGUMENT:
        return "invalid argument";
    case WEFT_ERROR_OUT_OF_MEMORY:
        return "out of memory";
    case WEFT_ERROR_SYSTEM:
        return "an operating system call failed";
    case WEFT_ERROR_UNSUPPORTED:
        return "not supported by this build or on this machine";
    case WEFT_ERROR_TIMEOUT:
        return "a wait for another rank passed its deadline";
    case WEFT_ERROR_RANK_FAILED:
        return "a rank died or left";
    case WEFT_ERROR_ABORTED:
        return "the communicator was aborted";
    case WEFT_ERROR_MISMATCH:
        return "the ranks' arguments do not fit together";
    case WEFT_ERROR_CAPACITY:
        return "more rows arrived than the output holds";
    }
    return "unknown result";
}

const char *weft_last_error(void)
{
    return weft__last_error();
}
