/*
 * Answers that come back as text: the ids that were generated are put back in their place, and
 * whatever comes of it still decodes to the text. Generated ids are random cuts of the answer into
 * tokens of the vocabulary, which is what a model may write and its tokenizer never would.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "alloc_fail.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/size.h"
#include "language/vocab_impl.h"
#include "scheduler/text_index.h"

#define ASSETS SKV_TEST_ASSETS

enum { TEXT_MAX = 4096, IDS_MAX = 4096, PIECE_MAX = 16, ROUNDS = 150 };

/* ---- vocabularies ---- */

typedef struct kind {
    const char *path;
    const char *open, *close; /* tokens that stand around an answer */
    bool adds_spaces;         /* before a piece of text: decoding does not give the text back */
    bool takes_blanks;        /* its marks take the white space behind them */
} kind;

static const kind kinds[] = {
    {ASSETS "/tokenizers/smollm2", "<|im_start|>", "<|im_end|>", false, false},
    {ASSETS "/tokenizers/minimind", "<|im_start|>", "<|im_end|>", false, false},
    {ASSETS "/tokenizers/gguf-vocabs/ggml-vocab-gpt-2.gguf", "<|endoftext|>", "<|endoftext|>",
     false, false},
    {ASSETS "/tokenizers/gguf-vocabs/ggml-vocab-starcoder.gguf", "<|endoftext|>", "<|endoftext|>",
     false, false},
    {ASSETS "/tokenizers/gguf-vocabs/ggml-vocab-llama-spm.gguf", "<s>", "</s>", true, false},
    {ASSETS "/tokenizers/gguf-vocabs/ggml-vocab-phi-3.gguf", "<|assistant|>", "<|end|>", true,
     true},
    {ASSETS "/tokenizers/openllama", "<s>", "</s>", true, true},
    {ASSETS "/models/tinystories-656k", "<|start_story|>", "<|end_story|>", true, true},
    {ASSETS "/models/stories260k/stories260k-f32.gguf", "<s>", "</s>", true, false},
};

enum { N_KINDS = sizeof kinds / sizeof kinds[0] };

/* The tokens by their first byte. */
typedef struct pieces {
    char (*bytes)[PIECE_MAX]; /* [n], owned */
    uint8_t *lengths;         /* [n], owned; 0: no piece */
    size_t n;
} pieces;

static pieces make_pieces(const skv_tokenizer *t)
{
    pieces p = {.n = skv_tokenizer_size(t)};
    p.bytes = test_calloc(p.n, sizeof *p.bytes);
    p.lengths = test_calloc(p.n, 1);
    skv_buf buf;
    skv_buf_init(&buf, TEXT_MAX);
    for (size_t i = 0; i < p.n; i++) {
        skv_buf_clear(&buf);
        if (!skv_tokenizer_piece(t, (int32_t)i, &buf) || buf.size == 0) continue;
        if (buf.size > PIECE_MAX) continue;
        memcpy(p.bytes[i], buf.data, buf.size);
        p.lengths[i] = (uint8_t)buf.size;
    }
    skv_buf_release(&buf);
    return p;
}

static void free_pieces(pieces *p)
{
    test_free(p->bytes);
    test_free(p->lengths);
}

/* A random token that text[0..n) begins with; -1: none. */
static int32_t random_piece(const pieces *p, const char *text, size_t n, skv_rng *rng)
{
    int32_t found = -1;
    uint64_t n_found = 0;
    for (size_t i = 0; i < p->n; i++) {
        size_t length = p->lengths[i];
        if (length == 0 || length > n || memcmp(p->bytes[i], text, length) != 0) continue;
        if (skv_rng_below(rng, ++n_found) == 0) found = (int32_t)i;
    }
    return found;
}

/* Cuts a text into random tokens; false where the vocabulary cannot spell it. */
static bool generate(const pieces *p, const char *text, size_t n, skv_rng *rng, int32_t *ids,
                     size_t *n_ids)
{
    for (size_t at = 0; at < n; at += p->lengths[ids[*n_ids - 1]]) {
        int32_t id = random_piece(p, text + at, n - at, rng);
        if (id < 0) return false;
        assert_true(*n_ids < IDS_MAX);
        ids[(*n_ids)++] = id;
    }
    return true;
}

/* ---- conversations ---- */

