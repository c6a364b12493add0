/* swiftkv serve: serves models over HTTP. The server already answers while the first of them
 * loads. */
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "base/system.h"
#include "common/sampling_fields.h"
#include "hub.h"
#include "input.h"
#include "memory_plan.h"
#include "reader_client.h"
#include "redis_store.h"
#include "runtime.h"
#include "server.h"
#include "skv/tools.h"
#include "suggest.h"

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

/* "auto" is the server's default. */
static const char *unless_auto(const char *given)
{
    return strcmp(given, "auto") != 0 ? given : NULL;
}

static skv_scheduler_options scheduler_options(const cli_options *o)
{
    skv_scheduler_options out = skv_scheduler_options_default();
    out.max_running = o->max_running;
    out.max_queued = o->max_queued;
    out.max_queued_tokens = o->max_queued_tokens;
    out.step_ms = o->step_ms;
    out.mask_seconds_max = o->mask_seconds;
    out.queue_seconds_max = o->queue_seconds;
    out.eviction = o->eviction;
    out.speculation = cli_speculation_of(o);
    out.no_prefix_cache = o->no_prefix_cache;
    out.no_text_match = o->no_text_match;
    out.tell_miss_texts = o->log_prompt_text;
    out.cache_shift = o->cache_shift;
    out.idle_share = o->idle_read;
    out.cache_dir = o->cache_dir;
    out.cache_disk_rows = strcmp(o->cache_disk_form, "rows") == 0;
    out.cache_disk_bytes = o->cache_disk_bytes;
    return out;
}

static bool is_given(const cli_options *o, const char *name)
{
    bool given = false;
    for (size_t i = 0; skv_sampling_field(i) && i < CLI_SAMPLING_FIELDS; i++) {
        given |= o->sampling_texts[i] && strcmp(skv_sampling_field(i)->name, name) == 0;
    }
    return given;
}

/* Sampling for requests without parameters: OpenAI's defaults, overridden by
 * generation_config.json, then by the command line. */
static skv_sampling request_sampling(const cli_options *o, const skv_model_info *info)
{
    const bool by_model = info->has_sampling && !o->no_generation_config;
    skv_sampling out = by_model ? info->sampling : skv_sampling_default();
    if (!by_model) out.temperature = 1;
    for (size_t i = 0; skv_sampling_field(i) && i < CLI_SAMPLING_FIELDS; i++) {
        const char *text = o->sampling_texts[i]; /* parsed once, so it is a value */
        if (text && skv_field_parse(skv_sampling_field(i), text, &out, NULL) != SKV_OK) break;
    }
    return out;
}

static void tell_sampling(const cli_options *o, const skv_model_info *info)
{
    const skv_sampling s = request_sampling(o, info);
    bool given = false;
    for (size_t i = 0; i < CLI_SAMPLING_FIELDS; i++) given |= !!o->sampling_texts[i];
    const bool by_model = info->has_sampling && !o->no_generation_config;
    if (!given && !by_model) return;
    fprintf(stderr,
            "swiftkv: sampling defaults of requests: temperature %g, top_k %zu, top_p %g, "
            "min_p %g, repetition_penalty %g (%s%s%s)\n",
            s.temperature, s.top_k, s.top_p, s.min_p, s.repetition_penalty,
            by_model ? "generation_config.json" : "", by_model && given ? ", " : "",
            given ? "options" : "");
}

/* The connections that several servers need to share cached prompts. */
typedef struct shared_cache {
    cli_bytes key;      /* owned */
    redis_store *redis; /* owned; NULL: none */
    skv_block_store table;
    reader_client *reader; /* owned; NULL: none */
    skv_prompt_readers readers;
} shared_cache;

static bool is_reader(const cli_options *o)
{
    return strcmp(o->role, "read") == 0;
}

