/* SPDX-License-Identifier: MIT */
#include "ops/names.h"

#include "weft.h"

static const char *const collectives[] = {
    [WEFT_ALL_REDUCE] = "all_reduce", [WEFT_REDUCE_SCATTER] = "reduce_scatter",
    [WEFT_ALL_GATHER] = "all_gather", [WEFT_ALL_TO_ALL] = "all_to_all",
    [WEFT_BROADCAST] = "broadcast",
};

static const char *const dtypes[] = {
    [WEFT_INT32] = "int32", [WEFT_INT64] = "int64",       [WEFT_BF16] = "bf16",
    [WEFT_FP16] = "fp16",   [WEFT_FP32] = "fp32",         [WEFT_FP64] = "fp64",
    [WEFT_UINT8] = "uint8", [WEFT_FP8_E4M3] = "fp8_e4m3",
};

static const char *const reduce_ops[] = {
    [WEFT_SUM] = "sum", [WEFT_PROD] = "prod", [WEFT_MAX] = "max",
    [WEFT_MIN] = "min", [WEFT_AVG] = "avg",
};

const char *weft__collective_name(uint64_t collective)
{
    return collective < sizeof collectives / sizeof *collectives ? collectives[collective] : "?";
}

const char *weft__dtype_name(uint64_t dtype)
{
    return dtype < sizeof dtypes / sizeof *dtypes ? dtypes[dtype] : "?";
}

const char *weft__reduce_op_name(uint64_t op)
{
    return op < sizeof reduce_ops / sizeof *reduce_ops ? reduce_ops[op] : "?";
}
