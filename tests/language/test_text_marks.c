/*
 * Texts of clients never become control tokens. A rendering tells which of its bytes come from the
 * variables; the tokenizer parses no special token that touches them. Properties with generated
 * templates, texts and conversations, over all tokenizers and all published templates that are
 * there.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <ctype.h>
#include <glob.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/rng.h"
#include "format/gguf.h"
#include "property_seed.h"
#include "skv/text.h"
#include "text/tokenizer_impl.h"

enum { TEXT_MAX = 1 << 16 };

/* Sanitized builds try a part; conversations have three times as many rounds with SKV_TEST_ALL. */
#ifdef NDEBUG
enum { ROUNDS = 20000, ROUNDS_A_FILE = 4000, ROUNDS_A_TALK = 4 };
#else
enum { ROUNDS = 2000, ROUNDS_A_FILE = 400, ROUNDS_A_TALK = 2 };
#endif

/* ---- renderings ---- */

typedef struct rendered {
    char *text;
    size_t n;
    skv_text_marks data;
} rendered;

static bool render(const char *source, const char *vars, const char *own_mark, rendered *out)
{
    const skv_render_input input = {.template_text = {source, strlen(source)},
                                    .vars = {vars, strlen(vars)},
                                    .own_mark = {own_mark, strlen(own_mark)}};
    *out = (rendered){0};
    if (skv_render_marked(&input, &out->text, &out->n, &out->data, NULL) != SKV_OK) return false;
    assert_int_equal(out->data.n % 2, 0);
    for (size_t i = 0; i < out->data.n; i++) {
        assert_true(out->data.at[i] <= out->n);
        assert_true(i == 0 || out->data.at[i] > out->data.at[i - 1]);
    }
    return true;
}

static void free_rendered(rendered *r)
{
    skv_text_free(r->text);
    skv_text_free(r->data.at);
}

/* The text with its data in brackets. */
static void show(const rendered *r, skv_buf *out)
{
    size_t done = 0;
    skv_buf_clear(out);
    for (size_t i = 0; i < r->data.n; i++) {
        skv_buf_append(out, r->text + done, r->data.at[i] - done);
        skv_buf_text(out, i % 2 == 0 ? "\xc2\xab" : "\xc2\xbb");
        done = r->data.at[i];
    }
    skv_buf_append(out, r->text + done, r->n - done);
}

static const char variables[] =
    "{\"a\":\"xyz\",\"b\":\"u v w\",\"n\":5,\"d\":{\"k\":\"v\"},\"l\":[\"p\",\"q\"],\"e\":\"\","
    "\"f\":\"%s!\",\"own\":\"x@@<t>@@y@@<u>@@\",\"messages\":[{\"role\":\"user\",\"content\":\"x\"}"
    ","
    "{\"role\":\"<|x|>\"}]}";

