/* SPDX-License-Identifier: MIT */
#include "signals.h"

#include <signal.h>

const char *signal_name(int signal_number)
{
    switch (signal_number) {
    case SIGHUP:
        return "HUP";
    case SIGINT:
        return "INT";
    case SIGQUIT:
        return "QUIT";
    case SIGTERM:
        return "TERM";
    default:
        return "?";
    }
}

static volatile sig_atomic_t noted;

static void note(int signal_number)
{
    noted = signal_number;
}

void signals_heed(enum signals_second second)
{
    const struct sigaction action = {
        .sa_handler = note, .sa_flags = second == SIGNALS_SECOND_KILLS ? (int)SA_RESETHAND : 0};
    static const int numbers[] = {SIGINT, SIGTERM};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        struct sigaction before;
        if (sigaction(numbers[i], NULL, &before) == 0 && before.sa_handler != SIG_IGN)
            sigaction(numbers[i], &action, NULL);
    }
}

int signals_noted(void)
{
    return noted;
}
