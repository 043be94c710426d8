"""The order in which LEV's digits see the tokens: files, and how they are made.

A tokenizer numbers its tokens in the order of its merges, so tokens that share
digits have little in common. Here each token gets a rank, and the digits are
those of the rank.
"""
