/* SPDX-License-Identifier: MIT */
#include "report/page.h"

#include <math.h>
#include <stdarg.h>
#include <string.h>

/* The bytes of the character there; 0: it is not whole, as where a text was cut, or XML has no such
 * character. */
static int character_bytes(const unsigned char *c)
{
    const int num_bytes = *c < 0x80 ? 1 : *c < 0xc2 ? 0 : *c < 0xe0 ? 2 : *c < 0xf0 ? 3 : 4;
    for (int i = 1; i < num_bytes; i++)
        if ((c[i] & 0xc0) != 0x80)
            return 0;
    if (num_bytes == 1 && *c < 0x20 && *c != '\n' && *c != '\t')
        return 0;
    if (num_bytes == 3 && c[0] == 0xef && c[1] == 0xbf && c[2] >= 0xbe)
        return 0;
    return num_bytes;
}

void page_text(FILE *file, const char *text)
{
    const unsigned char *c = (const unsigned char *)text;
    while (*c != '\0') {
        const int num_bytes = character_bytes(c);
        if (*c == '&')
            fputs("&amp;", file);
        else if (*c == '<')
            fputs("&lt;", file);
        else if (*c == '>')
            fputs("&gt;", file);
        else if (*c == '"')
            fputs("&quot;", file);
        else if (num_bytes > 0)
            fwrite(c, 1, (size_t)num_bytes, file);
        else
            fputs("\xef\xbf\xbd", file);
        c += num_bytes > 0 ? num_bytes : 1;
    }
}

void page_print(FILE *file, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    for (const char *c = format; *c != '\0'; c++) {
        if (*c != '%') {
            fputc(*c, file);
        } else if (*++c == 's') {
            page_text(file, va_arg(arguments, const char *));
        } else if (*c == 'd') {
            fprintf(file, "%d", va_arg(arguments, int));
        } else {
            fprintf(file, "%.1f", va_arg(arguments, double));
            c += strlen("1f");
        }
    }
    va_end(arguments);
}

const char *page_number(double value, char text[PAGE_NUMBER_CHARS])
{
    const double size = fabs(value);
    if (size > 0 && (size < 0.01 || size >= 1e9))
        snprintf(text, PAGE_NUMBER_CHARS, "%.2e", value);
    else
        snprintf(text, PAGE_NUMBER_CHARS, "%.*f", size >= 100 ? 0 : size >= 10 ? 1 : 2, value);
    return text;
}

const char *page_bytes(double bytes, char text[PAGE_NUMBER_CHARS])
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    int unit = 0;
    for (; unit < 4 && bytes >= 1024; unit++)
        bytes /= 1024;
    snprintf(text, PAGE_NUMBER_CHARS, "%.4g %s", bytes, units[unit]);
    return text;
}

/* The colours are those of Okabe and Ito, darker on paper and lighter on black. */
static const char drawing_style[] =
    ":root{--ink:#1c1e21;--mute:#5d646b;--grid:#dfe3e6;--paper:#fff;--other:#c3c8cd;"
    "--c0:#0064a4;--c1:#c44e00;--c2:#00805c;--c3:#a8487f;--c4:#8a6d00;--c5:#3c8fc4}"
    "@media(prefers-color-scheme:dark){:root{--ink:#e6e8ea;--mute:#a2a9b0;--grid:#34393e;"
    "--paper:#15181b;--other:#50565c;--c0:#56b4e9;--c1:#ff8c42;--c2:#2fc59a;--c3:#e08dbb;"
    "--c4:#e6c229;--c5:#9ad0f5}}"
    "@media print{:root{--ink:#000;--mute:#444;--grid:#ddd;--paper:#fff;--other:#bbb;"
    "--c0:#0064a4;--c1:#c44e00;--c2:#00805c;--c3:#a8487f;--c4:#8a6d00;--c5:#3c8fc4}}"
    "svg{font:12px system-ui,sans-serif;font-variant-numeric:tabular-nums}"
    "svg text{fill:var(--ink)}svg .m{fill:var(--mute)}svg .t{font-weight:600;font-size:13px}"
    ".e{text-anchor:end}.c{text-anchor:middle}.g{stroke:var(--grid)}.w{fill:var(--paper)}"
    ".o{fill:none;stroke:var(--other)}.l{fill:none;stroke-width:2;stroke-linejoin:round}"
    ".k0{--k:var(--c0)}.k1{--k:var(--c1)}.k2{--k:var(--c2)}.k3{--k:var(--c3)}.k4{--k:var(--c4)}"
    ".k5{--k:var(--c5)}.l,.q{stroke:var(--k)}.q{stroke-width:5;stroke-linecap:round}"
    ".f{fill:var(--k)}svg text.f{fill:var(--k)}"
    "svg text.in{fill:var(--paper)}.open{fill:none;stroke:var(--k);stroke-width:2;"
    "stroke-dasharray:4 3}.d1{stroke-dasharray:7 3}.d2{stroke-dasharray:2 3}"
    ".d3{stroke-dasharray:8 3 2 3}";

