/* SPDX-License-Identifier: MIT */
/* Every environment variable of the library's own, declared once. */
#pragma once

#include <stdint.h>

#include "weft.h"

/* Shares of a GPU: as usual, at most. */
enum { WEFT__USUAL_STREAMS = 2 };
enum { WEFT__MAX_RECORDS = 1 << 20 };

enum weft__setting {
    WEFT__SETTING_ADDR,
    WEFT__SETTING_PORT,
    WEFT__SETTING_PORTS,
    WEFT__SETTING_SECRET,
    WEFT__SETTING_TIMEOUT_MS,
    WEFT__SETTING_STREAMS,
    WEFT__SETTING_HEARTBEAT_MS,
    WEFT__SETTING_LOG,
    WEFT__SETTING_RECORDS,
    WEFT__SETTING_RECORD,
    WEFT__SETTING_METRICS,
    WEFT__SETTING_NODES,
    WEFT__SETTING_MACHINE,
    WEFT__SETTING_CUDA_DEVICE,
    WEFT__SETTING_CUDA_HEAP,
    WEFT__SETTING_NET,
    WEFT__SETTING_NET_DEVICES,
    WEFT__SETTING_NET_TRANSPORT,
    WEFT__SETTING_NET_GPUDIRECT,
    WEFT__SETTING_NET_INITIATOR,
    WEFT__SETTING_NET_LATENCY_US,
    WEFT__SETTING_TUNING,
    WEFT__SETTING_TOPO_FILE,
    WEFT__SETTING_TOPO_DUMP_FILE,
    WEFT__SETTING_ID,
    WEFT__SETTING_RANK,
    WEFT__SETTING_WORLD_SIZE,
    WEFT__NUM_SETTINGS
};

struct weft__setting_info {
    const char *name;
    const char *default_value; /* NULL: none */
    const char *help;
    /* The only values allowed, then NULL, in the order of the enumeration that they stand for, if
     * there is one; NULL: not only certain words. */
    const char *const *words;
    int64_t min, max; /* of a number; 0, 0: it is none */
};

extern const struct weft__setting_info weft__settings[WEFT__NUM_SETTINGS];

/* The value in the environment, else the default; NULL if neither. An empty value counts as not
 * set. */
const char *weft__setting_text(enum weft__setting setting);

/* The value as a number; leaves `*value` alone if there is none. INVALID_ARGUMENT names variable,
 * value and what is allowed. */
weft_result weft__setting_number(enum weft__setting setting, int64_t *value);

/* The place of the value among the setting's words, or INVALID_ARGUMENT likewise. */
weft_result weft__setting_word(enum weft__setting setting, int *index);

/* The ports of WEFT__SETTING_PORTS; first is 0 if there are none. */
struct weft__port_range {
    uint16_t first, last;
};
weft_result weft__setting_ports(struct weft__port_range *ports);

/* Every setting that is a number or a word has a value that is allowed, whether it counts for what
 * is made or not: else a slip of the pen is found only where the setting matters. */
weft_result weft__settings_check(void);

/* Any variable (a launcher's) as a number of min..max, read the same way. */
weft_result weft__environment_number(const char *name, int64_t min, int64_t max, int64_t *value);
