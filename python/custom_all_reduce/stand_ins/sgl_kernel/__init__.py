# SPDX-License-Identifier: MIT
"""A package that has nothing but allreduce, in place of one that is not installed."""
