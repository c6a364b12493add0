/*
 * A run: requests begin when their time has come and a client is free, and one thread serves them
 * all.
 */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>

#include "load.h"
#include "load_http.h"
#include "load_requests.h"
#include "skv/tools.h"
#include "stream_answer.h"

static const double PROGRESS_SECONDS = 0.1, LATE_SECONDS = 0.005;

/* A client: it has one request at a time. */
typedef struct client {
    load_call call;
    struct run *run;
    bool busy;
    load_arrival arrival;
    double cancel_s; /* on the clock of the run; negative: not */
    skv_buf body;    /* owned */
    stream_answer answer;
} client;

typedef struct run {
    const load_options *options;
    load_http *http;
    arrival_clock clock;
    client *clients; /* owned, [options->clients] */
    client **idle;   /* owned, [n_idle] of them */
    size_t n_idle;
    load_tally tally;
    load_result *result;
    uint64_t start_ns, random_cancel;
    double end_s; /* of the last answer */
} run;

const char *load_outcome_name(load_outcome outcome)
{
    static const char *const names[LOAD_OUTCOMES] = {
        [LOAD_DONE] = "done",           [LOAD_UNREACHABLE] = "unreachable",
        [LOAD_TIMEOUT] = "timeout",     [LOAD_CUT] = "cut",
        [LOAD_HTTP] = "http",           [LOAD_MALFORMED] = "malformed",
        [LOAD_REFUSED] = "error_event", [LOAD_EMPTY] = "empty",
        [LOAD_CANCELLED] = "cancelled", [LOAD_STOPPED] = "stopped"};
    return outcome < LOAD_OUTCOMES ? names[outcome] : "?";
}

load_options load_options_default(void)
{
    return (load_options){.output_tokens = 64,
                          .length_scale = 1,
                          .time_scale = 1,
                          .clients = 1,
                          .n_requests = 100,
                          .timeout_seconds = 600,
                          .cancel_seconds_max = 1,
                          .goals = {-1, -1, -1}};
}

static double now_s(const run *r)
{
    return (double)(skv_now_ns() - r->start_ns) * 1e-9;
}

/* ---- one request ---- */

static void write_log(const client *c, load_outcome outcome)
{
    FILE *log = c->run->options->log;
    const stream_answer *a = &c->answer;
    if (!log) return;
    fprintf(log,
            "{\"index\":%zu,\"outcome\":\"%s\",\"status\":%d,\"start_time\":%.6f,"
            "\"input_len\":%llu,\"output_len\":%llu",
            c->arrival.index, load_outcome_name(outcome), c->call.status, a->begun_s,
            (unsigned long long)a->input_tokens, (unsigned long long)a->output_tokens);
    if (a->tells_cached) {
        fprintf(log, ",\"cached_tokens\":%llu", (unsigned long long)a->cached_tokens);
    }
    if (a->first_s >= 0) {
        fprintf(log, ",\"ttft\":%.6f,\"latency\":%.6f,\"itl\":[", a->first_s - a->begun_s,
                a->last_s - a->begun_s);
        for (size_t i = 0; i < a->n_gaps; i++) {
            fprintf(log, "%s%.6f", i > 0 ? "," : "", (double)a->gaps_ms[i] * 1e-3);
        }
        fputc(']', log);
    }
    fputs("}\n", log);
}

static void keep_error(client *c, load_outcome outcome, const char *detail)
{
    char *to = c->run->result->first_error;
    if (to[0] != 0 || detail[0] == 0) return;
    (void)snprintf(to, sizeof c->run->result->first_error, "request %zu: %s: %.200s",
                   c->arrival.index, load_outcome_name(outcome), detail);
}

static void end_request(client *c, load_outcome outcome)
{
    run *r = c->run;
    if (c->answer.input_tokens == 0) c->answer.input_tokens = c->arrival.n_prompt;
    tally_add(&r->tally, &r->options->goals, &c->answer, outcome, c->call.status, r->result);
    write_log(c, outcome);
    r->end_s = now_s(r);
    c->busy = false;
    r->idle[r->n_idle++] = c;
}

static bool on_data(load_call *call, const char *bytes, size_t n)
{
    client *c = call->user;
    return stream_answer_feed(&c->answer, bytes, n, now_s(c->run));
}

static void on_end(load_call *call)
{
    client *c = call->user;
    load_outcome outcome = call->outcome;
    const char *detail = call->detail;
    if (outcome == LOAD_DONE || outcome == LOAD_MALFORMED) {
        outcome = stream_answer_finish(&c->answer);
        detail = c->answer.detail;
    }
    if (outcome != LOAD_DONE) keep_error(c, outcome, detail);
    end_request(c, outcome);
}

static void count_lateness(run *r, const load_arrival *arrival, double now)
{
    const double late = now - arrival->at_s;
    if (r->options->arrivals == LOAD_AT_ONCE || late < LATE_SECONDS) return;
    r->result->n_late++;
    if (late > r->result->lateness_s_max) r->result->lateness_s_max = late;
}

