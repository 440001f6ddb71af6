/* SPDX-License-Identifier: MIT */
#include "hosts.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "workload/options.h"

/* ---------------------------------------------------------------- the list */

static void add_host(struct argp_state *state, struct hosts *hosts, const char *name, size_t bytes,
                     const char *slots)
{
    struct host *grown =
        realloc(hosts->hosts, ((size_t)hosts->num_hosts + 1) * sizeof *hosts->hosts);
    if (!grown) {
        argp_failure(state, argp_err_exit_status, 0, "no memory for the hosts");
        return; /* never: argp_failure ends the process */
    }
    hosts->hosts = grown;
    struct host *host = &grown[hosts->num_hosts++];
    *host = (struct host){.num_slots = 0};
    if (bytes == 0 || bytes >= sizeof host->name || name[0] == '-' || hosts->num_hosts > HOSTS_MAX)
        argp_error(state, "--hosts: \"%.*s\" is no host; names of 1 to %zu characters, up to %d",
                   (int)bytes, name, sizeof host->name - 1, HOSTS_MAX);
    memcpy(host->name, name, bytes);
    if (slots)
        host->num_slots = (int32_t)option_integer(state, "--hosts, slots", slots, 1, HOSTS_MAX);
}

/* "a:4" */
static void read_item(struct argp_state *state, struct hosts *hosts, char *item)
{
    char *colon = strrchr(item, ':');
    if (colon)
        *colon = '\0';
    add_host(state, hosts, item, strlen(item), colon ? colon + 1 : NULL);
}

/* "a slots=4", as mpirun has it, or "a:4"; # begins a comment. */
static void read_line(struct argp_state *state, struct hosts *hosts, char *line)
{
    char *rest = line;
    line[strcspn(line, "#\n")] = '\0';
    char *name = strtok_r(rest, " \t\r", &rest), *slots = strtok_r(NULL, " \t\r", &rest);
    if (!name)
        return;
    if (!slots)
        read_item(state, hosts, name);
    else if (strncmp(slots, "slots=", 6) == 0 && !strtok_r(NULL, " \t\r", &rest))
        add_host(state, hosts, name, strlen(name), slots + 6);
    else
        argp_error(state, "--hosts, host %s: after the name only slots=N is allowed", name);
}

static void read_file(struct argp_state *state, FILE *file, struct hosts *hosts)
{
    char *line = NULL;
    size_t line_bytes = 0;
    while (getline(&line, &line_bytes, file) > 0)
        read_line(state, hosts, line);
    free(line);
}

static void read_list(struct argp_state *state, const char *text, struct hosts *hosts)
{
    char *copy = strdup(text), *rest = copy;
    for (char *item; copy && (item = strsep(&rest, ",")) != NULL;)
        read_item(state, hosts, item);
    free(copy);
}

/* Fills one host after another. Each has as many ranks, as nodes of a job have. */
static void place_ranks(struct argp_state *state, int32_t num_ranks, struct hosts *hosts)
{
    const int32_t first_slots = hosts->hosts[0].num_slots;
    const int32_t num_needed =
        first_slots > 0 ? (num_ranks + first_slots - 1) / first_slots : hosts->num_hosts;
    const int32_t num_used = num_needed < hosts->num_hosts ? num_needed : hosts->num_hosts;
    hosts->ranks_per_host = num_ranks / num_used;
    if (num_ranks % num_used != 0)
        argp_error(state, "-n %d: must divide evenly among the %d hosts", num_ranks, num_used);
    for (int32_t i = 0; i < num_used; i++)
        if (hosts->hosts[i].num_slots > 0 && hosts->hosts[i].num_slots < hosts->ranks_per_host)
            argp_error(state,
                       "-n %d: %d ranks would be on host %s, which has %d slots; all hosts get as "
                       "many ranks",
                       num_ranks, hosts->ranks_per_host, hosts->hosts[i].name,
                       hosts->hosts[i].num_slots);
    hosts->num_hosts = num_used;
}

void hosts_read(struct argp_state *state, const char *text, int32_t num_ranks, struct hosts *hosts)
{
    struct stat status;
    const int is_file = stat(text, &status) == 0 && !S_ISDIR(status.st_mode);
    FILE *file = is_file ? fopen(text, "re") : NULL;
    *hosts = (struct hosts){.hosts = NULL};
    if (file)
        read_file(state, file, hosts);
    else
        read_list(state, text, hosts);
    if (file)
        fclose(file);
    if (hosts->num_hosts == 0)
        argp_error(state, "--hosts %s: names no host", text);
    if (num_ranks > 0)
        place_ranks(state, num_ranks, hosts);
}

