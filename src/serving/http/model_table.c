/*
 * Which models are loaded. A request names a model and waits until it is there; the server's own
 * thread (server_wait) loads the one that has been waited for longest. Where --max-loaded models
 * are there already, the one that has been idle longest leaves. Where none is idle, one that has
 * been there for a while takes no more requests and leaves after its last, so that no request waits
 * for ever.
 *
 *     COLD -> LOADING -> READY -> (RETIRING ->) LEAVING -> COLD
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/system.h"
#include "transport/exchange.h"

/* ---- the table ---- */

static bool set_name(server_model *model, const server_source *source, char *error)
{
    const size_t n = strcspn(source->names, ",");
    if (n == 0 || (n == 1 && source->names[0] == '*')) {
        (void)snprintf(error, SKV_ERROR_TEXT_MAX,
                       "--name %s: begins with no name for responses to carry", source->names);
        return false;
    }
    model->name = strndup(source->names, n);
    if (!model->name) (void)snprintf(error, SKV_ERROR_TEXT_MAX, "server: no memory");
    return model->name;
}

bool models_start(http_server *server, char *error)
{
    const server_options *o = &server->options;
    server->models = calloc(o->n_sources, sizeof *server->models);
    if (!server->models) {
        (void)snprintf(error, SKV_ERROR_TEXT_MAX, "server: no memory");
        return false;
    }
    for (size_t i = 0; i < o->n_sources; i++) {
        const server_source *source = &o->sources[i];
        server_model *model = &server->models[i];
        *model = (server_model){.names = source->names,
                                .info = source->info,
                                .sampling = source->sampling,
                                .limits = {.context = source->context}};
        if (!set_name(model, source, error)) return false;
        server->n_models++;
        const server_model *same =
            models_find(server, (skv_text_piece){model->name, strlen(model->name)});
        if (same != model) {
            (void)snprintf(error, SKV_ERROR_TEXT_MAX, "two models are called \"%.200s\"",
                           model->name);
            return false;
        }
    }
    return true;
}

void models_stop(http_server *server)
{
    for (size_t i = 0; i < server->n_models; i++) {
        if (server->models[i].scheduler) model_close(server, &server->models[i]);
        free(server->models[i].name);
    }
    free(server->models);
    server->models = NULL;
    server->n_models = 0;
}

server_model *models_find(http_server *server, skv_text_piece name)
{
    static const char tag[] = ":latest"; /* Ollama's clients add it */
    const size_t n_tag = sizeof tag - 1;
    for (;;) {
        for (size_t i = 0; i < server->n_models; i++) {
            if (server_list_has(server->models[i].names, name)) return &server->models[i];
        }
        if (name.n <= n_tag || memcmp(name.text + name.n - n_tag, tag, n_tag) != 0) return NULL;
        name.n -= n_tag;
    }
}

bool models_lack(const http_server *server, skv_text_piece name, api_error *error)
{
    const bool one = server->n_models == 1;
    char list[256] = "";
    skv_text_piece own;
    size_t n = 0;
    for (size_t i = 0; i < server->n_models; i++) {
        for (const char *at = server->models[i].names; server_list_next(&at, &own);) {
            if (n + own.n + 8 > sizeof list) continue; /* the first that fit are enough */
            n += (size_t)snprintf(list + n, sizeof list - n, "%s\"%.*s\"", n > 0 ? ", " : "",
                                  (int)own.n, own.text);
        }
    }
    (void)api_fail(error, 404, "model",
                   "model: \"%.*s\" is not available: this server has %s (serve %s)",
                   name.n < 100 ? (int)name.n : 100, name.text, n > 0 ? list : "others",
                   one ? "--name '*' takes any name" : "NAME=MODEL gives a model another name");
    error->code = "model_not_found";
    return false;
}

const char *model_state_name(http_server *server, const server_model *model)
{
    pthread_mutex_lock(&server->lock);
    const char *name = model_is_loaded(model)          ? "loaded"
                       : model->state == MODEL_LOADING ? "loading"
                       : model->n_waiting > 0          ? "waiting"
                                                       : "unloaded";
    pthread_mutex_unlock(&server->lock);
    return name;
}

/* ---- the server's thread: loading and leaving ---- */

static server_model *longest_wanted(const http_server *server)
{
    server_model *best = NULL;
    for (size_t i = 0; i < server->n_models; i++) {
        server_model *model = &server->models[i];
        if (model->state != MODEL_COLD || model->wanted_ns == 0) continue;
        if (!best || model->wanted_ns < best->wanted_ns) best = model;
    }
    return best;
}

