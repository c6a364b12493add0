/*
 * Hostile JSON schemas, choices and parts: each is compiled, or refused by the limit that it
 * exceeds, within the limits of a request, on a quarter of a connection's stack.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "alloc_fail.h"
#include "attack.h"
#include "grammar/grammar_front.h"

static void fits(const char *name, const char *schema)
{
    skv_buf text = attack_text();
    (void)skv_buf_text(&text, schema);
    attack_fits(name, SKV_GRAMMAR_JSON_SCHEMA, &text);
    skv_buf_release(&text);
}

static void is_said(const char *name, const char *schema, skv_status status, const char *words)
{
    skv_buf text = attack_text();
    skv_error err = {0};
    (void)skv_buf_text(&text, schema);
    assert_int_equal(attack_compile(name, SKV_GRAMMAR_JSON_SCHEMA, &text, &err), status);
    if (!strstr(err.text, words)) fail_msg("%s: %s", name, err.text);
    skv_buf_release(&text);
}

/* Doubles beyond the integers: nothing converts them to one unchecked. */
static void test_numbers(void **state)
{
    (void)state;
    static const char *const values[] = {"233333333333333333333333333333333333333333.5",
                                         "1e308",
                                         "-1e308",
                                         "5e-324",
                                         "9223372036854775807",
                                         "-9223372036854775808",
                                         "9223372036854775808.0",
                                         "18446744073709551616.5",
                                         "4294967296.0",
                                         "1e19",
                                         "-0.0"};
    static const char *const places[] = {"{\"enum\":[\"a\",1,%s,null]}", "{\"const\":%s}",
                                         "{\"const\":{\"a\":[%s]}}",
                                         "{\"type\":[\"integer\",\"string\"],\"enum\":[%s,\"a\"]}"};
    static const char *const counts[] = {"minItems", "maxItems", "minLength", "maxLength"};
    static const char *const bounds[] = {"minimum", "maximum", "exclusiveMinimum",
                                         "exclusiveMaximum"};
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        skv_buf text = attack_text();
        skv_error err = {0};
        for (size_t k = 0; k < sizeof places / sizeof places[0]; k++) {
            const char *hole = strstr(places[k], "%s");
            (void)skv_buf_printf(&text, "%.*s%s%s", (int)(hole - places[k]), places[k], values[i],
                                 hole + 2);
            attack_fits(text.data, SKV_GRAMMAR_JSON_SCHEMA, &text);
            skv_buf_clear(&text);
        }
        for (size_t k = 0; k < 4; k++) {
            (void)skv_buf_printf(&text, "{\"%s\":%s}", counts[k], values[i]);
            skv_status status = attack_compile(text.data, SKV_GRAMMAR_JSON_SCHEMA, &text, &err);
            assert_true(strcmp(values[i], "-0.0") == 0 || status == SKV_RANGE ||
                        status == SKV_FORMAT);
            skv_buf_clear(&text);
            (void)skv_buf_printf(&text, "{\"type\":\"integer\",\"%s\":%s}", bounds[k], values[i]);
            status = attack_compile(text.data, SKV_GRAMMAR_JSON_SCHEMA, &text, &err);
            assert_true(status == SKV_OK || status == SKV_RANGE || status == SKV_FORMAT);
            skv_buf_clear(&text);
        }
        skv_buf_release(&text);
    }
    fits("whole numbers as reals", "{\"minItems\":2.0,\"maxItems\":3e0}");
    is_said("a whole number is an integer", "{\"type\":\"integer\",\"enum\":[2.5]}", SKV_FORMAT,
            "nothing can match");
    is_said("too large for a double", "{\"const\":1e400}", SKV_FORMAT, "overflow");
    is_said("too large for an integer", "{\"const\":9223372036854775808}", SKV_FORMAT, "integer");
    is_said("items beyond the limit", "{\"minItems\":1e300}", SKV_RANGE, "at most 100000");
    is_said("items below zero", "{\"minItems\":-1e300}", SKV_FORMAT, "no whole number");
    is_said("half an item", "{\"minItems\":0.5}", SKV_FORMAT, "no whole number");
    is_said("multiples", "{\"multipleOf\":1e300}", SKV_RANGE, "\"multipleOf\"");
    is_said("bounds", "{\"minimum\":1e300}", SKV_RANGE, "more than 40 digits");
    /* Integers that are one double are still told apart. */
    is_said("bounds that cross",
            "{\"allOf\":[{\"type\":\"integer\",\"minimum\":9007199254740992,"
            "\"maximum\":9007199254740992},{\"minimum\":9007199254740993}]}",
            SKV_FORMAT, "nothing can match");
}

