/* SPDX-License-Identifier: MIT */
/* Links, and the best path between two: every type of path, on small machines whose answers are
 * plain to see. */
#include <stdio.h>

#include "harness/cmocka.h"
#include "topo/paths.h"
#include "topo_files.h"

#define SYSTEM(content) "<system version='1'>" content "</system>"
#define CPU(numa, content)                                                                         \
    "<cpu numaid='" numa                                                                           \
    "' arch='x86_64' vendor='GenuineIntel' familyid='6' modelid='143'>" content "</cpu>"
#define PCI(bus, class_text, content)                                                              \
    "<pci busid='" bus "' class='" class_text                                                      \
    "' link_speed='16.0 GT/s PCIe' link_width='16'>" content "</pci>"
#define SWITCH(bus, content) PCI(bus, "0x060400", content)
#define GPU(bus, rank, content)                                                                    \
    PCI(bus, "0x030200", "<gpu dev='" rank "' rank='" rank "' sm='90' gdr='1'>" content "</gpu>")
#define NIC(bus, dev, megabits)                                                                    \
    PCI(bus, "0x020000",                                                                           \
        "<nic><net name='n" dev "' dev='" dev "' speed='" megabits "' port='1' guid='0x" dev       \
        "' gdr='1'/></nic>")
#define NVLINK(target, count) "<nvlink target='" target "' count='" count "' tclass='0x030200'/>"
#define NVSWITCH(count)       "<nvlink target='0000:ff:00.0' count='" count "' tclass='0x068000'/>"

static struct topo *machine(const char *text)
{
    struct xml *system = topo_text_read(text);
    struct topo *topo = topo_graph(system, NULL);
    xml_remove(system);
    return topo;
}

struct end {
    enum topo_kind kind;
    int32_t index;
};

static void must_be(const struct topo *topo, struct end from, struct end to, const char *wanted)
{
    const struct topo_path *path =
        topo_path(topo_at(topo, from.kind, from.index), topo_at(topo, to.kind, to.index));
    char text[64];
    snprintf(text, sizeof text, "%s %g %d", topo_type_name(path->type), (double)path->bw,
             (int)path->num_links);
    assert_string_equal(text, wanted);
}

static struct end gpu(int32_t index)
{
    return (struct end){TOPO_GPU, index};
}
static struct end net(int32_t index)
{
    return (struct end){TOPO_NET, index};
}
static struct end cpu(int32_t index)
{
    return (struct end){TOPO_CPU, index};
}

/* ---------------------------------------------------------------- PCI */

static const char pci_machine[] = SYSTEM(
    CPU("0", SWITCH("0000:01:00.0", GPU("0000:02:00.0", "0", "") NIC("0000:03:00.0", "0", "100000")
                                        SWITCH("0000:04:00.0", GPU("0000:05:00.0", "1", "")))
                 GPU("0000:10:00.0", "2", "")) CPU("1", GPU("0000:81:00.0", "3", "")));

TEST(pci_paths_are_as_far_as_what_they_cross)
{
    struct topo *topo = machine(pci_machine);
    must_be(topo, gpu(0), gpu(0), "LOC 5000 0");
    must_be(topo, gpu(0), gpu(1), "PXB 24 3");
    must_be(topo, gpu(0), cpu(0), "PHB 24 2");
    must_be(topo, gpu(0), net(0), "PIX 12.5 3");
    must_be(topo, gpu(1), net(0), "PXB 12.5 4");
    must_be(topo, gpu(0), gpu(2), "PHB 24 3");
    must_be(topo, gpu(0), gpu(3), "SYS 22 4");
    must_be(topo, gpu(3), net(0), "SYS 12.5 5");
    assert_int_equal(topo_at(topo, TOPO_NET, 0)->net.local_gpu, 0);
    topo_free(topo);
}

