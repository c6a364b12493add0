/* The server's life: loading, ready, draining, stopped. */
#include "server.h"

#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "answer/slots.h"
#include "base/system.h"
#include "base/system_sockets.h"
#include "request/request_input.h"
#include "state/server_impl.h"

static void set_state(http_server *server, server_state state)
{
    pthread_mutex_lock(&server->lock);
    if (state > server->state) server->state = state;
    (void)pthread_cond_broadcast(&server->changed);
    pthread_mutex_unlock(&server->lock);
}

static bool no_memory(char *error)
{
    (void)snprintf(error, SKV_ERROR_TEXT_MAX, "server: no memory");
    return false;
}

static bool start_parts(http_server *server, char *error)
{
    const server_options *o = &server->options;
    if (!models_start(server, error)) return false;
    if (!memory_start(server)) return no_memory(error);
    if (o->key_file && !api_keys_open(o->key_file, &server->keys, error)) return false;
    server->rates = rates_create(API_KEYS_MAX);
    if (!server->rates) return no_memory(error);
    const bool logs = o->request_log || o->log_words;
    if (logs && !request_log_open(o->request_log, &server->log, error)) return false;
    return http_fit_files(server, error) && peers_start(server, error) && http_start(server, error);
}

static bool read_template_vars(http_server *server, char *error)
{
    const char *text = server->options.template_vars;
    if (!text) return true;
    server->template_vars = json_loads(text, 0, NULL);
    const char *own = template_own_var(server->template_vars);
    if (json_is_object(server->template_vars) && !own) return true;
    (void)snprintf(error, SKV_ERROR_TEXT_MAX, "--chat-template-kwargs: %s%.60s",
                   own ? "the server sets " : "not a JSON object: ", own ? own : text);
    return false;
}

static bool read_pattern(http_server *server, char *error)
{
    const char *text = server->options.prompt_strip;
    return !text || line_pattern_open(text, &server->strip, error);
}

static bool open_slots(http_server *server, char *error)
{
    const char *folder = server->options.slot_save_path;
    struct stat about;
    if (!folder) return true;
    if (stat(folder, &about) != 0 || !S_ISDIR(about.st_mode)) {
        (void)snprintf(error, SKV_ERROR_TEXT_MAX, "--slot-save-path: %.200s is no folder", folder);
        return false;
    }
    return slots_open(server->options.scheduler.max_running, &server->slots) || no_memory(error);
}

bool server_create(const server_options *options, http_server **out, char *error)
{
    http_server *server = calloc(1, sizeof *server);
    if (!server) return no_memory(error);
    server->options = *options;
    server->listen_fd = -1;
    server->end_accepting = (skv_wake){-1, -1};
    watchdog_open(&server->dog);
    json_body_start();
    (void)snprintf(server->own_mark, sizeof server->own_mark, "<%016" PRIx64 "%016" PRIx64 ">",
                   server_draw(server), server_draw(server));
    server->started_s = (int64_t)time(NULL);
    pthread_mutex_init(&server->lock, NULL);
    pthread_mutex_init(&server->memory.lock, NULL);
    skv_cond_init(&server->changed);
    skv_cond_init(&server->reaper_stops);
    skv_cond_init(&server->memory.slot_freed);
    if (read_template_vars(server, error) && read_pattern(server, error) &&
        open_slots(server, error)) {
        *out = server;
        return true;
    }
    server_stop(server);
    return false;
}

bool server_start(const server_options *options, http_server **out, char *error)
{
    http_server *server;
    if (!server_create(options, &server, error)) return false;
    if (!start_parts(server, error)) {
        server_stop(server);
        return false;
    }
    *out = server;
    return true;
}

size_t server_port(const http_server *server)
{
    return server->port;
}

bool server_ready(http_server *server, char *error)
{
    server_model *first = &server->models[0];
    bool ok = true;
    pthread_mutex_lock(&server->lock);
    first->wanted_ns = skv_now_ns();
    (void)models_tend(server);
    if (first->state != MODEL_READY) {
        (void)snprintf(error, SKV_ERROR_TEXT_MAX, "%s", first->error);
        ok = false;
    }
    pthread_mutex_unlock(&server->lock);
    if (ok) set_state(server, SERVER_READY);
    return ok;
}