/* ---- tables of attacks ---- */

/* What is expected: compiled, refused by a limit (`words` of the error), or either. */
#define COMPILES NULL
#define EITHER ""

typedef struct attack {
    const char *name;
    skv_grammar_kind kind;
    const char *words;
    const char *text; /* as attack_expand writes it out */
} attack;

#define S SKV_GRAMMAR_JSON_SCHEMA
#define C SKV_GRAMMAR_CHOICE
#define P SKV_GRAMMAR_PARTS

static void run(const char *name, skv_grammar_kind kind, const skv_buf *text, const char *words)
{
    skv_error err = {0};
    if (!words) {
        attack_fits(name, kind, text);
    } else if (*words != '\0') {
        attack_refused(name, kind, text, words);
    } else {
        skv_status status = attack_compile(name, kind, text, &err);
        if (status != SKV_OK && status != SKV_RANGE) fail_msg("%s: %s", name, err.text);
    }
}

static void run_all(const attack *attacks, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        skv_buf text = attack_text();
        attack_expand(&text, attacks[i].text);
        run(attacks[i].name, attacks[i].kind, &text, attacks[i].words);
        skv_buf_release(&text);
    }
}

#define RUN_ALL(attacks) run_all(attacks, sizeof(attacks) / sizeof(attacks)[0])

/* ---- long names, many names ---- */

static void test_names(void **state)
{
    (void)state;
    static const attack attacks[] = {
        {"a property of 2,500 bytes", S, COMPILES,
         "{'properties':{'<2500:a>':{}},'additionalProperties':true}"},
        {"a property of 60,000 bytes", S, COMPILES,
         "{'properties':{'<60000:a>':{}},'additionalProperties':true}"},
        {"a property of 250,000 bytes", S, EITHER,
         "{'properties':{'<250000:a>':{}},'additionalProperties':true}"},
        {"a property of 60,000 other letters", S, COMPILES,
         "{'properties':{'<6000:abcdefghij>':{}},'additionalProperties':true}"},
        {"a property of 20,000 letters of three bytes", S, COMPILES,
         "{'properties':{'<20000:\xe4\xb8\xad>':{}},'additionalProperties':true}"},
        {"a property of 60,000 letters of four bytes", S, EITHER,
         "{'properties':{'<60000:\xf0\x9f\x99\x82>':{}},'additionalProperties':true}"},
        {"a property of 10,000 quotation marks", S, COMPILES,
         "{'properties':{'<10000:\\'>':{}},'additionalProperties':true}"},
        {"a property of 40,000 control characters", S, EITHER,
         "{'properties':{'<40000:\\u001f>':{}},'additionalProperties':true}"},
        {"a property of 60,000 bytes, closed", S, COMPILES, "{'properties':{'<60000:a>':{}}}"},
        {"a schema for others beside a long name", S, COMPILES,
         "{'properties':{'<60000:a>':{}},'additionalProperties':{'type':'object'}}"},
        {"a required name of 60,000 bytes", S, COMPILES, "{'required':['<60000:q>']}"},
        {"four required names of 60,000 bytes", S, COMPILES,
         "{'required':['<60000:q>0','<60000:q>1','<60000:q>2','<60000:q>3']}"},
        {"the same name required 4,000 times", S, COMPILES,
         "{'required':[<4000,:'a long name that is required again'>]}"},
        {"22,000 required names", S, EITHER, "{'required':[<22000,:'n@'>]}"},
        {"20,000 properties", S, EITHER,
         "{'properties':{<20000,:'n@':{}>},'additionalProperties':true}"},
        {"1,000 optional properties", S, COMPILES,
         "{'properties':{<1000,:'n@':{}>},'additionalProperties':true}"},
        {"3,000 properties, all required", S, COMPILES,
         "{'properties':{<3000,:'n@':{}>},'required':[<3000,:'n@'>]}"},
        {"an optional property and 1,500 required ones", S, COMPILES,
         "{'properties':{'o':{}},'required':[<1500,:'n@'>]}"},
        {"700 names, each the beginning of the next", S, COMPILES,
         "{'required':['aa','aaa','aaaa','aaaaa','aaaaaa','aaaaaaa','aaaaaaaa',<700,:'aaaa"
         "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa@'>]}"},
        {"1,000 names that share 100 bytes", S, COMPILES,
         "{'properties':{<1000,:'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
         "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa@':{}>},'additionalProperties':true}"},
        {"a keyword of 60,000 bytes", S, COMPILES, "{'x-<60000:k>':1}"},
        {"20,000 annotations", S, COMPILES, "{<20000,:'x-@':1>}"},
        {"an enum of one text of 200,000 bytes", S, EITHER, "{'enum':['<200000:v>']}"},
        {"an enum of 30,000 numbers", S, EITHER, "{'enum':[<30000,:@>]}"},
        {"an enum of 9,000 texts", S, COMPILES, "{'enum':[<9000,:'v@'>]}"},
        {"a constant of 200,000 quotation marks", S, EITHER, "{'const':'<100000:\\'>'}"},
        {"a constant with a name of 60,000 bytes", S, COMPILES, "{'const':{'<60000:n>':[1]}}"},
        {"a constant of 10,000 members", S, EITHER, "{'const':{<10000,:'m@':1>}}"},
        {"a $ref of 60,000 bytes", S, COMPILES,
         "{'properties':{'a':{'$ref':'#/$defs/<60000:r>'}},'$defs':{'<60000:r>':{}}}"},
        {"a pattern of 60,000 bytes", S, EITHER, "{'pattern':'<60000:p>'}"},
    };
    RUN_ALL(attacks);
    fits("a pattern of names", "{\"patternProperties\":{\"^a{10000}$\":{}}}");
    is_said("patterns of names", "{\"patternProperties\":{\"^a{10000}$\":{},\"b\":{}}}",
            SKV_UNSUPPORTED, "\"patternProperties\"");
}

