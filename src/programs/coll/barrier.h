/* SPDX-License-Identifier: MIT */
#pragma once

#include "programs/exchange.h"

struct wp_barrier_args {
    struct wp_exchange exchange;
    struct wp_message message;
};
