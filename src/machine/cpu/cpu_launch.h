/* SPDX-License-Identifier: MIT */
/* Runs launches: the fibers of one launch take turns on the calling thread. */
#pragma once

#include "machine/host.h"

/* Fibers and blocks kept from launch to launch; one per stream. */
struct weft__cpu_runner;

weft_result weft__cpu_runner_create(const weft_comm *comm, struct weft__cpu_runner **runner);
void weft__cpu_runner_destroy(struct weft__cpu_runner *runner);

/* Runs the launch to its end. A failure is described in *failure (kind NONE: no memory). */
weft_result weft__cpu_run(struct weft__cpu_runner *runner, const struct weft__launch *launch,
                          struct wp_failure *failure);

/* Whose launch the warp belongs to. */
weft_comm *weft__cpu_comm_of(const struct wp_warp *warp);
