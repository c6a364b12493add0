/*
 * POST /v1/rerank: how well documents match a query, by a model that was trained to answer "yes" or
 * "no" (Qwen3-Reranker). Each document is a prompt in the form that the model's authors publish,
 * and its score is p(yes) / (p(yes) + p(no)) of the first token after it.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "answer/api_answer.h"
#include "routes.h"

/* The text before the texts of a request, and after them. Texts themselves have no special
 * tokens: a document cannot end its turn. */
static const char before[] =
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and "
    "the Instruct provided. Note that the answer can only be \"yes\" or \"no\".<|im_end|>\n"
    "<|im_start|>user\n";
static const char behind[] = "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n";
static const char instruction[] =
    "Given a web search query, retrieve relevant passages that answer the query";

enum { COPY_BYTES_A_UNIT = 64 };
enum { YES, NO, N_WORDS };
static const char *const words[N_WORDS] = {"yes", "no"};

typedef struct rank {
    size_t i; /* of the document */
    double score;
} rank;

typedef struct rerank_request {
    exchange *ex; /* borrowed */
    json_t *body; /* owned */
    const json_t *documents;
    int32_t ids[N_WORDS];
    int32_t *before, *behind; /* owned: text_ids_free */
    size_t n_before, n_behind;
    size_t n_wanted;
    bool tells_documents;
    request_params params;
    prompt_list prompts;
    generation g;
    rank *ranks; /* owned, [prompts.n] */
} rerank_request;

/* ---- the request ---- */

static bool has_word(const char *text, const char *word)
{
    for (; *text; text++) {
        if (strncasecmp(text, word, strlen(word)) == 0) return true;
    }
    return false;
}

static bool find_words(rerank_request *r, api_error *error)
{
    const server_model *model = r->ex->model;
    const char *how = r->ex->server->options.reranker;
    if (strcmp(how, "no") == 0 ||
        (strcmp(how, "auto") == 0 && !has_word(model->names, "reranker"))) {
        return api_fail(
            error, 400, "model",
            "model: \"%.100s\" was not made to rank documents: for one that answers yes "
            "or no as Qwen3-Reranker does, serve --reranker yes",
            model->name);
    }
    for (size_t i = 0; i < N_WORDS; i++) {
        int32_t *ids = NULL;
        size_t n = 0;
        if (!text_encode(r->ex, words[i], strlen(words[i]), (encode_flags){.max_ids = 0}, &ids, &n,
                         error)) {
            return false;
        }
        if (n == 1) r->ids[i] = ids[0];
        text_ids_free(r->ex, ids, n);
        if (n == 1) continue;
        return api_refuse(error, "model", "\"%s\" is %zu of its tokens, expected 1", words[i], n);
    }
    return true;
}

/* A document: a text, or an object with one. NULL: neither. */
static const json_t *text_of(const json_t *document)
{
    const json_t *text = json_is_object(document) ? json_body_get(document, "text") : document;
    return json_is_string(text) ? text : NULL;
}

static bool read_fields(rerank_request *r, api_error *error)
{
    const json_t *documents = json_body_get(r->body, "documents");
    const json_t *top = json_body_get(r->body, "top_n");
    const size_t n = json_array_size(documents);
    if (!json_is_string(json_body_get(r->body, "query"))) {
        return api_refuse(error, "query", "not a text");
    }
    if (!json_is_array(documents)) return api_refuse(error, "documents", "not an array");
    if (n == 0 || n > PROMPTS_MAX) {
        return api_refuse(error, "documents", "%zu, expected 1 to %d", n, PROMPTS_MAX);
    }
    if (top && (!json_is_integer(top) || json_integer_value(top) < 1)) {
        return api_refuse(error, "top_n", "%s, expected at least 1", json_show(top).text);
    }
    r->documents = documents;
    r->n_wanted =
        top && (uint64_t)json_integer_value(top) < n ? (size_t)json_integer_value(top) : n;
    r->tells_documents = true;
    return json_body_flag(r->body, "return_documents", &r->tells_documents, error);
}

/* ---- prompts ---- */

static bool add_field(const json_t *value, const char *name, skv_buf *out, api_error *error)
{
    if (!json_is_string(value)) return api_refuse(error, name, "not a text");
    skv_buf_append(out, json_string_value(value), json_string_length(value));
    return true;
}

/* "<Instruct>: ...\n<Query>: ...\n<Document>: ..." */
static bool write_texts(const rerank_request *r, const json_t *document, skv_buf *out,
                        api_error *error)
{
    const json_t *own = json_body_get(r->body, "instruction");
    skv_buf_text(out, "<Instruct>: ");
    if (!own) skv_buf_text(out, instruction);
    if (own && !add_field(own, "instruction", out, error)) return false;
    skv_buf_text(out, "\n<Query>: ");
    if (!add_field(json_body_get(r->body, "query"), "query", out, error)) return false;
    skv_buf_text(out, "\n<Document>: ");
    return add_field(text_of(document), "documents", out, error);
}

