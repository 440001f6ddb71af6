/* SPDX-License-Identifier: MIT */
#include "comm/host/settings.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/host/error.h"
#include "comm/rendezvous/wire.h"

#define WORDS(...)                                                                                 \
    .words = (const char *const[])                                                                 \
    {                                                                                              \
        __VA_ARGS__, NULL                                                                          \
    }
#define NUMBER(least, most) .min = (least), .max = (most)
#define TEXT                .words = NULL /* checked where it is used */

const struct weft__setting_info weft__settings[WEFT__NUM_SETTINGS] = {
    [WEFT__SETTING_ADDR] = {"WEFT_ADDR", NULL,
                            "address the rendezvous listens on and the ranks connect to; without "
                            "it 127.0.0.1, or what the launcher says",
                            TEXT},
    [WEFT__SETTING_PORT] = {"WEFT_PORT", NULL,
                            "port of the rendezvous when ranks start from a launcher's "
                            "environment; without it one derived from the job",
                            NUMBER(1, UINT16_MAX)},
    [WEFT__SETTING_PORTS] = {"WEFT_PORTS", NULL,
                             "ports that ranks of several hosts connect to each other on, and the "
                             "rendezvous where nothing says its port: FIRST-LAST, for firewalls; "
                             "without it those that the system chooses",
                             TEXT},
    [WEFT__SETTING_SECRET] = {"WEFT_SECRET", NULL,
                              "32 hexadecimal digits, random and the same on all hosts of a job: "
                              "tells its ranks from strangers where no unique id does",
                              TEXT},
    [WEFT__SETTING_TIMEOUT_MS] = {"WEFT_TIMEOUT_MS", "30000",
                                  "deadline of every wait for another rank, in milliseconds",
                                  NUMBER(1, UINT32_MAX)},
    [WEFT__SETTING_STREAMS] = {"WEFT_STREAMS", "2",
                               "how many streams of a rank may hold operations at the same time",
                               NUMBER(1, WEFT_MAX_STREAMS)},
    [WEFT__SETTING_HEARTBEAT_MS] = {"WEFT_HEARTBEAT_MS", "10000",
                                    "how long a rank, or the rendezvous, may show no sign of life "
                                    "before it counts as failed, in milliseconds, at least 100; 0: "
                                    "for ever, as for debuggers",
                                    NUMBER(0, 86400000)},
    [WEFT__SETTING_LOG] = {"WEFT_LOG", "warn",
                           "what is written to standard error: off, error, warn, info or debug",
                           TEXT},
    [WEFT__SETTING_RECORDS] = {"WEFT_RECORDS", "512",
                               "how many of its last operations each communicator keeps records "
                               "of; 0: none, and no counters",
                               NUMBER(0, WEFT__MAX_RECORDS)},
    [WEFT__SETTING_RECORD] = {"WEFT_RECORD", NULL,
                              "directory for the flight record that each rank writes when its "
                              "communicator fails, for weft record",
                              TEXT},
    [WEFT__SETTING_METRICS] = {"WEFT_METRICS", NULL,
                               "directory for a file of metrics of each rank, in Prometheus' text "
                               "format, which is written each second",
                               TEXT},
    [WEFT__SETTING_NODES] = {"WEFT_NODES", NULL,
                             "number of virtual nodes of consecutive ranks; must divide the number "
                             "of ranks; without it a node per host",
                             NUMBER(1, WEFT__MAX_RANKS)},
    [WEFT__SETTING_MACHINE] = {"WEFT_MACHINE", "auto",
                               "machine of communicators whose config leaves it to the library: "
                               "cpu, cuda, or auto, which is cuda where it can be used",
                               WORDS("auto", "cpu", "cuda")},
    [WEFT__SETTING_CUDA_DEVICE] = {"WEFT_CUDA_DEVICE", NULL,
                                   "number of the CUDA device that this process uses; without it "
                                   "that of its current context, or one by its place on the host",
                                   NUMBER(0, INT32_MAX)},
    [WEFT__SETTING_CUDA_HEAP] = {"WEFT_CUDA_HEAP", "auto",
                                 "how heaps of GPUs are shared: auto, or ipc for CUDA IPC even "
                                 "where file descriptors would do",
                                 WORDS("auto", "ipc")},
    [WEFT__SETTING_NET] = {"WEFT_NET", "auto",
                           "engine of the network between nodes: tcp, ucx, or auto, which is ucx "
                           "where all hosts have RDMA, else tcp; the same on all ranks",
                           WORDS("auto", "tcp", "ucx")},
    [WEFT__SETTING_NET_DEVICES] = {"WEFT_NET_DEVICES", NULL,
                                   "devices that the network uses: eth0, or for engine ucx as UCX "
                                   "names them, mlx5_0:1; without it the interface towards the "
                                   "rendezvous, loopback if all ranks are on one host, and the "
                                   "ports for RDMA",
                                   TEXT},
    [WEFT__SETTING_NET_TRANSPORT] = {"WEFT_NET_TRANSPORT", "any",
                                     "any, or rdma: then whatever has no RDMA is an error",
                                     WORDS("any", "rdma")},
    [WEFT__SETTING_NET_GPUDIRECT] =
        {"WEFT_NET_GPUDIRECT", "auto",
         "whether the network reads and writes what is staged in memory "
         "of GPUs itself: off, on if it can, or auto, which is on where "
         "all ranks of other nodes are reached by RDMA",
         WORDS("auto", "on", "off")},
    [WEFT__SETTING_NET_INITIATOR] =
        {"WEFT_NET_INITIATOR", "host",
         "who starts what programs send between nodes: host, a thread of the host; gpu, programs "
         "by the queues of a NIC; or model, the same with a model of the NIC, for tests; the same "
         "on all ranks",
         WORDS("host", "gpu", "model")},
    [WEFT__SETTING_NET_LATENCY_US] =
        {"WEFT_NET_LATENCY_US", NULL,
         "how long a message takes from node to node, in microseconds: what the model of "
         "collectives believes in place of what the network tells",
         NUMBER(1, 10000000)},
    [WEFT__SETTING_TUNING] = {"WEFT_TUNING", NULL,
                              "file of weft tune that chooses the algorithms of collectives; only "
                              "rank 0's counts",
                              TEXT},
    [WEFT__SETTING_TOPO_FILE] = {"WEFT_TOPO_FILE", NULL,
                                 "file that describes this machine, in NCCL's format; without it "
                                 "what NCCL_TOPO_FILE names",
                                 TEXT},
    [WEFT__SETTING_TOPO_DUMP_FILE] = {"WEFT_TOPO_DUMP_FILE", NULL,
                                      "where to write what this machine is made of, in NCCL's "
                                      "format; without it where NCCL_TOPO_DUMP_FILE says",
                                      TEXT},
    [WEFT__SETTING_ID] = {"WEFT_ID", NULL, "the unique id in hexadecimal; set by weft run", TEXT},
    [WEFT__SETTING_RANK] = {"WEFT_RANK", NULL, "this process's rank; set by weft run", TEXT},
    [WEFT__SETTING_WORLD_SIZE] = {"WEFT_WORLD_SIZE", NULL, "number of ranks; set by weft run",
                                  TEXT},
};

