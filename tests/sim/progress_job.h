/* SPDX-License-Identifier: MIT */
/*
 * The progress thread of one rank (net/progress.c) on the sim: threads that post, drive the net, go
 * to work and sleep, under drawn schedules. The net below is a model (progress_net.c). That the
 * thread looks again after a while is not counted on: a wake-up that it should have had is told as
 * lost.
 */
#pragma once

#include "machine/sim/sim.h"

/* What the schedules of a process have come to so far. */
struct progress_counts {
    uint64_t num_naps, num_sleeps; /* of the thread; FOR_CALLS and FOR_THE_NET */
    uint64_t num_woken, num_ended_by_time, num_refused_locks;
};
extern struct progress_counts progress_counts;

void progress_job_run(uint64_t seed, int32_t weakened_site, struct weft__sim_result *result);

/* progress_net.c: the net, and what is on its way to the rank. */
struct weft__net *progress_net_open(void);
/* By a fiber of its own, as long as the job runs: what was sent comes, in any order. */
void progress_net_carry(void);
void progress_net_end(void);
/* A message from outside, which sets *has_come when it is taken. */
void progress_net_expect(int *has_come);
int progress_net_is_readable(void);
/* A NIC whose doorbell is a word. */
struct weft__nic_adapter *progress_net_nic(void);
void progress_net_ring_nic(void);
/* Accesses that have been taken from the queue. */
uint64_t progress_net_num_posted(void);
