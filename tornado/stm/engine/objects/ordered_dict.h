/* collections.OrderedDict: locked whole. */
#ifndef TORNADO_STM_ORDERED_DICT_H
#define TORNADO_STM_ORDERED_DICT_H

/* -1 with an exception where this interpreter's are laid out in another way. */
int ordered_dict_init(void);

#endif
