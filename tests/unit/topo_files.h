/* SPDX-License-Identifier: MIT */
/* Files of real machines for tests of topologies. A failure fails the test. */
#pragma once

#include <stddef.h>

#include "topo/channels.h"
#include "topo/graph.h"

/* The bytes of tests/data/topologies/NAME, to be freed. */
char *topo_file_bytes(const char *name, size_t *num_bytes);
/* The topology that is in it. */
struct xml *topo_file_read(const char *name);
/* The topology that a text is. */
struct xml *topo_text_read(const char *text);
/* What a topology or its channels are as text, to be freed. */
char *topo_print(const struct xml *root);
/* The graph with its paths; NULL: constants of the newest NCCL. */
struct topo *topo_graph(const struct xml *system, const char *nccl_version);

/* How a partial file is completed. */
struct topo_machine {
    const char *file;
    enum topo_order { TOPO_ORDER_OF_FILE, TOPO_ORDER_OF_BUS_IDS } order; /* of devices' numbers */
    int sm, num_nvlinks;                                                 /* to NVSwitch */
    int megabits;                                                        /* of each port */
};
struct xml *topo_completed(const struct topo_machine *machine);

/* Leaves the first GPUs of a file that has more. */
void topo_keep_gpus(struct xml *system, int num_gpus);

/* "12x30/30 NVL/PIX pattern 4 cross 0 same 1" and, for each channel, "
0 1 2 3", with ports before and behind. */
void topo_describe(const struct topo *topo, const struct channels *channels, char *text,
                   size_t num_bytes);
