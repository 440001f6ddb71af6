/* SPDX-License-Identifier: MIT */
/* Runs the program of planted_packets.h as a job of PACKET_RANKS ranks on the sim machine. */
#pragma once

#include "planted_packets.h"
#include "sim_job.h"

enum { PACKET_MAX_STREAMS = 2 };

/* The launches are on one stream, or on two in turn, each after the one before or not. */
enum packet_streams { PACKETS_ONE_STREAM, PACKETS_ORDERED_STREAMS, PACKETS_UNORDERED_STREAMS };

struct packet_job {
    enum packet_form form;
    int32_t num_launches;
    enum packet_streams streams;
    struct sim_job sim; /* whose ranks and nodes, and weakened site, the run fills in */
};

/* Fills *result; fails the test if there was no memory. */
void packet_job_run(struct packet_job *job, uint64_t seed, struct weft__sim_result *result);
