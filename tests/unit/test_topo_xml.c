/* SPDX-License-Identifier: MIT */
/* Files of topologies: what NCCL has written comes out byte for byte, others the same when they are
 * read twice; what is no such file is an error that says where. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/host/error.h"
#include "harness/cmocka.h"
#include "topo_files.h"

static const char *const dumps[] = {"vastai-hgx-h200-8x.topo.xml", "vastai-hgx-b200-8x.topo.xml",
                                    "perlmutter-a100-4x.topo.xml", "azure-ncv4.topo.xml",
                                    "azure-ncv4-selflinks.topo.xml"};
static const char *const partial_files[] = {
    "aws-g5-48xl.partial.topo.xml", "aws-p4d-24xl.partial.topo.xml", "azure-ndv2.partial.topo.xml",
    "azure-ndv4.partial.topo.xml", "azure-ndv5.partial.topo.xml"};

TEST(what_nccl_has_written_comes_out_byte_for_byte)
{
    for (size_t i = 0; i < sizeof dumps / sizeof dumps[0]; i++) {
        size_t num_bytes;
        char *bytes = topo_file_bytes(dumps[i], &num_bytes);
        struct xml *system = topo_file_read(dumps[i]);
        char *text = topo_print(system);
        assert_string_equal(text, bytes);
        xml_remove(system);
        free(text);
        free(bytes);
    }
}

TEST(what_is_written_reads_as_what_was_read)
{
    for (size_t i = 0; i < sizeof partial_files / sizeof partial_files[0]; i++) {
        struct xml *system = topo_file_read(partial_files[i]);
        char *once = topo_print(system);
        struct xml *again = topo_text_read(once);
        char *twice = topo_print(again);
        assert_non_null(strstr(once, "<pci busid="));
        assert_string_equal(once, twice);
        xml_remove(system);
        xml_remove(again);
        free(once);
        free(twice);
    }
}

TEST(a_file_is_written_and_read)
{
    char path[] = "/tmp/weft-topo-XXXXXX", *before, *after;
    struct xml *system = topo_file_read(dumps[0]), *again = NULL;
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_ok(xml_write(system, path));
    assert_ok(topo_read(path, &again));
    before = topo_print(system);
    after = topo_print(again);
    assert_string_equal(before, after);
    assert_int_equal(xml_write(system, "/nonexistent/file"), WEFT_ERROR_SYSTEM);
    assert_error(topo_read("/nonexistent/file", &again), WEFT_ERROR_SYSTEM, "/nonexistent/file");
    remove(path);
    xml_remove(system);
    xml_remove(again);
    free(before);
    free(after);
}

TEST(what_is_not_known_is_skipped_whole_and_unknown_attributes_stay)
{
    struct xml *system = topo_text_read("<?xml version='1.0'?><!-- one -->\n"
                                        "<system version='1' name=\"a &amp; b\">\n"
                                        "  <gpu dev='1'/><fan><cpu numaid='7'/></fan>\n"
                                        "  <cpu numaid='0' more='\"&lt;'> text <!-- two -->\n"
                                        "  </cpu>\n"
                                        "</system>");
    char *text = topo_print(system);
    assert_string_equal(text, "<system version=\"1\" name=\"a &amp; b\">\n"
                              "  <cpu numaid=\"0\" more=\"&quot;&lt;\"/>\n"
                              "</system>\n");
    xml_remove(system);
    free(text);
}

/* ---------------------------------------------------------------- what is refused */

struct refusal {
    const char *text;
    const char *message; /* a part of it */
};

static void must_be_refused(const char *text, const char *message)
{
    struct xml *system = NULL;
    assert_int_not_equal(topo_parse("bad.xml", text, strlen(text), &system), WEFT_OK);
    if (strstr(weft__last_error(), message) == NULL)
        fail_msg("\"%s\" has no \"%s\"", weft__last_error(), message);
    assert_null(system);
}

TEST(errors_say_line_and_element)
{
    static const struct refusal refusals[] = {
        {"", "bad.xml:1: outside of all elements: no element found"},
        {"<graphs version='1'/>", "bad.xml:1: element graphs: is not what"},
        {"<system/>", "bad.xml:1: element system: attribute version is missing"},
        {"<system version='2'/>", "element system: version is \"2\", allowed are numbers of 1..1"},
        {"<system version='1'>\n<cpu>\n</system>", "bad.xml:3: in element cpu: mismatched tag"},
        {"<system version='1'>\n<cpu numaid=0/>", "bad.xml:2: in element system: "},
        {"<system version='1'><cpu numaid='0'", "in element system: "},
        {"<system version='1'/>\n<system version='1'/>", "bad.xml:2: "},
        {"<system version='1' version='1'/>", "duplicate attribute"},
        {"<!DOCTYPE system [<!ENTITY a 'b'>]>\n<system version='1' name='&a;'/>",
         "bad.xml:1: element system: a document type is not allowed"},
        {"<system version='1' name='&a;'/>", "undefined entity"},
    };
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++)
        must_be_refused(refusals[i].text, refusals[i].message);
}

/* `count` times `part` between `begin` and nothing. */
static char *repeat(const char *begin, const char *part, size_t count)
{
    char *text, *end;
    size_t num_bytes = strlen(begin) + count * strlen(part);
    text = malloc(num_bytes + 1);
    assert_non_null(text);
    end = stpcpy(text, begin);
    for (size_t i = 0; i < count; i++)
        end = stpcpy(end, part);
    return text;
}

TEST(what_is_too_much_is_refused)
{
    static const struct {
        const char *begin, *part;
        size_t count;
        const char *message;
    } cases[] = {
        {"<system version='1'><cpu>", "<pci>", 100, "element pci: is nested in more than 63"},
        {"<system version='1'><fan>", "<fan>", 100, "element fan: is nested in more than 63"},
        {"<system version='1'>", "<cpu/>", 70000, "more than 65536 elements"},
        {"<system version='1' a='", "value", 1000, "in element"},
        {"<system version='1'>", "                ", 1 << 20, "more than 16 MiB"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char *text = repeat(cases[i].begin, cases[i].part, cases[i].count);
        if (i == 3) {
            char *whole = repeat(text, "'/>", 1);
            must_be_refused(whole, "element system: a has more than 4096 bytes");
            free(whole);
        } else {
            must_be_refused(text, cases[i].message);
        }
        free(text);
    }
}

TEST(too_many_attributes_are_refused)
{
    char text[4096];
    size_t length = (size_t)snprintf(text, sizeof text, "<system version='1'");
    for (int i = 0; i < XML_MAX_ATTRIBUTES; i++)
        length += (size_t)snprintf(text + length, sizeof text - length, " a%d=''", i);
    snprintf(text + length, sizeof text - length, "/>");
    must_be_refused(text, "element system: has more than 64 attributes");
}