static const char *const answers[] = {
    "Hello, how are you?",
    " Once upon a time, there was a little girl who lived by the sea.\n\nShe sang.",
    "123456 + 654321 = 777777;  if (x) { return y; }\n\t// done",
    "na\xc3\xafve caf\xc3\xa9 \xe2\x80\x94 \xf0\x9f\x8c\x8a \xe6\xb5\xb7 \xd0\xbc\xd0\xbe\xd1\x80",
    "   ",
    "A",
};

enum { N_ANSWERS = sizeof answers / sizeof answers[0] };

typedef struct scene {
    const kind *kind;
    const skv_vocab *vocab;
    char text[TEXT_MAX];
    size_t n_prompt, n_answer; /* bytes */
    int32_t known[IDS_MAX];
    size_t n_known;
} scene;

static void encode(const skv_vocab *vocab, const char *text, int32_t **ids, size_t *n)
{
    skv_error err;
    skv_status status = skv_vocab_encode(vocab, (skv_text_piece){text, strlen(text)},
                                         (skv_encode_options){.parse_special = true}, ids, n, &err);
    if (status != SKV_OK) fail_msg("%s", err.text);
}

/* The prompt as it was tokenized, and an answer as it was generated behind it. U+2581 stands in
 * marks of templates, and some tokenizers take it for a space. */
static bool begin_scene(scene *s, const pieces *p, const char *answer, skv_rng *rng)
{
    int32_t *ids;
    (void)snprintf(s->text, TEXT_MAX, "%suser\nTell\xe2\x96\x81me more.%s\n%s", s->kind->open,
                   s->kind->close, s->kind->open);
    s->n_prompt = strlen(s->text);
    s->n_answer = strlen(answer);
    encode(s->vocab, s->text, &ids, &s->n_known);
    memcpy(s->known, ids, s->n_known * sizeof *ids);
    skv_text_free(ids);
    memcpy(s->text + s->n_prompt, answer, s->n_answer + 1);
    return generate(p, answer, s->n_answer, rng, s->known, &s->n_known);
}

/* What the ids say, without the spaces behind marks where the tokenizer adds some. */
static char *say(const scene *s, const int32_t *ids, size_t n)
{
    char *text;
    size_t n_text;
    assert_int_equal(skv_vocab_decode(s->vocab, (skv_id_piece){ids, n},
                                      (skv_decode_options){.with_special = true}, &text, &n_text,
                                      NULL),
                     SKV_OK);
    if (!s->kind->adds_spaces) return text;
    size_t to = 0, n_close = strlen(s->kind->close), n_open = strlen(s->kind->open);
    for (size_t i = 0; i < n_text; i++) {
        bool behind =
            (to == 0 && i == 0) ||
            (to >= n_close && memcmp(text + to - n_close, s->kind->close, n_close) == 0) ||
            (to >= n_open && memcmp(text + to - n_open, s->kind->open, n_open) == 0);
        while (behind && i < n_text && (text[i] == ' ' || text[i] == '\n')) i++;
        if (i < n_text) text[to++] = text[i];
    }
    text[to] = 0;
    return text;
}

/* Splices, and checks what holds whatever the text. Returns the ids kept. */
static size_t check_splice(const scene *s)
{
    int32_t *own;
    size_t n_own;
    skv_error err;
    encode(s->vocab, s->text, &own, &n_own);
    skv_read_text read = {s->text, strlen(s->text), false, own, n_own, {0}};
    skv_splice splice;
    if (skv_vocab_splice(s->vocab, &read, s->known, s->n_known, &splice, &err) != SKV_OK) {
        fail_msg("%s", err.text);
    }
    if (splice.ids) {
        assert_true(splice.n_kept > splice.n_same && splice.n_kept <= s->n_known);
        assert_memory_equal(splice.ids, s->known, splice.n_kept * sizeof *own);
        size_t n_rest = splice.n_ids - splice.n_kept;
        assert_true(n_rest <= n_own);
        assert_memory_equal(splice.ids + splice.n_kept, own + n_own - n_rest, n_rest * sizeof *own);
        char *want = say(s, own, n_own), *got = say(s, splice.ids, splice.n_ids);
        if (strcmp(want, got) != 0) {
            fail_msg("%s: '%s' became '%s'", s->kind->path, want, got);
        }
        skv_text_free(want);
        skv_text_free(got);
    }
    skv_text_free(splice.ids);
    skv_text_free(own);
    return splice.n_kept;
}

