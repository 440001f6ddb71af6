/* SPDX-License-Identifier: MIT */
/* Reads elements by expat. Of XML there is less here than could be in a file: no document type,
 * hence no entities of a file's own; text between elements is passed over. */
#include <expat.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/host/error.h"
#include "comm/host/log.h"
#include "topo/xml.h"

enum { MOST_WARNED = 16, WARNED_BYTES = 96 };

#define OF_PCI                                                                                     \
    "busid class vendor device subsystem_vendor subsystem_device link_speed link_width keep"

/* The elements of NCCL 2.30. Not all of them are used here. */
static const struct rule {
    const char *parent, *name; /* "": the root's */
    const char *attributes;    /* separated by blanks; NULL: the element is known, and skipped */
} rules[] = {
    {"", "system", "version host_hash"},
    {"system", "cpu", "numaid host_hash affinity arch vendor familyid modelid keep"},
    {"cpu", "pci", OF_PCI},
    {"cpu", "nic", "keep"},
    {"pci", "pci", OF_PCI},
    {"pci", "gpu", "dev sm rank gdr keep mlopart"},
    {"pci", "nic", "keep"},
    {"pci", "pcilink", "target"},
    {"nic", "net", "name dev net latency speed port guid maxconn gdr coll keep rail plane"},
    {"nic", "gin", NULL},
    {"nic", "rma", NULL},
    {"gpu", "nvlink", "target count tclass"},
    {"gpu", "c2c", "bw count"},
};

struct reader {
    const char *source;
    XML_Parser parser;
    struct xml *root, *open; /* the innermost element that is open */
    int32_t num_elements, depth;
    int32_t skip_depth; /* where what is skipped began; 0: nothing is */
    char warned[MOST_WARNED][WARNED_BYTES];
    int num_warned;
    weft_result result;
};

static int32_t current_line(const struct reader *reader)
{
    const XML_Size line = XML_GetCurrentLineNumber(reader->parser);
    return line < INT32_MAX ? (int32_t)line : INT32_MAX;
}

/* Ends the parse. */
static void stop(struct reader *reader, weft_result result)
{
    reader->result = result;
    XML_StopParser(reader->parser, XML_FALSE);
}

static void refuse(struct reader *reader, const char *element, const char *what)
{
    stop(reader, weft__error(WEFT_ERROR_INVALID_ARGUMENT, "%.256s:%" PRId32 ": element %.32s: %s",
                             reader->source, current_line(reader), element, what));
}

/* NULL: the element is unknown in its parent. */
static const struct rule *rule_of(const struct reader *reader, const char *name)
{
    const char *parent = reader->open != NULL ? reader->open->name : "";
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++)
        if (strcmp(rules[i].parent, parent) == 0 && strcmp(rules[i].name, name) == 0)
            return &rules[i];
    return NULL;
}

/* A skipped element or attribute may matter to the machine, so the user learns of it. Each kind is
 * named once: a file may have hundreds. */
static void warn(struct reader *reader, const char *element, const char *attribute)
{
    char what[WARNED_BYTES];
    snprintf(what, sizeof what, "element %.32s%s%.32s", element,
             attribute != NULL ? ": attribute " : "", attribute != NULL ? attribute : "");
    for (int i = 0; i < reader->num_warned; i++)
        if (strcmp(reader->warned[i], what) == 0)
            return;
    if (reader->num_warned == MOST_WARNED)
        return;
    memcpy(reader->warned[reader->num_warned++], what, sizeof what);
    weft__log(WEFT__LOG_WARN, WEFT__LOG_NO_RANK,
              "%.256s:%" PRId32 ": %s is unknown%s%s, and ignored", reader->source,
              current_line(reader), what, attribute == NULL && reader->open != NULL ? " in " : "",
              attribute == NULL && reader->open != NULL ? reader->open->name : "");
}

static int has_word(const char *words, const char *word)
{
    const size_t length = strlen(word);
    for (const char *at = words; (at = strstr(at, word)) != NULL; at += length)
        if ((at == words || at[-1] == ' ') && (at[length] == ' ' || at[length] == '\0'))
            return length > 0;
    return 0;
}

/* `pairs` are names and values in turn. */
static weft_result add_attributes(struct xml *element, const XML_Char **pairs)
{
    for (; pairs[0] != NULL; pairs += 2) {
        if (element->num_attributes == XML_MAX_ATTRIBUTES)
            return xml_error(element, "has more than %d attributes", XML_MAX_ATTRIBUTES);
        if (strlen(pairs[1]) > XML_MAX_VALUE_BYTES)
            return xml_error(element, "%.32s has more than %d bytes", pairs[0],
                             XML_MAX_VALUE_BYTES);
        WEFT__TRY(xml_set(element, pairs[0], "%s", pairs[1]));
    }
    return WEFT_OK;
}

