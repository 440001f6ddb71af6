/* SPDX-License-Identifier: MIT */
#include <ctype.h>
#include <string.h>

#include "net/devices.h"

static int is_of_name(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

/* Whether the name is there, and not as a part of another. */
static int is_named(const char *text, const char *name)
{
    const size_t length = strlen(name);
    for (const char *at = strstr(text, name); at != NULL; at = strstr(at + 1, name))
        if ((at == text || !is_of_name(at[-1])) && !is_of_name(at[length]))
            return 1;
    return 0;
}

double weft__net_port_gbps(const char *transport, const struct weft__sysfs *sysfs)
{
    enum { MAX_NETS = 64, MEGABITS_PER_GBPS = 8000 };
    struct weft__topo_net_facts nets[MAX_NETS];
    const int32_t num_nets = weft__sysfs_find_nets(sysfs, nets, MAX_NETS);
    double gbps = 0;
    for (int32_t i = 0; i < num_nets; i++)
        if (nets[i].bus_id[0] != '\0' && nets[i].megabits > 0 && is_named(transport, nets[i].name))
            gbps += (double)nets[i].megabits / MEGABITS_PER_GBPS;
    return gbps;
}
