/* Large pages, where the kernel lends them: in small ones, nearly each look into a table of megabytes would also miss the
 * processor's cache of addresses. */
#include "pages.h"

#include <sys/mman.h>
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/lsan_interface.h>
#else
#define __lsan_register_root_region(begin, size) ((void)0)
#endif

#define LARGE_PAGE ((size_t)2 << 20)

void *
pages_new(size_t size)
{
    size = (size + LARGE_PAGE - 1) & ~(LARGE_PAGE - 1);
    char *all = mmap(NULL, size + LARGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (all == MAP_FAILED)
        return NULL;
    char *begin = (char *)(((uintptr_t)all + LARGE_PAGE - 1) & ~(uintptr_t)(LARGE_PAGE - 1)), *end = begin + size;
    if (begin > all)
        munmap(all, begin - all);
    if (end < all + size + LARGE_PAGE)
        munmap(end, all + size + LARGE_PAGE - end);
    madvise(begin, size, MADV_HUGEPAGE);        /* it may not: then they are small */
    __lsan_register_root_region(begin, size);   /* what is referred to from there is not lost */
    return begin;
}
