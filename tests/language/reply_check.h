/* What a text is read as, however it is cut. */
#ifndef SKV_TEST_REPLY_CHECK_H
#define SKV_TEST_REPLY_CHECK_H

#include "reply_story.h"

static bool cut_everywhere(size_t i, size_t k)
{
    (void)i;
    (void)k;
    return true;
}

static bool cut_twice(size_t i, size_t k)
{
    return i == k / 1000 || i == k % 1000;
}

static void expect(const how *h, const char *text, bool (*cut)(size_t i, size_t k), size_t k,
                   const char *want)
{
    story got;
    tell_story(h, text, cut, k, &got);
    if (strcmp(got.text.data, want) != 0) {
        fail_msg("\"%s\" cut at %zu: %s, expected %s", text, k, got.text.data, want);
    }
    skv_buf_release(&got.text);
}

static void check(how h, const char *text, const char *want)
{
    const size_t n = strlen(text);
    expect(&h, text, cut_nowhere, 0, want);
    expect(&h, text, cut_everywhere, 0, want);
    for (size_t k = 1; k < n; k++) {
        expect(&h, text, cut_once, k, want);
        for (size_t j = k + 1; n < 100 && j < n; j++) {
            expect(&h, text, cut_twice, 1000 * k + j, want);
        }
    }
}

#endif
