/* Batches: documents apart, answers learnt, the template's own text, and a run that goes on. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/mem.h"
#include "data/data.h"
#include "data/data_doc.h"
#include "data/data_file.h"
#include "skv/vocab_train.h"
#include "text/chat_template.h"

enum { ROWS = 4, ROW = 256, TOKENS = ROWS * ROW };

typedef struct fixture {
    char folder[64];
    char text[96], lines[96], ids[96];
    skv_tokenizer *tokenizer;
} fixture;

static void write_text(const char *path, const char *text, size_t n)
{
    assert_int_equal(skv_file_write(path, text, n, NULL), SKV_OK);
}

static int set_up(void **state)
{
    fixture *f = skv_alloc_zero(1, sizeof *f);
    snprintf(f->folder, sizeof f->folder, "/tmp/skv-data-%ld", (long)getpid());
    skv_documents_options documents = skv_documents_default();
    skv_vocab_train_options options = skv_vocab_train_default();
    options.size = 900;
    options.documents = &documents;
    options.n_documents = 60;
    assert_int_equal(skv_vocab_train(f->folder, &options, NULL, NULL), SKV_OK);
    assert_int_equal(skv_tokenizer_open_folder(f->folder, &f->tokenizer, NULL), SKV_OK);
    snprintf(f->text, sizeof f->text, "%s/a.txt", f->folder);
    snprintf(f->lines, sizeof f->lines, "%s/b.jsonl", f->folder);
    snprintf(f->ids, sizeof f->ids, "%s/c.u16", f->folder);
    skv_buf text;
    skv_buf_init(&text, 1 << 24);
    for (int i = 0; i < 40000; i++) (void)skv_buf_printf(&text, "word%d%s", i, i % 9 ? " " : "\n");
    write_text(f->text, text.data, text.size);
    skv_buf_clear(&text);
    for (int i = 0; i < 100; i++) {
        (void)skv_buf_printf(&text,
                             "{\"messages\": [{\"role\": \"user\", \"content\": \"number %d?\"}, "
                             "{\"role\": \"assistant\", \"content\": \"it is %d\"}]}\n",
                             i, i);
    }
    write_text(f->lines, text.data, text.size);
    skv_buf_clear(&text);
    for (int i = 0; i < 3000; i++) {
        (void)skv_buf_byte(&text, (char)(i % 256));
        (void)skv_buf_byte(&text, (char)(i / 256 % 3));
    }
    write_text(f->ids, text.data, text.size);
    skv_buf_release(&text);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    fixture *f = *state;
    skv_tokenizer_free(f->tokenizer);
    char path[128];
    static const char *const names[] = {"tokenizer.json", "tokenizer_config.json", "a.txt",
                                        "b.jsonl", "c.u16"};
    for (size_t i = 0; i < 5; i++) {
        snprintf(path, sizeof path, "%s/%s", f->folder, names[i]);
        (void)unlink(path);
    }
    (void)rmdir(f->folder);
    skv_free(f);
    return 0;
}

static skv_data *open_fused(const fixture *f, const skv_train_data *sources, size_t n, double fuse)
{
    const skv_data_options options = {.tokenizer = f->tokenizer,
                                      .vocab = skv_tokenizer_size(f->tokenizer),
                                      .sources = sources,
                                      .n_sources = n,
                                      .rows = ROWS,
                                      .row_tokens = ROW,
                                      .fuse = fuse,
                                      .seed = 3};
    skv_data *data = NULL;
    skv_error err = {0};
    if (skv_data_open(&options, &data, &err) != SKV_OK) fail_msg("%s", err.text);
    return data;
}

static skv_data *open_mix(const fixture *f, const skv_train_data *sources, size_t n)
{
    return open_fused(f, sources, n, 0);
}

static skv_data *open_all(const fixture *f)
{
    const skv_train_data sources[] = {{.file = f->text, .weight = 1},
                                      {.file = f->lines, .weight = 1},
                                      {.file = f->ids, .weight = 0.5},
                                      {.weight = 3, .documents = skv_documents_default()}};
    return open_mix(f, sources, 4);
}

static void next(skv_batch_source source, skv_train_batch *batch)
{
    skv_error err = {0};
    if (source.next(source.ctx, batch, &err) != SKV_OK) fail_msg("%s", err.text);
}

/* Documents lie within a row, positions count from their start, a target is the next token. */
static void documents_are_apart(void **state)
{
    skv_data *data = open_all(*state);
    skv_batch_source source = skv_data_source(data);
    size_t n_padded = 0;
    for (int k = 0; k < 20; k++) {
        skv_train_batch b;
        next(source, &b);
        assert_int_equal(b.n_tokens, TOKENS);
        for (size_t i = 0; i < TOKENS; i++) {
            assert_true(b.doc_start[i] <= i && b.doc_start[i] / ROW == i / ROW);
            assert_int_equal(b.positions[i], i - b.doc_start[i]);
            if (b.positions[i] > 0) assert_int_equal(b.doc_start[i], b.doc_start[i - 1]);
            const bool last = i + 1 == TOKENS || b.positions[i + 1] == 0;
            if (last) assert_int_equal(b.targets[i], -1);
            if (!last && b.targets[i] != -1) assert_int_equal(b.targets[i], b.ids[i + 1]);
            n_padded += last && b.positions[i] == 0;
        }
    }
    assert_true(n_padded < 20 * TOKENS / 50); /* at most 2 % */
    skv_data_close(data);
}

