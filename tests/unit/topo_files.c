/* SPDX-License-Identifier: MIT */
#include "topo_files.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/error.h"
#include "harness/cmocka.h"
#include "topo/file.h"
#include "topo/paths.h"

char *topo_file_bytes(const char *name, size_t *num_bytes)
{
    enum { MOST = 1 << 20 };
    char path[512], *bytes = malloc(MOST);
    snprintf(path, sizeof path, "%s/%s", WEFT_TOPOLOGY_DIR, name);
    FILE *file = fopen(path, "re");
    if (file == NULL || bytes == NULL)
        fail_msg("cannot read %s", path);
    *num_bytes = fread(bytes, 1, MOST - 1, file);
    bytes[*num_bytes] = '\0';
    fclose(file);
    return bytes;
}

static struct weft__xml *must_be_read(weft_result result, struct weft__xml *system)
{
    if (result != WEFT_OK)
        fail_msg("%s", weft__last_error());
    return system;
}

struct weft__xml *topo_file_read(const char *name)
{
    char path[512];
    struct weft__xml *system = NULL;
    snprintf(path, sizeof path, "%s/%s", WEFT_TOPOLOGY_DIR, name);
    const weft_result result = weft__topo_read(path, &system);
    return must_be_read(result, system);
}

struct weft__xml *topo_text_read(const char *text)
{
    struct weft__xml *system = NULL;
    const weft_result result = weft__topo_parse("text", text, strlen(text), &system);
    return must_be_read(result, system);
}

char *topo_print(const struct weft__xml *root)
{
    char *text;
    size_t num_bytes;
    assert_int_equal(weft__xml_print(root, &text, &num_bytes), WEFT_OK);
    return text;
}

struct weft__topo *topo_build(const struct weft__xml *system, const char *nccl_version)
{
    const struct weft__topo_constants *constants;
    struct weft__topo *topo = NULL;
    weft_result result = weft__topo_constants_of(nccl_version, &constants);
    if (result == WEFT_OK)
        result = weft__topo_build(system, constants, &topo);
    if (result == WEFT_OK)
        result = weft__topo_compute_paths(topo, NULL);
    if (result != WEFT_OK)
        fail_msg("%s", weft__last_error());
    return topo;
}
