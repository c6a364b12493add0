/* swiftkv doctor: what this machine and its limits allow, and what to change. Each check is one
 * line; what should be changed has a second one that says how. */
#include <ctype.h>
#include <dirent.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/system.h"
#include "hub.h"
#include "machine_report.h"
#include "memory_plan.h"
#include "options.h"
#include "report.h"
#include "skv/tools.h"

enum { LINE_BYTES = 512, FILES_WANTED = 4096, FILES_OF_SERVICE = 65536 };

typedef struct doctor {
    skv_machine machine;
    size_t n_notes;
} doctor;

static void advise(doctor *d, const char *format, ...) CLI_PRINTF(2, 3);

/* What to change, below the line of the check. */
static void advise(doctor *d, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    machine_say_args("  -> change", format, args);
    va_end(args);
    d->n_notes++;
}

/* The first line of a file of the system; false: there is none. */
static bool read_line(const char *path, char out[LINE_BYTES])
{
    FILE *file = fopen(path, "r");
    const bool ok = file && fgets(out, LINE_BYTES, file);
    if (file) (void)fclose(file);
    if (ok) out[strcspn(out, "\n")] = 0;
    return ok;
}

/* The number of a line "NAME: N kB" of /proc/meminfo and such, in bytes; 0: none. */
static double read_kib(const char *path, const char *name)
{
    char line[LINE_BYTES];
    double kib = 0;
    FILE *file = fopen(path, "r");
    while (file && kib == 0 && fgets(line, sizeof line, file)) {
        const size_t n = strlen(name);
        if (strncmp(line, name, n) == 0 && line[n] == ':') kib = strtod(line + n + 1, NULL);
    }
    if (file) (void)fclose(file);
    return kib * 1024;
}

/* ---- the processor ---- */

static void check_processor(doctor *d)
{
    const skv_machine *m = &d->machine;
    char levels[LINE_BYTES] = "";
    size_t n = 0;
    for (size_t i = 0; i < m->n_levels && n < sizeof levels; i++) {
        n += (size_t)snprintf(levels + n, sizeof levels - n, "%s%s%s", i > 0 ? ", " : "",
                              m->levels[i], m->runs[i] ? "" : " (not here)");
    }
    machine_say("processor", "%s", m->cpu);
    machine_say("kernels", "%s is used, of %s (--cpu)", m->level, levels);
    if (strcmp(m->level, "ref") == 0) {
        advise(d,
               "plain C alone runs here: a processor with AVX2 or NEON is 10 to 50 times as fast");
    }
}

/* Devices beside the processor. */
static void check_devices(void)
{
    skv_device device;
    size_t n = 0;
    for (size_t i = 1; skv_device_describe(i, &device); i++, n++) {
        machine_say(n == 0 ? "devices" : "", "%s: %s", device.name, device.found);
    }
}

/* How an engine of this process divides its memory among nodes, as engine.c does. */
static const char *place_of_memory(const skv_nodes *mine)
{
    if (mine->n < 2) return "this process runs on one of them";
    if (skv_memory_has_policy()) return "this process has a policy of its own, which stays";
    if (!skv_pages_place(NULL, 0, mine->number[0])) {
        return "threads and their weights stay on one each; the system does not let pages of keys "
               "and values be placed (mbind)";
    }
    return "threads, their weights, and the KV heads of each layer are divided among them "
           "(numactl --interleave=all undoes that)";
}

/* A process whose threads stay on their nodes still meets all nodes in every product. */
static void check_nodes(doctor *d, size_t n_nodes)
{
    skv_processor_set allowed;
    skv_nodes mine;
    if (n_nodes < 2) return;
    skv_processors_get(&allowed);
    skv_nodes_find("", &allowed, &mine);
    machine_say("memory nodes", "%zu: %s", n_nodes, place_of_memory(&mine));
    for (size_t i = 0; mine.n > 1 && i < mine.n; i++) {
        machine_say("", "node %u: %zu processors", mine.number[i], mine.n_processors[i]);
    }
    advise(
        d,
        "one model on all memory nodes: mpirun -np %zu --map-by numa --bind-to numa swiftkv ..., "
        "a rank on each",
        n_nodes);
    advise(d, "more requests: a replica on each node, numactl --cpunodebind=N --membind=N swiftkv "
              "serve ...");
}

