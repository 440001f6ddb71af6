/* SPDX-License-Identifier: MIT */
/* weft report: one page of what was measured and recorded. */
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "command.h"
#include "report/input.h"
#include "report/page.h"
#include "report/parts.h"
#include "workload/options.h"
#include "workload/output.h"

struct report_options {
    struct option_texts files;
    const char *out, *title;
};

#define AT(member) OPTION_AT(struct report_options, member)

static const struct option_row option_table[] = {
    {OPTION_TEXT, "output", "OUT", "Write the page to OUT", NULL, AT(out), .letter = 'o',
     .without = "standard output"},
    {OPTION_TEXT, "title", "TEXT", "Title of the page", NULL, AT(title),
     .without = "weft, with the machine and the date"},
    {OPTION_ARGUMENTS, .arg = "FILE...", AT(files)},
    {0}};

static const char documentation[] =
    "Makes one page of HTML, which needs no other file, from JSON: the files of bench/results, "
    "lines of weft ep and weft coll with --json, and records of ranks. A FILE has objects, one "
    "behind the other or in arrays; a folder stands for its *.json; - is standard "
    "input. The page has curves of time and bandwidth against size with other libraries beside "
    "weft, tables, the steps of a layer, who waited for whom, and the last operations of all ranks."
    "\vThe exit status is 0 only if all was read and written; 1 if a file cannot be read, or is "
    "wrong; 2 for a wrong argument.";

/* ------------------------------------------------------------------ what is read */

/* One file's. */
struct source {
    char *path;
    char machine[FIGURE_MACHINE_CHARS];
    struct figure_list figures;
};

struct report {
    struct source *sources;
    int num_sources;
    json_t *records;       /* by communicator: arrays */
    struct source *source; /* that is read now */
};

static const char *take_figure(struct source *source, json_t *object)
{
    if (source->machine[0] == '\0')
        figure_machine(object, source->machine);
    return figures_add(&source->figures, object);
}

static const char *take_record(struct report *report, json_t *object)
{
    const char *key = json_string_value(json_object_get(object, "key"));
    const char *reason = record_check(object);
    if (reason != NULL)
        return reason;
    key = key != NULL ? key : "";
    json_t *others = json_object_get(report->records, key);
    if (others == NULL) {
        others = json_array();
        json_object_set_new(report->records, key, others);
    }
    if (json_array_size(others) > 0 &&
        !json_equal(json_object_get(json_array_get(others, 0), "world_size"),
                    json_object_get(object, "world_size")))
        return "has another \"world_size\" than records of the same communicator";
    return json_array_append(others, object) == 0 ? NULL : "does not fit into memory";
}

static const char *take(void *argument, json_t *object)
{
    struct report *report = argument;
    if (record_is_in(object))
        return take_record(report, object);
    if (figure_is_in(object))
        return take_figure(report->source, object);
    return "has none of \"value\", \"us_median\" and \"entries\", by which figures and records are "
           "known";
}

static int read_file(struct report *report, const char *path)
{
    char error[INPUT_ERROR_BYTES];
    struct source *sources =
        realloc(report->sources, (size_t)(report->num_sources + 1) * sizeof *sources);
    if (sources == NULL)
        return -1;
    report->sources = sources;
    report->source = &sources[report->num_sources++];
    *report->source = (struct source){.path = strdup(path)};
    if (input_read(path, take, report, error) == 0)
        return 0;
    fprintf(stderr, "weft report: %s\n", error);
    return -1;
}

static int is_json(const struct dirent *entry)
{
    const size_t length = strlen(entry->d_name);
    return length > 5 && strcmp(entry->d_name + length - 5, ".json") == 0;
}

static int read_folder(struct report *report, const char *folder)
{
    struct dirent **entries = NULL;
    const int count = scandir(folder, &entries, is_json, alphasort);
    int result = count > 0 ? 0 : -1;
    if (count <= 0)
        fprintf(stderr, "weft report: %s: %s\n", folder,
                count < 0 ? strerror(errno) : "has no *.json");
    for (int i = 0; i < count; i++) {
        char path[PATH_MAX];
        snprintf(path, sizeof path, "%s/%s", folder, entries[i]->d_name);
        if (result == 0)
            result = read_file(report, path);
        free(entries[i]);
    }
    free(entries);
    return result;
}

static int read_all(struct report *report, const struct option_texts *files)
{
    int result = 0;
    for (int32_t i = 0; i < files->count && result == 0; i++) {
        struct stat status;
        const int is_folder = stat(files->texts[i], &status) == 0 && S_ISDIR(status.st_mode);
        result =
            is_folder ? read_folder(report, files->texts[i]) : read_file(report, files->texts[i]);
    }
    return result;
}

/* ------------------------------------------------------------------ what is written */

