/* swiftkv devices: where models can be computed. */
#include <stdio.h>

#include "common/json_out.h"
#include "options.h"
#include "skv/tools.h"

static void print_device(const skv_device *d)
{
    printf("%-8s %s\n", d->name, d->found);
    if (!d->is_there) return;
    printf("%-8s %.1f GB of memory%s, %.1f GB available\n", "", (double)d->memory * 1e-9,
           d->has_memory ? " of its own" : ", the host's", (double)d->available * 1e-9);
    if (!d->exact) printf("%-8s results are not exact in every way\n", "");
}

static void put_device(skv_json_out *json, const skv_device *d)
{
    skv_json_out_open(json, '{');
    skv_json_out_put_text(json, "name", d->name);
    skv_json_out_put_bool(json, "available", d->is_there);
    skv_json_out_put_text(json, d->is_there ? "found" : "reason", d->found);
    if (d->is_there) {
        skv_json_out_put_bool(json, "own_memory", d->has_memory);
        skv_json_out_put_integer(json, "memory_bytes", d->memory);
        skv_json_out_put_integer(json, "memory_available", d->available);
    }
    skv_json_out_put_bool(json, "exact", d->exact);
    skv_json_out_close(json, '}');
}

int cli_run_devices(const cli_options *options)
{
    skv_device d;
    skv_json_out json = {.stream = stdout};
    if (options->json) skv_json_out_open(&json, '[');
    for (size_t i = 0; skv_device_describe(i, &d); i++) {
        if (options->json) {
            put_device(&json, &d);
        } else {
            print_device(&d);
        }
    }
    if (options->json) {
        skv_json_out_close(&json, ']');
        putchar('\n');
    }
    return CLI_DONE;
}
