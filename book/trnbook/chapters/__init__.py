"""What a chapter shows: tidy tables for its charts."""