static void read_again(http_server *server)
{
    char error[SKV_ERROR_TEXT_MAX];
    if (server->log && !request_log_reopen(server->log, error)) {
        fprintf(stderr, "swiftkv: %s\n", error);
    }
    if (!server->keys) return;
    const bool ok = api_keys_reload(server->keys, error);
    fprintf(stderr, "swiftkv: %s\n", ok ? "the API keys were read again" : error);
}

bool server_ends(http_server *server)
{
    return server_get_state(server) >= SERVER_DRAINING;
}

/* Loading ends soon, but not at once: a read of a file may hang. */
static bool is_loading(http_server *server)
{
    bool loads = false;
    pthread_mutex_lock(&server->lock);
    for (size_t i = 0; i < server->n_models; i++) {
        loads = loads || server->models[i].state == MODEL_LOADING;
    }
    pthread_mutex_unlock(&server->lock);
    return loads;
}

bool server_signal(http_server *server, int signal)
{
    if (signal == SIGHUP) {
        read_again(server);
        return true;
    }
    const server_state state = server_get_state(server);
    if (state == SERVER_LOADING || state == SERVER_STOPPING) return false;
    if (state == SERVER_DRAINING && is_loading(server)) return false;
    const bool again = state == SERVER_DRAINING;
    fprintf(stderr, "swiftkv: %s\n", again ? "stopping" : "finishing the requests in flight");
    set_state(server, again ? SERVER_STOPPING : SERVER_DRAINING);
    return true;
}

/* Ends the program if it cannot be stopped in an orderly way: a disk that does not answer, say. */
static void *end_at_last(void *arg)
{
    const uintptr_t seconds = (uintptr_t)arg;
    const struct timespec pause = {.tv_sec = (time_t)seconds};
    (void)nanosleep(&pause, NULL);
    fprintf(stderr, "swiftkv: could not stop within %zu s: ending now\n", (size_t)seconds);
    _exit(EXIT_FAILURE);
}

static void watch_the_end(const server_options *o)
{
    const double flush = o->scheduler.cache_dir ? server_flush_seconds(o) : 0;
    const uintptr_t seconds = LIMIT_STOP_SECONDS + (uintptr_t)ceil(flush);
    pthread_t thread;
    const int code = pthread_create(&thread, NULL, end_at_last, (void *)seconds);
    if (code == 0) (void)pthread_detach(thread);
}

/* A model that is busy may have to leave after a while: that is looked at again. */
static void wait_for_change(http_server *server)
{
    if (models_wanted(server)) {
        const struct timespec end = server_time_in(LIMIT_MODEL_LOOK_SECONDS);
        (void)skv_cond_wait_until(&server->changed, &server->lock, &end);
    } else {
        (void)pthread_cond_wait(&server->changed, &server->lock);
    }
}

void server_wait(http_server *server)
{
    pthread_mutex_lock(&server->lock);
    while (server->state < SERVER_DRAINING) {
        if (!models_tend(server)) wait_for_change(server);
    }
    models_drain(server);
    const struct timespec end = server_time_in(server->options.shutdown_seconds);
    int code = 0;
    while (server->state < SERVER_STOPPING && server->n_in_flight > 0 && code == 0) {
        code = skv_cond_wait_until(&server->changed, &server->lock, &end);
    }
    server->state = SERVER_STOPPING;
    pthread_mutex_unlock(&server->lock);
    watch_the_end(&server->options);
}

void server_stop(http_server *server)
{
    if (!server) return;
    set_state(server, SERVER_STOPPING);
    http_stop(server);
    peers_stop(server);
    models_stop(server);
    api_keys_free(server->keys);
    rates_free(server->rates);
    request_log_close(server->log);
    watchdog_close(&server->dog);
    slots_close(server->slots);
    memory_stop(server);
    pthread_mutex_destroy(&server->memory.lock);
    pthread_mutex_destroy(&server->lock);
    pthread_cond_destroy(&server->changed);
    pthread_cond_destroy(&server->reaper_stops);
    pthread_cond_destroy(&server->memory.slot_freed);
    line_pattern_free(server->strip);
    json_decref(server->template_vars);
    free(server);
}