/* ---- schemas that are joined ---- */

static void test_joined(void **state)
{
    (void)state;
    static const attack attacks[] = {
        {"a list of 22,000 required names and one of 1, 640 times", S, COMPILES,
         "{'$defs':{'a':{'required':[<22000,:'n@'>]},'b':{'required':['z']}},'allOf':[<320"
         ",:{'$ref':'#/$defs/a'},{'$ref':'#/$defs/b'}>]}"},
        {"the same, 640 different ones", S, EITHER,
         "{'$defs':{'a':{'required':[<20000,:'n@'>]}},'allOf':[<640,:{'$ref':'#/$defs/a','"
         "required':['z@']}>]}"},
        {"the same, inside 640 properties", S, EITHER,
         "{'$defs':{'a':{'required':[<16000,:'n@'>]}},'properties':{<640,:'p@':{'$ref':'#/"
         "$defs/a','required':['z']}>}}"},
        {"15,000 properties and 1,990 times {}", S, EITHER,
         "{'allOf':[{'properties':{<15000,:'p@':{}>}},<1990,:{}>]}"},
        {"1,000 properties and 60,000 times {}", S, COMPILES,
         "{'allOf':[{'properties':{<1000,:'p@':{}>}},<60000,:{}>]}"},
        {"1,000 properties and 30,000 times true", S, COMPILES,
         "{'allOf':[{'properties':{<1000,:'p@':{}>}},<30000,:true>]}"},
        {"10,000 schemas of one property each", S, EITHER,
         "{'allOf':[<8000,:{'properties':{'p@':{}}}>]}"},
        {"5,000 schemas of the same property", S, COMPILES,
         "{'allOf':[<5000,:{'properties':{'p':{'maxLength':1@}}}>]}"},
        {"3,000 schemas that say something of all other properties", S, EITHER,
         "{'allOf':[{'properties':{<5000,:'p@':{}>}},<3000,:{'additionalProperties':{'minL"
         "ength':@}}>]}"},
        {"properties against all others, 500 by 500", S, EITHER,
         "{'allOf':[<500,:{'properties':{'p@':{'minLength':1}},'additionalProperties':{'ma"
         "xLength':9}}>]}"},
        {"200 choices, each joined with 3,000 properties", S, EITHER,
         "{'properties':{<3000,:'p@':{}>},'anyOf':[<200,:{'properties':{'q@':{}}}>]}"},
        {"2,000 choices, each joined with 22,000 required names", S, EITHER,
         "{'required':[<18000,:'n@'>],'anyOf':[<2000,:{'required':['q@']}>]}"},
        {"choices in products: 60 anyOf by 60 oneOf", S, EITHER,
         "{'anyOf':[<60,:{'properties':{'a@':{'type':'null'}}}>],'oneOf':[<60,:{'propertie"
         "s':{'b@':{'type':'null'}}}>]}"},
        {"choices in products: 1,000 anyOf by 1,000 oneOf", S, EITHER,
         "{'anyOf':[<1000,:{'minLength':@}>],'oneOf':[<1000,:{'maxLength':@}>]}"},
        {"a property that grows with every level", S, "nested more than 64",
         "{'properties':{'x':{'$ref':'#','properties':{'x':{'type':'object'}}}}}"},
        {"two properties that grow with every level", S, EITHER,
         "{'properties':{'x':{'$ref':'#','properties':{'x':{'type':'object'}}},'y':{'$ref'"
         ":'#','properties':{'y':{'type':'object'}}}}}"},
        {"all of itself", S, EITHER, "{'type':'object','allOf':[{'$ref':'#'},{'$ref':'#'}]}"},
        {"30 lists in lists of 40", S, COMPILES, "<30:{'allOf':[><2000,:{'minLength':@}><30:]}>"},
    };
    RUN_ALL(attacks);
    is_said("any of itself",
            "{\"type\":\"object\",\"anyOf\":[{\"$ref\":\"#\"},{\"type\":\"null\"}]}", SKV_FORMAT,
            "leads back to itself");
    is_said("a $ref to itself beside others",
            "{\"$ref\":\"#/$defs/a\",\"type\":\"string\",\"$defs\":{\"a\":{\"$ref\":\"#/$defs/b\","
            "\"minLength\":1},\"b\":{\"$ref\":\"#/$defs/a\",\"minLength\":2}}}",
            SKV_FORMAT, "leads back to itself");
}

