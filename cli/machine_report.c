/* swiftkv doctor --report: see machine_report.h. */
#include "machine_report.h"

#include <stdio.h>
#include <unistd.h>

#include "base/system.h"
#include "skv/version.h"

enum { LINE_BYTES = 256, BENCH_WORDS = 11 };

/* ---- the machine ---- */

static void say_system(const skv_machine *m)
{
    char name[LINE_BYTES];
    skv_system_name(name, sizeof name);
    machine_say("swiftkv", "%d.%d.%d, compiled by %s", SKV_VERSION_MAJOR, SKV_VERSION_MINOR,
                SKV_VERSION_PATCH, __VERSION__);
    machine_say("system", "%s", name);
    machine_say("processor", "%s", m->cpu);
}

/* ", 4 of the fast kind"; nothing where the system tells no number. */
static void say_count(size_t n, const char *what)
{
    if (n < SIZE_MAX) printf(", %zu %s", n, what);
}

static void say_sizes(const skv_machine *m)
{
    const double load = skv_processors_load();
    printf("%-15s%ld", "processors", sysconf(_SC_NPROCESSORS_ONLN));
    say_count(m->processors, "allowed");
    say_count(skv_processors_fast(), "of the fast kind");
    say_count(m->quota, "by a control group");
    printf("; %zu threads by default\n", m->threads);
    if (load >= 0) machine_say("load", "%.2f in the last minute", load);
    machine_say("memory", "%.1f GB, %.1f GB for this process, in pages of %ld bytes",
                (double)skv_memory_total() * 1e-9, (double)m->memory_available * 1e-9,
                sysconf(_SC_PAGESIZE));
    machine_say("", "%.3f GB of this process were resident at most%s",
                (double)skv_memory_peak() * 1e-9,
                skv_address_space_left() < SIZE_MAX ? ", its address space has a limit" : "");
}

/* ---- kernels ---- */

static const char *exact(bool ok)
{
    return ok ? "exact" : "WRONG";
}

static void say_products(const skv_machine *m)
{
    skv_product_check check;
    skv_machine_check(m, &check);
    machine_say("instructions", "%s", check.features[0] ? check.features : "none with kernels");
    if (check.refused[0]) machine_say("", "not used, since products DIFFER: %s", check.refused);
    machine_say("kernels", "%s is the best here", m->level);
    if (check.form[0]) {
        machine_say("",
                    "%s is the form of products that an engine takes (--cpu fixes one); times: %s",
                    check.form, check.forms);
    }
    for (size_t i = 0; i < m->n_levels; i++) {
        if (m->runs[i]) {
            machine_say("", "%s: products of f32 %s, bf16 %s, int8 %s", m->levels[i],
                        exact(check.f32[i]), exact(check.bf16[i]), exact(check.int8[i]));
        } else {
            machine_say("", "%s: not here", m->levels[i]);
        }
    }
}

/* ---- speed ---- */

static const char *shape_of(const cli_options *o)
{
    static const char large[] = "llama-3.2-1b", small[] = "smollm2-135m", smallest[] = "mini";
    skv_engine_options options = skv_engine_options_default();
    skv_memory_plan plan;
    if (o->quick) return smallest;
    options.weights = SKV_WEIGHTS_INT8;
    const skv_status status = skv_memory_plan_make("preset:llama-3.2-1b", &options, 0, &plan, NULL);
    return status == SKV_OK && plan.fits ? large : small;
}

/* What `swiftkv bench --preset NAME ... --peak` prints. */
static int measure(const cli_options *o)
{
    char words[BENCH_WORDS][16] = {"swiftkv",  "bench", "--preset", "",   "--weights", "int8",
                                   "--prompt", "512",   "--gen",    "32", "--peak"};
    char *argv[BENCH_WORDS];
    cli_options bench;
    for (size_t i = 0; i < BENCH_WORDS; i++) argv[i] = words[i];
    (void)snprintf(words[3], sizeof words[3], "%s", shape_of(o));
    const int status = cli_options_parse(o->quick ? BENCH_WORDS - 1 : BENCH_WORDS, argv, &bench);
    if (status != CLI_DONE) return status;
    bench.interrupt = o->interrupt;
    return cli_run_bench(&bench);
}

int machine_report(const cli_options *options)
{
    skv_machine machine;
    skv_machine_describe(&machine);
    say_system(&machine);
    say_sizes(&machine);
    machine_try_ways();
    say_products(&machine);
    (void)fflush(stdout); /* the rest takes a minute, and may be where it ends */
    const int status = machine_compare_levels(&machine);
    if (status != CLI_DONE) return status;
    putchar('\n');
    (void)fflush(stdout);
    return measure(options);
}
