/*
 * Chat templates at the limit of their nesting, on a thread with a quarter of a connection's stack:
 * each way in which the interpreter or the parser calls itself ends in an error that names the
 * limit, or in a text, and never in the end of the process.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "attack.h"
#include "text/chat_template.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SANITIZED = 1 };
#else
enum { SANITIZED = 0 };
#endif

enum { LEVELS = 400, TEXT_MAX = 1 << 20 };

static size_t deepest; /* of the stacks since it was set to 0 */

/* Templates that nest by calling; each goes on until it is stopped. */
static const char *const calls[] = {
    "{% macro f(n) %}{{ f(n) }}{% endmacro %}{{ f(0) }}",
    "{% macro f(n) %}{{ [1]|map('upper')|list|join(f(n)) }}{% endmacro %}{{ f(0) }}",
    "{% macro f(n) %}{% if n %}{% for x in [1] %}{{ f(n) }}{% endfor %}{% endif %}{% endmacro %}"
    "{{ f(1) }}",
    "{% macro f(n) %}{% for x in [1] if f(n) %}{% endfor %}{% endmacro %}{{ f(1) }}",
    "{% macro f(n) %}{% for x in [] %}{% else %}{{ f(n) }}{% endfor %}{% endmacro %}{{ f(1) }}",
    "{% macro f(n) %}{% set x %}{{ f(n) }}{% endset %}{% endmacro %}{{ f(1) }}",
    "{% macro f(n) %}{% filter upper %}{{ f(n) }}{% endfilter %}{% endmacro %}{{ f(1) }}",
    "{% macro f(n) %}{% with a = f(n) %}{% endwith %}{% endmacro %}{{ f(1) }}",
    "{% macro f(n) %}{% call g() %}{{ f(n) }}{% endcall %}{% endmacro %}"
    "{% macro g() %}{{ caller() }}{% endmacro %}{{ f(1) }}",
    "{% macro f(n, m=f) %}{{ m(n=f(n)) }}{% endmacro %}{{ f(1) }}",
    "{% macro f(n) %}{{ 'x' ~ (1 if f(n) else 2) ~ 'y' }}{% endmacro %}{{ f(1) }}",
    "{% macro f(n) %}{{ {'a': [f(n), 1][0:1]} }}{% endmacro %}{{ f(1) }}",
    "{% macro f(n) %}{{ 1 is divisibleby(f(n)|length) }}{% endmacro %}{{ f(1) }}",
    "{% macro f(n) %}{{ '%s'|format(f(n))|replace('a', f(n))|trim|indent(2) }}{% endmacro %}{{ "
    "f(1) }}",
    "{% macro f(n) %}{{ f(*[f(n)], **{}) }}{% endmacro %}{{ f(1) }}",
    "{% macro f(n) %}{% generation %}{{ f(n) }}{% endgeneration %}{% endmacro %}{{ f(1) }}",
    "{% macro f(n) %}{{ not -(1 + f(n)|int) ** 2 < 3 and f(n) or n }}{% endmacro %}{{ f(1) }}",
    "{% macro f(n) %}{{ strftime_now(f(n)) }}{{ f(n)|tojson }}{% endmacro %}{{ f(1) }}",
};

/* What comes before the middle, again and again, then the middle, and what closes each again. */
typedef struct nest {
    const char *begin, *open, *middle, *close, *end;
} nest;