static void test_joined_values(void **state)
{
    (void)state;
    static const attack attacks[] = {
        {"60 references to enums of 9,000", S, COMPILES,
         "{'$defs':{'a':{'enum':[<9000,:'v@'>]},'b':{'enum':[<9000,:'v@'>]}},'allOf':[<30,"
         ":{'$ref':'#/$defs/a'},{'$ref':'#/$defs/b'}>]}"},
        {"the same in 60 properties", S, EITHER,
         "{'$defs':{'a':{'enum':[<9000,:'v@'>]},'b':{'enum':[<9000,:'v@'>]}},'properties':"
         "{<60,:'p@':{'allOf':[{'$ref':'#/$defs/a'},{'$ref':'#/$defs/b'}]}>}}"},
        {"enums of 9,000 that share nothing", S, COMPILES,
         "{'anyOf':[{'type':'null'},{'allOf':[{'enum':[<9000,:@>]},{'enum':[<9000,:'v@'>]}]}]}"},
        {"enums of 60,000 equal values", S, COMPILES,
         "{'allOf':[{'enum':[<60000,:1>]},{'enum':[<60000,:1>]}]}"},
        {"enums of objects", S, COMPILES,
         "{'allOf':[{'enum':[<3000,:{'a':@,'b':[@]}>]},{'enum':[<3000,:{'b':[@],'a':@}>]}]"
         "}"},
        {"a constant beside an enum of large values", S, COMPILES,
         "{'const':[<1000,:1>],'enum':[<6000,:[1,1,1,1,1,1,1,1,1,@]>,[<1000,:1>]]}"},
        {"2,000 bounds", S, COMPILES, "{'allOf':[<2000,:{'type':'integer','minimum':@}>]}"},
        {"4,000 lists of types", S, COMPILES,
         "{'allOf':[<4000,:{'type':['string','null','integer','number']}>]}"},
        {"items of 5,000 schemas", S, COMPILES, "{'allOf':[<5000,:{'items':{'minItems':@}}>]}"},
        {"equal choices written 1,000 times", S, EITHER,
         "{'allOf':[<2000,:{'anyOf':[{'type':'string','maxLength':3},{'type':'null'}]}>]}"},
    };
    RUN_ALL(attacks);
}

