/* SPDX-License-Identifier: MIT */
/* Machines that are found in a file system, which is made for the test, and partial files that are
 * completed by it. */
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "comm/host/error.h"
#include "harness/cmocka.h"
#include "net/ports.h"
#include "topo/complete.h"
#include "topo_files.h"

/* ---------------------------------------------------------------- a file system */

enum { PATH_CHARS = 512 };

static char root[] = "/tmp/weft-sysfs-XXXXXX";
static char sys_path[64], proc_path[64];
static struct weft__sysfs sysfs = {sys_path, proc_path};

/* With all folders above it. */
static void make_folder(const char *path)
{
    char part[PATH_CHARS];
    for (const char *slash = strchr(path + 1, '/');; slash = strchr(slash + 1, '/')) {
        const int length = slash != NULL ? (int)(slash - path) : (int)strlen(path);
        snprintf(part, sizeof part, "%.*s", length, path);
        if (mkdir(part, 0700) != 0 && errno != EEXIST)
            fail_msg("cannot make %s", part);
        if (slash == NULL)
            return;
    }
}

static void put(const char *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void put(const char *text, const char *format, ...)
{
    char path[PATH_CHARS], folder[PATH_CHARS];
    va_list arguments;
    int length = snprintf(path, sizeof path, "%s/", root);
    va_start(arguments, format);
    vsnprintf(path + length, sizeof path - (size_t)length, format, arguments);
    va_end(arguments);
    snprintf(folder, sizeof folder, "%.*s", (int)(strrchr(path, '/') - path), path);
    make_folder(folder);
    FILE *file = fopen(path, "we");
    assert_non_null(file);
    fprintf(file, "%s\n", text);
    fclose(file);
}

struct device {
    const char *path; /* below sys/devices */
    const char *class_text, *speed, *width, *numa;
};

static void put_device(const struct device *device)
{
    const char *bus_id = strrchr(device->path, '/') + 1;
    char link[PATH_CHARS], target[PATH_CHARS];
    put(device->class_text, "sys/devices/%s/class", device->path);
    put("0x10de", "sys/devices/%s/vendor", device->path);
    put("0x2335", "sys/devices/%s/device", device->path);
    put(device->speed, "sys/devices/%s/max_link_speed", device->path);
    put(device->width, "sys/devices/%s/max_link_width", device->path);
    put(device->numa, "sys/devices/%s/numa_node", device->path);
    snprintf(link, sizeof link, "%s/bus/pci/devices/%s", sys_path, bus_id);
    snprintf(target, sizeof target, "%s/devices/%s", sys_path, device->path);
    assert_int_equal(symlink(target, link), 0);
}

#define PORT   "pci0000:00/0000:00:01.0"
#define SWITCH PORT "/0000:01:00.0"

static const struct device devices[] = {
    {PORT, "0x060400", "32.0 GT/s PCIe", "16", "0"},
    {SWITCH, "0x060400", "32.0 GT/s PCIe", "16", "0"},
    {SWITCH "/0000:02:00.0", "0x060400", "16.0 GT/s PCIe", "16", "0"},
    {SWITCH "/0000:02:00.0/0000:03:00.0", "0x030200", "32.0 GT/s PCIe", "16", "0"},
    {SWITCH "/0000:02:01.0", "0x060400", "32.0 GT/s PCIe", "8", "0"},
    {SWITCH "/0000:02:01.0/0000:04:00.0", "0x020700", "32.0 GT/s PCIe", "16", "0"},
    {"pci0000:80/0000:80:01.0", "0x060400", "32.0 GT/s PCIe", "16", "1"},
    {"pci0000:80/0000:80:01.0/0000:81:00.0", "0x030200", "32.0 GT/s PCIe", "16", "1"},
    {"pci0000:80/0000:80:02.0", "0x060400", "32.0 GT/s PCIe", "16", "1"},
    {"pci0000:80/0000:80:02.0/0000:c5:00.0", "0x068000", "32.0 GT/s PCIe", "16", "1"},
};

static void put_port(const char *name, const char *state, const char *device)
{
    char link[PATH_CHARS], target[PATH_CHARS];
    put(state, "sys/class/infiniband/%s/ports/1/state", name);
    put("400 Gb/sec (4X NDR)", "sys/class/infiniband/%s/ports/1/rate", name);
    put("b83f:d203:00ab:0001", "sys/class/infiniband/%s/sys_image_guid", name);
    snprintf(link, sizeof link, "%s/class/infiniband/%s/device", sys_path, name);
    snprintf(target, sizeof target, "%s/devices/%s", sys_path, device);
    assert_int_equal(symlink(target, link), 0);
}

static int make_system(void **state)
{
    (void)state;
    assert_non_null(mkdtemp(root));
    snprintf(sys_path, sizeof sys_path, "%s/sys", root);
    snprintf(proc_path, sizeof proc_path, "%s/proc", root);
    put("", "sys/bus/pci/devices/nothing");
    for (size_t i = 0; i < sizeof devices / sizeof devices[0]; i++)
        put_device(&devices[i]);
    put_port("mlx5_0", "4: ACTIVE", SWITCH "/0000:02:01.0/0000:04:00.0");
    put_port("mlx5_1", "1: DOWN", SWITCH "/0000:02:01.0/0000:04:00.0");
    put("", "sys/module/nvidia_peermem/refcnt");
    put("00000000,ffffffff", "sys/devices/system/node/node0/cpumap");
    put("ffffffff,00000000", "sys/devices/system/node/node1/cpumap");
    put("processor\t: 0\nvendor_id\t: AuthenticAMD\ncpu family\t: 25\nmodel\t\t: 1\n"
        "model name\t: AMD EPYC",
        "proc/cpuinfo");
    put("host", "proc/sys/kernel/hostname");
    put("a-b-c", "proc/sys/kernel/random/boot_id");
    return 0;
}

static int remove_system(void **state)
{
    char command[PATH_CHARS];
    (void)state;
    snprintf(command, sizeof command, "rm -rf '%s'", root);
    return system(command); /* NOLINT: a path of ours */
}

/* ---------------------------------------------------------------- detection */

static const struct topo_gpu_facts gpus[] = {
    {.bus_id = "0000:81:00.0",
     .dev = 1,
     .rank = 1,
     .sm = 90,
     .has_gdr = 1,
     .num_nvlinks = 2,
     .nvlinks = {{"0000:c5:00.0", "", 10}, {"", "", 8}}},
    {.bus_id = "0000:03:00.0",
     .dev = 0,
     .rank = 0,
     .sm = 90,
     .has_gdr = 1,
     .num_nvlinks = 1,
     .nvlinks = {{"0000:c5:00.0", "", 18}},
     .num_c2c = 10,
     .c2c_megabytes = 40000},
};

/* What is wanted, with HASH for the hash of the host. */
static void must_be(const struct xml *system, const char *wanted)
{
    char hash[32], text[8192] = "", *found = topo_print(system);
    size_t length = 0;
    snprintf(hash, sizeof hash, "%#" PRIx64, topo_host_hash(&sysfs));
    for (const char *at = found; *at != '\0'; length++) {
        if (strncmp(at, hash, strlen(hash)) == 0) {
            length += (size_t)snprintf(text + length, sizeof text - length, "HASH") - 1;
            at += strlen(hash);
        } else {
            text[length] = *at++;
        }
    }
    assert_string_equal(text, wanted);
    free(found);
}

#define PCI_VALUES "vendor=\"0x10de\" device=\"0x2335\""
#define CPU_VALUES "arch=\"x86_64\" vendor=\"AuthenticAMD\" familyid=\"175\" modelid=\"1\""

#if defined(__x86_64__)
/* GPU 0 is behind a switch, and its port is slower than itself; GPU 1 is not. The processors are in
 * the order of the facts. */
TEST(a_machine_is_found_by_what_the_system_shows)
{
    struct xml *system = NULL;
    assert_ok(topo_detect(NULL, gpus, 2, &sysfs, &system));
    must_be(
        system,
        "<system version=\"1\">\n"
        "  <cpu host_hash=\"HASH\" numaid=\"1\" affinity=\"ffffffff,00000000\" " CPU_VALUES ">\n"
        "    <pci busid=\"0000:81:00.0\" class=\"0x030200\" " PCI_VALUES
        " link_speed=\"32.0 GT/s PCIe\" link_width=\"16\">\n"
        "      <gpu dev=\"1\" sm=\"90\" rank=\"1\" gdr=\"1\">\n"
        "        <nvlink target=\"0000:c5:00.0\" count=\"10\" tclass=\"0x068000\"/>\n"
        "        <nvlink target=\"fffffff:ffff:ff\" count=\"8\" tclass=\"0x068000\"/>\n"
        "      </gpu>\n"
        "    </pci>\n"
        "  </cpu>\n"
        "  <cpu host_hash=\"HASH\" numaid=\"0\" affinity=\"00000000,ffffffff\" " CPU_VALUES ">\n"
        "    <pci busid=\"0000:01:00.0\" class=\"0x060400\" " PCI_VALUES
        " link_speed=\"32.0 GT/s PCIe\" link_width=\"16\">\n"
        "      <pci busid=\"0000:03:00.0\" class=\"0x030200\" " PCI_VALUES
        " link_speed=\"16.0 GT/s PCIe\" link_width=\"16\">\n"
        "        <gpu dev=\"0\" sm=\"90\" rank=\"0\" gdr=\"1\">\n"
        "          <nvlink target=\"0000:c5:00.0\" count=\"18\" tclass=\"0x068000\"/>\n"
        "          <c2c bw=\"40000\" count=\"10\"/>\n"
        "        </gpu>\n"
        "      </pci>\n"
        "      <pci busid=\"0000:04:00.0\" class=\"0x020700\" " PCI_VALUES
        " link_speed=\"32.0 GT/s PCIe\" link_width=\"8\">\n"
        "        <nic>\n"
        "          <net name=\"mlx5_0\" dev=\"0\" latency=\"0\" speed=\"400000\" port=\"1\" "
        "guid=\"0xb83fd20300ab0001\" maxconn=\"131072\" gdr=\"1\"/>\n"
        "        </nic>\n"
        "      </pci>\n"
        "    </pci>\n"
        "  </cpu>\n"
        "</system>\n");
    topo_free(topo_graph(system, NULL));
    xml_remove(system);
}
#endif

TEST(a_machine_without_gpus_and_ports_has_processors)
{
    struct xml *system = NULL;
    const struct weft__sysfs elsewhere = {"/nonexistent", proc_path};
    assert_ok(topo_detect(NULL, NULL, 0, &elsewhere, &system));
    assert_int_equal(system->num_children, 1);
    assert_string_equal(xml_text(system->children[0], "vendor"), "AuthenticAMD");
    xml_remove(system);
}

/* Where the system shows no device: below a processor of number -1, with what is known. */
TEST(what_the_system_does_not_show_is_below_an_unknown_processor)
{
    const struct topo_facts facts = {gpus, 1, NULL, 0};
    struct xml *system = topo_text_read("<system version='1'/>");
    assert_ok(topo_complete(system, &facts, NULL));
    must_be(system,
            "<system version=\"1\">\n"
            "  <cpu numaid=\"-1\">\n"
            "    <pci busid=\"0000:81:00.0\" class=\"0x03\" link_speed=\"\" link_width=\"\">\n"
            "      <gpu dev=\"1\" sm=\"90\" rank=\"1\" gdr=\"1\">\n"
            "        <nvlink target=\"0000:c5:00.0\" count=\"10\" tclass=\"0x068000\"/>\n"
            "        <nvlink target=\"fffffff:ffff:ff\" count=\"8\" tclass=\"0x068000\"/>\n"
            "      </gpu>\n"
            "    </pci>\n"
            "  </cpu>\n"
            "</system>\n");
    xml_remove(system);
}

/* ---------------------------------------------------------------- partial files */

static const char partial[] =
    "<system version='1'>"
    "<cpu numaid='0' arch='x86_64' vendor='GenuineIntel' familyid='6' modelid='143'>"
    "<pci busid='ffff:ff:01.0' class='0x060400' link_speed='32.0 GT/s PCIe' link_width='16'>"
    "<pci busid='0000:03:00.0' class='0x030200' link_speed='8.0 GT/s PCIe' link_width='4'/>"
    "<pci busid='0000:99:00.0' class='0x030200' link_speed='8.0 GT/s PCIe' link_width='4'/>"
    "</pci></cpu>"
    "<cpu numaid='7'><pci busid='ffff:ff:02.0' class='0x060400'/></cpu></system>";

/* The file puts GPU 0 behind a switch of its own, on a slower link than the system would say. */
TEST(what_the_file_says_counts_more_and_unused_branches_go)
{
    const struct topo_facts facts = {&gpus[1], 1, NULL, 0};
    struct xml *system = topo_text_read(partial);
    assert_ok(topo_complete(system, &facts, &sysfs));
    assert_int_equal(system->num_children, 1);
    const struct xml *above = system->children[0]->children[0];
    assert_string_equal(xml_text(system->children[0], "vendor"), "GenuineIntel");
    assert_string_equal(xml_text(above, "busid"), "ffff:ff:01.0");
    assert_int_equal(above->num_children, 1);
    assert_string_equal(xml_text(above->children[0], "link_width"), "4");
    assert_string_equal(xml_text(above->children[0]->children[0], "rank"), "0");
    xml_remove(system);
}

TEST(all_partial_files_have_no_gpu_alone_and_all_of_theirs_when_completed)
{
    static const struct {
        struct topo_machine machine;
        int num_gpus, num_nets;
    } cases[] = {{{"azure-ndv5.partial.topo.xml", TOPO_ORDER_OF_FILE, 90, 18, 400000}, 8, 8},
                 {{"azure-ndv4.partial.topo.xml", TOPO_ORDER_OF_BUS_IDS, 80, 12, 200000}, 8, 8},
                 {{"azure-ndv2.partial.topo.xml", TOPO_ORDER_OF_FILE, 70, 6, 100000}, 8, 1},
                 {{"aws-p4d-24xl.partial.topo.xml", TOPO_ORDER_OF_FILE, 80, 12, 100000}, 8, 4},
                 {{"aws-g5-48xl.partial.topo.xml", TOPO_ORDER_OF_FILE, 86, 0, 0}, 0, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct xml *alone = topo_file_read(cases[i].machine.file);
        struct topo *topo = topo_graph(alone, NULL);
        assert_int_equal(topo_count(topo, TOPO_GPU), 0);
        topo_free(topo);
        xml_remove(alone);
        if (cases[i].num_gpus == 0)
            continue;
        struct xml *completed = topo_completed(&cases[i].machine);
        topo = topo_graph(completed, NULL);
        assert_int_equal(topo_count(topo, TOPO_GPU), cases[i].num_gpus);
        assert_int_equal(topo_count(topo, TOPO_NET), cases[i].num_nets);
        topo_free(topo);
        xml_remove(completed);
    }
}

/* Only bus ids are in this file: the rest comes from elsewhere. */
TEST(a_file_of_bus_ids_is_completed)
{
    static const struct topo_gpu_facts a10g[] = {
        {.bus_id = "0000:00:16.0", .dev = 0, .rank = 0, .sm = 86},
        {.bus_id = "0000:00:1D.0", .dev = 1, .rank = 1, .sm = 86}};
    const struct topo_facts facts = {a10g, 2, NULL, 0};
    struct xml *system = topo_file_read("aws-g5-48xl.partial.topo.xml");
    assert_ok(topo_complete(system, &facts, &sysfs));
    struct topo *topo = topo_graph(system, NULL);
    assert_int_equal(topo_count(topo, TOPO_GPU), 2);
    assert_int_equal(topo_count(topo, TOPO_CPU), 2);
    topo_free(topo);
    xml_remove(system);
}

/* What has been completed is not changed by completing it again. */
TEST(to_complete_twice_changes_nothing)
{
    struct weft__net_port nets[4];
    const struct topo_facts facts = {gpus, 2, nets, weft__net_find_ports(&sysfs, nets, 4)};
    struct xml *system = topo_text_read(partial);
    assert_int_equal(facts.num_nets, 1);
    char transport[64];
    snprintf(transport, sizeof transport, "rc_mlx5/%s:1", nets[0].name);
    assert_true(weft__net_port_gbps(transport, &sysfs) == 50);
    snprintf(transport, sizeof transport, "tcp/%s0; tcp/eth0", nets[0].name);
    assert_true(weft__net_port_gbps(transport, &sysfs) == 0);
    assert_ok(topo_complete(system, &facts, &sysfs));
    char *once = topo_print(system);
    assert_ok(topo_complete(system, &facts, &sysfs));
    char *twice = topo_print(system);
    assert_string_equal(once, twice);
    free(once);
    free(twice);
    xml_remove(system);
}

int main(void)
{
    return tests_run(make_system, remove_system);
}
