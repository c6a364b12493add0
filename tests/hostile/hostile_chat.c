/* Hostile chat templates with their variables, and histories with calls: see hostile.h. */
#include "hostile_maker.h"

/* ---- variables ---- */

static void put_string(hostile_maker *m, size_t n_bytes)
{
    static const char *const pieces[] = {"word ",   "\\u00e4",     "\\n", "\\\"",
                                         "{{ x }}", "<tool_call>", "a"};
    size_t i = hostile_below(m, 7), n = n_bytes / 4 + 1;
    hostile_put(m, "\"");
    hostile_fill(m, pieces[i], hostile_size(m, 0, n));
    hostile_put(m, "\"");
}

/* Arguments of a call: an object, or the text of one as clients send it. */
static void put_arguments(hostile_maker *m, size_t n_bytes)
{
    size_t n = hostile_size(m, 1, n_bytes / 3 + 1);
    skv_buf inner, *to = m->to;
    skv_buf_init(&inner, HOSTILE_HISTORY_MAX);
    m->to = &inner;
    switch (hostile_below(m, 6)) {
    case 0:
        n = hostile_chance(m, 70) ? hostile_size(m, 1, 50) : n;
        hostile_fill(m, "[", n);
        hostile_fill(m, "]", n);
        break;
    case 1:
        n = hostile_chance(m, 70) ? hostile_size(m, 1, 50) : n / 2;
        hostile_fill(m, "{\"a\":", n);
        hostile_put(m, "1");
        hostile_fill(m, "}", n);
        break;
    case 2:
        hostile_put(m, "[{}");
        hostile_fill(m, ",{}", n);
        hostile_put(m, "]");
        break;
    case 3:
        hostile_put(m, "{\"a\":1");
        for (size_t i = 0; i < n / 3; i++) hostile_put(m, ",\"k%zu\":[]", i);
        hostile_put(m, "}");
        break;
    case 4: hostile_put(m, "{\"city\":\"Bern\",\"days\":3}"); break;
    default: hostile_value(m, hostile_size(m, 0, 60), n_bytes); break;
    }
    m->to = to;
    bool text = hostile_chance(m, 70);
    if (text) {
        hostile_put(m, "\"");
        (void)skv_buf_json_text(to, inner.data ? inner.data : "", inner.size);
        hostile_put(m, "\"");
    } else {
        (void)skv_buf_append(to, inner.data, inner.size);
    }
    skv_buf_release(&inner);
}

static void put_calls(hostile_maker *m, size_t n_bytes)
{
    size_t n = hostile_size(m, 1, hostile_chance(m, 70) ? 8 : n_bytes / 80 + 1);
    size_t n_name = hostile_size(m, 1, hostile_chance(m, 80) ? 64 : n_bytes / n);
    hostile_put(m, "{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[");
    for (size_t i = 0; i < n; i++) {
        hostile_put(m, "%s{\"id\":\"c%zu\",\"type\":\"function\",\"function\":{\"name\":\"",
                    i > 0 ? "," : "", i);
        hostile_name(m, i, n_name);
        hostile_put(m, "\",\"arguments\":");
        put_arguments(m, n_bytes / n);
        hostile_put(m, "}}");
    }
    hostile_put(m, "]}");
}

static void put_messages(hostile_maker *m, size_t n, size_t n_bytes)
{
    size_t end = m->to->size + n_bytes;
    hostile_put(m, "[{\"role\":\"user\",\"content\":\"Hello.\"}");
    for (size_t i = 0; i < n && m->to->size < end; i++) {
        hostile_put(m, ",");
        switch (hostile_below(m, 3)) {
        case 0: put_calls(m, n_bytes / n); break;
        case 1:
            hostile_put(m, "{\"role\":\"tool\",\"tool_call_id\":\"c0\",\"content\":");
            put_string(m, n_bytes / n);
            hostile_put(m, "}");
            break;
        default:
            hostile_put(m, "{\"role\":\"user\",\"content\":");
            put_string(m, n_bytes / n);
            hostile_put(m, "}");
            break;
        }
    }
    hostile_put(m, "]");
}

/* ---- histories ---- */

static void make_history(hostile_maker *m)
{
    if (hostile_chance(m, 20)) m->room = hostile_size(m, 1 << 10, HOSTILE_HISTORY_MAX / 4);
    put_messages(m, hostile_size(m, 1, hostile_chance(m, 50) ? 4 : m->room / 60 + 1), m->room);
}

static void make_one_call(hostile_maker *m)
{
    hostile_put(m, "[{\"role\":\"user\",\"content\":\"x\"},");
    put_calls(m, m->room);
    hostile_put(m, "]");
}

