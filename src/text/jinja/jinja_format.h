/* Python's % formatting, as in 'a %s of %d' % (x, y). */
#ifndef SKV_TEXT_JINJA_FORMAT_H
#define SKV_TEXT_JINJA_FORMAT_H

#include "text/jinja/jinja_run.h"

skv_jv skv_j_percent(skv_jrun *r, skv_jv format, skv_jv values);

#endif