static const struct {
    const char *source, *want;
} rows[] = {
    {"<s>{{ a }}</s>", "<s>«xyz»</s>"},
    {"{{ a }}{{ b }}", "«xyzu v w»"},
    {"<{{ e }}>", "<>"},
    {"{{ '<s>' + a + '</s>' }}", "<s>«xyz»</s>"},
    {"{{ '<s>' ~ a ~ n ~ '</s>' }}", "<s>«xyz»5</s>"},
    {"{{ ('<s> ' + a + ' </s>')[2:7] }}", "> «xyz»"},
    {"{{ ('<s>' + a)[::-1] }}", "«zyx»>s<"},
    {"{{ (' ' + b + ' ') | trim }}", "«u v w»"},
    {"{{ ('<s>' + b) | upper }}", "<S>«U V W»"},
    {"{{ ('ab ' + b) | title }}", "Ab «U V W»"},
    {"{{ ('<s>' + b) | replace('v', '<m>') }}", "<s>«u »<m>« w»"},
    {"{{ 'A1A' | replace('1', a) }}", "A«xyz»A"},
    {"{{ ('<s>' + b).split(' ') | join('|') }}", "<s>«u»|«v»|«w»"},
    {"{{ l | join('<m>') }}{{ l | join(a) }}", "«p»<m>«qpxyzq»"},
    {"{{ '%s<m>%s' | format(a, 'c') }}{{ '%5s|' % a }}", "«xyz»<m>c  «xyz»|"},
    {"{{ f % '<s>' }}{{ '%c' % 60 }}{{ '%r' % a }}", "<s>«!<»'«xyz»'"},
    {"{{ '{}<m>{x}'.format(a, x=b) }}", "«xyz»<m>«u v w»"},
    {"{{ a * 2 ~ '<s>' * 2 }}", "«xyzxyz»<s><s>"},
    {"{{ ('<s>\\n' + a) | indent(2, true) }}", "  <s>\n  «xyz»"},
    {"{{ ('<' + a) | center(8) }}|", "  <«xyz»  |"},
    {"{{ ('<s>' + b) | truncate(7, true, '...', 0) }}", "<s>«u»..."},
    {"{{ ('<' + a) | e }}", "&lt;«xyz»"},
    {"{{ d | tojson }}{{ '<s>' | tojson }}", "«{\"k\": \"v\"}\"»<s>«\"»"},
    {"{{ {'<s>': a} | tojson }}", "«{\"»<s>«\": \"xyz\"}»"},
    {"{{ d }}{{ [a, '<s>'] }}", "«{'k': 'v'}['xyz', '»<s>«']»"},
    {"{% for k, v in d.items() %}<{{ k }}{{ v }}>{% endfor %}", "<«kv»>"},
    {"{% for c in '<' + a %}{{ c }}-{% endfor %}", "<-«x»-«y»-«z»-"},
    {"{% macro m(x) %}<s>{{ x }}</s>{% endmacro %}{{ m(a) | trim }}{{ m('c') }}",
     "<s>«xyz»</s><s>c</s>"},
    {"{% set t %}<s>{{ a }}{% endset %}{{ t }}{{ t[1:4] }}", "<s>«xyz»s>«x»"},
    {"{% filter upper %}<s>{{ a }}</s>{% endfilter %}", "<S>«XYZ»</S>"},
    {"{% set ns = namespace(t='<s>') %}{% set ns.t = ns.t + a %}{{ ns.t }}", "<s>«xyz»"},
    {"{% for m in messages %}<|{{ m.role }}|>{% endfor %}", "<|user|><|«<|x|>»|>"},
    {"{{ own }}{{ own.split('<t>')[0] }}", "«x»<t>«y»<u>«x»"},
    {"{{ own | length }}{{ '<t>' in own }}", "8True"},
    {"{{ strftime_now('%Y')|length }}{{ a | default('<s>') }}{{ zz | default('<s>') }}",
     "4«xyz»<s>"},
    {"{{ a if a else '<s>' }}{{ (a, '<s>') | last }}{{ [a, '<s>'] | first }}", "«xyz»<s>«xyz»"},
    {"{{ 'a<b>c'.partition('<b>') | join('') }}{{ b.rsplit(' ', 1)[1] }}", "a<b>c«w»"},
    {"{{ '<s>' | list | join }}{{ b | list | join }}", "<s>«u v w»"},
    {"{{ a.zfill(5) }}{{ a.ljust(5, '-') }}|{{ a | capitalize }}", "00«xyzxyz»--|«Xyz»"},
};

static void test_operations(void **state)
{
    (void)state;
    skv_buf shown;
    skv_buf_init(&shown, TEXT_MAX);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        rendered r;
        if (!render(rows[i].source, variables, "@@", &r)) fail_msg("%s", rows[i].source);
        show(&r, &shown);
        if (strcmp(shown.data, rows[i].want) != 0) {
            fail_msg("%s\n gives %s\n not   %s", rows[i].source, shown.data, rows[i].want);
        }
        free_rendered(&r);
    }
    skv_buf_release(&shown);
}

/* ---- generated templates: literals have letters up to m, variables have those from n on ---- */

static const char letters[] =
    "{\"x\":\"no pq RS\",\"y\":\" tuv wXYZ \",\"z\":[\"nn\",\"o\",\"zp\"]}";