int hosts_draw_secret(struct hosts *hosts)
{
    unsigned char bytes[HOSTS_SECRET_CHARS / 2];
    if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes)
        return -1;
    for (size_t i = 0; i < sizeof bytes; i++)
        snprintf(hosts->secret + 2 * i, 3, "%02x", bytes[i]);
    return 0;
}

/* ---------------------------------------------------------------- the commands */

/* For the shell there: in quotes nothing but a quote has a meaning. */
static void write_quoted(FILE *script, const char *text)
{
    fputs(" '", script);
    for (; *text; text++)
        fputs(*text == '\'' ? "'\\''" : (const char[]){*text, '\0'}, script);
    fputc('\'', script);
}

/* The user's settings go along, but for those of a job or of a host. */
static int goes_along(const char *variable)
{
    static const char *const stay[] = {
        "WEFT_SECRET=", "WEFT_ID=", "WEFT_RANK=", "WEFT_WORLD_SIZE=", "WEFT_NODES=", "WEFT_ADDR="};
    for (size_t i = 0; i < sizeof stay / sizeof *stay; i++)
        if (strncmp(variable, stay[i], strlen(stay[i])) == 0)
            return 0;
    return strncmp(variable, "WEFT_", strlen("WEFT_")) == 0;
}

static void write_script(FILE *script, const struct hosts *hosts, int32_t host,
                         const struct hosts_command *command)
{
    char path[PATH_MAX] = ".";
    fputs("cd", script);
    write_quoted(script, getcwd(path, sizeof path) ? path : ".");
    fputs(" && exec env", script);
    for (char **variable = environ; *variable; variable++)
        if (goes_along(*variable))
            write_quoted(script, *variable);
    const ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
    path[length > 0 ? length : 0] = '\0';
    write_quoted(script, length > 0 ? path : "weft");
    fprintf(script, " run --control --node-rank %d --nodes %d -n %d --grace %.17g%s --rendezvous",
            host, hosts->num_hosts, hosts->ranks_per_host, command->grace_s,
            command->output == SPAWN_OUTPUT_SHARED ? " --no-prefix" : "");
    write_quoted(script, command->rendezvous);
    fputs(" --", script);
    for (char *const *word = command->argv; *word; word++)
        write_quoted(script, *word);
}

/* The words of --ssh, the host, the script. */
static char **command_of(const struct hosts *hosts, int32_t host,
                         const struct hosts_command *command)
{
    const size_t ssh_bytes = strlen(command->ssh) + 1, most_words = ssh_bytes / 2 + 4;
    char *script = NULL, *rest = NULL;
    size_t script_bytes, num_words = 0;
    FILE *stream = open_memstream(&script, &script_bytes);
    /* Behind the words' addresses are the words themselves. */
    char **argv = calloc(1, most_words * sizeof *argv + ssh_bytes);
    if (stream)
        write_script(stream, hosts, host, command);
    if (!stream || fclose(stream) != 0 || !argv) {
        free(script);
        free(argv);
        return NULL;
    }
    char *words = memcpy(argv + most_words, command->ssh, ssh_bytes);
    for (char *word; (word = strtok_r(num_words == 0 ? words : NULL, " ", &rest)) != NULL;)
        argv[num_words++] = word;
    argv[num_words++] = hosts->hosts[host].name;
    argv[num_words] = script;
    return argv;
}

int hosts_write_commands(struct hosts *hosts, const struct hosts_command *command)
{
    for (int32_t i = 0; i < hosts->num_hosts; i++)
        if (!(hosts->hosts[i].argv = command_of(hosts, i, command)))
            return -1;
    return 0;
}

/* The last word of a command is its script. */
void hosts_free(struct hosts *hosts)
{
    for (int32_t i = 0; i < hosts->num_hosts; i++) {
        char **argv = hosts->hosts[i].argv;
        for (char **word = argv; argv && *word; word++)
            if (!word[1])
                free(*word);
        free(argv);
    }
    free(hosts->hosts);
}