static void a_run_goes_on(void **state)
{
    skv_data *whole = open_all(*state), *cut = open_all(*state);
    skv_batch_source a = skv_data_source(whole), b = skv_data_source(cut);
    skv_train_batch x, y;
    uint64_t saved[SKV_BATCH_STATE_WORDS];
    for (int k = 0; k < 7; k++) next(a, &x);
    a.save(a.ctx, saved);
    assert_int_equal(b.restore(b.ctx, saved, NULL), SKV_OK);
    for (int k = 0; k < 30; k++) {
        next(a, &x);
        next(b, &y);
        assert_memory_equal(x.ids, y.ids, TOKENS * sizeof x.ids[0]);
        assert_memory_equal(x.targets, y.targets, TOKENS * sizeof x.ids[0]);
        assert_memory_equal(x.doc_start, y.doc_start, TOKENS * sizeof x.ids[0]);
    }
    saved[1] = 3;
    assert_int_equal(b.restore(b.ctx, saved, NULL), SKV_ARGUMENT);
    skv_data_close(whole);
    skv_data_close(cut);
}

/* Some rows are one range of positions; ids and targets are those of rows that are not. */
static void some_rows_are_fused(void **state)
{
    const fixture *f = *state;
    const skv_train_data source = {.file = f->lines, .weight = 1};
    skv_data *data[] = {open_mix(f, &source, 1), open_fused(f, &source, 1, 0.25),
                        open_fused(f, &source, 1, 1)};
    skv_train_batch b[3];
    size_t n_fused = 0;
    for (int k = 0; k < 50; k++) {
        for (size_t i = 0; i < 3; i++) {
            const skv_batch_source s = skv_data_source(data[i]);
            next(s, &b[i]);
            assert_memory_equal(b[i].ids, b[0].ids, TOKENS * sizeof b[0].ids[0]);
            assert_memory_equal(b[i].targets, b[0].targets, TOKENS * sizeof b[0].ids[0]);
        }
        for (size_t row = 0; row < ROWS; row++) {
            const size_t at = row * ROW, n = ROW * sizeof b[0].positions[0];
            const bool fused = memcmp(b[1].positions + at, b[2].positions + at, n) == 0;
            const skv_train_batch *same = &b[fused ? 2 : 0];
            assert_memory_equal(b[1].positions + at, same->positions + at, n);
            assert_memory_equal(b[1].doc_start + at, same->doc_start + at, n);
            for (size_t i = at; i < at + ROW / 2; i++) {
                assert_int_equal(b[2].positions[i], i - at);
                assert_int_equal(b[2].doc_start[i], at);
            }
            n_fused += fused;
        }
    }
    assert_in_range(n_fused, 30, 70); /* of 200 */
    for (size_t i = 0; i < 3; i++) skv_data_close(data[i]);
}

/* What is learnt is the source's to say; a conversation without an answer teaches no token. */
static void tokens_are_learnt_as_told(void **state)
{
    const fixture *f = *state;
    static const skv_train_learn learn[] = {SKV_LEARN_NONE, SKV_LEARN_ANSWERS, SKV_LEARN_ALL};
    size_t n[3] = {0};
    for (size_t k = 0; k < 3; k++) {
        const skv_train_data source = {.file = f->lines, .weight = 1, .learn = learn[k]};
        skv_data *data = open_mix(f, &source, 1);
        skv_train_batch b;
        next(skv_data_source(data), &b);
        for (size_t i = 0; i < TOKENS; i++) n[k] += b.targets[i] >= 0;
        skv_data_close(data);
    }
    assert_int_equal(n[0], 0);
    assert_true(n[1] > TOKENS / 8 && n[1] < n[2] && n[2] > TOKENS * 3 / 4);
    skv_data_writer w;
    skv_data_tokens tokens = {.loss = NULL};
    static const char line[] = "{\"messages\": [{\"role\": \"user\", \"content\": \"a tale\"}]}";
    assert_int_equal(skv_data_writer_init(&w, f->tokenizer, skv_tokenizer_size(f->tokenizer), NULL),
                     SKV_OK);
    assert_int_equal(skv_data_put_json(&w, line, sizeof line - 1, "line", &tokens, NULL), SKV_OK);
    assert_true(tokens.ids.n > 2);
    for (size_t i = 0; i < tokens.ids.n; i++) assert_int_equal(tokens.loss[i], 0);
    skv_data_tokens_release(&tokens);
    skv_data_writer_release(&w);
}