static int check_role(const cli_options *o)
{
    if (is_reader(o) && o->prefill_from) {
        return cli_usage("--prefill-from: a reader reads itself (--role read)");
    }
    const char *what = is_reader(o) ? "--role read" : o->prefill_from ? "--prefill-from" : NULL;
    if (what && !o->cache_store) {
        return cli_usage("%s needs --cache-store, through which readers hand prompts on", what);
    }
    if (what && o->no_prefix_cache) {
        return cli_usage("%s and --no-prefix-cache: prompts that were read elsewhere are cached "
                         "prompts",
                         what);
    }
    return CLI_DONE;
}

/* Refuses options that need a single process; skv/combine.h covers models and methods. */
static int check_ranks(const cli_options *o)
{
    if (!o->team) return CLI_DONE;
    if (o->n_operands > 1) {
        return cli_usage("several ranks: they hold one model, there are %zu", o->n_operands);
    }
    if (is_reader(o)) return cli_usage("--role read, several ranks: a reader is one process");
    const char *what = o->prefill_from  ? "--prefill-from"
                       : o->cache_store ? "--cache-store"
                       : o->cache_dir   ? "--cache-dir"
                                        : NULL;
    if (!what) return CLI_DONE;
    return cli_usage("%s, several ranks: known prompts stay in memory, since each rank has the "
                     "keys and values of its own heads",
                     what);
}

static int open_reader(const cli_options *o, shared_cache *cache)
{
    skv_error err;
    if (!o->prefill_from) return CLI_DONE;
    const reader_options options = {
        .url = o->prefill_from, .above = o->prefill_above, .seconds = o->prefill_seconds};
    if (reader_client_open(&options, &cache->reader, &err) != SKV_OK) {
        return cli_fail("%s", err.text);
    }
    cache->readers = reader_client_table(cache->reader);
    return CLI_DONE;
}

static int open_shared(const cli_options *o, shared_cache *cache)
{
    skv_error err;
    int status = o->cache_key_file ? cli_read_file(o->cache_key_file, &cache->key) : CLI_DONE;
    while (cache->key.n > 0 && strchr(" \t\r\n", cache->key.data[cache->key.n - 1])) cache->key.n--;
    if (status != CLI_DONE || !o->cache_store) return status;
    if (!cache->key.data) {
        return cli_fail("--cache-store needs --cache-key-file: a secret that all servers share "
                        "(openssl rand -hex 32)");
    }
    const redis_options options = {.seconds = o->cache_store_seconds,
                                   .addresses = o->cache_store,
                                   .auth_file = o->cache_store_auth,
                                   .ca_file = o->cache_store_ca,
                                   .cert_file = o->cache_store_cert,
                                   .key_file = o->cache_store_key};
    if (redis_store_open(&options, &cache->redis, &err) != SKV_OK) return cli_fail("%s", err.text);
    cache->table = redis_store_table(cache->redis);
    return open_reader(o, cache);
}

static void close_shared(shared_cache *cache)
{
    reader_client_close(cache->reader);
    redis_store_close(cache->redis);
    cli_bytes_release(&cache->key);
}

/* Lists the names that requests may use: the model's own, then those of its adapters; on the
 * heap. */
static char *list_names(const char *first, const char *adapters)
{
    adapters = adapters ? adapters : "";
    char *out = cli_alloc(strlen(first) + strlen(adapters) + 2, 1);
    size_t n = strlen(first);
    memcpy(out, first, n);
    while (*adapters) { /* NAME=PATH,... */
        const size_t n_name = strcspn(adapters, "=,");
        out[n++] = ',';
        memcpy(out + n, adapters, n_name);
        n += n_name;
        adapters += strcspn(adapters, ",");
        adapters += *adapters == ',';
    }
    out[n] = 0;
    return out;
}

/* Returns the file of --request-log, for programs; a terminal shows lines in any case. */
static const char *log_file(const cli_options *o)
{
    const bool none = o->request_log && strcmp(o->request_log, "none") == 0;
    return none ? NULL : o->request_log;
}

