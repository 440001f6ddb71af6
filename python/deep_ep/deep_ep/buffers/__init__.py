# SPDX-License-Identifier: MIT
"""Classes of buffers, in modules of DeepEP's names."""