/* The conversation goes on behind the whole answer: all of it is kept. */
static void check_whole(scene *s)
{
    size_t at = s->n_prompt + s->n_answer;
    (void)snprintf(s->text + at, TEXT_MAX - at, "%s\n%suser\nAnd then?%s\n%s", s->kind->close,
                   s->kind->open, s->kind->close, s->kind->open);
    size_t n_kept = check_splice(s);
    if (n_kept != s->n_known) {
        fail_msg("%s: %zu of %zu ids kept of '%s'", s->kind->path, n_kept, s->n_known, s->text);
    }
}

/* A template trimmed the answer, or the client changed its end. */
static void check_changed(scene *s, skv_rng *rng)
{
    static const char *const ends[] = {"", " and more", "\n", "\xcc\x81z"};
    size_t at = s->n_prompt + (size_t)skv_rng_below(rng, s->n_answer + 1);
    (void)snprintf(s->text + at, TEXT_MAX - at, "%s%s", ends[skv_rng_below(rng, 4)],
                   s->kind->close);
    (void)check_splice(s);
}

static bool open_kind(const kind *k, skv_vocab **vocab)
{
    skv_error err;
    if (!skv_file_exists(k->path) && !skv_file_is_folder(k->path)) {
        print_message("skipped: %s is not there\n", k->path);
        return false;
    }
    if (skv_vocab_open(k->path, vocab, &err) != SKV_OK) fail_msg("%s", err.text);
    return true;
}

static void check_kind(const kind *k)
{
    skv_vocab *vocab;
    if (!open_kind(k, &vocab)) return;
    pieces p = make_pieces(vocab->tokenizer);
    skv_rng rng;
    skv_rng_init(&rng, 5);
    size_t n_done = 0;
    for (size_t i = 0; i < ROUNDS; i++) {
        scene s = {.kind = k, .vocab = vocab};
        if (!begin_scene(&s, &p, answers[i % N_ANSWERS], &rng)) continue;
        if (!k->takes_blanks || !strstr(answers[i % N_ANSWERS], "  ")) check_whole(&s);
        check_changed(&s, &rng);
        n_done++;
    }
    assert_true(n_done >= ROUNDS / 2);
    free_pieces(&p);
    skv_vocab_close(vocab);
}

static void test_answers_are_kept(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_KINDS; i++) check_kind(&kinds[i]);
}

/* Nothing to gain where the tokenizer says the same, and nothing of another text. */
static void test_nothing_to_keep(void **state)
{
    skv_vocab *vocab;
    (void)state;
    if (!open_kind(&kinds[0], &vocab)) return;
    static const char text[] = "<|im_start|>user\nHello there.<|im_end|>\n", other[] = "<|im_end|>";
    int32_t *ids, *others;
    size_t n, n_others;
    encode(vocab, text, &ids, &n);
    encode(vocab, other, &others, &n_others);
    skv_read_text read = {text, sizeof text - 1, false, ids, n, {0}};
    skv_splice splice;
    assert_int_equal(skv_vocab_splice(vocab, &read, ids, n - 3, &splice, NULL), SKV_OK);
    assert_null(splice.ids);
    assert_int_equal(skv_vocab_splice(vocab, &read, others, n_others, &splice, NULL), SKV_OK);
    assert_null(splice.ids);
    int32_t bad[] = {ids[0], 1 << 30, -5};
    assert_int_equal(skv_vocab_splice(vocab, &read, bad, 3, &splice, NULL), SKV_OK);
    assert_null(splice.ids);
    skv_text_free(ids);
    skv_text_free(others);
    skv_vocab_close(vocab);
}

