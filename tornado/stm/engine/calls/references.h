/* Callbacks of weak references. */
#ifndef TORNADO_STM_REFERENCES_H
#define TORNADO_STM_REFERENCES_H

int references_init(void);

#endif
