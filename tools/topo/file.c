/* SPDX-License-Identifier: MIT */
#include "topo/file.h"

#include <stdlib.h>
#include <unistd.h>

#include "comm/host/settings.h"

static const char *file_of(enum weft__setting setting, const char *nccl_variable)
{
    const char *path = weft__setting_text(setting);
    if (path == NULL)
        path = getenv(nccl_variable);
    return path != NULL && *path != '\0' ? path : NULL;
}

const char *topo_file_to_read(void)
{
    static const char of_virtual_machine[] = "/var/run/nvidia-topologyd/virtualTopology.xml";
    const char *path = file_of(WEFT__SETTING_TOPO_FILE, "NCCL_TOPO_FILE");
    if (path == NULL && access(of_virtual_machine, R_OK) == 0)
        path = of_virtual_machine;
    return path;
}

const char *topo_file_to_write(void)
{
    return file_of(WEFT__SETTING_TOPO_DUMP_FILE, "NCCL_TOPO_DUMP_FILE");
}
