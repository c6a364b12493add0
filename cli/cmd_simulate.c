/* swiftkv simulate: computes the number of machines for a trace, or the load that a number of
 * machines can take. See fleet.h. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/chart.h"
#include "common/json_out.h"
#include "fleet.h"
#include "load_report.h"
#include "options.h"
#include "report.h"

static const double FIRST_RATE = 0.05; /* requests a second, by machine */

enum { MACHINES_MOST = 1 << 16, HALVINGS = 6, SPLITS = 6 };

/* One line of the result. */
typedef struct outcome {
    fleet_design design;
    size_t n_machines, n_readers;
    double rate; /* asked for; 0: the trace's */
    fleet_result result;
    bool met; /* the goals, by the share of requests that has to */
} outcome;

typedef struct simulation {
    const cli_options *options;
    fleet_options base;
    load_trace trace;
    fleet_design designs[FLEET_DESIGNS];
    size_t n_designs;
    outcome *outcomes; /* owned, [n] */
    size_t n;
    cli_progress progress;
} simulation;

/* ---- the command line ---- */

static int read_designs(simulation *s, const char *list)
{
    for (const char *at = list;; at++) {
        const size_t n = strcspn(at, ",");
        size_t i = 0;
        while (i < FLEET_DESIGNS && (strlen(fleet_design_name((fleet_design)i)) != n ||
                                     strncmp(at, fleet_design_name((fleet_design)i), n) != 0)) {
            i++;
        }
        if (i == FLEET_DESIGNS || s->n_designs == FLEET_DESIGNS) {
            return cli_usage("--designs: '%s' is not a list of replicas, store, readers", list);
        }
        s->designs[s->n_designs++] = (fleet_design)i;
        at += n;
        if (!*at) return CLI_DONE;
    }
}

static void set_numbers(simulation *s)
{
    const cli_options *o = s->options;
    fleet_options *base = &s->base;
    base->trace = &s->trace;
    base->limits.max_running = o->max_running;
    base->limits.step_ms = o->step_ms;
    if (o->kv_tokens > 0) base->limits.kv_tokens = o->kv_tokens;
    base->length_scale = o->length_scale;
    base->seed = o->sampling.seed;
    base->link_gbs = o->link_gbs;
    base->store_gbs = o->store_gbs;
    base->store_gb = o->store_gb;
    base->read_above = o->read_above;
    if (o->seconds > 0) base->seconds = o->seconds;
}

static bool has_goals(const load_goals *g)
{
    return g->ttft_ms >= 0 || g->tpot_ms >= 0 || g->e2el_ms >= 0;
}

static int prepare(simulation *s, const cli_options *o)
{
    char error[LOAD_ERROR_MAX];
    *s = (simulation){.options = o, .base = fleet_options_default()};
    if (!o->trace_file) return cli_usage("simulate: --trace FILE is missing");
    set_numbers(s);
    int status = read_designs(s, o->designs);
    if (status == CLI_DONE && o->goals) status = cli_load_goals(o->goals, &s->base.goals);
    const bool finds = o->rates.n == 0 || o->machines.n == 0;
    if (status == CLI_DONE && finds && !has_goals(&s->base.goals)) {
        status = cli_usage("simulate: without both --rate and --machines it looks for one of them, "
                           "which needs --goodput");
    }
    if (status == CLI_DONE && !fleet_costs_read(o->operands[0], &s->base.costs, error)) {
        status = cli_fail("%s", error);
    }
    if (status == CLI_DONE && !load_trace_read(o->trace_file, SIZE_MAX, &s->trace, error)) {
        status = cli_fail("%s", error);
    }
    return status;
}

/* ---- running ---- */

/* Runs one fleet at one rate. `stops`: only determines whether the goals are met. */
static int run_one(simulation *s, outcome *out, double rate, bool stops)
{
    char error[LOAD_ERROR_MAX];
    fleet_options options = s->base;
    const double share = s->options->goal_share;
    options.design = out->design;
    options.n_machines = out->n_machines;
    options.n_readers = out->n_readers;
    options.rate = out->rate = rate;
    options.bad_share_most = stops ? 1 - share : 1;
    if (!fleet_run(&options, &out->result, error)) return cli_fail("%s", error);
    out->met = (double)out->result.n_good >= share * (double)out->result.n_requests;
    return CLI_DONE;
}

/* The numbers of readers that are tried; 0 where the design has none. */
static size_t list_splits(const simulation *s, fleet_design design, size_t n_machines,
                          size_t splits[SPLITS])
{
    static const double shares[SPLITS] = {0.125, 0.25, 0.375, 0.5, 0.625, 0.75};
    size_t n = 0;
    if (design != FLEET_READERS || s->options->n_readers > 0) {
        splits[0] = design == FLEET_READERS ? s->options->n_readers : 0;
        return 1;
    }
    for (size_t i = 0; i < SPLITS; i++) {
        const double wanted = round(shares[i] * (double)n_machines);
        const size_t readers = wanted < 1 ? 1 : (size_t)wanted;
        if (readers < n_machines && (n == 0 || readers > splits[n - 1])) splits[n++] = readers;
    }
    return n;
}

