/* SPDX-License-Identifier: MIT */
/* What weft topo --json tells of machines. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "report/page.h"
#include "report/parts.h"
#include "report/plot.h"

enum { MAX_DRAWN_GPUS = 64 };

int topology_is_in(const json_t *json)
{
    const char *kind = json_string_value(json_object_get(json, "kind"));
    return kind != NULL && (strcmp(kind, "topology") == 0 || strcmp(kind, "topologies") == 0);
}

static void write_text(FILE *file, const json_t *json, const char *field)
{
    const char *text = json_string_value(json_object_get(json, field));
    fputs("<td class=\"a\">", file);
    page_text(file, text != NULL ? text : "");
    fputs("</td>", file);
}

static void write_number(FILE *file, const json_t *json, const char *field)
{
    char text[PAGE_NUMBER_CHARS];
    const json_t *value = json_object_get(json, field);
    fprintf(file, "<td>%s</td>",
            json_is_number(value) ? page_number(json_number_value(value), text) : "");
}

static void write_sets(FILE *file, const json_t *sets)
{
    size_t i;
    json_t *set;
    fputs("<div class=\"s\"><table><thead><tr><th class=\"a\">set</th><th class=\"a\">pattern</th>"
          "<th>channels</th><th>GB/s each</th><th>GB/s to the network</th>"
          "<th class=\"a\">paths up to</th></tr></thead><tbody>\n",
          file);
    json_array_foreach((json_t *)sets, i, set)
    {
        fputs("<tr>", file);
        write_text(file, set, "set");
        write_text(file, set, "pattern");
        fprintf(file, "<td>%zu</td>", json_array_size(json_object_get(set, "channels")));
        write_number(file, set, "gb_per_s");
        write_number(file, set, "network_gb_per_s");
        write_text(file, set, "type");
        fputs("</tr>\n", file);
    }
    fputs("</tbody></table></div>\n", file);
}

/* GB/s between each two GPUs. */
static void write_paths(FILE *file, const json_t *paths)
{
    const size_t num_gpus = json_array_size(paths);
    double *gbps = num_gpus > 0 && num_gpus <= MAX_DRAWN_GPUS
                       ? calloc(num_gpus * num_gpus, sizeof *gbps)
                       : NULL;
    for (size_t i = 0; gbps != NULL && i < num_gpus * num_gpus; i++) {
        const json_t *path = json_array_get(json_array_get(paths, i / num_gpus), i % num_gpus);
        gbps[i] = i / num_gpus == i % num_gpus
                      ? (double)NAN
                      : json_number_value(json_object_get(path, "gb_per_s"));
    }
    const struct heat heat = {.title = "best path between GPUs, GB/s one way",
                              .row_title = "from",
                              .column_title = "to",
                              .num_rows = (int)num_gpus,
                              .num_columns = (int)num_gpus,
                              .values = gbps};
    if (gbps != NULL)
        heat_write(file, &heat);
    free(gbps);
}

static void write_machine(FILE *file, const json_t *machine)
{
    const char *name = json_string_value(json_object_get(machine, "name"));
    fputs("<h3>", file);
    page_text(file, name != NULL ? name : "machine");
    fputs("</h3>\n", file);
    write_sets(file, json_object_get(machine, "sets"));
    fputs("<div class=\"p\">\n", file);
    write_paths(file, json_object_get(machine, "gpu_paths"));
    fputs("</div>\n", file);
}

void topology_write(FILE *file, const json_t *json)
{
    size_t i;
    json_t *machine, *machines = json_object_get(json, "machines");
    if (machines == NULL)
        write_machine(file, json);
    json_array_foreach(machines, i, machine) write_machine(file, machine);
}
