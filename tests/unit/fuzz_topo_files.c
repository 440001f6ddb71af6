/* SPDX-License-Identifier: MIT */
/* fuzz_topo_files [SEED [ITERATIONS]]: files of topologies, spoiled at random, and small machines
 * drawn at random. Each mistake is an error that says where; what is read is written and read the
 * same; channels that are found visit every GPU once. A crash or a failure tells seed and
 * iteration, which bring it back. */
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "comm/host/error.h"
#include "comm/host/log.h"
#include "harness/cmocka.h"
#include "topo/channels_file.h"
#include "topo/paths.h"
#include "topo_files.h"
#include "workload/rng.h"

enum { MAX_TEXT = 1 << 16, NUM_FILES = 10, FEW_GPUS = 4, RARELY = 4096 };

static const char *const file_names[NUM_FILES] = {
    "vastai-hgx-h200-8x.topo.xml",   "azure-ncv4.topo.xml",
    "perlmutter-a100-4x.topo.xml",   "vastai-hgx-b200-8x.topo.xml",
    "azure-ncv4-selflinks.topo.xml", "aws-g5-48xl.partial.topo.xml",
    "aws-p4d-24xl.partial.topo.xml", "azure-ndv2.partial.topo.xml",
    "azure-ndv4.partial.topo.xml",   "azure-ndv5.partial.topo.xml"};
static char *files[NUM_FILES];

static uint64_t seed;
static int64_t iteration;

static char position[96]; /* what a crash tells: a signal's handler may not make it */

static void tell_crash(int signal_number)
{
    (void)!write(STDERR_FILENO, position, sizeof position);
    signal(signal_number, SIG_DFL);
    raise(signal_number);
}

static void give_up(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));
static void give_up(const char *format, ...)
{
    va_list arguments;
    fprintf(stderr, "seed %" PRIu64 ", iteration %" PRId64 ": ", seed, iteration);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fprintf(stderr, "\n");
    exit(EXIT_FAILURE);
}

/* ---------------------------------------------------------------- spoiled text */

static void replace(char *text, size_t at, size_t length, const char *with)
{
    const size_t total = strlen(text), added = strlen(with);
    if (total - length + added >= MAX_TEXT)
        return;
    memmove(text + at + added, text + at + length, total - at - length + 1);
    for (size_t i = 0; i < added; i++)
        text[at + i] = with[i];
}

static const char *pick(struct rng *rng, const char *const *list, size_t count)
{
    return list[rng_below(rng, (uint32_t)count)];
}
#define PICK(rng, ...)                                                                             \
    pick(rng, (const char *const[]){__VA_ARGS__},                                                  \
         sizeof((const char *const[]){__VA_ARGS__}) / sizeof(const char *))

/* Another value of an attribute. */
static void spoil_value(char *text, size_t at, struct rng *rng)
{
    const char *quote = strchr(text + at, '"');
    const char *end = quote != NULL ? strchr(quote + 1, '"') : NULL;
    if (end != NULL)
        replace(text, (size_t)(quote + 1 - text), (size_t)(end - quote - 1),
                PICK(rng, "", "0", "1", "-1", "2", "7", "64", "99999999999", "0x068000", "0x030200",
                     "0x060400", "0000:01:00.0", "0000:83:00.0", "NVL", "x", "0xffffffffffffffff",
                     "1e30", "&amp;", "100000", "16.0 GT/s PCIe"));
}

static void spoil_once(char *text, struct rng *rng)
{
    const size_t length = strlen(text);
    const size_t at = length > 0 ? rng_below(rng, (uint32_t)length) : 0;
    const size_t rest = length - at;
    const size_t part = rest > 0 ? rng_below(rng, rest < 200 ? (uint32_t)rest : 200) : 0;
    char copy[256];
    switch (rng_below(rng, 7)) {
    case 0:
        if (length > 0)
            text[at] = (char)(1 + rng_below(rng, 255));
        break;
    case 1:
        replace(text, at, part, "");
        break;
    case 2: /* again somewhere else */
        snprintf(copy, sizeof copy, "%.*s", (int)part, text + at);
        replace(text, length > 0 ? rng_below(rng, (uint32_t)length) : 0, 0, copy);
        break;
    case 3:
        replace(text, at, 0,
                PICK(rng, "<pci>", "</pci>", "<gpu rank='0'/>", "<!--", "-->", "<cpu numaid='9'/>",
                     "\"", "<nic><net dev='1'/></nic>", "&#0;", "<?x?>", "<!DOCTYPE a>", "<a/>",
                     "<channel/>", "<net dev='0'/>"));
        break;
    default:
        spoil_value(text, at, rng);
    }
}

