/* SPDX-License-Identifier: MIT */
/* Channels of real machines: those that NCCL found there, byte for byte, and what it finds on
 * others. */
#include <stdlib.h>
#include <string.h>

#include "comm/host/error.h"
#include "harness/cmocka.h"
#include "topo/channels_file.h"
#include "topo/paths.h"
#include "topo_files.h"

/* ---------------------------------------------------------------- what NCCL has written */

static char *channels_as_text(struct xml *system, const char *nccl_version, enum topo_reach reach)
{
    struct xml *graphs = NULL;
    struct channel_sets sets = {{NULL}};
    struct topo *topo = topo_graph(system, nccl_version);
    assert_ok(search_all(topo, reach, &sets));
    assert_ok(channels_to_xml(topo, &sets, reach, &graphs));
    char *text = topo_print(graphs);
    xml_remove(graphs);
    xml_remove(system);
    channel_sets_free(&sets);
    topo_free(topo);
    return text;
}

TEST(the_channels_of_real_machines_are_those_that_nccl_has_written)
{
    static const struct {
        const char *topology, *graph, *nccl_version;
    } goldens[] = {
        {"vastai-hgx-h200-8x.topo.xml", "vastai-hgx-h200-8x.graph.xml", "2.27.3"},
        {"vastai-hgx-b200-8x.topo.xml", "vastai-hgx-b200-8x.graph.xml", "2.27.3"},
        {"perlmutter-a100-4x.topo.xml", "perlmutter-a100-4x.graph.xml", "2.29.7"},
    };
    for (size_t i = 0; i < sizeof goldens / sizeof goldens[0]; i++) {
        size_t num_bytes;
        char *wanted = topo_file_bytes(goldens[i].graph, &num_bytes);
        char *found = channels_as_text(topo_file_read(goldens[i].topology), goldens[i].nccl_version,
                                       TOPO_ONE_NODE);
        if (strcmp(found, wanted) != 0)
            fail_msg("%s: found\n%s", goldens[i].graph, found);
        free(wanted);
        free(found);
    }
}

/* ---------------------------------------------------------------- what NCCL finds elsewhere */

/* A machine, and what is to be found there. */
struct expectation {
    struct topo_machine machine; /* sm 0: the file is whole */
    int num_gpus;                /* of the first; 0: all */
    enum topo_reach reach;
    const char *nccl_version;       /* NULL: the newest */
    const char *ring, *tree, *nvls; /* how the description begins; NULL: anything */
};

static const char ring_12x30[] = "12x30/30 NVL/PIX pattern 4 cross 0 same 1\n0 1 2";
static const char ring_of_8[] = "12x30/30 NVL/PIX pattern 4 cross 0 same 1\n0 1 2 3 4 5 6 7\n";
static const char tree_of_8[] = "12x30/30 NVL/PIX pattern 1 cross 0 same 1\n0 1 2 3 4 5 6 7\n";
static const char no_nvls[] = "0x0/0 ";

#define H200                                                                                       \
    {                                                                                              \
        .file = "vastai-hgx-h200-8x.topo.xml"                                                      \
    }
#define NDV5                                                                                       \
    {                                                                                              \
        "azure-ndv5.partial.topo.xml", TOPO_ORDER_OF_FILE, 90, 18, 400000                          \
    }
#define NDV4                                                                                       \
    {                                                                                              \
        "azure-ndv4.partial.topo.xml", TOPO_ORDER_OF_BUS_IDS, 80, 12, 200000                       \
    }
#define P4D                                                                                        \
    {                                                                                              \
        "aws-p4d-24xl.partial.topo.xml", TOPO_ORDER_OF_BUS_IDS, 80, 12, 100000                     \
    }
#define ALONE TOPO_ONE_NODE
#define MANY  TOPO_SEVERAL_NODES