/* ---- references ---- */

static void test_references(void **state)
{
    (void)state;
    static const attack attacks[] = {
        {"1,000 properties that are one $ref", S, COMPILES,
         "{'$defs':{'a':{'type':'object'}},'properties':{<1000,:'p@':{'$ref':'#/$defs/a'}>"
         "}}"},
        {"2,500 $refs with a keyword beside each", S, EITHER,
         "{'$defs':{'a':{'type':'string'}},'properties':{<2500,:'p@':{'$ref':'#/$defs/a','"
         "maxLength':3}>}}"},
        {"30,000 rules and more", S, EITHER,
         "{'$defs':{<6000,:'@':{}>},'anyOf':[<6000,:{'$ref':'#/$defs/@'}>]}"},
        {"cycles of 3,000 schemas", S, COMPILES,
         "{'$ref':'#/$defs/0','$defs':{<3000,:'@':{'properties':{'a':{'$ref':'#'},'b':{'$r"
         "ef':'#/$defs/0'}}}>}}"},
    };
    RUN_ALL(attacks);
    is_said("itself", "{\"$ref\":\"#\"}", SKV_FORMAT, "nothing can match");
    is_said("each other",
            "{\"$ref\":\"#/$defs/a\",\"$defs\":{\"a\":{\"$ref\":\"#/$defs/b\"},"
            "\"b\":{\"$ref\":\"#/$defs/a\"}}}",
            SKV_FORMAT, "nothing can match");
    /* A $ref to a schema that has keywords beside its own $ref. */
    fits("a $ref to a $ref",
         "{\"$ref\":\"#/$defs/a\",\"$defs\":{\"a\":{\"$ref\":\"#/$defs/b\",\"maxLength\":3},"
         "\"b\":{\"type\":\"string\"}}}");
}

/* A step of a $ref, which is copied to be read, counts in the budget as all else does. */
static void test_a_long_reference_counts(void **state)
{
    (void)state;
    const skv_limits limits = {.work = 50000000, .bytes = 40000, .depth = 64};
    skv_buf text = attack_text();
    skv_budget budget;
    skv_exprs exprs;
    skv_error err = {0};
    attack_expand(&text, "{'$defs':{'<60000:a>':{}},'$ref':'#/$defs/<60000:a>'}");
    json_t *json = json_loadb(text.data, text.size, 0, NULL);
    assert_non_null(json);
    skv_budget_init(&budget, &limits);
    skv_exprs_init(&exprs, &budget);
    assert_int_equal(skv_schema_read_json(&exprs, json, false, &err), SKV_RANGE);
    if (!strstr(err.text, "40000 bytes of memory")) fail_msg("%s", err.text);
    skv_exprs_release(&exprs);
    assert_int_equal(budget.bytes, 0);
    json_decref(json);
    skv_buf_release(&text);
}

/* n definitions, each as `link`, with a $ref to the next one for '@'; the last one is `end`. */
static void chain(const char *name, size_t n, const char *link, const char *end, const char *words)
{
    skv_buf text = attack_text(), unit = attack_text();
    attack_expand(&text, "{'$ref':'#/$defs/0','$defs':{");
    for (size_t i = 0; i < n; i++) {
        skv_buf_clear(&unit);
        (void)skv_buf_printf(&unit, "'%zu':", i);
        for (const char *c = link; *c != '\0'; c++) {
            if (*c == '@') {
                (void)skv_buf_printf(&unit, "{'$ref':'#/$defs/%zu'}", i + 1);
            } else {
                (void)skv_buf_byte(&unit, *c);
            }
        }
        (void)skv_buf_byte(&unit, ',');
        attack_expand(&text, unit.data);
    }
    (void)skv_buf_printf(&text, "\"%zu\":", n);
    attack_expand(&text, end);
    (void)skv_buf_text(&text, "}}");
    run(name, S, &text, words);
    skv_buf_release(&unit);
    skv_buf_release(&text);
}

