/* SPDX-License-Identifier: MIT */
#include "report/plot_file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "report/page.h"
#include "report/parts.h"
#include "report/plot.h"

enum { LINE_PX = 16, LINE_LETTERS = 72, GAP_PX = 16 };

/* Where the next drawing goes. */
struct sheet {
    FILE *file;
    int y;
};

static void begin(const struct sheet *sheet)
{
    fprintf(sheet->file, "<g transform=\"translate(0,%d)\">\n", sheet->y);
}

static void end(struct sheet *sheet, int height)
{
    fputs("</g>\n", sheet->file);
    sheet->y += height > 0 ? height + GAP_PX : 0;
}

static void begin_line(struct sheet *sheet)
{
    fprintf(sheet->file, "<text class=\"m\" x=\"0\" y=\"%d\">", sheet->y);
    sheet->y += LINE_PX;
}

/* What was measured, in as many lines as it needs. */
static void write_caption(struct sheet *sheet, const char *name, const json_t *words)
{
    const char *word;
    json_t *value;
    size_t length = strlen(name);
    begin_line(sheet);
    page_text(sheet->file, name);
    json_object_foreach ((json_t *)words, word, value) {
        length += strlen(word) + 2;
        fputs(",", sheet->file);
        if (length > LINE_LETTERS) {
            length = strlen(word);
            fputs("</text>\n", sheet->file);
            begin_line(sheet);
        }
        fputs(" ", sheet->file);
        page_text(sheet->file, word);
    }
    fputs("</text>\n", sheet->file);
    sheet->y += GAP_PX;
}

static void write_group(struct sheet *sheet, const struct group *group)
{
    for (int measure = 0; measure < FIGURE_NUM_MEASURES; measure++) {
        begin(sheet);
        end(sheet, figures_write_chart(sheet->file, group, (enum figure_measure)measure));
    }
    if (group->num_series > 0)
        write_caption(sheet, group->op, group->words);
}

static int write_all(struct sheet *sheet, const struct figure_list *figures)
{
    struct group *groups;
    json_t *shared = NULL;
    const int num_groups = groups_create(figures, &groups);
    for (int i = 0; i < num_groups; i++)
        write_group(sheet, &groups[i]);
    begin(sheet);
    end(sheet, layers_draw(sheet->file, figures, &shared));
    if (shared != NULL)
        write_caption(sheet, "layer", shared);
    json_decref(shared);
    if (num_groups >= 0)
        groups_destroy(groups, num_groups);
    return num_groups < 0 ? -1 : 0;
}

static int write_sheet(FILE *file, const struct figure_list *figures)
{
    char *drawings = NULL;
    size_t num_bytes = 0;
    struct sheet sheet = {.file = open_memstream(&drawings, &num_bytes)};
    int result = sheet.file != NULL ? write_all(&sheet, figures) : -1;
    if (sheet.file != NULL && fclose(sheet.file) != 0)
        result = -1;
    if (result == 0) {
        fprintf(file,
                "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
                "viewBox=\"-12 -8 %d %d\">\n",
                PLOT_WIDTH + 24, sheet.y + 16, PLOT_WIDTH + 24, sheet.y + 16);
        page_write_drawing_style(file);
        fprintf(file,
                "<rect class=\"w\" x=\"-12\" y=\"-8\" width=\"%d\" height=\"%d\"/>\n%s</svg>\n",
                PLOT_WIDTH + 24, sheet.y + 16, drawings);
    }
    free(drawings);
    return result;
}

int plot_file_write(const char *path, const struct figure_list *figures, const char *command)
{
    FILE *file = fopen(path, "we");
    int is_written = file != NULL && write_sheet(file, figures) == 0 && !ferror(file);
    if (file != NULL && fclose(file) != 0)
        is_written = 0;
    if (!is_written)
        fprintf(stderr, "%s: cannot write %s: %s\n", command, path, strerror(errno));
    return is_written ? 0 : -1;
}
