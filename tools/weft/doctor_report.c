/* SPDX-License-Identifier: MIT */
#include "doctor_report.h"

#include <jansson.h>
#include <stdio.h>

#include "job.h"
#include "workload/output.h"

static int finish(int result)
{
    return output_flush() != 0 || result != 0 ? -1 : 0;
}

static const double gib = 1 << 30;

/* Nothing, where the machine does not tell. */
static weft_device_info device_of(const weft_machine_info *info, int32_t i)
{
    weft_device_info device = WEFT_INIT(weft_device_info);
    (void)weft_device_query(info->machine, i, &device);
    return device;
}

static int print_machine_as_json(const weft_machine_info *info)
{
    json_t *devices = json_array();
    for (int32_t i = 0; i < info->num_devices; i++) {
        const weft_device_info device = device_of(info, i);
        json_array_append_new(devices, json_pack("{s:s, s:I, s:i}", "name", device.name,
                                                 "memory_bytes", (json_int_t)device.memory_bytes,
                                                 "processors", device.num_processors));
    }
    return job_print_json(json_pack("{s:s, s:s, s:b, s:s, s:i, s:i, s:i, s:o}", "kind", "machine",
                                    "machine", job_machine_names[info->machine], "usable",
                                    info->is_usable, "reason", info->reason, "driver_version",
                                    info->driver_version, "build_version", info->build_version,
                                    "num_devices", info->num_devices, "devices", devices),
                          info->machine);
}

static void print_version(const char *what, int32_t version)
{
    if (version != 0)
        printf(", %s %d.%d", what, version / 1000, version % 1000 / 10);
}

int doctor_print_machine(struct doctor_report *report, const weft_machine_info *info)
{
    if (report->format == DOCTOR_FORMAT_JSON)
        return print_machine_as_json(info);
    if (info->is_usable)
        printf("machine %s: %d device%s", job_machine_names[info->machine], info->num_devices,
               info->num_devices == 1 ? "" : "s");
    else
        printf("%s", info->reason);
    print_version("driver for CUDA", info->driver_version);
    print_version("built with CUDA", info->build_version);
    printf("\n");
    for (int32_t i = 0; i < info->num_devices; i++) {
        const weft_device_info device = device_of(info, i);
        printf("  %d: %s, %d processors, %.1f GiB", i, device.name, device.num_processors,
               (double)device.memory_bytes / gib);
        if (device.available_bytes != UINT64_MAX)
            printf(", %.1f left", (double)device.available_bytes / gib);
        printf("\n");
    }
    return finish(0);
}

int doctor_print_choice(struct doctor_report *report, const weft_machine_info *used,
                        const char *why)
{
    if (report->format == DOCTOR_FORMAT_JSON)
        return job_print_json(json_pack("{s:s, s:s, s:b, s:s}", "kind", "choice", "machine",
                                        job_machine_names[used->machine], "usable", used->is_usable,
                                        "why", why),
                              used->machine);
    printf("used: %s, %s\n", used->is_usable ? job_machine_names[used->machine] : "none", why);
    return finish(0);
}

int doctor_print_network(struct doctor_report *report, const weft_net_info *info)
{
    const char *engine = info->engine[0] != '\0' ? info->engine : "none";
    if (report->format == DOCTOR_FORMAT_JSON)
        return output_json(json_pack("{s:s, s:s, s:s, s:s, s:s, s:s}", "kind", "network", "engine",
                                     engine, "transport", info->transport, "why", info->reason,
                                     "gpu_memory", info->gpu_memory, "gpu_initiator",
                                     info->gpu_initiator),
                           NULL);
    printf("network between nodes: %s%s%s%s, %s\n", engine, info->transport[0] != '\0' ? " (" : "",
           info->transport, info->transport[0] != '\0' ? ")" : "", info->reason);
    if (info->gpu_memory[0] != '\0')
        printf("memory of GPUs between nodes: %s\n", info->gpu_memory);
    printf("RDMA started by GPUs: %s\n", info->gpu_initiator);
    return finish(0);
}

int doctor_print_finding(struct doctor_report *report, const struct doctor_finding *finding)
{
    static const char *const severities[] = {"ok", "warning", "error"};
    if (finding->severity > report->worst)
        report->worst = finding->severity;
    if (report->format == DOCTOR_FORMAT_JSON)
        return job_print_json(json_pack("{s:s, s:s, s:s, s:s, s:s?}", "kind", "system", "what",
                                        finding->what, "value", finding->value, "severity",
                                        severities[finding->severity], "advice", finding->advice),
                              WEFT_MACHINE_CPU);
    printf("%s: %s\n", finding->what, finding->value);
    if (finding->advice)
        printf("  %s: %s\n", severities[finding->severity], finding->advice);
    return finish(0);
}

static int print_links_as_json(weft_machine machine, int32_t num_ranks,
                               const struct link_figures *links)
{
    int result = 0;
    for (int32_t i = 0; i < num_ranks * num_ranks; i++)
        result |= job_print_json(json_pack("{s:s, s:s, s:i, s:i, s:f, s:f, s:I}", "kind", "link",
                                           "machine", job_machine_names[machine], "from",
                                           i / num_ranks, "to", i % num_ranks, "gbps",
                                           links[i].gbps, "latency_us", links[i].latency_us,
                                           "damaged_rows", (json_int_t)links[i].num_damaged_rows),
                                 machine);
    return result;
}

enum figure { FIGURE_GBPS, FIGURE_LATENCY };

static void print_matrix(const char *title, int32_t num_ranks, const struct link_figures *links,
                         enum figure figure)
{
    printf("\n%s\n%8s", title, "from\\to");
    for (int32_t to = 0; to < num_ranks; to++)
        printf(" %8d", to);
    for (int32_t i = 0; i < num_ranks * num_ranks; i++) {
        if (i % num_ranks == 0)
            printf("\n%8d", i / num_ranks);
        printf(" %8.1f", figure == FIGURE_GBPS ? links[i].gbps : links[i].latency_us);
    }
    printf("\n");
}

int doctor_print_links(struct doctor_report *report, weft_machine machine, int32_t num_ranks,
                       const struct link_figures *links)
{
    if (report->format == DOCTOR_FORMAT_JSON)
        return print_links_as_json(machine, num_ranks, links);
    print_matrix("GB/s of dispatch from rank to rank:", num_ranks, links, FIGURE_GBPS);
    print_matrix("Microseconds of a dispatch of one row from rank to rank:", num_ranks, links,
                 FIGURE_LATENCY);
    for (int32_t i = 0; i < num_ranks * num_ranks; i++)
        if (links[i].num_damaged_rows > 0)
            printf("FAILED: %lld rows from rank %d to rank %d arrived damaged\n",
                   (long long)links[i].num_damaged_rows, i / num_ranks, i % num_ranks);
    return finish(0);
}
