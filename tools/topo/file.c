/* SPDX-License-Identifier: MIT */
#include "topo/file.h"

#include <stdlib.h>
#include <unistd.h>

#include "comm/host/settings.h"

#define OF_PCI                                                                                     \
    "busid class vendor device subsystem_vendor subsystem_device link_speed link_width keep"

/* The elements of NCCL 2.30. Not all of them are used here. */
static const struct xml_rule rules[] = {
    {"", "system", "version host_hash"},
    {"system", "cpu", "numaid host_hash affinity arch vendor familyid modelid keep"},
    {"cpu", "pci", OF_PCI},
    {"cpu", "nic", "keep"},
    {"pci", "pci", OF_PCI},
    {"pci", "gpu", "dev sm rank gdr keep mlopart"},
    {"pci", "nic", "keep"},
    {"pci", "pcilink", "target"},
    {"nic", "net", "name dev net latency speed port guid maxconn gdr coll keep rail plane"},
    {"nic", "gin", NULL},
    {"nic", "rma", NULL},
    {"gpu", "nvlink", "target count tclass"},
    {"gpu", "c2c", "bw count"},
};
const struct xml_format topo_format = {rules, sizeof rules / sizeof rules[0]};

static weft_result check_version(weft_result result, struct xml **system)
{
    int32_t version;
    if (result == WEFT_OK)
        result = xml_integer(*system, (struct xml_number){"version", 1, 1}, &version);
    else
        return result;
    if (result != WEFT_OK) {
        xml_remove(*system);
        *system = NULL;
    }
    return result;
}

weft_result topo_read(const char *path, struct xml **system)
{
    return check_version(xml_read(&topo_format, path, system), system);
}

weft_result topo_parse(const char *source, const char *text, size_t num_bytes, struct xml **system)
{
    return check_version(xml_parse(&topo_format, source, text, num_bytes, system), system);
}

/* ------------------------------------------------------------------ where they are */

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
