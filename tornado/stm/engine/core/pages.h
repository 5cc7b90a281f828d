/* Memory for tables that are used all over, a few bytes at a time. */
#ifndef TORNADO_STM_PAGES_H
#define TORNADO_STM_PAGES_H

#include "base.h"

/* So many zeroed bytes, for as long as the process lives; NULL without memory. */
void *pages_new(size_t size);

#endif
