/* SPDX-License-Identifier: MIT */
/* The subcommands of weft: each parses its own arguments and returns the exit status. */
#pragma once

enum {
    STATUS_FAILURE = 1,
    STATUS_USAGE = 2,
    STATUS_NOT_EXECUTABLE = 126, /* as a shell does */
    STATUS_NOT_FOUND = 127,
    STATUS_SIGNAL = 128, /* plus the signal's number */
    STATUS_SSH = 255     /* of ssh itself */
};

/* argv[0] is the command's name in messages: "weft run". */
int command_run(int argc, char **argv);
int command_status(int argc, char **argv);
int command_ep(int argc, char **argv);
int command_coll(int argc, char **argv);
int command_tune(int argc, char **argv);
int command_doctor(int argc, char **argv);
int command_topo(int argc, char **argv);
int command_record(int argc, char **argv);
int command_trace(int argc, char **argv);
int command_report(int argc, char **argv);
int command_sim(int argc, char **argv);