static void test_chains(void **state)
{
    (void)state;
    chain("6,000 $refs, each to the next", 6000, "@", "{}", COMPILES);
    chain("4,000 $refs through properties", 4000, "{'properties':{'a':@}}", "{}", EITHER);
    chain("4,000 $refs through items", 4000, "{'items':@}", "{}", EITHER);
    chain("3,000 $refs through others", 3000, "{'additionalProperties':@}", "{}", EITHER);
    chain("4,000 $refs through anyOf", 4000, "{'anyOf':[@,{'type':'null'}]}", "{}", EITHER);
    chain("4,000 $refs through allOf", 4000, "{'allOf':[@,{'minLength':1}]}", "{}", COMPILES);
    chain("4,000 $refs through nested allOf", 4000, "{'allOf':[{'allOf':[@]}]}", "{}", COMPILES);
    chain("properties that double, 60 times", 60, "{'properties':{'a':@,'b':@}}", "{}", COMPILES);
    chain("choices that double, 60 times", 60, "{'anyOf':[@,@]}", "{'type':'null'}", COMPILES);
    chain("joins that double, 60 times", 60, "{'allOf':[@,@]}", "{'minLength':1}", COMPILES);
    chain("joins in properties that double, 60 times", 60,
          "{'properties':{'a':{'allOf':[@]},'b':{'allOf':[@]}}}", "{'minLength':1}", EITHER);
    chain("joins in items and others that double, 60 times", 60,
          "{'items':{'allOf':[@,{'minLength':1}]},'additionalProperties':{'allOf':[@,"
          "{'minLength':1}]}}",
          "{}", EITHER);
    chain("joins in choices that double, 60 times", 60, "{'anyOf':[{'allOf':[@]},{'allOf':[@]}]}",
          "{'minLength':1}", EITHER);
    chain("joins of choices that double, 60 times", 60, "{'maxLength':9,'anyOf':[@,@]}",
          "{'minLength':1}", EITHER);
    chain("one joined choice in another, 60 times", 60, "{'maxLength':9,'anyOf':[@]}",
          "{'minLength':1}", COMPILES);
    /* The deepest choices, and below them what has levels of its own. */
    chain("60 joined choices and a bounded number", 60, "{'maxLength':9,'anyOf':[@]}",
          "{'type':'number','minimum':-1.2345678901234567e-20,'maximum':1.7e39}", COMPILES);
    chain("60 joined choices and a pattern", 60, "{'title':'','anyOf':[@]}",
          "{'pattern':'<20:(>a|b<20:)c>'}", COMPILES);
    chain("60 joined choices and a constant", 60, "{'nullable':false,'anyOf':[@]}",
          "{'const':<30:[>1<30:]>}", "nested more than 64");
    chain("60 joined choices and two enums", 60, "{'nullable':false,'anyOf':[@]}",
          "{'allOf':[{'enum':[<30:[>1<30:]>]},{'enum':[<30:[>1<30:]>]}]}", "nested more than 64");
    chain("one joined choice in another, 70 times", 70, "{'maxLength':9,'anyOf':[@]}",
          "{'minLength':1}", "nested more than 64");
    chain("one joined choice in another, 4,000 times", 4000, "{'maxLength':9,'oneOf':[@]}",
          "{'minLength':1}", "nested more than 64");
    chain("lists of one item in another, 4,000 times", 3000, "{'prefixItems':[@,@],'items':@}",
          "{}", EITHER);
}

/* ---- nesting and counts ---- */

