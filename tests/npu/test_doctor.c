/* test_doctor.c - recorded machines on which the NPU does not work, each with its diagnosis. The
 * records are small trees of files that this test writes: what /sys, /proc, /dev, /lib and /etc
 * of such a machine hold, and the file amdxdna-steps with what the device answered. Only the
 * public interface is used. */
#define _GNU_SOURCE 1
#include "../../whisper_npu.h"
#include "../lib/t.h"
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <sys/stat.h>
#include <unistd.h>

static char root[64];

static int remove_one(const char *path, const struct stat *status, int kind, struct FTW *where)
{
    (void)status;
    (void)kind;
    (void)where;
    return remove(path);
}

static void tree_end(void)
{
    if (root[0] != '\0') {
        (void)nftw(root, remove_one, 16, FTW_DEPTH | FTW_PHYS);
        root[0] = '\0';
    }
}

static void tree_begin(void)
{
    const char *temp = getenv("TMPDIR");
    tree_end();
    snprintf(root, sizeof root, "%.40s/doctor-XXXXXX", temp != NULL ? temp : "/tmp");
    if (mkdtemp(root) == NULL) {
        perror("mkdtemp");
        exit(1);
    }
}

/* A file with its directories; a path that ends in / makes the directory only. */
static void put(const char *path, const char *text)
{
    char full[512], *p;
    FILE *file;
    snprintf(full, sizeof full, "%s%s", root, path);
    for (p = full + strlen(root) + 1; *p != '\0'; p++) {
        if (*p == '/') {
            *p = '\0';
            (void)mkdir(full, 0755);
            *p = '/';
        }
    }
    if (full[strlen(full) - 1] == '/') {
        return;
    }
    file = fopen(full, "wb");
    if (file == NULL || fputs(text, file) < 0 || fclose(file) != 0) {
        perror(full);
        exit(1);
    }
}