static const struct expectation expectations[] = {
    {H200, 2, ALONE, NULL, "12x30/30 NVL/PIX pattern 4 cross 0 same 1\n0 1\n", "12x60/60 NVL",
     "2x60/60 NVL"},
    {H200, 3, ALONE, NULL, ring_12x30, "12x40/40", "3x60/60 NVL"},
    {H200, 4, ALONE, NULL, ring_12x30, "12x30/30", "4x60/60 NVL"},
    {H200, 5, ALONE, NULL, ring_12x30, "12x30/30", "5x60/60 NVL"},
    {H200, 6, ALONE, NULL, ring_12x30, "12x30/30", "6x50/60 NVL"},
    {H200, 7, ALONE, NULL, ring_12x30, "12x30/30", "7x40/60 NVL"},
    {H200, 0, ALONE, NULL, ring_of_8, tree_of_8, "8x40/60 NVL"},
    {{.file = "vastai-hgx-b200-8x.topo.xml"},
     0,
     ALONE,
     NULL,
     "16x45/45 NVL/PIX pattern 4",
     "16x45/45 NVL/PIX pattern 1",
     "8x80/90 NVL"},
    {{.file = "perlmutter-a100-4x.topo.xml"},
     0,
     ALONE,
     NULL,
     "12x20/20 NVL/PIX pattern 4 cross 0 same 0\n"
     "0 3 2 1\n0 3 1 2\n0 2 1 3\n0 2 3 1\n0 1 3 2\n0 1 2 3\n"
     "0 3 2 1\n0 3 1 2\n0 2 1 3\n0 2 3 1\n0 1 3 2\n0 1 2 3",
     "12x20/20",
     no_nvls},
    {NDV5, 0, ALONE, NULL, ring_of_8, tree_of_8, "8x40/60 NVL"},
    {NDV5, 0, MANY, NULL,
     "8x48/48 NVL/PIX pattern 4 cross 2 same 0\nNET0 0 7 6 5 4 3 2 1 NET1\n"
     "NET1 1 2 3 4 5 6 7 0 NET0\nNET2 2 1 0 7 6 5 4 3 NET3\nNET3 3 4 5 6 7 0 1 2 NET2\n",
     "8x48/48 NVL/PIX pattern 3 cross 0 same 0\nNET0 0 1 2 3 4 5 6 7 NET0\n"
     "NET1 1 2 3 4 5 6 7 0 NET1\n",
     "8x40/48 NVL/PIX pattern 5 cross 0 same 0\nNET0 0 NET0\nNET1 1 NET1\nNET2 2 NET2\n"
     "NET3 3 NET3\nNET4 4 NET4\nNET5 5 NET5\nNET6 6 NET6\nNET7 7 NET7"},
    {NDV4, 0, ALONE, NULL, "12x20/20 NVL/PIX pattern 4", "12x20/20 NVL/PIX pattern 1", no_nvls},
    {NDV4, 0, MANY, NULL, "8x24/24 NVL/PIX pattern 4 cross 0", "8x30/24 NVL/PIX pattern 1",
     no_nvls},
    {P4D, 0, ALONE, NULL, "12x20/20 NVL/PIX pattern 4", NULL, no_nvls},
    {P4D, 0, MANY, NULL,
     "4x12/12 NVL/PIX pattern 4 cross 0 same 0\nNET0 0 7 6 5 4 3 2 1 NET0\nNET1 2 1 0 7 6 5 4 3 "
     "NET1",
     "4x24/12 NVL/PIX pattern 1", no_nvls},
    {{.file = "azure-ncv4.topo.xml"},
     0,
     ALONE,
     NULL,
     "2x6/6 SYS/PIX pattern 4 cross 0 same 1\n0 1 2 3\n0 1 2 3",
     "2x6/6 SYS/PIX pattern 1 cross 0 same 1\n0 1 2 3\n0 1 2 3",
     no_nvls},
    {{.file = "azure-ncv4-selflinks.topo.xml"},
     0,
     ALONE,
     NULL,
     "1x12/12 SYS/",
     "1x12/12 SYS/",
     no_nvls},
};
enum { NUM_EXPECTATIONS = sizeof expectations / sizeof expectations[0] };

static struct topo *machine_of(const struct expectation *expectation)
{
    struct xml *system = expectation->machine.sm > 0 ? topo_completed(&expectation->machine)
                                                     : topo_file_read(expectation->machine.file);
    if (expectation->num_gpus > 0)
        topo_keep_gpus(system, expectation->num_gpus);
    struct topo *topo = topo_graph(system, expectation->nccl_version);
    xml_remove(system);
    return topo;
}

static void must_begin(const struct topo *topo, const struct channels *channels, const char *wanted)
{
    static char text[1 << 14];
    topo_describe(topo, channels, text, sizeof text);
    if (wanted != NULL && strncmp(text, wanted, strlen(wanted)) != 0)
        fail_msg("not\n%s...\nbut\n%s", wanted, text);
}

TEST(channels_of_other_machines_are_those_that_nccl_finds)
{
    for (int i = 0; i < NUM_EXPECTATIONS; i++) {
        struct topo *topo = machine_of(&expectations[i]);
        struct channel_sets sets = {{NULL}};
        assert_ok(search_all(topo, expectations[i].reach, &sets));
        must_begin(topo, sets.of[CHANNELS_RING], expectations[i].ring);
        must_begin(topo, sets.of[CHANNELS_TREE], expectations[i].tree);
        must_begin(topo, sets.of[CHANNELS_NVLS], expectations[i].nvls);
        channel_sets_free(&sets);
        topo_free(topo);
    }
}

