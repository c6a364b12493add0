/* Opening models and encoding the text that they get. */
#include "runtime.h"

#include <stdlib.h>
#include <string.h>

#include "memory_plan.h"
#include "report.h"
#include "skv/ranks.h"

static skv_where where_of(const cli_options *o)
{
    switch (o->command) {
    case CLI_CHAT: return SKV_WHERE_CHAT;
    case CLI_BENCH: return SKV_WHERE_BENCH;
    case CLI_COMPARE: return SKV_WHERE_COMPARE;
    case CLI_EVAL:
        if (!o->reference) return SKV_WHERE_EVAL;
        return strcmp(o->reference, "teacher") == 0 ? SKV_WHERE_TEACHER : SKV_WHERE_REFERENCE;
    case CLI_SCORE: return SKV_WHERE_SCORE;
    case CLI_SIMILARITY: return SKV_WHERE_SIMILARITY;
    case CLI_SERVE:
        if (strcmp(o->role, "read") == 0) return SKV_WHERE_READ;
        return o->cache_shift ? SKV_WHERE_SHIFT : SKV_WHERE_SERVE;
    default: return SKV_WHERE_GENERATE;
    }
}

int cli_check_methods(const char *path, const skv_model_info *info, const cli_options *options)
{
    skv_error err = {0};
    const skv_engine_options engine = cli_engine_options(options);
    skv_combination c = skv_combination_of(&info->traits, &engine, where_of(options));
    size_t i_rule = skv_combination_refused(&c);
    if (i_rule == SIZE_MAX && options->team) {
        c.at[SKV_AXIS_WHERE] = SKV_WHERE_RANKS;
        i_rule = skv_combination_refused(&c);
    }
    if (i_rule == SIZE_MAX) return CLI_DONE;
    if (skv_combination_check(&c, &err) == SKV_OK) return CLI_DONE;
    /* If the rule only concerns options, the command line is wrong; otherwise the model cannot do
     * it. */
    const uint32_t *values = skv_refusal_at(i_rule)->values;
    bool by_model = values[SKV_AXIS_PREFILL] != 0 && options->prefill == SKV_PREFILL_AUTO;
    for (unsigned axis = 0; axis < SKV_AXIS_PREFILL; axis++) by_model |= values[axis] != 0;
    return by_model ? cli_fail("%s: %s", path, err.text) : cli_usage("%s", err.text);
}

int cli_shape_preset(const char *path, const cli_options *options, skv_model_info *info)
{
    const size_t l = options->kv_layers, group = options->group;
    skv_error err = {0};
    if (l == 0) return group == 0 ? CLI_DONE : cli_usage("--group: needs --kv-layers");
    if (!cli_preset_of(path)) {
        return cli_usage("--kv-layers: goes with presets; transform makes a SwiftKV model");
    }
    return cli_check(skv_model_info_swiftkv(path, l, group != 0 ? group : 1, info, &err), &err);
}

void cli_note_length(const cli_model *model, const char *what, size_t n)
{
    const skv_model_info *info = &model->info;
    char own[64] = "";
    if (n <= info->trained) return;
    if (info->context != info->trained) {
        (void)snprintf(own, sizeof own, " (its files allow %zu)", info->context);
    }
    cli_warn("%s %zu tokens: %s was made for texts of at most %zu%s; beyond, answers may be noise",
             what, n, model->path, info->trained, own);
}

static int read_info(cli_model *model, const cli_options *options)
{
    skv_error err = {0};
    *model = (cli_model){.path = options->operands[0]};
    const int status = cli_check(skv_model_info_read(model->path, &model->info, &err), &err);
    return status == CLI_DONE ? cli_check_methods(model->path, &model->info, options) : status;
}

int cli_model_describe(cli_model *model, const cli_options *options)
{
    skv_error err = {0};
    const int status = read_info(model, options);
    if (status != CLI_DONE || cli_preset_of(model->path)) return status;
    const skv_status opened = skv_vocab_open(model->path, &model->vocab, &err);
    return opened == SKV_UNSUPPORTED ? CLI_DONE : cli_check(opened, &err);
}