static void drop(const char *path)
{
    char full[512];
    snprintf(full, sizeof full, "%s%s", root, path);
    (void)nftw(full, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static void put_number(const char *directory, const char *file, unsigned value, int digits)
{
    char path[256], text[32];
    snprintf(path, sizeof path, "%s/%s", directory, file);
    snprintf(text, sizeof text, "0x%0*x\n", digits, value);
    put(path, text);
}

#define PCI "/sys/bus/pci/devices/0000:c4:00.1"
#define NODE "/sys/dev/char/261:0/device"

static void device(unsigned id, unsigned revision)
{
    put_number(PCI, "vendor", 0x1022, 4);
    put_number(PCI, "device", id, 4);
    put_number(PCI, "revision", revision, 2);
    put_number(NODE, "vendor", 0x1022, 4);
    put_number(NODE, "device", id, 4);
    put_number(NODE, "revision", revision, 2);
}

static void identity(unsigned user, unsigned group, const char *groups)
{
    char text[256];
    snprintf(text, sizeof text, "Name:\tx\nUid:\t%u\t%u\t%u\t%u\n"
             "Gid:\t%u\t%u\t%u\t%u\nGroups:\t%s \n", user, user, user, user, group, group, group,
             group, groups);
    put("/proc/self/status", text);
}

static void memlock(const char *soft)
{
    char text[256];
    snprintf(text, sizeof text, "Limit                     Soft Limit           Hard Limit"
             "           Units     \nMax processes             1000                 1000"
             "                 processes \n"
             "Max locked memory         %-20s %-20s bytes     \n", soft, soft);
    put("/proc/self/limits", text);
}

/* A Hawk Point laptop with everything in order. */
static void healthy(void)
{
    tree_begin();
    put("/proc/sys/kernel/osrelease", "6.18.15-amd64\n");
    put("/proc/cmdline", "BOOT_IMAGE=/vmlinuz root=/dev/sda2 quiet\n");
    put("/proc/cpuinfo", "processor\t: 0\nflags\t\t: fpu vme sse2 avx512f\n");
    put("/sys/bus/pci/devices/0000:00:00.0/vendor", "0x1022\n");
    put("/sys/bus/pci/devices/0000:00:00.0/device", "0x14e8\n");
    device(0x1502, 0);
    put(PCI "/driver/", "");
    put(PCI "/device_type", "0\n");
    put(NODE "/device_type", "0\n");
    put(PCI "/fw_version", "1.5.5.391\n");
    put("/sys/module/amdxdna/refcnt", "0\n");
    put("/sys/kernel/iommu_groups/0/type", "DMA\n");
    put("/lib/modules/6.18.15-amd64/modules.dep",
        "kernel/drivers/accel/ivpu/intel_vpu.ko.xz:\nkernel/drivers/accel/amdxdna/amdxdna.ko.xz: "
        "kernel/drivers/gpu/drm/scheduler/gpu-sched.ko.xz\n");
    put("/lib/firmware/amdnpu/1502_00/npu.sbin.xz", "x");
    put("/dev/accel/accel0", "");
    identity((unsigned)getuid(), (unsigned)getgid(), "");
    memlock("unlimited");
    put("/amdxdna-steps", "driver 0.1\nopen 0\nheap 0\nmap 0\ncontext 0\nconfig 0\n");
}

static wnpu_amdxdna_diagnosis last;
static unsigned seen[WNPU_AMDXDNA_CONFIG_REFUSED + 1]; /* records with each cause */

static void expect_pack(const char *pack, int cause, const char *message, const char *cure)
{
    wnpu_amdxdna_config config;
    int code;
    wnpu_amdxdna_config_init(&config, sizeof config);
    config.root = root;
    config.pack = pack;
    seen[cause]++;
    memset(&last, 0xff, sizeof last);
    last.struct_size = (uint32_t)sizeof last;
    code = wnpu_amdxdna_diagnose(&config, &last);
    T_CHECK(code == WNPU_OK && last.cause == cause, "%s instead of %s (%d): %s",
            wnpu_amdxdna_cause_name(last.cause), wnpu_amdxdna_cause_name(cause), code,
            last.message);
    T_CHECK(strstr(last.message, message) != NULL, "message: %s", last.message);
    T_CHECK(strstr(last.cure, cure) != NULL && last.cure[0] != '\0', "cure: %s", last.cure);
}

static void expect(int cause, const char *message, const char *cure)
{
    expect_pack(NULL, cause, message, cure);
}

/* Heap, test weight, and for two jobs of eight products commands, A and C: the largest of the
 * shapes are A [512, 2048], B [512, 2048] and C [512, 2048]. */
static uint64_t built_in_bytes(void)
{
    return (64u << 20) + (1u << 20) + 2 * (9 * 4096 + 8 * ((1u << 20) + (4u << 20)));
}

static void test_healthy(void)
{
    healthy();
    expect(WNPU_AMDXDNA_FINE, "works", "Nothing");
    T_CHECK(strcmp(last.device, "NPU1 (1022:1502 rev 00)") == 0, "%s", last.device);
    T_CHECK(strcmp(last.firmware, "1.5.5.391") == 0 && strcmp(last.driver, "amdxdna 0.1") == 0 &&
            strcmp(last.kernel, "6.18.15-amd64") == 0 &&
            strcmp(last.node, "/dev/accel/accel0") == 0, "%s %s %s %s", last.firmware, last.driver,
            last.kernel, last.node);
    T_CHECK(last.memlock_limit == UINT64_MAX && last.memlock_needed == built_in_bytes(), "limits");
    device(0x17f0, 0x11);
    expect(WNPU_AMDXDNA_FINE, "", "");
    T_CHECK(strcmp(last.device, "NPU5 (1022:17f0 rev 11)") == 0, "%s", last.device);
}

static void test_no_npu(void)
{
    healthy();
    drop(PCI);
    expect(WNPU_AMDXDNA_NO_NPU, "PCI", "firmware setup");
}

static void test_unknown_device(void)
{
    healthy();
    device(0x17f0, 0x00); /* NPU2, dropped by the kernel */
    expect(WNPU_AMDXDNA_UNKNOWN_DEVICE, "17f0 rev 00", "1022:1502");
}

static void test_user_queues(void)
{
    healthy();
    device(0x17f2, 0x10);
    expect(WNPU_AMDXDNA_USER_QUEUES, "user queues", "CPU");
    healthy();
    put(PCI "/device_type", "1\n");
    expect(WNPU_AMDXDNA_USER_QUEUES, "user queues", "CPU");
}

static void test_kernel_old(void)
{
    healthy();
    drop("/sys/module/amdxdna");
    put("/proc/sys/kernel/osrelease", "6.12.48+deb13-amd64\n");
    put("/lib/modules/6.12.48+deb13-amd64/modules.dep", "kernel/fs/ext4/ext4.ko.xz:\n");
    expect(WNPU_AMDXDNA_KERNEL_OLD, "6.12.48", "6.14");
}

static void test_kernel_no_driver(void)
{
    healthy();
    drop("/sys/module/amdxdna");
    put("/lib/modules/6.18.15-amd64/modules.dep", "kernel/fs/ext4/ext4.ko.xz:\n");
    expect(WNPU_AMDXDNA_KERNEL_NO_DRIVER, "6.18.15", "CONFIG_DRM_ACCEL_AMDXDNA");
}

static void test_module_missing(void)
{
    healthy();
    drop("/sys/module/amdxdna");
    expect(WNPU_AMDXDNA_MODULE_MISSING, "not loaded", "modprobe amdxdna");
    /* a dkms driver on an old kernel */
    put("/proc/sys/kernel/osrelease", "6.8.0-60-generic\n");
    put("/lib/modules/6.8.0-60-generic/modules.dep", "updates/dkms/amdxdna.ko.zst:\n");
    expect(WNPU_AMDXDNA_MODULE_MISSING, "not loaded", "modprobe amdxdna");
}

static void test_module_blocked(void)
{
    healthy();
    drop("/sys/module/amdxdna");
    put("/etc/modprobe.d/npu.conf", "blacklist amdxdna\n");
    expect(WNPU_AMDXDNA_MODULE_BLOCKED, "blacklisted", "/etc/modprobe.d");
    put("/etc/modprobe.d/npu.conf", "# no blacklist amdxdna here\n");
    expect(WNPU_AMDXDNA_MODULE_MISSING, "", "");
    put("/proc/cmdline", "quiet module_blacklist=amdxdna\n");
    expect(WNPU_AMDXDNA_MODULE_BLOCKED, "blacklisted", "command line");
}

static void test_firmware_missing(void)
{
    healthy();
    drop(PCI "/driver");
    drop("/lib/firmware/amdnpu");
    expect(WNPU_AMDXDNA_FIRMWARE_MISSING, "not installed", "linux-firmware");
    put("/lib/firmware/amdnpu/17f0_10/npu.sbin", "x"); /* of another device */
    expect(WNPU_AMDXDNA_FIRMWARE_MISSING, "", "");
}

static void test_firmware_new(void)
{
    healthy();
    drop(PCI "/driver");
    put("/dev/kmsg", "4,1,1,-;amdxdna 0000:c4:00.1: enabling device\n3,2,2,-;amdxdna 0000:c4:00.1: "
        "[drm] *ERROR* aie2_check_protocol: Incompatible firmware protocol major 7 minor 2\n");
    expect(WNPU_AMDXDNA_FIRMWARE_NEW, "protocol", "Update the kernel");
}

static void test_firmware_old(void)
{
    healthy();
    drop(PCI "/driver");
    put("/dev/kmsg", "3,2,2,-;amdxdna: Incompatible firmware protocol major 4 minor 1\n");
    expect(WNPU_AMDXDNA_FIRMWARE_OLD, "older", "linux-firmware");
    put("/dev/kmsg", "3,2,2,-;amdxdna: Firmware minor version smaller than supported\n");
    expect(WNPU_AMDXDNA_FIRMWARE_OLD, "older", "linux-firmware");
}

static void test_firmware_unknown(void)
{
    healthy();
    put(PCI "/fw_version", "0.0.0.0\n");
    expect(WNPU_AMDXDNA_FIRMWARE_UNKNOWN, "version", "modprobe -r amdxdna");
}

static void test_iommu(void)
{
    healthy();
    drop(PCI "/driver");
    drop("/sys/kernel/iommu_groups/0");
    expect(WNPU_AMDXDNA_IOMMU_MISSING, "IOMMU", "amd_iommu=off");
}

static void test_hypervisor(void)
{
    healthy();
    drop(PCI "/driver");
    put("/proc/cpuinfo", "processor\t: 0\nflags\t\t: fpu vme sse2 hypervisor lahf_lm\n");
    expect(WNPU_AMDXDNA_HYPERVISOR, "virtual machine", "host");
}

static void test_driver_failed(void)
{
    healthy();
    drop(PCI "/driver");
    expect(WNPU_AMDXDNA_DRIVER_FAILED, "did not bind", "dmesg");
}

static void test_no_node(void)
{
    healthy();
    drop("/dev/accel/accel0");
    expect(WNPU_AMDXDNA_NO_NODE, "/dev/accel", "container");
}

static void test_other_driver(void)
{
    healthy();
    put_number(NODE, "vendor", 0x8086, 4);
    put_number(NODE, "device", 0x7d1d, 4);
    expect(WNPU_AMDXDNA_OTHER_DRIVER, "other vendors", "");
}

static void test_permission(void)
{
    char full[128];
    unsigned group = (unsigned)getgid(), other = (unsigned)getuid() + 1000;
    char groups[32];
    healthy();
    snprintf(full, sizeof full, "%s/dev/accel/accel0", root);
    (void)chmod(full, 0600);
    identity(other, group + 1000, "7 8");
    expect(WNPU_AMDXDNA_PERMISSION, "0600", "udev");
    (void)chmod(full, 0660); /* the node's group, but not the user's */
    expect(WNPU_AMDXDNA_PERMISSION, "0660", "usermod");
    snprintf(groups, sizeof groups, "7 %u 9", group);
    identity(other, group + 1000, groups);
    expect(WNPU_AMDXDNA_FINE, "", "");
    (void)chmod(full, 0640);
    expect(WNPU_AMDXDNA_PERMISSION, "0640", "udev");
    (void)chmod(full, 0666);
    identity(other, group + 1000, "");
    expect(WNPU_AMDXDNA_FINE, "", "");
}

static void steps(const char *text)
{
    healthy();
    put("/amdxdna-steps", text);
}

static void test_sva(void)
{
    steps("driver 0.0\nopen 19\n");
    expect(WNPU_AMDXDNA_SVA, "address space", "force_iova");
    steps("driver 0.0\nopen 95\n");
    expect(WNPU_AMDXDNA_SVA, "address space", "force_iova");
    drop("/sys/kernel/iommu_groups/0"); /* Linux 6.16 probes without and fails here */
    expect(WNPU_AMDXDNA_IOMMU_MISSING, "IOMMU", "amd_iommu=off");
}

static void test_memlock(void)
{
    char needed[48];
    steps("driver 0.6\nopen 0\nheap 0\nmap 11\n");
    memlock("8388608");
    expect(WNPU_AMDXDNA_MEMLOCK, "limit: 8388608", "ulimit -l");
    snprintf(needed, sizeof needed, "Needed: %llu ", (unsigned long long)built_in_bytes());
    T_CHECK(last.memlock_limit == 8388608 && last.memlock_needed == built_in_bytes() &&
            strstr(last.message, needed) != NULL, "%s", last.message);
    steps("driver 0.6\nopen 0\nheap 1\n");
    memlock("65536");
    expect(WNPU_AMDXDNA_MEMLOCK, "limit: 65536", "LimitMEMLOCK");
}

static void test_memory(void)
{
    steps("driver 0.6\nopen 0\nheap 12\n");
    expect(WNPU_AMDXDNA_MEMORY, "enough memory", "Free memory");
    memlock("65536"); /* has nothing to do with it */
    expect(WNPU_AMDXDNA_MEMORY, "enough memory", "Free memory");
    steps("driver 0.6\nopen 0\nheap 0\nmap 12\n");
    memlock("65536");
    expect(WNPU_AMDXDNA_MEMORY, "enough memory", "Free memory");
}

static void test_contexts(void)
{
    steps("driver 0.10\nopen 0\nheap 0\nmap 0\ncontext 16\n");
    expect(WNPU_AMDXDNA_CONTEXTS, "in use", "Close other programs");
    steps("driver 0.10\nopen 0\nheap 0\nmap 0\ncontext 22\n");
    expect(WNPU_AMDXDNA_CONTEXT_REFUSED, "refused", "dmesg");
    put("/sys/module/amdxdna/parameters/aie2_max_col", "2\n");
    expect(WNPU_AMDXDNA_CONTEXT_REFUSED, "aie2_max_col is 2", "aie2_max_col");
    put("/sys/module/amdxdna/parameters/aie2_max_col", "128\n"); /* the driver's default */
    expect(WNPU_AMDXDNA_CONTEXT_REFUSED, "context.", "Close other programs");
    steps("driver 0.10\nopen 0\nheap 0\nmap 0\ncontext 0\nconfig 22\n");
    expect(WNPU_AMDXDNA_CONFIG_REFUSED, "PDI", "dmesg");
}

static void test_gone(void)
{
    steps("driver 0.10\nopen 19\n");
    put("/proc/sys/kernel/osrelease", "7.2.13\n"); /* where no shared addresses are EINVAL */
    expect(WNPU_AMDXDNA_DEVICE_GONE, "no longer responds", "reboot");
    steps("driver 0.8\nopen 0\nheap 0\nmap 0\ncontext 62\n");
    expect(WNPU_AMDXDNA_DEVICE_GONE, "no longer responds", "reboot");
    steps("driver 0.10\nopen 0\nheap 0\nmap 0\ncontext 19\n"); /* ENODEV: a closed channel */
    expect(WNPU_AMDXDNA_DEVICE_GONE, "no longer responds", "wait 6 seconds");
    steps("driver 0.10\nopen 0\nheap 0\nmap 0\ncontext 32\n"); /* EPIPE: a broken one */
    expect(WNPU_AMDXDNA_DEVICE_GONE, "no longer responds", "wait 6 seconds");
}

static void test_pack(void)
{
    const char *build = getenv("WNPU_BUILD");
    char pack[128], command[400];
    healthy();
    snprintf(pack, sizeof pack, "%s/pack", root);
    expect_pack(pack, WNPU_AMDXDNA_PACK_MISSING, "manifest", "manifest");
    snprintf(command, sizeof command, "mkdir -p %s && mkfifo %s/manifest", pack, pack);
    T_CHECK(system(command) == 0, "%s", command);
    expect_pack(pack, WNPU_AMDXDNA_PACK_MISSING, "not a regular file", "manifest");
    drop("/pack/manifest");
    put("/pack/manifest", "pack format=1 device=npu1 columns=4\noverlay id=g\n");
    expect_pack(pack, WNPU_AMDXDNA_PACK_DAMAGED, "line 2", "again");
    snprintf(command, sizeof command, "%s/make_pack %s --device npu2 --dtype i8 --shape 512x256x64 "
             ">/dev/null", build != NULL ? build : "build", pack);
    T_CHECK(system(command) == 0, "%s", command);
    expect_pack(pack, WNPU_AMDXDNA_PACK_DEVICE, "another device", "npu1 for Phoenix");
    device(0x17f0, 0x10);
    expect_pack(pack, WNPU_AMDXDNA_FINE, "", "");
}

/* tests/npu/make_npu_pack.sh takes the columns from the xclbin: its name tells the design's. */
static void test_pack_script(void)
{
    const char *build = getenv("WNPU_BUILD");
    char pack[128], command[900];
    healthy();
    device(0x17f0, 0x10);
    snprintf(pack, sizeof pack, "%s/pack", root);
    snprintf(command, sizeof command, "%s/make_pack %s/made --device npu2 --dtype i8 --shape "
             "512x256x64 >/dev/null && "
             "mv %s/made/gemm.xclbin %s/final_512x64x256_64x64x32_4c.xclbin && "
             "mv %s/made/g512x256x64.bin %s/insts_512x64x256_64x64x32_4c.bin && "
             "sh tests/npu/make_npu_pack.sh %s npu2 i8 nk %s/final_512x64x256_64x64x32_4c.xclbin "
             ">/dev/null", build != NULL ? build : "build", root, root, root, root, root, pack,
             root);
    T_CHECK(system(command) == 0, "%s", command);
    expect_pack(pack, WNPU_AMDXDNA_FINE, "", "");
    snprintf(command, sizeof command, "grep -q 'columns=8$' %s/manifest && ! grep -q licence "
             "%s/manifest", pack, pack);
    T_CHECK(system(command) == 0, "%s", command);
}

/* Kernels that compute wrongly or hang can be seen on a device only, see test_npu.c. */
static void test_all_causes(void)
{
    unsigned failing = 0;
    int i;
    for (i = WNPU_AMDXDNA_FINE; i <= WNPU_AMDXDNA_CONFIG_REFUSED; i++) {
        T_CHECK(seen[i] > 0 || i == WNPU_AMDXDNA_SELF_TEST || i == WNPU_AMDXDNA_OTHER ||
                i == WNPU_AMDXDNA_KERNEL_HANGS, "no record of a machine with cause %s",
                wnpu_amdxdna_cause_name(i));
        failing += i != WNPU_AMDXDNA_FINE ? seen[i] : 0;
    }
    T_CHECK(failing >= 40, "only %u machines that fail", failing);
}

static void test_interface(void)
{
    int i;
    wnpu_amdxdna_diagnosis d;
    for (i = WNPU_AMDXDNA_FINE; i <= WNPU_AMDXDNA_CONFIG_REFUSED; i++) {
        T_CHECK(strcmp(wnpu_amdxdna_cause_name(i), "unknown") != 0, "cause %d has no name", i);
    }
    T_CHECK(strcmp(wnpu_amdxdna_cause_name(-1), "unknown") == 0 &&
            strcmp(wnpu_amdxdna_cause_name(i), "unknown") == 0, "out of range");
    T_CHECK(wnpu_amdxdna_diagnose(NULL, NULL) == WNPU_E_ARGUMENT, "nowhere to write");
    memset(&d, 0x55, sizeof d);
    d.struct_size = 8; /* a shorter structure of an older header */
    healthy();
    {
        wnpu_amdxdna_config config;
        wnpu_amdxdna_config_init(&config, sizeof config);
        config.root = root;
        T_CHECK(wnpu_amdxdna_diagnose(&config, &d) == WNPU_OK && d.cause == WNPU_AMDXDNA_FINE &&
                d.memlock_needed == UINT64_C(0x5555555555555555), "a short structure");
    }
}

int main(void)
{
    t_run("healthy", test_healthy);
    t_run("no npu", test_no_npu);
    t_run("unknown device", test_unknown_device);
    t_run("user queues", test_user_queues);
    t_run("old kernel", test_kernel_old);
    t_run("kernel without driver", test_kernel_no_driver);
    t_run("module missing", test_module_missing);
    t_run("module blocked", test_module_blocked);
    t_run("firmware missing", test_firmware_missing);
    t_run("firmware too new", test_firmware_new);
    t_run("firmware too old", test_firmware_old);
    t_run("firmware unknown", test_firmware_unknown);
    t_run("iommu missing", test_iommu);
    t_run("hypervisor", test_hypervisor);
    t_run("driver failed", test_driver_failed);
    t_run("no node", test_no_node);
    t_run("other driver", test_other_driver);
    t_run("permission", test_permission);
    t_run("address space", test_sva);
    t_run("memlock", test_memlock);
    t_run("memory", test_memory);
    t_run("contexts", test_contexts);
    t_run("device gone", test_gone);
    t_run("pack", test_pack);
    t_run("pack made by the script", test_pack_script);
    t_run("all causes", test_all_causes);
    t_run("interface", test_interface);
    tree_end();
    return t_end();
}
