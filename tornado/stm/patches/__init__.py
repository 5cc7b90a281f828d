"""What is changed in other libraries: the table of all changes, and what makes them (`table`).

Here belong also the replacements that are for programs of any kind: what the standard library says of threads (`threads`),
and finalizers; and the smallest changes to other libraries whose own bookkeeping makes each request conflict with every
other (`libraries`).  The other replacements are where they belong, as those of sockets.
"""
