/* SPDX-License-Identifier: MIT */
#include "comm/rendezvous/identity.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "comm/host/cores.h"
#include "comm/host/descriptor.h"
#include "comm/host/error.h"
#include "comm/rendezvous/meeting_point.h"

static weft_result hash_boot_id(uint64_t *hash)
{
    char text[64];
    static const char path[] = "/proc/sys/kernel/random/boot_id";
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t num_bytes = fd < 0 ? -1 : read(fd, text, sizeof(text));
    if (fd >= 0)
        close(fd);
    if (num_bytes <= 0)
        return weft__system_error("cannot read %s", path);
    *hash = weft__hash(*hash, text, (size_t)num_bytes);
    return WEFT_OK;
}

/* Containers on one kernel share neither the pids by which file descriptors' senders are checked
 * nor the names of abstract sockets. */
static weft_result hash_namespace(uint64_t *hash, const char *path)
{
    struct stat status;
    if (stat(path, &status) != 0)
        return weft__system_error("cannot look at %s", path);
    uint64_t inode = status.st_ino;
    *hash = weft__hash(*hash, &inode, sizeof(inode));
    return WEFT_OK;
}

/* The cores of the calling thread, of this kernel, whichever container it is in: ranks that are
 * threads may be bound apart. */
static uint64_t hash_cores(uint64_t boot_hash)
{
    struct weft__processors cores;
    return weft__processors_of_thread(&cores) == 0 ? weft__hash(boot_hash, &cores, sizeof(cores))
                                                   : boot_hash;
}

weft_result weft__identity_of_process(struct weft__identity *identity)
{
    uint64_t boot_hash = WEFT__HASH_SEED;
    weft_result result = hash_boot_id(&boot_hash);
    uint64_t host_key = boot_hash;
    if (result == WEFT_OK)
        result = hash_namespace(&host_key, "/proc/self/ns/pid");
    if (result == WEFT_OK)
        result = hash_namespace(&host_key, "/proc/self/ns/net");
    if (result != WEFT_OK)
        return result;
    char host[HOST_NAME_MAX + 1] = "?";
    (void)gethostname(host, sizeof(host) - 1);
    *identity = (struct weft__identity){.pid = getpid(),
                                        .uid = getuid(),
                                        .host_key = host_key,
                                        .node_key = host_key,
                                        .cores_key = hash_cores(boot_hash)};
    snprintf(identity->host, sizeof(identity->host), "%.31s", host);
    return WEFT_OK;
}

int weft__identity_watch(const struct weft__identity *self, const struct weft__identity *other)
{
    if (other->host_key != self->host_key || other->pid == self->pid)
        return -1;
    return weft__descriptor_keep((int)syscall(SYS_pidfd_open, other->pid, 0)); /* closed on exec */
}

int weft__identity_is_same_process(const struct weft__identity *one,
                                   const struct weft__identity *other)
{
    return one->pid == other->pid && one->host_key == other->host_key;
}

void weft__identity_tell_loss(const struct weft__identity *identity, int32_t rank,
                              struct weft__ending ending, char *text, size_t text_bytes)
{
    if (ending.kind == WEFT__ENDED_BY_EXIT)
        snprintf(text, text_bytes,
                 "rank %d (pid %d on %s) left without weft_comm_destroy: its process ended with "
                 "status %d",
                 rank, identity->pid, identity->host, ending.status);
    else
        snprintf(text, text_bytes, "rank %d died (pid %d on %s)", rank, identity->pid,
                 identity->host);
}