static const nest nests[] = {
    {"{{ ", "(", "1", ")", " }}"},
    {"{{ ", "[", "1", "]", " }}"},
    {"{{ ", "{1: ", "1", "}", " }}"},
    {"{{ ", "{(1, 2): ", "1", "}", " }}"},
    {"{{ ", "x[", "1", "]", " }}"},
    {"{{ ", "'a'[:", "1", "]|length", " }}"},
    {"{{ ", "f(", "1", ")", " }}"},
    {"{{ ", "range(", "1", ")|length", " }}"},
    {"{{ ", "dict(a=", "1", ")", " }}"},
    {"{{ ", "dict(**", "{}", ")", " }}"},
    {"{{ ", "1|default(", "1", ")", " }}"},
    {"{{ ", "none|default(", "1", ", true)", " }}"},
    {"{{ ", "1 if 1 else ", "1", "", " }}"},
    {"{{ ", "0 if 0 else ", "1", "", " }}"},
    {"{{ ", "(1 if ", "1", " else 2)", " }}"},
    {"{{ ", "not ", "1", "", " }}"},
    {"{{ ", "- ", "1", "", " }}"},
    {"{{ ", "1 - (", "1", ")", " }}"},
    {"{{ ", "'a' ~ (", "1", ")", " }}"},
    {"{{ ", "1 < (", "1", ")", " }}"},
    {"{{ ", "1 is sameas(", "1", ")", " }}"},
    {"{{ ", "1 is sameas [", "1", "]", " }}"},
    {"{{ ", "1 or 2 and not 3 < 4 + 5 ~ 6 * 7 ** -(", "1", ")", " }}"},
    {"{{ ", "0 or 2 and not 3 < 4 * (", "1", ")", " }}"},
    {"{{ 1", "", "", " + 1", " }}"},
    {"{{ 1", "", "", " and 1", " }}"},
    {"{{ 1", "", "", " ~ 1", " }}"},
    {"{{ 1", "", "", "|string", " }}"},
    {"{{ 1", "", "", "|default(1)", " }}"},
    {"{{ x", "", "", ".a", " }}"},
    {"{{ 'a'", "", "", "[0]", " }}"},
    {"{{ 'a'", "", "", "[0:]", " }}"},
    {"{{ 'a'", "", "", ".strip()", " }}"},
    {"{{ 'a'|map(", "'map', ", "'list'", "", ")|list|length }}"},
    {"{{ [[['a']]]|map(", "'map', ", "'list'", "", ")|list|length }}"},
    {"", "{% if 1 %}", "x", "{% endif %}", ""},
    {"", "{% if 0 %}{% else %}", "x", "{% endif %}", ""},
    {"", "{% for x in [1] %}", "x", "{% endfor %}", ""},
    {"", "{% for x in [1] if x %}", "x", "{% endfor %}", ""},
    {"", "{% for x in [] %}{% else %}", "x", "{% endfor %}", ""},
    {"", "{% macro f() %}", "x", "{% endmacro %}{{ f() }}", ""},
    {"", "{% macro f(a=1, b=2) %}", "x", "{% endmacro %}{{ f(b=3) }}", ""},
    {"", "{% set x %}", "x", "{% endset %}", ""},
    {"", "{% set x | upper %}", "x", "{% endset %}{{ x }}", ""},
    {"", "{% with a = 1 %}", "x", "{% endwith %}", ""},
    {"", "{% filter upper %}", "x", "{% endfilter %}", ""},
    {"", "{% generation %}", "x", "{% endgeneration %}", ""},
    {"{% macro g() %}{{ caller() }}{% endmacro %}", "{% call g() %}", "x", "{% endcall %}", ""},
    {"{% if 0 %}", "{% elif 0 %}", "x", "", "{% endif %}"},
    {"{% for ", "(a, ", "b", ")", " in [] %}{% endfor %}"},
    {"{% set ns = namespace(x=(1,)) %}{% for i in range(300) %}{% set ns.x = (1, ns.x) %}"
     "{% endfor %}{% set ",
     "(a, ", "b", ")", " = ns.x %}"},
};

/* Values that nest, and what walks them. */
static const char *const walks[] = {"{{ v }}", "{{ v|tojson }}", "{{ v == w }}", "{{ v < w }}",
                                    "{{ v|string|length }}"};

typedef struct rendering {
    const char *source, *vars;
    size_t n;
    skv_status status;
    skv_error err;
} rendering;

static void render(void *arg)
{
    rendering *x = arg;
    skv_budget budget;
    skv_buf out;
    skv_template *t = NULL;
    skv_limits limits = skv_limits_default();
    limits.max_ns = 0;
    skv_budget_init(&budget, &limits);
    skv_buf_init(&out, TEXT_MAX);
    const skv_template_options options = {.budget = &budget, .now = 1753272000};
    x->status = skv_template_parse(x->source, x->n, "chat template", &budget, &t, &x->err);
    if (x->status == SKV_OK) {
        x->status = skv_template_render(t, x->vars, strlen(x->vars), &options, &out, &x->err);
    }
    skv_template_free(t);
    skv_buf_release(&out);
    assert_true(budget.bytes == 0 && budget.depth == 0);
}

/* Half of the stack; a sanitizer's frames are larger, and for them it is enough to fit. */
static skv_status run(const char *source, size_t n, const char *vars, skv_error *err)
{
    static const size_t most = SANITIZED ? ATTACK_STACK_BYTES : ATTACK_STACK_BYTES / 2;
    rendering x = {.source = source, .n = n, .vars = vars};
    attack_use use;
    attack_run(render, &x, &use);
    if (use.stack_bytes > deepest) deepest = use.stack_bytes;
    if (use.stack_bytes > most) fail_msg("%.200s: %zu bytes of stack", source, use.stack_bytes);
    *err = x.err;
    return x.status;
}

