/* SPDX-License-Identifier: MIT */
/* How long collectives are expected to take on a machine that need not be at hand. */
#pragma once

#include <jansson.h>

#include "coll_options.h"
#include "topo/channels.h"

enum { TOPO_NO_TIMES = -1 };

struct topo_times {
    int32_t op; /* a weft_collective; TOPO_NO_TIMES: nobody asks */
    struct option_steps sizes;
};

/* Of a rank for each GPU of the rings, all on one machine, which goes at most as fast as the rings do together. */
void topo_print_times(const struct topo_times *times, const struct weft__channels *rings);
json_t *topo_times_as_json(const struct topo_times *times, const struct weft__channels *rings);