/* An epoch of a file is all of its words 0 .. n_words - 1, each once. */
static void check_epoch(const fixture *f, const char *path, skv_data_file_form form, size_t n_words)
{
    skv_data_writer w;
    assert_int_equal(skv_data_writer_init(&w, f->tokenizer, skv_tokenizer_size(f->tokenizer), NULL),
                     SKV_OK);
    skv_data_file file;
    assert_int_equal(skv_data_file_open(path, form, 5, &file, NULL), SKV_OK);
    skv_data_tokens tokens = {.loss = NULL};
    skv_buf text;
    skv_buf_init(&text, 1 << 24);
    uint8_t seen[40000] = {0};
    uint64_t position = 0;
    while (skv_data_file_epoch(&file, position) == 0) {
        bool taken;
        skv_data_tokens_clear(&tokens);
        assert_int_equal(skv_data_file_take(&file, &w, &position, 200, true, &taken, &tokens, NULL),
                         SKV_OK);
        assert_true(taken && tokens.ids.n <= 200);
        (void)skv_buf_byte(&text, ' ');
        assert_int_equal(skv_tokenizer_decode(f->tokenizer, tokens.ids.data, tokens.ids.n,
                                              (skv_decode_options){0}, &text, NULL),
                         SKV_OK);
    }
    size_t n = 0;
    for (const char *at = text.data; (at = strstr(at, "word"));) {
        char *end;
        const long i = strtol(at += 4, &end, 10);
        assert_true(i >= 0 && (size_t)i < n_words);
        assert_int_equal(seen[i]++, 0);
        n++;
    }
    assert_int_equal(n, n_words);
    skv_buf_release(&text);
    skv_data_tokens_release(&tokens);
    skv_data_file_close(&file);
    skv_data_writer_release(&w);
}

static void an_epoch_is_the_whole_file(void **state)
{
    const fixture *f = *state;
    static const size_t sizes[] = {1, 2, 3, 5, 100, 1000};
    char path[128];
    skv_buf lines;
    skv_buf_init(&lines, 1 << 20);
    check_epoch(f, f->text, SKV_DATA_FILE_TEXT, 40000);
    (void)snprintf(path, sizeof path, "%s/words.jsonl", f->folder);
    for (size_t k = 0; k < 6; k++) {
        skv_buf_clear(&lines);
        for (size_t i = 0; i < sizes[k]; i++) {
            (void)skv_buf_printf(&lines, "{\"text\": \"word%zu\"}\n", i);
        }
        write_text(path, lines.data, lines.size);
        check_epoch(f, path, SKV_DATA_FILE_LINES, sizes[k]);
    }
    (void)unlink(path);
    skv_buf_release(&lines);
}

/* Generated turns, written from the frame, are what the template makes of the same messages; so
 * are messages of a line of JSON, with the same tokens learnt. */
static void turns_follow_the_template(void **state)
{
    const fixture *f = *state;
    skv_data_writer w;
    assert_int_equal(skv_data_writer_init(&w, f->tokenizer, skv_tokenizer_size(f->tokenizer), NULL),
                     SKV_OK);
    skv_documents_options options = skv_documents_default();
    options.tasks = "kv,edit,hops";
    skv_documents *documents;
    assert_int_equal(skv_documents_create(&options, f->tokenizer, &documents, NULL), SKV_OK);
    skv_document doc;
    skv_document_init(&doc);
    skv_data_tokens direct = {.loss = NULL}, rendered = {.loss = NULL};
    for (uint64_t i = 0; i < 20; i++) {
        char *line;
        size_t n;
        skv_data_tokens_clear(&direct);
        skv_data_tokens_clear(&rendered);
        assert_int_equal(skv_documents_make(documents, i, &doc, NULL), SKV_OK);
        assert_int_equal(skv_data_put_document(&w, &doc, &direct, NULL), SKV_OK);
        assert_int_equal(skv_documents_json(documents, i, false, &line, &n, NULL), SKV_OK);
        assert_int_equal(skv_data_put_json(&w, line, n, "line", &rendered, NULL), SKV_OK);
        skv_free(line);
        assert_int_equal(direct.ids.n, rendered.ids.n);
        assert_memory_equal(direct.ids.data, rendered.ids.data, direct.ids.n * sizeof(int32_t));
        assert_memory_equal(direct.loss, rendered.loss, direct.ids.n);
        assert_true(direct.ids.n <= doc.n_tokens + 1);
        assert_int_equal(direct.ids.data[direct.ids.n - 1], 1); /* <|end|> is learnt */
        assert_int_equal(direct.loss[direct.ids.n - 1], 1);
    }
    skv_data_tokens_release(&direct);
    skv_data_tokens_release(&rendered);
    skv_document_release(&doc);
    skv_documents_close(documents);
    skv_data_writer_release(&w);
}

