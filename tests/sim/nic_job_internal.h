/* SPDX-License-Identifier: MIT */
/* The files of nic_job.h share words, and the state of a run. */
#pragma once

#include "machine/sim/nic_words.h"
#include "net/nic/model.h"
#include "net/nic/model_cable.h"
#include "net/nic/queue.h"
#include "nic_job.h"

enum {
    NIC_JOB_DEPTH = 8,
    NIC_JOB_BATCH = 2,
    NIC_JOB_MAX_POSTERS = 4,
    NIC_JOB_GROUPS = 6, /* of each */
    NIC_JOB_WRITE_BYTES = 24,
    NIC_JOB_WRITES = 2, /* of a group, at most */
    NIC_JOB_LOCAL_KEY = 0x11,
    NIC_JOB_REMOTE_KEY = 0x22
};

/* Each group has memory of its own at the target. */
struct nic_job_memory {
    _Alignas(64) struct weft__nic_unit units[NIC_JOB_DEPTH];
    _Alignas(64) struct weft__nic_unit cqe;
    _Alignas(8) uint32_t record[2];
    _Alignas(8) uint64_t doorbell;
    uint64_t word, old_value; /* at the target, which is added to; where the adds' results go */
    uint8_t sources[NIC_JOB_MAX_POSTERS][NIC_JOB_WRITES][NIC_JOB_WRITE_BYTES];
    uint8_t targets[NIC_JOB_MAX_POSTERS][NIC_JOB_GROUPS][NIC_JOB_WRITES][NIC_JOB_WRITE_BYTES];
};

struct nic_job_state {
    struct nic_job job;
    struct nic_job_memory memory;
    struct weft__nic_queue queue;
    struct weft__nic_model *initiator, *target;
    struct weft__nic_cable cable;
    int32_t num_posters, num_ended;
    uint64_t num_adds;
    int is_stopped;
};
extern struct nic_job_state nic_job_state;

/* Tells what is wrong, and counts it. */
void nic_complain(const char *what, uint64_t value);

/* By nic_model_fiber.c. */
int nic_models_open(void); /* 0: done */
void nic_models_close(void);
void nic_models_run(struct sim_fiber *fiber);
