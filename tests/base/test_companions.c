/* Where a folder's tokenizer lies: its own, its base's, that of the model it is the auxiliary of.
 */
#define _XOPEN_SOURCE 700 /* mkdtemp, nftw */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "alloc_fail.h"
#include "base/file.h"
#include "base/mem.h"
#include "format/companions.h"
#include "temp_folder.h"
#include "text/tokenizer.h"

#define VOCAB(words) "{\"model\":{\"type\":\"BPE\",\"vocab\":{" words "},\"merges\":[]}}"
#define CHAT(text) "{\"chat_template\":\"" text "\"}"

static void put(const char *root, const char *name, const char *text)
{
    char path[512];
    (void)snprintf(path, sizeof path, "%s/%s", root, name);
    assert_int_equal(skv_file_write(path, text, strlen(text), NULL), SKV_OK);
}

static void add_folder(const char *root, const char *name)
{
    char path[512];
    (void)snprintf(path, sizeof path, "%s/%s", root, name);
    assert_int_equal(mkdir(path, 0700), 0);
}

/* base, delta beside it, kvp beside it with its auxiliary inside, and broken ones. */
static int make_folders(void **state)
{
    if (temp_folder_make(state, "companions") != 0) return -1;
    const char *root = *state;
    static const char *const folders[] = {"base",  "delta",    "kvp",     "kvp/small", "kvp/other",
                                          "alone", "homeless", "outside", "own"};
    for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++) add_folder(root, folders[i]);
    put(root, "base/tokenizer.json", VOCAB("\"a\":0,\"b\":1"));
    put(root, "base/tokenizer_config.json", CHAT("base's"));
    put(root, "base/generation_config.json", "{\"eos_token_id\":1}");
    put(root, "delta/config.json", "{\"swiftkv_base\":\"base\"}");
    put(root, "delta/generation_config.json", "{\"eos_token_id\":0}");
    put(root, "kvp/config.json",
        "{\"swiftkv_base\":\"base\",\"kv_prediction\":{\"auxiliary\":\"small\"}}");
    put(root, "kvp/small/config.json", "{}");
    put(root, "kvp/other/config.json", "{}");
    put(root, "homeless/config.json", "{\"swiftkv_base\":\"gone\"}");
    put(root, "outside/config.json", "{\"swiftkv_base\":\"../base\"}");
    put(root, "own/config.json", "{\"swiftkv_base\":\"gone\"}");
    put(root, "own/tokenizer.json", VOCAB("\"a\":0,\"b\":1,\"c\":2"));
    return 0;
}

static skv_tokenizer *open_folder(const char *root, const char *name)
{
    char path[512];
    skv_tokenizer *t = NULL;
    skv_error err = {0};
    (void)snprintf(path, sizeof path, "%s/%s", root, name);
    if (skv_tokenizer_open_folder(path, &t, &err) != SKV_OK) fail_msg("%s", err.text);
    return t;
}

static void assert_tokens(const char *root, const char *name, size_t n)
{
    skv_tokenizer *t = open_folder(root, name);
    if (n == 0) {
        assert_null(t);
    } else {
        assert_int_equal(skv_tokenizer_size(t), n);
    }
    skv_tokenizer_free(t);
}

static void a_vocabulary_has_one_home(void **state)
{
    assert_tokens(*state, "base", 2);
    assert_tokens(*state, "delta", 2);
    assert_tokens(*state, "delta/", 2);
    assert_tokens(*state, "kvp", 2);
    assert_tokens(*state, "kvp/small", 2);
    assert_tokens(*state, "kvp/small/", 2);
    assert_tokens(*state, "kvp/other/../small/.", 2);
    assert_tokens(*state, "kvp/other", 0); /* a folder inside that the model does not name */
    assert_tokens(*state, "alone", 0);
    assert_tokens(*state, "own", 3); /* with a vocabulary of its own the base is not looked for */
}

static void what_stands_beside_is_the_folders_own_first(void **state)
{
    skv_tokenizer *t = open_folder(*state, "delta");
    assert_string_equal(skv_tokenizer_chat_template(t), "base's");
    skv_tokenizer_free(t);
    put(*state, "delta/tokenizer_config.json", CHAT("delta's"));
    t = open_folder(*state, "delta");
    assert_string_equal(skv_tokenizer_chat_template(t), "delta's");
    skv_tokenizer_free(t);
    put(*state, "delta/chat_template.jinja", "a file's");
    t = open_folder(*state, "delta");
    assert_string_equal(skv_tokenizer_chat_template(t), "a file's");
    skv_tokenizer_free(t);
}

static void refuse(const char *root, const char *name, skv_status status, const char *says)
{
    char path[512];
    skv_tokenizer *t = NULL;
    skv_error err = {0};
    (void)snprintf(path, sizeof path, "%s/%s", root, name);
    assert_int_equal(skv_tokenizer_open_folder(path, &t, &err), status);
    if (!strstr(err.text, says) || !strstr(err.text, name)) fail_msg("%s", err.text);
}

static void a_base_that_is_not_there_is_named(void **state)
{
    refuse(*state, "homeless", SKV_IO, "swiftkv_base: no folder");
    refuse(*state, "homeless", SKV_IO, "gone");
    refuse(*state, "outside", SKV_FORMAT, "swiftkv_base");
    put(*state, "outside/config.json", "{\"swiftkv_base\":");
    refuse(*state, "outside", SKV_FORMAT, "config.json");
}

static void assert_text(const char *root, const char *name, const char *want)
{
    char path[512], *text;
    size_t n;
    (void)snprintf(path, sizeof path, "%s/%s", root, name);
    assert_int_equal(skv_file_read(path, 1 << 20, &text, &n, NULL), SKV_OK);
    assert_string_equal(text, want);
    skv_free(text);
}

/* A copy needs no base any more. */
static void copies_are_whole(void **state)
{
    char from[512], to[512];
    add_folder(*state, "copy");
    (void)snprintf(from, sizeof from, "%s/kvp/small", (char *)*state);
    (void)snprintf(to, sizeof to, "%s/copy", (char *)*state);
    assert_int_equal(skv_companions_copy(from, to, NULL), SKV_OK);
    assert_text(*state, "copy/tokenizer.json", VOCAB("\"a\":0,\"b\":1"));
    assert_text(*state, "copy/tokenizer_config.json", CHAT("base's"));
    (void)snprintf(from, sizeof from, "%s/delta", (char *)*state);
    assert_int_equal(skv_companions_copy(from, to, NULL), SKV_OK);
    assert_text(*state, "copy/tokenizer_config.json", CHAT("delta's"));
    assert_text(*state, "copy/generation_config.json", "{\"eos_token_id\":0}");
}

static void memory_runs_out(void **state)
{
    char path[512];
    skv_status status = SKV_MEMORY;
    (void)snprintf(path, sizeof path, "%s/kvp/small", (char *)*state);
    for (size_t k = 1; status != SKV_OK; k++) {
        char *home = NULL;
        assert_true(k < 1000);
        alloc_fail_at(k);
        status = skv_tokenizer_home(path, &home, NULL);
        alloc_fail_at(0);
        if (status == SKV_OK) assert_non_null(strstr(home, "/base"));
        skv_free(home);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_vocabulary_has_one_home),
        cmocka_unit_test(what_stands_beside_is_the_folders_own_first),
        cmocka_unit_test(a_base_that_is_not_there_is_named),
        cmocka_unit_test(copies_are_whole),
        cmocka_unit_test(memory_runs_out),
    };
    return cmocka_run_group_tests_name("companions", tests, make_folders, temp_folder_drop);
}
