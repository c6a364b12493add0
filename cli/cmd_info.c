/*
 * swiftkv info: describes a model and the cost of a prompt token: the breakdown of SwiftKV's Table
 * 1 (arXiv:2410.03960), for the unmodified model and for its SwiftKV form if there is one.
 */
#include <string.h>

#include "common/json_out.h"
#include "memory_plan.h"
#include "runtime.h"
#include "skv/reply.h"

typedef struct form {
    const char *name;
    skv_model_info info;
    skv_cost cost; /* of a prompt token */
} form;

typedef struct description {
    const cli_options *options;
    const char *path;
    form forms[2]; /* the unmodified model, the SwiftKV form */
    size_t n_forms;
    size_t context; /* tokens that attention is counted for */
    skv_kv kv;
    skv_cost predicted; /* KV Prediction: a prompt token through the auxiliary model */
    double predictor;   /* and through the linear maps */
    skv_vocab *vocab;   /* owned; NULL: none */
    skv_error no_vocab; /* why it cannot be read; empty: it can, or there is none */
    cli_memory memory;
    skv_error no_memory; /* why it cannot be planned; empty: it can */
} description;

/* The unmodified shape of a model that holds SwiftKV weights: all layers of a group with a slot of
 * their own. Its parameters are not known from the configuration, so they are left out of the
 * table. */
static skv_model_info unmodified(const skv_model_info *info)
{
    skv_model_info out = *info;
    out.swiftkv = false;
    out.swiftkv_layers = info->layers;
    out.group = 1;
    if (info->group > 1) out.kv_slots = info->layers;
    out.kv_elements = info->kv_slots > 0 && !info->per_layer
                          ? info->kv_elements / info->kv_slots * out.kv_slots
                          : info->kv_elements;
    out.kv_window_elements =
        info->kv_elements > 0 ? info->kv_window_elements * out.kv_elements / info->kv_elements : 0;
    return out;
}

/* The papers' tables count the vocabulary for the embedding and for the head, and attention in
 * units of 2^30 beside 10^9 for the rest. */
static void count_as_papers(skv_cost *c)
{
    c->vocabulary *= 2;
    c->attention *= 1e9 / 0x1p30;
    c->total = c->vocabulary + c->kv + c->q + c->o + c->mlp + c->attention;
}

static int cost_of(const description *d, form *f)
{
    skv_error err = {0};
    skv_status status =
        skv_model_cost(d->path, f->info.swiftkv_layers, f->info.group, d->context, &f->cost, &err);
    if (status == SKV_OK && d->options->as_papers) count_as_papers(&f->cost);
    return cli_check(status, &err);
}

/* Adds facts beyond the shape; if one is not available, the others are still printed. */
static void describe_more(description *d, const skv_model_info *own)
{
    if (cli_memory_plan(d->path, d->options, own, &d->memory, &d->no_memory) == SKV_OK) {
        d->no_memory.text[0] = 0;
    }
    if (cli_preset_of(d->path)) return;
    const skv_status opened = skv_vocab_open(d->path, &d->vocab, &d->no_vocab);
    if (opened == SKV_OK || opened == SKV_UNSUPPORTED) d->no_vocab.text[0] = 0;
}

static int describe(description *d)
{
    const cli_options *o = d->options;
    skv_error err = {0};
    skv_model_info own;
    int status = cli_check(skv_model_info_read(d->path, &own, &err), &err);
    if (status != CLI_DONE) return status;
    d->context = o->cost_context != 0 ? o->cost_context : own.context;
    d->kv = o->kv != SKV_KV_AUTO ? o->kv : SKV_KV_BF16;
    d->forms[0] = (form){.name = "unmodified", .info = own.swiftkv ? unmodified(&own) : own};
    d->n_forms = 1;
    if (o->kv_layers != 0) {
        const size_t group = o->group != 0 ? o->group : 1;
        status = cli_check(
            skv_model_info_swiftkv(d->path, o->kv_layers, group, &d->forms[1].info, &err), &err);
        d->n_forms = 2;
    } else if (own.swiftkv) {
        d->forms[1].info = own;
        d->n_forms = 2;
    } else if (o->group != 0) {
        return cli_usage("info: --group needs --kv-layers");
    }
    d->forms[1].name = "SwiftKV";
    for (size_t i = 0; status == CLI_DONE && i < d->n_forms; i++) status = cost_of(d, &d->forms[i]);
    if (status == CLI_DONE && own.kv_prediction) {
        status = cli_check(skv_kvpred_cost(d->path, d->context, &d->predicted, &d->predictor, &err),
                           &err);
    }
    if (status == CLI_DONE) describe_more(d, &own);
    return status;
}