static void put_expression(skv_rng *rng, skv_buf *out, unsigned depth)
{
    static const char *const leaves[] = {"x", "y", "z[0]", "'abc de'", "'FGh'", "' k '", "z|join"};
    /* E stands for an expression. */
    static const char *const forms[] = {"(E + E)",
                                        "(E ~ E)",
                                        "(E|trim)",
                                        "(E|upper)",
                                        "(E|title)",
                                        "(E|capitalize)",
                                        "(E[1:5])",
                                        "(E[::-1])",
                                        "(E|replace(E,E))",
                                        "([E,E]|join(E))",
                                        "(E.split('a')|join(E))",
                                        "(E|indent(1,true))",
                                        "(E|center(9))",
                                        "(E|truncate(4,true,'',0))",
                                        "('%s %5s' % (E,E))",
                                        "('{}-{}'.format(E,E))",
                                        "(E*2)",
                                        "(E|list|join)",
                                        "(E|reverse)",
                                        "(E.strip('n '))",
                                        "(E|string)",
                                        "(E|e|replace('&',''))",
                                        "(E|tojson)",
                                        "([E,{'a':E}]|string)",
                                        "(E.splitlines()|join('b'))",
                                        "(E if E else E)",
                                        "(E|default(E,true))",
                                        "(E.swapcase())",
                                        "(E|lower)",
                                        "(E.partition(E)|join('c'))",
                                        "(E.replace('n','b',1))",
                                        "(z|map('upper')|join(E))"};
    const char *form = leaves[skv_rng_below(rng, sizeof leaves / sizeof leaves[0])];
    if (depth > 0 && skv_rng_below(rng, 5) > 0)
        form = forms[skv_rng_below(rng, sizeof forms / sizeof forms[0])];
    for (; *form; form++) {
        if (*form == 'E')
            put_expression(rng, out, depth - 1);
        else
            skv_buf_byte(out, *form);
    }
}

static void put_template(skv_rng *rng, skv_buf *out)
{
    static const char *const frames[] = {
        "ab{{ E }}cd",
        "{% set s = E %}a{{ s }}{{ s }}",
        "{% set s %}b{{ E }}{% endset %}{{ s|trim }}c",
        "{% macro m(s) %}ab{{ s }}cd{% endmacro %}{{ m(E)|upper }}{{ m('e') }}",
        "{% for c in E %}{{ c }}f{% endfor %}",
        "{% filter title %}gh {{ E }}{% endfilter %}",
        "{% call(u) m(E) %}{{ u }}{% endcall %}",
        "{% set n = namespace(s=E) %}{% for c in z %}{% set n.s=n.s+c+'b' %}{% endfor %}{{ n.s }}"};
    const char *frame = frames[skv_rng_below(rng, sizeof frames / sizeof frames[0])];
    if (frame[3] == 'c') skv_buf_text(out, "{% macro m(s) %}a{{ caller(s) }}b{% endmacro %}");
    for (; *frame; frame++) {
        if (*frame == 'E')
            put_expression(rng, out, 3);
        else
            skv_buf_byte(out, *frame);
    }
}

static void check_letters(const char *source, const rendered *r)
{
    for (size_t i = 0, k = 0; i < r->n; i++) {
        while (k < r->data.n && r->data.at[k] <= i) k++;
        const int c = tolower((unsigned char)r->text[i]);
        if (c < 'a' || c > 'z') continue;
        if ((k % 2 == 1) != (c > 'm')) {
            fail_msg("%s: byte %zu of %s is %s", source, i, r->text, k % 2 ? "data" : "no data");
        }
    }
}

static void test_generated_templates(void **state)
{
    (void)state;
    size_t n_rendered = 0;
    skv_rng rng;
    skv_buf source;
    skv_rng_init(&rng, property_seed(11));
    skv_buf_init(&source, TEXT_MAX);
    for (size_t i = 0; i < ROUNDS; i++) {
        rendered r;
        skv_buf_clear(&source);
        put_template(&rng, &source);
        if (!render(source.data, letters, "", &r)) continue;
        check_letters(source.data, &r);
        n_rendered++;
        free_rendered(&r);
    }
    skv_buf_release(&source);
    print_message("%zu of %d templates rendered: %zu cases\n", n_rendered, ROUNDS, n_rendered);
    assert_true(n_rendered > ROUNDS * 3 / 4);
}

/* ---- tokenizers ---- */