/* ---------------------------------------------------------------- machines without NVLink */

static struct channels *rings_without_p2p(const char *text, struct topo **topo)
{
    const struct search_wish wish = {CHANNELS_RING, PATTERN_RING, 1, 32, TOPO_ONE_NODE};
    struct channels *rings = NULL;
    struct xml *system = topo_text_read(text);
    *topo = topo_graph(system, NULL);
    assert_ok(topo_compute_paths(*topo, TOPO_LOC));
    assert_ok(search_channels(*topo, &wish, &rings));
    xml_remove(system);
    return rings;
}

#define CPU(numa)                                                                                  \
    "<cpu numaid='" numa "' arch='x86_64' vendor='GenuineIntel' familyid='6' modelid='106'>"
#define GPU(bus, dev)                                                                              \
    "<pci busid='" bus "' class='0x030200' link_speed='16.0 GT/s PCIe' link_width='16'>"           \
    "<gpu dev='" dev "' sm='86' rank='" dev "' gdr='0'/></pci>"
#define SWITCH(bus)                                                                                \
    "<pci busid='" bus "' class='0x060400' link_speed='16.0 GT/s PCIe' link_width='16'>"

/* NVIDIA/nccl issue 1358 has the log of such a machine. */
TEST(a_gpu_for_each_socket_makes_one_slow_ring)
{
    struct topo *topo;
    struct channels *rings =
        rings_without_p2p("<system version='1'>" CPU("0") GPU("0000:17:00.0", "0") "</cpu>" CPU("1")
                              GPU("0000:ca:00.0", "1") "</cpu></system>",
                          &topo);
    must_begin(topo, rings, "1x10/10 SYS/");
    channels_free(rings);
    topo_free(topo);
}

/* NVIDIA/nccl-tests issue 307: what three GPUs send over an Intel processor takes 6/5 of their
 * bandwidth of the link that the switch has, and what one sends to the other socket takes as much
 * as it is: 3 * 1.2 * 5 + 5 <= 24. */
TEST(gpus_behind_a_switch_share_its_link)
{
    struct topo *topo;
    struct channels *rings = rings_without_p2p(
        "<system version='1'>" CPU("0") SWITCH("0000:10:00.0") GPU("0000:11:00.0", "0")
            GPU("0000:12:00.0", "1") GPU("0000:13:00.0", "2")
                GPU("0000:14:00.0", "3") "</pci></cpu>" CPU("1") SWITCH("0000:20:00.0")
                    GPU("0000:21:00.0", "4") GPU("0000:22:00.0", "5") GPU("0000:23:00.0", "6")
                        GPU("0000:24:00.0", "7") "</pci></cpu></system>",
        &topo);
    must_begin(topo, rings, "1x5/5 SYS/");
    channels_free(rings);
    topo_free(topo);
}

/* ---------------------------------------------------------------- what must hold of all */

enum { MAX_LINKS = 4096 };

struct usage {
    const struct topo_link *links[MAX_LINKS];
    double bw[MAX_LINKS];
    int count;
};

static void use_path(struct usage *usage, const struct topo_path *path, double bw)
{
    for (int32_t l = 0; l < path->num_links; l++) {
        int i = 0;
        while (i < usage->count && usage->links[i] != path->links[l])
            i++;
        if (i == usage->count) {
            assert_true(usage->count < MAX_LINKS);
            usage->links[usage->count] = path->links[l];
            usage->bw[usage->count++] = 0;
        }
        usage->bw[i] += bw;
    }
}

/* Links of a channel that is a ring, or a chain where the first GPU is the one at the port. */
static void use_channel(struct usage *usage, const struct topo *topo,
                        const struct channels *channels, int c)
{
    const struct channel *channel = &channels->channel[c];
    const int32_t last = channels->num_gpus - 1;
    const int is_ring = channels->pattern == PATTERN_RING;
    for (int32_t i = 0; i < last; i++)
        use_path(usage,
                 topo_path(topo_gpu_of_rank(topo, channel->ranks[i]),
                           topo_gpu_of_rank(topo, channel->ranks[i + 1])),
                 (double)channels->bw_intra);
    if (channel->nets[0] < 0) {
        if (is_ring)
            use_path(usage,
                     topo_path(topo_gpu_of_rank(topo, channel->ranks[last]),
                               topo_gpu_of_rank(topo, channel->ranks[0])),
                     (double)channels->bw_intra);
        return;
    }
    use_path(usage,
             topo_path(topo_at(topo, TOPO_NET, channel->nets[0]),
                       topo_gpu_of_rank(topo, channel->ranks[0])),
             (double)channels->bw_inter);
    if (channels->pattern != PATTERN_BALANCED_TREE)
        use_path(usage,
                 topo_path(topo_gpu_of_rank(topo, channel->ranks[is_ring ? last : 0]),
                           topo_at(topo, TOPO_NET, channel->nets[1])),
                 (double)channels->bw_inter);
}