/* A text beyond the context is cut off at the end of the document, as the authors' code does. */
static bool join(const rerank_request *r, const int32_t *texts, size_t n_texts, api_prompt *out,
                 api_error *error)
{
    const size_t room = r->ex->model->limits.context - 1, n_form = r->n_before + r->n_behind;
    if (n_form >= room) {
        return api_refuse(error, "documents", "a context of %zu has no room for them", room + 1);
    }
    if (n_texts > room - n_form) n_texts = room - n_form;
    out->n_ids = n_form + n_texts;
    if (!request_hold(r->ex, out->n_ids * sizeof *out->ids, "documents", error)) return false;
    out->ids = calloc(out->n_ids, sizeof *out->ids);
    if (!out->ids) return api_fail(error, 503, NULL, "no memory");
    memcpy(out->ids, r->before, r->n_before * sizeof *out->ids);
    memcpy(out->ids + r->n_before, texts, n_texts * sizeof *out->ids);
    memcpy(out->ids + r->n_before + n_texts, r->behind, r->n_behind * sizeof *out->ids);
    return true;
}

static bool read_document(const rerank_request *r, const json_t *document, api_prompt *out,
                          api_error *error)
{
    const encode_flags flags = {.max_ids = r->ex->model->limits.context};
    skv_buf text = exchange_text(r->ex);
    int32_t *ids = NULL;
    size_t n = 0;
    const bool ok = write_texts(r, document, &text, error) &&
                    (!text.failed || api_fail(error, 503, NULL, "no memory")) &&
                    request_work(r->ex, text.size / COPY_BYTES_A_UNIT, "documents", error) &&
                    text_encode(r->ex, text.data, text.size, flags, &ids, &n, error) &&
                    join(r, ids, n, out, error);
    text_ids_free(r->ex, ids, n);
    skv_buf_release(&text);
    return ok;
}

static bool read_prompts(rerank_request *r, api_error *error)
{
    const encode_flags form = {.parse_special = true};
    const size_t n = json_array_size(r->documents);
    if (!prompts_create(r->ex, n, &r->prompts, error)) return false;
    r->ranks = calloc(n, sizeof *r->ranks);
    if (!r->ranks) return api_fail(error, 503, NULL, "no memory");
    if (!text_encode(r->ex, before, sizeof before - 1, form, &r->before, &r->n_before, error) ||
        !text_encode(r->ex, behind, sizeof behind - 1, form, &r->behind, &r->n_behind, error)) {
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        r->prompts.n++;
        if (!read_document(r, json_array_get(r->documents, i), &r->prompts.at[i], error)) {
            return false;
        }
        r->ranks[i].i = i;
    }
    return true;
}

static bool begin(rerank_request *r, api_error *error)
{
    if (!request_body_read(r->ex, &r->body, error) || !request_check_model(r->ex, r->body, error) ||
        !find_words(r, error) || !read_fields(r, error) || !read_prompts(r, error)) {
        return false;
    }
    r->params = (request_params){.sampling = skv_sampling_default(),
                                 .n = 1,
                                 .max_tokens = 1,
                                 .ignore_eos = true,
                                 .wants_logprobs = true,
                                 .n_top = N_WORDS,
                                 .top_ids = r->ids};
    return generation_start(&r->g, r->ex, &r->prompts, &r->params, 1, error);
}

/* ---- the response ---- */

static void take(void *user, size_t i, const skv_output *o)
{
    const rerank_request *r = user;
    if (o->kind != SKV_OUTPUT_TOKEN) return;
    r->ranks[i].score = 1 / (1 + exp(o->top[NO].logprob - o->top[YES].logprob));
}

/* The best first, equal ones as they were asked for. */
static int compare(const void *a, const void *b)
{
    const rank *x = a, *y = b;
    if (x->score != y->score) return x->score > y->score ? -1 : 1;
    return (x->i > y->i) - (x->i < y->i);
}

static void write_ranks(rerank_request *r, skv_buf *out)
{
    skv_job_stats stats;
    generation_stats(&r->g, &stats);
    qsort(r->ranks, r->prompts.n, sizeof *r->ranks, compare);
    skv_buf_text(out, "{\"object\":\"list\",\"model\":");
    out_json_str(out, r->ex->model->name);
    skv_buf_printf(out,
                   ",\"usage\":{\"prompt_tokens\":%zu,\"total_tokens\":%zu,"
                   "\"prompt_tokens_details\":{\"cached_tokens\":%zu}},\"results\":[",
                   stats.prompt_tokens, stats.prompt_tokens, stats.cached_tokens);
    for (size_t i = 0; i < r->n_wanted; i++) {
        const rank *one = &r->ranks[i];
        const json_t *text = text_of(json_array_get(r->documents, one->i));
        skv_buf_printf(out, "%s{\"index\":%zu,\"relevance_score\":%.9g", i > 0 ? "," : "", one->i,
                       one->score);
        if (r->tells_documents) {
            skv_buf_text(out, ",\"document\":{\"text\":");
            out_json(out, json_string_value(text), json_string_length(text));
            skv_buf_text(out, "}");
        }
        skv_buf_text(out, "}");
    }
    skv_buf_text(out, "]}");
}

void api_rerank(exchange *ex)
{
    rerank_request r = {.ex = ex, .g = {.wake = {-1, -1}}};
    api_error error;
    skv_buf out = exchange_text(ex);
    if (begin(&r, &error) && generation_gather(&r.g, take, &r, &error)) {
        write_ranks(&r, &out);
        exchange_reply_json(ex, 200, &out);
    } else {
        exchange_refuse(ex, &error);
    }
    generation_release(&r.g);
    prompts_release(&r.prompts);
    text_ids_free(ex, r.before, r.n_before);
    text_ids_free(ex, r.behind, r.n_behind);
    free(r.ranks);
    json_decref(r.body);
}
