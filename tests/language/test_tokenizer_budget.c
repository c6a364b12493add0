/*
 * Tokenizing within bounds: a word of any length becomes the same ids window by window as it does
 * as a whole, the first ids of a text are those of all of it, memory counts in the budget and is
 * given back, and whoever stops waiting ends the work.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/rng.h"
#include "base/utf8.h"
#include "open_tokenizer.h"
#include "text/tokenizer_impl.h"

#define DATA SKV_TEST_DATA "/tokenizer/"

static const char *const files[] = {
    "gpt2.json",      "llama3.json",       "qwen2.json",     "o200k.json",      "deepseek.json",
    "falcon.json",    "gemma4.json",       "metaspace.json", "words.json",      "spm_bpe.model",
    "spm_nfkc.model", "spm_unigram.model", "gemma4.gguf",    "spm_suffix.model"};
enum { N_FILES = sizeof files / sizeof files[0] };

/* Several windows of the small vocabularies; sanitized builds look at every third text only. */
#ifdef NDEBUG
enum { TEXT_BYTES = 240000, STEP = 1 };
#else
enum { TEXT_BYTES = 180000, STEP = 3 };
#endif

static skv_tokenizer *open_file(const char *name)
{
    char path[512];
    (void)snprintf(path, sizeof path, DATA "%s", name);
    return open_path(path);
}

/* ---- texts ---- */

typedef struct text {
    char *data;
    size_t n;
} text;

/* Long words, runs and noise: n characters out of a set, or bytes. */
static text make_text(size_t kind, size_t n)
{
    static const char *const sets[] = {
        "a",          "ab",         "etaoin",     "abcdefghijklmnopqrstuvwxyzABCDEFGHIJ",
        "aé漢字а",    " ",          "ab c",       "\n",
        "a\xff\xc3z", "0123456789", "the of and "};
    const char *set = sets[kind];
    const size_t n_set = strlen(set);
    skv_rng rng;
    text out = {skv_alloc(n + 8, 1), 0};
    skv_rng_init(&rng, kind + 1);
    assert_non_null(out.data);
    while (out.n < n) {
        uint32_t code;
        size_t at = skv_rng_next(&rng) % n_set;
        while (((unsigned char)set[at] & 0xc0) == 0x80) at--;
        const size_t length = skv_utf8_decode(set + at, n_set - at, &code);
        memcpy(out.data + out.n, set + at, length);
        out.n += length;
    }
    return out;
}

enum { N_KINDS = 11 };

static void encode(const skv_tokenizer *t, const text *from, skv_encode_options options,
                   skv_ids *ids)
{
    skv_error err = {0};
    ids->n = 0;
    if (skv_tokenizer_encode(t, from->data, from->n, options, ids, &err) != SKV_OK) {
        fail_msg("%s", err.text);
    }
}

static void expect_same(const char *name, size_t kind, const skv_ids *a, const skv_ids *b, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (a->data[i] != b->data[i]) {
            fail_msg("%s, text %zu: id %zu is %d, expected %d", name, kind, i, a->data[i],
                     b->data[i]);
        }
    }
}

/* ---- properties ---- */

static void test_windows(void **state)
{
    size_t n_windowed = 0;
    (void)state;
    for (size_t i = 0; i < N_FILES; i++) {
        skv_tokenizer *t = open_file(files[i]);
        const size_t margin = t->bpe.merges.margin;
        n_windowed += margin > 0;
        for (size_t kind = i % STEP; margin > 0 && kind < N_KINDS; kind += STEP) {
            text from = make_text(kind, TEXT_BYTES);
            skv_ids by_windows = {0}, whole = {0};
            encode(t, &from, (skv_encode_options){0}, &by_windows);
            t->bpe.merges.margin = 0;
            encode(t, &from, (skv_encode_options){0}, &whole);
            t->bpe.merges.margin = margin;
            assert_int_equal(by_windows.n, whole.n);
            expect_same(files[i], kind, &by_windows, &whole, whole.n);
            skv_ids_release(&by_windows);
            skv_ids_release(&whole);
            skv_free(from.data);
        }
        skv_tokenizer_free(t);
    }
    assert_true(n_windowed >= 8);
}

