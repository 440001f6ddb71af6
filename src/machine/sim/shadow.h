/* SPDX-License-Identifier: MIT */
/* The past of each byte that a run has touched, as the sim knows it. */
#pragma once

#include "machine/sim/world.h"

enum { SIM_NOBODY = -1, SIM_MANY = -2 };

struct sim_last {   /* access */
    int16_t fiber;  /* SIM_NOBODY; for reads also SIM_MANY */
    uint8_t access; /* enum sim_access */
    uint32_t time;
    const void *code;
};

struct sim_cell { /* of one byte, or of a whole word */
    struct sim_last write;
    struct sim_last read;
    struct sim_clock *readers; /* when each read last; once read.fiber was SIM_MANY in this run */
    enum sim_content content;
};

/* The cell of the bytes from `address` on, of which it stands for *num_bytes. */
struct sim_cell *sim_cell_of(uintptr_t address, uintptr_t end, size_t *num_bytes);