static void check_threads(doctor *d)
{
    const skv_machine *m = &d->machine;
    char line[LINE_BYTES];
    const long online = sysconf(_SC_NPROCESSORS_ONLN);
    machine_say("threads",
                "%zu by default (--threads): %ld processors, %zu allowed to this process",
                m->threads, online, m->processors);
    if (m->quota < m->processors) {
        machine_say("", "a control group allows the time of %zu processors (cpu.max)", m->quota);
    }
    if (read_line("/sys/devices/system/cpu/smt/active", line) && line[0] == '1') {
        machine_say("", "two threads share a core (SMT)");
        advise(d, "try --threads %zu, one a core: bench tells which is faster",
               m->threads > 1 ? m->threads / 2 : 1);
    }
    check_nodes(d, skv_memory_nodes(""));
    const double load = skv_processors_load();
    if (load >= 0) machine_say("load", "%.2f in the last minute", load);
    if (load > 0.5 * (double)m->threads) {
        advise(d, "other programs use the processors: bench and tune measure too little");
    }
}

static void check_governor(doctor *d)
{
    char line[LINE_BYTES];
    if (!read_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", line)) {
        machine_say("governor", "not told by the system (as in most virtual machines)");
        return;
    }
    machine_say("governor", "%s", line);
    if (strcmp(line, "performance") != 0) advise(d, "cpupower frequency-set -g performance");
}

/* ---- memory ---- */

static void check_memory(doctor *d)
{
    const double available = (double)d->machine.memory_available;
    machine_say("memory", "%.1f GB, of which this process may take %.1f GB",
                (double)skv_memory_total() * 1e-9, available * 1e-9);
    if (skv_memory_free() < SIZE_MAX && available < 0.5 * (double)skv_memory_free()) {
        advise(d, "a control group allows less than is free: raise memory.max (MemoryMax= of a "
                  "unit, --memory of a container)");
    }
    char line[LINE_BYTES];
    static const char pages[] = "/sys/kernel/mm/transparent_hugepage/enabled";
    if (!read_line(pages, line)) {
        machine_say("huge pages", "this system tells of no transparent ones");
        return;
    }
    machine_say("huge pages", "%s", line);
    if (strstr(line, "[never]"))
        advise(d, "echo madvise > %s: weights then need fewer pages", pages);
}

static void limit_text(rlim_t limit, char out[32])
{
    if (limit == RLIM_INFINITY) {
        (void)snprintf(out, 32, "unlimited");
    } else {
        (void)snprintf(out, 32, "%llu", (unsigned long long)limit);
    }
}

