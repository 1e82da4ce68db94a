"""Bytes and values of a key: messages, journal, session, events, typed state and their encodings."""
