/* Generated documents: the same for the same index, within their length, held-out words apart. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "data/doc_maker.h"

static skv_documents *open_documents(const char *tasks, size_t tokens, bool held_out)
{
    skv_documents_options options = skv_documents_default();
    options.tasks = tasks;
    options.tokens_min = options.tokens_max = tokens;
    options.held_out = held_out;
    options.seed = 7;
    skv_documents *documents = NULL;
    assert_int_equal(skv_documents_open(&options, &documents, NULL), SKV_OK);
    return documents;
}

static void an_index_is_a_document(void **state)
{
    (void)state;
    skv_documents *a = open_documents(NULL, 300, false), *b = open_documents(NULL, 300, false);
    skv_document first, again;
    skv_document_init(&first);
    skv_document_init(&again);
    for (uint64_t i = 0; i < 200; i++) {
        assert_int_equal(skv_documents_make(a, i, &first, NULL), SKV_OK);
        assert_int_equal(skv_documents_make(b, (i * 77) % 200, &again, NULL), SKV_OK);
        assert_int_equal(skv_documents_make(b, i, &again, NULL), SKV_OK);
        assert_int_equal(first.text.size, again.text.size);
        assert_memory_equal(first.text.data, again.text.data, first.text.size);
        assert_int_equal(first.n_pieces, again.n_pieces);
    }
    skv_document_release(&first);
    skv_document_release(&again);
    skv_documents_close(a);
    skv_documents_close(b);
}

static void lengths_are_kept(void **state)
{
    (void)state;
    static const size_t lengths[] = {128, 512, 4096};
    skv_document doc;
    skv_document_init(&doc);
    for (size_t k = 0; k < 3; k++) {
        skv_documents *documents = open_documents(NULL, lengths[k], false);
        size_t sum = 0;
        for (uint64_t i = 0; i < 60; i++) {
            assert_int_equal(skv_documents_make(documents, i, &doc, NULL), SKV_OK);
            assert_true(doc.n_tokens <= lengths[k]);
            sum += doc.n_tokens;
        }
        assert_true(sum > 60 * lengths[k] * 3 / 4);
        skv_documents_close(documents);
    }
    skv_document_release(&doc);
}

/* The pieces cover the text in order, turns alternate, and every answer is learnt. */
static void pieces_are_in_order(void **state)
{
    (void)state;
    skv_documents *documents = open_documents(NULL, 400, false);
    skv_document doc;
    skv_document_init(&doc);
    for (uint64_t i = 0; i < 300; i++) {
        assert_int_equal(skv_documents_make(documents, i, &doc, NULL), SKV_OK);
        size_t at = 0, n_loss = 0;
        for (size_t p = 0; p < doc.n_pieces; p++) {
            const skv_piece *piece = &doc.pieces[p];
            assert_int_equal(piece->at, at);
            at += piece->n;
            n_loss += piece->loss;
            if (piece->role == SKV_PIECE_TEXT) continue;
            assert_int_equal(piece->role, p % 2 == 0 ? SKV_PIECE_USER : SKV_PIECE_ASSISTANT);
            assert_true(piece->loss == (p % 2 == 1) && piece->n > 0);
            assert_true(piece->depth >= 0 && piece->depth <= 1);
        }
        assert_int_equal(at, doc.text.size);
        assert_true(n_loss > 0);
    }
    skv_document_release(&doc);
    skv_documents_close(documents);
}

/* The word after `mark` in the last question, and whether its hash puts it into the set. */
static void check_keys(const char *task, const char *mark, bool held_out)
{
    skv_documents *documents = open_documents(task, 200, held_out);
    skv_document doc;
    skv_document_init(&doc);
    for (uint64_t i = 0; i < 50; i++) {
        assert_int_equal(skv_documents_make(documents, i, &doc, NULL), SKV_OK);
        const char *at = doc.text.data;
        size_t n_found = 0;
        while ((at = strstr(at, mark))) {
            at += strlen(mark);
            const size_t n = strcspn(at, ":?.,<> \n\"");
            if (n == 0) continue; /* as in the notation of the mark itself */
            assert_true(skv_doc_held_out(at, n) == held_out);
            n_found++;
        }
        assert_true(n_found > 0);
    }
    skv_document_release(&doc);
    skv_documents_close(documents);
}

static void sets_do_not_meet(void **state)
{
    (void)state;
    for (int held_out = 0; held_out < 2; held_out++) {
        check_keys("lines", "line ", held_out);
        check_keys("lines", "CONTENT is <", held_out);
        check_keys("log", "request ", held_out);
        check_keys("table", "\n| ", held_out);
        check_keys("variables", "= ", held_out);
    }
}

static void refuses(void **state)
{
    (void)state;
    static const char *const bad[] = {"linse", "lines=", "lines=x",     "lines=-1",  "lines=0",
                                      "",      "lines,", "lines=1,,kv", "lines=nan", "stage:none"};
    skv_documents *documents = NULL;
    skv_error err;
    skv_documents_options options = skv_documents_default();
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        options.tasks = bad[i];
        assert_int_equal(skv_documents_open(&options, &documents, &err), SKV_ARGUMENT);
        assert_non_null(strstr(err.text, "tasks"));
    }
    options = skv_documents_default();
    options.tokens_min = 8;
    assert_int_equal(skv_documents_open(&options, &documents, &err), SKV_RANGE);
    options = skv_documents_default();
    assert_true(skv_doc_task_asks(SKV_DOC_LINES));
    assert_false(skv_doc_task_asks(SKV_DOC_TOKENS));
    assert_false(skv_doc_task_asks(SKV_DOC_TASK_COUNT));
    options.tasks = "repeat";
    assert_int_equal(skv_documents_open(&options, &documents, &err), SKV_OK);
    char *line;
    size_t n;
    assert_int_equal(skv_documents_json(documents, 0, true, &line, &n, &err), SKV_ARGUMENT);
    skv_documents_close(documents);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_index_is_a_document),
        cmocka_unit_test(lengths_are_kept),
        cmocka_unit_test(pieces_are_in_order),
        cmocka_unit_test(sets_do_not_meet),
        cmocka_unit_test(refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
