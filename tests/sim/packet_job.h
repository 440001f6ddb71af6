/* SPDX-License-Identifier: MIT */
/* Runs the program of planted_packets.h as a job of PACKET_RANKS ranks on the sim machine. */
#ifndef WEFT_TESTS_SIM_PACKET_JOB_H
#define WEFT_TESTS_SIM_PACKET_JOB_H

#include "machine/sim/sim.h"
#include "planted_packets.h"

enum { PACKET_MAX_STREAMS = 2 };

/* The launches are on one stream, or on two in turn, each after the one before or not. */
enum packet_streams { PACKETS_ONE_STREAM, PACKETS_ORDERED_STREAMS, PACKETS_UNORDERED_STREAMS };

struct packet_job {
    enum packet_form form;
    int32_t num_launches;
    enum packet_streams streams;
    enum weft__sim_fault fault;
    int32_t fault_rank;
    uint64_t fault_step;
    weft_unique_id id, survivors_id;
    int32_t num_failed; /* ranks whose launches failed; they must have blamed fault_rank */
};

/* Fills *result; fails the test if there was no memory. */
void packet_job_run(struct packet_job *job, uint64_t seed, struct weft__sim_result *result);

#endif