static void test_first_ids(void **state)
{
    static const size_t most[] = {1, 2, 7, 500, 20000, 1 << 20};
    (void)state;
    for (size_t i = 0; i < N_FILES; i++) {
        skv_tokenizer *t = open_file(files[i]);
        for (size_t kind = i % STEP; kind < N_KINDS; kind += STEP) {
            text from = make_text(kind, TEXT_BYTES / 4);
            skv_ids all = {0}, some = {0};
            encode(t, &from, (skv_encode_options){.add_special = true}, &all);
            for (size_t k = 0; k < sizeof most / sizeof most[0]; k++) {
                const size_t n = most[k] < all.n ? most[k] : all.n;
                encode(t, &from, (skv_encode_options){.add_special = true, .max_ids = most[k]},
                       &some);
                assert_int_equal(some.n, n);
                expect_same(files[i], kind, &some, &all, n);
            }
            skv_ids_release(&all);
            skv_ids_release(&some);
            skv_free(from.data);
        }
        skv_tokenizer_free(t);
    }
}

/* ---- margins ---- */

enum { TEXTS_MAX = 14, TEXT_MAX = 24, VOCABULARIES = 1500 / STEP, PERIOD_MAX = 8, BEHIND_MAX = 6 };

/* A small vocabulary whose tokens are made by one merge or several, of rising ranks. */
typedef struct merge_list {
    skv_bpe bpe;
    char texts[TEXTS_MAX][TEXT_MAX + 1];
    uint32_t lengths[TEXTS_MAX];
    size_t n, n_chars;
    uint32_t n_ranks;
} merge_list;

static size_t find_text(const merge_list *m, const char *spelled, size_t n)
{
    size_t i = 0;
    while (i < m->n && (m->lengths[i] != n || memcmp(m->texts[i], spelled, n) != 0)) i++;
    return i;
}

static void add_text(merge_list *m, const char *spelled, size_t n)
{
    memcpy(m->texts[m->n], spelled, n);
    m->lengths[m->n++] = (uint32_t)n;
}

/* Two tokens become one, by all merges of two that make it. */
static void add_token(merge_list *m, skv_rng *rng)
{
    char spelled[2 * TEXT_MAX];
    const size_t a = skv_rng_next(rng) % m->n, b = skv_rng_next(rng) % m->n;
    const size_t n = m->lengths[a] + m->lengths[b];
    memcpy(spelled, m->texts[a], m->lengths[a]);
    memcpy(spelled + m->lengths[a], m->texts[b], m->lengths[b]);
    if (n > TEXT_MAX || find_text(m, spelled, n) < m->n) return;
    const size_t first = skv_rng_next(rng) % n;
    for (size_t k = 0; k < n; k++) {
        const size_t at = (first + k) % n;
        const size_t left = find_text(m, spelled, at), right = find_text(m, spelled + at, n - at);
        if (left == m->n || right == m->n) continue;
        skv_bpe_put(&m->bpe, (uint32_t)left, (uint32_t)right, m->n_ranks++, (uint32_t)m->n);
    }
    add_text(m, spelled, n);
}

static void make_merges(merge_list *m, skv_rng *rng)
{
    uint32_t made[TEXTS_MAX];
    *m = (merge_list){.n_chars = 1 + skv_rng_next(rng) % 3};
    assert_true(skv_bpe_init(&m->bpe, TEXTS_MAX * TEXT_MAX));
    for (char c = 'a'; c < 'a' + (char)m->n_chars; c++) add_text(m, &c, 1);
    for (int i = 0; i < 3 * TEXTS_MAX && m->n < TEXTS_MAX; i++) add_token(m, rng);
    skv_bpe_find_margin(&m->bpe, m->lengths, made, m->n);
}

