/* What GGUF calls things -> what the rest of the program calls them. */
#ifndef SKV_FORMAT_GGUF_NAMES_H
#define SKV_FORMAT_GGUF_NAMES_H

#include "format/config.h"
#include "format/gguf.h"
#include "format/source_names.h"

/** The metadata and the shapes of a GGUF file as a configuration, checked. */
SKV_MUST_CHECK skv_status skv_config_from_gguf(const skv_gguf *g, skv_config *out, skv_error *err);

/** The tensor names of an architecture (skv_config's spelling). */
const skv_name_scheme *skv_gguf_scheme(const char *architecture);

#endif
