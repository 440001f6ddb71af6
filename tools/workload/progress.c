/* SPDX-License-Identifier: MIT */
#include "workload/progress.h"
#include "workload/clock.h"

#include <stdio.h>
#include <unistd.h>

enum { BAR_WIDTH = 40, TIME_CHARS = 32 };
#define SECOND_NS INT64_C(1000000000)

void progress_begin(struct progress *progress, enum progress_visibility visibility,
                    const char *label, int64_t num_steps)
{
    *progress = (struct progress){
        .label = label,
        .num_steps = num_steps,
        .is_drawn = visibility == PROGRESS_SHOWN && isatty(STDERR_FILENO),
        .start_ns = clock_ns(),
        .quiet_ns = 2 * SECOND_NS,
        .redraw_ns = SECOND_NS / 10,
    };
}

/* If the rest takes as long, step for step, as what is done. */
static void format_rest(const struct progress *progress, int64_t now, char text[TIME_CHARS])
{
    const double done_s = (double)(now - progress->start_ns) / 1e9;
    const double rest_s =
        done_s / (double)progress->num_done * (double)(progress->num_steps - progress->num_done);
    if (rest_s < 100)
        snprintf(text, TIME_CHARS, "%.0f s", rest_s);
    else if (rest_s < 6000)
        snprintf(text, TIME_CHARS, "%.0f min", rest_s / 60);
    else
        snprintf(text, TIME_CHARS, "%.1f h", rest_s / 3600);
}

static void draw(const struct progress *progress, int64_t now)
{
    static const char full[BAR_WIDTH + 1] = "########################################";
    const long long num_done = progress->num_done, num_steps = progress->num_steps;
    char rest[TIME_CHARS];
    format_rest(progress, now, rest);
    const int filled = (int)((double)num_done / (double)num_steps * BAR_WIDTH);
    fprintf(stderr, "\r%s [%.*s%*s] %lld/%lld, %s left\033[K", progress->label, filled, full,
            BAR_WIDTH - filled, "", num_done, num_steps, rest);
    fflush(stderr);
}

void progress_update(struct progress *progress, int64_t num_done)
{
    progress->num_done = num_done;
    if (!progress->is_drawn || num_done < 1 || num_done >= progress->num_steps)
        return;
    const int64_t now = clock_ns();
    if (now - progress->start_ns < progress->quiet_ns ||
        now - progress->drawn_ns < progress->redraw_ns)
        return;
    draw(progress, now);
    progress->drawn_ns = now;
}

void progress_step(struct progress *progress)
{
    progress_update(progress, progress->num_done + 1);
}

void progress_end(struct progress *progress)
{
    if (progress->drawn_ns != 0) {
        fputs("\r\033[K", stderr);
        fflush(stderr);
    }
    progress->drawn_ns = 0;
}