static void must_fit(const struct topo *topo, const struct channels *channels)
{
    static struct usage usage;
    usage.count = 0;
    for (int c = 0; c < channels->num_channels; c++)
        use_channel(&usage, topo, channels, c);
    for (int i = 0; i < usage.count; i++)
        if (usage.bw[i] > (double)usage.links[i]->bw + 1e-3)
            fail_msg("a link of %g GB/s to %s carries %g", (double)usage.links[i]->bw,
                     topo_kind_name(usage.links[i]->to->kind), usage.bw[i]);
}

/* Every GPU once. */
static void must_visit_all(const struct topo *topo, const struct channels *channels)
{
    for (int c = 0; c < channels->num_channels; c++)
        for (int32_t g = 0; g < topo_count(topo, TOPO_GPU); g++) {
            const int32_t rank = topo_at(topo, TOPO_GPU, g)->gpu.rank;
            int count = 0;
            for (int32_t i = 0; i < channels->num_gpus; i++)
                count += channels->channel[c].ranks[i] == rank;
            assert_int_equal(count, 1);
        }
}

static float sum_of_links(const struct topo *topo, uint64_t *bits)
{
    float sum = 0;
    *bits = 0;
    for (int kind = 0; kind < TOPO_NUM_KINDS; kind++)
        for (int32_t i = 0; i < topo->sets[kind].count; i++)
            for (int32_t l = 0; l < topo->sets[kind].nodes[i]->num_links; l++) {
                uint32_t word;
                memcpy(&word, &topo->sets[kind].nodes[i]->links[l].bw, sizeof word);
                *bits = *bits * 31 + word;
                sum += topo->sets[kind].nodes[i]->links[l].bw;
            }
    return sum;
}

TEST(links_are_as_before_and_none_carries_more_than_it_can)
{
    for (int i = 0; i < NUM_EXPECTATIONS; i++) {
        struct topo *topo = machine_of(&expectations[i]);
        struct channel_sets sets = {{NULL}};
        uint64_t before, after;
        const float sum = sum_of_links(topo, &before);
        assert_ok(search_all(topo, expectations[i].reach, &sets));
        assert_true(sum_of_links(topo, &after) == sum && after == before);
        for (int id = CHANNELS_RING; id <= CHANNELS_TREE; id++) {
            must_visit_all(topo, sets.of[id]);
            must_fit(topo, sets.of[id]);
        }
        channel_sets_free(&sets);
        topo_free(topo);
    }
}

/* Every head takes bw of all GPUs' links from and to the switch, and twice that of its own: n + 1
 * times bw. */
TEST(heads_are_different_and_fit)
{
    for (int i = 0; i < NUM_EXPECTATIONS; i++) {
        struct topo *topo = machine_of(&expectations[i]);
        struct channel_sets sets = {{NULL}};
        assert_ok(search_all(topo, expectations[i].reach, &sets));
        const struct channels *nvls = sets.of[CHANNELS_NVLS];
        for (int a = 0; a < nvls->num_channels; a++) {
            const struct topo_link *fastest =
                &topo_gpu_of_rank(topo, nvls->channel[a].ranks[0])->links[0];
            assert_int_equal(fastest->type, TOPO_NVL);
            assert_true((float)(nvls->num_channels + 1) * nvls->bw_intra <= fastest->bw);
            for (int b = 0; b < a; b++)
                assert_int_not_equal(nvls->channel[a].ranks[0], nvls->channel[b].ranks[0]);
        }
        channel_sets_free(&sets);
        topo_free(topo);
    }
}

/* Channels between machines name ports, and ranks as newer NCCL writes them. */
TEST(files_of_channels_name_ports_and_ranks)
{
    char *text = channels_as_text(topo_completed(&(struct topo_machine)NDV5), NULL, MANY);
    assert_non_null(strstr(text, "<net dev=\"0x7\"/>"));
    assert_non_null(strstr(text, "<gpu dev=\"0x7\" rank=\"7\"/>"));
    free(text);
}

TEST(a_file_without_gpus_is_an_error_of_the_search_alone)
{
    struct xml *system = topo_file_read("azure-ndv5.partial.topo.xml");
    struct topo *topo = topo_graph(system, NULL);
    struct channel_sets sets = {{NULL}};
    assert_int_equal(topo_count(topo, TOPO_GPU), 0);
    assert_error(search_all(topo, ALONE, &sets), WEFT_ERROR_INVALID_ARGUMENT, "no GPU with a rank");
    topo_free(topo);
    xml_remove(system);
}
