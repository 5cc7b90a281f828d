"""What is known about C functions, into which the engine cannot look.

Here belong the table of what they do to Python objects (`effects`), and the functions that run in the place of some of them
(`twins`), as far as these have nothing to do with input and output; and what nobody calls while the engine looks (`seeds`).
"""
