/* SPDX-License-Identifier: MIT */
/*
 * The sim machine: all ranks of a job in one thread, under a schedule drawn from a seed.
 *
 * Every rank's host code is a fiber, every lane of its warps another. At each primitive that
 * touches memory of others, and at each wait, the schedule chooses who goes on. Programs are
 * compiled with the compiler's data-race instrumentation, whose hooks the sim implements itself: it
 * sees every access to memory that is not on a fiber's stack, checks that it is ordered after the
 * accesses it conflicts with, and keeps stores from becoming visible to others before a release
 * orders them.
 *
 * One run at a time per process.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum weft__sim_policy {
    WEFT__SIM_UNIFORM, /* anyone that can go on, alike */
    WEFT__SIM_PCT,   /* random priorities, lowered at a few random steps (Burckhardt et al. 2010) */
    WEFT__SIM_DELAY, /* some rank or lane sleeps for long stretches */
    WEFT__SIM_AHEAD, /* one rank runs whenever it can */
    WEFT__SIM_MIXED, /* the seed chooses among the above */
    WEFT__NUM_SIM_POLICIES
};

enum weft__sim_fault {
    WEFT__SIM_NO_FAULT,
    WEFT__SIM_KILL,
    WEFT__SIM_STALL,
    WEFT__SIM_DISAGREE, /* left to the rank's host code: see weft__sim_fault_has_struck */
    WEFT__NUM_SIM_FAULTS
};

/* Who gives accesses to ranks of other nodes to the network: the host's queue, or programs
 * themselves, to a NIC. */
enum weft__sim_initiator { WEFT__SIM_BY_HOST, WEFT__SIM_BY_NIC, WEFT__NUM_SIM_INITIATORS };

enum { WEFT__SIM_NO_SITE = -1, WEFT__SIM_REPORT_BYTES = 16384 };

struct weft__sim_config {
    uint64_t seed;
    enum weft__sim_policy policy;
    int32_t num_ranks;
    enum weft__sim_initiator initiator;
    /* A rank's host code: calls weft.h. 0: what it checked was right. */
    int (*rank_main)(int32_t rank, void *argument);
    void *argument;
    int32_t
        weakened_site; /* number of an ordering site that does not order, or WEFT__SIM_NO_SITE */
    enum weft__sim_fault fault;
    int32_t fault_rank;       /* whom the fault strikes */
    uint64_t fault_step;      /* when */
    int64_t stall_ns;         /* of virtual time; 0: longer than any deadline */
    int32_t num_trace_events; /* last events of each fiber in the report; 0: none */
};

struct weft__sim_result {
    uint64_t num_steps;     /* scheduling decisions */
    uint64_t schedule_hash; /* of all of them: equal seeds, equal hashes */
    int32_t num_races;
    int32_t num_wrong; /* ranks whose host code returned non-zero, and findings of NICs */
    int32_t num_hangs; /* 1 if nothing could go on any more */
    int32_t fault_struck;
    char report[WEFT__SIM_REPORT_BYTES]; /* the first things found, in words; "" if none */
};

/* 0 unless there was no memory for the run itself. */
int weft__sim_run(const struct weft__sim_config *config, struct weft__sim_result *result);

/* Ordering sites that runs so far have passed, numbered in order of file and line. */
struct weft__sim_site {
    const char *file;
    int line;
    /* "release", "acquire", "acquire-release", "block sync", "warp sync", "row sync", "fence". */
    const char *kind;
    uint64_t num_passes;
};
int32_t weft__sim_num_sites(void);
const struct weft__sim_site *weft__sim_site(int32_t site);

/* Host code is not instrumented: it says itself what shared memory it is about to read or write, so
 * that this too is checked to be ordered. */
void weft__sim_host_reads(const void *address, size_t num_bytes);
void weft__sim_host_writes(const void *address, size_t num_bytes);

/* The host raises a word of 32 bits, for which wp_wait_u32 waits: a release. */
void weft__sim_host_signals(uint32_t *word, uint32_t value);

/* The host waits for a word of 64 bits that a program raises: an acquire. Returns what it is. */
uint64_t weft__sim_host_awaits(const uint64_t *word, uint64_t at_least);

/* Inside a run: whether it is time for what the fault is. */
int weft__sim_fault_has_struck(void);
