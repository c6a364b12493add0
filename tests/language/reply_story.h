/* Replies told as text, for the tests of replies: every cut of a text has to tell the same. */
#ifndef SKV_TEST_REPLY_STORY_H
#define SKV_TEST_REPLY_STORY_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <setjmp.h>

#include <cmocka.h>

#include "base/buf.h"
#include "skv/reply.h"

/* Pieces as text: a letter and what it says; equal ones in a row are one. */
typedef struct story {
    skv_buf text;
    int last;
} story;

static void write_piece(void *user, const skv_reply_piece *piece)
{
    static const char letters[] = "TRCIAEB";
    story *s = user;
    const bool joins = piece->kind == SKV_REPLY_TEXT || piece->kind == SKV_REPLY_THOUGHT ||
                       piece->kind == SKV_REPLY_ARGUMENTS;
    if (!joins || s->last != (int)piece->kind) {
        skv_buf_printf(&s->text, "%s%c:", s->text.size > 0 ? "|" : "", letters[piece->kind]);
    }
    s->last = (int)piece->kind;
    skv_buf_append(&s->text, piece->text, piece->n);
    if (piece->kind == SKV_REPLY_CALL_BAD) skv_buf_printf(&s->text, " (%zu)", piece->n_rest);
}

typedef struct how {
    skv_call_syntax calls;
    skv_thought_marks thinks;
    bool in_thought, one_call;
    unsigned types; /* of every parameter; 0: nobody knows */
    skv_reply_frame frame;
} how;

static unsigned types_of(const void *functions, const char *function, size_t n_function,
                         const char *parameter, size_t n_parameter)
{
    (void)function;
    (void)n_function;
    (void)parameter;
    (void)n_parameter;
    return *(const unsigned *)functions;
}

static const char *const functions[] = {"f", "get_weather"};

/* Pushes the text cut at the places where `cut` says so. */
static void tell_story(const how *h, const char *text, bool (*cut)(size_t i, size_t k), size_t k,
                       story *out)
{
    const skv_reply_options options = {.format = {h->calls, h->thinks},
                                       .frame = h->frame,
                                       .in_thought = h->in_thought,
                                       .one_call = h->one_call,
                                       .names = functions,
                                       .n_names = 2,
                                       .types = types_of,
                                       .functions = &h->types,
                                       .tell = write_piece,
                                       .user = out};
    skv_reply *reply = NULL;
    const size_t n = strlen(text);
    out->last = -1;
    skv_buf_init(&out->text, 1 << 16);
    assert_int_equal(skv_reply_create(&options, &reply, NULL), SKV_OK);
    for (size_t from = 0, i = 1; i <= n; i++) {
        if (i < n && !cut(i, k)) continue;
        assert_int_equal(skv_reply_push(reply, text + from, i - from, NULL), SKV_OK);
        from = i;
    }
    assert_int_equal(skv_reply_finish(reply, NULL), SKV_OK);
    skv_buf_byte(&out->text, '\0');
    skv_reply_free(reply);
}

static bool cut_nowhere(size_t i, size_t k)
{
    (void)i;
    (void)k;
    return false;
}

static bool cut_once(size_t i, size_t k)
{
    return i == k;
}

#endif
