/* SPDX-License-Identifier: MIT */
#pragma once

#include "weft.h"

/* Leaves the function with the call's result unless that is WEFT_OK. */
#define TRY(call)                                                                                  \
    do {                                                                                           \
        const weft_result result_ = (call);                                                        \
        if (result_ != WEFT_OK)                                                                    \
            return result_;                                                                        \
    } while (0)
