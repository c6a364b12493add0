/* The marks that formats of replies are made of. */
#ifndef SKV_TEXT_REPLY_FORMAT_H
#define SKV_TEXT_REPLY_FORMAT_H

#define SKV_MARK_THINK "<think>"
#define SKV_MARK_THOUGHT "</think>"
#define SKV_MARK_CALL "<tool_call>"      /* HERMES */
#define SKV_MARK_CALLED "</tool_call>"   /* HERMES */
#define SKV_MARK_PYTHON "<|python_tag|>" /* LLAMA3: may stand before a call */

#endif
