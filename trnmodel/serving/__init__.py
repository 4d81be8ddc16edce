"""A server under a rate of requests: a decode step and a prefill from `trnmodel.steps`, and the queue before them.

`trnmodel.serving.server` has it all: `serve` for one server (public as `tm.serve`), `disaggregate` for prefill and
decode on separate chips, and the results `Serving` and `Disaggregated`.
"""