/* What a beginning becomes is a beginning of what the whole becomes, whatever follows. */
static void test_margins(void **state)
{
    skv_rng rng;
    (void)state;
    skv_rng_init(&rng, 5);
    for (size_t i = 0; i < VOCABULARIES; i++) {
        merge_list m;
        make_merges(&m, &rng);
        assert_true(m.bpe.margin > 0);
        const size_t n = 2 * m.bpe.margin + 1 + skv_rng_next(&rng) % PERIOD_MAX;
        const size_t period = 1 + skv_rng_next(&rng) % PERIOD_MAX;
        skv_bpe_work front = {0}, whole = {0};
        assert_true(skv_bpe_reserve(&front, n) && skv_bpe_reserve(&whole, n + BEHIND_MAX));
        for (size_t k = 0; k < n; k++) {
            const bool repeats = k >= period && skv_rng_next(&rng) % n > 2;
            front.symbols[k] =
                repeats ? front.symbols[k - period] : (uint32_t)(skv_rng_next(&rng) % m.n_chars);
        }
        memcpy(whole.symbols, front.symbols, n * sizeof *whole.symbols);
        for (size_t k = 0; k < BEHIND_MAX; k++) {
            whole.symbols[n + k] = (uint32_t)(skv_rng_next(&rng) % m.n_chars);
        }
        size_t n_front = n, n_taken, n_whole = n + 1 + skv_rng_next(&rng) % BEHIND_MAX;
        assert_true(skv_bpe_merge_front(&m.bpe, &front, &n_front, &n_taken));
        assert_true(n_taken <= n - m.bpe.margin);
        assert_true(skv_bpe_merge(&m.bpe, &whole, &n_whole));
        assert_true(n_front <= n_whole);
        for (size_t k = 0; k < n_front; k++) {
            assert_int_equal(front.symbols[k], whole.symbols[k]);
        }
        skv_bpe_work_release(&front);
        skv_bpe_work_release(&whole);
        skv_bpe_release(&m.bpe);
    }
}

/* All spellings at once, as the algorithm says it. */
static void spell(const skv_unigram *model, const text *from, skv_ids *out)
{
    typedef struct end {
        float score;
        int32_t id;
        size_t start;
    } end;
    end *ends = skv_alloc_zero(from->n + 1, sizeof *ends);
    size_t n = 0;
    for (size_t i = 0; i < from->n;) {
        uint32_t code, state = 0, id;
        size_t at = 0;
        while (skv_trie_next(&model->pieces, from->data + i, from->n - i, &state, &at, &id)) {
            const float score = (i == 0 ? 0 : ends[i].score) + model->scores[id];
            end *e = &ends[i + at];
            if (e->score < 0 && score <= e->score) continue;
            *e = (end){score, (int32_t)id, i};
        }
        i += skv_utf8_decode(from->data + i, from->n - i, &code);
    }
    for (size_t at = from->n; at > 0; at = ends[at].start) n++;
    assert_int_equal(skv_ids_reserve(out, n, NULL), SKV_OK);
    out->n = n;
    for (size_t at = from->n; at > 0; at = ends[at].start) out->data[--n] = ends[at].id;
    skv_free(ends);
}

static void test_unigram(void **state)
{
    skv_tokenizer *t = open_file("spm_unigram.model");
    skv_rng rng;
    text from = {skv_alloc(TEXT_BYTES * 2, 1), 0};
    skv_ids wanted = {0}, ids = {0};
    (void)state;
    skv_rng_init(&rng, 7);
    while (from.n < TEXT_BYTES) { /* pieces in a row, so that every character is known */
        size_t n;
        uint32_t found;
        const uint32_t id = (uint32_t)(skv_rng_next(&rng) % t->vocab.n_ids);
        const char *piece = skv_vocab_text(&t->vocab, id, &n);
        if (n == 0 || skv_trie_longest(&t->unigram.pieces, piece, n, &found) != n) continue;
        memcpy(from.data + from.n, piece, n);
        from.n += n;
    }
    spell(&t->unigram, &from, &wanted);
    assert_int_equal(
        skv_unigram_encode(&t->unigram, (skv_text_piece){from.data, from.n}, NULL, &ids, NULL),
        SKV_OK);
    assert_int_equal(ids.n, wanted.n);
    expect_same("spm_unigram.model", 0, &ids, &wanted, ids.n);
    skv_ids_release(&ids);
    skv_ids_release(&wanted);
    skv_free(from.data);
    skv_tokenizer_free(t);
}

/* ---- budgets ---- */

static skv_budget budget_of(skv_account *account, bool (*stopped)(void *user), void *user)
{
    skv_budget budget;
    const skv_limits limits = {.work = UINT64_MAX, .bytes = SIZE_MAX, .depth = 64};
    skv_budget_init(&budget, &limits);
    budget.account = account;
    budget.stopped = stopped;
    budget.user = user;
    return budget;
}