/* Without access they go by way of the processor, also below the same switch. */
TEST(gpus_without_access_go_through_the_processor)
{
    struct topo *topo = machine(pci_machine);
    assert_ok(topo_compute_paths(topo, TOPO_LOC));
    must_be(topo, gpu(0), gpu(1), "PHB 24 5");
    must_be(topo, gpu(0), gpu(0), "LOC 5000 0");
    topo_free(topo);
}

TEST(generations_and_widths_are_bandwidths)
{
    static const struct {
        const char *speed;
        int32_t width;
        float bw;
    } links[] = {{"2.5 GT/s", 16, 3},
                 {"8 GT/s", 16, 12},
                 {"8.0 GT/s PCIe", 0, 12},
                 {"16.0 GT/s PCIe", 8, 12},
                 {"32.0 GT/s PCIe", 16, 48},
                 {"64.0 GT/s PCIe", 16, 96},
                 {"", 16, 12},
                 {"Unknown", 16, 12},
                 {"5 GT/s", 1, .375F}};
    for (size_t i = 0; i < sizeof links / sizeof links[0]; i++)
        assert_true(topo_pci_bw(links[i].speed, links[i].width) == links[i].bw);
}

/* ---------------------------------------------------------------- NVLink, C2C */

/* A chain of GPUs, of which the first two have a link more: one may be in between, not two. */
TEST(one_gpu_may_be_between_two)
{
    struct topo *topo = machine(SYSTEM(CPU(
        "0", GPU("0000:01:00.0", "0", NVLINK("0000:02:00.0", "2")) GPU(
                 "0000:02:00.0", "1", NVLINK("0000:01:00.0", "2") NVLINK("0000:03:00.0", "1"))
                 GPU("0000:03:00.0", "2", NVLINK("0000:02:00.0", "1") NVLINK("0000:04:00.0", "1"))
                     GPU("0000:04:00.0", "3", NVLINK("0000:03:00.0", "1")))));
    must_be(topo, gpu(0), gpu(1), "NVL 41.2 1");
    must_be(topo, gpu(0), gpu(2), "NVB 20.6 2");
    must_be(topo, gpu(0), gpu(3), "PHB 24 2");
    topo_free(topo);
}

TEST(nvswitches_are_one_node)
{
    struct topo *topo =
        machine(SYSTEM(CPU("0", GPU("0000:01:00.0", "0", NVSWITCH("4") NVSWITCH("5"))
                                    GPU("0000:02:00.0", "1", NVSWITCH("9")))));
    assert_int_equal(topo_count(topo, TOPO_NVS), 1);
    must_be(topo, gpu(0), gpu(1), "NVL 185.4 2");
    topo_free(topo);
}

TEST(c2c_and_then_pci_is_p2c)
{
    struct topo *topo =
        machine(SYSTEM(CPU("0", GPU("0000:01:00.0", "0", "<c2c bw='40000' count='10'/>")
                                    NIC("0000:02:00.0", "0", "200000"))));
    must_be(topo, gpu(0), cpu(0), "C2C 400 1");
    must_be(topo, gpu(0), net(0), "P2C 24 3");
    topo_free(topo);
}

/* GPU 1 is far from the port, and has NVLink to GPU 0, which is near. */
TEST(a_gpu_uses_the_port_of_another_by_nvlink)
{
    struct topo *topo =
        machine(SYSTEM(CPU("0", SWITCH("0000:01:00.0", GPU("0000:02:00.0", "0", NVSWITCH("18"))
                                                           NIC("0000:03:00.0", "0", "100000")))
                           CPU("1", GPU("0000:81:00.0", "1", NVSWITCH("18")))));
    must_be(topo, gpu(0), net(0), "PIX 12.5 3");
    must_be(topo, gpu(1), net(0), "PXN 12.5 5");
    topo_free(topo);
}

/* A port that does not reach memory of GPUs goes through the processor. */
TEST(ports_without_access_go_through_the_processor)
{
    struct topo *topo = machine(SYSTEM(
        CPU("0", SWITCH("0000:01:00.0",
                        GPU("0000:02:00.0", "0", "")
                            PCI("0000:03:00.0", "0x020000",
                                "<nic><net name='n' dev='0' speed='100000' gdr='0'/></nic>")))));
    must_be(topo, gpu(0), net(0), "PHB 12.5 5");
    topo_free(topo);
}

