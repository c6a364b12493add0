/* Methods of strings that are marked safe: they escape what comes in and give marked strings. */
#ifndef SKV_TEXT_JINJA_MARKUP_H
#define SKV_TEXT_JINJA_MARKUP_H

#include "text/jinja/jinja_run.h"

/** Calls a string method whose `self` is markup, as markupsafe's class does. */
skv_jv skv_jmarkup_call(skv_jrun *r, const skv_jmethod *method, const skv_jcall *call);

#endif