/* Whether some split meets the goals; `out` becomes the first that does, or the best one. */
static int try_splits(simulation *s, outcome *out, double rate)
{
    size_t splits[SPLITS];
    const size_t n = list_splits(s, out->design, out->n_machines, splits);
    outcome best = *out;
    int status = CLI_DONE;
    out->met = false;
    for (size_t i = 0; i < n && status == CLI_DONE && !out->met; i++) {
        out->n_readers = splits[i];
        status = run_one(s, out, rate, true);
        if (i == 0 || out->met || out->result.n_good > best.result.n_good) best = *out;
    }
    *out = best;
    return status;
}

/* The highest rate that the machines take: doubled until it is too much, then halved in between. A
 * low rate may miss goals that a higher one meets, since it sees less of the trace. */
static int find_rate(simulation *s, outcome *out)
{
    double low = 0, high = FIRST_RATE * (double)out->n_machines;
    outcome best = *out, tried = *out;
    int status = CLI_DONE;
    for (size_t i = 0; status == CLI_DONE && (tried.met || (low == 0 && i < HALVINGS)); i++) {
        status = try_splits(s, &tried, high);
        if (tried.met) best = tried;
        if (tried.met) low = high;
        if (tried.met || low == 0) high *= 2;
    }
    if (low == 0) high = FIRST_RATE * (double)out->n_machines;
    for (size_t i = 0; i < HALVINGS && status == CLI_DONE; i++) {
        const double rate = (low + high) / 2;
        status = try_splits(s, &tried, rate);
        *(tried.met ? &low : &high) = rate;
        if (tried.met) best = tried;
    }
    *out = best;
    return status;
}

static int find_machines(simulation *s, outcome *out, double rate)
{
    const size_t least = out->design == FLEET_READERS ? 2 : 1;
    size_t low = least - 1, high = least; /* low is too few */
    outcome best = *out;
    int status = CLI_DONE;
    for (bool met = false; !met && status == CLI_DONE;) {
        out->n_machines = high;
        status = try_splits(s, out, rate);
        met = out->met;
        if (met) best = *out;
        if (!met) low = high;
        if (!met) high *= 2;
        if (high > MACHINES_MOST) return status;
    }
    while (high - low > 1 && status == CLI_DONE) {
        out->n_machines = low + (high - low) / 2;
        status = try_splits(s, out, rate);
        *(out->met ? &high : &low) = out->n_machines;
        if (out->met) best = *out;
    }
    *out = best;
    return status;
}

/* Of the rate or the machines that were found, all numbers. */
static int finish(simulation *s, outcome *out)
{
    return out->met ? run_one(s, out, out->rate, false) : CLI_DONE;
}

static int run_design(simulation *s, fleet_design design)
{
    const cli_options *o = s->options;
    const size_t n_rates = o->rates.n > 0 ? o->rates.n : 1;
    const size_t n_fleets = o->machines.n > 0 ? o->machines.n : 1;
    int status = CLI_DONE;
    for (size_t k = 0; k < n_rates * n_fleets && status == CLI_DONE; k++) {
        outcome *out = &s->outcomes[s->n];
        const double rate = o->rates.n > 0 ? o->rates.at[k % n_rates] : 0;
        *out = (outcome){.design = design};
        if (o->machines.n == 0) {
            status = find_machines(s, out, rate);
        } else {
            out->n_machines = o->machines.at[k / n_rates];
            if (design == FLEET_READERS && out->n_machines < 2) continue; /* none would answer */
            status = o->rates.n == 0 ? find_rate(s, out) : try_splits(s, out, rate);
            if (status == CLI_DONE && o->rates.n > 0) status = run_one(s, out, rate, false);
        }
        if (status == CLI_DONE && (o->machines.n == 0 || o->rates.n == 0)) status = finish(s, out);
        s->n++;
        cli_progress_items(&s->progress, fleet_design_name(design), s->n,
                           s->n_designs * n_rates * n_fleets);
    }
    return status;
}

/* ---- telling ---- */

/* Returns the part with the least capacity to spare. */
static const char *busiest(const fleet_result *r)
{
    const struct {
        const char *name;
        double share;
    } parts[] = {{"answering", r->answer_busy},
                 {"reading", r->reader_busy},
                 {"the store's network", r->store_link},
                 {"a machine's network", r->most_link}};
    size_t best = 0;
    for (size_t i = 1; i < sizeof parts / sizeof *parts; i++) {
        if (parts[i].share > parts[best].share) best = i;
    }
    return parts[best].name;
}

