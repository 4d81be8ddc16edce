"""Where a number comes from: the terms of an answer, and the facts that each of them stands on."""
