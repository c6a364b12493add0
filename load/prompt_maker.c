/* Prompts and bodies: see prompt_maker.h. */
#include "prompt_maker.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- pieces ---- */

static void add_ids(out_text *out, size_t vocab, uint64_t key, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        out_format(out, "%llu,", (unsigned long long)(load_draw(&key) % vocab));
    }
}

static bool is_inside(const load_options *o, size_t at)
{
    return at < o->n_text && ((unsigned char)o->text[at] & 0xc0) == 0x80;
}

/* From a place of the text that `key` draws, around its end if need be; characters stay whole. */
static void add_text(out_text *out, const load_options *o, uint64_t key, size_t n_tokens)
{
    const double wanted = ceil((double)n_tokens * o->bytes_per_token);
    size_t left = wanted < 1 ? 1 : (size_t)wanted;
    const size_t reach = left < o->n_text ? o->n_text - left : o->n_text - 1;
    size_t at = (size_t)(load_draw(&key) % (reach + 1));
    while (is_inside(o, at)) at++;
    while (left > 0 && !out->failed) {
        if (at >= o->n_text) at = 0;
        size_t n = o->n_text - at < left ? o->n_text - at : left;
        left -= n;
        while (left == 0 && is_inside(o, at + n)) n++;
        out_bytes(out, o->text + at, n);
        at += n;
    }
}

/* Two numbers make one, so that requests, blocks and runs with other seeds do not meet. */
static uint64_t key_of(uint64_t seed, uint64_t kind, uint64_t number)
{
    uint64_t state = seed;
    state = load_draw(&state) ^ kind;
    state = load_draw(&state) ^ number;
    return load_draw(&state);
}

static void add_pieces(prompt_maker *maker, const load_arrival *a, out_text *out)
{
    const load_options *o = maker->options;
    for (size_t done = 0, i = 0; done < a->n_prompt; i++) {
        const bool is_block = i < a->n_blocks;
        const size_t left = a->n_prompt - done;
        const size_t n = is_block && a->block_tokens < left ? a->block_tokens : left;
        const uint64_t key =
            is_block ? key_of(o->seed, 1, a->blocks[i]) : key_of(o->seed, 2, a->index);
        if (o->text != NULL) {
            add_text(out, o, key, n);
        } else {
            add_ids(out, o->vocab, key, n);
        }
        done += n;
    }
}

/* ---- bodies ---- */

static bool is_given(const load_options *o, const char *field)
{
    return o->extra != NULL && json_object_get(o->extra, field) != NULL;
}

static void add_prompt(prompt_maker *maker, const load_arrival *a, out_text *out)
{
    const load_options *o = maker->options;
    if (o->text == NULL) {
        out_str(out, "\"prompt\":[");
        add_pieces(maker, a, out);
        if (out->n > 0 && out->data[out->n - 1] == ',') out->n--;
        out_str(out, "]");
        return;
    }
    out_text *text = &maker->scratch;
    out_clear(text);
    add_pieces(maker, a, text);
    out_str(out, o->chat ? "\"messages\":[{\"role\":\"user\",\"content\":" : "\"prompt\":");
    out_json(out, text->data, text->n);
    if (o->chat) out_str(out, "}]");
    out->failed = out->failed || text->failed;
}

static void add_extra(out_text *out, const json_t *extra)
{
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)extra, name, value)
    {
        char *text = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
        out_str(out, ",");
        out_json_str(out, name);
        out_str(out, ":");
        if (text != NULL) out_str(out, text);
        out->failed = out->failed || text == NULL;
        free(text);
    }
}

bool prompt_maker_body(prompt_maker *maker, const load_arrival *arrival, out_text *out)
{
    const load_options *o = maker->options;
    out_clear(out);
    out_str(out, "{");
    add_prompt(maker, arrival, out);
    out_str(out, ",\"model\":");
    out_json_str(out, o->model);
    if (!is_given(o, "max_tokens") && !is_given(o, "max_completion_tokens")) {
        out_format(out, ",\"max_tokens\":%zu", arrival->n_output);
    }
    if (!is_given(o, "temperature")) out_str(out, ",\"temperature\":0");
    if (o->ignore_eos) out_str(out, ",\"ignore_eos\":true");
    if (o->method != NULL) {
        out_str(out, ",\"swiftkv\":");
        out_json_str(out, o->method);
    }
    if (o->extra != NULL) add_extra(out, o->extra);
    out_str(out, ",\"stream\":true,\"stream_options\":{\"include_usage\":true}}");
    return !out->failed;
}

void prompt_maker_release(prompt_maker *maker)
{
    out_release(&maker->scratch);
}

char *prompt_maker_words(size_t n, uint64_t seed)
{
    static const char *const words[] = {
        "the ",     "time ",   "of ",     "a ",     "river ",   "and ",   "every ", "house ",
        "stands ",  "near ",   "water, ", "where ", "people ",  "walk ",  "in ",    "the ",
        "morning ", "light. ", "They ",   "speak ", "about ",   "work, ", "about ", "money ",
        "and ",     "what ",   "was ",    "said ",  "before. ", "Small ", "birds ", "follow "};
    char *text = malloc(n + 16);
    size_t at = 0;
    if (text == NULL) return NULL;
    while (at < n) {
        const char *word = words[load_draw(&seed) % (sizeof words / sizeof words[0])];
        const size_t length = strlen(word);
        memcpy(text + at, word, length);
        at += length;
    }
    text[at] = 0;
    return text;
}
