/* SPDX-License-Identifier: MIT */
/* The machine, its paths and its channels in words. */
#include <inttypes.h>
#include <stdio.h>

#include "topo_view.h"

enum { MAX_COLUMNS = 16 }; /* of the matrix: more would not fit on a screen */

/* ------------------------------------------------------------------ the machine */

static const char *type_words(enum topo_type type)
{
    static const char *const words[] = {"the device itself",
                                        "NVLink",
                                        "NVLink by way of another GPU",
                                        "the link between a GPU and the processor it is built with",
                                        "PCI, at most one switch",
                                        "PCI, several switches",
                                        "C2C to the processor, then PCI",
                                        "NVLink to a GPU that is near the port, then PCI",
                                        "PCI and a processor",
                                        "from one processor to another",
                                        "the network",
                                        "no path"};
    return words[type];
}

static void print_counts(const struct topo_view *view)
{
    const struct topo *topo = view->topo;
    printf("%s: %" PRId32 " GPUs, %" PRId32 " processors, %" PRId32 " ports of the network",
           view->name, topo_count(topo, TOPO_GPU), topo_count(topo, TOPO_CPU),
           topo_count(topo, TOPO_NET));
    if (topo_count(topo, TOPO_NVS) > 0)
        printf(", NVSwitch");
    if (view->num_alike > 1)
        printf("; %" PRId32 " such machines", view->num_alike);
    printf("\nLinks have the bandwidths that NCCL %s assumes, in GB/s one way.\n",
           topo->constants->nccl_version);
}

static void print_details(const struct topo_node *node)
{
    char bus_id[32];
    topo_bus_id_text(node->id, bus_id);
    if (node->kind == TOPO_GPU)
        printf(" (%s, sm %" PRId32 ")", bus_id, node->gpu.sm);
    else if (node->kind == TOPO_NET)
        printf(" (%g GB/s%s)", (double)node->net.bw,
               node->net.has_gdr ? ", reaches memory of GPUs" : "");
}

/* NVLink and C2C, which are no part of the tree. */
static void print_other_links(const struct topo_node *node)
{
    char text[64];
    const char *before = "; ";
    for (int32_t i = 0; i < node->num_links && node->kind == TOPO_GPU; i++) {
        const struct topo_link *link = &node->links[i];
        if (link->type == TOPO_PIX)
            continue;
        topo_node_text(link->to, text);
        printf("%s%s %g to %s", before, topo_type_name(link->type), (double)link->bw, text);
        before = ", ";
    }
}

static void print_below(const struct topo_node *node, const struct topo_node *from, int indent)
{
    char text[64];
    for (int32_t i = 0; i < node->num_links; i++) {
        const struct topo_link *link = &node->links[i];
        if (!topo_is_below(link, from))
            continue;
        topo_node_text(link->to, text);
        printf("%*s%s", indent, "", text);
        print_details(link->to);
        if (link->to->kind != TOPO_NET)
            printf(", PCI %g", (double)link->bw);
        print_other_links(link->to);
        printf("\n");
        if (link->to->kind != TOPO_GPU)
            print_below(link->to, node, indent + 2);
    }
}

static void print_tree(const struct topo_view *view)
{
    const struct topo *topo = view->topo;
    for (int32_t i = 0; i < topo_count(topo, TOPO_CPU); i++) {
        const struct topo_node *cpu = topo_at(topo, TOPO_CPU, i);
        printf("\nCPU %" PRId32, (int32_t)cpu->id);
        for (int32_t l = 0; l < cpu->num_links; l++)
            if (cpu->links[l].type == TOPO_SYS) {
                printf(", %g to each other CPU", (double)cpu->links[l].bw);
                break;
            }
        printf("\n");
        print_below(cpu, NULL, 2);
    }
}

/* ------------------------------------------------------------------ paths */

static void print_path(const struct topo_path *path, int *used_types)
{
    char text[32];
    snprintf(text, sizeof text, "%.4g %s", (double)path->bw, topo_type_name(path->type));
    printf(" %10s", text);
    used_types[path->type] = 1;
}

