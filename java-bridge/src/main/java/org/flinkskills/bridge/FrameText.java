package org.flinkskills.bridge;

import java.io.ByteArrayOutputStream;
import java.nio.charset.StandardCharsets;

/** Strings in frames. */
final class FrameText {
  private FrameText() {}

  /**
   * Encode a string as UTF-8. A lone surrogate becomes three bytes, as with Python's
   * "surrogatepass".
   */
  static byte[] encode(String text) {
    return hasSurrogates(text) ? encodeCodePoints(text) : text.getBytes(StandardCharsets.UTF_8);
  }

  private static boolean hasSurrogates(String text) {
    for (int i = 0; i < text.length(); i++) {
      if (Character.isSurrogate(text.charAt(i))) {
        return true;
      }
    }
    return false;
  }

  /** Java itself encodes a lone surrogate as "?", so that two keys would become equal. */
  private static byte[] encodeCodePoints(String text) {
    ByteArrayOutputStream bytes = new ByteArrayOutputStream(text.length() + 16);
    text.codePoints()
        .forEach(
            c -> {
              if (c >= Character.MIN_SURROGATE && c <= Character.MAX_SURROGATE) {
                bytes.write(0xE0 | c >> 12);
                bytes.write(0x80 | c >> 6 & 0x3F);
                bytes.write(0x80 | c & 0x3F);
              } else {
                bytes.writeBytes(Character.toString(c).getBytes(StandardCharsets.UTF_8));
              }
            });
    return bytes.toByteArray();
  }
}