static weft_result add_element(struct reader *reader, const char *name, const XML_Char **attributes)
{
    struct xml *element;
    WEFT__TRY(xml_add(reader->open, name, &element));
    element->line = current_line(reader);
    if (reader->open == NULL) {
        reader->root = element;
        element->source = strdup(reader->source);
    }
    reader->open = element;
    return add_attributes(element, attributes);
}

static void start_element(void *context, const XML_Char *name, const XML_Char **attributes)
{
    struct reader *reader = context;
    if (reader->result != WEFT_OK)
        return;
    if (++reader->num_elements > XML_MAX_ELEMENTS) {
        refuse(reader, name, "the file has more than 65536 elements");
        return;
    }
    if (++reader->depth > XML_MAX_DEPTH) {
        refuse(reader, name, "is nested in more than 63 others");
        return;
    }
    if (reader->skip_depth > 0)
        return;
    const struct rule *rule = rule_of(reader, name);
    if (rule == NULL || rule->attributes == NULL) {
        if (reader->open == NULL)
            refuse(reader, name, "is not what a file of this kind begins with");
        else if (rule == NULL)
            warn(reader, name, NULL);
        reader->skip_depth = reader->depth;
        return;
    }
    for (const XML_Char **pair = attributes; pair[0] != NULL; pair += 2)
        if (!has_word(rule->attributes, pair[0]))
            warn(reader, name, pair[0]);
    const weft_result result = add_element(reader, name, attributes);
    if (result != WEFT_OK)
        stop(reader, result);
}

static void end_element(void *context, const XML_Char *name)
{
    struct reader *reader = context;
    (void)name;
    if (reader->result != WEFT_OK)
        return;
    if (reader->skip_depth == 0)
        reader->open = reader->open->parent;
    else if (reader->skip_depth == reader->depth)
        reader->skip_depth = 0;
    reader->depth--;
}

static void start_document_type(void *context, const XML_Char *name, const XML_Char *system_id,
                                const XML_Char *public_id, int has_internal_subset)
{
    (void)system_id;
    (void)public_id;
    (void)has_internal_subset;
    refuse(context, name, "a document type is not allowed");
}

static weft_result run(struct reader *reader, const char *text, size_t num_bytes)
{
    XML_SetUserData(reader->parser, reader);
    XML_SetElementHandler(reader->parser, start_element, end_element);
    XML_SetStartDoctypeDeclHandler(reader->parser, start_document_type);
    const enum XML_Status status = XML_Parse(reader->parser, text, (int)num_bytes, XML_TRUE);
    if (reader->result != WEFT_OK || status == XML_STATUS_OK)
        return reader->result;
    const enum XML_Error error = XML_GetErrorCode(reader->parser);
    if (error == XML_ERROR_NO_MEMORY)
        return weft__error(WEFT_ERROR_OUT_OF_MEMORY, "no memory to read %s", reader->source);
    return weft__error(WEFT_ERROR_INVALID_ARGUMENT, "%.256s:%" PRId32 ": %s%.32s%s: %s",
                       reader->source, current_line(reader), reader->open ? "in element " : "",
                       reader->open ? reader->open->name : "outside of all elements", "",
                       XML_ErrorString(error));
}

weft_result topo_parse(const char *source, const char *text, size_t num_bytes, struct xml **system)
{
    struct reader reader = {.source = source};
    int32_t version;
    if (num_bytes > XML_MAX_BYTES)
        return weft__error(WEFT_ERROR_INVALID_ARGUMENT, "%.256s has more than 16 MiB", source);
    reader.parser = XML_ParserCreate(NULL);
    if (reader.parser == NULL)
        return weft__error(WEFT_ERROR_OUT_OF_MEMORY, "no memory to read %s", source);
    weft_result result = run(&reader, text, num_bytes);
    XML_ParserFree(reader.parser);
    if (result == WEFT_OK)
        result = xml_integer(reader.root, (struct xml_number){"version", 1, 1}, &version);
    if (result == WEFT_OK)
        *system = reader.root;
    else
        xml_remove(reader.root);
    return result;
}

/* No more than the most that is allowed, and a byte. */
static weft_result read_file(const char *path, char *text, size_t *num_bytes)
{
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return weft__system_error("cannot read %s", path);
    *num_bytes = fread(text, 1, XML_MAX_BYTES + 1, file);
    const weft_result result = ferror(file) ? weft__system_error("cannot read %s", path) : WEFT_OK;
    fclose(file);
    return result;
}

weft_result topo_read(const char *path, struct xml **system)
{
    size_t num_bytes = 0;
    char *text = malloc(XML_MAX_BYTES + 1);
    if (text == NULL)
        return weft__error(WEFT_ERROR_OUT_OF_MEMORY, "no memory to read %s", path);
    weft_result result = read_file(path, text, &num_bytes);
    if (result == WEFT_OK)
        result = topo_parse(path, text, num_bytes, system);
    free(text);
    return result;
}
