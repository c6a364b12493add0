/* Pieces of responses: see api_answer.h. */
#include "answer/api_answer.h"

#include <inttypes.h>

/* The two sums are those of the OpenAI API; `by` is of the sources that drafted. */
static void add_drafts(skv_buf *out, const skv_draft_counts drafts[SKV_DRAFT_SOURCES])
{
    skv_draft_counts sum = {0};
    for (size_t i = 0; i < SKV_DRAFT_SOURCES; i++) {
        sum.drafted += drafts[i].drafted;
        sum.accepted += drafts[i].accepted;
    }
    if (sum.drafted == 0) return;
    skv_buf_printf(out,
                   ",\"completion_tokens_details\":{\"accepted_prediction_tokens\":%" PRIu64
                   ",\"rejected_prediction_tokens\":%" PRIu64 ",\"by\":{",
                   sum.accepted, sum.drafted - sum.accepted);
    const char *comma = "";
    for (size_t i = 0; i < SKV_DRAFT_SOURCES; i++) {
        if (drafts[i].drafted == 0) continue;
        skv_buf_printf(out, "%s\"%s\":{\"drafted\":%" PRIu64 ",\"accepted\":%" PRIu64 "}", comma,
                       skv_drafting_name((skv_drafting)i), drafts[i].drafted, drafts[i].accepted);
        comma = ",";
    }
    skv_buf_text(out, "}}");
}

void answer_cached(skv_buf *out, const skv_job_stats *stats)
{
    const size_t n_read = stats->cached_tokens, n_kept = stats->kept_tokens;
    skv_buf_printf(out, "{\"cached_tokens\":%zu,\"cache_write_tokens\":%zu", n_read,
                   n_kept > n_read ? n_kept - n_read : 0);
    if (stats->shifted_tokens > 0) {
        skv_buf_printf(out, ",\"shifted_tokens\":%zu", stats->shifted_tokens);
    }
    skv_buf_text(out, "}");
}

/* Texts of a server without keys are anyone's: only its log has them. */
void answer_miss(skv_buf *out, const exchange *ex, const skv_cache_miss *miss)
{
    if (miss->reason == SKV_MISS_NONE) return;
    skv_buf_printf(out,
                   ",\"swiftkv_cache_miss\":{\"reason\":\"%s\",\"block\":%zu,\"token\":%zu,"
                   "\"lost_tokens\":%zu",
                   skv_miss_name(miss->reason), miss->block, miss->token, miss->lost_tokens);
    if (ex->key && miss->sent[0] && miss->known[0]) {
        skv_buf_text(out, ",\"sent_text\":");
        out_json_str(out, miss->sent);
        skv_buf_text(out, ",\"known_text\":");
        out_json_str(out, miss->known);
    }
    skv_buf_text(out, "}");
}

void answer_usage(skv_buf *out, const exchange *ex, const skv_job_stats *stats)
{
    skv_buf_printf(out,
                   "{\"prompt_tokens\":%zu,\"completion_tokens\":%zu,\"total_tokens\":%zu,"
                   "\"prompt_tokens_details\":",
                   stats->prompt_tokens, stats->completion_tokens,
                   stats->prompt_tokens + stats->completion_tokens);
    answer_cached(out, stats);
    add_drafts(out, stats->drafts);
    answer_miss(out, ex, &stats->miss);
    skv_buf_text(out, "}");
}

/* n tokens, n_timed of which the time is for. */
static void add_rate(skv_buf *out, const char *name, size_t n, size_t n_timed, uint64_t ns)
{
    const double ms = (double)ns * 1e-6;
    skv_buf_printf(out, ",\"%s_n\":%zu,\"%s_ms\":", name, n, name);
    out_number(out, ms);
    skv_buf_printf(out, ",\"%s_per_token_ms\":", name);
    out_number(out, n_timed > 0 ? ms / (double)n_timed : 0);
    skv_buf_printf(out, ",\"%s_per_second\":", name);
    out_number(out, ns > 0 ? (double)n_timed / (ms * 1e-3) : 0);
}

void answer_timings(skv_buf *out, const skv_job_stats *stats)
{
    skv_buf_printf(out, "{\"queue_ms\":%.3f,\"wait_ms\":%.3f,\"cache_n\":%zu,\"preemptions\":%zu",
                   (double)stats->queue_ns * 1e-6, (double)stats->wait_ns * 1e-6,
                   stats->cached_tokens, stats->preemptions);
    if (stats->shifted_tokens > 0) {
        skv_buf_printf(out, ",\"shifted_n\":%zu", stats->shifted_tokens);
    }
    if (stats->miss.reason != SKV_MISS_NONE) {
        skv_buf_printf(out, ",\"cache_miss\":\"%s\",\"cache_miss_token\":%zu,\"cache_lost_n\":%zu",
                       skv_miss_name(stats->miss.reason), stats->miss.token,
                       stats->miss.lost_tokens);
    }
    const size_t computed = stats->prefilled_tokens > stats->cached_tokens
                                ? stats->prefilled_tokens - stats->cached_tokens
                                : 0;
    const size_t n = stats->completion_tokens;
    add_rate(out, "prompt", computed, computed, stats->prefill_ns);
    add_rate(out, "predicted", n, n > 0 ? n - 1 : 0,
             stats->decode_ns); /* from the first token on */
    skv_buf_text(out, "}");
}