static server_options make_options(const cli_options *o)
{
    return (server_options){.origins = o->cors_origins,
                            .seed_given = is_given(o, "seed"),
                            .reads = is_reader(o),
                            .host = o->host,
                            .port = o->port,
                            .key_file = o->key_file,
                            .insecure = o->insecure,
                            .requests_a_minute = o->requests_a_minute,
                            .tokens_a_minute = o->tokens_a_minute,
                            .request_log = log_file(o),
                            .log_words = !o->request_log && cli_terminal(),
                            .log_probes = o->log_probes,
                            .metrics_compat = o->metrics_compat,
                            .max_loaded = o->max_loaded,
                            .models_bytes = o->models_mib << 20,
                            .connections = o->connections,
                            .connections_per_ip = o->connections_per_ip,
                            .body_bytes = o->body_mib << 20,
                            .memory_bytes = o->memory_mib << 20,
                            .request_work = (uint64_t)(o->request_work * 1e6),
                            .request_bytes = o->request_mib << 20,
                            .request_seconds = o->reading_seconds,
                            .stack_bytes = o->stack_kib << 10,
                            .header_seconds = o->header_seconds,
                            .body_seconds = o->body_seconds,
                            .stall_seconds = o->stall_seconds,
                            .ping_seconds = o->ping_seconds,
                            .shutdown_seconds = o->shutdown_seconds,
                            .watchdog_seconds = o->watchdog_seconds,
                            .tool_format = unless_auto(o->tool_format),
                            .reranker = o->reranker,
                            .reasoning_format = unless_auto(o->reasoning_format),
                            .template_vars = o->template_vars,
                            .slot_save_path = o->slot_save_path,
                            .slot_save_bytes = o->slot_save_bytes,
                            .prompt_strip = o->prompt_strip,
                            .prompt_sort_tools = strcmp(o->prompt_sort, "tools") == 0,
                            .prompt_keep_thoughts = strcmp(o->prompt_keep, "thoughts") == 0,
                            .allow_special_text = o->allow_special_text,
                            .scheduler = scheduler_options(o)};
}

/* ---- the models ---- */

typedef struct serve_model {
    const char *given; /* the operand */
    char path[CLI_HUB_PATH_MAX];
    char name[256], cache_dir[CLI_HUB_PATH_MAX];
    char own_names[256];    /* of NAME=MODEL; "": none */
    char *names;            /* owned: that requests may use */
    char *adapters, *draft; /* owned: its own, if there are several models; NULL: none */
    skv_model_info info;
    cli_model model; /* while it is loaded */
} serve_model;

typedef struct serve_models {
    const cli_options *options;
    serve_model *at;           /* owned, [n] */
    server_source *sources;    /* owned, [n] */
    const char *template_text; /* for all of them; NULL: each its own */
    size_t n;
    struct signal_target *target; /* borrowed: tells when loading has become useless */
} serve_models;

/* The server that signals go to, once there is one. */
typedef struct signal_target {
    _Atomic(http_server *) server;
} signal_target;

static bool loading_stopped(void *user)
{
    http_server *server = atomic_load(&((signal_target *)user)->server);
    return server && server_ends(server);
}

/*
 * Returns this model's part of a list "NAME@MODEL=PATH,..." as "NAME=PATH,..."; without `named`, of
 * a list "MODEL=PATH,..." as "PATH". On the heap; NULL: none.
 */
static char *share_of(const char *list, const char *model, bool named)
{
    char *out = cli_alloc(strlen(list) + 2, 1);
    size_t n = 0, n_item;
    for (; *list; list += n_item + (list[n_item] == ',')) {
        n_item = strcspn(list, ",");
        const size_t n_name = named ? strcspn(list, "@=,") : 0;
        const char *owner = list + n_name + (named ? 1 : 0);
        const size_t n_owner = strcspn(owner, "=,");
        const bool is_own = (!named || list[n_name] == '@') && n_owner == strlen(model) &&
                            memcmp(owner, model, n_owner) == 0 && owner[n_owner] == '=';
        if (!is_own) continue;
        const char *path = owner + n_owner + (named ? 0 : 1);
        if (n > 0) out[n++] = ',';
        memcpy(out + n, list, n_name);
        n += n_name;
        memcpy(out + n, path, (size_t)(list + n_item - path));
        n += (size_t)(list + n_item - path);
    }
    out[n] = 0;
    if (n > 0) return out;
    free(out);
    return NULL;
}

