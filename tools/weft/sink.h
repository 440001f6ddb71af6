/* SPDX-License-Identifier: MIT */
/* A stream to a descriptor whose reader may be slow, or stopped: whoever writes is asked now and then whether
 * to wait on. */
#ifndef WEFT_TOOL_SINK_H
#define WEFT_TOOL_SINK_H

#include <stdio.h>

enum sink_wait { SINK_WAIT_ON, SINK_GIVE_UP };

struct sink {
    int fd;
    int wake_fd; /* that it is readable is a reason to ask */
    enum sink_wait (*ask)(void *argument);
    void *argument;
};

/* `sink` must lie beyond fclose, which leaves fd open. NULL without memory. */
FILE *sink_open(struct sink *sink);

#endif