/* A model that is idle, or has been told to leave and is by now. */
static server_model *longest_idle(const http_server *server)
{
    server_model *best = NULL;
    for (size_t i = 0; i < server->n_models; i++) {
        server_model *model = &server->models[i];
        if (!model_is_loaded(model) || model->n_users > 0) continue;
        if (model->state == MODEL_READY && model->n_waiting > 0) continue; /* about to take it */
        if (!best || model->used_ns < best->used_ns) best = model;
    }
    return best;
}

static size_t count_loaded(const http_server *server)
{
    size_t n = 0;
    for (size_t i = 0; i < server->n_models; i++) n += server->models[i].state != MODEL_COLD;
    return n;
}

/* All are busy: the one that came first takes no more requests, once it has been there for a
 * while. One at a time. */
static void retire_one(const http_server *server)
{
    server_model *oldest = NULL;
    for (size_t i = 0; i < server->n_models; i++) {
        server_model *model = &server->models[i];
        if (model->state == MODEL_RETIRING) return;
        if (model->state != MODEL_READY) continue;
        if (!oldest || model->ready_ns < oldest->ready_ns) oldest = model;
    }
    if (!oldest) return;
    const double seconds = (double)(skv_now_ns() - oldest->ready_ns) * 1e-9;
    if (seconds > LIMIT_MODEL_STAY_SECONDS) oldest->state = MODEL_RETIRING;
}

static void let_go(http_server *server, server_model *model)
{
    model->state = MODEL_LEAVING;
    pthread_mutex_unlock(&server->lock);
    fprintf(stderr, "swiftkv: %s leaves\n", model->name);
    model_close(server, model);
    pthread_mutex_lock(&server->lock);
    model->state = MODEL_COLD;
    for (size_t i = 0; i < server->n_models; i++) server->models[i].starved = false;
}

/* The bytes that --models-memory leaves for another model; 0: there is no such limit. */
static size_t memory_left(const http_server *server)
{
    size_t left = server->options.models_bytes;
    if (left == 0) return 0;
    for (size_t i = 0; i < server->n_models; i++) {
        const server_model *model = &server->models[i];
        if (!model_is_loaded(model)) continue;
        const skv_engine_stats *l = &model->limits;
        const size_t takes = l->weight_bytes + l->kv_bytes_max + l->workspace_bytes;
        left = takes < left ? left - takes : 1;
    }
    return left;
}

/* Whether it could be there if others leave; they do, one after the other. */
static bool could_fit(const http_server *server, size_t n_bytes)
{
    const size_t most = server->options.models_bytes;
    return count_loaded(server) > 0 && (most == 0 || n_bytes <= most);
}

static void bring(http_server *server, server_model *model)
{
    char error[SKV_ERROR_TEXT_MAX] = "";
    const size_t memory_max = memory_left(server);
    size_t n_bytes = 0;
    model->state = MODEL_LOADING;
    pthread_mutex_unlock(&server->lock);
    const skv_status status = model_open(server, model, memory_max, &n_bytes, error);
    pthread_mutex_lock(&server->lock);
    model->state = status == SKV_OK ? MODEL_READY : MODEL_COLD;
    if (status == SKV_OK) {
        model->n_loads++;
        model->ready_ns = model->used_ns = skv_now_ns();
        model->wanted_ns = 0;
    } else if (status == SKV_CANCELLED) {
        model->wanted_ns = 0; /* the server ends */
    } else if (status == SKV_MEMORY && could_fit(server, n_bytes)) {
        model->starved = true; /* until one has left */
        return;
    } else {
        (void)snprintf(model->error, sizeof model->error, "%s", error);
        model->n_failures++;
        model->wanted_ns = 0;
    }
    (void)pthread_cond_broadcast(&server->changed);
}

bool models_tend(http_server *server)
{
    server_model *wanted = longest_wanted(server);
    if (!wanted) return false;
    if (count_loaded(server) < server->options.max_loaded && !wanted->starved) {
        bring(server, wanted);
        return true;
    }
    server_model *idle = longest_idle(server);
    if (idle) {
        let_go(server, idle);
        return true;
    }
    retire_one(server);
    return false;
}

bool models_wanted(const http_server *server)
{
    return longest_wanted(server);
}

void models_drain(http_server *server)
{
    for (size_t i = 0; i < server->n_models; i++) {
        if (model_is_loaded(&server->models[i])) skv_scheduler_drain(server->models[i].scheduler);
    }
}