/* Counts the items of such a list, to detect items that belong to no model. */
static size_t count_items(const char *list)
{
    size_t n = list && *list ? 1 : 0;
    for (; list && *list; list++) n += *list == ',';
    return n;
}

/* Assigns adapters and drafting models to the models. */
static int share_out(const cli_options *o, serve_models *models)
{
    size_t n_adapters = 0, n_drafts = 0;
    for (size_t i = 0; i < models->n; i++) {
        serve_model *one = &models->at[i];
        one->adapters = o->adapters ? share_of(o->adapters, one->name, true) : NULL;
        one->draft = o->draft ? share_of(o->draft, one->name, false) : NULL;
        n_adapters += count_items(one->adapters);
        n_drafts += count_items(one->draft);
    }
    if (n_adapters != count_items(o->adapters)) {
        return cli_usage("serve: --lora %s: with several models each is NAME@MODEL=PATH, by the "
                         "name of one of them",
                         o->adapters);
    }
    if (n_drafts != count_items(o->draft)) {
        return cli_usage("serve: --draft %s: with several models each is MODEL=PATH, by the name "
                         "of one of them",
                         o->draft);
    }
    return CLI_DONE;
}

static bool on_signal(void *user, int signal)
{
    http_server *server = atomic_load(&((signal_target *)user)->server);
    return server && server_signal(server, signal);
}

static size_t context_of(const cli_options *o, const skv_model_info *info)
{
    if (o->context > 0) return o->context;
    return info->context < SKV_CONTEXT_DEFAULT ? info->context : SKV_CONTEXT_DEFAULT;
}

/* Whether a device keeps equal bits, which answers that do not depend on each other need. */
static bool is_exact(const char *name)
{
    skv_device device;
    for (size_t i = 0; name && skv_device_describe(i, &device); i++) {
        if (strcmp(device.name, name) == 0) return device.exact;
    }
    return !name;
}

static skv_status open_engine(const serve_models *models, serve_model *one, size_t memory_max,
                              size_t *n_bytes, skv_error *err)
{
    const cli_options *options = models->options;
    cli_model *model = &one->model;
    skv_engine_options engine = cli_engine_options(options);
    if (models->n > 1) {
        engine.adapters = one->adapters;
        engine.draft_model = one->draft;
    }
    engine.stopped = loading_stopped;
    engine.user = models->target;
    const size_t own = model->info.context;
    engine.context = context_of(options, &model->info);
    if (engine.context < own && options->context == 0) {
        cli_warn("contexts of %zu tokens, of the model's %zu: --ctx allows more", engine.context,
                 own);
    }
    engine.kv_tokens = options->kv_tokens;
    if (engine.kv_tokens == 0) engine.kv_tokens = CLI_SERVE_KV_CONTEXTS * engine.context;
    if (model->info.state_layers > 0) {
        const size_t n = options->max_running > 0 ? options->max_running : CLI_SERVE_STATES;
        engine.kv_sequences = n;
        engine.kv_checkpoints = options->state_checkpoints != CLI_NOT_GIVEN
                                    ? options->state_checkpoints
                                    : CLI_SERVE_CHECKPOINTS * n;
        if (options->no_prefix_cache) engine.kv_checkpoints = 0;
        const skv_speculation drafts = cli_speculation_of(options);
        engine.draft_tokens = drafts.source != SKV_DRAFT_NONE ? drafts.most : 0;
    }
    engine.prompt_only = is_reader(options);
    engine.with_teacher = !options->no_teacher && !engine.prompt_only;
    engine.memory_max = memory_max;
    engine.memory_needed = n_bytes;
    engine.batch_invariant = is_exact(options->device);
    engine.eviction = (skv_eviction){.method = SKV_EVICT_NONE};       /* the scheduler's business */
    engine.speculation = (skv_speculation){.source = SKV_DRAFT_NONE}; /* likewise */
    const skv_status status = cli_model_try(model, &engine, err);
    if (status == SKV_MEMORY) cli_memory_advise(one->path, &engine, "--kv-tokens", err);
    if (status == SKV_OK) {
        cli_note_length(model, options->context > 0 ? "--ctx" : "contexts of", engine.context);
    }
    return status;
}

