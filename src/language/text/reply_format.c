/* Formats of replies: which one a chat template teaches, and their marks. */
#include <string.h>

#include "skv/reply.h"
#include "text/reply_form.h"

/* ---- from a template ---- */

static bool contains(const char *text, size_t n, const char *part)
{
    const size_t n_part = strlen(part);
    for (const char *at = text; at && n >= n_part;) {
        at = memchr(at, part[0], n - n_part + 1 - (size_t)(at - text));
        if (!at) return false;
        if (memcmp(at, part, n_part) == 0) return true;
        if ((size_t)(++at - text) > n - n_part) return false;
    }
    return false;
}

/* The marks of a form stand in the template, since it writes the calls of earlier turns. */
static bool fits(const skv_reply_form *form, const char *text, size_t n)
{
    for (size_t i = 0; i < sizeof form->signs / sizeof form->signs[0]; i++) {
        if (form->signs[i] && !contains(text, n, form->signs[i])) return false;
    }
    return true;
}

static skv_thought_marks thoughts_of(skv_call_syntax calls, const char *text, size_t n)
{
    if (calls == SKV_CALLS_HARMONY) return SKV_THOUGHTS_HARMONY;
    /* For the later ones a template is rendered: its text alone does not have them. */
    for (int i = SKV_THOUGHTS_APRIEL; i > SKV_THOUGHTS_NONE; i--) {
        const skv_thought_marks marks = (skv_thought_marks)i;
        if (contains(text, n, skv_thought_form_at(marks)->end)) return marks;
    }
    return SKV_THOUGHTS_NONE;
}

const char *skv_thought_marks_end(skv_thought_marks marks)
{
    return skv_thought_form_at(marks)->end;
}

skv_thought_marks skv_reply_thought_marks(const char *text, const char *thought)
{
    const char *at = strstr(text, thought);
    if (!at) return SKV_THOUGHTS_NONE;
    const char *behind = at + strlen(thought);
    while (at > text && (at[-1] == '\n' || at[-1] == ' ')) at--;
    while (*behind == '\n' || *behind == ' ') behind++;
    for (int i = SKV_THOUGHTS_NONE + 1; i < SKV_THOUGHTS_HARMONY; i++) {
        const skv_thought_form *form = skv_thought_form_at((skv_thought_marks)i);
        const size_t n_begin = strlen(form->begin), n_front = (size_t)(at - text);
        if (n_front >= n_begin && memcmp(at - n_begin, form->begin, n_begin) == 0 &&
            strncmp(behind, form->end, strlen(form->end)) == 0) {
            return (skv_thought_marks)i;
        }
    }
    return SKV_THOUGHTS_NONE;
}

skv_reply_format skv_reply_format_of(const char *template_text, size_t n)
{
    skv_reply_format format = {SKV_CALLS_NONE, SKV_THOUGHTS_NONE};
    if (!template_text) return format;
    for (int i = SKV_CALLS_COUNT - 1; i > SKV_CALLS_NONE; i--) {
        const skv_call_syntax calls = (skv_call_syntax)i;
        if (fits(skv_reply_form_at(calls), template_text, n)) format.calls = calls;
    }
    format.thinks = thoughts_of(format.calls, template_text, n);
    return format;
}

size_t skv_reply_marks(skv_reply_format format, const char *marks[SKV_REPLY_MARKS_MAX])
{
    const skv_thought_form *thought = skv_thought_form_at(format.thinks);
    const skv_reply_form *form = skv_reply_form_at(format.calls);
    const bool harmony = skv_reply_form_is_harmony(form);
    static const skv_reply_address none = {.turn_end = NULL};
    const skv_reply_address *address = form && form->address ? form->address : &none;
    const char *const all[SKV_REPLY_MARKS_MAX] = {form ? form->open : NULL,
                                                  form ? form->end : NULL,
                                                  form ? form->begin : NULL,
                                                  form ? form->close : NULL,
                                                  form ? form->separator : NULL,
                                                  thought->begin,
                                                  thought->end,
                                                  form ? form->prefix : NULL,
                                                  form ? form->id : NULL,
                                                  form ? form->key : NULL,
                                                  form ? form->behind_key : NULL,
                                                  form ? form->value_end : NULL,
                                                  harmony ? SKV_HARMONY_CHANNEL : NULL,
                                                  harmony ? SKV_HARMONY_FORMAT : NULL,
                                                  form ? form->front[0] : NULL,
                                                  form ? form->front[1] : NULL,
                                                  address->turn_end,
                                                  address->turn_begin,
                                                  address->end};
    size_t n = 0;
    for (size_t i = 0; i < SKV_REPLY_MARKS_MAX; i++) {
        if (all[i] && all[i][0]) marks[n++] = all[i];
    }
    return n;
}

size_t skv_reply_thought_opening(skv_reply_format format, const char *prompt, size_t n)
{
    const char *mark = skv_thought_form_at(format.thinks)->begin;
    const size_t n_mark = mark ? strlen(mark) : 0, n_prompt = n;
    while (n > 0 && (prompt[n - 1] == '\n' || prompt[n - 1] == ' ')) n--;
    const bool opens = mark && n >= n_mark && memcmp(prompt + n - n_mark, mark, n_mark) == 0;
    return opens ? n_prompt - (n - n_mark) : 0;
}

bool skv_reply_prompt_thinks(skv_reply_format format, const char *prompt, size_t n)
{
    return skv_reply_thought_opening(format, prompt, n) > 0;
}

const char *skv_call_syntax_name(skv_call_syntax syntax)
{
    return syntax == SKV_CALLS_NONE ? "none" : skv_reply_form_at(syntax)->name;
}

bool skv_call_syntax_parse(const char *name, skv_call_syntax *out)
{
    for (int i = 0; i < SKV_CALLS_COUNT; i++) {
        if (strcmp(name, skv_call_syntax_name((skv_call_syntax)i)) != 0) continue;
        *out = (skv_call_syntax)i;
        return true;
    }
    return false;
}
