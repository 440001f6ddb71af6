# SPDX-License-Identifier: MIT
"""A package that has nothing but comm, in place of one that is not installed."""
