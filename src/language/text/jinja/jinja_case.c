/*
 * Case of characters by utf8proc's simple mappings, with the two full mappings that texts really
 * meet: the German sharp s, and the Greek sigma at the end of a word.
 */
#include <utf8proc.h>

#include "base/utf8.h"
#include "text/jinja/jinja_builtin.h"

static void put(skv_buf *buf, uint32_t code)
{
    char bytes[4];
    skv_buf_append(buf, bytes, skv_utf8_encode(code, bytes));
}

static utf8proc_category_t category(uint32_t code)
{
    return utf8proc_category((utf8proc_int32_t)code);
}

void skv_jstr_write_case(skv_buf *buf, uint32_t code, bool upper)
{
    if (upper && code == 0xdf) {
        skv_buf_text(buf, "SS");
    } else if (!upper && code == 0x130) {
        skv_buf_text(buf, "i\xcc\x87");
    } else {
        utf8proc_int32_t c = (utf8proc_int32_t)code;
        put(buf, (uint32_t)(upper ? utf8proc_toupper(c) : utf8proc_tolower(c)));
    }
}

static void put_title(skv_buf *buf, uint32_t code)
{
    if (code == 0xdf)
        skv_buf_text(buf, "Ss");
    else
        put(buf, (uint32_t)utf8proc_totitle((utf8proc_int32_t)code));
}

static bool is_cased(uint32_t code)
{
    utf8proc_category_t c = category(code);
    return c == UTF8PROC_CATEGORY_LU || c == UTF8PROC_CATEGORY_LL || c == UTF8PROC_CATEGORY_LT;
}

/* A capital sigma takes its final lower-case form after a letter and not before one. */
static bool sigma_is_final(const skv_jstr *s, size_t at, bool after_letter)
{
    uint32_t code;
    at += 2;
    if (!after_letter || at >= s->size) return after_letter;
    (void)skv_utf8_decode(s->data + at, s->size - at, &code);
    return !is_cased(code);
}

static void put_case(skv_buf *buf, const skv_jstr *s, size_t at, uint32_t code, bool lower,
                     bool after_letter)
{
    if (lower && code == 0x3a3 && sigma_is_final(s, at, after_letter))
        put(buf, 0x3c2);
    else
        skv_jstr_write_case(buf, code, !lower);
}

skv_jv skv_jstr_change_case(skv_jrun *r, const skv_jcall *call)
{
    const skv_jcase how = (skv_jcase)call->how;
    skv_jout out;
    const skv_jstr *s = call->self.as.s;
    skv_j_out_init(r, &out);
    bool after_letter = false;
    for (size_t at = 0; at < s->size;) {
        uint32_t code;
        size_t step = skv_utf8_decode(s->data + at, s->size - at, &code);
        bool first = how == SKV_JCASE_CAPITAL ? at == 0 : how == SKV_JCASE_TITLE && !after_letter;
        bool lower = how != SKV_JCASE_UPPER;
        if (how == SKV_JCASE_SWAP) lower = category(code) == UTF8PROC_CATEGORY_LU;
        skv_jout_follow(&out, s, at);
        if (first)
            put_title(&out.text, code);
        else if (how == SKV_JCASE_SWAP && !is_cased(code))
            skv_buf_append(&out.text, s->data + at, step);
        else
            put_case(&out.text, s, at, code, lower, after_letter);
        after_letter = is_cased(code);
        at += step;
    }
    (void)skv_j_spend_bytes(r, s->size);
    skv_jv changed = skv_j_from_out(r, &out);
    changed.markup = call->self.markup;
    return changed;
}

static bool is_alpha(uint32_t code)
{
    utf8proc_category_t c = category(code);
    return c >= UTF8PROC_CATEGORY_LU && c <= UTF8PROC_CATEGORY_LO;
}

static bool is_decimal(uint32_t code)
{
    return category(code) == UTF8PROC_CATEGORY_ND;
}

/* Superscripts are digits to Python, though not decimals. */
static bool is_digit(uint32_t code)
{
    return is_decimal(code) || code == 0xb2 || code == 0xb3 || code == 0xb9 || code == 0x2070 ||
           (code >= 0x2074 && code <= 0x2079) || (code >= 0x2080 && code <= 0x2089);
}

bool skv_jstr_is_word(uint32_t code)
{
    utf8proc_category_t c = category(code);
    return is_alpha(code) || (c >= UTF8PROC_CATEGORY_ND && c <= UTF8PROC_CATEGORY_NO);
}

static bool is_ascii(uint32_t code)
{
    return code < 0x80;
}

enum { ALPHA, DIGIT, DECIMAL, WORD, SPACE, ASCII };

static bool (*const char_tests[])(uint32_t code) = {
    [ALPHA] = is_alpha,        [DIGIT] = is_digit,    [DECIMAL] = is_decimal,
    [WORD] = skv_jstr_is_word, [SPACE] = skv_j_space, [ASCII] = is_ascii};

/* True when there is a character and all of them pass. how: an index of the tests. */
static skv_jv str_all(skv_jrun *r, const skv_jcall *call)
{
    const skv_jstr *s = call->self.as.s;
    if (!skv_j_spend_bytes(r, s->size)) return skv_j_undefined();
    for (size_t at = 0; at < s->size;) {
        uint32_t code;
        at += skv_utf8_decode(s->data + at, s->size - at, &code);
        if (!char_tests[call->how](code)) return skv_j_bool(false);
    }
    return skv_j_bool(s->size > 0);
}

