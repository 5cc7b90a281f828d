/* C functions that wait. */
#ifndef TORNADO_STM_WAITING_H
#define TORNADO_STM_WAITING_H

int waiting_init(void);

#endif