static void test_nesting(void **state)
{
    (void)state;
    static const attack attacks[] = {
        {"32 properties in one another", S, COMPILES, "<31:{'properties':{'a':>{}<31:}}>"},
        {"33 properties in one another", S, "nested more than 64",
         "<33:{'properties':{'a':>{}<33:}}>"},
        {"40,000 properties in one another", S, "nested more than 64",
         "<6000:{'properties':{'a':>{}<6000:}}>"},
        {"63 items in one another", S, COMPILES, "<62:{'items':>{}<62:}>"},
        {"20,000 items in one another", S, "nested more than 64", "<20000:{'items':>{}<20000:}>"},
        {"31 anyOf in one another", S, COMPILES, "<31:{'anyOf':[>{}<31:]}>"},
        {"31 anyOf in one another, each with a keyword", S, COMPILES,
         "<31:{'minLength':@,'anyOf':[>{}<31:]}>"},
        {"31 oneOf in one another, two of each", S, COMPILES,
         "<31:{'oneOf':[{'type':'null'},>{}<31:]}>"},
        {"31 allOf in one another", S, COMPILES, "<31:{'allOf':[>{}<31:]}>"},
        {"a constant 63 deep", S, COMPILES, "{'const':<63:[><63:]>}"},
        {"a constant of objects 63 deep", S, COMPILES, "{'const':<63:{'a':>1<63:}>}"},
        {"an enum 62 deep, joined with itself", S, COMPILES,
         "{'allOf':[{'enum':[<60:[><60:]>]},{'enum':[<60:[><60:]>]}]}"},
        {"a constant 60,000 deep", S, "nested more than 64", "{'const':<60000:[><60000:]>}"},
        {"brackets without an end", S, "nested more than 64", "<100000:[>"},
        {"400 items by position", S, COMPILES, "{'prefixItems':[<400,:{}>]}"},
        {"60,000 items by position", S, EITHER, "{'prefixItems':[<60000,:{}>]}"},
        {"100,000 items", S, EITHER,
         "{'minItems':100000,'maxItems':100000,'items':{'type':'null'}}"},
        {"100,000 items of 100,000 items", S, EITHER,
         "{'minItems':100000,'items':{'minItems':100000,'items':{'type':'object'}}}"},
        {"items of 100,000, six levels", S, EITHER,
         "<6:{'maxItems':100000,'items':>{'type':'null'}<6:}>"},
        {"texts of 100,000", S, EITHER, "{'minLength':99999,'maxLength':100000}"},
        {"100 texts of 100,000", S, EITHER, "{'properties':{<100,:'p@':{'maxLength':100000}>}}"},
        {"1,000 items by position and 100,000 others", S, EITHER,
         "{'maxItems':100000,'items':{'maxLength':100000},'prefixItems':[<1000,:{}>]}"},
        {"500 bounded numbers", S, EITHER,
         "{'anyOf':[<500,:{'type':'number','minimum':-1@.123456789,'maximum':9@.987654321}"
         ">]}"},
        {"bounds of 40 digits", S, COMPILES,
         "{'type':'number','minimum':-1.2345678901234567e-20,'maximum':1.7e39}"},
        {"20,000 empty schemas in a choice", S, COMPILES, "{'anyOf':[<20000,:{}>]}"},
        {"20,000 objects in a choice", S, EITHER, "{'anyOf':[<13000,:{'properties':{}}>]}"},
        {"1,000 patterns", S, EITHER, "{'anyOf':[<1000,:{'pattern':'^(a|b){0,@}$'}>]}"},
        {"a pattern that repeats repetitions", S, EITHER,
         "{'pattern':'^((((a{100}){100}){100}){100}){100}$'}"},
        {"a pattern of 20,000 groups", S, EITHER, "{'pattern':'<20000:(><20000:)>'}"},
        {"1,000 e-mail addresses", S, EITHER, "{'properties':{<1000,:'p@':{'format':'email'}>}}"},
    };
    RUN_ALL(attacks);
}

/* ---- choices and parts ---- */