/* ---- text ---- */

/* Returns the call syntax that the template uses; NULL: there is no template. */
static const char *calls_of(const description *d)
{
    const char *text = d->vocab ? skv_vocab_chat_template(d->vocab) : NULL;
    return text ? skv_call_syntax_name(skv_reply_format_of(text, strlen(text)).calls) : NULL;
}

static void print_template(const description *d)
{
    const char *calls = calls_of(d);
    if (d->no_vocab.text[0]) {
        printf("tokenizer      cannot be read: %s\n", d->no_vocab.text);
    } else if (!d->vocab) {
        printf("tokenizer      none: token ids alone\n");
    } else if (!calls) {
        printf("chat template  none: chat and serve use ChatML unless --template says otherwise\n");
    } else if (strcmp(calls, "none") == 0) {
        printf("chat template  yes, without marks of tool calls\n");
    } else {
        printf("chat template  yes, tool calls as %s\n", calls);
    }
}

/* Of a sequence, in the type that was asked for. */
static size_t state_bytes(const description *d)
{
    const skv_model_info *m = &d->forms[d->n_forms - 1].info;
    const bool small = d->options->state == SKV_STATE_BF16;
    return m->state_bytes - (small ? m->matrix_bytes / 2 : 0);
}

static void print_shape(const description *d)
{
    const skv_model_info *m = &d->forms[d->n_forms - 1].info;
    printf("%s\n\n", d->path);
    printf("architecture   %s\n", m->architecture);
    printf("layers         %zu\n", m->layers);
    if (m->state_layers > 0) {
        printf("mixers         %zu layers with a state of the sequence, %zu with attention\n",
               m->state_layers, m->kv_slots);
        printf("state          %.2f MiB a sequence\n", (double)state_bytes(d) / 1048576);
    }
    printf("hidden         %zu\n", m->hidden);
    printf("heads          %zu, %zu for keys and values, of %zu%s\n", m->heads, m->kv_heads,
           m->head_dim, m->per_layer ? " (layer 0; they differ by layer)" : "");
    printf("feed forward   %zu%s\n", m->ffn, m->per_layer ? " (layer 0)" : "");
    if (m->experts > 0) {
        printf("experts        %zu, %zu for each token\n", m->experts, m->active_experts);
    }
    printf("vocabulary     %zu%s\n", m->vocab, m->tied ? ", one matrix for both ends" : "");
    printf("context        %zu", m->context);
    if (m->trained < m->context) printf(", trained to %zu", m->trained);
    if (m->trained > m->context) printf(", its RoPE scaling reaches %zu", m->trained);
    putchar('\n');
    printf("parameters     %.4g million", (double)m->parameters * 1e-6);
    if (m->experts > 0) {
        printf(", %.4g million for each token", (double)m->active_parameters * 1e-6);
    }
    putchar('\n');
    if (m->codes[0]) printf("weights        %s\n", m->codes);
    if (m->stored[0])
        printf("%s%s tensors\n", m->codes[0] ? "and            " : "weights        ", m->stored);
    print_template(d);
    if (m->kv_prediction) {
        printf(
            "KV Prediction  %zu layers with %.4g million parameters read prompts, a predictor of "
            "%.4g million\n",
            m->auxiliary_layers, (double)m->auxiliary_parameters * 1e-6,
            (double)m->predictor_parameters * 1e-6);
    }
    if (m->mtp) printf("MTP head       predicts further tokens, for --speculate mtp\n");
    if (!m->swiftkv) return;
    printf("SwiftKV        l = %zu of %zu layers, groups of %zu, %zu KV slots\n", m->swiftkv_layers,
           m->layers, m->group, m->kv_slots);
    if (m->exit_words > 0) {
        printf("exit head      %zu of %zu tokens, for --speculate self%s\n", m->exit_words,
               m->vocab, m->traits.exit_cut ? "" : " and --early-exit");
    }
}

