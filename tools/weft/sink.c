/* SPDX-License-Identifier: MIT */
#include "sink.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <unistd.h>

#include "workload/output.h"

enum { ASK_MS = 100 };

/* A pipe that is ready takes PIPE_BUF bytes without delay. */
static ssize_t write_some(const struct sink *sink, const char *text, size_t bytes)
{
    const ssize_t written = write(sink->fd, text, bytes < PIPE_BUF ? bytes : PIPE_BUF);
    return written < 0 && (errno == EINTR || errno == EAGAIN) ? 0 : written;
}

/* As fopencookie has it: less than `bytes` is an error. */
static ssize_t write_all(void *cookie, const char *text, size_t bytes)
{
    const struct sink *sink = cookie;
    size_t num_written = 0;
    while (num_written < bytes) {
        struct pollfd polls[] = {{.fd = sink->fd, .events = POLLOUT},
                                 {.fd = sink->wake_fd, .events = POLLIN}};
        poll(polls, 2, ASK_MS);
        if (polls[0].revents == 0) {
            if (sink->ask(sink->argument) == SINK_GIVE_UP)
                break;
            continue;
        }
        const ssize_t written = write_some(sink, text + num_written, bytes - num_written);
        if (written < 0) {
            output_note_failure(errno);
            break;
        }
        num_written += (size_t)written;
    }
    return (ssize_t)num_written;
}

FILE *sink_open(struct sink *sink)
{
    return fopencookie(sink, "w", (cookie_io_functions_t){.write = write_all});
}
