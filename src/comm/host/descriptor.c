/* SPDX-License-Identifier: MIT */
#include "comm/host/descriptor.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

int weft__descriptor_keep(int fd)
{
    if (fd < 0 || fd > STDERR_FILENO)
        return fd;
    const int kept = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    const int reason = errno;
    close(fd);
    errno = reason;
    return kept;
}
