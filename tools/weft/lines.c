/* SPDX-License-Identifier: MIT */
#include "lines.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "workload/output.h"

/* A longer line is broken there: a rank must not be able to exhaust our memory. */
enum { MAX_LINE_BYTES = 1 << 20, READ_BYTES = 1 << 16 };

void lines_open(struct lines *lines, int fd, FILE *sink, int32_t rank)
{
    *lines = (struct lines){.fd = fd, .sink = sink};
    if (rank != LINES_HAVE_RANKS)
        snprintf(lines->prefix, sizeof lines->prefix, "[%d] ", rank);
}

static void write_line(struct lines *lines, const char *text, size_t bytes)
{
    fputs(lines->prefix, lines->sink);
    if (lines->pending_bytes > 0)
        fwrite(lines->pending, 1, lines->pending_bytes, lines->sink);
    fwrite(text, 1, bytes, lines->sink);
    fputc('\n', lines->sink);
    lines->pending_bytes = 0;
}

static void keep(struct lines *lines, const char *text, size_t bytes)
{
    size_t needed = lines->pending_bytes + bytes;
    if (needed > lines->pending_capacity) {
        char *grown = realloc(lines->pending, 2 * needed);
        if (!grown) {
            write_line(lines, text, bytes);
            return;
        }
        lines->pending = grown;
        lines->pending_capacity = 2 * needed;
    }
    memcpy(lines->pending + lines->pending_bytes, text, bytes);
    lines->pending_bytes = needed;
    if (needed >= MAX_LINE_BYTES)
        write_line(lines, "", 0);
}

static void copy_text(struct lines *lines, const char *text, size_t bytes)
{
    const char *end = text + bytes;
    while (text < end) {
        const char *newline = memchr(text, '\n', (size_t)(end - text));
        if (!newline) {
            keep(lines, text, (size_t)(end - text));
            return;
        }
        write_line(lines, text, (size_t)(newline - text));
        text = newline + 1;
    }
}

static void release(struct lines *lines)
{
    if (lines->pending_bytes > 0)
        write_line(lines, "", 0);
    fflush(lines->sink);
    free(lines->pending);
    lines->pending = NULL;
    lines->pending_capacity = 0;
    close(lines->fd);
    lines->fd = -1;
}

enum supply { SUPPLY_SOME, SUPPLY_NONE };

static enum supply copy_once(struct lines *lines)
{
    static char text[READ_BYTES]; /* too much for a small stack */
    ssize_t bytes;
    do
        bytes = read(lines->fd, text, sizeof text);
    while (bytes < 0 && errno == EINTR);
    if (bytes < 0 && errno == EAGAIN)
        return SUPPLY_NONE;
    if (bytes > 0)
        copy_text(lines, text, (size_t)bytes);
    if (bytes > 0 && fflush(lines->sink) == 0 && !ferror(lines->sink))
        return SUPPLY_SOME;
    release(lines);
    return SUPPLY_NONE;
}

void lines_copy(struct lines *lines)
{
    copy_once(lines);
}

void lines_close(struct lines *lines)
{
    /* No pipe holds more; a process that outlived its rank may still be writing. */
    const int max_reads = (1 << 20) / READ_BYTES + 1;
    for (int i = 0; i < max_reads && lines->fd >= 0; i++)
        if (copy_once(lines) == SUPPLY_NONE)
            break;
    if (lines->fd >= 0)
        release(lines);
}

/* ---------------------------------------------------------------- sinks */

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
