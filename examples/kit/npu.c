/* npu.c - see npu.h. With NO_NPU defined it needs neither npu_amdxdna.c nor libdrm, and returns an
 * error. */
#include "npu.h"

#include <stdio.h>
#include <string.h>

enum { PRODUCTS = 16 }; /* of a model, at most */

#ifdef NO_NPU
int npu_open(wnpu_accel **accel, const char *pack, const wnpu_model *model, wnpu_log_fn log,
             void *log_user)
{
    (void)pack;
    (void)model;
    (void)log;
    (void)log_user;
    *accel = NULL;
    fprintf(stderr, "npu: this program was built without libdrm, so it has no NPU support\n");
    return WNPU_E_UNSUPPORTED;
}

void npu_close(wnpu_accel *accel)
{
    (void)accel;
}
#else
int npu_open(wnpu_accel **accel, const char *pack, const wnpu_model *model, wnpu_log_fn log,
             void *log_user)
{
    wnpu_accel_shape products[PRODUCTS];
    wnpu_amdxdna_config config;
    wnpu_amdxdna_diagnosis diagnosis;
    wnpu_error error = {0, ""};
    int status, n = wnpu_model_products(model, products, PRODUCTS);
    wnpu_amdxdna_config_init(&config, sizeof config);
    config.pack = strcmp(pack, "auto") != 0 ? pack : NULL;
    config.products = products;
    config.n_products = n < 0 ? 0 : n < PRODUCTS ? (uint32_t)n : PRODUCTS;
    config.log = log;
    config.log_user = log_user;
    status = wnpu_amdxdna_open(&config, accel, &error);
    if (status == WNPU_OK) {
        return WNPU_OK;
    }
    fprintf(stderr, "npu: %s\n", error.message);
    memset(&diagnosis, 0, sizeof diagnosis);
    diagnosis.struct_size = (uint32_t)sizeof diagnosis;
    if (wnpu_amdxdna_diagnose(&config, &diagnosis) == WNPU_OK &&
        diagnosis.cause != WNPU_AMDXDNA_FINE) {
        fprintf(stderr, "npu: %s: %s\n", wnpu_amdxdna_cause_name(diagnosis.cause),
                diagnosis.cure);
    }
    return status;
}

void npu_close(wnpu_accel *accel)
{
    wnpu_amdxdna_close(accel);
}
#endif

static const char *health_name(int health)
{
    static const char *const names[] = {"ok", "set aside", "off", "to be probed"};
    return health >= 0 && health < 4 ? names[health] : "?";
}

void npu_tell(const wnpu_session *session)
{
    wnpu_accel_stats s;
    wnpu_accel_stage g;
    size_t i;
    memset(&s, 0, sizeof s);
    s.struct_size = (uint32_t)sizeof s;
    if (wnpu_get_accel_stats(session, &s) != WNPU_OK || s.name == NULL || s.name[0] == '\0') {
        return;
    }
    fprintf(stderr, "  %s, %s: %.1f of %.1f GMAC of the encoder in %u windows (%u without it), "
            "%.1f MB of weights\n", s.name, health_name(s.health), (double)s.accel_macs / 1e9,
            (double)s.macs / 1e9, s.windows, s.windows_without, (double)s.resident_bytes / 1e6);
    fprintf(stderr, "  stage        GMAC  on NPU  fallback  jobs submissions waits   MB in  MB out "
            "  NPU ms waited ms   CPU ms\n");
    memset(&g, 0, sizeof g);
    g.struct_size = (uint32_t)sizeof g;
    for (i = 0; wnpu_get_accel_stage(session, i, &g) == WNPU_OK; i++) {
        fprintf(stderr, "  %-9s %7.2f %6.1f%% %8.1f%% %5llu %11llu %5llu %7.1f %7.1f %8.1f %9.1f "
                "%8.1f\n", g.name, (double)g.macs / 1e9,
                g.macs > 0 ? 100.0 * (double)g.accel_macs / (double)g.macs : 0.0,
                g.macs > 0 ? 100.0 * (double)g.fallback_macs / (double)g.macs : 0.0,
                (unsigned long long)g.jobs, (unsigned long long)g.submissions,
                (unsigned long long)g.waits, (double)g.bytes_in / 1e6, (double)g.bytes_out / 1e6,
                g.busy_ms, g.waited_ms, g.cpu_ms);
    }
    if (s.fallbacks > 0) {
        fprintf(stderr, "  %u fallbacks (%u wrong checksums), %u probes; the first: %s\n",
                s.fallbacks, s.wrong, s.probes, s.first_reason);
    }
}
