/* SPDX-License-Identifier: MIT */
/* A driver of tests: contexts, whose pushes and pops must match, and the names of errors. */
#pragma once

#include <stdatomic.h>

#include "machine/cuda/driver.h"

static atomic_int num_entered; /* contexts that have not been left */

static CUresult push_context(CUcontext context)
{
    (void)context;
    atomic_fetch_add(&num_entered, 1);
    return CUDA_SUCCESS;
}

static CUresult pop_context(CUcontext *context)
{
    *context = NULL;
    atomic_fetch_sub(&num_entered, 1);
    return CUDA_SUCCESS;
}

static CUresult name_error(CUresult result, const char **name)
{
    *name = result == CUDA_SUCCESS ? "success" : "failure";
    return CUDA_SUCCESS;
}

static void use_plain_driver(void)
{
    weft__cu.ctx_push_current = push_context;
    weft__cu.ctx_pop_current = pop_context;
    weft__cu.get_error_name = name_error;
    weft__cu.get_error_string = name_error;
}