/* A text of added tokens is walked along in time that does not grow with their number. */
static void test_many_added_tokens(void **state)
{
    enum { N_ADDED = 1 << 14, N_IDS = 1 << 17, TOKEN_BYTES = 8 };
    (void)state;
    skv_buf json;
    skv_tokenizer *t = NULL;
    skv_error err;
    skv_buf_init(&json, 1 << 24);
    skv_buf_text(&json, "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[]},"
                        "\"decoder\":{\"type\":\"ByteLevel\"},\"added_tokens\":[");
    for (int i = 1; i <= N_ADDED; i++) {
        skv_buf_printf(&json,
                       "%s{\"id\":%d,\"content\":\"<%06d>\",\"special\":false,\"normalized\":false,"
                       "\"lstrip\":false,\"rstrip\":false,\"single_word\":false}",
                       i > 1 ? "," : "", i, i);
    }
    skv_buf_text(&json, "]}");
    if (skv_tokenizer_parse_json(json.data, json.size, NULL, 0, "many", &t, &err) != SKV_OK) {
        fail_msg("%s", err.text);
    }
    skv_buf_clear(&json);
    int32_t *ids = test_calloc(N_IDS, sizeof *ids);
    size_t *ends = test_calloc(N_IDS, sizeof *ends), n_walked = 0;
    for (int i = 0; i < N_IDS; i++) {
        ids[i] = N_ADDED - i % 100;
        skv_buf_printf(&json, "<%06d>", ids[i]);
    }
    const clock_t begun = clock();
    assert_int_equal(skv_token_walk(t, ids, N_IDS, json.data, json.size, ends, &n_walked, &err),
                     SKV_OK);
    assert_true(clock() - begun < CLOCKS_PER_SEC / 2);
    assert_int_equal(n_walked, N_IDS);
    assert_int_equal(ends[N_IDS - 1], (size_t)N_IDS * TOKEN_BYTES);
    test_free(ids);
    test_free(ends);
    skv_buf_release(&json);
    skv_tokenizer_free(t);
}

/* Ids that are known for a text are not kept from the first special one on that covers data. */
static void test_data_keep_no_special(void **state)
{
    skv_vocab *vocab;
    (void)state;
    if (!open_kind(&kinds[0], &vocab)) return;
    static const char text[] = "<|im_start|>user\nAB<|im_end|>CD<|im_end|>\n";
    size_t at[2] = {17, 17 + 14}; /* AB, the mark and CD */
    const skv_text_marks data = {at, 2};
    int32_t *known, *own;
    size_t n_known, n_own;
    encode(vocab, text, &known, &n_known);
    const skv_encode_options options = {.parse_special = true, .data = &data};
    assert_int_equal(skv_vocab_encode(vocab, (skv_text_piece){text, sizeof text - 1}, options, &own,
                                      &n_own, NULL),
                     SKV_OK);
    assert_true(n_own > n_known);
    skv_read_text read = {text, sizeof text - 1, false, own, n_own, {0}};
    skv_splice splice;
    assert_int_equal(skv_vocab_splice(vocab, &read, known, n_known, &splice, NULL), SKV_OK);
    assert_non_null(splice.ids); /* as long as it is not said to be data */
    skv_text_free(splice.ids);
    read.data = data;
    assert_int_equal(skv_vocab_splice(vocab, &read, known, n_known, &splice, NULL), SKV_OK);
    assert_null(splice.ids);
    skv_text_free(known);
    skv_text_free(own);
    skv_vocab_close(vocab);
}

/* ---- the index ---- */

static uint64_t key_of(skv_text_index *index, const char *text)
{
    skv_text_found found;
    skv_text_index_find(index, 1, (skv_text_piece){text, strlen(text)}, 1000, &found);
    skv_free(found.ids);
    return found.key;
}

static size_t find(skv_text_index *index, uint64_t domain, const char *text, int32_t *first)
{
    skv_text_found found;
    skv_text_index_find(index, domain, (skv_text_piece){text, strlen(text)}, 1000, &found);
    *first = found.n_answers > 0 ? found.ids[0] : -1;
    skv_free(found.ids);
    return found.n_answers;
}

static void test_index_finds_the_longest(void **state)
{
    (void)state;
    skv_text_index *index;
    int32_t first, short_ids[] = {1, 2, 3}, long_ids[] = {4, 2, 3, 5}, more[] = {6, 7, 8};
    assert_int_equal(skv_text_index_create(100, 9, &index, NULL), SKV_OK);
    assert_int_equal(find(index, 1, "user: hi", &first), 0);
    skv_text_index_put(index, 1, key_of(index, "user: "), short_ids, 3);
    skv_text_index_put(index, 1, key_of(index, "user: hi bot: "), long_ids, 4);
    assert_int_equal(find(index, 1, "user: hi bot: hello", &first), 1);
    assert_int_equal(first, 4);
    assert_int_equal(find(index, 1, "user: ho bot: hello", &first), 1);
    assert_int_equal(first, 1);
    assert_int_equal(find(index, 2, "user: hi bot: hello", &first), 0);
    assert_int_equal(find(index, 1, "user:", &first), 0);
    skv_text_index_put(index, 1, key_of(index, "user: hi bot: "), more, 3);
    assert_int_equal(find(index, 1, "user: hi bot: hello", &first), 2);
    assert_int_equal(first, 6);
    skv_text_index_free(index);
}

