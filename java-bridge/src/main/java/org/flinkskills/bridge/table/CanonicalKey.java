package org.flinkskills.bridge.table;

import java.util.Arrays;
import java.util.Iterator;
import java.util.StringJoiner;
import java.util.TreeMap;
import java.util.function.Function;
import java.util.stream.Collectors;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.JsonNode;

/**
 * Canonical string of a key: its JSON, as Python's {@code json.dumps(key, ensure_ascii=False,
 * separators=(",", ":"))} writes it, so that a key evaluated here and one evaluated in Python are
 * the same key.
 */
public final class CanonicalKey {
  private static final int FIRST_PRINTABLE = 0x20;

  private CanonicalKey() {}

  public static String of(Object value) {
    if (value == null
        || value instanceof Boolean
        || value instanceof Byte
        || value instanceof Short
        || value instanceof Integer
        || value instanceof Long) {
      return String.valueOf(value);
    }
    if (value instanceof String text) {
      return quote(text);
    }
    throw new IllegalArgumentException(
        String.format(
            "A key of type %s cannot be evaluated without Python. Pass the key as a function.",
            value.getClass().getName()));
  }

  /**
   * Return the string of a key that is JSON, whatever its spaces and the order of its names are.
   */
  public static String ofJson(JsonNode key) {
    if (key.isTextual()) {
      return quote(key.textValue());
    }
    if (key.isArray()) {
      return joined(key.elements(), CanonicalKey::ofJson, "[", "]");
    }
    if (key.isObject()) {
      TreeMap<String, JsonNode> sorted = new TreeMap<>();
      key.fieldNames().forEachRemaining(name -> sorted.put(name, key.get(name)));
      return joined(
          sorted.entrySet().iterator(),
          field -> quote(field.getKey()) + ":" + ofJson(field.getValue()),
          "{",
          "}");
    }
    return key.asText();
  }

  private static <T> String joined(
      Iterator<T> parts, Function<T, String> text, String start, String end) {
    StringJoiner joiner = new StringJoiner(",", start, end);
    parts.forEachRemaining(part -> joiner.add(text.apply(part)));
    return joiner.toString();
  }

  /** Return the string of a key that is a tuple of values. */
  public static String ofList(Object[] values) {
    return Arrays.stream(values).map(CanonicalKey::of).collect(Collectors.joining(",", "[", "]"));
  }

  /** No encoding has lone surrogates, so a key would have the bytes of another character. */
  private static boolean isLoneSurrogate(String text, int at) {
    char c = text.charAt(at);
    if (Character.isHighSurrogate(c)) {
      return at + 1 == text.length() || !Character.isLowSurrogate(text.charAt(at + 1));
    }
    return Character.isLowSurrogate(c)
        && (at == 0 || !Character.isHighSurrogate(text.charAt(at - 1)));
  }

  private static String quote(String text) {
    StringBuilder json = new StringBuilder(text.length() + 2).append('"');
    for (int i = 0; i < text.length(); i++) {
      char c = text.charAt(i);
      switch (c) {
        case '"' -> json.append("\\\"");
        case '\\' -> json.append("\\\\");
        case '\n' -> json.append("\\n");
        case '\r' -> json.append("\\r");
        case '\t' -> json.append("\\t");
        case '\b' -> json.append("\\b");
        case '\f' -> json.append("\\f");
        default -> {
          if (c < FIRST_PRINTABLE || isLoneSurrogate(text, i)) {
            json.append(String.format("\\u%04x", (int) c));
          } else {
            json.append(c);
          }
        }
      }
    }
    return json.append('"').toString();
  }
}
