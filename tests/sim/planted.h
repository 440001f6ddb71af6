/* SPDX-License-Identifier: MIT */
/* Programs with bugs from the field, each beside its corrected form: the sim must tell them
 * apart. */
#pragma once

#include "machine/machine.h"

enum form { FORM_PLANTED, FORM_CORRECTED };

enum { JOB_RANKS = 2, JOB_SLOTS = 2, JOB_SLOT_WORDS = 4, JOB_LOOKS = 40 };

/* In every rank's heap; zero at first. Signals are written by the other rank. */
struct job_area {
    uint64_t signals[JOB_SLOTS];
    uint64_t slots[JOB_SLOTS][JOB_SLOT_WORDS]; /* data from the other rank */
};

/* In memory of the rank. */
struct job_state {
    int32_t counts[JOB_SLOTS];
    int32_t num_wrong; /* words that were not as they should be */
    int32_t seen[JOB_LOOKS][JOB_SLOTS];
};

struct job_args {
    struct job_area *own;
    struct job_area *other;
    struct job_area *unwritten;      /* as own, but nobody has zeroed it */
    struct job_area *freed_by_other; /* as other, but it has been freed */
    struct job_state *state;
    int32_t rank;
    enum form form;
    uint64_t sequence; /* of the launch, from 1 */
    int32_t handle;    /* launches belong to two handles in turn */
};

/* WP_PROGRAM with job_args. */
#define JOB_PROGRAM(name, warp, args)                                                              \
    static enum wp_status name##_body(struct wp_warp *warp, const struct job_args *args);          \
    enum wp_status WP_PROGRAM_SYMBOL(name)(struct wp_warp * warp, const void *args);               \
    enum wp_status WP_PROGRAM_SYMBOL(name)(struct wp_warp * warp, const void *args)                \
    {                                                                                              \
        return name##_body(warp, args);                                                            \
    }                                                                                              \
    static enum wp_status name##_body(struct wp_warp *warp, const struct job_args *args)

/* The lines at which `unordered` writes and reads. */
extern const int unordered_write_line, unordered_read_line;
/* The line of planted_rows.c at which a row is copied. */
extern const int row_copy_line;

/* Waits for a signal of the other rank. */
WP_FN enum wp_status job_wait(struct wp_warp *warp, const struct job_args *args,
                              const uint64_t *word, uint64_t value)
{
    const struct wp_wait_site site = {WP_PHASE_START, 1 - args->rank, args->sequence, 0, 0};
    return wp_wait(warp, word, value, &site);
}

WP_FN void job_write_slot(uint64_t *slot, uint64_t value)
{
    for (int32_t i = 0; i < JOB_SLOT_WORDS; i++)
        slot[i] = value;
}

WP_FN void job_check_slot(const struct job_args *args, const uint64_t *slot, uint64_t value)
{
    for (int32_t i = 0; i < JOB_SLOT_WORDS; i++) {
        if (slot[i] != value)
            wp_add_relaxed(&args->state->num_wrong, 1);
    }
}

/* Look number i of rank 1's first lane at both slots, the second one first. */
WP_FN void job_look(struct wp_warp *warp, const struct job_args *args, int32_t i)
{
    wp_max_u32(warp, 0); /* lets others go on, and orders nothing */
    if (args->rank == 0 || wp_lane_idx(warp) != 0)
        return;
    args->state->seen[i][1] = (int32_t)args->own->slots[1][0];
    args->state->seen[i][0] = (int32_t)args->own->slots[0][0];
}
