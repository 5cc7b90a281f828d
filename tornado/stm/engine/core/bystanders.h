/* Bystanders: threads that run code of the program's outside of transactions. */
#ifndef TORNADO_STM_BYSTANDERS_H
#define TORNADO_STM_BYSTANDERS_H

#include "base.h"

/* In each thread: is it one? */
extern __attribute__((tls_model("initial-exec"))) _Thread_local bool stm_stands_by;

/* This thread is one from here on: it waits until no attempt has borrowed anything; and it is none from here on. */
void bystander_begins(void);
void bystander_ends(void);

/* It runs transactions for a while, and was a bystander before or not; then that again. */
bool bystander_steps_in(void);
void bystander_steps_back(bool stood_by);

/* An attempt of this thread begins: its frames may borrow, if there is no bystander.  They are over, or it is inevitable: no longer. */
void borrowing_begins(Tx *tx);
void borrowing_ends(Tx *tx);

/* When the engine is made ready, by a thread that runs code of the program: so many others were there before. */
void bystanders_init(int others);

bool there_are_bystanders(void);

/* A test hook: as if this thread alone had been there then; and from here on nobody waits for a while when threads have come or gone. */
void bystanders_forget(void);

void bystanders_in_child(void);

#endif