static bool begin_request(run *r, const load_arrival *arrival)
{
    const load_options *o = r->options;
    client *c = r->idle[--r->n_idle];
    c->busy = true;
    c->arrival = *arrival;
    if (!load_request_body(r->options, arrival, &c->body)) return false;
    const double now = now_s(r);
    count_lateness(r, arrival, now);
    stream_answer_begin(&c->answer, now);
    c->cancel_s = -1;
    if (load_draw_share(&r->random_cancel) < o->cancel_share) {
        c->cancel_s = now + o->cancel_seconds_max * load_draw_share(&r->random_cancel);
    }
    c->call = (load_call){.path = o->chat ? "/v1/chat/completions" : "/v1/completions",
                          .body = c->body.data,
                          .n_body = c->body.size,
                          .timeout_seconds = o->timeout_seconds,
                          .on_data = on_data,
                          .on_end = on_end,
                          .user = c};
    r->result->n_started++;
    const size_t n_busy = o->clients - r->n_idle;
    if (n_busy > r->result->n_at_once_max) r->result->n_at_once_max = n_busy;
    return load_http_begin(r->http, &c->call);
}

/* ---- all requests ---- */

/* Cuts the requests that are due, or all; returns when the next one is due. */
static double cancel_due(run *r, double now, bool all)
{
    const load_options *o = r->options;
    double next = now + PROGRESS_SECONDS;
    for (size_t i = 0; (all || o->cancel_share > 0) && i < o->clients; i++) {
        client *c = &r->clients[i];
        if (!c->busy) continue;
        const bool due = c->cancel_s >= 0 && c->cancel_s <= now;
        if (all || due) {
            load_http_drop(r->http, &c->call);
            end_request(c, due ? LOAD_CANCELLED : LOAD_STOPPED);
        } else if (c->cancel_s >= 0 && c->cancel_s < next) {
            next = c->cancel_s;
        }
    }
    return next;
}

static bool go_on(const run *r)
{
    const load_options *o = r->options;
    const load_result *x = r->result;
    const size_t n_done = x->n_started - (o->clients - r->n_idle);
    return !o->progress || o->progress(o->user, n_done, r->clock.n_total);
}

static bool work(run *r, char *error)
{
    const load_options *o = r->options;
    load_arrival next;
    bool has_next = arrival_clock_next(&r->clock, &next), stopped = false;
    double shown_s = 0;
    while (has_next || r->n_idle < o->clients) {
        const double now = now_s(r);
        if (now - shown_s >= PROGRESS_SECONDS) {
            shown_s = now;
            stopped = !go_on(r);
        }
        if (o->seconds > 0 && now > o->seconds) has_next = false;
        if (stopped) has_next = false;
        double wake_s = cancel_due(r, now, stopped);
        while (has_next && next.at_s <= now && r->n_idle > 0) {
            if (!begin_request(r, &next)) {
                (void)snprintf(error, LOAD_ERROR_MAX, "no memory for a request");
                return false;
            }
            has_next = arrival_clock_next(&r->clock, &next);
        }
        if (has_next && r->n_idle > 0 && next.at_s < wake_s) wake_s = next.at_s;
        load_http_work(r->http, wake_s - now_s(r));
    }
    return true;
}

/* Writing to a TLS connection that the server has cut would otherwise end the program. */
static void block_sigpipe(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGPIPE);
    (void)pthread_sigmask(SIG_BLOCK, &set, NULL);
}

static bool prepare(run *r, char *error)
{
    const load_options *o = r->options;
    block_sigpipe();
    r->clients = calloc(o->clients, sizeof *r->clients);
    r->idle = calloc(o->clients, sizeof(client *));
    if (!r->clients || !r->idle) {
        (void)snprintf(error, LOAD_ERROR_MAX, "no memory for %zu clients", o->clients);
        return false;
    }
    for (size_t i = 0; i < o->clients; i++) {
        r->clients[i].run = r;
        skv_buf_init(&r->clients[i].body, LOAD_BODY_MAX);
        r->idle[r->n_idle++] = &r->clients[o->clients - 1 - i];
    }
    r->clock = arrival_clock_begin(o);
    r->random_cancel = ~o->seed;
    return load_http_create(o->url, o->key, o->clients, &r->http, error);
}

static void release(run *r)
{
    for (size_t i = 0; r->clients && i < r->options->clients; i++) {
        client *c = &r->clients[i];
        if (c->busy) load_http_drop(r->http, &c->call);
        skv_buf_release(&c->body);
        stream_answer_release(&c->answer);
    }
    load_http_free(r->http);
    tally_release(&r->tally);
    free(r->clients);
    free(r->idle);
}

bool load_run(const load_options *options, load_result *out, char *error)
{
    *out = (load_result){0};
    (void)snprintf(out->model, sizeof out->model, "%s", options->model);
    run r = {.options = options, .result = out};
    bool ok = prepare(&r, error);
    r.start_ns = skv_now_ns();
    ok = ok && work(&r, error);
    if (ok && r.tally.no_memory) {
        (void)snprintf(error, LOAD_ERROR_MAX, "no memory for what was measured");
        ok = false;
    }
    if (ok) {
        out->duration_s = r.end_s;
        tally_finish(&r.tally, out);
    }
    release(&r);
    return ok;
}