static void test_index_is_bounded(void **state)
{
    (void)state;
    skv_text_index *index;
    int32_t ids[30] = {0}, first;
    char text[40];
    assert_int_equal(skv_text_index_create(100, 9, &index, NULL), SKV_OK);
    for (int32_t i = 0; i < 50; i++) {
        (void)snprintf(text, sizeof text, "prompt %d.", i);
        ids[0] = i;
        skv_text_index_put(index, 1, key_of(index, text), ids, 30);
        assert_int_equal(find(index, 1, text, &first), 1);
        assert_int_equal(first, i);
        if (i >= 3) assert_int_equal(find(index, 1, "prompt 0. again", &first), 0);
        size_t n_held = 0; /* prompts of 30 ids, 100 at most */
        for (int32_t k = 0; k <= i; k++) {
            (void)snprintf(text, sizeof text, "prompt %d.", k);
            n_held += find(index, 1, text, &first);
        }
        assert_int_equal(n_held, i < 3 ? (size_t)i + 1 : 3);
    }
    /* A longer answer of one beginning takes the place of the shorter. */
    for (size_t n = 1; n <= 30; n++) skv_text_index_put(index, 1, key_of(index, "p"), ids, n);
    assert_int_equal(find(index, 1, "pq", &first), 1);
    for (int32_t i = 0; i < 20; i++) {
        ids[0] = i;
        skv_text_index_put(index, 1, key_of(index, "p"), ids, 3);
    }
    assert_int_equal(find(index, 1, "pq", &first), SKV_TEXT_ANSWERS_MAX);
    assert_int_equal(first, 19);
    /* No more of them than there is room for: each may be as long as a context. */
    static const size_t rooms[] = {0, 2, 3, 8, 9, 1000}, n_answers[] = {0, 0, 1, 2, 3, 8};
    for (size_t i = 0; i < sizeof rooms / sizeof rooms[0]; i++) {
        skv_text_found found;
        skv_text_index_find(index, 1, (skv_text_piece){"pq", 2}, rooms[i], &found);
        assert_int_equal(found.n_answers, n_answers[i]);
        skv_free(found.ids);
    }
    int32_t many[200] = {0};
    skv_text_index_put(index, 1, key_of(index, "x"), many, 200);
    assert_int_equal(find(index, 1, "x", &first), 0);
    skv_text_index_free(index);
}

/* Prefixes are hashed in stretches: an entry at and around their ends is found. */
static void test_index_long_texts(void **state)
{
    (void)state;
    skv_text_index *index;
    static char text[10000];
    int32_t first;
    assert_int_equal(skv_text_index_create(1000, 9, &index, NULL), SKV_OK);
    for (size_t i = 0; i < sizeof text - 1; i++) text[i] = (char)('a' + skv_mix64(i) % 26);
    static const size_t lengths[] = {1, 4095, 4096, 4097, 8192, 9998};
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        skv_text_found found;
        skv_text_index_find(index, 1, (skv_text_piece){text, lengths[i]}, 1000, &found);
        skv_free(found.ids);
        int32_t id = (int32_t)i;
        skv_text_index_put(index, 1, found.key, &id, 1);
        assert_int_equal(find(index, 1, text, &first), 1);
        assert_int_equal(first, id);
    }
    skv_text_index_free(index);
}

static bool use_index(void *arg)
{
    skv_text_index *index;
    int32_t first, ids[] = {1, 2, 3};
    (void)arg;
    if (skv_text_index_create(100, 9, &index, NULL) != SKV_OK) return false;
    skv_text_index_put(index, 1, key_of(index, "user: "), ids, 3);
    bool found = find(index, 1, "user: hi", &first) == 1;
    skv_text_index_free(index);
    return found;
}

static void test_index_without_memory(void **state)
{
    (void)state;
    assert_int_equal(alloc_fail_each(use_index, NULL, false), 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_answers_are_kept),     cmocka_unit_test(test_nothing_to_keep),
        cmocka_unit_test(test_many_added_tokens),    cmocka_unit_test(test_data_keep_no_special),
        cmocka_unit_test(test_data_keep_no_special), cmocka_unit_test(test_index_finds_the_longest),
        cmocka_unit_test(test_index_is_bounded),     cmocka_unit_test(test_index_long_texts),
        cmocka_unit_test(test_index_without_memory),
    };
    return cmocka_run_group_tests_name("recall", tests, NULL, NULL);
}