static size_t count_ids(const skv_data_tokens *tokens, int32_t id)
{
    size_t n = 0;
    for (size_t i = 0; i < tokens->ids.n; i++) n += tokens->ids.data[i] == id;
    return n;
}

/* Texts that spell a special token keep its letters, wherever they stand and whoever says them. */
static void texts_are_data(void **state)
{
    static const char *const lines[] = {
        "{\"messages\": [{\"role\": \"user\", \"content\": \"a@b\"}, {\"role\": \"assistant\", "
        "\"content\": \"c@d\"}, {\"role\": \"user\", \"content\": \"@\"}, {\"role\": "
        "\"assistant\", \"content\": \"e@\"}]}",
        "{\"messages\": [{\"role\": \"user\", \"content\": \"a@b@@@\"}]}",
        "{\"prompt\": \"a@\", \"answer\": \"@@@\"}", "{\"text\": \"a@@b@@\"}"};
    const fixture *f = *state;
    skv_data_writer w;
    assert_int_equal(skv_data_writer_init(&w, f->tokenizer, skv_tokenizer_size(f->tokenizer), NULL),
                     SKV_OK);
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        skv_data_tokens plain = {.loss = NULL}, spelt = {.loss = NULL};
        for (int k = 0; k < 2; k++) {
            skv_buf line;
            skv_data_tokens *out = k == 0 ? &plain : &spelt;
            skv_buf_init(&line, 1 << 10);
            for (const char *at = lines[i]; *at; at++) {
                if (*at == '@') {
                    skv_buf_text(&line, k == 0 ? " x " : "<|end|>");
                } else {
                    skv_buf_byte(&line, *at);
                }
            }
            assert_int_equal(skv_data_put_json(&w, line.data, line.size, "line", out, NULL),
                             SKV_OK);
            skv_buf_release(&line);
        }
        assert_int_equal(count_ids(&spelt, 1), count_ids(&plain, 1));
        assert_true(i == 3 || count_ids(&plain, 1) > 0);
        skv_data_tokens_release(&plain);
        skv_data_tokens_release(&spelt);
    }
    skv_data_writer_release(&w);
}

static void refuses(void **state)
{
    const fixture *f = *state;
    skv_data_writer w;
    assert_int_equal(skv_data_writer_init(&w, f->tokenizer, skv_tokenizer_size(f->tokenizer), NULL),
                     SKV_OK);
    skv_data_tokens tokens = {.loss = NULL};
    static const char *const bad[] = {"{",
                                      "[]",
                                      "{}",
                                      "{\"text\": 1}",
                                      "{\"segments\": [1]}",
                                      "{\"prompt\": \"a\"}",
                                      "{\"messages\": [{\"x\": 1}]"};
    skv_error err;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_not_equal(
            skv_data_put_json(&w, bad[i], strlen(bad[i]), "f.jsonl: byte 7", &tokens, &err),
            SKV_OK);
        assert_non_null(strstr(err.text, "f.jsonl: byte 7"));
    }
    skv_data_tokens_release(&tokens);
    skv_data_writer_release(&w);
    const skv_train_data gone = {.file = "/nowhere/x", .weight = 1};
    skv_data_options options = {
        .tokenizer = f->tokenizer, .sources = &gone, .n_sources = 1, .rows = 1, .row_tokens = 256};
    skv_data *data;
    assert_int_equal(skv_data_open(&options, &data, &err), SKV_IO);
    options.n_sources = 0;
    assert_int_equal(skv_data_open(&options, &data, &err), SKV_RANGE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(documents_are_apart),
        cmocka_unit_test(a_run_goes_on),
        cmocka_unit_test(some_rows_are_fused),
        cmocka_unit_test(tokens_are_learnt_as_told),
        cmocka_unit_test(an_epoch_is_the_whole_file),
        cmocka_unit_test(turns_follow_the_template),
        cmocka_unit_test(texts_are_data),
        cmocka_unit_test(refuses),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
