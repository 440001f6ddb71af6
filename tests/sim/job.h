/* SPDX-License-Identifier: MIT */
/* Runs a program of planted.h as a job of two ranks on the sim machine. */
#pragma once

#include "machine/host.h"
#include "machine/sim/sim.h"
#include "planted.h"

struct job {
    weft__program_fn *program;
    enum form form;
    int32_t num_launches;
    int32_t num_warps;
    int32_t num_trace_events;
    weft_unique_id id;
    struct job_state states[JOB_RANKS]; /* as the run leaves them */
};

/* Fills *result; fails the test if there was no memory. */
void job_run(struct job *job, uint64_t seed, struct weft__sim_result *result);

weft__program_fn weft__sim_planted_signal, weft__sim_planted_parity, weft__sim_planted_epoch,
    weft__sim_planted_barrier, weft__sim_planted_unwritten, weft__sim_planted_freed,
    weft__sim_planted_unawaited, weft__sim_planted_overwrite, weft__sim_planted_stale,
    weft__sim_planted_row_read, weft__sim_planted_row_reduce, weft__sim_planted_row_sum,
    weft__sim_planted_row_source, weft__sim_planted_row_signal, weft__sim_planted_known,
    weft__sim_planted_tickets, weft__sim_late_rows, weft__sim_unordered, weft__sim_relaxed,
    weft__sim_late_write, weft__sim_late_packets, weft__sim_planted_row_reuse,
    weft__sim_planted_row_news, weft__sim_planted_row_weighted, weft__sim_planted_row_quantise,
    weft__sim_planted_credit, weft__sim_planted_room, weft__sim_planted_clear;
