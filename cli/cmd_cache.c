/* swiftkv cache explain: shows why recorded requests miss the prefix cache, and the effect of
 * options. */
#include <stdlib.h>
#include <string.h>

#include "cache_replay.h"
#include "common/json_out.h"
#include "offline.h"
#include "runtime.h"

enum { AROUND_IDS = 16, TEXT_MAX = 96 };

/* The prompts unchanged, with changes, and with text from other places. */
static const struct {
    const char *name;
    offline_changes changes;
    bool shift;
} ways[] = {{.name = "as sent"},
            {"--prompt-strip", {.strip = true}, false},
            {"--prompt-sort tools", {.sort_tools = true}, false},
            {"--prompt-keep thoughts", {.keep_thoughts = true}, false},
            {"all three", {true, true, true}, false},
            {.name = "--cache-shift", .shift = true},
            {"all four", {true, true, true}, true}};
enum { N_WAYS = sizeof ways / sizeof ways[0], N_UNSHIFTED = 5 };

typedef struct explanation {
    const cli_options *options;
    skv_vocab *vocab;       /* owned */
    offline_reader *reader; /* owned */
    cache_replay replay[N_WAYS];
    bool shifts; /* the model's rows can be taken over at another place */
    size_t n_requests, n_prompt[N_WAYS], n_cached[N_WAYS], n_lost[N_WAYS];
} explanation;

static size_t count_ways(const explanation *e)
{
    return e->shifts ? N_WAYS : N_UNSHIFTED;
}

/* ---- one request ---- */

/* Ids around a place as a text on one line. */
static void show_text(const explanation *e, const cache_prompt *p, size_t at, skv_json_out *out)
{
    const size_t from = at > AROUND_IDS ? at - AROUND_IDS : 0;
    const size_t to = at + AROUND_IDS < p->n ? at + AROUND_IDS : p->n;
    char *text = NULL;
    size_t n = 0;
    const skv_decode_options how = {.with_special = true};
    if (skv_vocab_decode(e->vocab, (skv_id_piece){p->ids + from, to - from}, how, &text, &n,
                         NULL) != SKV_OK) {
        n = 0;
    }
    skv_json_out_text(out, text ? text : "", n);
    skv_text_free(text);
}

static void show_parting(const explanation *e, const cache_look *look, skv_json_out *json)
{
    const cache_replay *r = &e->replay[0];
    if (look->n_same == SIZE_MAX) return;
    skv_json_out_put_integer(json, "parts_from", look->i_with + 1);
    skv_json_out_put_integer(json, "token", look->n_same);
    skv_json_out_put_integer(json, "block", look->n_same / CACHE_BLOCK);
    skv_json_out_key(json, "sent");
    show_text(e, &r->at[r->n - 1], look->n_same, json);
    skv_json_out_key(json, "known");
    show_text(e, &r->at[look->i_with], look->n_same, json);
}

/* A number of each way from the first on. */
static void put_ways(const explanation *e, skv_json_out *json, const char *key,
                     const size_t *values, size_t first)
{
    skv_json_out_put_open(json, key, '{');
    for (size_t i = first; i < count_ways(e); i++) {
        skv_json_out_put_integer(json, ways[i].name, values[i]);
    }
    skv_json_out_close(json, '}');
}

static void print_json(const explanation *e, const char *file, const cache_look *looks)
{
    skv_json_out json = {.stream = stdout};
    skv_json_out_open(&json, '{');
    skv_json_out_put_integer(&json, "request", e->n_requests);
    skv_json_out_put_text(&json, "file", file);
    skv_json_out_put_integer(&json, "prompt_tokens", looks[0].n_ids);
    skv_json_out_put_integer(&json, "cached_tokens", looks[0].n_cached);
    skv_json_out_put_integer(&json, "new_tokens", looks[0].n_new);
    skv_json_out_put_integer(&json, "lost_tokens", cache_look_lost(&looks[0]));
    if (e->replay[0].states) {
        skv_json_out_put_integer(&json, "stateless_tokens", looks[0].n_stateless);
    }
    show_parting(e, &looks[0], &json);
    size_t n_cached[N_WAYS], n_new[N_WAYS];
    for (size_t i = 0; i < count_ways(e); i++) {
        n_cached[i] = looks[i].n_cached;
        n_new[i] = looks[i].n_new;
    }
    put_ways(e, &json, "cached_with", n_cached, 1);
    put_ways(e, &json, "new_with", n_new, 1);
    skv_json_out_close(&json, '}');
    putchar('\n');
}

