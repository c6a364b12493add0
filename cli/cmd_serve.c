/* swiftkv serve: a model behind HTTP. The server answers while the model loads. */
#include <stdatomic.h>
#include <string.h>

#include "runtime.h"
#include "server.h"

enum { KV_CONTEXTS = 4 };

static void set_size(size_t *to, size_t given)
{
    if (given != CLI_NOT_GIVEN) *to = given;
}

static void set_number(double *to, double given)
{
    if (given >= 0) *to = given;
}

/* The last part of a path: "models/tiny/" and "models/tiny.gguf" are "tiny". */
static void name_of_path(const char *path, char *out, size_t room)
{
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/') n--;
    size_t start = n;
    while (start > 0 && path[start - 1] != '/') start--;
    static const char suffix[] = ".gguf";
    const size_t n_suffix = sizeof suffix - 1;
    if (n - start > n_suffix && memcmp(path + n - n_suffix, suffix, n_suffix) == 0) n -= n_suffix;
    (void)snprintf(out, room, "%.*s", (int)(n - start), path + start);
}

/* "auto" is what the server does by itself. */
static const char *unless_auto(const char *given)
{
    return given != NULL && strcmp(given, "auto") != 0 ? given : NULL;
}

static server_options make_options(const cli_options *o, const char *name)
{
    server_options out = server_options_default();
    out.name = o->served_name != NULL ? o->served_name : name;
    if (o->host != NULL) out.host = o->host;
    out.key_file = o->key_file;
    out.insecure = o->insecure;
    out.request_log = o->request_log;
    set_number(&out.requests_a_minute, o->requests_a_minute);
    set_number(&out.tokens_a_minute, o->tokens_a_minute);
    out.tool_format = unless_auto(o->tool_format);
    out.reasoning_format = unless_auto(o->reasoning_format);
    set_size(&out.port, o->port);
    set_size(&out.connections, o->connections);
    set_size(&out.connections_per_ip, o->connections_per_ip);
    if (o->body_mib != CLI_NOT_GIVEN) out.body_bytes = o->body_mib << 20;
    set_number(&out.header_seconds, o->header_seconds);
    set_number(&out.body_seconds, o->body_seconds);
    set_number(&out.stall_seconds, o->stall_seconds);
    set_number(&out.ping_seconds, o->ping_seconds);
    set_number(&out.shutdown_seconds, o->shutdown_seconds);
    set_number(&out.watchdog_seconds, o->watchdog_seconds);
    set_size(&out.scheduler.max_running, o->max_running);
    set_size(&out.scheduler.max_queued, o->max_queued);
    set_size(&out.scheduler.max_queued_tokens, o->max_queued_tokens);
    set_number(&out.scheduler.step_ms, o->step_ms);
    set_number(&out.scheduler.queue_seconds_max, o->queue_seconds);
    out.scheduler.eviction = o->eviction;
    out.scheduler.no_prefix_cache = o->no_prefix_cache;
    out.scheduler.no_text_match = o->no_text_match;
    out.scheduler.cache_dir = o->cache_dir;
    out.scheduler.cache_disk_rows = o->cache_disk_form && strcmp(o->cache_disk_form, "rows") == 0;
    set_size(&out.scheduler.cache_disk_bytes, o->cache_disk_bytes);
    return out;
}

/* The server that signals go to, once there is one. */
typedef struct signal_target {
    _Atomic(http_server *) server;
} signal_target;

static bool on_signal(void *user, int signal)
{
    http_server *server = atomic_load(&((signal_target *)user)->server);
    return server != NULL && server_signal(server, signal);
}

static int load(cli_model *model, const cli_options *options)
{
    skv_engine_options engine = cli_engine_options(options);
    const size_t most = 8192; /* what the library takes where nothing was said */
    size_t context = options->context;
    if (context == 0) context = model->info.context < most ? model->info.context : most;
    engine.context = context;
    engine.kv_tokens = KV_CONTEXTS * context;
    set_size(&engine.kv_tokens, options->kv_tokens);
    engine.with_teacher = !options->no_teacher;
    engine.batch_invariant = true;
    engine.eviction = (skv_eviction){.method = SKV_EVICT_NONE}; /* the scheduler's business */
    return cli_model_start(model, &engine);
}

static int read_template(const cli_options *options, const cli_model *model, cli_bytes *file,
                         const char **text)
{
    *text = NULL;
    if (options->template_file != NULL) {
        const int status = cli_read_file(options->template_file, file);
        *text = file->data;
        return status;
    }
    if (model->vocab != NULL) *text = skv_vocab_chat_template(model->vocab);
    return CLI_DONE;
}

static int serve(cli_model *model, const cli_options *options, http_server *server,
                 const char *host)
{
    char error[SKV_ERROR_TEXT_MAX];
    cli_bytes file = {0};
    const char *template_text = NULL;
    int status = read_template(options, model, &file, &template_text);
    if (status == CLI_DONE) status = load(model, options);
    if (status == CLI_DONE &&
        !server_ready(server, model->engine, model->vocab, template_text, error)) {
        status = cli_fail("%s", error);
    }
    cli_bytes_release(&file);
    if (status != CLI_DONE) return status;
    fprintf(stderr, "swiftkv: ready on http://%s:%zu\n", host, server_port(server));
    server_wait(server);
    return CLI_DONE;
}

int cli_run_serve(const cli_options *options)
{
    char error[SKV_ERROR_TEXT_MAX], name[256];
    cli_model model;
    http_server *server = NULL;
    int status = cli_model_describe(&model, options);
    name_of_path(options->operands[0], name, sizeof name);
    const server_options wanted = make_options(options, name);
    signal_target target;
    atomic_init(&target.server, NULL);
    if (status == CLI_DONE) status = cli_interrupt_handle(options->interrupt, on_signal, &target);
    if (status == CLI_DONE && !server_start(&wanted, &server, error)) {
        status = cli_fail("%s", error);
    }
    if (status == CLI_DONE) {
        atomic_store(&target.server, server);
        fprintf(stderr, "swiftkv: listening on http://%s:%zu\n", wanted.host, server_port(server));
        status = serve(&model, options, server, wanted.host);
    }
    cli_interrupt_unhandle(options->interrupt);
    server_stop(server);
    cli_model_close(&model);
    return status;
}
