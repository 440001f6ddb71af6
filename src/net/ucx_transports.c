/* SPDX-License-Identifier: MIT */
#include "net/ucx_transports.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/host/error.h"

static int is_in_list(const char *list, const char *name)
{
    const size_t length = strlen(name);
    for (const char *at = list; (at = strstr(at, name)) != NULL; at += length)
        if ((at == list || at[-1] == ' ') && (at[length] == '\0' || at[length] == ','))
            return 1;
    return 0;
}

static void add_name(char *names, size_t names_bytes, const char *name)
{
    size_t length = strlen(names);
    if (!is_in_list(names, name))
        snprintf(names + length, names_bytes - length, "%s%s", length > 0 ? ", " : "", name);
}

/* API 1.13 has no other way than the lines that it prints: #               lane[0]:  2:tcp/eth0.0
 * md[1]           -> addr[0].md[1]/tcp/sysdev[255] ... */
static void read_line(const char *line, char *names, size_t names_bytes)
{
    char name[64];
    const char *lane = strstr(line, "lane[");
    if (lane == NULL || sscanf(lane, "lane[%*d]: %*d:%63s", name) != 1 || !strchr(name, '/'))
        return;
    char *path = strrchr(name, '.'); /* one of several of a device */
    if (path != NULL && strspn(path + 1, "0123456789") == strlen(path + 1))
        *path = '\0';
    add_name(names, names_bytes, name);
}

weft_result weft__ucx_transports(const struct weft__ucx *ucx, ucp_ep_h endpoint, char *names,
                                 size_t names_bytes)
{
    char *text = NULL;
    size_t text_bytes = 0;
    FILE *stream = open_memstream(&text, &text_bytes);
    if (stream == NULL)
        return weft__system_error("open_memstream");
    ucx->ucp_ep_print_info(endpoint, stream);
    fclose(stream);
    names[0] = '\0';
    char *rest = text;
    for (char *line = strsep(&rest, "\n"); line != NULL; line = strsep(&rest, "\n"))
        read_line(line, names, names_bytes);
    free(text);
    if (names[0] == '\0')
        snprintf(names, names_bytes, "unknown");
    return WEFT_OK;
}

int weft__ucx_is_rdma(const char *names)
{
    static const char *const kinds[] = {"rc_", "dc_", "ud_", "srd/", "gga_"};
    const char *name = names;
    while (name != NULL) {
        int is_rdma = 0;
        for (size_t kind = 0; kind < sizeof(kinds) / sizeof(kinds[0]); kind++)
            is_rdma |= strncmp(name, kinds[kind], strlen(kinds[kind])) == 0;
        if (!is_rdma)
            return 0;
        name = strchr(name, ' ');
        name = name != NULL ? name + 1 : NULL;
    }
    return 1;
}