static const char *const files[] = {
    SKV_TEST_DATA "/tokenizer/gpt2.json",
    SKV_TEST_DATA "/tokenizer/llama3.json",
    SKV_TEST_DATA "/tokenizer/qwen2.json",
    SKV_TEST_DATA "/tokenizer/metaspace.json",
    SKV_TEST_DATA "/tokenizer/words.json",
    SKV_TEST_DATA "/tokenizer/gemma4.json",
    SKV_TEST_DATA "/tokenizer/gemma4.gguf",
    SKV_TEST_DATA "/tokenizer/spm_bpe.model",
    SKV_TEST_DATA "/tokenizer/spm_nfkc.model",
    SKV_TEST_DATA "/tokenizer/spm_unigram.model",
    SKV_TEST_DATA "/../../models/mini/base/tokenizer.json",
    SKV_TEST_ASSETS "/tokenizers/smollm2/tokenizer.json",
    SKV_TEST_ASSETS "/tokenizers/minimind/tokenizer.json",
    SKV_TEST_ASSETS "/tokenizers/openllama/tokenizer.model",
    SKV_TEST_ASSETS "/tokenizers/gguf-vocabs/ggml-vocab-llama-spm.gguf",
    SKV_TEST_ASSETS "/tokenizers/gguf-vocabs/ggml-vocab-phi-3.gguf",
    SKV_TEST_ASSETS "/tokenizers/gguf-vocabs/ggml-vocab-deepseek-llm.gguf"};

/* The same with all added tokens looked for behind normalisation. */
static void make_late(char *json)
{
    static const char early[] = "\"normalized\": false", other[] = "\"normalized\":false";
    for (char *at; (at = strstr(json, early));)
        memcpy(at, "\"normalized\": true ", sizeof early - 1);
    for (char *at; (at = strstr(json, other));)
        memcpy(at, "\"normalized\":true ", sizeof other - 1);
}

static skv_tokenizer *open_tokenizer(const char *path, bool late)
{
    char *data;
    size_t n;
    skv_error err = {0};
    skv_tokenizer *t = NULL;
    skv_gguf *gguf = NULL;
    const char *end = path + strlen(path);
    const bool is_json = strcmp(end - 5, ".json") == 0;
    if (!skv_file_exists(path) || (late && !is_json)) return NULL;
    skv_status status = skv_file_read(path, (size_t)1 << 28, &data, &n, &err);
    if (status == SKV_OK && late) make_late(data);
    if (status == SKV_OK && is_json) {
        status = skv_tokenizer_parse_json(data, n, NULL, 0, path, &t, &err);
    } else if (status == SKV_OK && strcmp(end - 5, ".gguf") == 0) {
        status = skv_gguf_parse(data, n, path, &gguf, &err);
        if (status == SKV_OK) status = skv_tokenizer_open_gguf(gguf, &t, &err);
    } else if (status == SKV_OK) {
        status = skv_tokenizer_parse_spm(data, n, path, &t, &err);
    }
    if (status != SKV_OK) fail_msg("%s", err.text);
    skv_gguf_close(gguf);
    skv_free(data);
    return t;
}

/* A text of pieces, each of them the template's or data. */
typedef struct pieces {
    char text[4096];
    size_t n;
    size_t at[64];
    skv_text_marks data;
} pieces;

static void put_piece(pieces *p, const char *text, size_t n, bool data)
{
    assert_true(p->n + n < sizeof p->text);
    if (data && n > 0) {
        if (p->data.n > 0 && p->at[p->data.n - 1] == p->n)
            p->data.n--;
        else
            p->at[p->data.n++] = p->n;
    }
    memcpy(p->text + p->n, text, n);
    p->n += n;
    if (data && n > 0) p->at[p->data.n++] = p->n;
    p->data.at = p->at;
}

static void encode(const skv_tokenizer *t, const pieces *p, skv_encode_options options,
                   skv_ids *out)
{
    skv_error err = {0};
    out->n = 0;
    if (skv_tokenizer_encode(t, p->text, p->n, options, out, &err) != SKV_OK)
        fail_msg("%s", err.text);
}

static void expect_ids(const char *what, const pieces *p, const skv_ids *a, const skv_ids *b)
{
    bool same =
        a->n == b->n && (a->n == 0 || memcmp(a->data, b->data, a->n * sizeof *a->data) == 0);
    if (!same) fail_msg("%s: \"%.*s\"", what, (int)p->n, p->text);
}