static void test_calls(void **state)
{
    (void)state;
    skv_error err;
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        deepest = 0;
        if (run(calls[i], strlen(calls[i]), "{}", &err) != SKV_RANGE) fail_msg("%s", calls[i]);
        print_message("%6zu bytes of stack: %s\n", deepest, calls[i]);
        assert_string_equal(err.text, "chat template: nested more than 64 levels deep");
    }
}

static skv_status run_nest(const nest *x, size_t levels, bool closed, skv_error *err)
{
    skv_buf text;
    skv_buf_init(&text, TEXT_MAX);
    skv_buf_text(&text, x->begin);
    for (size_t k = 0; k < levels; k++) skv_buf_text(&text, x->open);
    skv_buf_text(&text, x->middle);
    for (size_t k = 0; closed && k < levels; k++) skv_buf_text(&text, x->close);
    if (closed) skv_buf_text(&text, x->end);
    assert_false(text.failed);
    skv_status status = run(text.data, text.size, "{}", err);
    skv_buf_release(&text);
    return status;
}

/* Depths around the limits too, where the stack is deepest. */
static void test_sources(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof nests / sizeof nests[0]; i++) {
        const nest *x = &nests[i];
        size_t n_fit = 0;
        deepest = 0;
        for (size_t levels = 1; levels <= LEVELS; levels += 1 + levels / 8) {
            skv_error err = {0};
            skv_status status = run_nest(x, levels, true, &err);
            if (status == SKV_OK) n_fit = levels;
            if (status != SKV_OK && status != SKV_FORMAT && status != SKV_RANGE &&
                status != SKV_ARGUMENT)
                fail_msg("%s, %zu times: %s", x->open, levels, err.text);
            /* What is not closed is refused: for that, or before for its depth. */
            if (*x->open && run_nest(x, levels, false, &err) != SKV_FORMAT)
                fail_msg("%s, %zu times, not closed: %s", x->open, levels, err.text);
        }
        print_message("%6zu bytes of stack, renders %3zu levels: %s%s%s\n", deepest, n_fit,
                      x->begin, x->open, x->close);
    }
}

static void test_values(void **state)
{
    (void)state;
    skv_buf vars;
    skv_error err;
    skv_buf_init(&vars, TEXT_MAX);
    for (size_t side = 0; side < 2; side++) {
        skv_buf_text(&vars, side == 0 ? "{\"v\":" : ",\"w\":");
        for (size_t k = 0; k < 60; k++) skv_buf_byte(&vars, '[');
        for (size_t k = 0; k < 60; k++) skv_buf_byte(&vars, ']');
    }
    skv_buf_byte(&vars, '}');
    for (size_t i = 0; i < sizeof walks / sizeof walks[0]; i++) {
        skv_status status = run(walks[i], strlen(walks[i]), vars.data, &err);
        if (status != SKV_OK && status != SKV_FORMAT) fail_msg("%s: %s", walks[i], err.text);
    }
    skv_buf_release(&vars);
    /* Values that a template nests itself, beyond any limit. */
    static const char made[] = "{% set ns = namespace(x=()) %}{% for i in range(5000) %}"
                               "{% set ns.x = (ns.x,) %}{% endfor %}";
    static const char *const uses[] = {"{{ ns.x }}",
                                       "{{ ns.x|tojson }}",
                                       "{{ ns.x == (ns.x,) }}",
                                       "{{ ns.x < (ns.x,) }}",
                                       "{{ ns.x is sameas ((ns.x,)) }}",
                                       "{{ (ns.x,) in [ns.x] }}",
                                       "{{ {ns.x: 1} }}"};
    for (size_t i = 0; i < sizeof uses / sizeof uses[0]; i++) {
        skv_buf text;
        skv_buf_init(&text, TEXT_MAX);
        skv_buf_text(&text, made);
        skv_buf_text(&text, uses[i]);
        skv_status status = run(text.data, text.size, "{}", &err);
        if (i < 2) assert_int_equal(status, SKV_RANGE);
        skv_buf_release(&text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_calls), cmocka_unit_test(test_sources),
                                       cmocka_unit_test(test_values)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
