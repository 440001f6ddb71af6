/* SPDX-License-Identifier: MIT */
#include <argp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "weft.h"
#include "workload/output.h"
#include "workload/version.h"

struct command {
    const char *name;
    const char *full_name;
    int (*function)(int argc, char **argv);
};

static const struct command commands[] = {
    {"run", "weft run", command_run},          {"ep", "weft ep", command_ep},
    {"coll", "weft coll", command_coll},       {"tune", "weft tune", command_tune},
    {"doctor", "weft doctor", command_doctor}, {"topo", "weft topo", command_topo},
    {"sim", "weft sim", command_sim},
};

static void print_version(FILE *stream, struct argp_state *state)
{
    weft_machine_info info = WEFT_INIT(weft_machine_info);
    version_print(stream, state);
    if (weft_machine_query(WEFT_MACHINE_CUDA, &info) != WEFT_OK || info.build_version == 0)
        fprintf(stream, "built without CUDA\n");
    else
        fprintf(stream, "built with CUDA %d.%d\n", info.build_version / 1000,
                info.build_version % 1000 / 10);
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
    "  topo     tell what a machine is made of, and which rings and trees that makes\n"
    "  sim      check the operations under schedules drawn from seeds\n"
    "  help     tell the options of a command: weft help COMMAND, or weft COMMAND --help\n"
    "\n"
    "weft(1) tells the rest.";

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
        argp_error(state,
                   "no command given; commands are run, ep, coll, tune, doctor, topo and sim");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct command *find(const char *name)
{
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        if (strcmp(name, commands[i].name) == 0)
            return &commands[i];
    fprintf(
        stderr,
        "weft: unknown command %s; commands are run, ep, coll, tune, doctor, topo, sim and help\n",
        name);
    return NULL;
}

static const struct argp argp = {
    .parser = parse_option,
    .args_doc = "COMMAND [ARGUMENT...]",
    .doc = documentation,
};

/* Shows a command's help by its own --help; argv[0] is "help". */
static int help(int argc, char **argv, const char **own_name)
{
    static char option[] = "--help", weft[] = "weft";
    if (argc == 1) {
        argp_help(&argp, stdout, ARGP_HELP_STD_HELP & ~ARGP_HELP_EXIT_OK, weft);
        return EXIT_SUCCESS;
    }
    const struct command *command = find(argv[1]);
    if (!command)
        return STATUS_USAGE;
    *own_name = command->full_name;
    char *arguments[] = {(char *)command->full_name, option, NULL};
    return command->function(2, arguments);
}

int main(int argc, char **argv)
{
    static const char *own_name = "weft";
    int command_index = 0;
    output_check_at_exit(&own_name);
    setvbuf(stderr, NULL, _IOLBF, BUFSIZ); /* whole lines, also among the ranks' */
    argp_err_exit_status = STATUS_USAGE;
    argp_program_version_hook = print_version;
    argp_parse(&argp, argc, argv, ARGP_IN_ORDER, NULL, &command_index);

    argc -= command_index;
    argv += command_index;
    if (strcmp(argv[0], "help") == 0)
        return help(argc, argv, &own_name);
    const struct command *command = find(argv[0]);
    if (!command)
        return STATUS_USAGE;
    own_name = command->full_name;
    argv[0] = (char *)own_name;
    return command->function(argc, argv);
}
