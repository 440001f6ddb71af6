/* SPDX-License-Identifier: MIT */
/* weft topo: what a machine is made of, by its file or by looking, and the rings and trees that NCCL's search finds. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/error.h"
#include "command.h"
#include "machine/host.h"
#include "topo/channels_file.h"
#include "topo/complete.h"
#include "topo/file.h"
#include "topo_view.h"
#include "weft.h"
#include "workload/options.h"
#include "workload/output.h"

enum { MAX_SEARCHED_NODES = 4096, MAX_GPUS = 64 };

enum what { ALL, RING, TREE, BALANCED_TREE, SPLIT_TREE, NVLS };
static const char *const what_names[] = {"all",        "ring", "tree", "balanced-tree",
                                         "split-tree", "nvls", NULL};
/* AUTO is the first; the rest are the types that a level may be. */
static const char *const level_names[] = {"auto", "LOC", "NVL", "NVB", "C2C", "PIX",
                                          "PXB",  "P2C", "PXN", "PHB", "SYS", NULL};

struct topo_options {
    const char *file; /* NULL: this machine */
    int32_t num_nodes;
    enum what what;
    int32_t p2p_level; /* among level_names */
    const char *nccl_version, *graph_in, *graph_out, *dump, *svg;
    int json;
    struct topo_times times;
};

static void parse_times(void *input, const char *text, struct argp_state *state)
{
    struct topo_options *options = input;
    options->times.op = option_choice(state, "--times", text, collective_names);
}

static void parse_bytes(void *input, const char *text, struct argp_state *state)
{
    struct topo_options *options = input;
    coll_parse_sizes(&options->times.sizes, text, state);
}

#define AT(member) OPTION_AT(struct topo_options, member)

static const struct option_row option_table[] = {
    {OPTION_GROUP, .doc = "What is looked for:"},
    {OPTION_INTEGER, "nodes", "N", "As if there were N such machines, with a network between", "1",
     AT(num_nodes), 1, MAX_SEARCHED_NODES},
    {OPTION_CHOICE, "pattern", "PATTERN",
     "ring, tree, balanced-tree, split-tree, nvls, or all: rings, balanced trees as many, and NVLS",
     "all", AT(what), .choices = what_names},
    {OPTION_CHOICE, "peer-access", "LEVEL",
     "GPUs reach each other's memory by paths up to LEVEL: LOC (never) to SYS (always)", "auto",
     AT(p2p_level), .choices = level_names},
    {OPTION_TEXT, "nccl", "VERSION",
     "Assume of links what that version of NCCL does, 2.27.3 or newer", NULL, AT(nccl_version)},
    {OPTION_TEXT, "channels", "FILE", "Take channels of FILE, in NCCL's format, not of a search",
     NULL, AT(graph_in)},
    {OPTION_GROUP, .doc = "What is expected:"},
    {OPTION_OTHER, "times", "OP",
     "Tell how long the collective OP is expected to take on one such machine, by each algorithm",
     NULL, .parse = parse_times},
    {OPTION_OTHER, "bytes", "SIZES", "Of --times, as weft coll has them", "1K:1G:x4",
     .parse = parse_bytes},
    {OPTION_GROUP, .doc = "What is written:"},
    {OPTION_TEXT, "graph", "OUT", "Write the channels to OUT, in NCCL's format", NULL,
     AT(graph_out)},
    {OPTION_TEXT, "dump", "OUT", "Write the topology to OUT, in NCCL's format", NULL, AT(dump)},
    {OPTION_TEXT, "svg", "FILE", "Draw nodes, links and channels", NULL, AT(svg)},
    {OPTION_FLAG, "json", NULL, "Print one JSON object", NULL, AT(json)},
    {OPTION_ARGUMENT, .arg = "[FILE]", AT(file)},
    {0}};

static const char documentation[] =
    "Tells what a machine is made of: GPUs, switches, processors and ports, the bandwidth of each "
    "link, the best path between each two; and which rings, trees and NVLS heads NCCL's search "
    "finds on it. FILE is a topology file of NCCL; without it WEFT_TOPO_FILE or NCCL_TOPO_FILE is "
    "completed by what this machine shows, or this machine is looked at alone."
    "\vThe exit status is 0 only if all was found and written; 1 if a file cannot be read, or is "
    "wrong; 2 for a wrong argument.";

/* ------------------------------------------------------------------ the machine */

static weft_result detect(struct topo_view *view)
{
    struct weft__topo_gpu_facts *gpus = calloc(MAX_GPUS, sizeof *gpus);
    if (gpus == NULL)
        return weft__error(WEFT_ERROR_OUT_OF_MEMORY, "no memory for GPUs");
    const int32_t num_gpus = weft__cuda_find_gpus(gpus, MAX_GPUS);
    const weft_result result = weft__topo_detect(weft__topo_file_to_read(), gpus, num_gpus,
                                                 &weft__sysfs_of_host, &view->system);
    free(gpus);
    return result;
}

static weft_result find_machine(const struct topo_options *options, struct topo_view *view)
{
    const struct weft__topo_constants *constants;
    const char *dump = options->dump != NULL ? options->dump : weft__topo_file_to_write();
    const struct weft__topo_access access = {.p2p_level = options->p2p_level - 1};
    WEFT__TRY(weft__topo_constants_of(options->nccl_version, &constants));
    view->name = options->file != NULL ? options->file : "this machine";
    WEFT__TRY(options->file != NULL ? weft__topo_read(options->file, &view->system) : detect(view));
    if (dump != NULL)
        WEFT__TRY(weft__xml_write(view->system, dump));
    WEFT__TRY(weft__topo_build(view->system, constants, &view->topo));
    return weft__topo_compute_paths(view->topo, &access);
}

