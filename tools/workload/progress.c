/* SPDX-License-Identifier: MIT */
#include "workload/progress.h"

#include <stdio.h>
#include <time.h>
#include <unistd.h>

enum { BAR_WIDTH = 40 };
static const int64_t quiet_ns = 1000000000, redraw_ns = 100000000;

static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

void progress_begin(struct progress *progress, enum progress_visibility visibility,
                    const char *label, int64_t num_steps)
{
    if (!isatty(STDERR_FILENO))
        visibility = PROGRESS_HIDDEN;
    *progress = (struct progress){
        .label = label,
        .num_steps = num_steps,
        .visibility = visibility,
        .start_ns = now_ns(),
    };
}

void progress_update(struct progress *progress, int64_t num_done)
{
    static const char full[BAR_WIDTH + 1] = "########################################";
    if (progress->visibility == PROGRESS_HIDDEN || progress->num_steps < 1)
        return;
    int64_t now = now_ns();
    if (now - progress->start_ns < quiet_ns || now - progress->drawn_ns < redraw_ns)
        return;
    int filled = (int)(num_done * BAR_WIDTH / progress->num_steps);
    fprintf(stderr, "\r%s [%.*s%*s] %lld/%lld ", progress->label, filled, full, BAR_WIDTH - filled,
            "", (long long)num_done, (long long)progress->num_steps);
    fflush(stderr);
    progress->drawn_ns = now;
}

void progress_end(struct progress *progress)
{
    if (progress->drawn_ns == 0)
        return;
    fputs("\r\033[K", stderr);
    fflush(stderr);
    progress->drawn_ns = 0;
}