static void print_words(const explanation *e, const char *file, const cache_look *looks)
{
    const cache_look *look = &looks[0];
    const cache_replay *r = &e->replay[0];
    printf("%3zu %s: %zu tokens, %zu cached, %zu new, %zu lost", e->n_requests, file, look->n_ids,
           look->n_cached, look->n_new, cache_look_lost(look));
    if (look->n_stateless > 0) printf(" (%zu without a state)", look->n_stateless);
    for (size_t i = 1; i < count_ways(e); i++) {
        if (looks[i].n_cached <= look->n_cached) continue;
        printf("; with %s %zu cached", ways[i].name, looks[i].n_cached);
    }
    putchar('\n');
    if (look->n_same == SIZE_MAX || cache_look_lost(look) < CACHE_BLOCK) return;
    skv_json_out out = {.stream = stdout};
    printf("    parts from %zu at token %zu, block %zu:\n    sent   ", look->i_with + 1,
           look->n_same, look->n_same / CACHE_BLOCK);
    show_text(e, &r->at[r->n - 1], look->n_same, &out);
    out.needs_comma = false;
    printf("\n    before ");
    show_text(e, &r->at[look->i_with], look->n_same, &out);
    putchar('\n');
}

/* Guesses the path of a body that was recorded without one. */
static const char *guess_path(const json_t *body)
{
    const json_t *tool = json_array_get(json_object_get(body, "tools"), 0);
    if (json_object_get(body, "input")) return "/v1/responses";
    const bool messages = json_object_get(body, "system") || json_object_get(tool, "input_schema");
    return messages ? "/v1/messages" : "/v1/chat/completions";
}

static int explain_body(explanation *e, const char *file, const char *path, const json_t *body)
{
    cache_look looks[N_WAYS];
    char error[SKV_ERROR_TEXT_MAX];
    char *text = json_dumps(body, JSON_COMPACT | JSON_REAL_PRECISION(15));
    if (!text) return cli_fail("%s: no memory", file);
    const offline_request request = {path, {text, strlen(text)}};
    bool ok = true;
    e->n_requests++;
    for (size_t i = 0; ok && i < count_ways(e); i++) {
        int32_t *ids = NULL;
        size_t n = 0;
        ok = offline_read(e->reader, &request, ways[i].changes, &ids, &n, error);
        if (!ok) break;
        cache_replay_add(&e->replay[i], ids, n, &looks[i]);
        e->n_prompt[i] += looks[i].n_ids;
        e->n_cached[i] += looks[i].n_cached;
        e->n_lost[i] += cache_look_lost(&looks[i]);
    }
    free(text);
    if (!ok) return cli_fail("%s: request %zu: %s", file, e->n_requests, error);
    (e->options->json ? print_json : print_words)(e, file, looks);
    return CLI_DONE;
}

/* ---- files ---- */

static int explain_value(explanation *e, const char *file, const json_t *value)
{
    const json_t *body = json_object_get(value, "body");
    const char *path = json_string_value(json_object_get(value, "path"));
    if (!body) body = value;
    if (!json_is_object(body)) {
        return cli_fail("%s: request %zu is not a JSON object", file, e->n_requests + 1);
    }
    return explain_body(e, file, path ? path : guess_path(body), body);
}

