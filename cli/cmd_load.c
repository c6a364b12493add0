/* swiftkv load: requests for a server, and how long its answers take. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "input.h"
#include "interrupt.h"
#include "load_report.h"
#include "load_requests.h"
#include "report.h"
#include "skv/tools.h"

enum { METHODS_MAX = 8, CLIENTS_TIMED = 1024, WORDS_BYTES = 1 << 16, KEY_MAX = 512 };

/* Everything that the options of the runs borrow. */
typedef struct load_setup {
    load_options base;
    char model[256], key[KEY_MAX];
    char *methods; /* owned: names, each ended by a zero */
    const char *method[METHODS_MAX];
    size_t n_methods; /* at least 1; method[0] may be NULL: the field is not sent */
    cli_bytes text;
    load_trace trace;
    json_t *extra;
    FILE *log;
    cli_progress progress;
    cli_interrupt *interrupt;
} load_setup;

/* ---- the command line ---- */

static int read_key(const char *path, char *key)
{
    cli_bytes file = {0};
    const int status = cli_read_file(path, &file);
    if (status != CLI_DONE) return status;
    const size_t n = strcspn(file.data, "\r\n");
    const bool fits = n > 0 && n < KEY_MAX;
    if (fits) memcpy(key, file.data, n + 1);
    if (fits) key[n] = 0;
    cli_bytes_release(&file);
    return fits ? CLI_DONE : cli_fail("%s: the first line is not an API key", path);
}

/* Parses "ttft:300,tpot:50"; goals that are not listed keep their values. */
static int read_goals(const char *list, load_goals *out)
{
    struct {
        const char *name;
        double *value;
    } const goals[] = {
        {"ttft:", &out->ttft_ms}, {"tpot:", &out->tpot_ms}, {"e2el:", &out->e2el_ms}};
    for (const char *at = list;; at++) {
        size_t i = 0;
        while (i < 3 && strncmp(at, goals[i].name, 5) != 0) i++;
        char *end = NULL;
        const double value = i < 3 ? strtod(at + 5, &end) : -1;
        if (!end || !(value > 0) || (*end != ',' && *end != 0)) {
            return cli_usage("--goodput: '%s' is not like ttft:500,tpot:50,e2el:5000", list);
        }
        *goals[i].value = value;
        if (*end == 0) return CLI_DONE;
        at = end;
    }
}

static int read_methods(load_setup *s, const char *list)
{
    const size_t n = strlen(list) + 1;
    s->methods = cli_alloc(n, 1);
    memcpy(s->methods, list, n);
    s->n_methods = 0;
    for (char *at = s->methods;;) {
        char *end = at + strcspn(at, ",");
        const bool last = *end == 0;
        *end = 0;
        if (end == at || s->n_methods == METHODS_MAX) {
            return cli_usage("--methods: '%s' is not a list of 1 to %d names", list, METHODS_MAX);
        }
        s->method[s->n_methods++] = at;
        if (last) return CLI_DONE;
        at = end + 1;
    }
}

static int read_extra(load_setup *s, const char *text)
{
    json_error_t error;
    s->extra = json_loads(text, 0, &error);
    if (json_is_object(s->extra)) return CLI_DONE;
    return cli_usage("--extra-body: not a JSON object: %s", error.text);
}

static int read_prompts(load_setup *s, const cli_options *o)
{
    char error[LOAD_ERROR_MAX];
    int status = CLI_DONE;
    if (o->trace_file) {
        const size_t most = o->count != CLI_NOT_GIVEN ? o->count : SIZE_MAX;
        if (!load_trace_read(o->trace_file, most, &s->trace, error)) return cli_fail("%s", error);
        s->base.trace = &s->trace;
    }
    if (o->text_file) {
        status = cli_read_file(o->text_file, &s->text);
        if (status == CLI_DONE && s->text.n == 0) status = cli_fail("%s: empty", o->text_file);
        if (status == CLI_DONE) status = cli_check_text(o->text_file, &s->text);
    } else if (o->chat_api) {
        s->text.data = load_request_words(WORDS_BYTES, o->sampling.seed);
        s->text.n = s->text.data ? strlen(s->text.data) : 0;
        if (s->text.n == 0) status = cli_fail("no memory for prompts");
    }
    s->base.text = s->text.data;
    s->base.n_text = s->text.n;
    return status;
}