void answer_progress(skv_buf *out, const generation *g, const skv_job_stats *stats)
{
    skv_buf_printf(out, "{\"total\":%zu,\"cache\":%zu,\"processed\":%zu,\"time_ms\":%.0f}",
                   stats->prompt_tokens, stats->cached_tokens, stats->prefilled_tokens,
                   (double)(skv_now_ns() - g->start_ns) * 1e-6);
}

size_t answer_count_chars(const char *text, size_t n)
{
    size_t n_chars = 0;
    for (size_t i = 0; i < n; i++) n_chars += ((unsigned char)text[i] & 0xc0) != 0x80;
    return n_chars;
}

const char *answer_finish(skv_finish finish)
{
    return finish == SKV_FINISH_STOP ? "stop" : "length";
}

/* The text of one token inside a text: the text that it adds after itself, since a first space
 * may be lost at the beginning. To be freed with skv_text_free; *from is where the text begins.
 * NULL: none. */
static char *token_text(const exchange *ex, int32_t id, size_t *from, size_t *n)
{
    const skv_vocab *vocab = ex->model->vocab;
    const int32_t twice[] = {id, id};
    char *text = NULL, *one = NULL;
    size_t n_text = 0;
    if (!vocab ||
        skv_vocab_decode(vocab, (skv_id_piece){&id, 1}, (skv_decode_options){.with_special = true},
                         &one, from, NULL) != SKV_OK) {
        return NULL;
    }
    skv_text_free(one);
    if (skv_vocab_decode(vocab, (skv_id_piece){twice, 2},
                         (skv_decode_options){.with_special = true}, &text, &n_text,
                         NULL) != SKV_OK)
        return NULL;
    if (*from > n_text) *from = n_text;
    *n = n_text - *from;
    return text;
}

/* text NULL: the token has none. */
static void write_token(skv_buf *out, const char *text, size_t n, int32_t id)
{
    if (text) {
        out_json(out, text, n);
    } else {
        skv_buf_printf(out, "\"token_id:%d\"", id);
    }
}

void answer_token(const exchange *ex, skv_buf *out, int32_t id)
{
    size_t from = 0, n = 0;
    char *text = token_text(ex, id, &from, &n);
    write_token(out, text ? text + from : NULL, n, id);
    skv_text_free(text);
}

void answer_ids_text(const exchange *ex, skv_id_piece ids, bool with_special,
                     void (*add)(skv_buf *out, const char *text, size_t n), skv_buf *out)
{
    skv_text_stream *stream = NULL;
    const char *text = "";
    size_t n = 0;
    if (!ex->model->vocab) return;
    skv_status status = skv_text_stream_create(ex->model->vocab, with_special, &stream, NULL);
    for (size_t i = 0; status == SKV_OK && i < ids.n && !out->failed; i++) {
        status = skv_text_stream_push(stream, ids.ids[i], &text, &n, NULL);
        if (status == SKV_OK) add(out, text, n);
    }
    if (status == SKV_OK) status = skv_text_stream_finish(stream, &text, &n, NULL);
    if (status == SKV_OK) add(out, text, n);
    out->failed = out->failed || status != SKV_OK;
    skv_text_stream_free(stream);
}

/* {"id":...,"token":...,"logprob":...,"bytes":[...]: of a character that several tokens make, each
 * has its own bytes. */
static void add_chat_token(const exchange *ex, skv_buf *out, skv_token_prob token,
                           skv_text_piece bytes)
{
    skv_buf_printf(out, "{\"id\":%d,\"token\":", token.id);
    answer_token(ex, out, token.id);
    skv_buf_text(out, ",\"logprob\":");
    out_number(out, token.logprob);
    skv_buf_text(out, ",\"bytes\":[");
    for (size_t i = 0; i < bytes.n; i++) {
        skv_buf_printf(out, i > 0 ? ",%u" : "%u", (unsigned)(unsigned char)bytes.text[i]);
    }
    skv_buf_text(out, "]");
}

/* A token that might have come instead. */
static void add_other_token(const exchange *ex, skv_buf *out, skv_token_prob token)
{
    char *bytes = NULL;
    size_t n = 0;
    const skv_vocab *vocab = ex->model->vocab;
    const bool known = vocab && skv_vocab_token_bytes(vocab, token.id, &bytes, &n, NULL) == SKV_OK;
    add_chat_token(ex, out, token, (skv_text_piece){bytes, known ? n : 0});
    skv_text_free(bytes);
}

void answer_chat_logprob(const exchange *ex, skv_buf *out, const skv_output *token)
{
    const skv_text_piece own = {token->bytes, token->n_bytes};
    add_chat_token(ex, out, (skv_token_prob){token->id, token->logprob}, own);
    skv_buf_text(out, ",\"top_logprobs\":[");
    for (size_t i = 0; i < token->n_top; i++) {
        if (i > 0) skv_buf_text(out, ",");
        if (token->top[i].id == token->id) {
            add_chat_token(ex, out, token->top[i], own);
        } else {
            add_other_token(ex, out, token->top[i]);
        }
        skv_buf_text(out, "}");
    }
    skv_buf_text(out, "]}");
}