/* ---------------------------------------------------------------- ports of GPUs */

/* Two GPUs and four ports below a switch: each has two, and they begin at different ones. */
TEST(gpus_below_a_switch_share_its_ports)
{
    struct topo *topo = machine(SYSTEM(CPU(
        "0", SWITCH("0000:01:00.0",
                    GPU("0000:02:00.0", "0", "") GPU("0000:03:00.0", "1", "")
                        NIC("0000:04:00.0", "0", "100000") NIC("0000:05:00.0", "1", "100000") NIC(
                            "0000:06:00.0", "2", "100000") NIC("0000:07:00.0", "3", "100000")))));
    const struct topo_gpu *first = &topo_at(topo, TOPO_GPU, 0)->gpu;
    const struct topo_gpu *second = &topo_at(topo, TOPO_GPU, 1)->gpu;
    assert_int_equal(first->num_nets, 2);
    assert_int_equal(first->nets[0], 0);
    assert_int_equal(first->nets[1], 1);
    assert_int_equal(second->nets[0], 2);
    assert_int_equal(second->nets[1], 3);
    assert_int_equal(topo_at(topo, TOPO_NET, 3)->net.local_gpu, 1);
    topo_free(topo);
}

/* ---------------------------------------------------------------- switches in switches */

#define BROADCOM(bus, content)                                                                     \
    "<pci busid='" bus "' class='0x060400' vendor='0x1000' device='0xc010' "                       \
    "subsystem_vendor='0x1000' subsystem_device='0xa096' link_speed='16.0 GT/s PCIe' "             \
    "link_width='16'>" content "</pci>"

TEST(a_switch_that_shows_itself_as_three_is_one)
{
    struct topo *topo = machine(SYSTEM(
        CPU("0", BROADCOM("0000:01:00.0", BROADCOM("0000:02:00.0", GPU("0000:03:00.0", "0", ""))
                                              BROADCOM("0000:04:00.0", GPU("0000:05:00.0", "1", ""))
                                                  GPU("0000:06:00.0", "2", "")))));
    assert_int_equal(topo_count(topo, TOPO_PCI), 1);
    must_be(topo, gpu(0), gpu(1), "PIX 24 2");
    must_be(topo, gpu(0), gpu(2), "PIX 24 2");
    must_be(topo, gpu(0), cpu(0), "PHB 24 2");
    topo_free(topo);
}

TEST(switches_may_have_a_link_of_their_own)
{
    struct topo *topo = machine(SYSTEM(
        CPU("0",
            SWITCH("0000:01:00.0", GPU("0000:02:00.0", "0", "") "<pcilink target='0000:11:00.0'/>"))
            CPU("1", SWITCH("0000:11:00.0",
                            GPU("0000:12:00.0", "1", "") "<pcilink target='0000:01:00.0'/>"))));
    must_be(topo, gpu(0), gpu(1), "PXB 24 3");
    topo_free(topo);
}

/* ---------------------------------------------------------------- what is refused */

