/* SPDX-License-Identifier: MIT */
#include "comm/rendezvous/starter.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

struct process {
    pid_t parent;
    unsigned long long start; /* in ticks since boot; 0: there is no such process */
};

static struct process look_at(pid_t pid)
{
    enum { PARENT_FIELD = 2, START_FIELD = 20 }; /* after the name: proc(5) */
    struct process process = {.start = 0};
    char path[32], text[1024] = "";
    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return process;
    text[fread(text, 1, sizeof(text) - 1, file)] = '\0';
    fclose(file);
    char *rest = strrchr(text, ')'); /* the name may contain any character */
    char *word = rest != NULL ? strtok_r(rest, " ", &rest) : NULL;
    for (int field = 0; word != NULL; field++, word = strtok_r(NULL, " ", &rest)) {
        if (field == PARENT_FIELD)
            process.parent = (pid_t)atoi(word);
        else if (field == START_FIELD)
            process.start = strtoull(word, NULL, 10);
    }
    return process;
}

/* A process that made the socket but is no ancestor has not started this one: fd is then the number
 * of another socket. */
void weft__starter_name(int fd, char *name, size_t name_bytes)
{
    struct ucred starter = {.pid = 0};
    socklen_t bytes = sizeof(starter);
    name[0] = '\0';
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &starter, &bytes) != 0 || starter.pid <= 0)
        return;
    pid_t ancestor = getppid();
    while (ancestor > 0 && ancestor != starter.pid)
        ancestor = look_at(ancestor).parent;
    if (ancestor > 0)
        snprintf(name, name_bytes, "process %d %llu", (int)ancestor, look_at(ancestor).start);
}
