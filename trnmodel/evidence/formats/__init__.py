"""Files of benchmark tools: one module for each tool, which reads its files into rows that `tm.validate` takes."""