/* ---------------------------------------------------------------- drawn machines */

struct drawing {
    char *text;
    size_t length;
    struct rng *rng;
    int num_devices, num_gpus, num_nets;
};

static void add(struct drawing *drawing, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static void add(struct drawing *drawing, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    const size_t room = MAX_TEXT - drawing->length;
    const int length = vsnprintf(drawing->text + drawing->length, room, format, arguments);
    va_end(arguments);
    if ((size_t)length < room)
        drawing->length += (size_t)length;
}

static void draw_gpu(struct drawing *drawing)
{
    struct rng *rng = drawing->rng;
    const int gpu = drawing->num_gpus++;
    add(drawing, "<gpu dev=\"%d\" rank=\"%d\" sm=\"%s\" gdr=\"%u\">", gpu, gpu,
        PICK(rng, "60", "70", "80", "86", "90", "100"), rng_below(rng, 2));
    for (uint32_t i = rng_below(rng, 3); i > 0; i--)
        add(drawing, "<nvlink count=\"%u\" tclass=\"%s\" target=\"0000:%02x:00.0\"/>",
            rng_below(rng, 12), PICK(rng, "0x068000", "0x068000", "0x030200", "0x068001"),
            1 + rng_below(rng, 12));
    if (rng_below(rng, 8) == 0)
        add(drawing, "<c2c bw=\"40000\" count=\"4\"/>");
    add(drawing, "</gpu>");
}

static void draw_nic(struct drawing *drawing)
{
    struct rng *rng = drawing->rng;
    add(drawing, "<nic>");
    for (uint32_t i = 1 + rng_below(rng, 2); i > 0; i--)
        add(drawing, "<net dev=\"%d\" speed=\"%s\" port=\"%u\" guid=\"0x%x\" gdr=\"%u\"/>",
            drawing->num_nets++, PICK(rng, "100000", "200000", "400000", "-1"), rng_below(rng, 2),
            rng_below(rng, 4), rng_below(rng, 2));
    add(drawing, "</nic>");
}

static void draw_pci(struct drawing *drawing, int depth)
{
    struct rng *rng = drawing->rng;
    const uint32_t what = rng_below(rng, 8);
    const int is_switch = what < 3 && depth < 4;
    add(drawing,
        "<pci busid=\"0000:%02x:00.0\" class=\"%s\" %s link_speed=\"%s\" link_width=\"%s\">",
        ++drawing->num_devices, is_switch ? "0x060400" : "0x030200",
        rng_below(rng, 4) == 0 ? "vendor=\"0x1000\" device=\"0xc010\" subsystem_vendor=\"0x1000\" "
                                 "subsystem_device=\"0xa000\""
                               : "",
        PICK(rng, "8.0 GT/s PCIe", "16.0 GT/s PCIe", "32.0 GT/s PCIe", ""),
        PICK(rng, "16", "8", "0"));
    if (is_switch)
        for (uint32_t i = rng_below(rng, 4); i > 0; i--)
            draw_pci(drawing, depth + 1);
    else if (what < 6 && drawing->num_gpus < FEW_GPUS)
        draw_gpu(drawing);
    else
        draw_nic(drawing);
    add(drawing, "</pci>");
}

static void draw_machine(char *text, struct rng *rng)
{
    struct drawing drawing = {.text = text, .rng = rng};
    const uint32_t num_cpus = 1 + rng_below(rng, 3);
    add(&drawing, "<system version=\"1\">\n");
    for (uint32_t cpu = 0; cpu < num_cpus; cpu++) {
        add(&drawing,
            "<cpu numaid=\"%u\" arch=\"x86_64\" vendor=\"%s\" familyid=\"6\" modelid=\"143\">", cpu,
            PICK(rng, "GenuineIntel", "AuthenticAMD"));
        for (uint32_t i = rng_below(rng, 4); i > 0; i--)
            draw_pci(&drawing, 0);
        add(&drawing, "</cpu>\n");
    }
    add(&drawing, "</system>\n");
}

/* ---------------------------------------------------------------- what must hold */

/* An error of a file says where, or which link has no way back. */
static void must_say_where(void)
{
    const char *message = weft__last_error();
    if (strncmp(message, "fuzz:", 5) == 0 && strstr(message, "element") != NULL)
        return;
    if (strstr(message, "which has none back") == NULL)
        give_up("\"%s\" does not say where", message);
}

static void must_visit_all(const struct topo *topo, const struct channels *channels)
{
    for (int c = 0; c < channels->num_channels; c++)
        for (int32_t g = 0; g < channels->num_gpus; g++) {
            const int32_t rank = topo_at(topo, TOPO_GPU, g)->gpu.rank;
            int count = 0;
            for (int32_t i = 0; i < channels->num_gpus; i++)
                count += channels->channel[c].ranks[i] == rank;
            if (count != 1)
                give_up("channel %d has rank %d %d times", c, (int)rank, count);
        }
}

static char *print(const struct xml *root)
{
    char *text;
    size_t num_bytes;
    if (xml_print(root, &text, &num_bytes) != WEFT_OK)
        give_up("%s", weft__last_error());
    return text;
}

static void must_read_as_written(const struct xml *root)
{
    struct xml *again = NULL;
    char *text = print(root);
    if (topo_parse("fuzz", text, strlen(text), &again) != WEFT_OK)
        give_up("what was written is refused: %s", weft__last_error());
    char *twice = print(again);
    if (strcmp(text, twice) != 0)
        give_up("%s\nwas written as\n%s", text, twice);
    xml_remove(again);
    free(text);
    free(twice);
}

static void search(struct topo *topo, enum topo_reach reach)
{
    struct channel_sets sets = {{NULL}};
    struct xml *graphs = NULL;
    if (search_all(topo, reach, &sets) != WEFT_OK ||
        channels_to_xml(topo, &sets, reach, &graphs) != WEFT_OK)
        give_up("%s", weft__last_error());
    must_visit_all(topo, sets.of[CHANNELS_RING]);
    must_visit_all(topo, sets.of[CHANNELS_TREE]);
    channel_sets_free(&sets);
    xml_remove(graphs);
}

static void try_topology(const char *text, struct rng *rng)
{
    const struct topo_constants *constants;
    struct xml *system = NULL;
    struct topo *topo = NULL;
    (void)topo_constants_of(NULL, &constants);
    weft_result result = topo_parse("fuzz", text, strlen(text), &system);
    if (result == WEFT_OK) {
        must_read_as_written(system);
        result = topo_build(system, constants, &topo);
    }
    if (result == WEFT_OK)
        result = topo_compute_paths(topo, TOPO_P2P_AUTO);
    if (result != WEFT_OK) {
        must_say_where();
    } else if (topo_count(topo, TOPO_GPU) > 0 &&
               (topo_count(topo, TOPO_GPU) <= FEW_GPUS ? rng_below(rng, 16) == 0
                                                       : rng_below(rng, RARELY) == 0)) {
        search(topo, TOPO_ONE_NODE);
        search(topo, TOPO_SEVERAL_NODES);
    }
    topo_free(topo);
    xml_remove(system);
}

/* ---------------------------------------------------------------- the whole */

static void try_once(char *text)
{
    struct rng rng = {rng_key(seed, (uint64_t)iteration)};
    snprintf(position, sizeof position, "crash: seed %" PRIu64 ", iteration %" PRId64 "\n", seed,
             iteration);
    const uint32_t which = rng_below(&rng, 2 * NUM_FILES);
    uint32_t num_spoiled = rng_below(&rng, 6);
    if (which < NUM_FILES) {
        snprintf(text, MAX_TEXT, "%s", files[which]);
    } else {
        draw_machine(text, &rng);
        num_spoiled = rng_below(&rng, 4) == 0;
    }
    while (num_spoiled-- > 0)
        spoil_once(text, &rng);
    try_topology(text, &rng);
}

static void set_up(void)
{
    for (int i = 0; i < NUM_FILES; i++) {
        size_t num_bytes;
        files[i] = topo_file_bytes(file_names[i], &num_bytes);
    }
    setenv("WEFT_LOG", "error", 1); /* links to itself are a warning */
    weft__log_configure();
    signal(SIGSEGV, tell_crash);
    signal(SIGABRT, tell_crash);
    signal(SIGFPE, tell_crash);
}

static void tear_down(void)
{
    for (int i = 0; i < NUM_FILES; i++)
        free(files[i]);
}

int main(int argc, char **argv)
{
    const int64_t count = argc > 2 ? strtoll(argv[2], NULL, 0) : 2000;
    char *text = malloc(MAX_TEXT);
    seed = argc > 1 ? strtoull(argv[1], NULL, 0) : 1;
    set_up();
    if (argc > 3) { /* one iteration alone */
        iteration = strtoll(argv[3], NULL, 0);
        try_once(text);
    } else {
        for (iteration = 0; iteration < count; iteration++)
            try_once(text);
    }
    printf("%" PRId64 " files: seed %" PRIu64 "\n", iteration, seed);
    tear_down();
    free(text);
    return EXIT_SUCCESS;
}