static void find_template(const cli_model *model, server_template *out)
{
    *out = (server_template){0};
    if (!model->vocab) {
        cli_warn("%s has no tokenizer: prompts are token ids, and there are no chats", model->path);
        return;
    }
    out->text = skv_vocab_chat_template(model->vocab);
    if (out->text) return;
    out->text = cli_template_text("chatml");
    out->is_guess = true;
    fprintf(stderr,
            "swiftkv: warning: %s has no chat template: chats use ChatML, which the model "
            "may not know (--template FILE|NAME)\n",
            model->path);
}

/* Prints the configuration in use, which explains speed and memory. */
static void tell_model(const serve_model *one)
{
    const skv_model_info *info = &one->info;
    const double mib = 1048576.0;
    char how[96] = "";
    skv_engine_stats s;
    skv_engine_get_stats(one->model.engine, &s);
    if (s.swiftkv) {
        (void)snprintf(how, sizeof how, "; SwiftKV, l = %zu of %zu layers, g = %zu%s",
                       info->swiftkv_layers, info->layers, info->group,
                       s.has_teacher ? ", with its teacher" : "");
    }
    cli_tell("%s: %s weights, %.1f MiB; %zu thread%s, %s kernels%s", one->name,
             skv_weights_name(s.weights), (double)s.weight_bytes / mib, s.threads,
             s.threads == 1 ? "" : "s", s.cpu, how);
    cli_tell("%s: contexts of %zu tokens; %s KV memory of %zu tokens, %.1f MiB", one->name,
             s.context, skv_kv_name(s.kv), s.kv_tokens,
             (double)(s.kv_bytes_max - (s.states + s.checkpoints) * s.state_bytes) / mib);
    if (s.states > 0) {
        cli_tell("%s: states of %zu answers at once and of %zu beginnings of known prompts "
                 "(--state-checkpoints), %.1f MiB each",
                 one->name, s.states, s.checkpoints, (double)s.state_bytes / mib);
    }
    cli_tell("%s: names in the API: %s", one->name, one->names);
}

/* A server_loader: the tokenizer, then the weights. */
static skv_status load_model(void *user, size_t i, size_t memory_max, server_loaded *out,
                             char *error)
{
    const serve_models *models = user;
    serve_model *one = &models->at[i];
    cli_model *model = &one->model;
    skv_error err = {0};
    *model = (cli_model){.path = one->path, .info = one->info};
    skv_status status = SKV_OK;
    const bool reads = is_reader(models->options); /* token ids alone */
    if (!reads && !cli_preset_of(one->path))
        status = skv_vocab_open(one->path, &model->vocab, &err);
    if (status == SKV_UNSUPPORTED) status = SKV_OK;
    out->template = (server_template){models->template_text, false};
    if (status == SKV_OK && !reads && !models->template_text) find_template(model, &out->template);
    if (status == SKV_OK) status = open_engine(models, one, memory_max, &out->n_bytes, &err);
    if (status != SKV_OK) {
        (void)snprintf(error, SKV_ERROR_TEXT_MAX, "%s", err.text);
        cli_model_close(model);
        return status;
    }
    out->engine = model->engine;
    out->vocab = model->vocab;
    if (models->n > 1) cli_tell("%s is loaded", one->name);
    tell_model(one);
    return SKV_OK;
}

static void unload_model(void *user, size_t i)
{
    cli_model_close(&((const serve_models *)user)->at[i].model);
}

/* "org/name@revision" is "org/name", a path its last part. */
static void name_of(const char *given, bool is_name, char *out, size_t room)
{
    if (is_name) {
        (void)snprintf(out, room, "%.*s", (int)strcspn(given, "@:"), given);
    } else {
        name_of_path(given, out, room);
    }
}

