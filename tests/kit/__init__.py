"""What tests of all packages share."""
