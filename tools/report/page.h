/* SPDX-License-Identifier: MIT */
/* What all parts of a report write with. Every text that comes from outside goes through
 * page_text() or page_print(). */
#pragma once

#include <stdio.h>

/* Escaped for HTML, SVG and XML, in elements and attributes. */
void page_text(FILE *file, const char *text);

/* With the conversions %d, %.1f, and %s of a text, which is escaped. */
void page_print(FILE *file, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Three digits, as no figure is repeatable to more. */
enum { PAGE_NUMBER_CHARS = 32 };
const char *page_number(double value, char text[PAGE_NUMBER_CHARS]);
/* 64 KiB; below that 100 B. */
const char *page_bytes(double bytes, char text[PAGE_NUMBER_CHARS]);

/* The style of drawings: variables for colours by name, light and dark, and what uses them. */
void page_write_drawing_style(FILE *file);

/* A whole page: begin, parts, end. */
struct page_heading {
    const char *title;
    const char *summary;
};
void page_begin(FILE *file, const struct page_heading *heading);
void page_end(FILE *file);

/* Colours that those who see few colours tell apart; indices wrap around. */
enum { PAGE_NUM_COLOURS = 6 };
