"""Flags: what the flags of several verbs have in common.

shared.py   flags of several verbs: model, chip, input, backend, the compiler's options
types.py    types of flags: words from a list, numbers, settings KEY=VALUE
"""