/* Where its prompts are kept: of several models in folders of their own, "DIR/org--name". */
static void name_cache(const char *folder, const char *name, serve_model *one)
{
    size_t n =
        (size_t)snprintf(one->cache_dir, sizeof one->cache_dir, "%s%s", folder, *name ? "/" : "");
    for (; *name && n + 3 < sizeof one->cache_dir; name++) {
        one->cache_dir[n++] = *name == '/' ? '-' : *name;
        if (*name == '/') one->cache_dir[n++] = '-';
        one->cache_dir[n] = 0;
    }
}

/* Of an operand NAME=MODEL, the names, by which requests ask for it. */
static int read_names(const cli_options *o, size_t i, serve_model *one)
{
    const char *given = o->operand_names[i];
    const size_t n = given ? strcspn(given, "=") : 0;
    if (n == 0) return CLI_DONE;
    if (o->served_name) {
        return cli_usage("serve: --name and %s: both name the model", given);
    }
    if (n >= sizeof one->own_names)
        return cli_usage("serve: %.60s...: the name is too long", given);
    if (o->n_operands > 1 && memchr(given, '*', n)) {
        return cli_usage("serve: %s: *, any name, goes with one model, there are %zu", given,
                         o->n_operands);
    }
    memcpy(one->own_names, given, n);
    return CLI_DONE;
}

/* Where it is; main has found the first. */
static int find_path(const cli_options *o, size_t i, bool is_name, serve_model *one)
{
    const char *path = o->operands[i];
    if (i > 0 && is_name) return cli_hub_open(path, o->download, one->path);
    const int status = i > 0 ? cli_suggest_folder(&path, one->path) : CLI_DONE;
    if (path != one->path) (void)snprintf(one->path, sizeof one->path, "%s", path);
    return status;
}

/* Finds the path, the description and the names of a model: cheap, without weights. */
static int describe_model(const cli_options *o, size_t i, serve_models *models)
{
    serve_model *one = &models->at[i];
    skv_error err = {0};
    const char *given = i == 0 ? o->model_name : o->operands[i];
    const bool is_name = cli_hub_is_name(given);
    int status = read_names(o, i, one);
    if (status == CLI_DONE) status = find_path(o, i, is_name, one);
    if (status != CLI_DONE) return status;
    status = cli_check(skv_model_info_read(one->path, &one->info, &err), &err);
    if (status == CLI_DONE) status = cli_shape_preset(one->path, o, &one->info);
    if (status == CLI_DONE) status = cli_check_methods(one->path, &one->info, o);
    if (status != CLI_DONE) return status;
    if (one->own_names[0]) {
        (void)snprintf(one->name, sizeof one->name, "%.*s", (int)strcspn(one->own_names, ","),
                       one->own_names);
    } else {
        name_of(given, is_name, one->name, sizeof one->name);
    }
    if (o->cache_dir) name_cache(o->cache_dir, models->n > 1 ? one->name : "", one);
    const char *slash = strrchr(one->path, '/');
    models->sources[i] = (server_source){.file = slash && slash[1] ? slash + 1 : one->name,
                                         .info = &one->info,
                                         .context = context_of(o, &one->info),
                                         .cache_dir = o->cache_dir ? one->cache_dir : NULL,
                                         .sampling = request_sampling(o, &one->info)};
    return CLI_DONE;
}

static int describe_models(const cli_options *o, serve_models *out)
{
    const size_t n = o->n_operands;
    *out = (serve_models){.options = o, .n = n};
    if (n > 1 && o->served_name) {
        return cli_usage("serve: --name goes with one model, there are %zu", n);
    }
    /* The models' folders are inside it. */
    if (n > 1 && o->cache_dir && mkdir(o->cache_dir, 0700) != 0 && errno != EEXIST) {
        return cli_fail("--cache-dir: %s: cannot create: %s", o->cache_dir, strerror(errno));
    }
    out->at = cli_alloc(n, sizeof *out->at);
    out->sources = cli_alloc(n, sizeof *out->sources);
    for (size_t i = 0; i < n; i++) {
        out->at[i].model = (cli_model){0};
        const int status = describe_model(o, i, out);
        if (status != CLI_DONE) return status;
    }
    const int status = n > 1 ? share_out(o, out) : CLI_DONE;
    for (size_t i = 0; i < n && status == CLI_DONE; i++) {
        serve_model *one = &out->at[i];
        const char *first = o->served_name      ? o->served_name
                            : one->own_names[0] ? one->own_names
                                                : one->name;
        one->names = list_names(first, n > 1 ? one->adapters : o->adapters);
        out->sources[i].names = one->names;
        out->sources[i].never_drafts = n > 1 && o->draft && !one->draft && !o->speculation_given;
    }
    return status;
}