static void print_matrix(const struct topo_view *view, enum topo_kind kind)
{
    const struct topo *topo = view->topo;
    const int32_t num_rows = topo_count(topo, TOPO_GPU);
    const int32_t count = topo_count(topo, kind);
    const int32_t num_columns = count < MAX_COLUMNS ? count : MAX_COLUMNS;
    int used_types[TOPO_NUM_TYPES] = {0};
    char text[64];
    printf("\nBest path from each GPU to each %s:\n%8s", kind == TOPO_GPU ? "GPU" : "port", "");
    for (int32_t i = 0; i < num_columns; i++) {
        topo_node_text(topo_at(topo, kind, i), text);
        printf(" %10s", text);
    }
    for (int32_t row = 0; row < num_rows; row++) {
        const struct topo_node *gpu = topo_at(topo, TOPO_GPU, row);
        topo_node_text(gpu, text);
        printf("\n%-8s", text);
        for (int32_t i = 0; i < num_columns; i++) {
            if (kind == TOPO_GPU && i == row)
                printf(" %10s", "-");
            else
                print_path(&gpu->paths[kind][i], used_types);
        }
    }
    printf("\n");
    if (count > num_columns)
        printf("(%" PRId32 " more; --json has all)\n", count - num_columns);
    for (int type = 0; type < TOPO_NUM_TYPES; type++)
        if (used_types[type])
            printf("  %s: %s\n", topo_type_name((enum topo_type)type),
                   type_words((enum topo_type)type));
}

/* ------------------------------------------------------------------ channels */

static void print_port(const struct topo_view *view, int32_t net, const char *form)
{
    if (net >= 0)
        printf(form, topo_at(view->topo, TOPO_NET, net)->net.dev);
}

static void print_channel(const struct topo_view *view, const struct channels *channels,
                          int32_t first, int32_t last)
{
    const struct channel *channel = &channels->channel[first];
    const int is_nvls = channels->id == CHANNELS_NVLS;
    if (first == last)
        printf("  %5" PRId32 ": ", first);
    else
        printf("  %2" PRId32 "-%-2" PRId32 ": ", first, last);
    print_port(view, topo_port_of(view, channels, first, TOPO_COMES), "port %" PRId32 " ");
    printf(is_nvls ? "head GPU" : "GPU");
    for (int32_t i = 0; i < (is_nvls ? 1 : channels->num_gpus); i++)
        printf(" %" PRId32, channel->ranks[i]);
    print_port(view, topo_port_of(view, channels, first, TOPO_GOES), " port %" PRId32);
    printf("\n");
}

static const char *pattern_words(enum pattern pattern)
{
    switch (pattern) {
    case PATTERN_RING:
        return "each GPU sends to the next, the last to the first, or to the network";
    case PATTERN_TREE:
        return "a chain; the first GPU talks to other machines";
    case PATTERN_BALANCED_TREE:
        return "a chain; the first two GPUs share what goes to other machines";
    default:
        return "the switch sums and copies; a head works for a part of the data";
    }
}

static void print_bandwidths(const struct topo_view *view, const struct channels *channels)
{
    const double bw = (double)channels->bw_intra;
    printf("\n%s (%s): %" PRId32 " channels of %g GB/s, %g together; paths up to %s",
           topo_set_name(channels->id), pattern_name(channels->pattern), channels->num_channels, bw,
           bw * channels->num_channels, topo_type_name(channels->type_intra));
    if (view->num_nodes > 1)
        printf("; to the network %g GB/s each, up to %s", (double)channels->bw_inter,
               topo_type_name(channels->type_inter));
}

static void print_set(const struct topo_view *view, const struct channels *channels)
{
    if (channels_were_found(channels))
        print_bandwidths(view, channels);
    else
        printf("\n%s (%s): no channel was found; NCCL then has one, in simple order",
               topo_set_name(channels->id), pattern_name(channels->pattern));
    printf("\n  %s\n", pattern_words(channels->pattern));
    for (int32_t first = 0, last; first < channels->num_channels; first = last + 1) {
        for (last = first; last + 1 < channels->num_channels &&
                           topo_channels_are_same(channels, first, last + 1);)
            last++;
        print_channel(view, channels, first, last);
    }
}

static void print_sets(const struct topo_view *view)
{
    for (int i = 0; i < TOPO_NUM_SETS; i++) {
        const struct channels *channels = topo_view_set(view, topo_set_order[i]);
        if (channels != NULL)
            print_set(view, channels);
    }
}

static void print_machine(const struct topo_view *view)
{
    print_counts(view);
    print_tree(view);
    if (topo_count(view->topo, TOPO_GPU) == 0) {
        printf("\nNo GPU with a rank: there are no channels to search.\n");
        return;
    }
    print_matrix(view, TOPO_GPU);
    if (topo_count(view->topo, TOPO_NET) > 0)
        print_matrix(view, TOPO_NET);
    print_sets(view);
}

int topo_print_text(const struct topo_job *job)
{
    for (int32_t i = 0; i < job->num_machines; i++) {
        if (job->num_machines > 1)
            printf("%sMachine %" PRId32 " of %" PRId32 ": ", i > 0 ? "\n" : "", i + 1,
                   job->num_machines);
        print_machine(&job->machines[i]);
    }
    return 0;
}
