/* SPDX-License-Identifier: MIT */
/* Files of real machines for tests of topologies. A failure fails the test. */
#ifndef TESTS_UNIT_TOPO_FILES_H
#define TESTS_UNIT_TOPO_FILES_H

#include <stddef.h>

#include "topo/graph.h"

/* The bytes of tests/data/topologies/NAME, to be freed. */
char *topo_file_bytes(const char *name, size_t *num_bytes);
/* The topology that is in it. */
struct weft__xml *topo_file_read(const char *name);
/* The topology that a text is. */
struct weft__xml *topo_text_read(const char *text);
/* What a topology or its channels are as text, to be freed. */
char *topo_print(const struct weft__xml *root);
/* The graph with its paths; NULL: constants of the newest NCCL. */
struct weft__topo *topo_build(const struct weft__xml *system, const char *nccl_version);

#endif
