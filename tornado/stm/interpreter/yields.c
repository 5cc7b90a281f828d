/* Where the interpreter gives the processor away, the threads of a program that runs transactions keep it.
 *
 * PyMutex, with which the interpreter locks objects, dicts and sets, and queues what other threads own, calls sched_yield() forty times before it
 * sleeps, also when the mutex has become free meanwhile (Python/lock.c of CPython 3.14).  On a processor that has nothing else to do this is over in
 * some microseconds.  Beside a busy process each call may last for that one's turn, so a thread loses a twentieth of a second because
 * another one had a mutex for a moment: a server on two threads lost a third of its share of the processors.  Here each call is a short pause
 * instead: whoever has the mutex gives it back meanwhile, or has itself been taken the processor away, and then PyMutex sleeps.  So it is on
 * threads that run no transactions, too: one that waits at a queue (an executor's, aiosqlite's) is woken by who still has the queue's mutex, and
 * the loop waits for what it does.
 *
 * No hook of the interpreter's leads there.  But it calls the function through a table, which the dynamic linker has filled in
 * (System V ABI, AMD64 supplement, 5.2), and the engine puts its own there.  Where there is no such place, all is as without this.
 */
#include "yields.h"

#include "internal/pycore_lock.h"

#include <elf.h>
#include <link.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

/* Forty times as many: some ten microseconds. */
#define PAUSES 10

/* Whoever calls again and again, as a sequence lock does and a program that waits by os.sched_yield(), gives it away in the end: so many
 * calls, each within so many ticks of the processor's counter after the one before. */
#define MANY 100
#define AT_ONCE 20000

static int
pause_or_yield(void)
{
    static _Thread_local struct { uint64_t last; int calls; } row;
    uint64_t now = __builtin_ia32_rdtsc();
    row.calls = now - row.last < AT_ONCE ? row.calls + 1 : 1;
    if (row.calls > MANY)
        return sched_yield();
    for (int i = 0; i < PAUSES; i++)
        __builtin_ia32_pause();
    row.last = __builtin_ia32_rdtsc();
    return 0;
}

/* What the dynamic section of one file in memory says. */
typedef struct {
    ElfW(Addr) base;
    const ElfW(Sym) *symbols;
    const char *names;
    struct { const ElfW(Rela) *first; size_t size; } relocations[2];    /* of calls, of all else; sizes in bytes */
    ElfW(Addr) read_only, read_only_end;        /* what has been so since it was filled in */
} File;

static const void *
address_in(const File *file, ElfW(Addr) address)
{
    return (const void *)(address < file->base ? file->base + address : address);   /* glibc has relocated these, musl has not */
}

static void
read_dynamic(File *file, const ElfW(Dyn) *entry)
{
    for (; entry->d_tag != DT_NULL; entry++) {
        switch (entry->d_tag) {
        case DT_SYMTAB: file->symbols = address_in(file, entry->d_un.d_ptr); break;
        case DT_STRTAB: file->names = address_in(file, entry->d_un.d_ptr); break;
        case DT_JMPREL: file->relocations[0].first = address_in(file, entry->d_un.d_ptr); break;
        case DT_PLTRELSZ: file->relocations[0].size = entry->d_un.d_val; break;
        case DT_RELA: file->relocations[1].first = address_in(file, entry->d_un.d_ptr); break;
        case DT_RELASZ: file->relocations[1].size = entry->d_un.d_val; break;
        }
    }
}

static bool
refers_to(const File *file, const ElfW(Rela) *relocation, const char *name)
{
    unsigned long type = ELF64_R_TYPE(relocation->r_info);
    return (type == R_X86_64_JUMP_SLOT || type == R_X86_64_GLOB_DAT)
        && strcmp(file->names + file->symbols[ELF64_R_SYM(relocation->r_info)].st_name, name) == 0;
}

/* That place of the table is of this function from here on. */
static void
put(const File *file, void *_Atomic *place, void *function)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), at = (uintptr_t)place, first = at & ~(page - 1);
    /* Of whole pages; that with its end has what is written to, too. */
    bool read_only = first >= (file->read_only & ~(page - 1)) && first < (file->read_only_end & ~(page - 1));
    if (read_only && mprotect((void *)first, page, PROT_READ | PROT_WRITE) < 0)
        return;
    atomic_store(place, function);
    if (read_only)
        mprotect((void *)first, page, PROT_READ);
}

/* If this function of the interpreter is in the file, 1: look no further. */
static int
look_at_file(struct dl_phdr_info *info, size_t Py_UNUSED(size), void *inside)
{
    File file = {.base = info->dlpi_addr};
    const ElfW(Dyn) *dynamic = NULL;
    bool is_here = false;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        ElfW(Addr) begin = file.base + part->p_vaddr, end = begin + part->p_memsz;
        if (part->p_type == PT_LOAD)
            is_here |= (ElfW(Addr))inside >= begin && (ElfW(Addr))inside < end;
        else if (part->p_type == PT_DYNAMIC)
            dynamic = (const ElfW(Dyn) *)begin;
        else if (part->p_type == PT_GNU_RELRO) {
            file.read_only = begin;
            file.read_only_end = end;
        }
    }
    if (!is_here || dynamic == NULL)
        return is_here;
    read_dynamic(&file, dynamic);
    for (int which = 0; file.symbols != NULL && file.names != NULL && which < 2; which++) {
        const ElfW(Rela) *relocation = file.relocations[which].first;
        for (size_t i = 0; relocation != NULL && i < file.relocations[which].size / sizeof *relocation; i++) {
            if (refers_to(&file, &relocation[i], "sched_yield"))
                put(&file, (void *_Atomic *)(file.base + relocation[i].r_offset), (void *)pause_or_yield);
        }
    }
    return 1;
}

void
keep_processor(void)
{
    dl_iterate_phdr(look_at_file, (void *)_PyMutex_LockTimed);
}