static skv_jv str_isascii(skv_jrun *r, const skv_jcall *call)
{
    skv_jv v = str_all(r, call);
    return call->self.as.s->size ? v : skv_j_bool(true);
}

/* All cased characters are of one case, and there is one. */
skv_jv skv_jstr_is_case(skv_jrun *r, const skv_jcall *call)
{
    const bool upper = call->how == SKV_JCASE_UPPER;
    const utf8proc_category_t wanted = upper ? UTF8PROC_CATEGORY_LU : UTF8PROC_CATEGORY_LL;
    bool any = false;
    const skv_jstr *s = call->self.as.s;
    for (size_t at = 0; at < s->size && skv_j_ok(r);) {
        uint32_t code;
        at += skv_utf8_decode(s->data + at, s->size - at, &code);
        if (is_cased(code) && category(code) != wanted) return skv_j_bool(false);
        any = any || is_cased(code);
    }
    return skv_j_bool(any && skv_j_spend_bytes(r, s->size));
}

static skv_jv str_istitle(skv_jrun *r, const skv_jcall *call)
{
    bool any = false, after = false;
    const skv_jstr *s = call->self.as.s;
    for (size_t at = 0; at < s->size;) {
        uint32_t code;
        at += skv_utf8_decode(s->data + at, s->size - at, &code);
        bool capital = is_cased(code) && category(code) != UTF8PROC_CATEGORY_LL;
        if (is_cased(code) && capital == after) return skv_j_bool(false);
        after = is_cased(code);
        any = any || after;
    }
    return skv_j_bool(any && skv_j_spend_bytes(r, s->size));
}

static void pad(skv_jout *out, const skv_jstr *fill, int64_t n)
{
    for (; n > 0 && !out->text.failed; n--) skv_jout_put(out, fill);
}

/* How much of the padding goes to the left: Python's center rounds in its own way. */
static int64_t left_share(int64_t space, int64_t width, unsigned align)
{
    if (align == 'l') return 0;
    if (align == 'r') return space;
    return space / 2 + (space & width & 1);
}

skv_jv skv_jstr_align(skv_jrun *r, const skv_jcall *call)
{
    static const skv_jstr blank = {" ", 1, 1, NULL};
    const skv_jv *arg = call->arg;
    int64_t width;
    skv_jout out;
    if (!skv_j_arg_int(r, call, arg[0], 0, &width)) return skv_j_undefined();
    const skv_jstr *fill = arg[1].kind == SKV_J_STRING ? arg[1].as.s : &blank;
    if ((arg[1].kind != SKV_J_MISSING && arg[1].kind != SKV_J_STRING) || fill->n_chars != 1)
        return skv_j_fail(r, SKV_ARGUMENT, "%s needs one character to fill with",
                          skv_j_what(r, call));
    const skv_jstr *s = call->self.as.s;
    int64_t space = width - (int64_t)s->n_chars;
    if (space <= 0) return call->self;
    int64_t left = left_share(space, width, call->how);
    skv_j_out_init(r, &out);
    if (!skv_j_fits(r, (uint64_t)space, fill->size)) return skv_j_undefined();
    pad(&out, fill, left);
    skv_jout_put(&out, s);
    pad(&out, fill, space - left);
    return skv_j_from_out(r, &out);
}

static skv_jv str_zfill(skv_jrun *r, const skv_jcall *call)
{
    static const skv_jstr zero = {"0", 1, 1, NULL};
    const skv_jv arg = call->arg[0];
    int64_t width;
    skv_jout out;
    if (!skv_j_arg_int(r, call, arg, 0, &width)) return skv_j_undefined();
    const skv_jstr *s = call->self.as.s;
    int64_t space = width - (int64_t)s->n_chars;
    if (space <= 0) return call->self;
    size_t sign = s->size && (s->data[0] == '+' || s->data[0] == '-');
    skv_j_out_init(r, &out);
    if (!skv_j_fits(r, (uint64_t)space, 1)) return skv_j_undefined();
    skv_jout_part(&out, s, 0, sign);
    pad(&out, &zero, space);
    skv_jout_part(&out, s, sign, s->size);
    return skv_j_from_out(r, &out);
}

const skv_jfunction *skv_jcase_method(const skv_jstr *name)
{
    static const skv_jfunction table[] = {
        {"upper", skv_jstr_change_case, SKV_JCASE_UPPER, ""},
        {"lower", skv_jstr_change_case, SKV_JCASE_LOWER, ""},
        {"capitalize", skv_jstr_change_case, SKV_JCASE_CAPITAL, ""},
        {"title", skv_jstr_change_case, SKV_JCASE_TITLE, ""},
        {"swapcase", skv_jstr_change_case, SKV_JCASE_SWAP, ""},
        {"center", skv_jstr_align, 'c', "!- -"},
        {"ljust", skv_jstr_align, 'l', "!- -"},
        {"rjust", skv_jstr_align, 'r', "!- -"},
        {"zfill", str_zfill, 0, "!-"},
        {"isupper", skv_jstr_is_case, SKV_JCASE_UPPER, ""},
        {"islower", skv_jstr_is_case, SKV_JCASE_LOWER, ""},
        {"istitle", str_istitle, 0, ""},
        {"isalpha", str_all, ALPHA, ""},
        {"isdigit", str_all, DIGIT, ""},
        {"isdecimal", str_all, DECIMAL, ""},
        {"isalnum", str_all, WORD, ""},
        {"isspace", str_all, SPACE, ""},
        {"isascii", str_isascii, ASCII, ""},
    };
    return skv_j_lookup(table, sizeof table / sizeof *table, name);
}