static void test_choices_and_parts(void **state)
{
    (void)state;
    static const attack attacks[] = {
        {"60,000 choices", C, EITHER, "[<30000,:'@'>]"},
        {"60,000 equal choices", C, COMPILES, "[<60000,:''>]"},
        {"a choice of 250,000 bytes", C, COMPILES, "['<250000:c>']"},
        {"choices in one array after the other", C, "nested more than 64", "<1000:[><1000:]>"},
        {"20,000 texts", P, COMPILES, "[<20000,:'t@'>]"},
        {"60 lists in one another", P, COMPILES, "<60:[><60:]>"},
        {"60,000 lists in one another", P, "nested more than 64", "<60000:[><60000:]>"},
        {"30 choices in one another", P, COMPILES, "<30:{'any':['a',>'b'<30:]}>"},
        {"1,000 schemas", P, EITHER, "[<1000,:{'schema':{'type':'object'}}>]"},
        {"6,000 schemas", P, EITHER, "{'any':[<6000,:{'schema':{'minLength':@}}>]}"},
        {"schemas 30 deep in lists 30 deep", P, EITHER,
         "<30:[>{'schema':<30:{'items':>{}<31:}><30:]>"},
        {"repetitions in one another", P, EITHER, "<30:{'min':1000,'max':1000,'repeat':>'a'<30:}>"},
        {"repetitions of schemas", P, EITHER,
         "<3:{'min':1000,'max':1000,'repeat':>{'schema':{'maxItems':100000,'items':{}}}<3:"
         "}>"},
        {"3,000 marks", P, EITHER, "[<3000,:{'until':'<abcdefghijklmnopqrstuvw@'}>]"},
        {"5,000 texts unlike another", P, EITHER, "{'any':[<5000,:{'unlike':'abcdefghij@'}>]}"},
        {"a part with a name of 60,000 bytes", P, COMPILES,
         "[{'schema':{'properties':{'<60000:a>':{}},'additionalProperties':true}}]"},
        {"parts with joined lists of names", P, COMPILES,
         "[{'schema':{'$defs':{'a':{'required':[<20000,:'n@'>]},'b':{'required':['z']}},'a"
         "llOf':[<320,:{'$ref':'#/$defs/a'},{'$ref':'#/$defs/b'}>]}}]"},
    };
    RUN_ALL(attacks);
    skv_buf text = attack_text(); /* each the beginning of the next */
    (void)skv_buf_byte(&text, '[');
    for (size_t i = 1; i < 700; i++) {
        (void)skv_buf_text(&text, i > 1 ? ",\"" : "\"");
        attack_repeat(&text, "c", "", i);
        (void)skv_buf_byte(&text, '"');
    }
    (void)skv_buf_byte(&text, ']');
    run("700 choices, each the beginning of the next", C, &text, EITHER);
    skv_buf_release(&text);
}

/* ---- memory ---- */

/* Compiles the text of `arg`; whatever fails, the budget is empty after it. */
static bool attempt(void *arg)
{
    const skv_buf *text = arg;
    skv_grammar *grammar = NULL;
    skv_budget budget;
    skv_error err = {0};
    skv_budget_init(&budget, NULL);
    skv_status status = skv_grammar_compile(text->data[0] == '[' ? P : S, text->data, text->size,
                                            &budget, &grammar, &err);
    if (status != SKV_OK) assert_int_equal(budget.bytes, 0);
    if (status != SKV_OK && err.text[0] == '\0') fail_msg("no error: %s", text->data);
    skv_grammar_free(grammar);
    return status == SKV_OK;
}

/* Joined schemas of every kind, lists and names, with each allocation failing once. */
static void test_out_of_memory(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "{'allOf':[{'properties':{'a':{'minLength':1}},'required':['a','b'],"
        "'additionalProperties':{'maxLength':9}},{'properties':{'a':{'maxLength':3},'c':{}},"
        "'required':['c'],'additionalProperties':{'type':'string'}},{'$ref':'#/$defs/x'}],"
        "'$defs':{'x':{'type':['object','null'],'properties':{'d':{'$ref':'#'}}}}}",
        "{'anyOf':[{'enum':[1,[2],{'a':null}]},{'const':1}],'enum':[{'a':null},[2],1,1.5]}",
        "{'type':['string','integer'],'oneOf':[{'type':'string','pattern':'^a|b$'},"
        "{'type':'number','minimum':3}]}",
        "{'items':{'$ref':'#/$defs/x','minItems':1},'allOf':[{'items':{'maxItems':3}}],"
        "'$defs':{'x':{'prefixItems':[{'const':'\\n'}],'items':false}}}",
        "[{'schema':{'required':['a','ab','b'],'additionalProperties':true}},"
        "{'any':['x',{'until':'{y'}]},{'repeat':'z','min':0,'max':3}]"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        skv_buf text = attack_text();
        attack_expand(&text, texts[i]);
        json_set_alloc_funcs(alloc_fail_malloc, alloc_fail_free);
        size_t n = alloc_fail_each(attempt, &text, true);
        json_set_alloc_funcs(malloc, free);
        if (n == SIZE_MAX || n < 50) fail_msg("%s: %zu allocations", texts[i], n);
        skv_buf_release(&text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_joined),
        cmocka_unit_test(test_joined_values),
        cmocka_unit_test(test_references),
        cmocka_unit_test(test_a_long_reference_counts),
        cmocka_unit_test(test_chains),
        cmocka_unit_test(test_nesting),
        cmocka_unit_test(test_choices_and_parts),
        cmocka_unit_test(test_out_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