static const char *name_of(const struct source *source)
{
    const char *slash = strrchr(source->path, '/');
    if (strcmp(source->path, "-") == 0)
        return "standard input";
    if (source->machine[0] != '\0')
        return source->machine;
    return slash != NULL ? slash + 1 : source->path;
}

static int is_shown(const struct source *source)
{
    return source->figures.count > 0;
}

static void write_contents(FILE *file, const struct report *report)
{
    if (report->num_sources == 1)
        return;
    fputs("<nav>\n", file);
    if (json_object_size(report->records) > 0)
        fputs("<a href=\"#records\">Records of ranks</a>\n", file);
    for (int i = 0; i < report->num_sources; i++) {
        if (!is_shown(&report->sources[i]))
            continue;
        page_print(file, "<a href=\"#s%d\">%s</a>\n", i, name_of(&report->sources[i]));
    }
    fputs("</nav>\n", file);
}

static int write_source(FILE *file, const struct source *source, int number)
{
    int64_t num_wrong = 0;
    for (int k = 0; k < source->figures.count; k++)
        num_wrong += source->figures.list[k].num_wrong > 0;
    page_print(file, "<h2 id=\"s%d\">%s</h2>\n<p class=\"n\">%s</p>\n", number, name_of(source),
               source->path);
    if (num_wrong > 0)
        fprintf(file, "<p class=\"x\">%lld figures are of wrong results.</p>\n",
                (long long)num_wrong);
    return figures_write(file, &source->figures);
}

static int write_records(FILE *file, const struct report *report)
{
    const char *key;
    json_t *records;
    int result = 0;
    if (json_object_size(report->records) > 0)
        fputs("<h2 id=\"records\">Records of ranks</h2>\n", file);
    json_object_foreach (report->records, key, records)
        result |= records_write(file, records);
    return result;
}

/* The machine if there is one, else how many. */
static void write_title(const struct report *report, const char *given, char title[256])
{
    const struct source *first = NULL;
    int num_shown = 0;
    for (int i = 0; i < report->num_sources; i++) {
        num_shown += is_shown(&report->sources[i]);
        if (first == NULL && report->sources[i].machine[0] != '\0')
            first = &report->sources[i];
    }
    if (given != NULL)
        snprintf(title, 256, "%s", given);
    else if (num_shown > 1)
        snprintf(title, 256, "weft: %d runs", num_shown);
    else if (first != NULL)
        snprintf(title, 256, "weft: %s", first->machine);
    else
        snprintf(title, 256, "weft: %s", num_shown > 0 ? "measurements" : "records of ranks");
}

static int write_page(FILE *file, const struct report *report, const char *given_title)
{
    char title[256], summary[256];
    int num_figures = 0, result = 0;
    for (int i = 0; i < report->num_sources; i++)
        num_figures += report->sources[i].figures.count;
    write_title(report, given_title, title);
    snprintf(summary, sizeof summary,
             "Figures: %d. Files: %d. Times are medians; bold is the least of its column.",
             num_figures, report->num_sources);
    page_begin(file, &(struct page_heading){title, summary});
    write_contents(file, report);
    result |= write_records(file, report);
    for (int i = 0; i < report->num_sources; i++)
        if (is_shown(&report->sources[i]))
            result |= write_source(file, &report->sources[i], i);
    page_end(file);
    if (result != 0)
        fprintf(stderr, "weft report: memory is lacking\n");
    return result;
}

static int write_out(const struct report *report, const struct report_options *options)
{
    if (options->out == NULL)
        return write_page(stdout, report, options->title) != 0 || output_flush() != 0 ? -1 : 0;
    FILE *file = fopen(options->out, "we");
    int result = file != NULL ? write_page(file, report, options->title) : 0;
    const int is_written = file != NULL && !ferror(file);
    if (file == NULL || fclose(file) != 0 || !is_written) {
        fprintf(stderr, "weft report: cannot write %s: %s\n", options->out, strerror(errno));
        result = -1;
    }
    return result;
}

static void free_report(struct report *report)
{
    for (int i = 0; i < report->num_sources; i++) {
        figures_free(&report->sources[i].figures);
        free(report->sources[i].path);
    }
    free(report->sources);
    json_decref(report->records);
}

static void finish(void *input, struct argp_state *state)
{
    const struct report_options *options = input;
    if (options->files.count == 0)
        argp_error(state, "no FILE given");
}

int command_report(int argc, char **argv)
{
    struct report_options options = {0};
    const struct option_set set = {option_table, documentation, finish};
    options_parse(&set, &options, argc, argv);
    struct report report = {.records = json_object()};
    int result = read_all(&report, &options.files);
    if (result == 0)
        result = write_out(&report, &options);
    free_report(&report);
    return result == 0 ? EXIT_SUCCESS : STATUS_FAILURE;
}
