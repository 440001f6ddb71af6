/* SPDX-License-Identifier: MIT */
/* A progress bar on standard error, drawn only if that is a terminal and the work takes longer than
 * a second. */
#ifndef WEFT_WORKLOAD_PROGRESS_H
#define WEFT_WORKLOAD_PROGRESS_H

#include <stdint.h>

enum progress_visibility { PROGRESS_HIDDEN = 0, PROGRESS_SHOWN = 1 };

struct progress {
    const char *label;
    int64_t num_steps;
    enum progress_visibility visibility;
    int64_t start_ns;
    int64_t drawn_ns; /* when last; 0: never */
};

/* PROGRESS_HIDDEN: never draws (ranks other than the first). */
void progress_begin(struct progress *progress, enum progress_visibility visibility,
                    const char *label, int64_t num_steps);
void progress_update(struct progress *progress, int64_t num_done);
/* Wipes the bar. */
void progress_end(struct progress *progress);

#endif