static void print_table(const simulation *s)
{
    printf("%-9s %8s %7s %9s %6s %9s %9s %8s %8s %6s %6s %6s %6s\n", "design", "machines",
           "readers", "requests/s", "good", "TTFT p50", "p99 ms", "TPOT p50", "p99 ms", "cached",
           "busy", "read", "store");
    for (size_t i = 0; i < s->n; i++) {
        const outcome *o = &s->outcomes[i];
        const fleet_result *r = &o->result;
        if (!o->met && (s->options->machines.n == 0 || s->options->rates.n == 0)) {
            printf("%-9s %8zu: no answer meets the goals\n", fleet_design_name(o->design),
                   o->n_machines);
            continue;
        }
        printf("%-9s %8zu %7zu %10.3f %5.1f%% %9.0f %9.0f %8.1f %8.1f %5.0f%% %5.0f%% %5.0f%% "
               "%5.0f%%  %s\n",
               fleet_design_name(o->design), o->n_machines, o->n_readers, r->rate,
               100 * (double)r->n_good / fmax(1, (double)r->n_requests), r->ttft.median,
               r->ttft.p99, r->tpot.median, r->tpot.p99, 100 * r->found_share, 100 * r->answer_busy,
               100 * r->reader_busy, 100 * r->store_link, busiest(r));
    }
}

static void put_outcome(skv_json_out *json, const outcome *o)
{
    const fleet_result *r = &o->result;
    skv_json_out_open(json, '{');
    skv_json_out_put_text(json, "design", fleet_design_name(o->design));
    skv_json_out_put_integer(json, "machines", o->n_machines);
    skv_json_out_put_integer(json, "readers", o->n_readers);
    skv_json_out_key(json, "met");
    skv_json_out_bool(json, o->met);
    skv_json_out_put_number(json, "request_rate", r->rate);
    skv_json_out_put_integer(json, "requests", r->n_requests);
    skv_json_out_put_integer(json, "good", r->n_good);
    skv_json_out_put_integer(json, "refused", r->n_refused);
    const struct {
        const char *name;
        const load_summary *of;
    } all[] = {{"ttft", &r->ttft}, {"tpot", &r->tpot}, {"e2el", &r->e2el}};
    for (size_t i = 0; i < 3; i++) {
        char key[32];
        const double values[] = {all[i].of->mean, all[i].of->median, all[i].of->p90,
                                 all[i].of->p99};
        static const char *const names[] = {"mean", "median", "p90", "p99"};
        for (size_t k = 0; k < 4; k++) {
            (void)snprintf(key, sizeof key, "%s_%s_ms", names[k], all[i].name);
            skv_json_out_put_number(json, key, values[k]);
        }
    }
    skv_json_out_put_number(json, "cached_share", r->found_share);
    skv_json_out_put_number(json, "answering_busy", r->answer_busy);
    skv_json_out_put_number(json, "reading_busy", r->reader_busy);
    skv_json_out_put_number(json, "store_network", r->store_link);
    skv_json_out_put_number(json, "machine_network", r->most_link);
    skv_json_out_close(json, '}');
}

static void print_json(const simulation *s)
{
    skv_json_out json = {.stream = stdout};
    skv_json_out_open(&json, '[');
    for (size_t i = 0; i < s->n; i++) put_outcome(&json, &s->outcomes[i]);
    skv_json_out_close(&json, ']');
    putchar('\n');
}

/* The highest rate by machine, for each design over the number of machines. */
static int draw(const simulation *s, const char *path)
{
    double *x = cli_alloc(2 * s->n, sizeof *x), *y = x + s->n;
    skv_series series[FLEET_DESIGNS] = {0};
    size_t n_series = 0;
    for (size_t i = 0; i < s->n; i++) {
        const outcome *o = &s->outcomes[i];
        x[i] = (double)o->n_machines;
        y[i] = o->met ? o->result.rate / (double)o->n_machines : (double)NAN;
        if (i == 0 || o->design != o[-1].design) {
            series[n_series] =
                (skv_series){fleet_design_name(o->design), x + i, y + i, 0, .colour = n_series};
            n_series++;
        }
        series[n_series - 1].n++;
    }
    const skv_panel panel = {
        .y_label = "requests a second, by machine", .series = series, .n_series = n_series};
    const skv_chart chart = {.title = "What a machine takes",
                             .subtitle = s->options->trace_file,
                             .x_label = "machines",
                             .panels = &panel,
                             .n_panels = 1,
                             .log_x = true};
    skv_error err = {0};
    const int status = cli_check(skv_chart_write(path, &chart, &err), &err);
    free(x);
    return status;
}

int cli_run_simulate(const cli_options *options)
{
    simulation s;
    int status = prepare(&s, options);
    if (status == CLI_DONE) {
        const size_t n_rates = options->rates.n > 0 ? options->rates.n : 1;
        const size_t n_fleets = options->machines.n > 0 ? options->machines.n : 1;
        s.outcomes = cli_alloc(s.n_designs * n_rates * n_fleets, sizeof *s.outcomes);
        cli_progress_begin(&s.progress, "simulating");
        for (size_t d = 0; d < s.n_designs && status == CLI_DONE; d++) {
            status = run_design(&s, s.designs[d]);
        }
        cli_progress_end(&s.progress);
    }
    if (status == CLI_DONE && options->json) print_json(&s);
    if (status == CLI_DONE && !options->json) print_table(&s);
    if (status == CLI_DONE && options->svg_file) status = draw(&s, options->svg_file);
    free(s.outcomes);
    load_trace_release(&s.trace);
    return status;
}
