/* SPDX-License-Identifier: MIT */
#include "topo/xml.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/heap/host_memory.h"
#include "comm/host/error.h"

/* Room for one more in an array that doubles. */
static void *grow(void *array, int32_t count, size_t size)
{
    if ((count & (count - 1)) != 0)
        return array;
    return realloc(array, (count == 0 ? 1 : 2 * (size_t)count) * size);
}

static weft_result lacks_memory(void)
{
    return weft__error(WEFT_ERROR_OUT_OF_MEMORY, "no memory for elements of a topology");
}

/* ------------------------------------------------------------------ elements */

static void free_one(struct xml *element)
{
    for (int32_t i = 0; i < element->num_attributes; i++) {
        free(element->attributes[i].name);
        free(element->attributes[i].value);
    }
    free(element->attributes);
    free(element->children);
    free(element->source);
    free(element->name);
    free(element);
}

weft_result xml_add(struct xml *parent, const char *name, struct xml **child)
{
    struct xml *element = calloc(1, sizeof *element);
    struct xml **children = NULL;
    if (element != NULL)
        element->name = strdup(name);
    if (parent != NULL && element != NULL)
        children = grow(parent->children, parent->num_children, sizeof *children);
    if (element == NULL || element->name == NULL || (parent != NULL && children == NULL)) {
        if (element != NULL)
            free_one(element);
        return lacks_memory();
    }
    if (parent != NULL) {
        parent->children = children;
        parent->children[parent->num_children++] = element;
        element->parent = parent;
    }
    *child = element;
    return WEFT_OK;
}

static int32_t place_of(const struct xml *element)
{
    int32_t place = 0;
    while (element->parent->children[place] != element)
        place++;
    return place;
}

void xml_move(struct xml *element, int32_t place)
{
    struct xml **siblings = element->parent->children;
    int32_t i = place_of(element);
    for (; i < place; i++)
        siblings[i] = siblings[i + 1];
    for (; i > place; i--)
        siblings[i] = siblings[i - 1];
    siblings[place] = element;
}

void xml_remove(struct xml *element)
{
    if (element == NULL)
        return;
    if (element->parent != NULL) {
        xml_move(element, element->parent->num_children - 1);
        element->parent->num_children--;
    }
    for (int32_t i = element->num_children - 1; i >= 0; i--) {
        element->children[i]->parent = NULL; /* this element's list ends with it */
        xml_remove(element->children[i]);
    }
    free_one(element);
}

int xml_is(const struct xml *element, const char *name)
{
    return strcmp(element->name, name) == 0;
}

struct xml *xml_find(const struct xml *parent, const char *name, const char *attribute,
                     const char *value)
{
    for (int32_t i = 0; i < parent->num_children; i++) {
        struct xml *child = parent->children[i];
        const char *found = attribute != NULL ? xml_get(child, attribute) : NULL;
        if (xml_is(child, name) &&
            (attribute == NULL || (found != NULL && strcmp(found, value) == 0)))
            return child;
    }
    return NULL;
}

/* ------------------------------------------------------------------ attributes */

static struct xml_attribute *find_attribute(const struct xml *element, const char *name)
{
    for (int32_t i = 0; i < element->num_attributes; i++)
        if (strcmp(element->attributes[i].name, name) == 0)
            return &element->attributes[i];
    return NULL;
}

const char *xml_get(const struct xml *element, const char *name)
{
    const struct xml_attribute *attribute = find_attribute(element, name);
    return attribute != NULL ? attribute->value : NULL;
}

const char *xml_text(const struct xml *element, const char *name)
{
    const char *value = xml_get(element, name);
    return value != NULL ? value : "";
}

static weft_result add_attribute(struct xml *element, const char *name, char *value)
{
    char *own_name = strdup(name);
    struct xml_attribute *attributes =
        own_name != NULL
            ? grow(element->attributes, element->num_attributes, sizeof *element->attributes)
            : NULL;
    if (attributes == NULL) {
        free(own_name);
        free(value);
        return lacks_memory();
    }
    element->attributes = attributes;
    attributes[element->num_attributes].name = own_name;
    attributes[element->num_attributes++].value = value;
    return WEFT_OK;
}

weft_result xml_set(struct xml *element, const char *name, const char *format, ...)
{
    struct xml_attribute *attribute = find_attribute(element, name);
    char *value;
    va_list arguments;
    va_start(arguments, format);
    const int length = vasprintf(&value, format, arguments);
    va_end(arguments);
    if (length < 0)
        return lacks_memory();
    if (attribute == NULL)
        return add_attribute(element, name, value);
    free(attribute->value);
    attribute->value = value;
    return WEFT_OK;
}

/* ------------------------------------------------------------------ writing */

static void print_value(FILE *file, const char *value)
{
    for (; *value != '\0'; value++) {
        if (*value == '&')
            fputs("&amp;", file);
        else if (*value == '<')
            fputs("&lt;", file);
        else if (*value == '"')
            fputs("&quot;", file);
        else
            fputc(*value, file);
    }
}

static void print_element(FILE *file, const struct xml *element, int indent)
{
    fprintf(file, "%*s<%s", indent, "", element->name);
    for (int32_t i = 0; i < element->num_attributes; i++) {
        fprintf(file, " %s=\"", element->attributes[i].name);
        print_value(file, element->attributes[i].value);
        fputc('"', file);
    }
    fputs(element->num_children > 0 ? ">\n" : "/>\n", file);
    for (int32_t i = 0; i < element->num_children; i++)
        print_element(file, element->children[i], indent + 2);
    if (element->num_children > 0)
        fprintf(file, "%*s</%s>\n", indent, "", element->name);
}

weft_result xml_print(const struct xml *root, char **text, size_t *num_bytes)
{
    *text = NULL;
    FILE *file = open_memstream(text, num_bytes);
    if (file == NULL)
        return lacks_memory();
    print_element(file, root, 0);
    if (fclose(file) == 0)
        return WEFT_OK;
    free(*text);
    *text = NULL;
    return lacks_memory();
}

static weft_result write_text(const char *path, const char *text, size_t num_bytes)
{
    WEFT__TRY(weft__check_file_size(path, num_bytes));
    FILE *file = fopen(path, "we");
    if (file == NULL)
        return weft__system_error("cannot write %s", path);
    const int is_lost = fwrite(text, 1, num_bytes, file) != num_bytes;
    if (fclose(file) != 0 || is_lost)
        return weft__system_error("cannot write %s", path);
    return WEFT_OK;
}

weft_result xml_write(const struct xml *root, const char *path)
{
    char *text;
    size_t num_bytes;
    WEFT__TRY(xml_print(root, &text, &num_bytes));
    const weft_result result = write_text(path, text, num_bytes);
    free(text);
    return result;
}