/* One call of arguments like [[[...]]] or {},{},...: what once ended the server or took gigabytes.
 */
static void make_brackets(hostile_maker *m)
{
    size_t n = hostile_chance(m, 30) ? hostile_size(m, 50000, HOSTILE_HISTORY_MAX / 4)
                                     : hostile_size(m, 1, 20000);
    bool deep = hostile_chance(m, 50);
    hostile_put(
        m,
        "[{\"role\":\"user\",\"content\":\"x\"},{\"role\":\"assistant\",\"tool_calls\":[{\"type\":"
        "\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"[{}");
    hostile_fill(m, deep ? ",[" : ",{}", n);
    hostile_fill(m, deep ? "]" : "", n);
    hostile_put(m, "]\"}}]}]");
}

static void make_ordinary_history(hostile_maker *m)
{
    size_t n = hostile_size(m, 1, 30);
    hostile_put(m, "[{\"role\":\"system\",\"content\":\"Be brief.\"}");
    for (size_t i = 0; i < n; i++) {
        hostile_put(m, ",{\"role\":\"user\",\"content\":\"How is the weather in town %zu?\"}", i);
        hostile_put(
            m,
            ",{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"id\":\"c%zu\",\"type\":"
            "\"function\",\"function\":{\"name\":\"weather\",\"arguments\":\"{\\\"town\\\": "
            "%zu}\"}}]}",
            i, i);
        hostile_put(m, ",{\"role\":\"tool\",\"tool_call_id\":\"c%zu\",\"content\":\"sunny\"}", i);
    }
    hostile_put(m, "]");
}

const hostile_shape hostile_history_shapes[] = {{"ordinary", make_ordinary_history, 15},
                                                {"messages", make_history, 45},
                                                {"call", make_one_call, 20},
                                                {"brackets", make_brackets, 20},
                                                {NULL, NULL, 0}};

/* ---- templates ---- */

static void put_vars(hostile_maker *m, size_t n_bytes)
{
    skv_buf *to = m->to;
    m->to = &m->made->more;
    hostile_put(m, "{\"add_generation_prompt\":true,\"n\":%zu,\"s\":", hostile_size(m, 0, 100000));
    put_string(m, hostile_size(m, 1, n_bytes));
    hostile_put(m, ",\"v\":");
    hostile_value(m, hostile_size(m, 0, 40), hostile_size(m, 1, n_bytes));
    hostile_put(m, ",\"messages\":");
    put_messages(m, hostile_size(m, 1, 50), hostile_size(m, 64, n_bytes));
    hostile_put(m, "}");
    m->to = to;
}

static void put_expression(hostile_maker *m, size_t depth)
{
    static const char *const atoms[] = {
        "messages", "s",      "n",        "v",          "'x'",
        "1",        "[1, 2]", "{'a': 1}", "loop.index", "messages[0].content",
        "none",     "1.5",    "m",        "range(9)"};
    static const char *const operators[] = {" + ",  " ~ ",  " * ",  " and ",   " or ",
                                            " in ", " == ", " < ",  " - ",     " // ",
                                            " % ",  " ** ", " is ", " not in "};
    static const char *const filters[] = {"|length",
                                          "|list",
                                          "|join(',')",
                                          "|upper",
                                          "|tojson",
                                          "|string",
                                          "|reverse|list",
                                          "|sort",
                                          "|map('string')|list",
                                          "|first",
                                          "|int",
                                          "|replace('a', 'aaaa')",
                                          "|indent(99)",
                                          "|batch(3)|list",
                                          "|unique|list",
                                          "|trim",
                                          "|default(s)",
                                          "|items|list",
                                          "|select|list",
                                          "[::-1]",
                                          "[1:]",
                                          "|tojson(indent=20)",
                                          ".split('a')",
                                          "|sum(start=[])",
                                          "|center(5000)"};
    if (depth > 0 && !hostile_full(m)) {
        bool paren = hostile_chance(m, 60);
        hostile_put(m, "%s", paren ? "(" : "");
        put_expression(m, depth - 1);
        if (hostile_chance(m, 60)) {
            hostile_put(m, "%s", operators[hostile_below(m, 12)]);
            put_expression(m, hostile_below(m, 2) * (depth / 4));
        }
        hostile_put(m, "%s", paren ? ")" : "");
        if (paren && hostile_chance(m, 50)) hostile_put(m, "%s", filters[hostile_below(m, 25)]);
        return;
    }
    hostile_put(m, "%s", atoms[hostile_below(m, 14)]);
    if (hostile_chance(m, 30)) hostile_put(m, "%s", filters[hostile_below(m, 25)]);
}

/* Statements inside statements. */
static void put_block(hostile_maker *m, size_t depth, size_t n_bytes)
{
    static const char *const ends[] = {"{% endfor %}", "{% endif %}", "{% endset %}",
                                       "{% endmacro %}{{ f() }}", "{% endfilter %}"};
    size_t end = m->to->size + n_bytes, n = hostile_size(m, 1, 5);
    for (size_t i = 0; i < n && m->to->size < end && !hostile_full(m); i++) {
        size_t form = depth > 0 ? hostile_below(m, 6) : 5;
        switch (form) {
        case 0:
            hostile_put(m, "{%% for m in ");
            if (hostile_chance(m, 50)) {
                hostile_put(m, "range(%zu)", hostile_size(m, 0, 100000));
            } else {
                put_expression(m, hostile_size(m, 0, 3));
            }
            hostile_put(m, " %%}");
            break;
        case 1:
            hostile_put(m, "{%% if ");
            put_expression(m, hostile_size(m, 0, 3));
            hostile_put(m, " %%}");
            break;
        case 2: hostile_put(m, "{%% set s %%}"); break;
        case 3: hostile_put(m, "{%% macro f() %%}"); break;
        case 4: hostile_put(m, "{%% filter upper %%}"); break;
        default:
            hostile_put(m, "{{ ");
            put_expression(m, hostile_size(m, 0, 6));
            hostile_put(m, " }}");
            continue;
        }
        put_block(m, depth - 1, n_bytes / n);
        hostile_put(m, "%s", ends[form]);
    }
}

static void make_blocks(hostile_maker *m)
{
    put_vars(m, 4000);
    put_block(m, hostile_size(m, 1, 100), m->room);
}

/* Expressions inside expressions, each kind of bracket and prefix. */
static void make_nest(hostile_maker *m)
{
    static const char *const open[] = {"(",  "[",     "not ",  "-",     "{'a':", "x[",
                                       "f(", "x if ", "1 + (", "1 ** ", "'a' ~ "};
    static const char *const close[] = {")", "]", "", "", "}", "]", ")", " else 1", ")", "", ""};
    size_t i = hostile_below(m, 11),
           n = hostile_chance(m, 50) ? hostile_limit(m, 200) : hostile_size(m, 1, m->room / 12);
    put_vars(m, 400);
    hostile_put(m, "{{ ");
    hostile_fill(m, open[i], n);
    hostile_put(m, "1");
    hostile_fill(m, close[i], n);
    hostile_put(m, " }}");
}

/* The same piece again and again: chains of operators, filters, attributes, branches, statements.
 */
static void make_chain(hostile_maker *m)
{
    static const char *const begin[] = {"{{ 1", "{{ s", "{{ s", "{{ messages", "{% if n %}",
                                        "",     "{{ 1", "{{ [", "{{ f(",       "{{ {"};
    static const char *const pieces[] = {
        " + 1", " ~ s", "|upper", "[0].content", "{% elif n == 3 %}", "{% set a = s %}",
        " < 2", "1, ",  "a, ",    "'a': 1, "};
    static const char *const ends[] = {" }}", " }}", " }}",  " }}",  "{% endif %}",
                                       "",    " }}", "] }}", ") }}", "} }}"};
    size_t i = hostile_below(m, 10), n = hostile_size(m, 1, m->room / 8);
    put_vars(m, 4000);
    hostile_put(m, "%s", begin[i]);
    hostile_fill(m, pieces[i], n);
    hostile_put(m, "%s", ends[i]);
}

static void make_recursion(hostile_maker *m)
{
    static const char *const forms[] = {
        "{% macro f(n) %}{{ [1]|map('upper')|list|join(f(n)) }}{% endmacro %}{{ f(0) }}",
        "{% macro f(n) %}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}",
        "{% macro f(n) %}{% for i in [1] %}{% if true %}{{ g(n) }}{% endif %}{% endfor %}{% "
        "endmacro %}"
        "{% macro g(n) %}{{ ((((((f(n + 1))))))) ~ 'x' }}{% endmacro %}{{ f(0) }}",
        "{% for m in [[[[[[[[1]]]]]]]] recursive %}{{ loop([[m]]) }}{% endfor %}",
        "{% macro f(x) %}{{ caller(x) }}{% endmacro %}{% call(x) f(1) %}{% call(y) f(2) %}{{ y "
        "}}{% endcall %}{% endcall %}",
        "{% macro f(n) %}{{ messages|map(attribute='content')|map('replace', 'a', f(n))|list }}{% "
        "endmacro %}{{ f(0) }}",
        "{% macro f(n) %}{% set x %}{% filter upper %}{{ f(n) }}{% endfilter %}{% endset %}{{ x "
        "}}{% endmacro %}{{ f(0) }}",
        "{% macro f(n) %}{{ f(n) if n else f(1) }}{% endmacro %}{{ {'a': [f(0)]}|tojson }}",
        "{% macro f(n) %}{{ '%s'|format(f(n)) }}{{ f(n) }}{% endmacro %}{{ f(0) }}"};
    put_vars(m, 400);
    hostile_put(m, "%s", forms[hostile_below(m, 9)]);
}

/* Texts and lists that grow. */
static void make_growth(hostile_maker *m)
{
    static const char *const forms[] = {
        "{% set ns = namespace(x=s) %}{% for i in range(N) %}{% set ns.x = ns.x ~ ns.x %}{% endfor "
        "%}{{ ns.x|length }}",
        "{% set ns = namespace(x=[1]) %}{% for i in range(N) %}{% set ns.x = ns.x + ns.x %}{% "
        "endfor %}{{ ns.x|length }}",
        "{{ 'ab' * N }}",
        "{{ [1] * N }}",
        "{{ range(N)|list|tojson }}",
        "{{ ('a' * N)|replace('a', 'b' * N) }}",
        "{{ '%Nd'|format(1) }}",
        "{{ s|indent(N) }}",
        "{{ v|tojson(indent=N) }}",
        "{{ s|center(N) }}",
        "{% for i in range(N) %}{% for j in range(N) %}{% for k in range(N) %}{% endfor %}{% "
        "endfor %}{% endfor %}",
        "{% for i in range(N) %}{{ s }}{% endfor %}",
        "{{ 'a,' * N }}{{ ('a,' * N).split(',')|join('bb') }}",
        "{% set ns = namespace(x={}) %}{% for i in range(N) %}{% set ns.x = dict(ns.x, "
        "**{i|string: ns.x}) %}{% endfor %}{{ ns.x }}",
        "{{ (range(N)|list)|sort(reverse=true)|map('string')|join }}",
        "{{ 9 ** N }}",
        "{{ '{:>N}'.format(1) }}",
        "{{ messages|tojson * N }}",
        "{{ range(N)|batch(2)|list|length }}",
        "{{ ('a' * N)|list|unique|list }}",
        "{{ ('ab' * N) in ('a' * N) }}",
        "{{ ('a' * N ~ 'b').find('a' * N) }}",
        "{{ range(N)|sum }}",
        "{{ (' ' * N ~ 'x')|trim }}",
        "{{ ('a ' * N)|wordcount }}",
        "{{ ('a ' * N)|title }}",
        "{{ [s] * N|string }}",
        "{% for i in range(N) %}{% set s = s ~ 'x' %}{{ s }}{% endfor %}",
        "{{ 'x'.join(['y'] * N) }}"};
    const char *form = forms[hostile_below(m, sizeof forms / sizeof forms[0])];
    size_t n = hostile_size(m, 1, (size_t)1 << (hostile_chance(m, 50) ? 20 : 34));
    put_vars(m, 2000);
    for (; *form != '\0'; form++) {
        if (*form == 'N') {
            hostile_put(m, "%zu", n);
        } else {
            hostile_put(m, "%c", *form);
        }
    }
}

/* A published template's shape over a large conversation. */
static void make_conversation(hostile_maker *m)
{
    put_vars(m, HOSTILE_MORE_MAX / 4);
    hostile_put(m, "{%% for m in messages %%}<|im_start|>{{ m.role }}\n{%% if m.tool_calls %%}"
                   "{%% for c in m.tool_calls %%}<tool_call>{\"name\": \"{{ c.function.name }}\", "
                   "\"arguments\": "
                   "{{ c.function.arguments|tojson }}}</tool_call>{%% endfor %%}{%% else %%}{{ "
                   "m.content|trim }}"
                   "{%% endif %%}<|im_end|>\n{%% endfor %%}");
}

static void make_ordinary(hostile_maker *m)
{
    skv_buf *to = m->to;
    m->to = &m->made->more;
    hostile_put(m, "{\"add_generation_prompt\":true,\"messages\":");
    make_ordinary_history(m);
    hostile_put(m, "}");
    m->to = to;
    hostile_put(m, "{%% for m in messages %%}[{{ m.role }}] {{ m.content }}{%% if m.tool_calls %%}"
                   "{{ m.tool_calls|tojson }}{%% endif %%}\n{%% endfor %%}[assistant]");
}

const hostile_shape hostile_template_shapes[] = {{"ordinary", make_ordinary, 15},
                                                 {"blocks", make_blocks, 25},
                                                 {"nest", make_nest, 10},
                                                 {"chain", make_chain, 15},
                                                 {"recursion", make_recursion, 10},
                                                 {"growth", make_growth, 15},
                                                 {"conversation", make_conversation, 10},
                                                 {NULL, NULL, 0}};
