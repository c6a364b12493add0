/* Results of a load: see load_report.h. Names are those of vLLM's benchmark. */
#include "load_report.h"

#include <math.h>
#include <stdlib.h>

#include "common/chart.h"
#include "common/json_out.h"

typedef struct metric {
    const char *key, *label;
    size_t offset; /* of its summary in load_result */
} metric;

static const metric metrics[] = {
    {"ttft", "time to first token", offsetof(load_result, ttft)},
    {"tpot", "time per output token", offsetof(load_result, tpot)},
    {"itl", "inter-token latency", offsetof(load_result, itl)},
    {"e2el", "end-to-end", offsetof(load_result, e2el)},
};
enum { N_METRICS = sizeof metrics / sizeof metrics[0] };

static const load_summary *summary_of(const load_result *r, const metric *m)
{
    return (const load_summary *)(const void *)((const char *)r + m->offset);
}

static double per_second(double n, const load_result *r)
{
    return r->duration_s > 0 ? n / r->duration_s : 0;
}

static bool has_goals(const load_options *o)
{
    return o->goals.ttft_ms >= 0 || o->goals.tpot_ms >= 0 || o->goals.e2el_ms >= 0;
}

/* ---- text ---- */

static void print_heading(const cli_load_run *run)
{
    const load_options *o = &run->options;
    printf("%s, %s", run->result.model, o->chat ? "chat" : "completions");
    if (o->method) printf(", swiftkv %s", o->method);
    if (o->rate > 0) printf(", %g requests/s", o->rate);
    if (o->arrivals == LOAD_TRACE && o->rate <= 0) printf(", trace at %g times", o->time_scale);
    if (o->arrivals == LOAD_AT_ONCE) printf(", %zu at once", o->clients);
    putchar('\n');
}

static void print_errors(const load_result *r)
{
    for (size_t i = 0; i < LOAD_OUTCOMES; i++) {
        if (i == LOAD_DONE || i == LOAD_HTTP || r->outcomes[i] == 0) continue;
        printf("  %-24s %10zu\n", load_outcome_name((load_outcome)i), r->outcomes[i]);
    }
    for (size_t i = 0; i < LOAD_STATUSES; i++) {
        if (r->statuses[i] > 0)
            printf("  http_%-19zu %10zu\n", i + LOAD_STATUS_FIRST, r->statuses[i]);
    }
    if (r->first_error[0] != 0) cli_warn("%s", r->first_error);
}

/* Values that were not measured are not printed as 0. */
static void print_metric(const metric *m, const load_summary *s)
{
    if (s->n == 0) {
        printf("  %-24s %10s %10s %10s %10s %10s\n", m->label, "-", "-", "-", "-", "-");
        return;
    }
    printf("  %-24s %10.2f %10.2f %10.2f %10.2f %10.2f\n", m->label, s->mean, s->median, s->std,
           s->p90, s->p99);
}

void cli_load_print(const cli_load_run *run)
{
    const load_result *r = &run->result;
    const double in = (double)r->input_tokens, out = (double)r->output_tokens;
    print_heading(run);
    printf("  completed                %10zu of %zu in %.2f s\n", r->n_completed, r->n_started,
           r->duration_s);
    print_errors(r);
    if (r->n_late > 0) {
        printf("  begun late               %10zu by up to %.3f s: all %zu clients were busy\n",
               r->n_late, r->lateness_s_max, run->options.clients);
    }
    printf("  requests/s               %10.3f\n", per_second((double)r->n_completed, r));
    if (has_goals(&run->options)) {
        printf("  goodput, requests/s      %10.3f (%zu of %zu)\n", per_second((double)r->n_good, r),
               r->n_good, r->n_completed);
    }
    printf("  output tokens/s          %10.1f (%.0f tokens)\n", per_second(out, r), out);
    printf("  all tokens/s             %10.1f (%.0f tokens of prompts", per_second(in + out, r),
           in);
    if (r->n_tell_cached > 0) printf(", %.0f of them cached", (double)r->cached_tokens);
    printf(")\n");
    printf("  milliseconds                   mean     median        std        p90        p99\n");
    for (size_t i = 0; i < N_METRICS; i++) print_metric(&metrics[i], summary_of(r, &metrics[i]));
}

/* ---- JSON ---- */

static void put_metric(skv_json_out *json, const metric *m, const load_summary *s)
{
    const struct {
        const char *name;
        double value;
    } parts[] = {{"mean", s->mean},
                 {"median", s->median},
                 {"std", s->std},
                 {"p90", s->p90},
                 {"p99", s->p99}};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        char key[32];
        snprintf(key, sizeof key, "%s_%s_ms", parts[i].name, m->key);
        skv_json_out_put_number(json, key, s->n > 0 ? parts[i].value : (double)NAN); /* null */
    }
}

static void put_errors(skv_json_out *json, const load_result *r)
{
    char key[16];
    skv_json_out_put_open(json, "errors_by_kind", '{');
    for (size_t i = 0; i < LOAD_OUTCOMES; i++) {
        if (i == LOAD_DONE || i == LOAD_HTTP || r->outcomes[i] == 0) continue;
        skv_json_out_put_integer(json, load_outcome_name((load_outcome)i), r->outcomes[i]);
    }
    for (size_t i = 0; i < LOAD_STATUSES; i++) {
        if (r->statuses[i] == 0) continue;
        snprintf(key, sizeof key, "http_%zu", i + LOAD_STATUS_FIRST);
        skv_json_out_put_integer(json, key, r->statuses[i]);
    }
    skv_json_out_close(json, '}');
}

