/* The text format of Prometheus: see metric_text.h. */
#include "metric_text.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

void metric_head(skv_buf *out, const metric_name *name, const char *type, const char *help)
{
    skv_buf_printf(out, "# HELP %s%s %s\n# TYPE %s%s %s\n", name->prefix, name->name, help,
                   name->prefix, name->name, type);
}

/* "prefix_name{labels,more}"; any of the two may be NULL. */
static void add_name(skv_buf *out, const metric_name *name, const char *suffix, const char *more)
{
    const char *labels = name->labels;
    skv_buf_printf(out, "%s%s%s", name->prefix, name->name, suffix);
    if (!labels && !more) return;
    skv_buf_printf(out, "{%s%s%s}", labels ? labels : "", labels && more ? "," : "",
                   more ? more : "");
}

void metric_sample(skv_buf *out, const metric_name *name, double value)
{
    add_name(out, name, "", NULL);
    skv_buf_printf(out, " %.15g\n", value);
}

void metric_histogram(skv_buf *out, const metric_name *name, const skv_histogram *h)
{
    uint64_t n = 0;
    for (size_t i = 0; i < SKV_HISTOGRAM_BUCKETS; i++) {
        char bound[48];
        const double most = skv_histogram_bounds()[i];
        n += h->counts[i];
        (void)snprintf(bound, sizeof bound, isinf(most) ? "le=\"+Inf\"" : "le=\"%g\"", most);
        add_name(out, name, "_bucket", bound);
        skv_buf_printf(out, " %" PRIu64 "\n", n);
    }
    add_name(out, name, "_sum", NULL);
    skv_buf_printf(out, " %.9g\n", h->sum);
    add_name(out, name, "_count", NULL);
    skv_buf_printf(out, " %" PRIu64 "\n", n);
}

double metric_kv_usage(const skv_scheduler_metrics *m)
{
    const size_t busy = m->kv_pages_used - m->kv_pages_cached;
    return m->kv_pages > 0 ? (double)busy / (double)m->kv_pages : 0;
}
