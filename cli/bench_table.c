/* Tables and JSON of bench. */
#include "bench.h"

#include <math.h>

#include "runtime.h"

static const double MIB = 1048576;

void bench_print_json(const bench_variant *v, const bench_result *r)
{
    skv_json_out json = {.stream = stdout};
    skv_json_out_open(&json, '{');
    skv_json_out_put_text(&json, "model", v->path);
    skv_json_out_put_text(&json, "variant", v->name);
    skv_json_out_put_integer(&json, "prompt", r->load.prompt);
    skv_json_out_put_integer(&json, "gen", r->load.gen);
    skv_json_out_put_text(&json, "prefill", skv_prefill_name(v->limits.prefill));
    char how[SKV_EVICTION_TEXT];
    skv_eviction_print(&v->limits.eviction, how);
    skv_json_out_put_text(&json, "evict", how);
    skv_json_out_put_integer(&json, "kv_layers", v->kv_layers);
    skv_json_out_put_integer(&json, "group", v->group);
    skv_json_out_put_text(&json, "weights", skv_weights_name(v->limits.weights));
    skv_json_out_put_text(&json, "kv", skv_kv_name(v->limits.kv));
    skv_json_out_put_integer(&json, "threads", v->limits.threads);
    skv_json_out_put_text(&json, "cpu", v->limits.cpu);
    if (v->limits.form) skv_json_out_put_text(&json, "form", v->limits.form);
    skv_json_out_put_integer(&json, "batch", r->load.batch);
    skv_json_out_put_number(&json, "ttft_ms", r->ttft_ms);
    skv_json_out_put_number(&json, "prefill_tok_s", r->prefill_tok_s);
    skv_json_out_put_number(&json, "decode_tok_s", r->decode_tok_s);
    skv_json_out_put_number(&json, "prefill_gflops", r->prefill_gflops);
    skv_json_out_put_number(&json, "model_gflops", r->model_gflops);
    cli_json_put_work(&json, "work", &r->work);
    cli_json_put_drafts(&json, r->drafts);
    skv_json_out_put_number(&json, "decode_gbs", r->decode_gbs);
    if (!isnan(r->prefill_share)) {
        skv_json_out_put_number(&json, "prefill_peak_share", r->prefill_share);
        skv_json_out_put_number(&json, "decode_read_share", r->decode_share);
    }
    skv_json_out_put_integer(&json, "weight_bytes", v->limits.weight_bytes);
    skv_json_out_put_integer(&json, "kv_bytes", r->kv_bytes);
    skv_json_out_put_integer(&json, "peak_rss_bytes", r->peak_rss_bytes);
    skv_json_out_close(&json, '}');
    putchar('\n');
    fflush(stdout);
}

static void print_settings(const bench_variant *v)
{
    printf("%s: %s weights (%.0f MiB), %zu threads, %s\n", v->path,
           skv_weights_name(v->limits.weights), (double)v->limits.weight_bytes / MIB,
           v->limits.threads, v->limits.form ? v->limits.form : v->limits.cpu);
}

void bench_print_header(const bench_variant *v)
{
    print_settings(v);
    printf("%s, %s keys and values\n\n", v->name, skv_kv_name(v->limits.kv));
    printf("%7s %6s %6s %12s %12s %12s %12s %10s %10s\n", "prompt", "gen", "batch", "ttft ms",
           "prompt tok/s", "GFLOP/s", "decode tok/s", "KV MiB", "RSS MiB");
}

void bench_print_row(const bench_variant *v, const bench_result *r)
{
    printf("%7zu %6zu %6zu %12.1f %12.1f %12.1f ", r->load.prompt, r->load.gen, r->load.batch,
           r->ttft_ms, r->prefill_tok_s, r->prefill_gflops);
    if (isnan(r->decode_tok_s)) {
        printf("%12s ", "-");
    } else {
        printf("%12.2f ", r->decode_tok_s);
    }
    printf("%10.1f %10.1f\n", (double)r->kv_bytes / MIB, (double)r->peak_rss_bytes / MIB);
    if (!isnan(r->prefill_share)) {
        printf("%21s prefill at %.1f %% of the %s peak", "", 100 * r->prefill_share,
               skv_weights_name(v->limits.weights));
        if (!isnan(r->decode_share)) {
            printf(", decode at %.1f %% of the read bandwidth", 100 * r->decode_share);
        }
        printf("\n");
    }
    fflush(stdout);
}

/* ---- side by side ---- */

static const struct {
    const char *name;
    int digits;
} lines[] = {{"time to first token (ms)", 0}, {"prompt tokens/s", 1},
             {"decode tokens/s", 2},          {"keys and values (MiB)", 1},
             {"prompt GFLOP/s done", 1},      {"  % of the machine's peak", 1},
             {"decode, % of reading", 1}};

enum { N_LINES = sizeof lines / sizeof lines[0] };

static double value_of(const bench_result *r, size_t i_line)
{
    const double values[N_LINES] = {
        r->ttft_ms,        r->prefill_tok_s,       r->decode_tok_s,      (double)r->kv_bytes / MIB,
        r->prefill_gflops, 100 * r->prefill_share, 100 * r->decode_share};
    return values[i_line];
}

void bench_print_comparison(const bench_variant *variants, const bench_result *results, size_t n)
{
    print_settings(&variants[0]);
    const bench_load *load = &results[0].load;
    printf("%zu prompt tokens, %zu generated", load->prompt, load->gen);
    if (load->batch > 1) printf(", %zu sequences", load->batch);
    printf("\n\n%-26s %13s", "", variants[0].name);
    for (size_t i = 1; i < n; i++) printf(" %24s", variants[i].name);
    printf("\n");
    for (size_t k = 0; k < N_LINES; k++) {
        const double base = value_of(&results[0], k);
        if (isnan(base)) continue;
        printf("%-26s %13.*f", lines[k].name, lines[k].digits, base);
        for (size_t i = 1; i < n; i++) {
            const double value = value_of(&results[i], k);
            printf(" %14.*f (%5.2f x)", lines[k].digits, value, value / base);
        }
        printf("\n");
    }
    printf("\n");
}

void bench_print_peak(const skv_peak *peak, bool json)
{
    if (!json) {
        printf("%s, %zu threads\n\n", peak->cpu, peak->threads);
        printf("f32   %10.1f GFLOP/s  %s\n", peak->f32_gflops, peak->f32_with);
        printf("bf16  %10.1f GFLOP/s  %s\n", peak->bf16_gflops, peak->bf16_with);
        printf("int8  %10.1f GOP/s    %s\n", peak->int8_gops, peak->int8_with);
        printf("int4  %10.1f GOP/s    %s\n", peak->int4_gops, peak->int4_with);
        printf("read  %10.1f GB/s\n", peak->read_gbs);
        return;
    }
    skv_json_out out = {.stream = stdout};
    skv_json_out_open(&out, '{');
    skv_json_out_put_number(&out, "f32_gflops", peak->f32_gflops);
    skv_json_out_put_number(&out, "bf16_gflops", peak->bf16_gflops);
    skv_json_out_put_number(&out, "int8_gops", peak->int8_gops);
    skv_json_out_put_number(&out, "int4_gops", peak->int4_gops);
    skv_json_out_put_number(&out, "read_gbs", peak->read_gbs);
    skv_json_out_put_integer(&out, "threads", peak->threads);
    skv_json_out_put_text(&out, "cpu", peak->cpu);
    skv_json_out_close(&out, '}');
    putchar('\n');
}