/* Whether `ulimit -v` limits mappings. */
static bool is_space_limited(void)
{
    struct rlimit limit;
    return getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
}

/* Requests that find no room are refused; better that the operator knows before. */
static void check_space(const cli_options *o)
{
    skv_machine machine;
    if (!is_space_limited()) return;
    skv_machine_describe(&machine);
    const size_t left = machine.memory_available >> 20;
    const size_t wanted = o->memory_mib + (o->connections * o->stack_kib >> 10);
    if (left >= wanted) return;
    cli_warn("ulimit -v leaves %zu MiB to requests: --memory and the stacks of %zu connections may "
             "take %zu; requests without room get a 503",
             left, o->connections, wanted);
}

static int serve(const serve_models *models, http_server *server, const char *host)
{
    char error[SKV_ERROR_TEXT_MAX];
    if (!server_ready(server, error)) return cli_fail("%s", error);
    for (size_t i = 0; i < models->n; i++) tell_sampling(models->options, &models->at[i].info);
    check_space(models->options);
    fprintf(stderr, "swiftkv: ready on http://%s:%zu\n", host, server_port(server));
    server_wait(server);
    return CLI_DONE;
}

/* Listens, loads and serves. */
static int run(serve_models *models, const server_options *wanted)
{
    char error[SKV_ERROR_TEXT_MAX];
    cli_interrupt *interrupt = models->options->interrupt;
    http_server *server = NULL;
    signal_target target;
    atomic_init(&target.server, NULL);
    models->target = &target;
    int status = cli_interrupt_handle(interrupt, on_signal, &target);
    if (status == CLI_DONE && !server_start(wanted, &server, error)) {
        status = cli_fail("%s", error);
    }
    if (status == CLI_DONE) {
        atomic_store(&target.server, server);
        fprintf(stderr, "swiftkv: listening on http://%s:%zu\n", wanted->host, server_port(server));
        status = serve(models, server, wanted->host);
    }
    cli_interrupt_unhandle(interrupt);
    server_stop(server);
    models->target = NULL;
    return status;
}

int cli_run_serve(const cli_options *options)
{
    /* Returns freed memory of requests to the system, so that --memory bounds the real use. */
    skv_heap_bound(is_space_limited());
    serve_models models;
    cli_bytes file = {0};
    shared_cache cache = {.redis = NULL};
    int status = check_role(options);
    if (status == CLI_DONE) status = check_ranks(options);
    models = (serve_models){.options = options};
    if (status == CLI_DONE) status = describe_models(options, &models);
    if (status == CLI_DONE && options->template_file) {
        status = cli_read_template(options->template_file, &file);
        models.template_text = file.data;
    }
    if (status == CLI_DONE) status = open_shared(options, &cache);
    if (status == CLI_DONE) {
        server_options wanted = make_options(options);
        wanted.scheduler.cache_key = cache.key.data;
        wanted.scheduler.n_cache_key = cache.key.n;
        wanted.scheduler.store = cache.redis ? &cache.table : NULL;
        wanted.scheduler.readers = cache.reader ? &cache.readers : NULL;
        wanted.sources = models.sources;
        wanted.n_sources = models.n;
        wanted.loader = (server_loader){load_model, unload_model, &models};
        status = run(&models, &wanted);
    }
    close_shared(&cache);
    cli_bytes_release(&file);
    for (size_t i = 0; models.at && i < models.n; i++) {
        free(models.at[i].names);
        free(models.at[i].adapters);
        free(models.at[i].draft);
    }
    free(models.at);
    free(models.sources);
    return status;
}