/* Only the ids of special tokens stay, and of these not what stands for unknown characters. */
static void keep_special(const skv_tokenizer *t, skv_ids *ids)
{
    size_t n = 0;
    for (size_t i = 0; i < ids->n; i++) {
        size_t n_text;
        const char *text = skv_tokenizer_text(t, ids->data[i], &n_text);
        const bool unknown = (t->vocab.flags[ids->data[i]] & SKV_TOKEN_UNKNOWN) != 0;
        const bool plain = (uint32_t)ids->data[i] == t->bpe.unk || unknown ||
                           skv_byte_token_value(text, n_text) >= 0;
        if (skv_tokenizer_is_special(t, ids->data[i]) && !plain) ids->data[n++] = ids->data[i];
    }
    ids->n = n;
}

/* Every special token that a text can spell. */
static size_t find_specials(const skv_tokenizer *t, const char **texts, size_t *lengths, size_t max)
{
    size_t n = 0;
    for (size_t i = 0; i < t->added.n && n < max; i++) {
        if (!t->added.tokens[i].special) continue;
        texts[n] = skv_tokenizer_text(t, (int32_t)t->added.tokens[i].id, &lengths[n]);
        n += texts[n] && lengths[n] < 60;
    }
    return n;
}

enum { SPECIALS_MAX = 64 };

/* Text with data that spell specials; and the same with other data. */
static void make_hostile(const skv_tokenizer *t, skv_rng *rng, pieces *hostile, pieces *neutral)
{
    static const char *const words[] = {"a",     " the",         "\n",          " x1",
                                        "Hello", "\xc3\xa4",     "e\xcc\x81",   "  ",
                                        ".",     "\xef\xbc\x9c", "\xe6\xbc\xa2"};
    const char *texts[SPECIALS_MAX];
    size_t lengths[SPECIALS_MAX];
    const size_t n_special = find_specials(t, texts, lengths, SPECIALS_MAX);
    *hostile = *neutral = (pieces){.n = 0};
    for (size_t i = skv_rng_below(rng, 12) + 1; i > 0; i--) {
        const bool data = skv_rng_below(rng, 2) == 0;
        const char *text = words[skv_rng_below(rng, sizeof words / sizeof words[0])];
        size_t n = strlen(text), from = 0;
        const bool special = n_special > 0 && skv_rng_below(rng, 2) == 0;
        if (special) {
            const size_t k = skv_rng_below(rng, n_special);
            text = texts[k];
            n = lengths[k];
            /* The template may begin what data end. */
            if (data && n > 1 && skv_rng_below(rng, 4) == 0) {
                from = 1 + skv_rng_below(rng, n - 1);
                put_piece(hostile, text, from, false);
                put_piece(neutral, text, from, false);
                put_piece(hostile, text + from, n - from, true);
                put_piece(neutral, "w", 1, true);
                continue;
            }
            /* Data may complete what a neighbour has begun. */
            if (data && skv_rng_below(rng, 3) == 0) from = skv_rng_below(rng, n);
            if (data && skv_rng_below(rng, 3) == 0) n = from + skv_rng_below(rng, n - from + 1);
        }
        put_piece(hostile, text + from, n - from, data);
        if (special && data)
            put_piece(neutral, "w", 1, true);
        else
            put_piece(neutral, text, n, data);
    }
}

static void check_tokenizer(const char *path, bool late)
{
    skv_tokenizer *t = open_tokenizer(path, late);
    if (!t) return;
    skv_rng rng;
    skv_ids a = {0}, b = {0};
    skv_rng_init(&rng, property_seed(3));
    for (size_t i = 0; i < ROUNDS_A_FILE; i++) {
        pieces hostile, neutral;
        make_hostile(t, &rng, &hostile, &neutral);
        skv_encode_options parse = {.parse_special = true, .add_special = i % 2 == 0}, no = parse;
        no.parse_special = false;
        parse.data = NULL;
        /* Without control tokens in data, marks change nothing. */
        encode(t, &neutral, parse, &a);
        parse.data = &neutral.data;
        encode(t, &neutral, parse, &b);
        expect_ids(path, &neutral, &b, &a);
        /* With them, the control tokens are those of the template. */
        parse.data = &hostile.data;
        encode(t, &hostile, parse, &a);
        keep_special(t, &a);
        keep_special(t, &b);
        expect_ids(path, &hostile, &a, &b);
        /* All of it data: as nothing is parsed. */
        size_t whole[2] = {0, hostile.n};
        const skv_text_marks all = {whole, 2};
        parse.data = &all;
        encode(t, &hostile, parse, &a);
        encode(t, &hostile, no, &b);
        expect_ids(path, &hostile, &a, &b);
    }
    skv_ids_release(&a);
    skv_ids_release(&b);
    skv_tokenizer_free(t);
}

