/* SPDX-License-Identifier: MIT */
/* Copies what a rank writes into a pipe to one of our own streams, whole lines at a time, each with
 * the rank's prefix, so that lines of different ranks never mix. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct lines {
    int fd; /* nonblocking read end; -1: closed */
    FILE *sink;
    char prefix[16];
    char *pending; /* the line that has not ended yet */
    size_t pending_bytes, pending_capacity;
};

enum { LINES_HAVE_RANKS = -1 }; /* as a rank: another launcher has put it before the lines */
void lines_open(struct lines *lines, int fd, FILE *sink, int32_t rank);
/* Copies some of what there is now. Closes at the end of the pipe, and when the sink cannot be
 * written, so that the rank learns of it as if it wrote there itself. */
void lines_copy(struct lines *lines);
/* Copies what there is now, completes the last line and closes. */
void lines_close(struct lines *lines);

/* A sink whose reader may be slow, or stopped: whoever writes is asked now and then whether to wait
 * on. */
enum sink_wait { SINK_WAIT_ON, SINK_GIVE_UP };

struct sink {
    int fd;
    int wake_fd; /* that it is readable is a reason to ask */
    enum sink_wait (*ask)(void *argument);
    void *argument;
};

/* `sink` must lie beyond fclose, which leaves fd open. NULL without memory. */
FILE *sink_open(struct sink *sink);