const char *weft__setting_text(enum weft__setting setting)
{
    const char *text = getenv(weft__settings[setting].name);
    return text != NULL && text[0] != '\0' ? text : weft__settings[setting].default_value;
}

static weft_result parse_number(const char *name, const char *text, int64_t min, int64_t max,
                                int64_t *value)
{
    char *end = NULL;
    errno = 0;
    long long number = strtoll(text, &end, 10);
    if (end == text || *end != '\0' || errno != 0 || number < min || number > max)
        return weft__invalid("%s is \"%.64s\"; it must be a number of %" PRId64 "..%" PRId64, name,
                             text, min, max);
    *value = number;
    return WEFT_OK;
}

weft_result weft__setting_number(enum weft__setting setting, int64_t *value)
{
    const struct weft__setting_info *info = &weft__settings[setting];
    const char *text = weft__setting_text(setting);
    return text == NULL ? WEFT_OK : parse_number(info->name, text, info->min, info->max, value);
}

/* "auto, cpu or cuda" */
static void list_words(const char *const *words, char *list, size_t list_bytes)
{
    size_t length = 0;
    for (int i = 0; words[i] != NULL && length < list_bytes; i++) {
        const char *before = i == 0 ? "" : words[i + 1] == NULL ? " or " : ", ";
        length += (size_t)snprintf(list + length, list_bytes - length, "%s%s", before, words[i]);
    }
}

weft_result weft__setting_word(enum weft__setting setting, int *index)
{
    const struct weft__setting_info *info = &weft__settings[setting];
    const char *text = weft__setting_text(setting);
    char list[128];
    for (int i = 0; info->words[i] != NULL; i++)
        if (strcmp(text, info->words[i]) == 0) {
            *index = i;
            return WEFT_OK;
        }
    list_words(info->words, list, sizeof(list));
    return weft__invalid("%s is \"%.64s\"; it must be %s", info->name, text, list);
}

weft_result weft__setting_ports(struct weft__port_range *ports)
{
    const char *text = weft__setting_text(WEFT__SETTING_PORTS);
    unsigned first = 0, last = 0;
    int num_chars = 0;
    *ports = (struct weft__port_range){.first = 0};
    if (text == NULL)
        return WEFT_OK;
    const int num_read = sscanf(text, "%5u-%5u%n", &first, &last, &num_chars);
    if (num_read != 2 || text[num_chars] != '\0' || first == 0 || first > last ||
        last > UINT16_MAX || strspn(text, "0123456789-") != strlen(text))
        return weft__invalid("%s is \"%.64s\"; it must be FIRST-LAST, two ports of 1..%d, the "
                             "first not above the last",
                             weft__settings[WEFT__SETTING_PORTS].name, text, UINT16_MAX);
    *ports = (struct weft__port_range){(uint16_t)first, (uint16_t)last};
    return WEFT_OK;
}

weft_result weft__settings_check(void)
{
    struct weft__port_range ports;
    WEFT__TRY(weft__setting_ports(&ports));
    for (int i = 0; i < WEFT__NUM_SETTINGS; i++) {
        const enum weft__setting setting = (enum weft__setting)i;
        int64_t number;
        int word;
        if (weft__settings[i].words != NULL)
            WEFT__TRY(weft__setting_word(setting, &word));
        else if (weft__settings[i].max > 0)
            WEFT__TRY(weft__setting_number(setting, &number));
    }
    return WEFT_OK;
}

weft_result weft__environment_number(const char *name, int64_t min, int64_t max, int64_t *value)
{
    const char *text = getenv(name);
    return text == NULL || text[0] == '\0' ? WEFT_OK : parse_number(name, text, min, max, value);
}
