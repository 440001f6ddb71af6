/* SPDX-License-Identifier: MIT */
#include "api/log_job.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "coll/coll.h"
#include "comm/host/log.h"
#include "comm/host/settings.h"
#include "comm/rendezvous/observe.h"
#include "ep/low_latency.h"
#include "launch/names.h"
#include "machine/host.h"

#define TELL(...) weft__log(WEFT__LOG_INFO, 0, __VA_ARGS__)

static int is_wanted(const weft_comm *comm)
{
    return comm->rank == 0 && weft__log_wants(WEFT__LOG_INFO);
}

static void log_version(void)
{
    TELL("weft %d.%d.%d%s%s", WEFT_VERSION_MAJOR, WEFT_VERSION_MINOR, WEFT_VERSION_PATCH,
         *weft_commit() != '\0' ? ", commit " : "", weft_commit());
}

/* Those of the job itself are no choice of the user's; secrets are not told. */
static int is_told(enum weft__setting setting)
{
    const struct weft__setting_info *info = &weft__settings[setting];
    const char *text = weft__setting_text(setting);
    return setting != WEFT__SETTING_ID && setting != WEFT__SETTING_RANK &&
           setting != WEFT__SETTING_WORLD_SIZE && text != NULL &&
           (info->default_value == NULL || strcmp(text, info->default_value) != 0);
}

static void log_settings(void)
{
    char list[400] = "";
    size_t length = 0;
    for (int i = 0; i < WEFT__NUM_SETTINGS && length < sizeof list; i++) {
        const enum weft__setting setting = (enum weft__setting)i;
        if (is_told(setting))
            length += (size_t)snprintf(
                list + length, sizeof list - length, " %s=%.100s", weft__settings[i].name,
                setting == WEFT__SETTING_SECRET ? "(not told)" : weft__setting_text(setting));
    }
    TELL("settings:%s", length > 0 ? list : " all defaults");
}

/* ---------------------------------------------------------------- ranks */

/* Ranks in a row on one host, whose devices are one, or in a row too. */
struct run {
    const struct weft__observed_rank *first;
    int32_t num_ranks;
    int32_t step; /* of devices */
};

static int goes_on(struct run *run, const struct weft__observed_rank *next)
{
    const struct weft__observed_rank *first = run->first;
    const int32_t step = next->report.device - first->report.device;
    if (strcmp(next->entry.host, first->entry.host) != 0 || next->state != first->state ||
        strcmp(next->report.machine, first->report.machine) != 0)
        return 0;
    if (run->num_ranks == 1)
        run->step = step;
    return (run->step == 0 || run->step == 1) && step == run->num_ranks * run->step;
}

static void log_run(const struct run *run)
{
    const struct weft__observed_rank *first = run->first;
    const int32_t last = first->rank + run->num_ranks - 1, device = first->report.device;
    char ranks[40], devices[40] = "";
    snprintf(ranks, sizeof ranks, last > first->rank ? "ranks %d-%d" : "rank %d", first->rank,
             last);
    if (first->state == WEFT__REPORTED && strcmp(first->report.machine, "cuda") == 0)
        snprintf(devices, sizeof devices, run->step > 0 ? ", GPUs %d-%d" : ", GPU %d", device,
                 device + run->num_ranks - 1);
    TELL("%s on %s, machine %s%s", ranks, first->entry.host,
         first->state == WEFT__REPORTED ? first->report.machine : "(no answer)", devices);
}

/* With more lines it would be no screen. */
static void log_ranks(const weft_comm *comm)
{
    enum { MAX_LINES = 16 };
    struct weft__observed_rank *ranks;
    int32_t num_ranks, num_lines = 0;
    if (weft__comm_look(comm, &ranks, &num_ranks) != WEFT_OK) {
        TELL("rank %d alone on %s, machine %s", comm->rank, comm->identities[comm->rank].host,
             comm->hooks->name);
        return;
    }
    for (int32_t i = 0; i < num_ranks;) {
        struct run run = {.first = &ranks[i], .num_ranks = 1};
        while (++i < num_ranks && ranks[i].key == run.first->key && goes_on(&run, &ranks[i]))
            run.num_ranks++;
        if (run.first->key == comm->key && num_lines++ < MAX_LINES)
            log_run(&run);
    }
    if (num_lines > MAX_LINES)
        TELL("and %d more lines of ranks", num_lines - MAX_LINES);
    free(ranks);
}

static void log_nodes(const weft_comm *comm)
{
    weft_net_info network = WEFT_INIT(weft_net_info);
    const int32_t num_nodes = comm->topology.num_nodes;
    if (num_nodes == 1)
        TELL("1 node, no network");
    else if (weft__machine_of(comm)->describe_network(comm, &network) == WEFT_OK)
        TELL("%d nodes; network %s (%s), %s%s%s", num_nodes, network.engine, network.transport,
             network.reason, network.gpu_memory[0] != '\0' ? "; memory of GPUs: " : "",
             network.gpu_memory);
}

void weft__log_job(const weft_comm *comm)
{
    if (!is_wanted(comm))
        return;
    log_version();
    log_settings();
    log_ranks(comm);
    log_nodes(comm);
}

/* ---------------------------------------------------------------- algorithms and protocols */

static const char *const reasons[] = {
    [WEFT_COLL_ONLY_ONE] = "the only one over nodes",
    [WEFT_COLL_PINNED] = "as weft_coll_config says",
    [WEFT_COLL_TABLE] = "as the table of WEFT_TUNING says",
    [WEFT_COLL_SHIPPED_TABLE] = "as the library's table of this GPU says",
    [WEFT_COLL_FORMULA] = "by limits of the library",
    [WEFT_COLL_MODEL] = "as a model expects",
};

void weft__log_collectives(const weft_coll *coll)
{
    static const uint64_t sizes[] = {UINT64_C(1) << 10, UINT64_C(1) << 16, UINT64_C(1) << 20,
                                     UINT64_C(1) << 26};
    char list[400] = "";
    size_t length = 0;
    if (!is_wanted(coll->comm))
        return;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes && length < sizeof list; i++) {
        const struct weft__coll_choice choice = weft__coll_choose(coll, WEFT_ALL_REDUCE, sizes[i]);
        length += (size_t)snprintf(
            list + length, sizeof list - length, "%s %" PRIu64 " KiB by %s (%s)", i == 0 ? "" : ",",
            sizes[i] >> 10, weft_coll_algorithm_name(choice.algorithm), reasons[choice.reason]);
    }
    TELL("all-reduce of%s", list);
}

void weft__log_low_latency(const weft_comm *comm, const weft_ep *experts,
                           const weft_ll_config *config)
{
    weft_ll_sizes sizes = WEFT_INIT(weft_ll_sizes);
    if (!is_wanted(comm) || weft__ll_query_sizes(experts, config, &sizes) != WEFT_OK)
        return;
    TELL("low latency: %s, %s%s", weft__constant_name(WEFT__ENUM_LL_CARRIER, sizes.carrier),
         config->carrier != WEFT_LL_AUTO   ? "as weft_ll_config says"
         : sizes.carrier_reason[0] != '\0' ? "since "
                                           : "the fastest",
         config->carrier == WEFT_LL_AUTO ? sizes.carrier_reason : "");
}
