/* SPDX-License-Identifier: MIT */
/* Threads of a rank that share a queue of the model of a NIC (net/nic/model.h) by the protocol of
 * machine/nic_post.h, under drawn schedules. The model is a fiber, whose accesses to memory are
 * checked as those of the threads are. */
#pragma once

#include "machine/sim/sim.h"

/* A rule that is broken on purpose, as other implementations have broken it. */
enum nic_plant {
    NIC_PLANT_NONE,
    NIC_PLANT_RECORD_BACK,        /* the record falls back */
    NIC_PLANT_RECORD_OF_RESERVED, /* the record announces what is not written */
    NIC_PLANT_NO_ROOM,            /* nobody waits for room */
    NIC_PLANT_NO_RING,            /* a doorbell is left out */
    NIC_PLANT_COUNT_OF_16,        /* what is done is kept in 16 bits */
    NIC_PLANT_FIRST_CQE,          /* 0xff is taken for a completion */
    NIC_PLANT_ERROR_IGNORED,      /* an error is taken for "not yet" */
    NIC_PLANT_DONE_BACK,          /* what is done falls back */
    NIC_PLANT_HALF_A_DOORBELL,    /* the doorbell is stored in halves */
    NIC_PLANT_FIRST_WORD,         /* the record's word of receives is written */
    NIC_PLANT_LARGE_GROUP,        /* a group has a unit more than may be */
    NIC_NUM_PLANTS
};

enum nic_trouble {
    NIC_NO_TROUBLE,
    NIC_DEAD_PEER,  /* at a drawn moment */
    NIC_STUCK_MODEL /* it does nothing from a drawn moment on: deadlines end the waits */
};

struct nic_job {
    uint64_t seed;
    int32_t weakened_site;
    enum nic_plant plant;
    enum nic_trouble trouble;
};

/* The schedules of a process so far. */
struct nic_job_counts {
    uint64_t num_groups, num_rings, num_room_waits, num_failures, num_causes, num_flushes;
};
extern struct nic_job_counts nic_job_counts;

void nic_job_run(const struct nic_job *job, struct weft__sim_result *result);