static void print_memory(const description *d)
{
    printf("\nKV cache, bytes a token (MiB at %zu tokens)\n", d->context);
    printf("  %-6s", "");
    for (size_t i = 0; i < d->n_forms; i++) printf(" %24s", d->forms[i].name);
    printf("\n");
    for (skv_kv kv = SKV_KV_F32; skv_kv_name(kv); kv++) {
        printf("  %-6s", skv_kv_name(kv));
        for (size_t i = 0; i < d->n_forms; i++) {
            const size_t bytes = skv_model_kv_bytes_per_token(&d->forms[i].info, kv);
            const size_t all = skv_model_kv_bytes(&d->forms[i].info, kv, d->context);
            printf(" %11zu (%10.1f)", bytes, (double)all / 1048576);
        }
        printf("\n");
    }
}

static void print_cost_row(const form *f, double unit, double base)
{
    char name[64];
    if (f->info.swiftkv_layers == f->info.layers) {
        snprintf(name, sizeof name, "%s", f->name);
    } else {
        snprintf(name, sizeof name, "%s l=%zu g=%zu", f->name, f->info.swiftkv_layers,
                 f->info.group);
    }
    const skv_cost *c = &f->cost;
    printf("  %-22s %7.2f %7.2f %7.2f %7.2f %7.2f %8.2f %8.2f %8.2f %6.1f%%\n", name,
           c->vocabulary / unit, c->q / unit, c->kv / 2 / unit, c->kv / 2 / unit, c->o / unit,
           c->mlp / unit, c->attention / unit, c->total / unit, 100 * c->total / base);
}

static void print_cost(const description *d)
{
    const double base = d->forms[0].cost.total;
    const bool small = base < 1e8;
    printf("\n%s a prompt token, attention over %zu tokens\n", small ? "MFLOP" : "GFLOP",
           d->context);
    printf("  %-22s %7s %7s %7s %7s %7s %8s %8s %8s %7s\n", "", "vocab", "Q", "K", "V", "O", "MLP",
           "attn", "total", "rel.");
    for (size_t i = 0; i < d->n_forms; i++) print_cost_row(&d->forms[i], small ? 1e6 : 1e9, base);
    if (!d->forms[0].info.kv_prediction) return;
    const form predicted = {
        .name = "KV Prediction", .info = d->forms[0].info, .cost = d->predicted};
    print_cost_row(&predicted, small ? 1e6 : 1e9, base);
    printf("  %-22s %69.2f %6.1f%%\n", "  its predictor", d->predictor / (small ? 1e6 : 1e9),
           100 * d->predictor / base);
}

/* ---- JSON ---- */

static void print_cost_json(skv_json_out *json, const description *d)
{
    skv_json_out_put_open(json, "gflop_per_prompt_token", '[');
    for (size_t i = 0; i < d->n_forms; i++) {
        const form *f = &d->forms[i];
        skv_json_out_open(json, '{');
        skv_json_out_put_integer(json, "kv_layers", f->info.swiftkv_layers);
        skv_json_out_put_integer(json, "group", f->info.group);
        skv_json_out_put_number(json, "vocabulary", f->cost.vocabulary * 1e-9);
        skv_json_out_put_number(json, "kv", f->cost.kv * 1e-9);
        skv_json_out_put_number(json, "q", f->cost.q * 1e-9);
        skv_json_out_put_number(json, "o", f->cost.o * 1e-9);
        skv_json_out_put_number(json, "mlp", f->cost.mlp * 1e-9);
        skv_json_out_put_number(json, "attention", f->cost.attention * 1e-9);
        skv_json_out_put_number(json, "total", f->cost.total * 1e-9);
        skv_json_out_put_number(json, "relative", f->cost.total / d->forms[0].cost.total);
        skv_json_out_close(json, '}');
    }
    skv_json_out_close(json, ']');
}

static void print_kv_json(skv_json_out *json, const skv_model_info *m)
{
    skv_json_out_put_open(json, "kv_bytes_per_token_by_type", '{');
    for (skv_kv kv = SKV_KV_F32; skv_kv_name(kv); kv++) {
        skv_json_out_put_integer(json, skv_kv_name(kv), skv_model_kv_bytes_per_token(m, kv));
    }
    skv_json_out_close(json, '}');
}

static void put_template(skv_json_out *json, const description *d)
{
    const char *calls = calls_of(d);
    skv_json_out_put_bool(json, "chat_template", calls);
    if (calls) skv_json_out_put_text(json, "tool_format", calls);
}

