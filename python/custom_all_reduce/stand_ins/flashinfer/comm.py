# SPDX-License-Identifier: MIT
"""What FlashInfer's test of vLLM's custom all-reduce imports, where FlashInfer is not installed."""
import sys

import weft_custom_all_reduce

weft_custom_all_reduce.replace(sys.modules[__name__])
