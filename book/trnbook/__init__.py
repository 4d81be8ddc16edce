"""The book: charts, chapters, reports and the pages that Sphinx builds of them."""
