# SPDX-License-Identifier: MIT
"""What SGLang imports for its custom all-reduce, where sgl_kernel is not installed."""
import sys

import weft_custom_all_reduce

weft_custom_all_reduce.replace(sys.modules[__name__])