static void check_limits(doctor *d)
{
    static const struct {
        int which;
        const char *name, *change;
        rlim_t wanted; /* RLIM_INFINITY: none */
    } rows[] = {
        {RLIMIT_NOFILE, "open files",
         "ulimit -n 65536 (LimitNOFILE= of a unit): connections of serve", FILES_WANTED},
        {RLIMIT_AS, "address space", "ulimit -v unlimited: models are mapped", RLIM_INFINITY},
        {RLIMIT_DATA, "data", "ulimit -d unlimited", RLIM_INFINITY},
        {RLIMIT_FSIZE, "file size", "ulimit -f unlimited: models and caches are written",
         RLIM_INFINITY},
        {RLIMIT_MEMLOCK, "locked memory", NULL, 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct rlimit limit;
        char soft[32], hard[32];
        if (getrlimit(rows[i].which, &limit) != 0) continue;
        limit_text(limit.rlim_cur, soft);
        limit_text(limit.rlim_max, hard);
        machine_say(rows[i].name, "%s (at most %s)%s", soft, hard,
                    rows[i].change ? "" : ": swiftkv locks none");
        if (rows[i].change && limit.rlim_cur < rows[i].wanted) advise(d, "%s", rows[i].change);
    }
}

/* ---- running services ---- */

/* "Max open files   1024   4096   files" of /proc/PID/limits. */
static double open_files_of(const char *pid)
{
    static const char name[] = "Max open files";
    char path[64], line[LINE_BYTES];
    double limit = 0;
    (void)snprintf(path, sizeof path, "/proc/%.20s/limits", pid);
    FILE *file = fopen(path, "r");
    while (file && fgets(line, sizeof line, file)) {
        if (strncmp(line, name, sizeof name - 1) == 0) limit = strtod(line + sizeof name - 1, NULL);
    }
    if (file) (void)fclose(file);
    return limit;
}

static void check_service(doctor *d, const char *pid)
{
    char path[64], group[LINE_BYTES] = "";
    (void)snprintf(path, sizeof path, "/proc/%.20s/status", pid);
    const double resident = read_kib(path, "VmRSS"), peak = read_kib(path, "VmHWM");
    const double files = open_files_of(pid);
    (void)snprintf(path, sizeof path, "/proc/%.20s/cgroup", pid);
    (void)read_line(path, group);
    machine_say("process", "%s: %.2f GB resident, %.2f GB at its peak, %.0f open files, group %s",
                pid, resident * 1e-9, peak * 1e-9, files, group);
    if (files > 0 && files < FILES_WANTED) {
        advise(d, "LimitNOFILE=%d in its unit (systemctl edit swiftkv)", FILES_OF_SERVICE);
    }
}

static void check_services(doctor *d)
{
    DIR *proc = opendir("/proc");
    const struct dirent *entry;
    char path[64], name[LINE_BYTES];
    while (proc && (entry = readdir(proc))) {
        if (!isdigit((unsigned char)entry->d_name[0])) continue;
        if (strtol(entry->d_name, NULL, 10) == (long)getpid()) continue;
        (void)snprintf(path, sizeof path, "/proc/%.20s/comm", entry->d_name);
        if (read_line(path, name) && strcmp(name, "swiftkv") == 0) check_service(d, entry->d_name);
    }
    if (proc) (void)closedir(proc);
}

/* ---- models ---- */

/* Three sizes that people ask for: dense, dense, a mixture. */
static int check_models(const cli_options *o)
{
    static const char *const presets[] = {"preset:llama-3.2-1b", "preset:llama-3.1-8b",
                                          "preset:qwen3-30b-a3b"};
    for (size_t i = 0; i < sizeof presets / sizeof presets[0]; i++) {
        skv_error err = {0};
        skv_model_info info;
        cli_memory memory;
        char line[LINE_BYTES];
        skv_status status = skv_model_info_read(presets[i], &info, &err);
        if (status == SKV_OK) status = cli_memory_plan(presets[i], o, &info, &memory, &err);
        if (status != SKV_OK) return cli_check(status, &err);
        cli_memory_line(&memory, line, sizeof line);
        machine_say(i == 0 ? "models" : "", "%-22s %s", presets[i], line);
    }
    machine_say("", "swiftkv info MODEL, or swiftkv doctor MODEL, has a table for yours");
    return CLI_DONE;
}

static int read_model(const cli_options *o, cli_memory *out)
{
    const char *path = o->operands[0];
    skv_error err = {0};
    skv_model_info info;
    skv_status status = skv_model_info_read(path, &info, &err);
    if (status == SKV_OK) status = cli_memory_plan(path, o, &info, out, &err);
    return cli_check(status, &err);
}

int cli_run_doctor(const cli_options *options)
{
    doctor d = {.n_notes = 0};
    cli_memory memory;
    if (options->report) return machine_report(options);
    int status = options->n_operands > 0 ? read_model(options, &memory) : CLI_DONE;
    if (status != CLI_DONE) return status;
    skv_machine_describe(&d.machine);
    check_processor(&d);
    check_devices();
    check_threads(&d);
    check_governor(&d);
    check_memory(&d);
    check_limits(&d);
    check_services(&d);
    cli_hub_describe();
    if (options->n_operands == 0) status = check_models(options);
    if (d.n_notes == 0) {
        printf("\nNothing to change.\n");
    } else {
        printf("\n%zu thing%s to change.\n", d.n_notes, d.n_notes == 1 ? "" : "s");
    }
    if (options->n_operands > 0) cli_memory_print(&memory);
    return status;
}
