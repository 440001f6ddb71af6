/* SPDX-License-Identifier: MIT */
#include "report/input.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct input {
    const char *path, *at, *end;
    int line;
    char *error;
};

/* NULL, with errno set. */
static char *read_all(const char *path, size_t *num_bytes)
{
    FILE *file = strcmp(path, "-") == 0 ? stdin : fopen(path, "re");
    char *text = NULL, part[65536];
    size_t count;
    FILE *all = file != NULL ? open_memstream(&text, num_bytes) : NULL;
    int is_read = all != NULL;
    while (is_read && (count = fread(part, 1, sizeof part, file)) > 0)
        is_read = fwrite(part, 1, count, all) == count;
    is_read = is_read && !ferror(file);
    const int error = errno;
    if (all != NULL && fclose(all) != 0)
        is_read = 0;
    if (file != NULL && file != stdin)
        fclose(file);
    errno = error;
    if (is_read)
        return text;
    free(text);
    return NULL;
}

static void step_to(struct input *input, const char *to)
{
    for (; input->at < to; input->at++)
        input->line += *input->at == '\n';
}

static void skip_space(struct input *input)
{
    const char *to = input->at;
    while (to < input->end && isspace((unsigned char)*to))
        to++;
    step_to(input, to);
}

static int take_object(struct input *input, json_t *object, input_taker take, void *argument)
{
    const char *reason = json_is_object(object) ? take(argument, object) : "is not an object";
    if (reason == NULL)
        return 0;
    snprintf(input->error, INPUT_ERROR_BYTES, "%s:%d: the value %s", input->path, input->line,
             reason);
    return -1;
}

/* The line of an element of an array is not known: that of the array is told. */
static int take_value(struct input *input, json_t *value, input_taker take, void *argument)
{
    size_t i;
    json_t *element;
    if (!json_is_array(value))
        return take_object(input, value, take, argument);
    json_array_foreach (value, i, element)
        if (take_object(input, element, take, argument) != 0) {
            const size_t length = strlen(input->error);
            snprintf(input->error + length, INPUT_ERROR_BYTES - length,
                     ", which is element %zu of an array", i);
            return -1;
        }
    return 0;
}

static int read_values(struct input *input, input_taker take, void *argument)
{
    int result = 0;
    skip_space(input);
    if (input->at == input->end) {
        snprintf(input->error, INPUT_ERROR_BYTES, "%s:%d: has no JSON", input->path, input->line);
        return -1;
    }
    for (; result == 0 && input->at < input->end; skip_space(input)) {
        json_error_t error;
        json_t *value =
            json_loadb(input->at, (size_t)(input->end - input->at), JSON_DISABLE_EOF_CHECK, &error);
        if (value == NULL) {
            snprintf(input->error, INPUT_ERROR_BYTES, "%s:%d: %s", input->path,
                     input->line + (error.line > 0 ? error.line : 1) - 1, error.text);
            return -1;
        }
        result = take_value(input, value, take, argument);
        step_to(input, input->at + error.position);
        json_decref(value);
    }
    return result;
}

int input_read(const char *path, input_taker take, void *argument, char error[INPUT_ERROR_BYTES])
{
    size_t num_bytes = 0;
    char *text = read_all(path, &num_bytes);
    if (text == NULL) {
        snprintf(error, INPUT_ERROR_BYTES, "cannot read %s: %s", path, strerror(errno));
        return -1;
    }
    struct input input = {path, text, text + num_bytes, 1, error};
    const int result = read_values(&input, take, argument);
    free(text);
    return result;
}