TEST(errors_of_the_graph_say_line_and_element)
{
    static const struct {
        const char *text, *message;
    } refusals[] = {
        {SYSTEM(""), "text:1: element system: has no element cpu"},
        {SYSTEM("\n<cpu/>"), "text:2: element cpu: attribute numaid is missing"},
        {SYSTEM("<cpu numaid='x'/>"), "numaid is \"x\", allowed are numbers of -1.."},
        {SYSTEM("<cpu numaid='0'/>\n<cpu numaid='0'/>"),
         "text:2: element cpu: numaid 0 is another's"},
        {SYSTEM("<cpu numaid='0' arch='x86_64' vendor='GenuineIntel'/>"),
         "element cpu: attribute familyid is missing"},
        {SYSTEM("<cpu numaid='0' host_hash='0xg'/>"),
         "host_hash is \"0xg\", allowed are hexadecimal"},
        {SYSTEM(CPU("0", "\n<pci/>")), "text:2: element pci: busid is \"\", which is no bus id"},
        {SYSTEM(CPU("0", "<pci busid='0000:zz:00.0'/>")), "busid is \"0000:zz:00.0\""},
        {SYSTEM(CPU("0", "<pci busid='1' link_width='x'/>")), "link_width is \"x\""},
        {SYSTEM(CPU("0", PCI("1", "0x03", "\n<gpu rank='0' dev='0' gdr='1'/>"))),
         "text:2: element gpu: attribute sm is missing"},
        {SYSTEM(CPU("0", GPU("1", "0", "") "\n" GPU("2", "0", ""))),
         "text:2: element gpu: rank 0 is another GPU's"},
        {SYSTEM(CPU("0", GPU("1", "0", "") GPU("1", "1", ""))), "has the bus id of another GPU"},
        {SYSTEM(CPU("0", PCI("1", "0x03", "<gpu/><gpu/>"))), "is the second of a device"},
        {SYSTEM(CPU("0", GPU("1", "0", "\n<nvlink target='2'/>"))),
         "text:2: element nvlink: attribute count is missing"},
        {SYSTEM(CPU("0", GPU("1", "0", "<nvlink count='1' target='2'/>"))),
         "element nvlink: attribute tclass is missing"},
        {SYSTEM(CPU("0", GPU("1", "0", "<c2c count='1'/>"))),
         "element c2c: attribute bw is missing"},
        {SYSTEM(CPU("0", PCI("1", "0x02", "<nic>\n<net dev='x'/></nic>"))),
         "text:2: element net: dev is \"x\""},
        {SYSTEM(CPU("0", PCI("1", "0x02", "<nic><net dev='0' latency='-1'/></nic>"))),
         "latency is \"-1\", allowed are numbers of at least 0"},
    };
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
        const struct topo_constants *constants;
        struct topo *topo = NULL;
        struct xml *system = topo_text_read(refusals[i].text);
        assert_ok(topo_constants_of(NULL, &constants));
        assert_error(topo_build(system, constants, &topo), WEFT_ERROR_INVALID_ARGUMENT,
                     refusals[i].message);
        assert_null(topo);
        xml_remove(system);
    }
}

/* GPU 0 says that it has a link to GPU 1, which knows of none. */
TEST(a_link_of_one_way_is_an_error)
{
    const struct topo_constants *constants;
    struct topo *topo = NULL;
    struct xml *system =
        topo_text_read(SYSTEM(CPU("0", GPU("1", "0", NVLINK("2", "1")) GPU("2", "1", ""))));
    assert_ok(topo_constants_of("2.27.3", &constants));
    assert_ok(topo_build(system, constants, &topo));
    assert_error(topo_compute_paths(topo, TOPO_P2P_AUTO), WEFT_ERROR_INVALID_ARGUMENT,
                 "which has none back");
    topo_free(topo);
    xml_remove(system);
}

TEST(versions_have_their_constants)
{
    const struct topo_constants *constants;
    assert_ok(topo_constants_of("2.27.3", &constants));
    assert_true(topo_nvlink_bw(constants, 100) == 40.0F);
    assert_ok(topo_constants_of("2.28.9", &constants));
    assert_true(topo_nvlink_bw(constants, 100) == 40.1F);
    assert_string_equal(constants->nccl_version, "2.27.5");
    assert_ok(topo_constants_of("3", &constants));
    assert_int_equal(constants->dialect, TOPO_DIALECT_RANKS);
    assert_error(topo_constants_of("two", &constants), WEFT_ERROR_INVALID_ARGUMENT,
                 "\"two\" is no version of NCCL");
    assert_int_equal(topo_constants_of("2.27.3.1", &constants), WEFT_ERROR_INVALID_ARGUMENT);
    assert_error(topo_constants_of("2.27", &constants), WEFT_ERROR_INVALID_ARGUMENT,
                 "NCCL 2.27 is older than 2.27.3");
}