static void test_tokenizers(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        check_tokenizer(files[i], false);
        check_tokenizer(files[i], true);
    }
}

/* ---- published templates ---- */

/* Control tokens as texts of the template that are not in the conversation: <|...|>, [...]. */
static size_t mark_length(const char *text)
{
    static const char in_angles[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_|/:-";
    static const char in_brackets[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ_/";
    size_t n = 1;
    if (*text == '[') {
        n += strspn(text + 1, in_brackets);
        return n > 3 && text[n] == ']' ? n + 1 : 0;
    }
    if (*text != '<') return 0;
    while (n < 40 && text[n] && (strchr(in_angles, text[n]) || (text[n] & 0x80))) n++;
    return n > 1 && text[n] == '>' ? n + 1 : 0;
}

/* Adds the marks in a text to a list of added tokens. */
static void add_marks(json_t *added, const char *text, const char *conversation, size_t n_ids)
{
    char mark[64];
    for (; *text; text++) {
        const size_t n = mark_length(text);
        if (n == 0) continue;
        (void)snprintf(mark, sizeof mark, "%.*s", (int)n, text);
        /* "<" + key + ">" is no token: the word is the client's. */
        char word[64];
        const size_t skip = text[1] == '/' ? 2 : 1;
        (void)snprintf(word, sizeof word, "%.*s", (int)(n - 1 - skip), text + skip);
        bool known = strstr(conversation, mark) || strstr(conversation, word);
        for (size_t i = 0; !known && i < json_array_size(added); i++) {
            const json_t *other = json_object_get(json_array_get(added, i), "content");
            known = strcmp(json_string_value(other), mark) == 0;
        }
        if (known) continue;
        json_t *token = json_pack(
            "{s:i,s:s,s:b,s:b,s:b,s:b,s:b}", "id", (int)(n_ids + json_array_size(added)), "content",
            mark, "single_word", 0, "lstrip", 0, "rstrip", 0, "normalized", 0, "special", 1);
        assert_non_null(token);
        json_array_append_new(added, token);
    }
}

/* A tokenizer that knows the marks of this text. */
static skv_tokenizer *tokenizer_for(const char *text, const char *conversation)
{
    json_error_t why;
    json_t *root = json_load_file(SKV_TEST_DATA "/tokenizer/llama3.json", 0, &why);
    assert_non_null(root);
    json_t *added = json_object_get(root, "added_tokens");
    const size_t n_vocab =
        json_object_size(json_object_get(json_object_get(root, "model"), "vocab"));
    add_marks(added, text, conversation, n_vocab + 64);
    char *json = json_dumps(root, JSON_COMPACT);
    skv_tokenizer *t = NULL;
    skv_error err = {0};
    if (skv_tokenizer_parse_json(json, strlen(json), NULL, 0, "marks", &t, &err) != SKV_OK)
        fail_msg("%s", err.text);
    free(json);
    json_decref(root);
    return t;
}

/* What no client says freely: roles, and what is the template's own. */
static bool is_fixed(const char *key)
{
    static const char *const keys[] = {"role", "type", "bos_token", "eos_token"};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        if (strcmp(key, keys[i]) == 0) return true;
    return false;
}

#define OWN "@@own@@"

/* A server has these of its vocabulary. */
static void own_tokens(json_t *vars)
{
    static const char *const keys[] = {"bos_token", "eos_token"};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        const char *text = json_string_value(json_object_get(vars, keys[i]));
        if (text) json_object_set_new(vars, keys[i], json_sprintf(OWN "%s" OWN, text));
    }
}

/* Texts of a conversation that a client may say anything in. */
static size_t count_texts(const json_t *value)
{
    size_t n = 0, i;
    const char *key;
    json_t *one;
    if (json_is_string(value)) return 1;
    json_array_foreach(value, i, one) n += count_texts(one);
    json_object_foreach((json_t *)(uintptr_t)value, key, one)
    {
        if (!is_fixed(key)) n += count_texts(one);
    }
    return n;
}

/* A copy with `insert` put into the *i-th text at a share of its length. */
static json_t *insert_text(const json_t *value, size_t *i, const char *insert, double share)
{
    size_t k;
    const char *key;
    json_t *one, *out;
    if (json_is_string(value)) {
        if ((*i)-- != 0) return json_deep_copy(value);
        const char *text = json_string_value(value);
        size_t at = (size_t)(share * (double)json_string_length(value));
        while (at > 0 && ((unsigned char)text[at] & 0xc0) == 0x80) at--;
        char joined[TEXT_MAX];
        (void)snprintf(joined, sizeof joined, "%.*s%s%s", (int)at, text, insert, text + at);
        return json_string(joined);
    }
    if (json_is_array(value)) {
        out = json_array();
        json_array_foreach(value, k, one)
            json_array_append_new(out, insert_text(one, i, insert, share));
        return out;
    }
    if (!json_is_object(value)) return json_deep_copy(value);
    out = json_object();
    json_object_foreach((json_t *)(uintptr_t)value, key, one)
    {
        json_t *now = is_fixed(key) ? json_deep_copy(one) : insert_text(one, i, insert, share);
        json_object_set_new(out, key, now);
    }
    return out;
}

#define LABEL "qZq"

/* Drops what stands between labels. */
static void drop_inserted(const rendered *r, skv_buf *out)
{
    const char *at = r->text, *open;
    skv_buf_clear(out);
    while ((open = strstr(at, LABEL))) {
        const char *close = strstr(open + 3, LABEL);
        skv_buf_append(out, at, (size_t)(open - at));
        skv_buf_text(out, LABEL LABEL);
        if (!close) return;
        at = close + 3;
    }
    skv_buf_text(out, at);
}

typedef struct talks {
    size_t n_templates, n_benign, n_hostile, n_looked_at, n_refused;
} talks;

static void encode_rendered(const skv_tokenizer *t, const rendered *r, bool marked, skv_ids *out)
{
    skv_error err = {0};
    const skv_encode_options options = {.parse_special = true, .data = marked ? &r->data : NULL};
    out->n = 0;
    if (skv_tokenizer_encode(t, r->text, r->n, options, out, &err) != SKV_OK)
        fail_msg("%s", err.text);
}

static bool render_talk(const char *source, const json_t *vars, rendered *out)
{
    char *json = json_dumps(vars, JSON_COMPACT);
    const bool ok = render(source, json, OWN, out);
    free(json);
    return ok;
}

/* A special token in a text of a client, and nothing in its place. */
static void check_insert(const char *name, const char *source, const json_t *vars,
                         const skv_tokenizer *t, skv_rng *rng, talks *count)
{
    char insert[128];
    rendered hostile, neutral;
    const char *texts[SPECIALS_MAX];
    size_t lengths[SPECIALS_MAX];
    const size_t n_special = find_specials(t, texts, lengths, SPECIALS_MAX);
    const size_t k = skv_rng_below(rng, n_special);
    const size_t n_texts = count_texts(vars);
    size_t i = n_texts > 0 ? skv_rng_below(rng, n_texts) : 0, same = i;
    const double share = skv_rng_uniform(rng);
    (void)snprintf(insert, sizeof insert, LABEL "%.*s" LABEL, (int)lengths[k], texts[k]);
    json_t *with = insert_text(vars, &i, insert, share);
    json_t *without = insert_text(vars, &same, LABEL LABEL, share);
    const bool ok = render_talk(source, with, &hostile),
               other = render_talk(source, without, &neutral);
    json_decref(with);
    json_decref(without);
    if (ok && other) {
        skv_buf left;
        skv_ids a = {0}, b = {0};
        skv_buf_init(&left, 1 << 24);
        drop_inserted(&hostile, &left);
        count->n_hostile++;
        encode_rendered(t, &hostile, true, &a);
        encode_rendered(t, &neutral, true, &b);
        keep_special(t, &a);
        keep_special(t, &b);
        /* A template that looks for the token's text in a message may write others then. */
        const bool same_text =
            left.size == neutral.n && memcmp(left.data, neutral.text, neutral.n) == 0;
        bool same_ids =
            a.n == b.n && (a.n == 0 || memcmp(a.data, b.data, a.n * sizeof *a.data) == 0);
        count->n_looked_at += !same_text;
        if (same_text && !same_ids) fail_msg("%s: %s in \"%s\"", name, insert, hostile.text);
        skv_ids_release(&a);
        skv_ids_release(&b);
        skv_buf_release(&left);
    } else {
        count->n_refused++;
    }
    free_rendered(&hostile);
    free_rendered(&neutral);
}

static void check_talk(const char *name, const char *source, const json_t *vars, skv_rng *rng,
                       talks *count)
{
    rendered r;
    skv_ids a = {0}, b = {0};
    if (!render_talk(source, vars, &r)) return;
    char *json = json_dumps(vars, 0);
    skv_tokenizer *t = tokenizer_for(r.text, json);
    encode_rendered(t, &r, true, &a);
    encode_rendered(t, &r, false, &b);
    bool same = a.n == b.n && memcmp(a.data, b.data, a.n * sizeof *a.data) == 0;
    if (!same) fail_msg("%s: other tokens of \"%s\"", name, r.text);
    count->n_benign++;
    const size_t n_rounds = ROUNDS_A_TALK * (getenv("SKV_TEST_ALL") ? 3 : 1);
    for (size_t i = 0; i < n_rounds; i++) check_insert(name, source, vars, t, rng, count);
    skv_ids_release(&a);
    skv_ids_release(&b);
    skv_tokenizer_free(t);
    free(json);
    free_rendered(&r);
}

/* Every conversation by every template of a folder. */
static void check_folder(const char *folder, const json_t *all, skv_rng *rng, talks *count)
{
    char pattern[1024];
    glob_t found = {0};
    (void)snprintf(pattern, sizeof pattern, "%s/*.jinja", folder);
    if (glob(pattern, 0, NULL, &found) != 0) return;
    for (size_t i = 0; i < found.gl_pathc; i++) {
        char *source;
        size_t size;
        const char *key;
        json_t *vars;
        assert_int_equal(skv_file_read(found.gl_pathv[i], 1 << 22, &source, &size, NULL), SKV_OK);
        json_object_foreach((json_t *)(uintptr_t)all, key, vars)
        {
            /* A role that no template knows stays data. */
            if (strcmp(key, "unknown-role") == 0) continue;
            check_talk(found.gl_pathv[i], source, vars, rng, count);
        }
        skv_free(source);
        count->n_templates++;
    }
    globfree(&found);
}

static void test_published(void **state)
{
    (void)state;
    json_error_t why;
    skv_rng rng;
    talks count = {0};
    json_t *all = json_load_file(SKV_TEST_DATA "/templates/conversations.json", 0, &why), *vars;
    const char *more = getenv("SKV_CALL_TEMPLATES"), *key;
    assert_non_null(all);
    json_object_foreach(all, key, vars) own_tokens(vars);
    skv_rng_init(&rng, property_seed(5));
    check_folder(SKV_TEST_ASSETS "/templates", all, &rng, &count);
    check_folder(SKV_TEST_DATA "/templates", all, &rng, &count);
    if (more) check_folder(more, all, &rng, &count);
    json_decref(all);
    print_message("%zu templates: %zu conversations as before; of %zu hostile ones %zu where the "
                  "template looks at the text; %zu refused: %zu cases\n",
                  count.n_templates, count.n_benign, count.n_hostile, count.n_looked_at,
                  count.n_refused, count.n_benign + count.n_hostile);
    assert_true(count.n_benign > 15 * count.n_templates);
    assert_true(count.n_hostile > 10 * count.n_looked_at);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_operations), cmocka_unit_test(test_generated_templates),
        cmocka_unit_test(test_tokenizers), cmocka_unit_test(test_published)};
    return cmocka_run_group_tests_name("text_marks", tests, NULL, NULL);
}
