/* SPDX-License-Identifier: MIT */
/* Arguments of the kernel in network_add.cu. */
#pragma once

#include <stdint.h>

struct wp_network_add_args {
    uint64_t *word;
    uint64_t add;
    uint64_t *before; /* gets the value before; in pinned memory of the host */
};
