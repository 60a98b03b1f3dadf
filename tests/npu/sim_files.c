/* sim_files.c - the files of a machine with the simulated NPU: device node, PCI device, module,
 * kernel release. A table, searched by canonical path. Directories that the table names are shown
 * with the table's entries alone, whatever the real machine has there.
 */
#include "sim_amdxdna.h"

#define PCI "/sys/devices/pci0000:00/0000:00:08.2/0000:c4:00.1"
#define ADDRESS "0000:c4:00.1"

static sim_node nodes[96];
static unsigned n_nodes;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void add(const char *path, char kind, const char *text)
{
    sim_node *node = &nodes[n_nodes++];
    snprintf(node->path, sizeof node->path, "%s", path);
    snprintf(node->text, sizeof node->text, "%s", text);
    node->kind = kind;
}

/* Releases as distributions name them. */
const char *sim_files_release(void)
{
    static const struct { int kernel; const char *release; } releases[] = {
        { 616, "6.16.12-amd64" }, { 617, "6.17.13-amd64" }, { 618, "6.18.15-amd64" },
        { 619, "6.19.14-amd64" }, { 700, "7.0.13-amd64" }, { 701, "7.1.13-amd64" },
        { 702, "7.2.13-amd64" }, { 703, "7.3.4-amd64" }, { SIM_LEGACY, "6.11.0-26-generic" } };
    for (size_t i = 0; i < sizeof releases / sizeof *releases; i++) {
        if (releases[i].kernel == sim.kernel) {
            return releases[i].release;
        }
    }
    return "7.2.13-amd64";
}

static void add_pci(void)
{
    int npu1 = sim.device == SIM_NPU1;
    add("/sys/devices", 'd', "");
    add("/sys/devices/pci0000:00", 'd', "");
    add("/sys/devices/pci0000:00/0000:00:08.2", 'd', "");
    add(PCI, 'd', "");
    add(PCI "/vendor", 'f', "0x1022\n");
    add(PCI "/device", 'f', npu1 ? "0x1502\n" : "0x17f0\n");
    add(PCI "/revision", 'f', npu1 ? "0x00\n" : "0x10\n");
    add(PCI "/class", 'f', "0x118000\n");
    add(PCI "/subsystem_vendor", 'f', "0x1022\n");
    add(PCI "/subsystem_device", 'f', npu1 ? "0x1502\n" : "0x17f0\n");
    add(PCI "/enable", 'f', "1\n");
    add(PCI "/uevent", 'f', npu1 ?
        "DRIVER=amdxdna\nPCI_CLASS=118000\nPCI_ID=1022:1502\nPCI_SLOT_NAME=" ADDRESS "\n" :
        "DRIVER=amdxdna\nPCI_CLASS=118000\nPCI_ID=1022:17F0\nPCI_SLOT_NAME=" ADDRESS "\n");
    add(PCI "/device_type", 'f', "0\n");
    add(PCI "/fw_version", 'f', npu1 ? "1.5.5.391\n" : "1.1.2.65\n");
    add(PCI "/vbnv", 'f', npu1 ? "RyzenAI-npu1\n" :
        sim_kernel(702) && sim.protocol_minor >= 24 ? "NPU Strix\n" : "RyzenAI-npu4\n");
    add(PCI "/driver", 'l', "/sys/bus/pci/drivers/amdxdna");
    add(PCI "/subsystem", 'l', "/sys/bus/pci");
    add(PCI "/iommu_group", 'l', "/sys/kernel/iommu_groups/22");
    add(PCI "/accel", 'd', "");
    add(PCI "/accel/accel0", 'd', "");
    add(PCI "/accel/accel0/dev", 'f', "261:0\n");
    add(PCI "/accel/accel0/uevent", 'f', "MAJOR=261\nMINOR=0\nDEVNAME=accel/accel0\n");
    add(PCI "/accel/accel0/device", 'l', PCI);
}

