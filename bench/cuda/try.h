/* SPDX-License-Identifier: MIT */
/* Functions here return 0, or -1 after whoever saw the error has said it on stderr. */
#pragma once

#include <cuda_runtime_api.h>
#include <stdio.h>

#include "weft.h"

#define TRY(call)                                                                                  \
    do {                                                                                           \
        if ((call) != 0)                                                                           \
            return -1;                                                                             \
    } while (0)

#define CUDA_TRY(call)                                                                             \
    do {                                                                                           \
        const cudaError_t error_ = (call);                                                         \
        if (error_ != cudaSuccess) {                                                               \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE_NAME__, __LINE__, #call,                     \
                    cudaGetErrorString(error_));                                                   \
            return -1;                                                                             \
        }                                                                                          \
    } while (0)

#define WEFT_TRY(call)                                                                             \
    do {                                                                                           \
        if ((call) != WEFT_OK) {                                                                   \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE_NAME__, __LINE__, #call, weft_last_error()); \
            return -1;                                                                             \
        }                                                                                          \
    } while (0)
