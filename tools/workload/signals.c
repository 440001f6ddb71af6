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