int cli_model_describe_text(cli_model *model, const cli_options *options)
{
    skv_error err = {0};
    if (cli_preset_of(options->operands[0])) {
        return cli_fail("%s: a preset has no tokenizer: give --ids-file", options->operands[0]);
    }
    const int status = read_info(model, options);
    if (status != CLI_DONE) return status;
    return cli_check(skv_vocab_open(model->path, &model->vocab, &err), &err);
}

typedef struct loading {
    cli_progress progress;
    const skv_engine_options *options;
} loading;

static void tell_share(void *user, double share)
{
    cli_progress_share(&((loading *)user)->progress, share);
}

static bool ask_stopped(void *user)
{
    const skv_engine_options *o = ((const loading *)user)->options;
    return o->stopped && o->stopped(o->user);
}

skv_status cli_model_try(cli_model *model, const skv_engine_options *options, skv_error *err)
{
    skv_engine_options full = *options;
    loading now = {.options = options};
    cli_progress_begin(&now.progress, "loading");
    full.progress = tell_share;
    full.stopped = ask_stopped;
    full.user = &now;
    const char *preset = cli_preset_of(model->path);
    const skv_status status = preset ? skv_engine_open_preset(preset, &full, &model->engine, err)
                                     : skv_engine_open(model->path, &full, &model->engine, err);
    cli_progress_end(&now.progress);
    return status;
}

int cli_model_start(cli_model *model, const skv_engine_options *options)
{
    skv_error err = {0};
    const skv_status status = cli_model_try(model, options, &err);
    if (status == SKV_MEMORY) {
        cli_memory_advise(model->path, options, options->kv_tokens == 0 ? "--ctx" : NULL, &err);
    }
    return cli_check(status, &err);
}

void cli_model_close(cli_model *model)
{
    skv_engine_close(model->engine);
    skv_vocab_close(model->vocab);
    *model = (cli_model){0};
}

static int encode(const cli_model *model, const cli_bytes *text, const skv_encode_options *options,
                  cli_ids *out)
{
    skv_error err = {0};
    int32_t *ids = NULL;
    size_t n = 0;
    const skv_status status = skv_vocab_encode(model->vocab, (skv_text_piece){text->data, text->n},
                                               *options, &ids, &n, &err);
    if (status != SKV_OK) return cli_check(status, &err);
    cli_ids_append(out, ids, n);
    skv_text_free(ids);
    return CLI_DONE;
}

int cli_encode(const cli_model *model, const cli_bytes *text, bool add_special, bool parse_special,
               cli_ids *out)
{
    const skv_encode_options options = {.add_special = add_special, .parse_special = parse_special};
    return encode(model, text, &options, out);
}

int cli_input_text(const cli_options *options, cli_bytes *out)
{
    if (options->file) {
        const int status = cli_read_file(options->file, out);
        return status == CLI_DONE ? cli_check_text(options->file, out) : status;
    }
    out->n = strlen(options->prompt);
    out->data = cli_alloc(out->n + 1, 1);
    memcpy(out->data, options->prompt, out->n);
    return cli_check_text("-p", out);
}

static int render(const cli_bytes *template_text, const json_t *vars, const skv_vocab *vocab,
                  cli_bytes *out, skv_text_marks *data)
{
    char *json = json_dumps(vars, JSON_COMPACT);
    if (!json) return cli_fail("variables of the template: not valid UTF-8");
    skv_error err = {0};
    char *text = NULL;
    size_t n = 0;
    const skv_status status = skv_render_marked(
        &(const skv_render_input){.template_text = {template_text->data, template_text->n},
                                  .vars = {json, strlen(json)},
                                  .vocab = vocab},
        &text, &n, data, &err);
    free(json);
    if (status != SKV_OK) return cli_check(status, &err);
    out->data = cli_alloc(n + 1, 1);
    memcpy(out->data, text, n);
    out->n = n;
    skv_text_free(text);
    return CLI_DONE;
}