/* ---- requests ---- */

/* Whether a request goes on waiting for a model that is not there. */
static bool may_wait(exchange *ex, const server_model *model, uint64_t n_failures, api_error *error)
{
    http_server *server = ex->server;
    const double most = server->options.scheduler.queue_seconds_max;
    const bool failed = model->n_failures != n_failures;
    char why[SKV_ERROR_TEXT_MAX];
    (void)snprintf(why, sizeof why, "%s", model->error);
    pthread_mutex_unlock(&server->lock);
    bool ok = true;
    if (failed) {
        ok = api_fail(error, 503, "model", "model: \"%.100s\" could not be loaded: %.300s",
                      model->name, why);
        error->code = "model_load_failed";
    } else if (server_get_state(server) != SERVER_READY) {
        ok = api_fail(error, 503, NULL, "the server is shutting down");
        error->retry_after_s = LIMIT_ELSEWHERE_RETRY_SECONDS;
    } else if (exchange_stopped(ex)) {
        ok = api_fail(error, LIMIT_STATUS_CLIENT_LEFT, NULL, "cancelled");
    } else if ((double)(skv_now_ns() - ex->begun_ns) * 1e-9 > most) {
        ok = api_fail(error, 503, "model", "model: \"%.100s\" was not loaded within %g s",
                      model->name, most);
        error->retry_after_s = LIMIT_LOADING_RETRY_SECONDS;
    }
    pthread_mutex_lock(&server->lock);
    return ok;
}

/* Now and then a comment, where the client reads events. The lock is held, but not while that is
 * sent. */
static void give_sign(exchange *ex, uint64_t *told_ns)
{
    http_server *server = ex->server;
    const double seconds = (double)(skv_now_ns() - *told_ns) * 1e-9;
    if (!ex->may_ping || seconds < server->options.ping_seconds) return;
    *told_ns = skv_now_ns();
    pthread_mutex_unlock(&server->lock);
    (void)event_stream_ping(ex, ": waiting for the model\n\n");
    pthread_mutex_lock(&server->lock);
}

bool model_take(exchange *ex, server_model *model, api_error *error)
{
    http_server *server = ex->server;
    bool ok = true;
    uint64_t told_ns = ex->begun_ns;
    pthread_mutex_lock(&server->lock);
    const uint64_t n_failures = model->n_failures, asked_ns = skv_now_ns();
    const bool waits = model->state != MODEL_READY;
    model->n_waiting++;
    while (ok && model->state != MODEL_READY) {
        memory_pass(ex);             /* it needs no more for now */
        if (model->wanted_ns == 0) { /* told once: it wakes all that wait too */
            model->wanted_ns = skv_now_ns();
            (void)pthread_cond_broadcast(&server->changed);
        }
        const struct timespec end = server_time_in(LIMIT_MODEL_LOOK_SECONDS);
        (void)skv_cond_wait_until(&server->changed, &server->lock, &end);
        if (model->state != MODEL_READY) give_sign(ex, &told_ns);
        ok = model->state == MODEL_READY || may_wait(ex, model, n_failures, error);
    }
    model->n_waiting--;
    const uint64_t waited_ns = waits ? skv_now_ns() - asked_ns : 0;
    ex->load_ns += waited_ns;
    if (model->n_waiting == 0) model->wanted_ns = 0;
    if (ok) {
        model->n_users++;
        ex->model = model;
    }
    pthread_mutex_unlock(&server->lock);
    skv_budget_waited(&ex->reading, waited_ns);
    return ok;
}

/* That the query names. */
static server_model *asked_by_query(const exchange *ex)
{
    http_server *server = ex->server;
    for (size_t i = 0; i < server->n_models; i++) {
        if (http_head_asks(ex->head, "model", server->models[i].name)) return &server->models[i];
    }
    return &server->models[0];
}

bool model_take_named(exchange *ex, const skv_text_piece *name, api_error *error)
{
    http_server *server = ex->server;
    if (!name || name->n == 0) return model_take(ex, asked_by_query(ex), error);
    server_model *model = models_find(server, *name);
    return model ? model_take(ex, model, error) : models_lack(server, *name, error);
}

void model_give_back(exchange *ex)
{
    http_server *server = ex->server;
    if (!ex->model) return;
    pthread_mutex_lock(&server->lock);
    ex->model->n_users--;
    ex->model->used_ns = skv_now_ns();
    (void)pthread_cond_broadcast(&server->changed);
    pthread_mutex_unlock(&server->lock);
    ex->model = NULL;
}