static void print_shape_json(skv_json_out *json, const description *d)
{
    const skv_model_info *m = &d->forms[d->n_forms - 1].info;
    skv_json_out_put_text(json, "architecture", m->architecture);
    skv_json_out_put_integer(json, "layers", m->layers);
    if (m->state_layers > 0) {
        skv_json_out_put_integer(json, "state_layers", m->state_layers);
        skv_json_out_put_integer(json, "state_bytes", state_bytes(d));
    }
    skv_json_out_put_integer(json, "hidden", m->hidden);
    skv_json_out_put_integer(json, "heads", m->heads);
    skv_json_out_put_integer(json, "kv_heads", m->kv_heads);
    skv_json_out_put_integer(json, "head_dim", m->head_dim);
    skv_json_out_put_integer(json, "ffn", m->ffn);
    skv_json_out_put_bool(json, "per_layer", m->per_layer);
    skv_json_out_put_integer(json, "vocab", m->vocab);
    skv_json_out_put_bool(json, "tied", m->tied);
    skv_json_out_put_integer(json, "context", m->context);
    skv_json_out_put_integer(json, "trained_context", m->trained);
    skv_json_out_put_integer(json, "parameters", m->parameters);
    if (m->codes[0]) skv_json_out_put_text(json, "codes", m->codes);
    if (m->stored[0]) skv_json_out_put_text(json, "stored", m->stored);
    put_template(json, d);
    if (m->experts > 0) {
        skv_json_out_put_integer(json, "experts", m->experts);
        skv_json_out_put_integer(json, "active_experts", m->active_experts);
        skv_json_out_put_integer(json, "active_parameters", m->active_parameters);
    }
}

static void print_json(const description *d)
{
    const skv_model_info *m = &d->forms[d->n_forms - 1].info;
    skv_json_out json = {.stream = stdout};
    skv_json_out_open(&json, '{');
    print_shape_json(&json, d);
    skv_json_out_key(&json, "swiftkv_layers");
    if (m->swiftkv) {
        skv_json_out_integer(&json, (int64_t)m->swiftkv_layers);
    } else {
        skv_json_out_null(&json);
    }
    if (m->kv_prediction) {
        skv_json_out_put_integer(&json, "auxiliary_layers", m->auxiliary_layers);
        skv_json_out_put_integer(&json, "auxiliary_parameters", m->auxiliary_parameters);
        skv_json_out_put_integer(&json, "predictor_parameters", m->predictor_parameters);
        skv_json_out_put_number(&json, "gflop_per_predicted_token",
                                (d->predicted.total + d->predictor) * 1e-9);
    }
    skv_json_out_put_integer(&json, "group", m->group);
    skv_json_out_put_integer(&json, "kv_slots", m->kv_slots);
    if (m->exit_words > 0) skv_json_out_put_integer(&json, "exit_words", m->exit_words);
    if (m->mtp) {
        skv_json_out_put_bool(&json, "mtp", true);
    }
    skv_json_out_put_text(&json, "kv", skv_kv_name(d->kv));
    skv_json_out_put_integer(&json, "kv_bytes_per_token", skv_model_kv_bytes_per_token(m, d->kv));
    print_kv_json(&json, m);
    if (m->kv_window > 0) {
        const size_t far = m->kv_window + 1;
        skv_json_out_put_integer(&json, "kv_window", m->kv_window);
        skv_json_out_put_integer(&json, "kv_bytes_per_token_beyond_window",
                                 skv_model_kv_bytes(m, d->kv, far) -
                                     skv_model_kv_bytes(m, d->kv, m->kv_window));
    }
    skv_json_out_put_integer(&json, "cost_context", d->context);
    print_cost_json(&json, d);
    if (!d->no_memory.text[0]) cli_memory_put(&json, &d->memory);
    skv_json_out_close(&json, '}');
    putchar('\n');
}

int cli_run_info(const cli_options *options)
{
    description d = {.options = options, .path = options->operands[0]};
    const int status = describe(&d);
    if (status != CLI_DONE) {
        skv_vocab_close(d.vocab);
        return status;
    }
    if (options->json) {
        print_json(&d);
    } else {
        print_shape(&d);
        print_memory(&d);
        print_cost(&d);
        if (d.no_memory.text[0]) {
            printf("\nMemory: %s\n", d.no_memory.text);
        } else {
            cli_memory_print(&d.memory);
        }
    }
    skv_vocab_close(d.vocab);
    return CLI_DONE;
}
