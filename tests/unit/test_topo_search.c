/* SPDX-License-Identifier: MIT */
/* Channels of real machines: those that NCCL found there, byte for byte, and what it finds on others. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/error.h"
#include "harness/cmocka.h"
#include "topo/channels_file.h"
#include "topo/paths.h"
#include "topo_files.h"

/* ---------------------------------------------------------------- what NCCL has written */

static char *channels_as_text(const char *topology, const char *nccl_version)
{
    struct weft__xml *system = topo_file_read(topology), *graphs = NULL;
    struct weft__channel_sets sets = {{NULL}};
    struct weft__topo *topo = topo_build(system, nccl_version);
    assert_int_equal(weft__search_all(topo, WEFT__TOPO_ONE_NODE, &sets), WEFT_OK);
    assert_int_equal(weft__channels_to_xml(topo, &sets, WEFT__TOPO_ONE_NODE, &graphs), WEFT_OK);
    char *text = topo_print(graphs);
    weft__xml_remove(graphs);
    weft__xml_remove(system);
    weft__channel_sets_free(&sets);
    weft__topo_free(topo);
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
        char *found = channels_as_text(goldens[i].topology, goldens[i].nccl_version);
        if (strcmp(found, wanted) != 0)
            fail_msg("%s: found\n%s", goldens[i].graph, found);
        free(wanted);
        free(found);
    }
}
