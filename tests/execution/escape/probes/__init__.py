"""What is attempted from inside. The modules here need the standard library only: their text is run by a command."""
