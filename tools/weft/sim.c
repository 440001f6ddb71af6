/* SPDX-License-Identifier: MIT */
/* weft sim: becomes weft-sim, which is linked with the library on the sim machine. It lies beside
 * this program in a build, in libexec when installed. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "command.h"

/* The folder of this program, with the last slash; 0, or -1. */
static int own_folder(char *folder, size_t folder_bytes)
{
    const ssize_t length = readlink("/proc/self/exe", folder, folder_bytes - 1);
    if (length < 0)
        return -1;
    folder[length] = '\0';
    char *slash = strrchr(folder, '/');
    if (slash == NULL)
        return -1;
    slash[1] = '\0';
    return 0;
}

int command_sim(int argc, char **argv)
{
    static const char *const places[] = {"weft-sim", WEFT_LIBEXEC_OF_BIN "/weft-sim"};
    char folder[PATH_MAX], path[PATH_MAX + 256];
    (void)argc;
    if (own_folder(folder, sizeof folder) != 0) {
        fprintf(stderr, "weft sim: cannot find out where weft is: %s\n", strerror(errno));
        return STATUS_NOT_FOUND;
    }
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        snprintf(path, sizeof path, "%s%s", folder, places[i]);
        execv(path, argv); /* returns only when it fails */
    }
    fprintf(stderr, "weft sim: no weft-sim in %s or %s%s: %s\n", folder, folder,
            WEFT_LIBEXEC_OF_BIN, strerror(errno));
    return errno == ENOENT ? STATUS_NOT_FOUND : STATUS_NOT_EXECUTABLE;
}
