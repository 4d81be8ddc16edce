"""Tables and sentences that several chapters share."""