int cli_render(const cli_bytes *template_text, const json_t *vars, const skv_vocab *vocab,
               cli_bytes *out)
{
    skv_text_marks data = {0};
    const int status = render(template_text, vars, vocab, out, &data);
    skv_text_free(data.at);
    return status;
}

int cli_encode_chat(const cli_model *model, const cli_bytes *template_text, const json_t *vars,
                    bool special_text, cli_ids *out)
{
    cli_bytes text = {0};
    skv_text_marks data = {0};
    const skv_encode_options options = {.parse_special = true, .data = special_text ? NULL : &data};
    int status = render(template_text, vars, model->vocab, &text, &data);
    if (status == CLI_DONE) status = encode(model, &text, &options, out);
    cli_bytes_release(&text);
    skv_text_free(data.at);
    return status;
}

static void put_counts(skv_json_out *json, const skv_draft_counts *counts)
{
    skv_json_out_put_integer(json, "drafted", counts->drafted);
    skv_json_out_put_integer(json, "accepted", counts->accepted);
}

void cli_json_put_drafts(skv_json_out *json, const skv_draft_counts drafts[SKV_DRAFT_SOURCES])
{
    skv_draft_counts sum = {0};
    for (size_t i = 0; i < SKV_DRAFT_SOURCES; i++) {
        sum.drafted += drafts[i].drafted;
        sum.accepted += drafts[i].accepted;
    }
    skv_json_out_put_open(json, "speculation", '{');
    put_counts(json, &sum);
    skv_json_out_put_open(json, "by", '{');
    for (size_t i = 1; i < SKV_DRAFT_SOURCES; i++) {
        skv_json_out_put_open(json, skv_drafting_name((skv_drafting)i), '{');
        put_counts(json, &drafts[i]);
        skv_json_out_close(json, '}');
    }
    skv_json_out_close(json, '}');
    skv_json_out_close(json, '}');
}

void cli_json_put_traffic(skv_json_out *json, const skv_engine *engine)
{
    const skv_ranks_traffic t = skv_engine_traffic(engine);
    if (t.ranks == 1) return;
    skv_json_out_put_open(json, "ranks", '{');
    skv_json_out_put_integer(json, "n", t.ranks);
    skv_json_out_put_integer(json, "sums", t.n_sums);
    skv_json_out_put_integer(json, "sum_bytes", t.sum_bytes);
    skv_json_out_put_integer(json, "head_bytes", t.head_bytes);
    skv_json_out_put_integer(json, "told_bytes", t.told_bytes);
    skv_json_out_put_text(json, "sums_by", t.sums_by);
    skv_json_out_close(json, '}');
}

void cli_json_put_work(skv_json_out *json, const char *key, const skv_work *w)
{
    skv_json_out_put_open(json, key, '{');
    skv_json_out_put_number(json, "flops", w->total);
    skv_json_out_put_number(json, "model_flops", w->model);
    skv_json_out_put_number(json, "kv", w->kv);
    skv_json_out_put_number(json, "q", w->q);
    skv_json_out_put_number(json, "o", w->o);
    skv_json_out_put_number(json, "mlp", w->mlp);
    skv_json_out_put_number(json, "attention", w->attention);
    skv_json_out_put_number(json, "vocabulary", w->vocabulary);
    skv_json_out_put_number(json, "prediction", w->prediction);
    skv_json_out_put_integer(json, "mlp_blocks", w->mlp_blocks);
    skv_json_out_put_integer(json, "mlp_skipped", w->mlp_skipped);
    skv_json_out_put_integer(json, "exits_asked", w->exits_asked);
    skv_json_out_put_integer(json, "exits", w->exits);
    skv_json_out_close(json, '}');
}