/* ------------------------------------------------------------------ channels */

static enum weft__topo_reach reach_of(const struct topo_options *options)
{
    return options->num_nodes > 1 ? WEFT__TOPO_SEVERAL_NODES : WEFT__TOPO_ONE_NODE;
}

static weft_result find_one_set(const struct topo_options *options, struct topo_view *view)
{
    static const struct {
        enum weft__channels_id id;
        enum weft__pattern pattern;
    } wishes[] = {[RING] = {WEFT__CHANNELS_RING, WEFT__PATTERN_RING},
                  [TREE] = {WEFT__CHANNELS_TREE, WEFT__PATTERN_TREE},
                  [BALANCED_TREE] = {WEFT__CHANNELS_TREE, WEFT__PATTERN_BALANCED_TREE},
                  [SPLIT_TREE] = {WEFT__CHANNELS_TREE, WEFT__PATTERN_SPLIT_TREE},
                  [NVLS] = {WEFT__CHANNELS_NVLS, WEFT__PATTERN_NVLS}};
    const struct weft__search_wish wish = {wishes[options->what].id, wishes[options->what].pattern,
                                           1, WEFT__MAX_CHANNELS / 2, reach_of(options)};
    return weft__search(view->topo, &wish, &view->sets.of[wish.id]);
}

static weft_result connect_nodes(const struct topo_options *options, struct topo_view *view)
{
    const int32_t num_gpus = weft__topo_count(view->topo, WEFT__TOPO_GPU);
    struct weft__channel_sets *sets = calloc((size_t)options->num_nodes, sizeof *sets);
    const struct weft__nodes nodes = {sets, options->num_nodes, options->num_nodes * num_gpus,
                                      weft__topo_at(view->topo, WEFT__TOPO_GPU, 0)->gpu.sm};
    weft_result result = sets != NULL ? WEFT_OK : WEFT_ERROR_OUT_OF_MEMORY;
    for (int32_t n = 0; n < options->num_nodes && result == WEFT_OK; n++)
        for (int id = 0; id < WEFT__NUM_CHANNELS_IDS && result == WEFT_OK; id++)
            if (view->sets.of[id] != NULL)
                result = weft__channels_of_node(view->sets.of[id], n, &sets[n].of[id]);
    if (result == WEFT_OK)
        result = weft__channels_connect(&nodes, &view->connections);
    for (int32_t n = 0; sets != NULL && n < options->num_nodes; n++)
        weft__channel_sets_free(&sets[n]);
    free(sets);
    view->is_connected = result == WEFT_OK;
    return result;
}

static weft_result find_channels(const struct topo_options *options, struct topo_view *view)
{
    if (weft__topo_count(view->topo, WEFT__TOPO_GPU) == 0 && options->graph_in == NULL)
        return WEFT_OK;
    if (options->graph_in != NULL)
        WEFT__TRY(weft__channels_read(view->topo, options->graph_in, &view->sets));
    else if (options->what == ALL)
        WEFT__TRY(weft__search_all(view->topo, reach_of(options), &view->sets));
    else
        WEFT__TRY(find_one_set(options, view));
    if (options->num_nodes > 1 && topo_view_set(view, WEFT__CHANNELS_RING) != NULL &&
        topo_view_set(view, WEFT__CHANNELS_TREE) != NULL)
        WEFT__TRY(connect_nodes(options, view));
    return WEFT_OK;
}

static weft_result write_channels(const struct topo_options *options, const struct topo_view *view)
{
    struct weft__xml *graphs = NULL;
    if (options->graph_out == NULL)
        return WEFT_OK;
    WEFT__TRY(weft__channels_to_xml(view->topo, &view->sets, reach_of(options), &graphs));
    const weft_result result = weft__xml_write(graphs, options->graph_out);
    weft__xml_remove(graphs);
    return result;
}

/* ------------------------------------------------------------------ the command */

static int show(const struct topo_options *options, const struct topo_view *view)
{
    if (options->svg != NULL && topo_write_svg(view, options->svg) != 0)
        return STATUS_FAILURE;
    const int result = options->json ? topo_print_json(view) : topo_print_text(view);
    return output_flush() != 0 || result != 0 ? STATUS_FAILURE : EXIT_SUCCESS;
}

int command_topo(int argc, char **argv)
{
    struct topo_options options = {.times = {.op = TOPO_NO_TIMES}};
    struct topo_view view = {.name = ""};
    const struct option_set set = {.table = option_table, .doc = documentation};
    int status = STATUS_FAILURE;
    options_parse(&set, &options, argc, argv);
    view.num_nodes = options.num_nodes;
    view.times = options.times;
    weft_result result = find_machine(&options, &view);
    if (result == WEFT_OK)
        result = find_channels(&options, &view);
    if (result == WEFT_OK)
        result = write_channels(&options, &view);
    if (result == WEFT_OK)
        status = show(&options, &view);
    else
        fprintf(stderr, "weft topo: %s\n", weft__last_error());
    weft__connections_free(&view.connections);
    weft__channel_sets_free(&view.sets);
    weft__topo_free(view.topo);
    weft__xml_remove(view.system);
    return status;
}
