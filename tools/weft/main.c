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
    const char *full_name; /* "weft " and the name */
    int (*function)(int argc, char **argv);
    const char *summary;
};

static int help(int argc, char **argv);

static const struct command commands[] = {
    {"weft run", command_run, "start a program as several local ranks"},
    {"weft status", command_status, "look into a job that runs, or hangs: who waits for whom"},
    {"weft ep", command_ep, "run, time and check one mixture-of-experts layer"},
    {"weft coll", command_coll, "run, time and check one collective operation"},
    {"weft tune", command_tune, "time the algorithms of collectives, for a table of the fastest"},
    {"weft doctor", command_doctor, "tell what weft can run on, and measure links between ranks"},
    {"weft topo", command_topo, "tell what a machine is made of, and its rings and trees"},
    {"weft record", command_record, "tell what ranks were doing when their job failed"},
    {"weft trace", command_trace, "write flight records as a trace for Perfetto"},
    {"weft report", command_report, "make one page of measured figures and records of ranks"},
    {"weft sim", command_sim, "check the operations under schedules drawn from seeds"},
    {"weft help", help, "tell the options of a command, as weft COMMAND --help does"},
};
enum { NUM_COMMANDS = sizeof commands / sizeof commands[0], PREFIX_BYTES = sizeof "weft " - 1 };
static const char *own_name = "weft"; /* in messages */

static const char *command_names(void)
{
    static char names[256];
    size_t length = 0;
    for (int i = 0; i < NUM_COMMANDS; i++)
        length += (size_t)snprintf(names + length, sizeof names - length, "%s %s",
                                   i == 0 ? "" : ",", commands[i].full_name + PREFIX_BYTES);
    return names;
}

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
    "sums tensors across ranks.\vweft(1) tells the rest.";

/* Puts the commands in front of the end of help. */
static char *filter_help(int key, const char *text, void *input) /* NOLINT: argp's type */
{
    char *list = NULL;
    size_t list_bytes;
    (void)input;
    FILE *stream = key == ARGP_KEY_HELP_POST_DOC ? open_memstream(&list, &list_bytes) : NULL;
    if (stream == NULL)
        return (char *)text;
    fputs("Commands:\n", stream);
    for (int i = 0; i < NUM_COMMANDS; i++)
        fprintf(stream, "  %-8s %s\n", commands[i].full_name + PREFIX_BYTES, commands[i].summary);
    fprintf(stream, "\n%s", text);
    return fclose(stream) == 0 ? list : (char *)text;
}

enum { KEY_COMPLETE = 256 /* no character */ };
/* Commands, as tools/completion reads them. */
static const struct argp_option hidden_options[] = {
    {.name = "complete", .key = KEY_COMPLETE, .flags = OPTION_HIDDEN}, {0}};

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
    case KEY_COMPLETE:
        for (int i = 0; i < NUM_COMMANDS; i++)
            printf("%s %s\n", commands[i].full_name + PREFIX_BYTES, commands[i].summary);
        exit(EXIT_SUCCESS);
    case ARGP_KEY_NO_ARGS:
        argp_error(state, "no command given; commands are%s", command_names());
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp argp = {
    .options = hidden_options,
    .parser = parse_option,
    .args_doc = "COMMAND [ARGUMENT...]",
    .doc = documentation,
    .help_filter = filter_help,
};

/* Runs the command that argv[0] names, or tells what there is. */
static int run_command(int argc, char **argv)
{
    for (int i = 0; i < NUM_COMMANDS; i++)
        if (strcmp(argv[0], commands[i].full_name + PREFIX_BYTES) == 0) {
            own_name = argv[0] = (char *)commands[i].full_name;
            return commands[i].function(argc, argv);
        }
    fprintf(stderr, "weft: unknown command %s; commands are%s\n", argv[0], command_names());
    return STATUS_USAGE;
}

/* Shows a command's help by its own --help. */
static int help(int argc, char **argv)
{
    static char option[] = "--help", weft[] = "weft";
    own_name = weft;
    if (argc == 1 || strcmp(argv[1], "help") == 0) {
        argp_help(&argp, stdout, ARGP_HELP_STD_HELP & ~ARGP_HELP_EXIT_OK, weft);
        return EXIT_SUCCESS;
    }
    char *arguments[] = {argv[1], option, NULL};
    return run_command(2, arguments);
}

int main(int argc, char **argv)
{
    int command_index = 0;
    output_check_at_exit(&own_name);
    setvbuf(stderr, NULL, _IOLBF, BUFSIZ); /* whole lines, also among the ranks' */
    argp_err_exit_status = STATUS_USAGE;
    argp_program_version_hook = print_version;
    argp_parse(&argp, argc, argv, ARGP_IN_ORDER, NULL, &command_index);
    return run_command(argc - command_index, argv + command_index);
}
