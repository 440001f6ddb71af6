/* SPDX-License-Identifier: MIT */
#include "comm/rendezvous/heartbeat.h"

#include "comm/host/thread.h"

#include <stdio.h>
#include <string.h>

enum {
    BEAT_MS = 1000,
    BEATS_PER_LIMIT = 4,
    /* Limits that a process of this host may be silent while it is not stopped. A process in a
     * frozen container is not stopped either, so the patience must end. */
    LOCAL_PATIENCE = 30
};

static int64_t interval_ns(const struct weft__heartbeat *heartbeat)
{
    uint32_t quarter_ms = heartbeat->limit_ms / BEATS_PER_LIMIT;
    return (quarter_ms < BEAT_MS ? quarter_ms : BEAT_MS) * WEFT__NS_PER_MS;
}

/* Stopped by a signal or a debugger. A process that cannot be looked at counts as stopped. */
static int is_stopped(int32_t pid)
{
    char path[32], line[512];
    snprintf(path, sizeof(path), "/proc/%d/stat", pid);
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return 1;
    const char *name_end = fgets(line, sizeof(line), file) != NULL ? strrchr(line, ')') : NULL;
    fclose(file);
    return name_end == NULL || name_end[1] == '\0' || strchr("RSDI", name_end[2]) == NULL;
}

void weft__heartbeat_start(struct weft__heartbeat *heartbeat, uint32_t limit_ms, int32_t local_pid,
                           int64_t now_ns)
{
    *heartbeat = (struct weft__heartbeat){
        .local_pid = local_pid, .limit_ms = limit_ms, .heard_ns = now_ns, .looked_ns = now_ns};
    heartbeat->next_beat_ns = now_ns + interval_ns(heartbeat);
}

int weft__heartbeat_is_silent(struct weft__heartbeat *heartbeat, uint64_t num_received,
                              int64_t now_ns)
{
    /* It looks once per interval, or has not been running. */
    const int was_stopped = now_ns - heartbeat->looked_ns > 2 * interval_ns(heartbeat);
    heartbeat->looked_ns = now_ns;
    if (num_received != heartbeat->num_received || was_stopped) {
        heartbeat->num_received = num_received;
        heartbeat->heard_ns = now_ns;
    }
    const int64_t limit_ns = heartbeat->limit_ms * WEFT__NS_PER_MS;
    const int64_t silent_ns = now_ns - heartbeat->heard_ns;
    if (limit_ns == 0 || silent_ns <= limit_ns)
        return 0;
    return heartbeat->local_pid == 0 || silent_ns > LOCAL_PATIENCE * limit_ns ||
           is_stopped(heartbeat->local_pid);
}

int weft__heartbeat_is_due(struct weft__heartbeat *heartbeat, int64_t now_ns)
{
    if (heartbeat->limit_ms == 0 || now_ns < heartbeat->next_beat_ns)
        return 0;
    heartbeat->next_beat_ns = now_ns + interval_ns(heartbeat);
    return 1;
}

/* The next beat comes before the limit. */
int64_t weft__heartbeat_deadline_ns(const struct weft__heartbeat *heartbeat)
{
    return heartbeat->limit_ms > 0 ? heartbeat->next_beat_ns : INT64_MAX;
}