static load_arrivals arrivals_of(const cli_options *o)
{
    if (o->arrivals && strcmp(o->arrivals, "fixed") == 0) return LOAD_FIXED;
    if (o->arrivals && strcmp(o->arrivals, "poisson") == 0) return LOAD_POISSON;
    if (o->trace_file) return LOAD_TRACE;
    return o->rates.n > 0 ? LOAD_POISSON : LOAD_AT_ONCE;
}

static void set_numbers(load_setup *s, const cli_options *o)
{
    load_options *base = &s->base;
    base->url = o->operands[0];
    base->model = o->served_name;
    base->chat = o->chat_api;
    base->vocab = o->vocab_size;
    base->prompt_lengths = o->prompt_lengths.at;
    base->n_prompt_lengths = o->prompt_lengths.n;
    base->output_tokens = o->gen_tokens;
    base->length_scale = o->length_scale;
    base->time_scale = o->time_scale;
    base->seed = o->sampling.seed;
    base->arrivals = arrivals_of(o);
    base->clients = o->clients > 0                   ? o->clients
                    : base->arrivals == LOAD_AT_ONCE ? 1
                                                     : CLIENTS_TIMED;
    if (o->count != CLI_NOT_GIVEN) base->n_requests = o->count;
    if (o->count == CLI_NOT_GIVEN && o->trace_file) base->n_requests = SIZE_MAX;
    base->seconds = o->seconds;
    if (o->seconds > 0 && o->count == CLI_NOT_GIVEN) base->n_requests = SIZE_MAX;
    if (o->request_seconds > 0) base->timeout_seconds = o->request_seconds;
    base->cancel_share = o->cancel_share;
    base->cancel_seconds_max = o->cancel_seconds;
    base->ignore_eos = o->ignore_eos;
}

static bool on_progress(void *user, size_t n_done, size_t n_total)
{
    load_setup *s = user;
    const double seconds = s->base.seconds;
    if (n_total < SIZE_MAX) {
        cli_progress_items(&s->progress, "requests", n_done, n_total);
    } else if (seconds > 0) {
        const double since = (double)(skv_now_ns() - s->progress.start_ns) * 1e-9;
        cli_progress_share(&s->progress, since < seconds ? since / seconds : 1);
    }
    return !cli_interrupted(s->interrupt);
}

static int prepare(load_setup *s, const cli_options *o)
{
    char error[LOAD_ERROR_MAX];
    int status = CLI_DONE;
    *s = (load_setup){.base = load_options_default(), .n_methods = 1, .interrupt = o->interrupt};
    set_numbers(s, o);
    if (!load_is_built()) status = cli_fail("load: this swiftkv was built without libcurl");
    if (status == CLI_DONE && o->key_file) {
        status = read_key(o->key_file, s->key);
        s->base.key = s->key;
    }
    if (status == CLI_DONE && o->goals) status = read_goals(o->goals, &s->base.goals);
    if (status == CLI_DONE && o->methods) status = read_methods(s, o->methods);
    if (status == CLI_DONE && o->extra_body) status = read_extra(s, o->extra_body);
    s->base.extra = s->extra;
    if (status == CLI_DONE) status = read_prompts(s, o);
    if (status == CLI_DONE && o->log_file) {
        s->log = fopen(o->log_file, "ab");
        if (!s->log) status = cli_fail("%s: %s", o->log_file, strerror(errno));
    }
    if (status == CLI_DONE && !load_ask_server(&s->base, s->model, sizeof s->model, error)) {
        status = cli_fail("%s", error);
    }
    s->base.progress = on_progress;
    s->base.user = s;
    return status;
}

