/* SPDX-License-Identifier: MIT */
/* How far long work is, and how long it will still take, on standard error: on a terminal a line
 * that is rewritten, from the first second on; elsewhere a line every ten seconds. */
#pragma once

#include <stdint.h>

enum progress_place { PROGRESS_NOWHERE = 0, PROGRESS_TERMINAL, PROGRESS_LOG };
enum progress_visibility { PROGRESS_HIDDEN = 0, PROGRESS_SHOWN = 1 };

struct progress {
    const char *label;
    int64_t num_steps, num_done;
    enum progress_place place;
    int64_t start_ns;
    int64_t drawn_ns;            /* when last; 0: never */
    int64_t quiet_ns, redraw_ns; /* until the first time, and between two */
};

/* PROGRESS_HIDDEN: never draws (ranks other than the first). */
void progress_begin(struct progress *progress, enum progress_visibility visibility,
                    const char *label, int64_t num_steps);
void progress_update(struct progress *progress, int64_t num_done);
/* One step more. */
void progress_step(struct progress *progress);
/* Wipes the line on a terminal. */
void progress_end(struct progress *progress);
