/* SPDX-License-Identifier: MIT */
/* Files of channels: what is written reads as the same, files of older NCCL and files by hand are
 * read, and what does not fit the machine is an error that says where. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/host/error.h"
#include "harness/cmocka.h"
#include "topo/channels_file.h"
#include "topo_files.h"

static struct topo *read_machine(const char *name, const char *nccl_version)
{
    struct xml *system = topo_file_read(name);
    struct topo *topo = topo_graph(system, nccl_version);
    xml_remove(system);
    return topo;
}

static void read_sets(const struct topo *topo, const char *name, struct channel_sets *sets)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", WEFT_TOPOLOGY_DIR, name);
    if (channels_read(topo, path, sets) != WEFT_OK)
        fail_msg("%s", weft__last_error());
}

static char *write_sets(const struct topo *topo, const struct channel_sets *sets,
                        enum topo_reach reach)
{
    struct xml *graphs = NULL;
    assert_ok(channels_to_xml(topo, sets, reach, &graphs));
    char *text = topo_print(graphs);
    xml_remove(graphs);
    return text;
}

TEST(what_nccl_has_written_is_read_and_written_the_same)
{
    static const char *const names[][3] = {
        {"vastai-hgx-h200-8x.topo.xml", "vastai-hgx-h200-8x.graph.xml", "2.27.3"},
        {"vastai-hgx-b200-8x.topo.xml", "vastai-hgx-b200-8x.graph.xml", "2.27.3"},
        {"perlmutter-a100-4x.topo.xml", "perlmutter-a100-4x.graph.xml", "2.29.7"}};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct topo *topo = read_machine(names[i][0], names[i][2]);
        struct channel_sets sets = {{NULL}};
        size_t num_bytes;
        char *bytes = topo_file_bytes(names[i][1], &num_bytes);
        read_sets(topo, names[i][1], &sets);
        char *text = write_sets(topo, &sets, TOPO_ONE_NODE);
        assert_string_equal(text, bytes);
        free(text);
        free(bytes);
        channel_sets_free(&sets);
        topo_free(topo);
    }
}

TEST(a_file_by_hand_is_read)
{
    struct topo *topo = read_machine("azure-ncv4.topo.xml", NULL);
    struct channel_sets sets = {{NULL}};
    char text[1024];
    read_sets(topo, "azure-ncv4.graph.xml", &sets);
    topo_describe(topo, sets.of[CHANNELS_RING], text, sizeof text);
    assert_string_equal(text, "2x12/12 SYS/PIX pattern 4 cross 0 same 0\n0 1 2 3\n0 3 2 1");
    topo_describe(topo, sets.of[CHANNELS_TREE], text, sizeof text);
    assert_string_equal(text, "4x12/12 SYS/PIX pattern 1 cross 0 same 0\n"
                              "0 1 2 3\n1 0 3 2\n3 2 1 0\n2 3 0 1");
    topo_describe(topo, sets.of[CHANNELS_COLLNET_CHAIN], text, sizeof text);
    assert_string_equal(text, "4x12/12 SYS/PIX pattern 3 cross 0 same 0\n"
                              "0 1 2 3\n1 0 3 2\n3 2 1 0\n2 3 0 1");
    assert_null(sets.of[CHANNELS_NVLS]);
    channel_sets_free(&sets);
    topo_free(topo);
}

/* With ports, and with ranks as newer NCCL writes them. */
TEST(channels_between_machines_are_read_as_they_were_written)
{
    static const struct topo_machine machine = {"azure-ndv5.partial.topo.xml", TOPO_ORDER_OF_FILE,
                                                90, 18, 400000};
    struct xml *system = topo_completed(&machine), *graphs = NULL;
    struct topo *topo = topo_graph(system, NULL);
    struct channel_sets sets = {{NULL}}, again = {{NULL}};
    assert_ok(search_all(topo, TOPO_SEVERAL_NODES, &sets));
    assert_ok(channels_to_xml(topo, &sets, TOPO_SEVERAL_NODES, &graphs));
    assert_ok(channels_from_xml(topo, graphs, &again));
    char *before = write_sets(topo, &sets, TOPO_SEVERAL_NODES);
    char *after = write_sets(topo, &again, TOPO_SEVERAL_NODES);
    assert_string_equal(before, after);
    assert_non_null(strstr(before, "<net dev=\"0x7\"/>"));
    assert_non_null(strstr(before, "<gpu dev=\"0x7\" rank=\"7\"/>"));
    free(before);
    free(after);
    channel_sets_free(&sets);
    channel_sets_free(&again);
    xml_remove(graphs);
    xml_remove(system);
    topo_free(topo);
}

/* ---------------------------------------------------------------- what is refused */

#define GRAPH(values, channels)                                                                    \
    "<graphs version='1'>\n<graph id='0' pattern='4' crossnic='0' speedintra='12' "                \
    "typeintra='SYS' typeinter='PIX' samechannels='0' " values ">\n" channels "</graph></graphs>"
#define CHANNEL(devices) "<channel>" devices "</channel>\n"

TEST(errors_say_line_and_element)
{
    static const struct {
        const char *text, *message;
    } refusals[] = {
        {"<graphs/>", "element graphs: attribute version is missing"},
        {"<graphs version='1'><graph/></graphs>", "element graph: attribute id is missing"},
        {GRAPH("", ""), "g:2: element graph: attribute nchannels is missing"},
        {GRAPH("nchannels='65'", ""), "nchannels is \"65\", allowed are numbers of 0..64"},
        {GRAPH("nchannels='1'", ""), "g:2: element graph: nchannels is 1, but it has 0 channels"},
        {GRAPH("nchannels='1'", CHANNEL("<gpu dev='0'/>")),
         "g:3: element channel: has 1 GPUs, not 4"},
        {GRAPH("nchannels='1'", CHANNEL("<gpu dev='0'/><gpu dev='0'/>")), "has rank 0 twice"},
        {GRAPH("nchannels='1'", CHANNEL("<gpu dev='0x9'/>")),
         "g:3: element gpu: the topology has no"},
        {GRAPH("nchannels='1'", CHANNEL("<gpu rank='9'/>")), "has no GPU of rank 9"},
        {GRAPH("nchannels='1'", CHANNEL("<gpu/>")), "g:3: element gpu: attribute dev is missing"},
        {GRAPH("nchannels='1'", CHANNEL("<gpu dev='0'/><gpu dev='1'/><gpu dev='2'/><gpu dev='3'/>"
                                        "<net dev='0'/>")),
         "has 1 port"},
        {"<graphs version='1'><graph id='0' pattern='9'/></graphs>", "pattern is \"9\""},
        {"<graphs version='1'><graph id='0' pattern='4' crossnic='0' nchannels='0' "
         "typeintra='FAR'/></graphs>",
         "typeintra is \"FAR\", allowed are LOC"},
    };
    struct topo *topo = read_machine("azure-ncv4.topo.xml", NULL);
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
        struct channel_sets sets = {{NULL}};
        struct xml *graphs = NULL;
        assert_ok(
            xml_parse(&channels_format, "g", refusals[i].text, strlen(refusals[i].text), &graphs));
        assert_error(channels_from_xml(topo, graphs, &sets), WEFT_ERROR_INVALID_ARGUMENT,
                     refusals[i].message);
        for (int id = 0; id < NUM_CHANNELS_IDS; id++)
            assert_null(sets.of[id]);
        xml_remove(graphs);
    }
    topo_free(topo);
}