/* Values one after the other. */
static int explain_file(explanation *e, const char *file)
{
    cli_bytes text = {0};
    size_t at = 0;
    int status = cli_read_file(file, &text);
    while (status == CLI_DONE) {
        json_error_t problem;
        while (at < text.n && strchr(" \t\r\n", text.data[at])) at++;
        if (at == text.n) break;
        json_t *value = json_loadb(text.data + at, text.n - at, JSON_DISABLE_EOF_CHECK, &problem);
        if (!value) {
            status =
                cli_fail("%s: byte %zu: %s", file, at + (size_t)problem.position, problem.text);
            break;
        }
        at += (size_t)problem.position;
        status = explain_value(e, file, value);
        json_decref(value);
    }
    cli_bytes_release(&text);
    return status;
}

/* ---- the session ---- */

static void print_totals(const explanation *e)
{
    if (e->options->json) {
        skv_json_out json = {.stream = stdout};
        skv_json_out_open(&json, '{');
        skv_json_out_put_integer(&json, "requests", e->n_requests);
        put_ways(e, &json, "prompt_tokens", e->n_prompt, 0);
        put_ways(e, &json, "cached_tokens", e->n_cached, 0);
        put_ways(e, &json, "lost_tokens", e->n_lost, 0);
        skv_json_out_close(&json, '}');
        putchar('\n');
        return;
    }
    printf("\n%-24s %12s %12s %12s %12s %8s\n", "", "prompts", "cached", "computed", "lost",
           "share");
    for (size_t i = 0; i < count_ways(e); i++) {
        const size_t n_all = e->n_prompt[i], n_computed = n_all - e->n_cached[i];
        printf("%-24s %12zu %12zu %12zu %12zu %6.1f %%\n", ways[i].name, n_all, e->n_cached[i],
               n_computed, e->n_lost[i],
               n_all > 0 ? 100 * (double)e->n_lost[i] / (double)n_all : 0.0);
    }
    printf("lost: computed, although an earlier prompt has them in a run of %d tokens or more;\n"
           "share: of the prompts' tokens\n",
           CACHE_RUN);
}

/* A folder without weights has a tokenizer too, and counts as ordinary. */
static void prepare_replays(const char *model, explanation *e)
{
    skv_model_info info;
    const bool known = skv_model_info_read(model, &info, NULL) == SKV_OK;
    const skv_engine_options engine = skv_engine_options_default();
    e->shifts = true;
    if (known) {
        const skv_combination c = skv_combination_of(&info.traits, &engine, SKV_WHERE_SHIFT);
        e->shifts = skv_combination_refused(&c) == SIZE_MAX;
    }
    for (size_t i = 0; i < N_WAYS; i++) {
        e->replay[i].vocab = e->vocab;
        e->replay[i].states = known && info.state_layers > 0;
        e->replay[i].shift = ways[i].shift;
    }
}

static int open_reader(const cli_options *o, const char *model, explanation *e)
{
    skv_error err = {0};
    char error[SKV_ERROR_TEXT_MAX];
    cli_bytes file = {0};
    int status = cli_check(skv_vocab_open(model, &e->vocab, &err), &err);
    if (status == CLI_DONE) prepare_replays(model, e);
    if (status == CLI_DONE && o->template_file) {
        status = cli_read_template(o->template_file, &file);
    }
    if (status != CLI_DONE) return status;
    const char *text = file.data ? file.data : skv_vocab_chat_template(e->vocab);
    const server_template template = {text ? text : cli_template_text("chatml"), !text};
    const char *strip = o->prompt_strip ? o->prompt_strip : "claude-code";
    if (!offline_open(e->vocab, &template, strip, &e->reader, error)) {
        status = cli_fail("%s", error);
    }
    cli_bytes_release(&file);
    return status;
}

int cli_run_cache(const cli_options *o)
{
    explanation e = {.options = o};
    int status = open_reader(o, o->operands[1], &e);
    for (size_t i = 2; status == CLI_DONE && i < o->n_operands; i++) {
        status = explain_file(&e, o->operands[i]);
    }
    if (status == CLI_DONE) print_totals(&e);
    for (size_t i = 0; i < N_WAYS; i++) cache_replay_release(&e.replay[i]);
    offline_close(e.reader);
    skv_vocab_close(e.vocab);
    return status;
}
