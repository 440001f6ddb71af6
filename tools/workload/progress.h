/* SPDX-License-Identifier: MIT */
/* How far long work is, and how long it will still take: a line that is rewritten, on standard
 * error if that is a terminal, once the work has taken 2 seconds. */
#pragma once

#include <stdint.h>

enum progress_visibility { PROGRESS_SHOWN, PROGRESS_HIDDEN };

/* The option that hides it, for a row of a table of options. */
#define PROGRESS_QUIET(place)                                                                      \
    OPTION_FLAG, "quiet", NULL, "Show no progress on a terminal", NULL, place, .letter = 'q'

struct progress {
    const char *label;
    int64_t num_steps, num_done;
    int is_drawn;
    int64_t start_ns;
    int64_t drawn_ns;            /* when last; 0: never */
    int64_t quiet_ns, redraw_ns; /* until the first time, and between two */
};

/* PROGRESS_HIDDEN: never draws (ranks other than the first, and --quiet). */
void progress_begin(struct progress *progress, enum progress_visibility visibility,
                    const char *label, int64_t num_steps);
void progress_update(struct progress *progress, int64_t num_done);
/* One step more. */
void progress_step(struct progress *progress);
/* Wipes the line on a terminal. A later step draws it again. */
void progress_end(struct progress *progress);