static void build(void)
{
    char release[80], columns[16];
    snprintf(release, sizeof release, "%s\n", sim_files_release());
    add("/dev/accel", 'd', "");
    add("/dev/accel/accel0", 'c', "");
    add_pci();
    add("/sys/dev/char/261:0", 'l', PCI "/accel/accel0");
    add("/sys/class/accel", 'd', "");
    add("/sys/class/accel/accel0", 'l', PCI "/accel/accel0");
    add("/sys/bus/pci", 'd', "");
    add("/sys/bus/pci/devices", 'd', "");
    add("/sys/bus/pci/devices/" ADDRESS, 'l', PCI);
    add("/sys/bus/pci/drivers", 'd', "");
    add("/sys/bus/pci/drivers/amdxdna", 'd', "");
    add("/sys/bus/pci/drivers/amdxdna/" ADDRESS, 'l', PCI);
    add("/sys/kernel/iommu_groups", 'd', "");
    add("/sys/kernel/iommu_groups/22", 'd', "");
    add("/sys/module/amdxdna", 'd', "");
    add("/sys/module/amdxdna/initstate", 'f', "live\n");
    add("/sys/module/amdxdna/parameters", 'd', "");
    snprintf(columns, sizeof columns, "%u\n", (unsigned)sim.max_col);
    add("/sys/module/amdxdna/parameters/aie2_max_col", 'f', columns);
    if (sim_kernel(701)) {
        add("/sys/module/amdxdna/parameters/force_iova", 'f', sim.iova ? "Y\n" : "N\n");
    }
    if (sim_kernel(702)) {
        add("/sys/module/amdxdna/parameters/tdr_timeout_ms", 'f', "2000\n");
    }
    add("/lib/firmware/amdnpu", 'd', "");
    add(sim.device == SIM_NPU1 ? "/lib/firmware/amdnpu/1502_00" : "/lib/firmware/amdnpu/17f0_10",
        'd', "");
    add(sim.device == SIM_NPU1 ? "/lib/firmware/amdnpu/1502_00/npu.sbin" :
        "/lib/firmware/amdnpu/17f0_10/npu.sbin", 'f', "not a firmware\n");
    add("/proc/sys/kernel/osrelease", 'f', release);
    add("/proc/modules", 'f', "amdxdna 172032 0 - Live 0x0000000000000000\n");
}

static int below(const char *path, const char *root)
{
    size_t n = strlen(root);
    return strncmp(path, root, n) == 0 && (path[n] == '\0' || path[n] == '/');
}

/* Paths whose every answer comes from the table, an absence included. */
int sim_files_owns(const char *path)
{
    static const char *const roots[] = {
        "/dev/accel", "/sys/dev/char/261:0", "/sys/class/accel", "/sys/bus/pci",
        "/sys/devices/pci0000:00", "/sys/module/amdxdna", "/sys/kernel/iommu_groups",
        "/lib/firmware/amdnpu", "/proc/sys/kernel/osrelease", "/proc/modules" };
    if (path == NULL || path[0] != '/') {
        return 0;
    }
    for (size_t i = 0; i < sizeof roots / sizeof *roots; i++) {
        if (below(path, roots[i])) {
            return 1;
        }
    }
    return 0;
}

static const sim_node *exact(const char *path)
{
    for (unsigned i = 0; i < n_nodes; i++) {
        if (strcmp(nodes[i].path, path) == 0) {
            return &nodes[i];
        }
    }
    return NULL;
}

/* The node of a path, links on the way followed, the last one only on request. */
const sim_node *sim_files_find(const char *path, int follow)
{
    char done[512] = "", rest[1024];
    int links = 0;
    pthread_once(&once, build);
    snprintf(rest, sizeof rest, "%s", path);
    for (char *part = rest; *part != '\0';) {
        size_t slash, n = strlen(done);
        const sim_node *node;
        part += strspn(part, "/");
        slash = strcspn(part, "/");
        if (slash == 0 || (slash == 1 && part[0] == '.')) {
            part += slash;
            continue;
        }
        if (slash == 2 && strncmp(part, "..", 2) == 0) {
            char *last = strrchr(done, '/');
            if (last != NULL) {
                *last = '\0';
            }
            part += slash;
            continue;
        }
        snprintf(done + n, sizeof done - n, "/%.*s", (int)slash, part);
        part += slash;
        node = exact(done);
        if (node != NULL && node->kind == 'l' && (*part != '\0' || follow) && links++ < 8) {
            char next[1024];
            snprintf(next, sizeof next, "%s%s", node->text, part);
            memcpy(rest, next, sizeof rest);
            done[0] = '\0';
            part = rest;
        }
    }
    return exact(done);
}

const sim_node *sim_files_child(const sim_node *directory, unsigned index)
{
    size_t n = strlen(directory->path);
    for (unsigned i = 0; i < n_nodes; i++) {
        if (below(nodes[i].path, directory->path) && nodes[i].path[n] == '/' &&
            strchr(nodes[i].path + n + 1, '/') == NULL && index-- == 0) {
            return &nodes[i];
        }
    }
    return NULL;
}