static const char page_style[] =
    ":root{color-scheme:light dark}*{box-sizing:border-box}"
    "body{margin:0 auto;max-width:1120px;padding:24px 16px;color:var(--ink);"
    "background:var(--paper);font:15px/1.5 system-ui,sans-serif}"
    "h1{font-size:26px;line-height:1.2;margin:0 0 4px}h2{font-size:20px;margin:44px 0 4px;"
    "padding-top:12px;border-top:2px solid var(--ink)}h3{font-size:16px;margin:28px 0 2px}"
    "p{margin:2px 0 10px}.n{color:var(--mute);font-size:13px;overflow-wrap:anywhere}"
    "nav{columns:20em;margin:14px 0;font-size:14px}nav a{display:block}"
    "a{color:var(--c0)}.p{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,"
    "340px),1fr));gap:14px 24px}.p svg{width:100%;max-width:540px;height:auto;display:block}"
    ".s{overflow-x:auto}table{border-collapse:collapse;font-size:13px;margin:6px 0 10px;"
    "font-variant-numeric:tabular-nums}th,td{padding:2px 9px 2px 0;text-align:right;"
    "white-space:nowrap;vertical-align:top}th{color:var(--mute);font-weight:500}"
    "thead th{border-bottom:1px solid var(--ink)}tbody tr+tr>*{border-top:1px solid var(--grid)}"
    ".a,.v{text-align:left}.v{white-space:normal;min-width:15em;overflow-wrap:anywhere}"
    "tbody th{color:var(--ink);font-weight:400}td b{font-weight:700}.x{color:var(--c1);"
    "font-weight:700}i.b{display:inline-block;width:.7em;height:.7em;margin-right:.4em;"
    "background:var(--k)}summary{cursor:pointer;color:var(--mute);font-size:13px}"
    "@media(max-width:600px){svg{font-size:13.5px}svg .t{font-size:15px}"
    "th.a{white-space:normal;min-width:7em;overflow-wrap:anywhere}}"
    "@media print{body{max-width:none;padding:0;font-size:10pt}nav{display:none}"
    "details::details-content{content-visibility:visible;display:block}"
    ".s{overflow:visible}table{font-size:7pt}th,td{padding-right:5px}"
    "h2{break-after:avoid}h3{break-after:avoid}svg,tr{break-inside:avoid}"
    ".p{grid-template-columns:1fr 1fr}}";

void page_write_drawing_style(FILE *file)
{
    fprintf(file, "<style>%s</style>\n", drawing_style);
}

void page_begin(FILE *file, const struct page_heading *heading)
{
    page_print(file,
               "<!DOCTYPE html>\n<html lang=\"en\" xmlns=\"http://www.w3.org/1999/xhtml\">\n<head>"
               "<meta charset=\"utf-8\"/>\n"
               "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n"
               "<title>%s</title>\n",
               heading->title);
    page_write_drawing_style(file);
    fprintf(file, "<style>%s</style>\n</head>\n<body>\n", page_style);
    page_print(file, "<h1>%s</h1>\n<p class=\"n\">%s</p>\n", heading->title, heading->summary);
}

void page_end(FILE *file)
{
    fputs("</body>\n</html>\n", file);
}
