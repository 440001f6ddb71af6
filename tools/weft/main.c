/* SPDX-License-Identifier: MIT */
#include <argp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "weft.h"
#include "workload/output.h"

struct command {
    const char *name;
    const char *full_name;
    int (*function)(int argc, char **argv);
};

static const struct command commands[] = {
    {"run", "weft run", command_run},          {"ep", "weft ep", command_ep},
    {"coll", "weft coll", command_coll},       {"tune", "weft tune", command_tune},
    {"doctor", "weft doctor", command_doctor}, {"sim", "weft sim", command_sim},
};

static void print_version(FILE *stream, struct argp_state *state)
{
    (void)state;
    uint32_t version = weft_version();
    fprintf(stream, "weft %u.%u.%u\n", version / 10000, version / 100 % 100, version % 100);
}

static const char documentation[] =
    "Carries the tokens of mixture-of-experts layers to their experts on other ranks and back, and "
    "sums "
    "tensors across ranks."
    "\vCommands:\n"
    "  run      start a program as several local ranks\n"
    "  ep       run, time and check one mixture-of-experts layer\n"
    "  coll     run, time and check one collective operation\n"
    "  tune     time the algorithms of collective operations, for a table of the fastest\n"
    "  doctor   tell what weft can run on here, and measure the links between ranks\n"
    "  sim      check the operations under schedules drawn from seeds\n"
    "\n"
    "`weft COMMAND --help' tells the options of a command, weft(1) the rest.";

/* Only options come here: the first other argument is the command. */
static error_t parse_option(int key, char *argument, /* NOLINT: argp's type */
                            struct argp_state *state)
{
    int *command_index = state->input;
    switch (key) {
    case ARGP_KEY_ARG:
        (void)argument;
        *command_index = state->next - 1;
        state->next = state->argc;
        return 0;
    case ARGP_KEY_NO_ARGS:
        argp_error(state, "no command given; commands are run, ep, coll, tune, doctor and sim");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

int main(int argc, char **argv)
{
    static const struct argp argp = {
        .parser = parse_option,
        .args_doc = "COMMAND [ARGUMENT...]",
        .doc = documentation,
    };
    static const char *own_name = "weft";
    int command_index = 0;
    output_check_at_exit(&own_name);
    setvbuf(stderr, NULL, _IOLBF, BUFSIZ); /* whole lines, also among the ranks' */
    argp_err_exit_status = STATUS_USAGE;
    argp_program_version_hook = print_version;
    argp_parse(&argp, argc, argv, ARGP_IN_ORDER, NULL, &command_index);

    const char *name = argv[command_index];
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        if (strcmp(name, commands[i].name) == 0) {
            own_name = commands[i].full_name;
            argv[command_index] = (char *)own_name;
            return commands[i].function(argc - command_index, argv + command_index);
        }
    }
    fprintf(stderr, "weft: unknown command %s; commands are run, ep, coll, tune, doctor and sim\n",
            name);
    return STATUS_USAGE;
}
