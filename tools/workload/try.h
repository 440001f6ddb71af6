/* SPDX-License-Identifier: MIT */
#pragma once

#include "weft.h"

/* Returns from the calling function unless `call` gives WEFT_OK. */
#define TRY(call)                                                                                  \
    do {                                                                                           \
        const weft_result result_of_try = (call);                                                  \
        if (result_of_try != WEFT_OK)                                                              \
            return result_of_try;                                                                  \
    } while (0)