/* The first ids of a word take no more than a few windows, whatever its length. */
static void test_memory(void **state)
{
    const size_t MiB = (size_t)1 << 20;
    (void)state;
    for (size_t i = 0; i < N_FILES; i++) {
        skv_tokenizer *t = open_file(files[i]);
        const bool rewrites = t->spm.active || t->normalizer.n_steps > 0 || !t->bpe.byte_level;
        for (size_t size = MiB; size <= 4 * MiB; size *= 4) {
            text from = make_text(0, size);
            skv_account *account = NULL;
            assert_int_equal(skv_account_create(SIZE_MAX, &account, NULL), SKV_OK);
            skv_budget budget = budget_of(account, NULL, NULL);
            skv_ids ids = {.budget = &budget};
            encode(t, &from, (skv_encode_options){.budget = &budget, .max_ids = 1000}, &ids);
            /* Steps that write the text anew hold it, and regular expressions have a stack. */
            const size_t most = (rewrites ? 4 : 0) * size + 36 * MiB;
            if (skv_account_peak(account) > most) {
                fail_msg("%s: %zu bytes take %zu", files[i], size, skv_account_peak(account));
            }
            skv_ids_release(&ids);
            assert_int_equal(budget.bytes, 0);
            assert_int_equal(skv_account_used(account), 0);
            skv_account_free(account);
            skv_free(from.data);
        }
        skv_tokenizer_free(t);
    }
}

static bool after_some(void *user)
{
    return --*(int *)user <= 0;
}

/* Asked to stop, it stops: in a long word, in many short ones, in a text that is normalised. */
static void test_stop(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_FILES; i++) {
        skv_tokenizer *t = open_file(files[i]);
        for (size_t kind = 0; kind < N_KINDS; kind += 3 * STEP) {
            text from = make_text(kind, TEXT_BYTES);
            int n_asked = 1;
            skv_error err = {0};
            skv_budget budget = budget_of(NULL, after_some, &n_asked);
            skv_ids ids = {.budget = &budget};
            const skv_encode_options options = {.budget = &budget};
            const skv_status status =
                skv_tokenizer_encode(t, from.data, from.n, options, &ids, &err);
            if (status != SKV_CANCELLED) {
                fail_msg("%s, text %zu: status %d, %s", files[i], kind, status, err.text);
            }
            skv_ids_release(&ids);
            assert_int_equal(budget.bytes, 0);
            skv_free(from.data);
        }
        skv_tokenizer_free(t);
    }
}

/* SentencePiece writes the whole text anew: asked to stop, it does so long before the end. */
static void test_stop_early(void **state)
{
    enum { MOST = 2 << 20 };
    static const size_t kinds[] = {5, 6, 10}; /* with blanks, which are written one by one */
    size_t n_files = 0;
    (void)state;
    for (size_t i = 0; i < N_FILES; i++) {
        skv_tokenizer *t = open_file(files[i]);
        for (size_t k = 0; t->spm.active && k < 3; k++) {
            text from = make_text(kinds[k], 4 * (size_t)MOST);
            int n_asked = 1;
            skv_error err = {0};
            skv_account *account = NULL;
            assert_int_equal(skv_account_create(SIZE_MAX, &account, NULL), SKV_OK);
            skv_budget budget = budget_of(account, after_some, &n_asked);
            skv_ids ids = {.budget = &budget};
            const skv_encode_options options = {.budget = &budget, .max_ids = 1000};
            const skv_status status =
                skv_tokenizer_encode(t, from.data, from.n, options, &ids, &err);
            assert_int_equal(status, SKV_CANCELLED);
            if (skv_account_peak(account) > MOST) {
                fail_msg("%s, text %zu: %zu bytes held", files[i], kinds[k],
                         skv_account_peak(account));
            }
            skv_ids_release(&ids);
            skv_account_free(account);
            skv_free(from.data);
        }
        n_files += t->spm.active;
        skv_tokenizer_free(t);
    }
    assert_true(n_files >= 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_windows),    cmocka_unit_test(test_first_ids),
        cmocka_unit_test(test_margins),    cmocka_unit_test(test_unigram),
        cmocka_unit_test(test_memory),     cmocka_unit_test(test_stop),
        cmocka_unit_test(test_stop_early),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