static void put_settings(skv_json_out *json, const cli_load_run *run)
{
    static const char *const arrivals[] = {"at-once", "poisson", "fixed", "trace"};
    const load_options *o = &run->options;
    skv_json_out_put_text(json, "date", run->date);
    skv_json_out_put_text(json, "backend", o->chat ? "openai-chat" : "openai");
    skv_json_out_put_text(json, "base_url", o->url);
    skv_json_out_put_text(json, "model_id", run->result.model);
    if (o->method) skv_json_out_put_text(json, "swiftkv", o->method);
    skv_json_out_put_text(json, "arrivals", arrivals[o->arrivals]);
    skv_json_out_key(json, "request_rate");
    if (o->rate > 0) {
        skv_json_out_number(json, o->rate);
    } else {
        skv_json_out_text(json, "inf", 3);
    }
    skv_json_out_put_integer(json, "max_concurrency", o->clients);
    skv_json_out_put_integer(json, "num_prompts", run->result.n_started);
}

static void put_run(skv_json_out *json, const cli_load_run *run)
{
    const load_result *r = &run->result;
    const double in = (double)r->input_tokens, out = (double)r->output_tokens;
    skv_json_out_open(json, '{');
    put_settings(json, run);
    skv_json_out_put_number(json, "duration", r->duration_s);
    skv_json_out_put_integer(json, "completed", r->n_completed);
    skv_json_out_put_integer(json, "failed", r->n_failed);
    skv_json_out_put_integer(json, "cancelled", r->outcomes[LOAD_CANCELLED]);
    put_errors(json, r);
    skv_json_out_put_integer(json, "total_input_tokens", r->input_tokens);
    if (r->n_tell_cached > 0) {
        skv_json_out_put_integer(json, "total_cached_tokens", r->cached_tokens);
    }
    skv_json_out_put_integer(json, "total_output_tokens", r->output_tokens);
    skv_json_out_put_number(json, "request_throughput", per_second((double)r->n_completed, r));
    skv_json_out_key(json, "request_goodput");
    if (has_goals(&run->options)) {
        skv_json_out_number(json, per_second((double)r->n_good, r));
    } else {
        skv_json_out_null(json);
    }
    skv_json_out_put_number(json, "output_throughput", per_second(out, r));
    skv_json_out_put_number(json, "total_token_throughput", per_second(in + out, r));
    skv_json_out_put_integer(json, "max_concurrent_requests", r->n_at_once_max);
    skv_json_out_put_integer(json, "late_requests", r->n_late);
    skv_json_out_put_number(json, "max_lateness_ms", r->lateness_s_max * 1e3);
    for (size_t i = 0; i < N_METRICS; i++)
        put_metric(json, &metrics[i], summary_of(r, &metrics[i]));
    skv_json_out_close(json, '}');
}

void cli_load_json(FILE *stream, const cli_load_run *runs, size_t n)
{
    skv_json_out json = {.stream = stream};
    if (n > 1) skv_json_out_open(&json, '[');
    for (size_t i = 0; i < n; i++) put_run(&json, &runs[i]);
    if (n > 1) skv_json_out_close(&json, ']');
    fputc('\n', stream);
}

/* ---- the chart ---- */

/* Two lines a method and metric: the median, and dashed the 99th percentile. */
enum { LINES = 2, SHOWN = 2, METHODS_MAX = 8 };

typedef struct lines {
    skv_series series[SHOWN][METHODS_MAX * LINES];
    char names[METHODS_MAX * LINES][64];
    double *numbers; /* owned: x, then y of every line */
} lines;

/* Runs are in the order of methods, and of rates within each. */
static void fill_lines(lines *l, const cli_load_run *runs, size_t n_rates, size_t n_methods)
{
    double *x = l->numbers, *y = x + n_rates;
    for (size_t i = 0; i < n_rates; i++) x[i] = runs[i].options.rate;
    for (size_t m = 0; m < n_methods; m++) {
        const cli_load_run *first = &runs[m * n_rates];
        const char *method = first->options.method;
        for (size_t k = 0; k < LINES; k++) {
            char *name = l->names[m * LINES + k];
            snprintf(name, sizeof l->names[0], "%.40s%s%s", method ? method : "",
                     method ? ", " : "", k == 0 ? "median" : "p99");
            for (size_t s = 0; s < SHOWN; s++) {
                for (size_t i = 0; i < n_rates; i++) {
                    const load_summary *summary = summary_of(&first[i].result, &metrics[s]);
                    const double value = k == 0 ? summary->median : summary->p99;
                    y[i] = summary->n > 0 && value > 0 ? value : (double)NAN;
                }
                l->series[s][m * LINES + k] =
                    (skv_series){name, x, y, n_rates, m == 0 ? 0 : m, .dashed = k > 0};
                y += n_rates;
            }
        }
    }
}

int cli_load_draw(const char *path, const cli_load_run *runs, size_t n, size_t n_methods)
{
    const size_t n_rates = n_methods > 0 ? n / n_methods : 0;
    if (n_rates == 0 || n_methods > METHODS_MAX) {
        return cli_fail("%s: at most %d methods can be drawn", path, METHODS_MAX);
    }
    lines l = {.numbers = cli_alloc(n_rates * (1 + n_methods * LINES * SHOWN), sizeof(double))};
    fill_lines(&l, runs, n_rates, n_methods);
    const skv_panel panels[SHOWN] = {
        {.y_label = "TTFT, ms", .series = l.series[0], .n_series = n_methods * LINES, .log = true},
        {.y_label = "TPOT, ms", .series = l.series[1], .n_series = n_methods * LINES, .log = true}};
    const skv_chart chart = {.title = "Latency against load",
                             .subtitle = runs[0].result.model,
                             .x_label = "requests a second",
                             .panels = panels,
                             .n_panels = SHOWN};
    skv_error err = {0};
    const int status = cli_check(skv_chart_write(path, &chart, &err), &err);
    free(l.numbers);
    return status;
}