static int release(load_setup *s, const cli_options *o, int status)
{
    if (s->log) {
        const bool failed = ferror(s->log) != 0;
        const bool not_closed = fclose(s->log) != 0;
        if ((failed || not_closed) && status == CLI_DONE) {
            status = cli_fail("%s: %s", o->log_file, strerror(errno));
        }
    }
    free(s->methods);
    json_decref(s->extra);
    load_trace_release(&s->trace);
    cli_bytes_release(&s->text);
    return status;
}

/* ---- the runs ---- */

static void set_date(cli_load_run *run)
{
    const time_t now = time(NULL);
    struct tm parts;
    run->date[0] = 0;
    if (gmtime_r(&now, &parts)) {
        (void)strftime(run->date, sizeof run->date, "%Y%m%d-%H%M%S", &parts);
    }
}

/* Prompts differ from run to run: the server may remember those of earlier ones. */
static int run_one(load_setup *s, const cli_options *o, cli_load_run *run, size_t i_run)
{
    char error[LOAD_ERROR_MAX];
    bool ok = true;
    run->options.seed = s->base.seed + 2 * i_run;
    if (o->n_warmup > 0) {
        load_options warm = run->options;
        warm.arrivals = LOAD_AT_ONCE;
        warm.n_requests = o->n_warmup;
        warm.seed++;
        warm.log = NULL;
        cli_progress_begin(&s->progress, "warming up");
        ok = load_run(&warm, &run->result, error);
    }
    run->options.log = s->log;
    cli_progress_begin(&s->progress, "load");
    set_date(run);
    ok = ok && load_run(&run->options, &run->result, error);
    cli_progress_end(&s->progress);
    if (!ok) return cli_fail("%s", error);
    if (!o->json) cli_load_print(run);
    fflush(stdout);
    return CLI_DONE;
}

static int write_results(const cli_options *o, const cli_load_run *runs, size_t n, size_t n_methods)
{
    int status = CLI_DONE;
    if (o->json) cli_load_json(stdout, runs, n);
    if (o->out_file) {
        FILE *file = fopen(o->out_file, "wb");
        if (!file) return cli_fail("%s: %s", o->out_file, strerror(errno));
        cli_load_json(file, runs, n);
        const bool failed = ferror(file) != 0;
        const bool not_closed = fclose(file) != 0;
        if (failed || not_closed) status = cli_fail("%s: %s", o->out_file, strerror(errno));
    }
    if (status == CLI_DONE && o->svg_file) {
        status = cli_load_draw(o->svg_file, runs, n, n_methods);
    }
    return status;
}

static int run_all(load_setup *s, const cli_options *o)
{
    const size_t n_rates = o->rates.n > 0 ? o->rates.n : 1, n = s->n_methods * n_rates;
    cli_load_run *runs = cli_alloc(n, sizeof *runs);
    size_t n_done = 0, n_completed = 0;
    int status = CLI_DONE;
    cli_interrupt_watch(s->interrupt, NULL);
    while (n_done < n && status == CLI_DONE && !cli_interrupted(s->interrupt)) {
        cli_load_run *run = &runs[n_done];
        run->options = s->base;
        run->options.method = s->method[n_done / n_rates];
        if (o->rates.n > 0) run->options.rate = o->rates.at[n_done % n_rates];
        status = run_one(s, o, run, n_done);
        n_completed += run->result.n_completed;
        n_done++;
    }
    const bool interrupted = cli_interrupted(s->interrupt);
    cli_interrupt_unwatch(s->interrupt);
    if (status == CLI_DONE && n_done == n) {
        status = write_results(o, runs, n, s->n_methods);
    } else if (status == CLI_DONE) {
        cli_options without = *o;
        without.svg_file = NULL; /* rates are missing */
        status = write_results(&without, runs, n_done, s->n_methods);
    }
    free(runs);
    if (status == CLI_DONE && n_completed == 0 && !interrupted) {
        status = cli_fail("load: no request was answered");
    }
    return status;
}

int cli_run_load(const cli_options *options)
{
    load_setup setup;
    int status = prepare(&setup, options);
    if (status == CLI_DONE) status = run_all(&setup, options);
    return release(&setup, options, status);
}
