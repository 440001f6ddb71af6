/* SPDX-License-Identifier: MIT */
#include "orphans.h"

#include <ctype.h>
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* 0 if it has ended. */
static pid_t parent_of(const char *pid)
{
    char path[64], text[256];
    int parent = 0;
    snprintf(path, sizeof path, "/proc/%.16s/stat", pid);
    FILE *file = fopen(path, "re");
    if (!file)
        return 0;
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
    const char *name_end = strrchr(text, ')'); /* names may have blanks and brackets */
    if (name_end && sscanf(name_end + 1, " %*c %d", &parent) != 1)
        parent = 0;
    return parent;
}

/* Sends a signal (0: none) to every child, and returns how many there are. */
static int signal_children(int signal_number)
{
    DIR *processes = opendir("/proc");
    int num_children = 0;
    if (!processes)
        return 0;
    for (struct dirent *entry; (entry = readdir(processes)) != NULL;) {
        if (!isdigit((unsigned char)entry->d_name[0]) || parent_of(entry->d_name) != getpid())
            continue;
        num_children++;
        if (signal_number != 0)
            kill((pid_t)strtol(entry->d_name, NULL, 10), signal_number);
    }
    closedir(processes);
    return num_children;
}

enum orphans orphans_adopt(void)
{
    if (signal_children(0) > 0 || prctl(PR_SET_CHILD_SUBREAPER, 1) != 0)
        return ORPHANS_LEFT;
    return ORPHANS_ADOPTED;
}

/* The children of a child that was killed become ours: one round after another. */
void orphans_kill(void)
{
    const struct timespec pause = {.tv_nsec = 10000000};
    for (int round = 0; round < 100 && signal_children(SIGKILL) > 0; round++) {
        nanosleep(&pause, NULL);
        while (waitpid(-1, NULL, WNOHANG) > 0)
            ;
    }
}
