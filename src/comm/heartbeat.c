/* SPDX-License-Identifier: MIT */
#include "comm/heartbeat.h"

#include "comm/thread.h"

enum { BEAT_MS = 1000, BEATS_PER_LIMIT = 4 };

static int64_t interval_ns(const struct weft__heartbeat *heartbeat)
{
    uint32_t quarter_ms = heartbeat->limit_ms / BEATS_PER_LIMIT;
    return (quarter_ms < BEAT_MS ? quarter_ms : BEAT_MS) * WEFT__NS_PER_MS;
}

void weft__heartbeat_start(struct weft__heartbeat *heartbeat, uint32_t limit_ms, int64_t now_ns)
{
    *heartbeat =
        (struct weft__heartbeat){.limit_ms = limit_ms, .heard_ns = now_ns, .looked_ns = now_ns};
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
    return heartbeat->limit_ms > 0 &&
           now_ns - heartbeat->heard_ns > heartbeat->limit_ms * WEFT__NS_PER_MS;
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
