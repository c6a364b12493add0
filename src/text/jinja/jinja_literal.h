/* Number and string literals of a template. */
#ifndef SKV_TEXT_JINJA_LITERAL_H
#define SKV_TEXT_JINJA_LITERAL_H

#include "text/jinja/jinja_lex.h"

/** The number at lex->at, which is a digit. */
SKV_MUST_CHECK skv_status skv_jlex_number(skv_jlex *lex, skv_jtoken *token, skv_error *err);
/** The string at lex->at, which is a quote; escapes are resolved as Python does. */
SKV_MUST_CHECK skv_status skv_jlex_string(skv_jlex *lex, skv_jtoken *token, skv_error *err);

#endif
