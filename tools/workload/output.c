/* SPDX-License-Identifier: MIT */
#include "workload/output.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int noted_error; /* 0: none */
enum { UNKNOWN_ERROR = -1 };

void output_note_failure(int error)
{
    if (noted_error == 0)
        noted_error = error;
}

int output_flush(void)
{
    if (fflush(stdout) != 0)
        output_note_failure(errno);
    return ferror(stdout) ? -1 : 0;
}

/* Some file systems tell only when a file is closed. */
static void finish_stdout(void)
{
    if (output_flush() == 0 && close(STDOUT_FILENO) != 0 && errno != EBADF)
        output_note_failure(errno);
    if (ferror(stdout))
        output_note_failure(UNKNOWN_ERROR); /* of an earlier write */
}

static void check(int status, void *argument)
{
    const char *const *name = argument;
    finish_stdout();
    if (noted_error != 0)
        fprintf(stderr, "%s: output is lost: %s\n", *name,
                noted_error > 0 ? strerror(noted_error) : "standard output had an error");
    if (noted_error == 0 && fflush(stderr) == 0 && !ferror(stderr))
        return;
    _exit(status != 0 ? status : EXIT_FAILURE);
}

/* No file that we open later may have the number of a standard stream that our starter has closed.
 * /dev/null takes the number, opened in the wrong direction: output there still fails and is
 * reported. */
static void occupy_standard(const char *name)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        if (fcntl(fd, F_GETFD) >= 0 ||
            open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) == fd)
            continue;
        fprintf(stderr, "%s: cannot open /dev/null for descriptor %d, which is closed: %s\n", name,
                fd, strerror(errno));
        _exit(EXIT_FAILURE);
    }
}

void output_check_at_exit(const char *const *name)
{
    occupy_standard(*name);
    signal(SIGXFSZ, SIG_IGN); /* RLIMIT_FSIZE: output is lost, and reported */
    on_exit(check, (void *)name);
}
