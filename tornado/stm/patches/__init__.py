"""What is changed in other libraries.

Here belong the replacements of functions of the standard library that every program with transactions gets: what `threading`
says (`threads`), and finalizers; and the smallest changes to other libraries whose own bookkeeping makes each request conflict
with every other (`libraries`).
"""
